"""Manual pages and the reference: those of the project say what the help says, and troff takes them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from commands import parsed_commands
from places import DOCS, ROOT, load_module
from superhosts.cli import COMMANDS
from superhosts.cli._config import COMMANDS as CONFIGURED
from superhosts.cli._config import NEVER, key_of
from superhosts.cli.config import config_init
from superhosts.cli.usage.setup import ConfigInit

MANUAL = load_module(DOCS / "manual.py")
PAGES, REFERENCE = MANUAL.pages(), MANUAL.reference_pages()


def test_the_pages_of_the_project_are_current_and_no_others_are_there(tmp_path: Path) -> None:
    for folder, made, pattern in (
        (ROOT / "man", PAGES, "superhosts*.1"),
        (DOCS / "reference", REFERENCE, "commands/*.md"),
    ):
        for name, text in made.items():
            assert (folder / name).read_text(encoding="utf-8") == text, f"{name}: make manual writes the pages anew"
        expected = {name for name in made if Path(name).match(pattern)}
        gone = tmp_path / pattern.replace("*", "-gone")
        gone.parent.mkdir(exist_ok=True)
        gone.write_text("old")
        MANUAL.write_pages(tmp_path, made, pattern)
        for place in (folder, tmp_path):
            assert {str(path.relative_to(place)) for path in place.glob(pattern)} == expected


def test_every_command_option_and_argument_is_there() -> None:
    for words, command in parsed_commands().items():
        name = words.replace(" ", "-")
        page, text = PAGES[f"superhosts-{name}.1"].replace("\\-", "-"), REFERENCE[f"commands/{name}.md"]
        assert f"superhosts-{name}\\fR(1)" in PAGES["superhosts.1"].replace("\\-", "-")
        assert f"[`{words}`]({name}.md)" in REFERENCE["commands/index.md"]
        headings = [line for line in text.splitlines() if line.startswith("### `")]
        assert len(headings) == len(command.params)
        for each in command.params:
            shown = each.opts if each.param_type_name == "option" else [each.metavar.rstrip(".")]
            shown = [key_of(each)] if getattr(each, "hidden", False) else shown
            assert all(f"{option}\\fR" in page for option in shown)
            assert any(all(option in heading for option in shown) for heading in headings)
            assert str(each.help) in page.replace("\\(ga", "`").replace("\\(ti", "~")
    assert (len(PAGES), len(REFERENCE)) == (len(COMMANDS) + 1, len(COMMANDS) + 2)


def test_every_key_of_a_new_configuration_file_is_on_the_page(tmp_path: Path) -> None:
    config_init(ConfigInit(file=tmp_path / "new.toml"))
    lines = (tmp_path / "new.toml").read_text().splitlines()
    keys = {line[2:].split(" = ")[0] for line in lines if line.startswith("# ") and " = " in line}
    page = REFERENCE["configuration.md"]
    listed = {line.split("`")[1] for line in page.splitlines() if line.startswith("| `")}
    options = {key_of(each) for name in CONFIGURED for each in parsed_commands()[name].params if each.name not in NEVER}
    assert listed <= options
    assert {key for key in keys if key in options} <= listed
    example = page[page.index("```toml\n") + 8 :]
    assert tomllib.loads(example[: example.index("```")])["rule"][0]["name"] == "scan-out"


def test_signs_of_markdown_outside_of_code_are_signs() -> None:
    assert MANUAL._prose("a_b 'x/**' [c] `d_e` with --json-x <f>") == r"a\_b 'x/\*\*' \[c\] `d_e` with `--json-x` \<f>"


def test_the_package_takes_them_to_where_man_looks() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    assert build["wheel"]["shared-data"] == {"man": "share/man/man1"}
    assert "man" in build["sdist"]["include"]


TROFF = {"groff": ["-k", "-man", "-ww", "-z"], "mandoc": ["-T", "lint", "-W", "error"]}


@pytest.mark.parametrize("program", TROFF)
def test_troff_takes_them_without_a_warning(program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not here")
    files = [ROOT / "man" / name for name in PAGES]
    ended = subprocess.run([program, *TROFF[program], *files], capture_output=True, text=True, check=True)
    assert program == "mandoc" or (ended.stdout, ended.stderr) == ("", "")


@pytest.mark.skipif(shutil.which("man") is None, reason="man is not here")
def test_man_finds_and_shows_them_beside_the_program(tmp_path: Path) -> None:
    folder = tmp_path / "share" / "man" / "man1"
    shutil.copytree(ROOT / "man", folder)
    env = {**os.environ, "MANPATH": str(folder.parent), "MANWIDTH": "100", "LC_ALL": "C.UTF-8", "MANPAGER": "cat"}
    for page, words in (("superhosts", "superhosts-scan(1)"), ("superhosts-scan", "--detector NAME")):
        ended = subprocess.run(["man", page], capture_output=True, text=True, env=env, check=True)
        plain = re.sub("\x1b\\[[0-9;]*m|.\x08", "", ended.stdout)
        assert words in plain
