"""The command line: options, what stands on which stream, files, and the exit status of every kind of end."""

from __future__ import annotations

import array
import csv
import fcntl
import io
import json
import os
import re
import signal
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest

import packets
import superhosts as sh
from commands import Ended, Run, process, start
from superhosts import cli
from superhosts.cli._summary import RunTotals, tell_end, warn_of_late
from superhosts.output.report import COLUMNS
from superhosts.pipeline.network import Counters
from superhosts.pipeline.scan import RunOptions, Scan
from superhosts.pipeline.settings import Settings
from superhosts.sources.open import open_inputs
from terminals import run_on_terminal
from traffic import MINUTES, NOON, content, near, packet, talk, three_windows, write
from waiting import wait_for

SMALL = ["--memory", "1MiB", "--inner", "10.0.0.0/8", "--inner", "2001:db8::/32"]
ESCAPE = "\x1b"


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Captures that all tests read and none changes."""
    folder = tmp_path_factory.mktemp("captures")
    write(folder / "three.pcap", three_windows())
    write(folder / "quiet.pcap", talk("10.0.0.1", 20))
    write(folder / "none.pcap", [])
    (folder / "empty.pcap").write_bytes(b"")
    good = packets.pcap(talk("10.0.0.1", 20))
    (folder / "corrupt.pcap").write_bytes(good + packets.record(NOON, b"x" * 60, captured=1 << 31) + bytes(100))
    (folder / "flood.pcap").write_bytes(packets.pcap(talk("10.0.0.9", 40_000)))
    return folder


@pytest.fixture(scope="module")
def sketches(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The three windows of three.pcap as saved sketches of site ams."""
    target = tmp_path_factory.mktemp("sketches")
    for window in sh.scan(folder / "three.pcap", memory="1MiB", inner=["10.0.0.0/8", "2001:db8::/32"], site="ams"):
        window.sketch.save(target / f"{(window.window.start - NOON) // (5 * MINUTES)}.cube")
    return sorted(target.iterdir())


# The row


def test_output_files_have_the_same_columns_and_values(run: Run, folder: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    common = ["scan", folder / "three.pcap", "-q", "--threshold", 1000, *SMALL]
    rows, text = run(*common, "--json").rows, run(*common, "--csv").out
    for kind in ("jsonl", "csv", "parquet"):
        ended = run(*common, "--json", "--output", tmp_path / f"a.{kind}")
        assert (ended.status, ended.rows) == (0, rows)
    assert lines(tmp_path / "a.jsonl") == rows
    assert (tmp_path / "a.csv").read_text() == text
    plain = [[str(v).lower() if isinstance(v, bool) else str(v) for v in row.values()] for row in rows]
    assert list(csv.reader(io.StringIO(text))) == [list(COLUMNS), *plain]
    table = parquet.read_table(tmp_path / "a.parquet")
    assert (table.column_names, table.to_pylist()) == (list(COLUMNS), rows)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "a.jsonl", "a.parquet"]


