"""What a scan reports without options: which hosts, which windows, and what it says at the end."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest

import packets
import superhosts as sh
from commands import Run, start
from superhosts.cli._progress import ScanProgress
from superhosts.cli._summary import _export_losses
from traffic import MINUTES, NOON, Frames, packet, talk, write

SMALL = ["--memory", "1MiB", "--inner", "10.0.0.0/8"]


UNCOUNTED = [(NOON, packets.ethernet(0x0806, packets.arp())), packet(NOON, "192.0.2.1", "192.0.2.2")]


def crowd(*sizes: int) -> Frames:
    """Return traffic of one host for each number of peers: 10.0.0.1, 10.0.0.2 and so on."""
    return [frame for i, peers in enumerate(sizes) for frame in talk(f"10.0.0.{i + 1}", peers, step=1000)]


def found(ended: object) -> list[tuple[str, int]]:
    return [(row["host"], row["peers"]) for row in ended.rows]


def test_the_ten_largest_hosts_are_reported_however_small(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "a.pcap", crowd(*range(1, 16)))
    assert found(run("scan", path, "--json", *SMALL)) == [(f"10.0.0.{peers}", peers) for peers in range(15, 5, -1)]
    assert "top 10 hosts, none with at least 1,024 peers" in run("scan", path, *SMALL).out
    (window,) = sh.scan(path, inner="10.0.0.0/8", memory="1MiB")
    assert [item.peers for item in window] == list(range(15, 5, -1))


@pytest.mark.parametrize("exact", ["on", "off"])
def test_every_host_from_the_threshold_on_is_reported_and_others_fill_up_to_ten(run, tmp_path, exact) -> None:
    options = ["--exact", exact, *SMALL]
    path = write(tmp_path / "a.pcap", crowd(*range(1100, 1112), 500, 400))
    assert {row["host"] for row in run("scan", path, "--json", *options).rows} == {f"10.0.0.{i}" for i in range(1, 13)}
    assert "12 hosts with at least 1,024 peers" in run("scan", path, *options).out
    path = write(tmp_path / "b.pcap", crowd(3000, *range(200, 212)))
    rows = run("scan", path, "--json", *options).rows
    assert (len(rows), rows[0]["host"]) == (10, "10.0.0.1")
    assert [row["peers"] for row in rows] == sorted((row["peers"] for row in rows), reverse=True)
    assert "top 10 hosts, 1 with at least 1,024 peers" in run("scan", path, *options).out


def test_ten_hosts_over_all_parts(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "a.pcap", crowd(*range(1, 16)) + talk("2001:db8::7", 9))
    hosts = [host for host, _ in found(run("scan", path, "--json", *SMALL, "--inner", "2001:db8::/32"))]
    assert hosts == [*(f"10.0.0.{peers}" for peers in range(15, 8, -1)), "2001:db8::/64", "10.0.0.8", "10.0.0.7"]


def test_small_hosts_are_no_find(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "a.pcap", crowd(20, 30))
    assert run("scan", path, "--fail-on-find", *SMALL).status == 0
    assert run("scan", path, "--fail-on-find", "-t", 20, *SMALL).status == 1
    path = write(tmp_path / "b.pcap", crowd(1024, 30))
    assert run("scan", path, "--fail-on-find", *SMALL).status == 1


# A threshold that no host reaches


def test_a_window_without_hosts_has_no_largest_one(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "a.pcap", talk("192.0.2.1", 3))
    assert run("scan", path, *SMALL).out.endswith("Z: no hosts\n")
    assert run("scan", path, "-t", 5, *SMALL).out.endswith("Z: none with 5 peers or more\n")


# Top hosts


def test_an_estimate_says_how_deep_it_looked(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "a.pcap", crowd(15))
    depth = "hosts with fewer than 16 peers cannot be listed: the window is estimated"
    estimate = ["--exact", "off", *SMALL]
    ended = run("scan", path, "--top", 5, *estimate, "--save", tmp_path / "saved")
    assert f"Z: none with 16 peers or more; {depth}\n" in ended.out
    assert f"none with 16 peers or more; {depth}" in run("hosts", tmp_path / "saved", "--top", 5).out
    assert depth in run("scan", path, *estimate).out
    assert depth not in run("scan", path, "-t", 100, "--top", 5, *estimate).out
    path = write(tmp_path / "b.pcap", crowd(200, 15))
    assert f"top 1 host; {depth}\n" in run("scan", path, "--top", 5, *estimate).out
    assert depth not in run("scan", path, "--top", 1, *estimate).out


@pytest.mark.slow
def test_a_filter_lists_nothing_below_its_threshold(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "a.pcap", crowd(15))
    ended = run("scan", path, "--top", 5, "--detector", "filter", *SMALL)
    assert "hosts with fewer than 1,024 peers cannot be listed" in ended.out


# The end of a run


def test_quiet_hides_what_is_no_loss_but_not_that_a_file_is_cut(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    path.write_bytes(packets.pcap(crowd(20))[:-5])
    quiet = run("scan", path, "-q", *SMALL)
    assert re.fullmatch(r"warning: .*a\.pcap: byte \d+: the file ends inside a record; .*\n", quiet.err)
    chosen, *warnings, last = run("scan", path, *SMALL).err.splitlines(keepends=True)
    assert chosen == "detector: stream (better than a cube with 1MiB; sketches to be merged need --detector cube)\n"
    assert warnings == [quiet.err]
    assert last.startswith("19 packets in ")
    assert run("scan", write(tmp_path / "b.pcap", [*crowd(20), *UNCOUNTED]), "-q", *SMALL).err == ""


@pytest.mark.slow
def test_quiet_does_not_hide_packets_that_are_not_counted(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "a.pcap", talk("10.0.0.1", 20) + talk("2001:db8::1", 3))
    reason = "3 IPv6, which this detector does not take"
    assert run("scan", path, "--detector", "vbfa", *SMALL).err.endswith(f"; not counted: {reason}\n")  # may compile it
    ended = run("scan", path, "-q", "--detector", "vbfa", *SMALL)
    assert ended.err == f"superhosts: warning: 3 packets were not counted: {reason}\n"


# Counters


def test_counters_in_a_file(run: Run, tmp_path: Path) -> None:
    frames = [*crowd(20), *UNCOUNTED, *talk("10.0.0.1", 20, NOON + 5 * MINUTES)]
    path, target = tmp_path / "a.pcap", tmp_path / "counters.json"
    path.write_bytes(packets.pcap(frames) + b"cut")
    assert run("scan", path, "--counters", target, "-q", *SMALL).status == 0
    counters = json.loads(target.read_text())
    assert counters.pop("seconds") > 0
    assert counters.pop("seconds_compiling") >= 0
    (warning,) = counters.pop("warnings")
    assert warning.endswith(": the file ends inside a record; what came before counts")
    reasons = (
        "no_contact late stray repeated ungrouped skipped_family unused truncated unsupported_link bad_rows same_ends"
    )
    reasons += " filtered"
    others = "ipv6 rows windows_revised windows_incomplete skipped_records special_ends drops repeats"
    assert counters == dict.fromkeys(others.split(), 0) | {
        "packets": 42,
        "ipv4": 41,
        "pairs": 40,
        "windows": 2,
        "not_counted": dict.fromkeys([*reasons.split(), "filtered", "unknown_details"], 0)
        | {"not_ip": 1, "no_inner_end": 1},
        "truncated_files": 1,
    }
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.pcap", "counters.json"]
    path.write_bytes(packets.pcap_header() + b"cut")  # a file without packets may be cut, too
    run("scan", path, "--counters", target, *SMALL)
    assert json.loads(target.read_text())["truncated_files"] == 1


def test_counters_on_standard_output_or_nowhere(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUPERHOSTS_SCAN_COUNTERS", "-")
    path, rows = write(tmp_path / "a.pcap", crowd(20)), tmp_path / "rows.jsonl"
    (counters,) = run("scan", path, "--output", rows, *SMALL).rows
    assert (counters["packets"], len(rows.read_text().splitlines())) == (20, 1)
    way = "standard output has the rows; give --counters FILE, or --output FILE for the rows"
    for options in ([], ["--json"], ["--csv", "-o", rows], ["-o", "-"]):
        refused = run("scan", path, *options, *SMALL)
        assert refused == (2, "", f"superhosts: --counters -: {way}\n")
    monkeypatch.setenv("SUPERHOSTS_SCAN_COUNTERS", f"{tmp_path}/none/a.json")
    missing = run("scan", path, *SMALL)
    said = f"superhosts: {tmp_path}/none/a.json: cannot be written: its folder does not exist\n"
    assert missing == (4, "", said)  # before the scan
    assert run("scan", path, "--counters", tmp_path, *SMALL).status == 4


# Windows

EDGE = NOON + 5 * MINUTES  # a boundary of windows of five minutes


@pytest.fixture(scope="module")
def across(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """2,000 packets on each side of the boundary."""
    frames = talk("10.0.0.1", 4000, EDGE - MINUTES, step=MINUTES // 2000)
    return write(tmp_path_factory.mktemp("across") / "a.pcap", frames)


def test_an_input_shorter_than_a_window_is_one_window_across_a_boundary(run: Run, across: Path) -> None:
    ended = run("scan", across, "--json", *SMALL)
    assert found(ended) == [("10.0.0.1", 4000)]
    times = ended.rows[0]["window_start"], ended.rows[0]["window_end"][:16]
    assert times == ("2023-11-14T22:19:00Z", "2023-11-14T22:20")
    assert ended.out == run("scan", across, "--json", "--window", "all", *SMALL).out
    assert ended.err.endswith(", 1 window (the input is shorter than 5m)\n")
    assert [row["peers"] for row in run("scan", across, "--json", "--window", "5m", *SMALL).rows] == [2000, 2000]
    little = run("scan", across, "--json", "--memory", "8KiB", *SMALL[2:])  # a stream that has forgotten its pairs
    assert (little.rows[0]["detector"], little.rows[0]["exact"]) == ("stream", False)
    assert little.out == run("scan", across, "--json", "--memory", "8KiB", "--window", "all", *SMALL[2:]).out
    (window,) = sh.scan(across, memory="1MiB", inner="10.0.0.0/8")
    assert [item.peers for item in window] == [4000]
    assert len(list(sh.scan(across, memory="1MiB", window="5m"))) == 2


def test_short_files_count_together(run: Run, tmp_path: Path) -> None:
    first = write(tmp_path / "a.pcap", talk("10.0.0.1", 1500, EDGE - 2 * MINUTES))
    second = write(tmp_path / "b.pcap", talk("10.0.0.1", 1500, EDGE + MINUTES, base="172.17.0.0"))
    third = write(tmp_path / "c.pcap", talk("10.0.0.1", 1500, EDGE + 4 * MINUTES, base="172.18.0.0"))
    ended = run("scan", second, first, "--json", *SMALL)
    assert found(ended) == [("10.0.0.1", 3000)]
    ended = run("scan", third, second, first, "--json", *SMALL)
    assert [row["peers"] for row in ended.rows] == [1500, 3000]
    assert {row["window_start"] for row in ended.rows} == {"2023-11-14T22:15:00Z", "2023-11-14T22:20:00Z"}
    assert ended.err.endswith(", 2 windows of 5m\n")


def test_an_input_within_one_window_keeps_the_times_that_all_sites_have(run, tmp_path, monkeypatch) -> None:
    path = write(tmp_path / "a.pcap", talk("10.0.0.1", 20, NOON + MINUTES))
    ended = run("scan", path, "--json", *SMALL)
    times = ended.rows[0]["window_start"], ended.rows[0]["window_end"]
    assert times == ("2023-11-14T22:15:00Z", "2023-11-14T22:20:00Z")
    assert ended.err.endswith(", 1 window (the input is shorter than 5m)\n")
    (tmp_path / "b.pcap").write_text(
        "no capture"
    )  # An input that fails, or is not read to its end, is not called short.
    failed = run("scan", path, tmp_path / "b.pcap", *SMALL)
    assert (failed.status, failed.err.endswith(", 1 window of 5m\n")) == (3, True)
    monkeypatch.setattr(ScanProgress, "step", lambda *_: signal.raise_signal(signal.SIGINT))
    stopped = run("scan", path, *SMALL)
    assert (stopped.status, ", 1 window of 5m\n" in stopped.err) == (130, True)


@pytest.mark.parametrize("options", [["--save", "saved"], ["--memory-total", "1GiB"]], ids=lambda each: each[0])
def test_windows_stay_apart_where_they_must(run, tmp_path, options, monkeypatch, across) -> None:
    monkeypatch.chdir(tmp_path)
    ended = run("scan", across, "--json", *options, *SMALL)
    assert {row["window_start"] for row in ended.rows} == {"2023-11-14T22:15:00Z", "2023-11-14T22:20:00Z"}
    assert ended.err.endswith(", 2 windows of 5m\n")


@pytest.mark.slow
def test_a_window_of_a_pipe_closes_though_no_more_packets_come() -> None:
    with start("scan", "-", "--json", "-q", "--window", "1s", "--grace", "0.1s", *SMALL) as child:
        child.stdin.write(packets.pcap(crowd(20)))
        child.stdin.flush()
        row = json.loads(child.stdout.readline())  # while the pipe is open
        assert (row["host"], row["peers"]) == ("10.0.0.1", 20)
        assert child.poll() is None
        child.stdin.close()
        assert child.stdout.read() == b""
        assert child.wait(240) == 0


def test_the_last_line_tells_what_exports_lack() -> None:
    exports = [
        {"input": "a", "lost_records": 490, "damaged": 1, "other_datagrams": 0, "wrong_times": None},
        {"input": "b", "sets_waiting": 1, "other_datagrams": 20},
    ]
    assert _export_losses(exports) == [
        "490 records LOST before they arrived",
        "20 datagrams that are not exports of this kind",
        "1 damaged datagram",
        "1 set of records that waits for its template",
    ]


# The detector


def test_little_memory_is_for_a_stream_unless_sketches_are_to_be_merged(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "a.pcap", crowd(20))
    chosen = {"memory": "4MiB", "inner": "10.0.0.0/8"}
    for more, detector, is_said in (
        ([], "stream", True),
        (["-q"], "stream", False),
        (["--detector", "stream"], "stream", False),
        (["--detector", "cube"], "cube", False),
        (["--memory", "5MiB"], "cube", False),
        (["--slide", "1m"], "cube", False),
        (["--exact", "off"], "cube", False),
        (["--save", str(tmp_path / "saved")], "cube", False),
    ):
        options = [word for name, value in chosen.items() for word in (f"--{name}", value)]
        ended = run("scan", path, "--json", "--top", 1, *options, *more)
        assert ended.status == 0
        assert {row["detector"] for row in ended.rows} == {detector}, more
        assert ended.err.startswith("detector: stream (better than a cube with 4MiB; ") == is_said, more
    (window,) = sh.scan(path, **chosen, detector="auto")
    assert window[0].detector == "stream"
    (window,) = sh.scan(path, **chosen, detector="auto", keep_sketch=True)
    assert window[0].detector == "cube"
    edge = run("edge", path, "--detector", "stream", "--site", "ams", "--to", tmp_path, "--spool", tmp_path / "spool")
    assert (edge.status, edge.err) == (2, "superhosts: --detector stream: a hub merges cube, cbaa, cbaa-paper\n")
    slide = run("scan", path, "--detector", "stream", "--slide", "1m")
    assert slide.status == 2
    assert "windows that overlap are merged from panes, which stream cannot do" in slide.err


def test_a_saved_stream_answers_and_says_that_it_cannot_be_merged(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "a.pcap", crowd(20))
    stream = ["--detector", "stream", *SMALL]
    rows = run("scan", path, "--json", "--save", tmp_path / "s", *stream).rows
    (file,) = (tmp_path / "s").iterdir()
    asked = run("hosts", file, "--json", "--top", 10).rows
    assert [{**row, "site": "local"} for row in rows] == asked
    explained = run("explain", file, "10.0.0.1")
    assert (explained.status, "20" in explained.out) == (0, True)
    again = run("scan", path, "--json", "--save", tmp_path / "s", *stream)
    assert (again.status, again.rows) == (4, rows)
    assert "cannot merge stream sketches" in again.err
    run("scan", write(tmp_path / "b.pcap", crowd(30)), "--save", tmp_path / "t", *stream)
    merged = run("merge", file, *(tmp_path / "t").iterdir(), "-o", tmp_path / "union.cube")
    assert merged.status == 2
    assert "cannot merge stream sketches" in merged.err
    nobody = run("scan", path, "--json", "--save", tmp_path / "u", "--peers", "unanswered", *stream)
    assert (nobody.status, len(list((tmp_path / "u").iterdir()))) == (0, 1)
