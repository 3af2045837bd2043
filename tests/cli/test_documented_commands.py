"""Command lines in the documentation and in the help are ones that the program takes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from commands import parsed_commands
from superhosts.cli import COMMANDS
from superhosts.cli._loading import LazyCommand

ROOT = Path(__file__).parents[2]
PAGES = (
    "README.md",
    *(f"docs/{name}.md" for name in ("operating", "destinations", "alerts", "evidence", "metrics", "terminal")),
)


def command_lines(text: str) -> list[str]:
    """Return everything in a text that is written like a command: lines of blocks, and code within sentences."""
    joined = text.replace("\\\n", " ")
    blocks = [line.strip() for line in joined.splitlines() if re.match(r"    .*\bsuperhosts [a-z]", line)]
    inline = re.findall(r"`(superhosts [a-z][^`]*)`", text.replace("\n", " "))
    lines = [re.sub(r"^.*?(?=superhosts [a-z])", "", line) for line in (*blocks, *inline)]
    return [line for line in lines if not line.startswith("superhosts hub ready")]


def arguments_of(line: str) -> tuple[str, list[str]]:
    """Return the command of a line and its arguments, without what the shell does with its streams."""
    words = shlex.split(line, comments=True)[1:]
    words = words[: min(words.index(each) if each in words else len(words) for each in ("<", ">", "|"))]
    name = next((each for each in (" ".join(words[:2]), words[0]) if each in COMMANDS), "")
    return name, words[len(name.split()) :]


def documented() -> list[tuple[str, str]]:
    lines = [(page, line) for page in PAGES for line in command_lines((ROOT / page).read_text(encoding="utf-8"))]
    for name, entry in COMMANDS.items():
        help = LazyCommand(name.split()[-1], entry).load().help
        examples = help[help.index("Example") :].removeprefix("Example:")
        lines += [(f"{name} --help", line) for line in command_lines(f"    {examples.strip()}")]
    return lines


def test_there_are_many() -> None:
    pages = [page for page, _ in documented()]
    assert pages.count("README.md") > 20
    assert pages.count("docs/operating.md") > 15
    assert set(pages) == {*PAGES, *(f"{name} --help" for name in COMMANDS)}


@pytest.mark.parametrize(("page", "line"), documented())
def test_a_documented_command_is_parsed(page: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "superhosts.toml").touch()
    name, words = arguments_of(line)
    assert name, f"{page}: {line}"
    if words or not line.rstrip().endswith(name):  # a name alone speaks of the command
        context = parsed_commands()[name].make_context(name, words)
        assert context.params
