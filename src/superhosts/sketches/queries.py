"""Questions to sketches that lie in files, read block by block: memory follows the hosts asked for, not the sketch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from superhosts.cubefile import container as sketchfile
from superhosts.cubefile.coding import Block
from superhosts.detectors.base import Detector, SuperHosts, as_column
from superhosts.detectors.columnsketch import ColumnSketch
from superhosts.detectors.estimate import UNBOUNDED
from superhosts.detectors.kinds import Kind
from superhosts.detectors.registry import DETECTORS
from superhosts.device import thread_count
from superhosts.engines.base import Sums
from superhosts.engines.columns import Counts, Words, count_zeros, sum_arrays
from superhosts.errors import UsageError
from superhosts.hashing import secret_of
from superhosts.pairs import Addresses, Host, Part, array_to_numbers, numbers_to_array
from superhosts.sketches.bundle import Found, load
from superhosts.sketches.header import Stored, check_header, check_hosts, describe, memory_limit, read_header

__all__ = ["Stored", "check_header", "estimate_each", "estimate_in_file", "find_in_file", "read_header"]

Hosts = SuperHosts | Addresses | Sequence[str | int | Host]


class SomeColumns:
    """The columns of some hosts, and the zero counts of all: what an estimate asks of an engine."""

    def __init__(self, sketch: ColumnSketch, mangled: Words) -> None:
        self._sketch, self._geometry = sketch, sketch.engine_geometry
        columns = sketch.cpu_engine.columns_of(mangled, self._geometry, sketch.key)
        self._kept, rows = np.unique(columns, return_inverse=True)
        self._columns, self._rows = columns, rows.reshape(columns.shape)
        self._bits: Words = np.zeros((len(self._kept), self._geometry.words), np.uint64)
        self._zeros: Counts = np.full(self._geometry.total_columns, self._geometry.rows, np.int32)

    def take_block(self, start: int, stop: int, block: Block) -> None:
        """Count the zeros of a block's columns and keep those that are wanted."""
        words = self._geometry.words
        columns = np.empty((stop - start) // words * words, np.uint64)  # a block holds whole columns
        block.put(columns)
        matrix = columns.reshape(-1, words)
        first, last = start // words, stop // words
        count_zeros(matrix, self._zeros[first:last], 0, len(matrix))
        a, b = np.searchsorted(self._kept, (first, last))
        self._bits[a:b] = matrix[self._kept[a:b] - first]

    def measure(self, mangled: Words) -> Counts:
        """Return the zero counts of the hosts that it was made for: of each column, then of their AND."""
        engine, key = self._sketch.cpu_engine, self._sketch.key
        common = engine.common_zeros(mangled, self._rows, self._bits, self._geometry, key)
        return np.column_stack((self._zeros[self._columns], common))

    def zero_sums(self) -> Sums:
        """Return the zero bits of every array in every slice."""
        return sum_arrays(self._zeros, self._sketch._array_edges())


def estimate_in_file(
    path: str | Path, hosts: Mapping[Part, Hosts], *, key: bytes | str | None = None, trusted: bool = False
) -> dict[Part, SuperHosts]:
    """Return the numbers of peers of given hosts in a stored sketch, in the order asked; parts it lacks are left out.

    The numbers are those that `load(path).parts[part].estimate(host)` gives for each. Hosts come as a column, as a
    result, or as addresses. `trusted`: the file's checksum was checked a moment ago, and is not computed again.
    """
    secret = secret_of(key)
    with sketchfile.Reader(path, trusted=trusted) as reader:
        stored = describe(reader, memory_limit(None))
        return _ask(reader, stored, hosts, secret)


def find_in_file(
    path: str | Path, host: str | Host, *, key: bytes | str | None = None, max_memory: str | int | None = None
) -> list[Found]:
    """Return one host's number of peers in every part of its address family, as `load(path).estimate(host)` would."""
    family = 6 if ":" in str(host) else 4
    with sketchfile.Reader(path) as reader:
        stored = describe(reader, memory_limit(max_memory))
        asked: dict[Part, Hosts] = {part: [host] for part in stored.kinds if part.family == family}
        answers = _ask(reader, stored, asked, secret_of(key))
    return [Found(part, next(iter(rows)), stored.kinds[part].detector) for part, rows in answers.items()]


def _ask(
    reader: sketchfile.Reader, stored: Stored, hosts: Mapping[Part, Hosts], secret: bytes
) -> dict[Part, SuperHosts]:
    stored.check_key(secret)
    check_hosts(reader, stored, secret)
    columns = {part: _column_of(hosts[part], kind) for part, kind in stored.kinds.items() if part in hosts}
    if not all(issubclass(DETECTORS[stored.kinds[part].detector], ColumnSketch) for part in columns):
        return _ask_whole(reader.name, columns, secret)
    sketches: dict[Part, tuple[ColumnSketch, Words]] = {}
    takers: dict[str, sketchfile.Take] = {}
    for number, (part, kind) in enumerate(stored.kinds.items()):
        if part in columns:
            detector: Any = DETECTORS[kind.detector]
            sketch: ColumnSketch = detector.without_columns(kind, secret)
            mangled = sketch.mangle(columns[part])
            some: Any = SomeColumns(sketch, mangled)
            sketch.engine = some
            sketches[part] = sketch, mangled
            takers[f"{number}/bits"] = some.take_block
    reader.each_block(takers, thread_count())
    answers = {part: sketch.estimate_mangled(mangled).as_asked() for part, (sketch, mangled) in sketches.items()}
    for sketch, _ in sketches.values():
        del sketch.engine  # it knows the sketch: a ring, whose megabytes of columns would wait for the collector
    return answers


def _column_of(hosts: Hosts, kind: Kind) -> Addresses:
    """Return hosts as the column that a part of this kind takes."""
    if isinstance(hosts, SuperHosts):
        if hosts.format != kind.format:
            raise UsageError(f"hosts are /{hosts.format.prefix}, those of the sketch are /{kind.format.prefix}")
        return hosts.hosts
    if not isinstance(hosts, np.ndarray):
        return numbers_to_array([kind.format.to_number(host) for host in hosts], kind.format.key_bits)
    column = as_column(hosts, "hosts")
    bits = 128 if column.ndim == 2 else column.dtype.itemsize * 8
    if bits != kind.format.key_bits:
        raise UsageError(f"hosts have {bits} bits, those of the sketch {kind.format.key_bits}")
    return column


def _ask_whole(path: str, columns: Mapping[Part, Addresses], secret: bytes) -> dict[Part, SuperHosts]:
    """Ask a sketch that is not made of columns: it is loaded as a whole."""
    sketch = load(path, key=secret)
    return {part: estimate_each(sketch.parts[part], column) for part, column in columns.items()}


def estimate_each(detector: Detector, column: Addresses) -> SuperHosts:
    """Return the numbers of peers of given hosts, in the order asked."""
    rows = [detector.estimate(number) for number in array_to_numbers(column)]
    peers = np.array([row.peers for row in rows], np.int64)
    low = np.array([row.peers_low for row in rows], np.int64)
    high = np.array([UNBOUNDED if row.peers_high is None else row.peers_high for row in rows], np.int64)
    result = SuperHosts(column, peers, low, high, np.array([row.saturated for row in rows], np.bool_))
    result.format = detector.format
    return result.as_asked()
