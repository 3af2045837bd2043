"""The command lines of edge and hub: what does not go together, how they end, what they say while they run."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path

import numpy as np
import pytest

import packets as p
from brokers import KeepingIntake, eventually, make_broker, running
from commands import Run, parsed_commands
from places import fleet_guide
from superhosts.cli._signals import Interruption, set_safely
from superhosts.cli.edge import watch
from superhosts.cli.hub import hub_sites, largest_sketch
from superhosts.cli.usage.fleet import Edge
from superhosts.core.defaults import EVIDENCE_PAIRS
from superhosts.core.hashing import secret_of
from superhosts.core.pairs import DIRECTIONS, SIDES, Window
from superhosts.cubefile import container as sketchfile
from superhosts.cubefile.header import EVIDENCE_WORDS
from superhosts.errors import OutputError
from superhosts.fleet.link import MERGED, REFUSED, Receipt
from superhosts.fleet.nats.receive import Identity, NatsReceiver
from superhosts.fleet.nats.send import SendCounters
from superhosts.fleet.spool import Spool
from superhosts.pipeline.settings import Settings
from superhosts.sketch.evidence.sample import Evidence
from superhosts.sketch.sketch import Sketch
from superhosts.ui.service import Reloads
from traffic import MINUTES, NOON, talk

# Options


REFUSED_OPTIONS = (
    ("hub --from in --listen h:1 --tls-cert /none --nkey /none", "--listen, --nkey, --tls-cert: not with --from"),
    ("hub --from in --nats nats://hub:4222", "--nats: not with --from"),
    ("hub --from in --broker-cap 1GiB", "--broker-cap: not with --from"),
    ("hub --nats nats://hub:4222 --listen 127.0.0.1:4222", "--listen: not with --nats"),
    ("hub --creds /none", "--creds: for your own server (--nats)"),
    ("hub --tls-ca /none", "TLS of the embedded broker takes"),
    ("hub --from in --up-nkey /none", "--up-nkey: only with --up"),
    ("hub --from in --to out --up-ca /none", "--up-ca: only with --up"),
    ("hub --from in --slide 30s", "--slide: only with --window, like --window 5m --slide 30s"),
    ("hub --from in --window 5m --slide 7s", "--slide 7s: the window (5m) has to be a multiple of it"),
    ("hub --from in --window all", "--window: 'all' is not a duration"),
    ("hub --from in --window 1m --slide 1s --late 1d", "--late 1d: 86,400 windows of 1s, and a site may have 20,000"),
    ("hub --from in --quota-bytes 0", "--quota-bytes 0: no sketch would ever be accepted"),
    ("edge --site ams --to out --nkey /none --tls-ca /none", "--nkey, --tls-ca: not with --to"),
    ("edge --site ams --to out -t 1k", "--threshold and --top: only with --output"),
    ("edge --site ams --to out -o rows.parquet", "--output rows.parquet: Parquet cannot be appended to; name a folder"),
    ("edge --site ams --nats nats://[::1", "--nats 'nats://[::1': not an address"),
    ("edge --site ams --nats nats://127.0.0.1:99999", "--nats 'nats://127.0.0.1:99999': not an address"),
    ("hub --from in --up nats://[::1", "--up 'nats://[::1': not an address"),
    ("hub --nats 127.0.0.1:1x", "--nats 'nats://127.0.0.1:1x': not an address"),
    ("hub --listen [::1", "--listen: '[::1' is not HOST:PORT"),
    ("hub --listen 127.0.0.1:99999", "--listen: '127.0.0.1:99999' is not HOST:PORT"),
    ("hub --listen=", "--listen: '' is not HOST:PORT"),
)
REFUSED_LATER = (  # once the folder of the hub is there
    ("hub --listen a..b:4222", "--listen a..b: "),
)


def test_options_that_cannot_be_are_one_line(run, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for table in (REFUSED_OPTIONS, REFUSED_LATER):
        for words, said in table:
            ended = run(*words.split())
            lines = [line for line in ended.err.splitlines() if "becomes a setting" not in line]
            assert (ended.status, ended.out, len(lines)) == (2, "", 1), ended.err
            assert lines[0].startswith(f"superhosts: {said}"), ended.err
        assert table is REFUSED_LATER or list(tmp_path.iterdir()) == []  # before anything is made


def test_a_second_hub_at_a_server_ends(run: Run, tmp_path: Path) -> None:
    with make_broker(tmp_path / "broker", []) as broker:
        first = NatsReceiver(broker.options, print, owner=Identity("1", "one"), cap=broker.cap)
        with running(first.run, KeepingIntake(tmp_path / "first")):
            eventually(lambda: first.counters.connects)
            ended = run("hub", "--nats", broker.options.url, "--state", tmp_path / "second", "--memory", "1MiB")
        assert ended.status == 2
        assert "another hub on one reads the queue there" in ended.err
        assert first.counters.connects == 1


def test_the_largest_sketch_is_none_too_small(tmp_path: Path) -> None:
    hub = Settings(memory="64KiB", device="cpu", threads=1)
    edge = Settings(memory="64KiB", device="cpu", threads=1, inner=["10.0.0.0/8"], watch=SIDES, direction=DIRECTIONS)
    sketch = Sketch(edge.make_detector, site="ams")
    sketch.window = Window(0, 1)
    for part in edge.parts:
        sketch.part(part)
    full = {family: np.zeros((EVIDENCE_PAIRS, width), np.uint64) for family, width in EVIDENCE_WORDS.items()}
    for rows in full.values():
        rows[:, 0] = np.arange(EVIDENCE_PAIRS)
    sketch.evidence = Evidence(secret_of(edge.key), EVIDENCE_PAIRS, full)
    sketch.save(tmp_path / "all.cube")
    arrays = sketchfile.peek(tmp_path / "all.cube")["arrays"]
    assert len(edge.parts) == 12
    raw = 12 * hub.cube_memory + sum(rows.nbytes for rows in full.values())
    assert sum(np.prod(each["shape"]) * np.dtype(each["dtype"]).itemsize for each in arrays) <= raw
    sketchfile.write(tmp_path / "noise.cube", {}, {"noise": np.frombuffer(np.random.default_rng(1).bytes(raw), "u1")})
    limit = largest_sketch(hub) - sketchfile.SITE_HEADER
    size = (tmp_path / "noise.cube").stat().st_size
    assert raw < size <= limit < 1.1 * size


# A reload


def test_only_what_was_reloaded_is_said_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise OutputError("rows.jsonl: cannot be written: Permission denied")

    broken = "superhosts: NOT RELOADED: --output: rows.jsonl: cannot be written: Permission denied"
    reloads = Reloads()
    reloads.add("--output", fail)
    reloads.ask()
    reloads.run_if_asked()
    assert capsys.readouterr().err.splitlines() == [broken]
    reloads.add("sites and certificates", lambda: None)
    reloads.ask()
    for _ in range(2):
        reloads.run_if_asked()
    assert capsys.readouterr().err.splitlines() == [broken, "superhosts: reloaded: sites and certificates"]


# The end


def test_a_terminal_that_closes_ends_the_work_in_good_order() -> None:
    stopped: list[bool] = []
    before = signal.getsignal(signal.SIGHUP)
    try:
        with Interruption(lambda: stopped.append(True)):
            signal.raise_signal(signal.SIGHUP)
            assert stopped == [True]
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
        with Interruption(lambda: stopped.append(True)):
            signal.raise_signal(signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert stopped == [True]
    finally:
        signal.signal(signal.SIGHUP, before)


def test_two_signals_at_once_are_one_request() -> None:
    """`timeout` signals its child and then the process group."""
    ended: list[int] = []
    stopped: list[bool] = []
    now = 100.0

    def stop() -> None:
        stopped.append(True)
        signal.raise_signal(signal.SIGTERM)  # a second signal may interrupt the first one's handler

    with Interruption(stop, clock=lambda: now, end=ended.append) as interruption:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        now += 0.4
        signal.raise_signal(signal.SIGINT)
        assert (stopped, ended, interruption.number) == ([True], [], signal.SIGTERM)
        now += 0.1
        signal.raise_signal(signal.SIGINT)
        assert ended == [128 + signal.SIGINT]


def test_a_signal_handler_sets_an_event_whose_lock_is_held() -> None:
    event = threading.Event()
    with event._cond:  # as the code that was interrupted may be in event.wait
        set_safely(event)
    assert event.wait(600)


# What is said


class ReadyHub:
    """A link behind which a hub takes everything, but refuses the first windows."""

    def __init__(self, refuses: int = 0) -> None:
        self.counters = SendCounters()
        self._refuses = refuses

    def run(self, spool: Spool, stop: threading.Event) -> None:
        while not stop.wait(0.01):
            for path in spool.waiting():
                spool.settle(Receipt(path.name, REFUSED if self._refuses > 0 else MERGED))
                self._refuses -= 1


def test_an_edge_says_warnings_as_they_come_and_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cut = tmp_path / "cut.pcap"
    frames = [frame for window in range(3) for frame in talk("10.0.0.1", 30, NOON + 5 * window * MINUTES)]
    cut.write_bytes(p.pcap(frames)[:-7])
    settings = Settings(memory="64KiB", device="cpu", threads=1, site="ams", inner=["192.0.2.0/24"])
    spool = Spool(tmp_path / "spool", "ams", cap=1 << 30, say=print)
    assert watch(Edge(inputs=[str(cut)]), settings, spool, ReadyHub()) == []
    lines = capsys.readouterr().err.splitlines()
    (place,) = [place for place, line in enumerate(lines) if "the file ends inside a record" in line]
    assert lines[place].startswith(f"superhosts: warning: {cut}: ")
    assert place < next(place for place, line in enumerate(lines) if line.startswith("89 packets"))
    assert sum("have neither address inside --inner" in line for line in lines) == 1
    counters = json.loads((tmp_path / "spool" / "status.json").read_text())["scan"]
    manual = fleet_guide()
    assert [name for name in counters if f"`{name}`" not in manual] == []
    assert (counters["packets"], counters["cut"]) == (89, 0)


@pytest.mark.parametrize("refused", [0, 1, 2])
def test_an_edge_with_refused_windows_says_how_many_and_fails_with_status_5(tmp_path, capsys, refused) -> None:
    capture = tmp_path / "a.pcap"
    capture.write_bytes(p.pcap(talk("10.0.0.1", 30) + talk("10.0.0.1", 30, NOON + 5 * MINUTES)))
    settings = Settings(memory="64KiB", device="cpu", threads=1, site="ams")
    spool = Spool(tmp_path / "spool", "ams", cap=1 << 30, say=print)
    errors = watch(Edge(inputs=[str(capture)]), settings, spool, ReadyHub(refused))
    assert [error.exit_status for error in errors] == [5] * (refused > 0)
    last = capsys.readouterr().err.splitlines()[-1]
    words = f", {refused} REFUSED by the hub" if refused else ""
    assert f"2 spooled, {2 - refused} acknowledged by the hub{words}, 0 in the spool" in last
    assert (f"kept in {tmp_path / 'spool' / 'refused'}: {refused}" in last) == (refused > 0)


def test_a_site_that_is_named_twice_is_one_site() -> None:
    assert hub_sites(parsed_commands()["hub"].parse(["--sites", "ams,fra,ams"])) == ("ams", "fra")
