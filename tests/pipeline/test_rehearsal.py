"""What receives live traffic is ready when it says so: no loop is compiled, or even loaded, from then on."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import exports as e
from netns import namespace
from processes import DEADLINE, Node, ending, free_port, make_edge, make_hub, rows, status_of, windows_in
from superhosts.core.pairs import Part
from superhosts.detectors.engines import pairset, pairtable
from superhosts.detectors.engines.pairtable import Tables
from superhosts.detectors.stream import Stream
from superhosts.pipeline.rehearsal import rehearse
from superhosts.pipeline.settings import Settings
from traffic import MINUTES, NOON, talk, three_windows, write
from udp import send, wait_received, waiting_bytes
from waiting import wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="live traffic is received on Linux only")

# Runs a command, and writes which loops it loads or compiles once its first source, or its link, is open.
PROGRAM = """
import sys
from superhosts.cli import hub, main
from superhosts.jit import cache
from superhosts.sources.exports.udp import UdpSource
from superhosts.sources.livecapture import LiveSource

def noting(open):
    def call(*arguments):
        opened = open(*arguments)
        cache._Cache.load_overload = late
        return opened
    return call

def late(loop, *arguments):
    print("LATE", loop._name, *arguments, file=sys.stderr, flush=True)
    return load(loop, *arguments)

load = cache._Cache.load_overload
for each in (UdpSource, LiveSource):
    each.open = noting(each.open)
