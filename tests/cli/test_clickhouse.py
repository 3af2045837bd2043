"""The queries of docs/guides/clickhouse.md in a real ClickHouse give the rows of `superhosts scan` on the same packets.

chDB is ClickHouse as a library. It runs in a process of its own, as its threads and those of tests should not meet.
"""

from __future__ import annotations

import ipaddress
import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import traffic
from commands import process

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy" / "clickhouse"
QUERIES = re.findall(
    r"```sql\n(.*?)```", (ROOT / "docs" / "guides" / "clickhouse.md").read_text(encoding="utf-8"), re.DOTALL
)
START = 1_700_000_100  # seconds
CHDB = """
import json, sys
from chdb.session import Session
import chdb
folder, queries = json.load(sys.stdin)
if folder["udf"]:
    print(chdb.query(";".join(queries), "JSONEachRow", udf_path=folder["udf"]))
else:
    session = Session(folder["data"])
    for query in queries:
        found = session.query(query, "JSONEachRow")
    print(found)
"""
AKVORADO = "CREATE TABLE flows (TimeReceived DateTime('UTC'), SrcAddr IPv6, DstAddr IPv6, EType UInt32) ENGINE = Memory"
GOFLOW2 = "CREATE TABLE flows_raw (src_addr FixedString(16), dst_addr FixedString(16), etype UInt32) ENGINE = Memory"
STRUCTURE = "second UInt32, src String, dst String, hex_src String, hex_dst String, etype UInt32"

Packet = tuple[int, str, str]
Ask = Callable[..., list[dict[str, Any]]]


def make_packets() -> list[Packet]:
    """Return packets of both families with three hosts of at least 1000 peers."""
    draw = random.Random(3)
    found: list[Packet] = []
    for host, peers in (("10.0.0.1", 2500), ("10.0.0.2", 1200), ("10.0.0.3", 800), ("2001:db8::7", 1500)):
        width, make = (128, ipaddress.IPv6Address) if ":" in host else (32, ipaddress.IPv4Address)
        found += [(START + draw.randrange(900), host, str(make(draw.getrandbits(width)))) for _ in range(peers)]
    return sorted(found)


