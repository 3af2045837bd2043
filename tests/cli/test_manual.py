"""Manual pages: those of the project say what the help says, and troff takes them without a warning."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from commands import parsed_commands
from places import ROOT
from superhosts.cli import COMMANDS
from superhosts.cli._manual import pages, write_pages

PAGES = pages()


@pytest.mark.parametrize("name", PAGES)
def test_the_pages_of_the_project_are_current(name: str) -> None:
    assert (ROOT / "man" / name).read_text(encoding="utf-8") == PAGES[name], "make manual writes the pages anew"


def test_there_are_no_pages_of_commands_that_are_gone(tmp_path: Path) -> None:
    assert {path.name for path in (ROOT / "man").iterdir()} == set(PAGES)
    (tmp_path / "superhosts-gone.1").write_text("old")
    write_pages(tmp_path, PAGES, "superhosts*.1")
    assert {path.name for path in tmp_path.iterdir()} == set(PAGES)


def test_every_command_option_and_argument_is_there() -> None:
    for words, command in parsed_commands().items():
        page = PAGES[f"superhosts-{words.replace(' ', '-')}.1"].replace("\\-", "-")
        assert f"superhosts-{words.replace(' ', '-')}\\fR(1)" in PAGES["superhosts.1"].replace("\\-", "-")
        for each in command.params:
            if each.hidden:
                assert each.opts[0] not in page
                continue
            shown = each.opts if each.param_type_name == "option" else [each.metavar.rstrip(".")]
            assert all(f"{name}\\fR" in page for name in shown)
            assert str(each.help) in page.replace("\\(ga", "`").replace("\\(ti", "~")


def test_the_package_takes_them_to_where_man_looks() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    assert build["wheel"]["shared-data"] == {"man": "share/man/man1"}
    assert "man" in build["sdist"]["include"]


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not here")
def test_troff_takes_them_without_a_warning() -> None:
    files = [ROOT / "man" / name for name in PAGES]
    ended = subprocess.run(["groff", "-k", "-man", "-ww", "-z", *files], capture_output=True, text=True, check=True)
    assert (ended.stdout, ended.stderr) == ("", "")


@pytest.mark.skipif(shutil.which("mandoc") is None, reason="mandoc is not here")
def test_mandoc_takes_them_without_an_error() -> None:
    files = [ROOT / "man" / name for name in PAGES]
    subprocess.run(["mandoc", "-T", "lint", "-W", "error", *files], check=True)


@pytest.mark.skipif(shutil.which("man") is None, reason="man is not here")
def test_man_finds_and_shows_them_beside_the_program(tmp_path: Path) -> None:
    folder = tmp_path / "share" / "man" / "man1"
    shutil.copytree(ROOT / "man", folder)
    env = {**os.environ, "MANPATH": str(folder.parent), "MANWIDTH": "100", "LC_ALL": "C.UTF-8", "MANPAGER": "cat"}
    for page, words in (("superhosts", "superhosts-scan(1)"), ("superhosts-scan", "--detector NAME")):
        ended = subprocess.run(["man", page], capture_output=True, text=True, env=env, check=True)
        plain = re.sub("\x1b\\[[0-9;]*m|.\x08", "", ended.stdout)
        assert words in plain
    assert len(COMMANDS) + 1 == len(PAGES)
