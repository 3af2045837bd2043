"""Manual pages and the reference from the texts of the help: `python docs/manual.py man docs/reference`.

In `man`, superhosts.1 lists the commands, superhosts-scan.1 and so on describe each of them. In `docs/reference`,
`commands/` has a page for each command, with every option, and an index with exit statuses and environment variables;
`configuration.md` has the keys of the configuration file. The pages are files of the project, so that a package is
built without running the program; tests compare them with the help.
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
from superhosts.cli._config import key_of, keys_of_tables
from superhosts.cli._program import Command, Flag, default_of, name_of, panels_of

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
    made = {f"{PROGRAM}.1": _overview()}
    made.update({f"{_page(words)}.1": _command_page(words, command) for words, command in _loaded().items()})
    return made


def _loaded() -> dict[str, Any]:
    return {words: Command(words.split()[-1], entry) for words, entry in COMMANDS.items()}


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


def _title(page: str, text: str) -> Iterator[str]:
    yield f'.TH {_escaped(page.upper())} 1 "" "{PROGRAM} {__version__}" "User Commands"'
    yield ".SH NAME"
    yield f"{_escaped(page)} \\- {_escaped(text[0].lower() + text[1:].rstrip('.'))}"


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in text.split("\n\n"):
        words, examples = _words_and_examples(paragraph)
        yield ".PP"
        yield _line(words)
        if examples:
            yield from (".RS", ".nf", *map(_line, examples), ".fi", ".RE")


def _words_and_examples(paragraph: str) -> tuple[str, list[str]]:
    """Return the words of a paragraph of the help, and its examples: indented lines, or what follows "Example:"."""
    lines = paragraph.splitlines()
    words = " ".join(line for line in lines if not line.startswith(" "))
    if words.startswith("Example: "):
        return "Example:", [words.removeprefix("Example: ")]
    return words, [line.strip() for line in lines if line.startswith(" ")]


def _parameter(parameter: Any) -> Iterator[str]:
    yield ".TP"
    if parameter.param_type_name == "argument":
        yield f"\\fI{_escaped(name_of(parameter))}\\fR"
    elif parameter.hidden:
        yield f"\\fB{_escaped(key_of(parameter))}\\fR = \\fI{_escaped(str(parameter.metavar or 'true'))}\\fR"
    else:
        names = ", ".join(f"\\fB{_escaped(name)}\\fR" for name in sorted(parameter.opts, key=len, reverse=True))
        yield names if isinstance(parameter, Flag) else f"{names} \\fI{_escaped(str(parameter.metavar))}\\fR"
    default = default_of(parameter)
    yield _line(str(parameter.help) + (f" Default: {default}." if default else ""))


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


# Pages of the reference

MADE = "<!-- Made by `make manual` from the help of the commands: edit the help, not this page. -->"
CONFIGURATION = "configuration.md"
ABOUT_CONFIGURATION = """
One TOML file holds the options of `scan`, `watch`, `edge` and `hub`, and settings that are no options because few need
them: a file or a variable has these. A key is an option without its dashes, and takes the same values; several values
are a list, and a flag is `true` or `false`.

```toml
inner = ["10.0.0.0/8", "192.0.2.0/24"]    # for every command that has the option
window = "5m"

[hub]                                      # for one command
state = "/var/lib/superhosts/hub"

[[rule]]                                   # of alerts; as many as you like
name = "scan-out"
threshold = 500
```

The first of these counts: the option on the command line, the environment (`SUPERHOSTS_HUB_THRESHOLD=500`), the table
of the command, the keys for all commands, the default.

| to | run |
|---|---|
| begin with a file that has every key, commented out | `superhosts config init superhosts.toml` |
| check a file: it names the key, the value and what would be right | `superhosts config check superhosts.toml` |
| see every value of a command, and where it comes from | `superhosts config show superhosts.toml hub` |
| use it | `superhosts hub --config superhosts.toml` |

