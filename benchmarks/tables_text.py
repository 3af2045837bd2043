"""Logs of text: rows per second of a core, of the whole read loop, beside Python's own parsers on the same lines.

    python benchmarks/tables_text.py [ROWS]

It makes its own logs, of the width that the programs write. The best of several rounds counts.
"""

from __future__ import annotations

import csv
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from superhosts.sources.input import FileSource, Input
from superhosts.sources.tables.formats import table_format
from superhosts.sources.tables.options import TableOptions
from superhosts.sources.tables.source import table_files

ROUNDS = 5
ZEEK_FIELDS = [
    *("ts", "uid", "id.orig_h", "id.orig_p", "id.resp_h", "id.resp_p", "proto", "service", "duration", "orig_bytes"),
    *("resp_bytes", "conn_state", "local_orig", "local_resp", "missed_bytes", "history", "orig_pkts", "orig_ip_bytes"),
    *("resp_pkts", "resp_ip_bytes", "tunnel_parents"),
]
NOT_IN_JSON = {"tunnel_parents"}  # Zeek leaves out what is not set


def flows(count: int) -> Iterator[tuple[float, str, int, str]]:
    """Yield a time, two addresses and a port."""
    drawn = random.Random(1)
    for i in range(count):
        ends = drawn.getrandbits(64)
        src, dst = ends >> 32, ends & 0xFFFFFFFF
        addresses = [".".join(str(number >> shift & 255) for shift in (24, 16, 8, 0)) for number in (src, dst)]
        yield 1_713_484_795 + i * 0.001, addresses[0], 1024 + src % 60_000, addresses[1]


def zeek_values(flow: tuple[float, str, int, str]) -> list[object]:
    when, src, port, dst = flow
    rest = ["tcp", "ssl", 3.150262, 1250, 16940, "SF", False, True, 0, "ShADadFf", 12, 1882, 14, 2430, "-"]
    return [round(when, 6), "CYl7H53iN6mY9NyXJ8", src, port, dst, 443, *rest]


def zeek(count: int) -> Iterator[str]:
    yield "#separator \\x09"
    yield "#fields\t" + "\t".join(ZEEK_FIELDS)
    for flow in flows(count):
        when, *rest = zeek_values(flow)
        yield f"{when:.6f}\t" + "\t".join(
            {True: "T", False: "F"}.get(each, str(each)) if isinstance(each, bool) else str(each) for each in rest
        )


def zeek_json(count: int) -> Iterator[str]:
    for flow in flows(count):
        values = dict(zip(ZEEK_FIELDS, zeek_values(flow), strict=True))
        yield json.dumps({name: values[name] for name in ZEEK_FIELDS if name not in NOT_IN_JSON}, separators=(",", ":"))


def eve(count: int) -> Iterator[str]:
    tcp = {
        "tcp_flags": "1b",
        "tcp_flags_ts": "1b",
        "tcp_flags_tc": "1b",
        "syn": True,
        "fin": True,
        "ack": True,
        "state": "closed",
    }
    for when, src, port, dst in flows(count):
        seconds = int(when) % 60
        start, end = f"2024-04-19T00:00:{seconds:02}.793839+0200", f"2024-04-19T00:01:{seconds:02}.793839+0200"
        flow = {
            "pkts_toserver": 12,
            "pkts_toclient": 14,
            "bytes_toserver": 1882,
            "bytes_toclient": 2430,
            "start": start,
        }
        flow |= {"end": end, "age": 60, "state": "closed", "reason": "timeout", "alerted": False}
        event = {"timestamp": end, "flow_id": 1374195536821504, "in_iface": "eth0", "event_type": "flow", "src_ip": src}
        event |= {"src_port": port, "dest_ip": dst, "dest_port": 445, "proto": "TCP", "app_proto": "tls"}
        yield json.dumps({**event, "flow": flow, "tcp": tcp}, separators=(",", ":"))


def ours(path: Path, threads: int) -> int:
    source = Input(path)
    format = table_format(None, source.first_lines())
    assert format is not None
    table = FileSource(source, lambda _: table_files(format, TableOptions(threads=threads)))
    return sum(len(batch) for block in table.blocks() for batch in block)


def python_csv(path: Path) -> int:
    with path.open(newline="") as file:
        rows = (row for row in csv.reader(file, delimiter="\t") if not row[0].startswith("#"))
        return sum(1 for row in rows if (row[0], row[2], row[4]))


def python_json(path: Path) -> int:
    with path.open() as file:
        return sum(1 for line in file if json.loads(line))


def best(work: Callable[[], int], rounds: int, clock: Callable[[], float]) -> tuple[int, float]:
    """Return the rows and the shortest time."""
    found = []
    for _ in range(rounds):
        start = clock()
        rows = work()
        found.append(clock() - start)
    return rows, min(found)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 300_000
    print(f"{'log':12} {'bytes/row':>9} {'M rows/s a core':>16} {'two threads':>12} {'Python':>8}")
    with tempfile.TemporaryDirectory() as folder:
        for name, make, peer in (
            ("Zeek TSV", zeek, python_csv),
            ("Zeek JSON", zeek_json, python_json),
            ("EVE", eve, python_json),
        ):
            path = Path(folder) / "log"
            path.write_text("".join(line + "\n" for line in make(count)))
            ours(path, 1)  # compiles
            rows, seconds = best(lambda path=path: ours(path, 1), ROUNDS, time.process_time)
            assert rows == count, (name, rows)
            _, both = best(lambda path=path: ours(path, 2), ROUNDS, time.perf_counter)
            _, slow = best(lambda path=path, peer=peer: peer(path), 2, time.process_time)
            rates = (count / each / 1e6 for each in (seconds, both, slow))
            print(
                f"{name:12} {path.stat().st_size // count:9} {next(rates):16.2f} {next(rates):12.2f} {next(rates):8.2f}"
            )


if __name__ == "__main__":
    main()