def test_output_without_results(run: Run, folder: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    for kind in ("jsonl", "csv", "parquet"):
        assert run("scan", folder / "quiet.pcap", "-t", 1024, "-o", tmp_path / f"a.{kind}", *SMALL).status == 0
    assert (tmp_path / "a.jsonl").read_text() == ""
    assert (tmp_path / "a.csv").read_text() == ",".join(COLUMNS) + "\n"
    table = parquet.read_table(tmp_path / "a.parquet")
    assert (table.column_names, table.num_rows) == (list(COLUMNS), 0)
    assert str(table.schema.field("peers").type) == "int64"


# scan


def test_streams(run: Run, folder: Path) -> None:
    cube = [*SMALL, "--detector", "cube"]
    ended = run("scan", folder / "three.pcap", "--json", *cube)
    assert all(line.startswith("{") for line in ended.out.splitlines())
    assert re.fullmatch(r"8,840 packets in [\d.]+ s \([\d,.]+( [kM])? packets/s\), 3 windows of 5m\n", ended.err)
    detailed = run("scan", folder / "three.pcap", "--json", "--verbose", *cube)
    assert "memory: at most" in detailed.err
    assert "(2 detectors of 1 MiB with buffers)" in detailed.err
    silent = run("scan", folder / "three.pcap", "--json", "--quiet", *cube)
    assert (silent.out, silent.err) == (ended.out, "")


def test_what_did_not_become_a_pair_is_said(run: Run, tmp_path: Path) -> None:
    frames = [*talk("10.0.0.1", 3), packet(NOON, "192.0.2.1", "192.0.2.2"), packet(NOON, "10.0.0.1", "10.0.0.1")]
    frames.append((NOON, packets.ethernet(0x0806, packets.arp())))
    err = run("scan", write(tmp_path / "a.pcap", frames), *SMALL).err
    assert "\n6 packets in " in err
    assert err.endswith("; not counted: 1 not IP, 1 with neither address inside --inner, 1 from an address to itself\n")


def test_names_of_saved_sketches(run: Run, folder: Path, tmp_path: Path) -> None:
    odd = write(tmp_path / "odd.pcap", talk("10.0.0.1", 5, NOON + 123_456_000))  # one window over all: whole seconds
    for number, (path, window, names) in enumerate(
        (
            (folder / "quiet.pcap", "5m", "20231114T221500Z-5m"),
            (folder / "quiet.pcap", "300s", "20231114T221500Z-5m"),
            (folder / "quiet.pcap", "90s", "20231114T221500Z-90s"),
            (folder / "quiet.pcap", "all", "20231114T221500Z-all"),
            (odd, "all", "20231114T221500Z-all"),
            (folder / "quiet.pcap", "0.01s", "20231114T221500.01Z-0.01s 20231114T221500Z-0.01s"),
        )
    ):
        saved = tmp_path / str(number) / "b"
        assert run("scan", path, "--detector", "exact", "--save", saved, "-w", window).status == 0
        assert sorted(path.name for path in saved.iterdir()) == [f"{name}-local.cube" for name in names.split()]


def test_a_window_that_two_runs_saw_is_saved_whole(run: Run, tmp_path: Path) -> None:
    """A capture rotated in the middle of a window: the second run adds to what the first one saved."""
    frames = three_windows()
    for number, half in enumerate((frames[: len(frames) // 2], frames[len(frames) // 2 :])):
        path = write(tmp_path / f"{number}.pcap", half)
        assert run("scan", path, "-q", *SMALL, "--save", tmp_path / "halves").err == ""
    assert run("scan", write(tmp_path / "all.pcap", frames), "-q", *SMALL, "--save", tmp_path / "whole").status == 0
    names = [path.name for path in sorted((tmp_path / "whole").iterdir())]
    assert [path.name for path in sorted((tmp_path / "halves").iterdir())] == names
    for name in names:
        assert content(sh.load(tmp_path / "halves" / name)) == content(sh.load(tmp_path / "whole" / name))


@pytest.mark.parametrize("name", ["none.pcap", "empty.pcap"])
def test_a_capture_without_packets_is_no_error(run: Run, folder: Path, name: str) -> None:
    ended = run("scan", folder / name, "--json", *SMALL)
    assert (ended.status, ended.out) == (0, "")
    assert "0 packets" in ended.err
    assert ("it is empty" in ended.err) == (name == "empty.pcap")


def test_output_that_cannot_be_written(run: Run, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for option, name, said in (
        ("--output", "file/a.jsonl", "file/a.jsonl"),
        ("--save", "file/sub", "file/sub"),
        ("--output", "none/a.jsonl", "none is not a folder"),
    ):
        ended = run("scan", folder / "three.pcap", option, tmp_path / name, *SMALL)
        assert (ended.status, f"{tmp_path}/{said}" in ended.err) == (4, True)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_missing_extra_names_the_command(run: Run, folder: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    ended = run("scan", folder / "quiet.pcap", "--output", tmp_path / "a.parquet")
    assert ended.status == 2
    assert "pip install 'superhosts[tables]'" in ended.err
    assert list(tmp_path.iterdir()) == []


# Keys


# explain


def test_explain(run: Run, sketches: list[Path], tmp_path: Path) -> None:
    out = run("explain", sketches[1], "10.0.0.7").out
    assert "10.0.0.7" in out
    assert "mean fill" in out
    (row,) = run("explain", sketches[1], "10.0.0.7", "--json", "--output", tmp_path / "a.jsonl").rows
    assert list(row) == [*COLUMNS, "columns"]
    assert near(row, 1500)
    assert [set(column) for column in row["columns"]] == [{"array", "fill", "mean_fill"}] * len(row["columns"])
    (written,) = lines(tmp_path / "a.jsonl")
    assert list(written) == list(COLUMNS)
    records = list(csv.DictReader(io.StringIO(run("explain", sketches[1], "2001:db8::99", "--csv").out)))
    assert [record["host"] for record in records] == ["2001:db8::/64"]


def test_explain_and_hosts_refuse_what_cannot_be(run: Run, sketches: list[Path]) -> None:
    ended = run("explain", sketches[0], "2001:db8::7")
    assert (ended.status, "holds no hosts of that family (it has IPv4)" in ended.err) == (2, True)
    for words in ("hello", "10.0.0.0/8", "10.0.0.7 --json --csv"):
        assert run("explain", sketches[0], *words.split()).status == 2
    assert run("explain", "none.cube", "10.0.0.7").status == 3
    for words in ("--top 0", "--top -1", "--threshold 0", "--json --csv"):
        assert run("hosts", sketches[0], *words.split()).status == 2


# merge


def test_merge_names_all_bad_files_and_writes_nothing(run: Run, sketches: list[Path], tmp_path: Path) -> None:
    (tmp_path / "a.cube").write_text("junk")
    bad = [tmp_path / "a.cube", tmp_path / "none.cube", tmp_path / "empty*.cube"]
    ended = run("merge", bad[0], *sketches, *bad[1:], "-o", tmp_path / "c.cube")
    assert ended.status == 3
    assert all(f"superhosts: {path}: " in ended.err for path in bad)
    assert f"{tmp_path}/c.cube: nothing written" in ended.err
    assert run("merge", *sketches, "-o", tmp_path / "none" / "c.cube").status == 4
    assert [path.name for path in tmp_path.iterdir()] == ["a.cube"]


def test_a_partial_sketch_stays_so_in_unions(run: Run, sketches: list[Path], tmp_path: Path) -> None:
    sketch = sh.load(sketches[0])
    sketch.partial = True
    sketch.save(tmp_path / "p.cube")
    assert run("merge", sketches[1], tmp_path / "p.cube", "-o", tmp_path / "u.cube").status == 0
    whole = sh.load(sketches[1])
    whole.merge(sketch)
    assert whole.partial
    for path in (tmp_path / "p.cube", tmp_path / "u.cube"):
        assert all(row["partial"] is True for row in run("hosts", path, "--json", "-t", 1000).rows)
        assert "(partial: interrupted)" in run("hosts", path).out
    assert "partial" not in run("hosts", sketches[1], "--json").out


# demo and bench


# Help


def test_help_and_version(run: Run) -> None:
    out = run("--help").out
    assert all(command.split()[0] in out for command in cli.COMMANDS)
    assert run("--version").out == f"superhosts {sh.__version__}\n"
    assert run("nonsense").status == 2


@pytest.mark.slow
def test_a_scan_loads_nothing_that_it_does_not_need(folder: Path) -> None:
    sources = ("kafka", "livecapture", "synthetic.source", "exports.udp", "tables.formats", "tables.source")
    heavy = ["pydantic", "pyarrow", "rich", "asyncio", "multiprocessing", "http.client", "numpy.ma", "ssl"]
    heavy += [f"superhosts.sources.{name}" for name in sources]
    heavy += ["tomllib", "superhosts.sketch.evidence.patterns"]
    code = f"""
import sys
sys.argv[1:] = {["scan", str(folder / "three.pcap"), "--json", "-q", *SMALL]}
from superhosts.cli import main
try:
    main()
finally:
    print("RIVALS", any(name.startswith("superhosts.lab.rivals") for name in sys.modules))
    print("HEAVY", {set(heavy)} & set(sys.modules))
"""
    for _ in range(2):  # The first run may compile, which loads more.
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240)
    assert ended.stdout.endswith("RIVALS False\nHEAVY set()\n")


@pytest.mark.slow
def test_loading_a_command_starts_no_threads_of_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    code = """
import os
from superhosts.cli._program import _load
_load(".scan:scan")
print(len(os.listdir("/proc/self/task")), os.environ.get("OPENBLAS_NUM_THREADS"))
"""
    found = []
    for given in ("", "3"):
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", given)
        if not given:
            monkeypatch.delenv("OPENBLAS_NUM_THREADS")
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240)
        found.append(ended.stdout.split())
    assert found[0] == ["1", "None"]
    assert found[1][1] == "3"  # What the user sets counts.


# Real processes


def test_nobody_reads_to_the_end(folder: Path) -> None:
    for options in (["--json"], ["--csv"], []):  # lines by ourselves, and tables by rich
        common = ["scan", folder / "three.pcap", "-q", "--detector", "exact", "-t", 1, "-w", "5s", *options]
        with start(*common) as child:
            assert child.stdout.readline()
            child.stdout.close()
            err = child.stderr.read()
            assert child.wait(240) == 0
        assert err == b""


@pytest.mark.slow
def test_files_get_all_rows_and_sketches_though_nobody_reads_the_pipe(folder: Path, tmp_path: Path) -> None:
    common = ["scan", folder / "three.pcap", "-q", "--detector", "exact", "-t", 1, "-w", "5s", "--json"]
    for options in (["--output", tmp_path / "a.jsonl"], ["--save", tmp_path / "s"]):
        with start(*common, *options) as child:
            assert child.stdout.readline()
            child.stdout.close()
            assert child.wait(240) == 0
            assert child.stderr.read() == b""
    rows = process(*common).rows
    assert [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()] == rows
    assert len(list((tmp_path / "s").iterdir())) == len({row["window_start"] for row in rows})


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("words", ["scan three.pcap -q --json", "scan three.pcap -q", "--version", "plan --flows 1M"])
def test_standard_output_on_a_full_disk(folder: Path, words: str) -> None:
    with Path("/dev/full").open("wb") as full:
        ended = process(*words.split(), stdout=full, cwd=folder)
    assert (ended.status, ended.err) == (4, "superhosts: standard output: cannot be written: No space left on device\n")


@pytest.mark.parametrize("log", ["on a full disk", "that nobody reads"])
def test_errors_that_cannot_be_written_change_no_status(folder: Path, log: str) -> None:
    if log == "on a full disk" and not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    if log == "on a full disk":
        errors = os.open("/dev/full", os.O_WRONLY)
    else:
        reader, errors = os.pipe()
        os.close(reader)
    try:
        assert process("scan", folder / "missing.pcap", "-q", stderr=errors).status == 3
        ended = process("scan", folder / "three.pcap", "--json", "-t", "1024", *SMALL, stderr=errors)
        assert (ended.status, len(ended.rows)) == (0, 5)
    finally:
        os.close(errors)


@pytest.mark.slow
def test_standard_input_that_somebody_has_begun_to_read_is_not_called_shorter(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "behind.pcap"
    path.write_bytes(b"a line before\n" + (folder / "three.pcap").read_bytes())
    command = [sys.executable, "-m", "superhosts", "scan", "-", "--json", "-t", "1024", *SMALL]
    with path.open("rb", buffering=0) as file:
        file.seek(len(b"a line before\n"))
        ended = subprocess.run([str(each) for each in command], stdin=file, capture_output=True, text=True)
    assert (ended.returncode, len(ended.stdout.splitlines())) == (0, 5)
    assert "warning" not in ended.stderr


def far_out_of_order(path: Path) -> Path:
    """Three windows; 500 packets of the first one stand behind all else, beyond the first block that is read."""
    frames = talk("10.0.0.7", 40_000) + talk("10.0.0.8", 40_000, NOON + 5 * MINUTES)
    return write(path, [*frames, *talk("10.0.0.9", 500), *talk("10.0.0.7", 500, base="192.168.0.0")])


def test_a_window_of_a_file_out_of_order_comes_again_whole(tmp_path: Path, run: Run) -> None:
    path = far_out_of_order(tmp_path / "a.pcap")
    common = ["scan", path, "-q", "--detector", "exact", "--inner", "10.0.0.0/8", "-t", 400]
    ended = run(*common, "--json", "--save", tmp_path / "s", "--output", tmp_path / "a.csv")
    assert [(row["host"], row["peers"], row.get("revision")) for row in ended.rows] == [
        ("10.0.0.7", 40_000, None),
        ("10.0.0.8", 40_000, None),
        ("10.0.0.7", 40_500, 2),
        ("10.0.0.9", 500, 2),
    ]
    assert ended.err == (
        "superhosts: warning: packets far out of order: 1 window was reported a second time, as revision 2: "
        "keep the later rows\n"
    )
    assert (tmp_path / "a.csv").read_text().splitlines()[0] == ",".join(COLUMNS)
    first, _ = sorted((tmp_path / "s").iterdir())
    saved = sh.load(first)
    assert [saved.estimate(host)[0].peers for host in ("10.0.0.7", "10.0.0.9")] == [40_500, 500]
    assert [entry["pairs"] for entry in saved.entries] == [41_000]
    assert "(revision 2)" in run(*common).out


def test_an_interrupt_before_the_second_reading_leaves_windows_incomplete(tmp_path, capsys) -> None:
    sources = open_inputs([far_out_of_order(tmp_path / "a.pcap")])
    scan = Scan(sources, Settings(detector="exact", threshold=400), RunOptions(revises=True))
    for number, _ in enumerate(scan):
        if number == 1:  # all windows were reported once
            scan.stop()
    warn_of_late(scan.counters)
    assert capsys.readouterr().err == (
        "superhosts: warning: INCOMPLETE: 1 window was reported and saved without 1,000 packets that were far out of "
        "order; scan the files again\n"
    )
    tell_end(RunTotals(Counters(late=2, no_inner_end=1), 0.0, 0, ""), quiet=True)  # of a source that counts nothing
    assert "2 of 0 packets came too late" in capsys.readouterr().err


def test_what_an_earlier_run_saved_stays_when_a_window_comes_again(tmp_path: Path, run: Run) -> None:
    common = ["-q", "--detector", "exact", "--inner", "10.0.0.0/8", "--save", tmp_path / "s"]
    run("scan", write(tmp_path / "b.pcap", talk("10.0.0.7", 50, base="192.168.100.0")), *common)
    run("scan", far_out_of_order(tmp_path / "a.pcap"), *common)
    first, _ = sorted((tmp_path / "s").iterdir())
    assert sh.load(first).estimate("10.0.0.7")[0].peers == 40_550


def test_many_late_packets_of_a_pipe_are_a_warning_also_for_the_quiet(tmp_path: Path) -> None:
    path = far_out_of_order(tmp_path / "a.pcap")
    ended = process("scan", "-", "-q", "--json", "--detector", "exact", given=path.read_bytes())
    assert ended.status == 0
    assert re.fullmatch(
        r"superhosts: warning: 1,000 of 81,000 packets \(1\.2%\) came too late for their .*\n", ended.err
    )
    few = write(tmp_path / "b.pcap", talk("10.0.0.7", 70_000) + talk("10.0.0.8", 12_000, NOON + 5 * MINUTES))
    fewer = few.read_bytes() + packets.pcap(talk("10.0.0.9", 160))[24:]
    ended = process("scan", "-", "-q", "--json", "--detector", "exact", given=fewer)
    assert ended.err == "superhosts: warning: 160 packets were not counted: 160 too late for their window\n"


def interrupted(tmp_path: Path, number: int, *options: object) -> Ended:
    """Feed 1,500 packets of one window through a pipe that stays open, and send a signal when they have been read."""
    with start(
        "scan", "-", "--save", tmp_path / "s", "--detector", "exact", "--inner", "10.0.0.0/8", *options
    ) as child:
        child.stdin.write(packets.pcap(talk("10.0.0.7", 1500)))
        child.stdin.flush()
        wait_for(lambda: unread(child.stdin) == 0, "everything is read")
        child.send_signal(number)
        try:
            assert child.wait(600) == 128 + number
        finally:
            child.kill()
        return Ended(child.returncode, child.stdout.read().decode(), child.stderr.read().decode())


def unread(pipe: Any) -> int:
    """Bytes in a pipe that nobody has read."""
    count = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, count)
    return count[0]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_reports_and_saves_the_open_window(tmp_path: Path, number: int) -> None:
    ended = interrupted(tmp_path, number, "--json", "-q", "--output", tmp_path / "a.jsonl")
    assert [(row["host"], row["peers"], row["partial"]) for row in ended.rows] == [("10.0.0.7", 1500, True)]
    assert lines(tmp_path / "a.jsonl") == ended.rows
    assert ended.err == "superhosts: interrupted; the last window is partial\n"
    (saved,) = (tmp_path / "s").iterdir()
    assert sh.load(saved).estimate("10.0.0.7")[0].peers == 1500
    assert sh.load(saved).partial


def test_tables_say_what_is_partial_and_csv_keeps_its_columns(tmp_path: Path) -> None:
    ended = interrupted(tmp_path, signal.SIGINT, "--output", tmp_path / "a.csv")
    assert "2023-11-14 22:15–22:20  (partial: interrupted)" in ended.out
    head, row = (tmp_path / "a.csv").read_text().splitlines()
    assert head == ",".join(COLUMNS)
    assert row.split(",")[2] == "10.0.0.7"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_at_once(tmp_path: Path, number: int) -> None:
    """Standard output is a pipe that nobody reads: the scan waits there, whatever it was told."""
    with start("scan", "-", "--json", "-q", "--detector", "exact", "-t", 1) as child:
        child.stdin.write(packets.pcap(talk("10.0.0.7", 1500) + talk("10.0.0.8", 1500, NOON + 5 * MINUTES)))
        child.stdin.flush()
        wait_for(lambda: unread(child.stdout) > 0, "rows are written")  # more than a pipe holds are still to come

        def ended() -> bool:
            child.send_signal(number)  # the first is not the second until it was taken: so again and again
            return child.poll() is not None

        wait_for(ended, "it ends though nobody reads")
        assert child.returncode == 128 + number


@pytest.mark.slow
def test_colours_and_progress_only_on_a_terminal(folder: Path) -> None:
    colour = re.compile(r"\x1b\[[0-9;]*m")
    status, seen = run_on_terminal("scan", folder / "three.pcap", *SMALL)
    assert status == 0
    assert "packets/s" in seen  # the bar
    assert colour.search(seen)
    _, plain = run_on_terminal("scan", folder / "three.pcap", *SMALL, NO_COLOR="1")
    assert not [code for code in colour.findall(plain) if re.search(r"\b3[0-9]\b", code)]
    _, quiet = run_on_terminal("scan", folder / "three.pcap", "--quiet", "--json", *SMALL)
    assert ESCAPE not in quiet
    assert "packets/s" not in quiet


def test_a_table_of_a_live_input_grows_as_windows_close(folder: Path) -> None:
    """The first window comes out while the input is still open, and the later ones are rows of the same table."""
    with start("scan", "-", "-t", 1000, *SMALL) as child:
        child.stdin.write((folder / "three.pcap").read_bytes())
        child.stdin.flush()
        header, first = child.stdout.readline().decode(), child.stdout.readline().decode()
        assert header.split() == ["window", "(UTC)", "host", "peers", "(exact)"]
        assert first.split()[:3] == ["2023-11-14", "22:15–22:20", "10.0.0.7"]
        assert child.poll() is None
        child.stdin.close()
        rest = child.stdout.read().decode().splitlines()
    assert rest
    assert all(line.startswith("2023-11-14 22:2") for line in rest)
