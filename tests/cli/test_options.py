"""Options as users write them: thresholds, lists, and options that have become commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands import Run, parsed_commands
from superhosts.cli._values import parse_threshold, split_commas
from traffic import talk, write

SMALL = ["--memory", "1MiB", "--device", "cpu"]
WITH_THRESHOLD = [
    *("scan", "watch", "top", "rows"),
    *("hosts", "web", "plan", "calibrate", "compare", "edge", "hub", "batch"),
]
ARGUMENTS = {
    "watch": ["-"],
    "top": ["live:eth0"],
    "web": ["archive"],
    "batch": ["x.pcap", "--save", "x"],
    "scan": ["x.pcap"],
    "hosts": ["x.cube"],
    "calibrate": ["x.pcap"],
}


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One host that sends to 1,500 peers."""
    path = tmp_path_factory.mktemp("captures") / "one.pcap"
    write(path, talk("10.0.0.1", 1500))
    return path


@pytest.mark.parametrize(
    ("text", "value"), [("1024", 1024), ("1k", 1000), ("1.5k", 1500), ("1e3", 1000), ("2.5", 2.5), (1024, 1024)]
)
def test_thresholds(text: str | float, value: float) -> None:
    assert parse_threshold(text) == value


def test_a_threshold_reads_the_same_everywhere() -> None:
    commands = parsed_commands()
    having = [name for name, command in commands.items() if "threshold" in {each.name for each in command.params}]
    assert sorted(having) == sorted(WITH_THRESHOLD)
    for command in WITH_THRESHOLD:
        for option in ("-t", "--threshold"):
            context = commands[command].make_context(command, [*ARGUMENTS.get(command, []), option, "2k"])
            assert context.params["threshold"] == 2000


def test_a_threshold_that_is_no_number(run: Run, capture: Path) -> None:
    ended = run("scan", capture, "-t", "many", *SMALL)
    assert (ended.status, ended.out) == (2, "")
    assert "'many' is not a number; write it like 1024 or 1k" in " ".join(ended.err.replace("│", " ").split())
    refused = run("scan", capture, "-t", "nan", *SMALL).err
    assert refused == "superhosts: --threshold nan: must be a number of peers, at least 1\n"


def test_lists() -> None:
    assert split_commas(["in,out", "any"]) == ["in", "out", "any"]
    assert split_commas([" in , out "]) == ["in", "out"]


@pytest.mark.parametrize("command", ["scan", "edge", "batch"])
def test_directions_and_sides_with_commas_or_repeated(command: str) -> None:
    parsed = parsed_commands()[command]
    one = ["--direction", "in,out", "--watch", "inner,outer"]
    other = ["--direction", "in", "--direction", "out", "--watch", "inner", "--watch", "outer"]
    for words in (one, other):
        parameters = parsed.make_context(command, [*ARGUMENTS.get(command, []), *words]).params
        assert (parameters["direction"], parameters["watch"]) == (["in", "out"], ["inner", "outer"])


def test_a_wrong_direction_of_two_in_one_word(run: Run, capture: Path) -> None:
    assert run("scan", capture, "--direction", "in,up", *SMALL).err.startswith("superhosts: --direction up: one of any")
