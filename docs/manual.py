"""Manual pages and the reference of commands from the texts of the help: `python docs/manual.py build/man
docs/reference/commands.md`.

The manual has a page for the program and one for each command, and is made when a package is built (`hatch_build.py`).
The reference is one page, which is a file of the project; a test compares it with the help.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from superhosts import __version__
from superhosts.cli import COMMANDS, DESCRIPTION, FIRST_STEPS
from superhosts.cli._program import Command, default_of, panels_of

PROGRAM = "superhosts"
ABOUT = {
    "Exit status": {
        "0": "Success.",
        "1": "Super hosts were found, with --fail-on-find.",
        "2": "Wrong usage, or sketches that cannot be merged.",
        "3": "An input could not be read; the others were.",
        "4": "An output could not be written.",
        "5": "A hub has refused windows of this edge, all or some.",
        "130": "Interrupted (143: by SIGTERM); everything read until then was reported first.",
    },
    "Environment": {
        "SUPERHOSTS_SCAN_WINDOW": "Every option can be given as a variable, this one instead of scan --window.",
        "SUPERHOSTS_KEY": "The secret key of sketches, unless --key-file is given.",
        "SUPERHOSTS_THREADS": "How many threads to use; all cores without it.",
        "NO_COLOR": "Tables without colours.",
    },
    "Files": {"~/.config/superhosts/key": "Your own key, which is made when it is first needed."},
}


def manual_pages() -> dict[str, str]:
    """Return the text of every manual page by the name of its file."""
    program = [*Troff.start("", DESCRIPTION, ["COMMAND", "[OPTIONS]"]), *Troff.text(FIRST_STEPS, [])]
    program += Troff.section("Commands")
    for words, entry in COMMANDS.items():
        program += [".TP", f"\\fB{Troff.escaped(_page(words))}\\fR(1)", Troff.line(entry.help)]
    pages = {"": [*program, *_about(Troff)]}
    for words, command in _loaded().items():
        pages[words] = [*_describe(words, command, Troff), ".SH SEE ALSO", f".BR {PROGRAM} (1)"]
    return {f"{_page(words)}.1": "\n".join(lines) + "\n" for words, lines in pages.items()}


def reference_page() -> str:
    """Return the page of all commands."""
    lines = ["<!-- Made by `make manual` from the help of the commands: edit the help, not this page. -->", ""]
    lines += ["# Commands", "", *Markdown.text(DESCRIPTION, [])]
    for words, entry in COMMANDS.items():
        lines.append(f"- [`{words}`](#{words.replace(' ', '-')}): {Markdown.prose(entry.help)}")
    lines += ["", "`superhosts COMMAND --help` and `man superhosts-COMMAND` say the same as this page.", ""]
    lines += ["`superhosts --install-completion` makes your shell complete commands, options and their values."]
    lines += _about(Markdown)
    for words, command in _loaded().items():
        lines += ["", *_describe(words, command, Markdown)]
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines).rstrip() + "\n")
    return re.sub(r"\bdocs/([a-z/]+\.md)", r"[docs/\1](../\1)", text)


def _loaded() -> dict[str, Any]:
    return {words: Command(words.split()[-1], entry) for words, entry in COMMANDS.items()}


def _about(form: Any) -> Iterator[str]:
    for title, rows in ABOUT.items():
        yield from form.section(title)
        for name, text in rows.items():
            yield from form.item([name], "", text)


def _describe(words: str, command: Any, form: Any) -> Iterator[str]:
    first, *rest = inspect.cleandoc(command.help).split("\n\n")
    yield from form.start(words, first, ["[OPTIONS]", *command.collect_usage_pieces(None)[1:]])
    for paragraph in rest:
        yield from form.text(*_words_and_examples(paragraph))
    for panel, members in panels_of(command).items():
        yield from form.section(panel)
        for each in members:
            default = default_of(each)
            yield from form.item(*_written(each), f"{each.help}{f' Default: {default}.' if default else ''}")


def _words_and_examples(paragraph: str) -> tuple[str, list[str]]:
    """Return the words of a paragraph of the help, and its examples: indented lines, or what follows "Example:"."""
    lines = paragraph.splitlines()
    words = " ".join(line for line in lines if not line.startswith(" "))
    if words.startswith("Example: "):
        return "Example:", [words.removeprefix("Example: ")]
    return words, [line.strip() for line in lines if line.startswith(" ")]


def _written(parameter: Any) -> tuple[list[str], str]:
    """Return how an option, a setting or an argument is written: its names and its value."""
    if parameter.param_type_name == "argument":
        return [], parameter.label
    if parameter.hidden:
        return [f"{parameter.key} ="], str(parameter.metavar or "true")
    return sorted(parameter.opts, key=len, reverse=True), "" if parameter.is_flag else str(parameter.metavar)


def _page(words: str) -> str:
    return "-".join([PROGRAM, *words.split()])


class Troff:
    """A page of the manual: the program, or one command."""

    @staticmethod
    def start(words: str, first: str, usage: Sequence[str]) -> Iterator[str]:
        page = Troff.escaped(_page(words))
        yield f'.TH {page.upper()} 1 "" "{PROGRAM} {__version__}" "User Commands"'
        yield from (".SH NAME", f"{page} \\- {Troff.escaped(first[0].lower() + first[1:].rstrip('.'))}")
        yield from (".SH SYNOPSIS", f"\\fB{PROGRAM} {Troff.escaped(words)}".strip() + "\\fR")
        yield from (f"\\fI{Troff.escaped(piece)}\\fR" for piece in usage)
        yield from (".SH DESCRIPTION", *Troff.text(first, []))

    @staticmethod
    def text(words: str, examples: Sequence[str]) -> Iterator[str]:
        for paragraph in words.split("\n\n"):
            yield from (".PP", Troff.line(paragraph))
        if examples:
            yield from (".RS", ".nf", *map(Troff.line, examples), ".fi", ".RE")

    @staticmethod
    def section(title: str) -> Iterator[str]:
        yield f".SH {title.upper()}"

    @staticmethod
    def item(names: Sequence[str], value: str, text: str) -> Iterator[str]:
        bold = ", ".join(f"\\fB{Troff.escaped(name)}\\fR" for name in names)
        italic = f"\\fI{Troff.escaped(value)}\\fR" if value else ""
        yield from (".TP", f"{bold} {italic}".strip(), Troff.line(text))

    @staticmethod
    def line(text: str) -> str:
        """Return a line of text: one that begins like a request of troff is protected."""
        escaped = Troff.escaped(text)
        return f"\\&{escaped}" if escaped[:1] in (".", "'") else escaped

    @staticmethod
    def escaped(text: str) -> str:
        """Return text for troff. Minus signs stay minus signs, so that commands and options can be copied."""
        signs = {"\\": "\\e", "-": "\\-", "`": "\\(ga", "^": "\\(ha", "~": "\\(ti"}
        return text.translate(str.maketrans(signs))


class Markdown:
    """A part of the page of commands: what is common to all, or one command."""

    @staticmethod
    def start(words: str, first: str, usage: Sequence[str]) -> Iterator[str]:
        yield from (f"## {words}", "", Markdown.prose(first), "", f"    {' '.join([PROGRAM, words, *usage])}", "")

    @staticmethod
    def text(words: str, examples: Sequence[str]) -> Iterator[str]:
        yield from (Markdown.prose(words), "")
        if examples:
            yield from (*(f"    {each}" for each in examples), "")

    @staticmethod
    def section(title: str) -> Iterator[str]:
        yield from ("", f"**{title}**", "")

    @staticmethod
    def item(names: Sequence[str], value: str, text: str) -> Iterator[str]:
        written = " ".join(filter(None, [", ".join(names), value]))
        yield f"- `{written}`: {Markdown.prose(text)}"

    @staticmethod
    def prose(text: str) -> str:
        """Return a text of the help: options are code, signs of Markdown outside of code are signs."""
        parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
        parts[::2] = [re.sub(r"([*_<\[\]])", r"\\\1", part) for part in parts[::2]]
        parts[::2] = [re.sub(r"(?<!\w)(--[a-z][a-z0-9-]*)", r"`\1`", part) for part in parts[::2]]
        return "".join(parts)


def write_manual(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in manual_pages().items():
        (folder / name).write_text(text, "utf-8")


if __name__ == "__main__":
    write_manual(Path(sys.argv[1]))
    Path(sys.argv[2]).write_text(reference_page(), "utf-8")