PACKETS = make_packets()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the packets as a capture and as a table, and with what a server needs."""
    folder = tmp_path_factory.mktemp("clickhouse")
    traffic.write(folder / "all.pcap", [traffic.packet(second * 10**9, src, dst) for second, src, dst in PACKETS])
    lines = []
    for second, src, dst in PACKETS:
        ends = [ipaddress.ip_address(end) for end in (src, dst)]
        mapped = [str(end) if end.version == 6 else f"::ffff:{end}" for end in ends]
        etype = 0x86DD if ends[0].version == 6 else 0x0800
        lines.append(f"{second},{mapped[0]},{mapped[1]},{ends[0].packed.hex()},{ends[1].packed.hex()},{etype}\n")
    (folder / "packets.csv").write_text("".join(lines))
    for name in ("user_scripts", "udf"):
        (folder / name).mkdir()
        shutil.copy(DEPLOY / "superhosts-rows", folder / name)
    shutil.copy(DEPLOY / "superhosts_function.xml", folder / "udf")
    program = folder / "superhosts"
    cache = os.environ.get("NUMBA_CACHE_DIR")
    kept = f'export NUMBA_CACHE_DIR="{cache}"' if cache else "unset NUMBA_CACHE_DIR"  # compiled already
    program.write_text(f'#!/bin/sh\n{kept}\nexec "{sys.executable}" -m superhosts "$@"\n')
    program.chmod(0o755)
    return folder


def environment(folder: Path) -> dict[str, str]:
    paths = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH", ""), str(ROOT / "src")]))
    return {**os.environ, "SUPERHOSTS": str(folder / "superhosts"), "PYTHONPATH": paths}


def in_chdb(folder: Path, queries: list[str], *, udf: bool) -> str:
    pytest.importorskip("chdb", reason="chdb is not installed: pip install 'superhosts[bench]'")
    given = json.dumps([{"data": str(folder), "udf": str(folder / "udf") if udf else ""}, queries])
    command = [sys.executable, "-c", CHDB]
    ended = subprocess.run(command, input=given, capture_output=True, text=True, env=environment(folder), check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture
def ask(folder: Path) -> Ask:
    def ask(*queries: str, udf: bool = False) -> list[dict[str, Any]]:
        return [json.loads(line) for line in in_chdb(folder, list(queries), udf=udf).splitlines() if line]

    return ask


def table(folder: Path, create: str, columns: str) -> list[str]:
    """Return the queries that make a table, unless it is there, and fill it with the packets."""
    name = create.split()[2]
    source = f"file('{folder / 'packets.csv'}', CSV, '{STRUCTURE}')"
    return [f"DROP TABLE IF EXISTS {name}", create, f"INSERT INTO {name} SELECT {columns} FROM {source}"]


def akvorado(folder: Path) -> list[str]:
    return table(folder, AKVORADO, "toDateTime(second, 'UTC'), toIPv6(src), toIPv6(dst), etype")


def scanned(folder: Path, *options: object) -> list[dict[str, Any]]:
    ended = process("scan", folder / "all.pcap", "--json", "--direction", "out", *options)
    assert ended.status == 0, ended.err
    return ended.rows


def plain(rows: list[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    """Return rows with some of their columns; ClickHouse writes large numbers as text."""
    numbers = ("peers", "peers_low", "peers_high")
    return [{name: int(row[name]) if name in numbers else row[name] for name in names} for row in rows]


COLUMNS = ("host", "peers", "peers_low", "peers_high", "exact")


def test_flows_of_akvorado(folder: Path, ask: Ask) -> None:
    found = ask(*akvorado(folder), QUERIES[0])
    assert plain(found, *COLUMNS) == plain(scanned(folder, "-w", "all", "-t", 1000), *COLUMNS)
    assert [row["host"] for row in found] == ["10.0.0.1", "2001:db8::/64", "10.0.0.2"]


def test_flows_of_goflow2(folder: Path, ask: Ask) -> None:
    """Its addresses are bytes, four of them and zeros for IPv4."""
    ends = (f"toFixedString(unhex(hex_{end}), 16)" for end in ("src", "dst"))
    found = ask(*table(folder, GOFLOW2, f"{', '.join(ends)}, etype"), QUERIES[1])
    assert plain(found, *COLUMNS) == plain(scanned(folder, "-w", "all", "-t", 1000), *COLUMNS)


def test_windows(folder: Path, ask: Ask) -> None:
    found = ask(*akvorado(folder), QUERIES[2])
    starts = [row["window_start"][:19].replace(" ", "T") + "Z" for row in found]
    rows = [{**row, "window_start": start} for row, start in zip(found, starts, strict=True)]
    names = ("window_start", "host", "peers")
    assert plain(rows, *names) == plain(scanned(folder, "-w", "5m", "-n", 3), *names)
    assert len(set(starts)) == 3


def test_a_function_of_sql_answers_for_each_group(folder: Path, ask: Ask) -> None:
    source = f"file('{folder / 'packets.csv'}', CSV, '{STRUCTURE}')"
    flows = f"(SELECT toDateTime(second, 'UTC') TimeReceived, toIPv6(src) SrcAddr, toIPv6(dst) DstAddr FROM {source})"
    found = ask(QUERIES[3].replace("FROM flows", f"FROM {flows}"), udf=True)
    rows = [item for row in found for item in row["found"]]
    expected = plain(scanned(folder, "-w", "5m", "-n", 10), *COLUMNS[:4])
    assert [{name: item if name == "host" else int(item) for name, item in row.items()} for row in rows] == expected


def test_a_command_that_fails_fails_the_query(folder: Path) -> None:
    query = "SELECT * FROM executable('superhosts-rows --out ArrowStream', ArrowStream, 'host String', (SELECT 1 AS a))"
    with pytest.raises(AssertionError, match=r"ShellCommandSource|pipe|Arrow stream is empty"):
        in_chdb(folder, [query], udf=False)
