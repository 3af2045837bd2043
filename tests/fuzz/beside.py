"""A bad file beside a good one: no traceback, the bad one is named, and everything in the good one counts."""

from __future__ import annotations

import gzip
import io
import json
import re
import sqlite3
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import zstandard
from hypothesis import strategies as st

import exports as e
import packets as p
from frames import mixed, mixed_pcapng
from fuzz.mutations import Edit, apply, edits, values
from fuzz.sketches import run_command
from fuzz.targets import fresh_folder, target
from places import TESTS, load_module
from superhosts.output.alerts.store import AlertStore
from traffic import NOON, talk, write

GOOD, PEERS = "10.99.99.99", 30
USUAL = ("--json", "--quiet", "--detector", "exact", "--top", 5, "--inner", f"{GOOD}/32")
Packed = tuple[str, Callable[[bytes], bytes]]
PACKED: tuple[Packed, ...] = (("plain", bytes), ("gz", gzip.compress), ("zst", zstandard.ZstdCompressor().compress))


@cache
def inputs() -> list[bytes]:
    return [*captures(), *logs(), *tables(), *datagrams()]


def captures() -> list[bytes]:
    return [p.pcap(mixed()), p.pcap(mixed(), magic=p.NANO, order=">"), mixed_pcapng()]


def logs() -> list[bytes]:
    """Return every kind of log of the tests of logs, with several rows where it is one line for each."""
    module = load_module(TESTS / "sources" / "tables" / "test_logs.py")
    found = [text.encode() for text in module.TEXTS.values()]
    return found + [text + text.splitlines(keepends=True)[-1] * 3 for text in found if text.endswith(b"\n")]


