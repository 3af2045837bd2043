"""Commands say that they compile, and how long it took."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from superhosts.cli._summary import RunTotals, tell_end
from superhosts.jit import compilation
from superhosts.output.console import announce_compiling, say, use_log_format, warn_of_compiling
from superhosts.pipeline.scan import Counters
from terminals import OnTerminal
from traffic import talk, write

PROGRAM = """
import atexit
from superhosts.cli import main
from superhosts.jit.compilation import announce

atexit.register(announce)  # as the first compiled function does that is not on disk
main()
"""


@pytest.fixture(autouse=True)
def _as_outside_of_tests(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(compilation.MODE)
    yield
    compilation.before_compiling(lambda _: None)


def compile_something() -> None:
    for name in ("walk", "fill"):
        with compilation.compiling(name):
            assert compilation.is_compiling()
    assert not compilation.is_compiling()


def test_the_log_says_once_that_loops_are_compiled_and_then_how_long_it_took(capsys) -> None:
    announce_compiling()
    compile_something()
    say("the next line")
    say("and another")
    first, second, *rest = capsys.readouterr().err.splitlines()
    assert first.startswith("compiling for this machine: up to a minute")
    assert second.startswith("compiled in ")
    assert rest == ["the next line", "and another"]


def test_programs_read_it_as_events(capsys: pytest.CaptureFixture[str]) -> None:
    announce_compiling()
    use_log_format("json")
    try:
        compile_something()
        compilation.tell_seconds()
    finally:
        use_log_format("text")
    rows = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [row["event"] for row in rows] == ["compiling", "compiled"]
    assert rows[1]["seconds"] >= 0


def test_once_a_command_is_ready_every_loop_that_is_compiled_is_a_warning(capsys) -> None:
    announce_compiling(quiet=True)
    warn_of_compiling()
    compile_something()
    said = capsys.readouterr().err.splitlines()
    assert [line.partition(", for ")[0] for line in said] == [
        "superhosts: warning: COMPILED LATE: walk",
        "superhosts: warning: COMPILED LATE: fill",
    ]
    announce_compiling(quiet=True)  # of the next command
    compile_something()
    assert capsys.readouterr().err == ""


def test_rates_leave_compiling_out(run, tmp_path, capsys, monkeypatch) -> None:
    tell_end(RunTotals(Counters(packets=13_881, ipv4=13_881), 0.02, 1, "1 window", compiling=17.3), quiet=False)
    assert "compiled for 17 s; 13,881 packets in 0.02 s (694 k packets/s), 1 window" in capsys.readouterr().err
    monkeypatch.setattr("superhosts.cli.scan.seconds_compiling", time.monotonic)  # as if it did nothing else
    counters = tmp_path / "counters.json"
    assert run("scan", write(tmp_path / "a.pcap", talk("10.0.0.1", 9)), "--counters", counters).status == 0
    found = json.loads(counters.read_text())
    assert found["seconds"] < found["seconds_compiling"]


def test_the_seconds_are_those_in_which_any_thread_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0
    monkeypatch.setattr(compilation, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(compilation._work, "total", 0.0)
    with compilation.compiling("one"):
        now = 2
        with compilation.compiling("other"):
            now = 5
        assert compilation.seconds_compiling() == 5
        now = 7
    now = 9
    assert compilation.seconds_compiling() == 7


def test_commands_say_it_without_a_terminal_unless_they_are_quiet(run, tmp_path, capsys) -> None:
    assert run("scan", tmp_path / "none.pcap").status == 3
    compile_something()
    assert "compiling for this machine" in capsys.readouterr().err
    assert run("scan", tmp_path / "none.pcap", "-q").status == 3
    compile_something()
    compilation.tell_seconds()
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_on_a_terminal_a_quiet_command_says_it_too() -> None:
    with OnTerminal(sys.executable, "-c", PROGRAM, "scan", "/dev/none.pcap", "-q", streams=("stderr",)) as terminal:
        assert terminal.ends() == 3
        assert "compiling for this machine" in terminal.text
