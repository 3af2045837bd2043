"""The reference of commands and of the configuration file says what the help says."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from commands import parsed_commands
from places import DOCS
from superhosts.cli import COMMANDS
from superhosts.cli._config import COMMANDS as CONFIGURED
from superhosts.cli._config import NEVER, key_of
from superhosts.cli._manual import _prose, write_pages
from superhosts.cli._manual import reference_pages as pages
from superhosts.cli.config import config_init
from superhosts.cli.usage.setup import ConfigInit

REFERENCE, PAGES = DOCS / "reference", pages()


@pytest.mark.parametrize("name", PAGES)
def test_the_pages_of_the_project_are_current(name: str) -> None:
    assert (REFERENCE / name).read_text(encoding="utf-8") == PAGES[name], "make manual writes the pages anew"


def test_there_are_no_pages_of_commands_that_are_gone(tmp_path: Path) -> None:
    expected = {name for name in PAGES if name.startswith("commands/")}
    assert {f"commands/{path.name}" for path in (REFERENCE / "commands").iterdir()} == expected
    (tmp_path / "commands").mkdir()
    (tmp_path / "commands" / "gone.md").write_text("old")
    write_pages(tmp_path, PAGES, "commands/*.md")
    assert {f"commands/{path.name}" for path in (tmp_path / "commands").iterdir()} == expected


def test_every_command_option_and_argument_is_there() -> None:
    for words, command in parsed_commands().items():
        page = PAGES[f"commands/{words.replace(' ', '-')}.md"]
        assert f"[`{words}`]({words.replace(' ', '-')}.md)" in PAGES["commands/index.md"]
        headings = [line for line in page.splitlines() if line.startswith("### `")]
        shown = [each for each in command.params if not each.hidden]
        assert len(headings) == len(shown)
        for each in shown:
            names = each.opts if each.param_type_name == "option" else [each.metavar.rstrip(".")]
            assert any(all(name in heading for name in names) for heading in headings)
    assert len(PAGES) == len(COMMANDS) + 2


def test_every_key_of_a_new_configuration_file_is_on_the_page(tmp_path: Path) -> None:
    config_init(ConfigInit(file=tmp_path / "new.toml"))
    lines = (tmp_path / "new.toml").read_text().splitlines()
    keys = {line[2:].split(" = ")[0] for line in lines if line.startswith("# ") and " = " in line}
    listed = {line.split("`")[1] for line in PAGES["configuration.md"].splitlines() if line.startswith("| `")}
    options = {key_of(each) for name in CONFIGURED for each in parsed_commands()[name].params if each.name not in NEVER}
    assert listed <= options
    assert {key for key in keys if key in options} <= listed


def test_the_example_of_the_page_is_a_configuration_file() -> None:
    page = PAGES["configuration.md"]
    example = page[page.index("```toml\n") + 8 :]
    assert tomllib.loads(example[: example.index("```")])["rule"][0]["name"] == "scan-out"


def test_signs_of_markdown_outside_of_code_are_signs() -> None:
    assert _prose("a_b 'x/**' [c] `d_e` with --json-x <f>") == r"a\_b 'x/\*\*' \[c\] `d_e` with `--json-x` \<f>"
