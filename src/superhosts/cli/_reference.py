"""Reference pages from the texts of the help: `python -m superhosts.cli._reference docs/reference` writes them.

`commands/` has a page for each command, with every option, and an index with exit statuses and environment variables;
`configuration.md` has the keys of the configuration file. Like the manual pages (`_manual.py`) they are files of the
project, and a test compares them with the help.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from superhosts.cli import COMMANDS, DESCRIPTION
from superhosts.cli._config import COMMANDS as CONFIGURED
from superhosts.cli._config import NEVER, key_of
from superhosts.cli._loading import LazyCommand
from superhosts.cli._manual import ENVIRONMENT, FILES, PROGRAM, STATUS, default_of, panels_of
from superhosts.cli._parsing import name_of

MADE = "<!-- Made by `make manual` from the help of the commands: edit the help, not this page. -->"
CONFIGURATION = "configuration.md"
ABOUT_CONFIGURATION = """
One TOML file holds the options of `scan`, `watch`, `edge` and `hub`. A key is an option without its dashes, and takes
the same values; several values are a list, and a flag is `true` or `false`.

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

The keys of `[[rule]]` are explained in [Alerts](../guides/alerts.md#rules).
"""


def pages() -> dict[str, str]:
    """Return the text of every page by its name below the folder."""
    commands = {words: LazyCommand(words.split()[-1], entry).load() for words, entry in COMMANDS.items()}
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
        lines += [*_paragraph(paragraph), ""]
    for panel, members in panels_of(command).items():
        lines += [f"## {panel.capitalize()}", ""]
        for each in members:
            lines += [*_parameter(each), ""]
    return _joined(lines).rstrip() + "\n"


def _paragraph(text: str) -> Iterator[str]:
    """Yield a paragraph of the help; indented lines, such as examples, are a block of code."""
    lines = text.splitlines()
    words = " ".join(line for line in lines if not line.startswith(" "))
    examples = [line.strip() for line in lines if line.startswith(" ")]
    if words.startswith("Example: "):
        words, examples = "Example:", [words.removeprefix("Example: ")]
    yield _prose(words)
    if examples:
        yield from ("", *(f"    {each}" for each in examples))


def _parameter(parameter: Any) -> Iterator[str]:
    """Yield an option or argument as a heading with its help and its default, so that links find it."""
    if parameter.param_type_name == "argument":
        yield f"### `{name_of(parameter)}`"
    else:
        names = ", ".join(sorted(parameter.opts, key=len, reverse=True))
        yield f"### `{names}`" if parameter.is_flag else f"### `{names} {parameter.metavar}`"
    yield ""
    yield _prose(str(parameter.help))
    if default := default_of(parameter):
        yield from ("", f"Default: {_value(default)}")


def _configuration(commands: dict[str, Any]) -> str:
    lines = [MADE, "", "# Configuration file", *ABOUT_CONFIGURATION.rstrip().splitlines()]
    shown = {name: [each for each in commands[name].params if _is_key(each)] for name in CONFIGURED}
    shared = set.intersection(*({key_of(each) for each in params} for params in shown.values()))
    lines += ["", "## For every command", "", *_keys([each for each in shown["scan"] if key_of(each) in shared])]
    for name, params in shown.items():
        lines += ["", f"## `[{name}]`", "", *_keys([each for each in params if key_of(each) not in shared])]
    return _joined(lines)


def _is_key(parameter: Any) -> bool:
    return parameter.name not in NEVER and not getattr(parameter, "hidden", False)


def _keys(parameters: list[Any]) -> Iterator[str]:
    yield "| key | meaning | default |"
    yield "|---|---|---|"
    for each in parameters:
        yield f"| `{key_of(each)}` | {_cell(str(each.help))} | {_value(default_of(each))} |"


def _value(default: str) -> str:
    """Return a default as code, unless it is a sentence."""
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


def _joined(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"


def write_pages(folder: Path) -> None:
    """Write all pages to a folder, and remove those of commands that are no more."""
    made = pages()
    (folder / "commands").mkdir(parents=True, exist_ok=True)
    for path in (folder / "commands").glob("*.md"):
        if f"commands/{path.name}" not in made:
            path.unlink()
    for name, text in made.items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
