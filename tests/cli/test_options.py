"""Options as users write them: thresholds and lists."""

from __future__ import annotations

import pytest

from commands import parsed_commands
from superhosts.cli._values import parse_threshold

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


@pytest.mark.parametrize("command", ["scan", "edge", "batch"])
def test_directions_and_sides_with_commas_or_repeated(command: str) -> None:
    parsed = parsed_commands()[command]
    one = ["--direction", "in, out", "--watch", "inner,outer"]
    other = ["--direction", "in", "--direction", "out", "--watch", "inner", "--watch", "outer"]
    for words in (one, other):
        parameters = parsed.make_context(command, [*ARGUMENTS.get(command, []), *words]).params
        assert (parameters["direction"], parameters["watch"]) == (["in", "out"], ["inner", "outer"])
