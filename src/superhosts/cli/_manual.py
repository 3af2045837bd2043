"""Manual pages from the texts of the help: `python -m superhosts.cli._manual man` writes them to the folder `man`.

superhosts.1 lists the commands, superhosts-scan.1 and so on describe each of them. The pages are files of the project,
so that a package is built without running the program; a test compares them with the help.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from superhosts import __version__
from superhosts.cli import COMMANDS, DESCRIPTION, FIRST_STEPS
from superhosts.cli._loading import LazyCommand
from superhosts.cli._parsing import name_of

PROGRAM = "superhosts"
STATUS = {
    0: "Success.",
    1: "Super hosts were found, with --fail-on-find.",
    2: "Wrong usage, or sketches that cannot be merged.",
    3: "An input could not be read; the others were.",
    4: "An output could not be written.",
    5: "A hub has refused windows of this edge, all or some.",
    130: "Interrupted (143: by SIGTERM); everything read until then was reported first.",
}
ENVIRONMENT = {
    "SUPERHOSTS_KEY": "The secret key of sketches, unless --key-file is given.",
    "SUPERHOSTS_THREADS": "How many threads to use; all cores without it.",
    "NO_COLOR": "Tables without colours.",
}
FILES = {"~/.config/superhosts/key": "Your own key, which is made when it is first needed."}


def pages() -> dict[str, str]:
    """Return the text of every page by the name of its file."""
    commands = {words: LazyCommand(words.split()[-1], entry).load() for words, entry in COMMANDS.items()}
    made = {f"{PROGRAM}.1": _overview()}
    made.update({f"{_page(words)}.1": _command_page(words, command) for words, command in commands.items()})
    return made


def _overview() -> str:
    lines = [*_title(PROGRAM, DESCRIPTION), ".SH SYNOPSIS", f".B {PROGRAM}", ".I COMMAND", "[\\fIOPTIONS\\fR]"]
    lines += [".SH DESCRIPTION", *_paragraphs(DESCRIPTION), *_paragraphs(FIRST_STEPS)]
    lines += [".SH COMMANDS"]
    for words, entry in COMMANDS.items():
        lines += [".TP", f"\\fB{_escaped(_page(words))}\\fR(1)", _line(entry.help)]
    lines += [*_table("EXIT STATUS", {str(status): text for status, text in STATUS.items()})]
    lines += [*_table("ENVIRONMENT", ENVIRONMENT), *_table("FILES", FILES)]
    return _joined(lines)


def _command_page(words: str, command: Any) -> str:
    first, *rest = inspect.cleandoc(command.help).split("\n\n")
    lines = [*_title(_page(words), first), ".SH SYNOPSIS", f"\\fB{PROGRAM} {_escaped(words)}\\fR [\\fIOPTIONS\\fR]"]
    lines += [f"\\fI{_escaped(piece)}\\fR" for piece in command.collect_usage_pieces(None)[1:]]
    lines += [".SH DESCRIPTION", *_paragraphs(first)]
    lines += [line for paragraph in rest for line in _paragraphs(paragraph)]
    for panel, members in panels_of(command).items():
        lines += [f".SH {panel.upper()}", *(line for each in members for line in _parameter(each))]
    lines += [".SH SEE ALSO", f".BR {PROGRAM} (1)"]
    return _joined(lines)


def panels_of(command: Any) -> dict[str, list[Any]]:
    """Return the arguments and options of a command by the panel of the help that shows them."""
    panels: dict[str, list[Any]] = {"Arguments": [], "Options": []}
    for each in command.params:
        if not getattr(each, "hidden", False):
            is_argument = each.param_type_name == "argument"
            panels.setdefault("Arguments" if is_argument else each.rich_help_panel or "Options", []).append(each)
    return {panel: members for panel, members in panels.items() if members}


def _title(page: str, text: str) -> Iterator[str]:
    yield f'.TH {_escaped(page.upper())} 1 "" "{PROGRAM} {__version__}" "User Commands"'
    yield ".SH NAME"
    yield f"{_escaped(page)} \\- {_escaped(text[0].lower() + text[1:].rstrip('.'))}"


def _paragraphs(text: str) -> Iterator[str]:
    """Yield a text in paragraphs; indented lines, such as examples, stay as they are."""
    for paragraph in text.split("\n\n"):
        lines = paragraph.splitlines()
        words = " ".join(line for line in lines if not line.startswith(" "))
        examples = [line.strip() for line in lines if line.startswith(" ")]
        yield ".PP"
        if words.startswith("Example: "):
            words, examples = "Example:", [words.removeprefix("Example: ")]
        yield _line(words)
        if examples:
            yield from (".RS", ".nf", *map(_line, examples), ".fi", ".RE")


def _parameter(parameter: Any) -> Iterator[str]:
    """Yield an option or argument with its help and its default."""
    yield ".TP"
    if parameter.param_type_name == "argument":
        yield f"\\fI{_escaped(name_of(parameter))}\\fR"
    else:
        names = ", ".join(f"\\fB{_escaped(name)}\\fR" for name in sorted(parameter.opts, key=len, reverse=True))
        yield names if parameter.is_flag else f"{names} \\fI{_escaped(str(parameter.metavar))}\\fR"
    default = default_of(parameter)
    yield _line(str(parameter.help) + (f" Default: {default}." if default else ""))


def default_of(parameter: Any) -> str:
    """Return the default of an option as a person would write it; nothing if it has none."""
    shown, value = parameter.show_default, parameter.default
    if isinstance(shown, str):
        return shown
    if not shown or parameter.required or value in (None, "", False, [], ()):
        return ""
    values = value if isinstance(value, list | tuple) else [value]
    return ", ".join(f"{each:g}" if isinstance(each, float) else str(each) for each in values)


def _table(title: str, rows: dict[str, str]) -> Iterator[str]:
    yield f".SH {title}"
    for name, text in rows.items():
        yield from (".TP", f"\\fB{_escaped(name)}\\fR", _line(text))


def _page(words: str) -> str:
    return f"{PROGRAM}-{words.replace(' ', '-')}"


def _line(text: str) -> str:
    """Return a line of text: one that begins like a request of troff is protected."""
    escaped = _escaped(text)
    return f"\\&{escaped}" if escaped[:1] in (".", "'") else escaped


def _escaped(text: str) -> str:
    """Return text for troff. Minus signs stay minus signs, so that commands and options can be copied."""
    return re.sub(r"[-`^~]", lambda sign: _SIGNS[sign[0]], text.replace("\\", "\\e"))


_SIGNS = {"-": "\\-", "`": "\\(ga", "^": "\\(ha", "~": "\\(ti"}


def _joined(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"


def write_pages(folder: Path) -> None:
    """Write all pages to a folder, and remove those of commands that are no more."""
    folder.mkdir(exist_ok=True)
    made = pages()
    for path in folder.glob(f"{PROGRAM}*.1"):
        if path.name not in made:
            path.unlink()
    for name, text in made.items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
