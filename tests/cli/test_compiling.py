"""Commands say that they compile, and how long it took."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import pytest

from superhosts.jit import compilation
from superhosts.output.console import announce_compiling, say, use_log_format
from terminals import OnTerminal

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
    compilation.before_compiling(lambda: None)


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