def tables() -> list[bytes]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    times = pa.array([NOON // 1000 + each for each in range(40)], pa.timestamp("us"))
    ends = pa.array([f"10.0.0.{each % 7}" for each in range(40)])
    numbers = pa.array(range(0x0A000000, 0x0A000028), pa.uint32())
    plain = pa.table({"src": ends, "dst": ends, "time": times})
    packed = pa.table({"src": ends.dictionary_encode(), "dst": numbers, "time": times})
    nested = pa.table({"source": pa.StructArray.from_arrays([ends], ["ip"]), "dst": ends, "time": times})
    found = []
    for table in (plain, packed, nested):
        for compression in ("none", "zstd", "snappy"):
            file = io.BytesIO()
            pq.write_table(table, file, compression=compression, row_group_size=16, use_dictionary=table is not packed)
            found.append(file.getvalue())
        for opened in (pa.ipc.new_file, pa.ipc.new_stream):
            file = io.BytesIO()
            with opened(file, table.schema) as writer:
                writer.write_table(table, max_chunksize=16)
            found.append(file.getvalue())
    return found


def datagrams() -> list[bytes]:
    flows = [e.data(256, [e.usual("10.0.0.1", "10.0.0.2")] * 5)]
    nine = [e.version9(e.template(256, e.USUAL), *flows, sequence=each) for each in range(3)]
    ten = [e.ipfix(e.template(256, e.USUAL, is_ipfix=True), *flows, sequence=5 * each) for each in range(3)]
    five = [e.version5([e.record5("10.0.0.1", "10.0.0.2")] * 5)]
    return [b"".join(five), b"".join(nine), b"".join(ten)]


@cache
def alerts() -> bytes:
    """Return a file of alerts with an open and a closed one, a mute, and what is usual for hosts."""
    with fresh_folder() as folder:
        rows = write(folder / "a.pcap", talk("10.0.0.7", 90) + talk("10.0.0.8", 80, NOON + 3600 * p.SECOND))
        path = folder / "alerts.sqlite"
        given = ("--threshold", 1, "--quiet", "--window", "5m", "--evidence", "--baseline", "week")
        run_command("scan", rows, "--alerts", path, *given)
        run_command("scan", rows, "--alerts", path, *given[:-2])  # the first one learns alone
        run_command("alerts", "acknowledge", path, "10.0.0.8", "--by", "ana", "--note", "known")
        run_command("alerts", "mute", path, "10.0.0.9", "--for", "1d")
        AlertStore(path).close()  # the last to close it moves everything into the one file
        return path.read_bytes()


def _alerts_like(where: int, which: int, value: Any, changes: list[Edit]) -> bytes:
    """Return a file of alerts with another value in one of its cells, or with other bytes."""
    if changes:
        return apply(alerts(), changes)
    with fresh_folder() as folder:
        path = folder / "alerts.sqlite"
        path.write_bytes(alerts())
        database = sqlite3.connect(path)
        cells = [
            (table, column, row)
            for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            for _, column, *_ in database.execute(f"PRAGMA table_info({table})").fetchall()
            for row in range(database.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
        ]
        table, column, row = cells[where % len(cells)]
        keys = [each[1] for each in database.execute(f"PRAGMA table_info({table})") if each[5]] or ["rowid"]
        before = database.execute(f"SELECT {column}, {keys[0]} FROM {table} LIMIT 1 OFFSET ?", (row,)).fetchone()
        now = _cell(before[0], which, value)
        try:
            database.execute(f"UPDATE {table} SET {column} = ? WHERE {keys[0]} = ?", (now, before[1]))
        except (sqlite3.Error, OverflowError, UnicodeEncodeError):
            database.execute(f"DELETE FROM {table}")
        database.commit()
        database.close()
        return path.read_bytes()


def _cell(before: Any, which: int, value: Any) -> Any:
    """Return a value that SQLite stores: a field of JSON with another value, bytes that are not text, any value."""
    try:
        content = json.loads(before) if isinstance(before, str) else None
    except ValueError:
        content = None
    if isinstance(content, dict) and content and which % 4:
        names = [*content, "later"]
        content[names[which % len(names)]] = value
        return json.dumps(content)
    if which % 5 == 0:
        return b"\xff\xfe{" + str(before).encode(errors="replace")
    return value if isinstance(value, int | float | str | None) else json.dumps(value)


of_inputs = st.builds(
    lambda base, packed, inside, outside: apply(
        PACKED[packed][1](apply(inputs()[base % len(inputs())], inside)), outside
    ),
    st.integers(0, 10_000),
    st.sampled_from([0, 0, 0, 0, 1, 2]),
    edits,
    st.just([]) | st.just([]) | edits,
)
of_alerts = st.tuples(st.integers(0, 500), st.integers(0, 40), values, st.just([]) | edits)  # for `_alerts_like`
cases = st.one_of(*[st.tuples(st.just("input"), of_inputs)] * 6, st.tuples(st.just("alerts"), of_alerts))


@target(cases)
def beside(case: tuple[str, Any]) -> None:
    """Read a changed file and a good one with one command."""
    kind, recipe = case
    data = _alerts_like(*recipe) if kind == "alerts" else recipe
    with fresh_folder() as folder:
        bad, good = folder / "bad", write(folder / "good.pcap", talk(GOOD, PEERS))
        bad.write_bytes(data)
        if kind == "input":
            check_scan(run_command("scan", bad, good, *USUAL, "--window", "5m"), bad)
            if len(data) % 4 == 0:
                check_scan(run_command("scan", good, bad, *USUAL, "--window", "all", "--evidence"), bad)
        else:
            status, shown = run_command("scan", good, *USUAL, "--window", "5m", "--threshold", 1, "--alerts", bad)
            assert status in (0, 3, 4), shown
            assert status == 3 or f'"{GOOD}"' in shown  # 3: refused before anything was read
            assert status == 0 or str(bad) in shown
            check_words(shown)
            for words in (("alerts", "list", "--all", bad), ("alerts", "export", bad)):
                status, shown = run_command(*words)
                assert status in (0, 2, 3, 4), shown
                check_words(shown)


def check_scan(ended: tuple[int, str], bad: Path) -> None:
    status, shown = ended
    rows = [json.loads(line) for line in shown.splitlines() if line.startswith("{")]
    assert sum(row["peers"] for row in rows if row["host"] == GOOD) >= PEERS, shown
    assert status in (0, 3), shown
    assert status == 0 or f"{bad}: " in shown, shown
    check_words(shown)


def check_words(shown: str) -> None:
    assert not re.search(r"Traceback|internal error|Error\(", shown), shown
