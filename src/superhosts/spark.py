"""Super hosts of a Spark DataFrame: one sketch for each partition, merged where the result is wanted.

    from superhosts.spark import merge_sketches, sketch_partitions

    sketches = sketch_partitions(flows, src="src_ip", dst="dst_ip", inner="10.0.0.0/8")
    for row in merge_sketches(sketches).super_hosts(1024):
        print(row.host, row.peers)

Every executor reads its partitions in batches of Arrow (`mapInArrow`) and puts them into a sketch, in the memory of one
cube for each address family. Only sketches travel: one binary value for each partition, some megabytes at most.
The executors keep them on disk while the driver merges one after the other, so that it holds one sketch, however many
partitions there are. Merging is exact: the result has the same bits as a sketch of all rows at one place, and the rows
of `superhosts scan --exact off`.

Addresses may be text, integers, or binary of 4 or 16 bytes. Rows that are not a pair of addresses are left out, and
`sketch_partitions` counts them in the column `bad_rows`.

All workers must use the same key. It is taken where `sketch_partitions` is called (`key=`, SUPERHOSTS_KEY or the public
key) and travels with the job: whoever can read the job's files on the cluster can read it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from superhosts.core.hashing import secret_of
from superhosts.core.pairs import Window
from superhosts.errors import InputError, MergeError, UsageError, import_extra
from superhosts.pipeline.settings import Settings
from superhosts.sketch.sketch import Sketch

SCHEMA = "sketch binary, rows bigint, bad_rows bigint"


def sketch_partitions(
    df: Any,
    *,
    host: str | None = None,
    peer: str | None = None,
    src: str | None = None,
    dst: str | None = None,
    **settings: Any,
) -> Any:
    """Return a DataFrame with one row for each partition that has rows: `sketch`, `rows` and `bad_rows`.

    With `host` and `peer`, every row of `df` is one pair: a host and one of its peers. With `src` and `dst`, every row
    is a packet or a flow record, and both of its ends may be hosts, as in `superhosts scan`. Settings are those of
    `superhosts.scan` that say what to count, like `inner`, `direction`, `memory`, `ipv6_prefix` and `key`.
    """
    import_extra("superhosts.spark", "spark", "pyarrow", "pyspark")
    pairs, flows = (host, peer), (src, dst)
    chosen = pairs if flows == (None, None) else flows
    if None in chosen or (pairs != (None, None) and flows != (None, None)):
        raise UsageError("sketch_partitions: name two columns, host= and peer=, or src= and dst=")
    if chosen is pairs and "direction" in settings:
        raise UsageError("direction=: only with src= and dst=; host= and peer= say who is who")
    names = [str(name) for name in chosen]
    if missing := [name for name in names if name not in df.columns]:
        raise UsageError(f"sketch_partitions: no column {', '.join(missing)}; there are {', '.join(df.columns)}")
    if chosen is pairs:
        settings["direction"] = "out"  # a pair is a packet that the host has sent
    made = _settings(settings)
    selected = df.select(*(df[name] for name in names))
    return selected.mapInArrow(_Worker(made, names), SCHEMA)


def merge_sketches(sketches: Any, *, key: bytes | str | None = None) -> Sketch:
    """Return the union of sketches: of a DataFrame that `sketch_partitions` returned, of its rows, or of bytes.

    All partitions of a DataFrame are computed first, by all executors; then their sketches come to the driver in turn.
    """
    whole: Sketch | None = None
    with tempfile.TemporaryDirectory(prefix="superhosts-spark-") as folder:
        path = Path(folder) / "partition.cube"
        for number, data in enumerate(_bytes_of(sketches), start=1):
            path.write_bytes(data)
            whole = Sketch() if whole is None else whole
            try:
                whole.merge_file(path, key=key)
            except InputError as error:
                raise InputError(error.message, file=f"sketch {number:,}", offset=error.offset) from None
            except MergeError as error:
                raise MergeError(str(error).replace(str(path), f"sketch {number:,}")) from None
    return Sketch() if whole is None else whole


class _Worker:
    """What an executor does with one partition. It travels to the executors."""

    def __init__(self, settings: Settings, names: list[str]) -> None:
        self._settings = settings
        self._names = names

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield a batch with one row: the sketch of the partition. None if there are no rows."""
        import numpy as np
        import pyarrow as pa

        from superhosts.core.columns.addresses import packets_of
        from superhosts.jit.ahead import use_one_process
        from superhosts.pipeline.builder import WindowBuilder
        from superhosts.sources.tables.arrow import addresses_of, arrow_errors

        use_one_process()  # There is an executor for each core.
        builder = WindowBuilder(self._settings, find=False)
        rows = bad = 0
        for batch in batches:
            with arrow_errors("DataFrame", "DataFrame"):
                ends = [addresses_of(batch.column(name), name) for name in self._names]
            block, dropped = packets_of(ends[0], ends[1], np.zeros(batch.num_rows, np.int64))
            rows, bad = rows + batch.num_rows, bad + len(dropped)
            for packets in block:
                builder.update(0, packets)
        if rows:
            sketch = builder.close(0, Window(0, 0)).sketch
            sketch.window, sketch.entries = None, []  # a partition is not a span of time
            values = {"sketch": pa.array([sketch.to_bytes(pairs=True)], pa.binary()), "rows": [rows], "bad_rows": [bad]}
            yield pa.RecordBatch.from_pydict(values)


def _settings(given: dict[str, Any]) -> Settings:
    """Return the settings of the workers, with the key in them."""
    for name in ("threshold", "top", "window", "site"):
        if name in given:
            raise UsageError(f"{name}=: sketches are made without it; ask the merged sketch")
    made = Settings(**given)
    key, threads = secret_of(made.key), made.threads or 1  # Spark gives a task one core
    return replace(made, window="all", key=key, device="cpu", threads=threads)


def _bytes_of(sketches: Any) -> Iterator[bytes]:
    if hasattr(sketches, "toLocalIterator"):
        from pyspark import StorageLevel

        kept = sketches.select("sketch").persist(StorageLevel.DISK_ONLY)
        try:
            kept.count()  # all partitions at once: the iterator asks for one after the other
            yield from (bytes(row["sketch"]) for row in kept.toLocalIterator())
        finally:
            kept.unpersist()
        return
    for row in sketches:
        yield bytes(row) if isinstance(row, bytes | bytearray | memoryview) else bytes(row["sketch"])
