"""Help and usage errors as a user sees them: whole sentences, examples to copy, and errors that name the option."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from commands import Run, parsed_commands
from superhosts.cli import COMMANDS, GROUPS
from superhosts.cli._program import fill_paragraphs

NAMES = ["", *GROUPS, *COMMANDS]
REQUIRED = {  # arguments without which a command cannot be parsed
    "scan": ["x.pcap"],
    "watch": ["x.pcap"],
    "top": ["x.pcap"],
    "hosts": ["x.cube"],
    "report": ["archive"],
    "web": ["archive"],
    "explain": ["x.cube", "10.0.0.1"],
    "merge": ["x.cube", "-o", "y.cube"],
    "calibrate": ["x.pcap"],
    "synth": ["x.pcap"],
    "edge": ["x.pcap", "--site", "ams", "--to", "out"],
    "hub": ["--from", "in"],
    "backup": ["x.tar"],
    "alerts mute": ["x.sqlite", "10.0.0.1"],
    "alerts learn": ["x.sqlite", "archive"],
    "batch": ["x.pcap", "--local-cluster", "--save", "out"],
}
VALUES = {"SIZE", "COUNT", "DURATION", "SHARE", "NUMBER", "BITS", "K", "DEVICE", "TIME", "TEXT", "FAMILY"}
CHOICES = {"detector", "watch", "direction"}


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def options_of(name: str) -> list[Any]:
    return [each for each in parsed_commands()[name].params if each.param_type_name == "option"]


def valued_options() -> list[tuple[str, str]]:
    """Return every option whose value has to be written in some way, with a command for each help that it has."""
    found = {
        (max(option.opts, key=len), option.help): name
        for name in COMMANDS
        for option in options_of(name)
        if option.metavar in VALUES or option.name in CHOICES
    }
    return [(name, option) for (option, _), name in found.items()]


def text_before_panels(shown: str) -> list[str]:
    return [line.strip() for line in re.split(r"\n(Arguments|Options):\n", shown)[0].splitlines()]


@pytest.mark.usefixtures("narrow")
def test_every_help_has_names_without_types_full_lines_and_examples_to_copy(run: Run) -> None:
    for name in NAMES:
        whole = "--help-all" if name in COMMANDS and parsed_commands()[name].first else "--help"
        ended = run(*name.split(), whole)
        assert ended.status == 0
        for odd in ("{", "}", "<", ">", "....", "[[", "]]"):
            words = ended.out.replace("ARGS]...", "").replace(" < ", " ").replace(" > ", " ")  # of files, in examples
            assert odd not in words
        if name in COMMANDS:
            shown = [option for option in options_of(name) if not option.hidden]
            assert all(str(option.metavar or "") in ended.out for option in shown)  # none is broken or cut
        if not name:
            continue
        lines = text_before_panels(ended.out)
        (start,) = [number for number, line in enumerate(lines) if line.startswith("Example")]
        examples = [line.removeprefix("Example: ") for line in lines[start:] if line and line != "Examples:"]
        assert examples
        for example in examples:
            assert f"superhosts {name}" in example  # one line each, even in a narrow terminal
        for line, after in pairwise(lines[2:start] if name in COMMANDS else []):
            if line and after:  # A line ends where the next word would not fit, or with a sentence.
                assert len(line) + 1 + len(after.split()[0]) > 77, line


def test_paragraphs_are_filled_and_indented_lines_stay() -> None:
    assert fill_paragraphs("One\n    two.\n\n    Examples:\n        a b\n        c\n    ") == (
        "One two.\n\nExamples:\n    a b\n    c"
    )


def test_batch_offers_no_input_that_it_refuses() -> None:
    (inputs,) = [each for each in parsed_commands()["batch"].params if each.name == "inputs"]
    assert "synth" not in inputs.help
    assert "standard input" not in inputs.help


def test_a_bad_value_is_an_error_that_names_the_option(run, tmp_path, monkeypatch) -> None:
    for name, option in valued_options():
        monkeypatch.chdir(tmp_path)
        ended = run(*name.split(), *REQUIRED.get(name, []), option, "5 apples")
        assert (ended.status, ended.out) == (2, "")
        (line,) = ended.err.splitlines()
        assert line.startswith(f"superhosts: {option}")
        assert "5 apples" in line
        assert any(words in line for words in ("write it", "write a", "one of", "merges", "choose")), line
        assert list(tmp_path.iterdir()) == []


def test_a_bad_value_of_a_variable_names_the_variable(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value, said in (
        ("WINDOW", "5x", "'5x' is not a duration; write it like 90s, 5m, 1h or 30d, or all"),
        ("SPECIAL", "some", "'some' is none of drop, keep"),
        ("QUIET", "maybe", "must be true or false"),
    ):
        with monkeypatch.context() as patch:
            patch.setenv(f"SUPERHOSTS_SCAN_{name}", value)
            ended = run("scan", "x.pcap")
        assert (ended.status, ended.err) == (2, f"superhosts: SUPERHOSTS_SCAN_{name}: {said}\n")


def test_two_outputs_of_merge_are_refused(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = [word for word in REQUIRED["merge"] if word not in ("-o", "y.cube")]
    ended = run("merge", *given, "-o", "a.cube", "--output=b.cube")
    assert (ended.status, ended.out) == (2, "")
    assert ended.err == "superhosts: --output: given 2 times; results go to one place, so give it once\n"
    assert list(tmp_path.iterdir()) == []


def test_rows_go_to_several_outputs() -> None:
    for name in COMMANDS:
        for option in options_of(name):
            assert option.name != "output" or option.multiple or name == "merge"


def test_a_missing_argument_shows_the_usage(run: Run) -> None:
    ended = run("scan")
    assert ended.status == 2
    assert "scan [OPTIONS] INPUT..." in ended.err
    assert "Missing argument" in ended.err