The keys of `[[rule]]` are explained in [Alerts](../guides/alerts.md#rules). Editors that know TOML complete and check
the file with its [JSON Schema](schemas/config.schema.json).
"""


def reference_pages() -> dict[str, str]:
    """Return the text of every page by its name below the folder."""
    commands = _loaded()
    made = {"commands/index.md": _index(), CONFIGURATION: _configuration(commands)}
    made.update({f"commands/{_file(words)}": _command(words, command) for words, command in commands.items()})
    return {name: _linked(text, name) for name, text in made.items()}


def _index() -> str:
    lines = [MADE, "", "# Commands", "", DESCRIPTION, "", "| command | what it does |", "|---|---|"]
    lines += [f"| [`{words}`]({_file(words)}) | {_cell(entry.help)} |" for words, entry in COMMANDS.items()]
    lines += ["", "`superhosts COMMAND --help` and `man superhosts-COMMAND` say the same as these pages."]
    lines += ["`superhosts --install-completion` makes your shell complete commands, options and their values."]
    lines += ["", "## Exit status", "", "| status | meaning |", "|---|---|"]
    lines += [f"| {status} | {_cell(text)} |" for status, text in STATUS.items()]
    lines += ["", "## Environment", "", "| variable | meaning |", "|---|---|"]
    lines += [f"| `{name}` | {_cell(text)} |" for name, text in ENVIRONMENT.items()]
    lines += ["", "Every option can be given as a variable, too: `SUPERHOSTS_SCAN_WINDOW=1m` is `scan --window 1m`."]
    lines += ["", "## Files", "", "| file | meaning |", "|---|---|"]
    lines += [f"| `{name}` | {_cell(text)} |" for name, text in FILES.items()]
    return _joined(lines)


def _command(words: str, command: Any) -> str:
    first, *rest = inspect.cleandoc(command.help).split("\n\n")
    usage = " ".join([PROGRAM, words, "[OPTIONS]", *command.collect_usage_pieces(None)[1:]])
    lines = [MADE, "", f"# {words}", "", _prose(first), "", f"    {usage}", ""]
    for paragraph in rest:
        prose, examples = _words_and_examples(paragraph)
        lines += [_prose(prose), ""]
        if examples:  # a block of code
            lines += [*(f"    {each}" for each in examples), ""]
    for panel, members in panels_of(command).items():
        lines += [f"## {panel.capitalize()}", ""]
        for each in members:
            lines += [*_option_section(each), ""]
    return _joined(lines).rstrip() + "\n"


def _option_section(parameter: Any) -> Iterator[str]:
    """Yield an option or argument as a heading with its help and its default, so that links find it."""
    if parameter.param_type_name == "argument":
        yield f"### `{name_of(parameter)}`"
    elif parameter.hidden:
        yield f"### `{key_of(parameter)} = {parameter.metavar or 'true'}`"
    else:
        names = ", ".join(sorted(parameter.opts, key=len, reverse=True))
        yield f"### `{names}`" if isinstance(parameter, Flag) else f"### `{names} {parameter.metavar}`"
    yield ""
    yield _prose(str(parameter.help))
    if default := default_of(parameter):
        yield from ("", f"Default: {_value(default)}")


def _configuration(commands: dict[str, Any]) -> str:
    lines = [MADE, "", "# Configuration file", *ABOUT_CONFIGURATION.rstrip().splitlines()]
    for name, keys in keys_of_tables(commands).items():
        lines += ["", f"## `[{name}]`" if name else "## For every command", "", *_keys(keys)]
    return _joined(lines)


def _keys(parameters: list[Any]) -> Iterator[str]:
    yield "| key | meaning | default |"
    yield "|---|---|---|"
    for each in parameters:
        yield f"| `{key_of(each)}` | {_cell(str(each.help))} | {_value(default_of(each))} |"


def _value(default: str) -> str:
    return default if not default or " " in default else f"`{default}`"


def _cell(text: str) -> str:
    return _prose(" ".join(text.split())).replace("|", "\\|")


def _prose(text: str) -> str:
    """Return a text of the help as Markdown: options are code, signs of Markdown outside of code are signs."""
    parts = re.split(r"(`[^`]*`)", text)
    parts[::2] = [re.sub(r"([*_<\[\]])", r"\\\1", part) for part in parts[::2]]
    parts[::2] = [re.sub(r"(?<!\w)(--[a-z][a-z0-9-]*)", r"`\1`", part) for part in parts[::2]]
    return "".join(parts)


def _linked(text: str, name: str) -> str:
    """Return a page on which every other page that the help names is a link."""
    up = "../" * (name.count("/") + 1)
    return re.sub(r"\bdocs/([a-z/]+\.md)", rf"[docs/\1]({up}\1)", text)


def _file(words: str) -> str:
    return f"{words.replace(' ', '-')}.md"


def write_pages(folder: Path, made: dict[str, str], pattern: str) -> None:
    """Write pages to a folder, and remove those that match the pattern and are no more."""
    for path in folder.glob(pattern):
        if str(path.relative_to(folder)) not in made:
            path.unlink()
    for name, text in made.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]), pages(), f"{PROGRAM}*.1")
    write_pages(Path(sys.argv[2]), reference_pages(), "commands/*.md")
