"""Command lines in the documentation and in the help are ones that the program takes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from commands import parsed_commands
from places import DOCS, ROOT
from superhosts.cli import COMMANDS
from superhosts.cli._program import Command

PAGES = ("README.md", *sorted(str(path.relative_to(ROOT)) for path in DOCS.rglob("*.md")))
# What the hashes of docs/reference/format.md are personalised with.
LABELS = {
    f"superhosts {words}" for words in ("print", "key", "text", "default key: public, for tests and single sites")
}
# What a sentence may do and a command cannot: speak of an option without an input, and of the help.
IN_SENTENCES = ("MissingParameter", "Exit")


def command_lines(text: str) -> list[tuple[str, bool]]:
    """Return everything in a text that is written like a command, and whether it is code within a sentence."""
    joined = text.replace("\\\n", " ")
    blocks = [line.strip() for line in joined.splitlines() if re.match(r"    .*\bsuperhosts [a-z]", line)]
    inline = re.findall(r"`(superhosts [a-z][^`]*)`", text.replace("\n", " "))
    found = [*((line, False) for line in blocks), *((line, True) for line in inline)]
    lines = [(re.sub(r"^.*?(?=superhosts [a-z])", "", line), inline) for line, inline in found]
    spoken = ("superhosts hub ready", "[OPTIONS]")  # a line of a log; how a command is written, in the reference
    return [line for line in lines if line[0] not in LABELS and not any(words in line[0] for words in spoken)]


def arguments_of(line: str) -> tuple[str, list[str]]:
    """Return the command of a line and its arguments, without what the shell does with its streams."""
    words = shlex.split(line, comments=True)[1:]
    words = words[: min(words.index(each) if each in words else len(words) for each in ("<", ">", "|", "&&"))]
    name = next((each for each in (" ".join(words[:2]), words[0]) if each in COMMANDS), "")
    return name, words[len(name.split()) :]


def documented() -> list[tuple[str, str, bool]]:
    texts = [(page, (ROOT / page).read_text(encoding="utf-8")) for page in PAGES]
    for name, entry in COMMANDS.items():
        help = Command(name.split()[-1], entry).help
        examples = help[help.index("Example") :].removeprefix("Example:")
        texts.append((f"{name} --help", f"    {examples.strip()}"))
    return [(page, line, inline) for page, text in texts for line, inline in command_lines(text)]


def test_there_are_many() -> None:
    pages = [page for page, _, _ in documented()]
    assert len(pages) > 300
    assert len(set(PAGES) & set(pages)) > 20
    assert set(pages) >= {"README.md", "docs/start.md", *(f"{name} --help" for name in COMMANDS)}


@pytest.mark.slow
def test_a_documented_command_is_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for page, line, inline in documented():
        monkeypatch.chdir(tmp_path)
        (tmp_path / "superhosts.toml").touch()
        name, words = arguments_of(line)
        assert name, f"{page}: {line}"
        if not words and line.rstrip().endswith(name):  # a name alone speaks of the command
            continue
        try:
            command = parsed_commands()[name]
            context = command.make_context(name, words)
            assert context.params
            assert command.outdated(context) == [], f"{page}: {line}"
        except Exception as error:
            if not inline or type(error).__name__ not in IN_SENTENCES:
                raise