hub._open_receiver = noting(hub._open_receiver)
main()
"""
WINDOW = ("--window", "1s", "--memory", "64KiB", "--threshold", "100", "--key-file", "public")
RICH = ("--slide", "1s", "--window", "3s", "--evidence", "--peers", "opened,unanswered", "--count", "host-ports")


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for command in ("WATCH", "EDGE"):
        monkeypatch.setenv(f"SUPERHOSTS_{command}_GRACE", "0s")


@contextmanager
def running(node: Node) -> Iterator[Node]:
    node.runner = ("-c", PROGRAM)
    with ending(node):
        yield node.start()


def send_many(port: int) -> int:
    """Send datagrams of each kind, with more pairs than a small cube counts exactly; return the number of records."""
    sent = 0
    for number in range(400):
        peers = [f"192.0.{number % 256}.{number // 256 * 32 + each}" for each in range(30)]
        send(port, e.version5([e.record5("10.0.0.1", peer) for peer in peers], sequence=sent))
        sent += len(peers)
    for number in range(200):
        wide = [e.wide("2001:db8::1", f"2001:db8:{number:x}:{each:x}::1") for each in range(20)]
        known = [e.template(300, e.WIDE, is_ipfix=True)] if number == 0 else []
        send(port, e.ipfix(*known, e.data(300, wide), sequence=20 * number))
    send(port, e.version9(e.template(256, e.USUAL), e.data(256, [e.usual("10.0.0.1", "10.0.0.2")])))
    return sent + 200 * 20 + 1


@pytest.mark.parametrize("more", [(), pytest.param(RICH, marks=pytest.mark.slow)])
def test_an_edge_loads_no_loop_once_its_port_is_open(tmp_path: Path, more: tuple[str, ...]) -> None:
    port, spool = free_port(), tmp_path / "spool"
    where = f"--site ams --to {tmp_path}/hub --spool {spool} --output {tmp_path}/rows.jsonl".split()
    edge = Node(tmp_path / "edge.log", "edge", f"netflow://127.0.0.1:{port}", *where, *WINDOW, *more)
    with running(edge):
        edge.wait_ready()
        assert waiting_bytes(port) == 0  # It is open already.
        sent = 0
        for _ in range(2):
            sent += send_many(port)
            wait_received(port)
            windows = status_of(spool).get("edge", {}).get("windows", 0)
            wait_for(lambda: status_of(spool).get("edge", {}).get("windows", 0) > windows + 1, "windows close")  # noqa: B023
        assert edge.end() == 0
    assert status_of(spool)["scan"]["records"] == sent
    assert status_of(spool)["edge"]["lost"] == 0
    assert "LATE" not in edge.words


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), RICH])
def test_a_capture_loads_no_loop_once_its_ring_is_open(tmp_path: Path, more: tuple[str, ...]) -> None:
    frames = [*talk("10.0.0.7", 5000), *talk("2001:db8::7", 3000, base="2001:db8:1::")]
    with namespace(tmp_path) as net:
        kept = ("--output", str(tmp_path / "rows.jsonl"), "--save", str(tmp_path / "saved"))
        watch = Node(tmp_path / "watch.log", "watch", "live:near0", *WINDOW, *kept, *more, prefix=net.inside)
        with running(watch):
            assert watch.process is not None
            maps = Path(f"/proc/{watch.process.pid}/maps")
            wait_for(lambda: "socket:" in maps.read_text() or not watch.running, lambda: watch.words)
            for number in range(1, 3):
                net.send(frames)
                wait_for(lambda: len({r["window_start"] for r in rows(tmp_path / "rows.jsonl")}) >= number, "rows")  # noqa: B023
            assert watch.end(signal.SIGINT) == 128 + signal.SIGINT
    assert "16,000 packets in" in watch.words
    assert "LATE" not in watch.words


@pytest.mark.parametrize("more", [(), pytest.param(("--slide", "1m"), marks=pytest.mark.slow)])
def test_a_hub_loads_no_loop_once_its_link_is_open(tmp_path: Path, more: tuple[str, ...]) -> None:
    frames = [*three_windows(), *talk("10.0.0.9", 13_000, NOON + 5 * MINUTES)]  # more than a cube counts exactly
    hub, link = make_hub(tmp_path, *(("--window", "5m", *more) if more else ()), sites=("ams", "fra"), by_files=True)
    edges = [
        make_edge(tmp_path, site, link, *more, str(write(tmp_path / f"{site}.pcap", part)))
        for site, part in (("ams", frames), ("fra", frames[::2]))
    ]
    with running(hub), ending(*edges):
        hub.wait_ready()
        assert hub.running
        for edge in edges:
            edge.start()
        wait_for(lambda: windows_in(tmp_path / "found.jsonl") >= 3, "reports")
        assert [edge.process.wait(DEADLINE) for edge in edges if edge.process] == [0, 0]
        assert hub.end() == 0
    assert "LATE" not in hub.words


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"peers": ("unanswered",)},
        pytest.param({"count": "ports"}, marks=pytest.mark.slow),
        pytest.param({"count": "host-ports", "proto": ("udp",)}, marks=pytest.mark.slow),
        pytest.param({"by": "address-port", "port": ("443",)}, marks=pytest.mark.slow),
    ],
)
def test_made_up_traffic_reaches_the_detectors(options: dict[str, Any]) -> None:
    made: list[Part] = []

    def make(part: Part) -> Any:
        made.append(part)
        return settings.make_detector(part)

    settings = Settings(memory="64KiB", device="cpu", **options)
    rehearse(settings, make)
    assert {part.family for part in made} == {4, 6}


def test_tables_of_pairs_grow_in_the_rehearsal(monkeypatch: pytest.MonkeyPatch) -> None:
    grown = set()

    def unite(mine: Tables, *others: Any) -> None:
        grown.update(mine.widths[mine.sizes > 0].tolist())
        pairtable.unite(mine, *others)

    monkeypatch.setattr(pairset, "unite", unite)
    rehearse(Settings(memory="64KiB", device="cpu", threads=1))
    assert grown == {1, 2}  # words of a pair: IPv4, IPv6


def test_a_stream_forgets_its_pairs_in_the_rehearsal(monkeypatch: pytest.MonkeyPatch) -> None:
    estimated, of_cells = set(), Stream._of_cells

    def noted(stream: Stream, cells: Any) -> Any:
        estimated.add(stream.key_bits)
        return of_cells(stream, cells)

    monkeypatch.setattr(Stream, "_of_cells", noted)
    rehearse(Settings(memory="4MiB", detector="stream", device="cpu"))
    assert estimated == {32, 64}
