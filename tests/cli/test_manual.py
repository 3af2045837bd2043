"""Manual pages and the reference: they have what the help has, troff takes them, and a package has them."""

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

MANUAL = load_module(DOCS / "manual.py")
PAGES, REFERENCE = MANUAL.manual_pages(), MANUAL.reference_page()


def test_the_reference_of_the_project_is_current() -> None:
    made = (DOCS / "reference" / "commands.md").read_text("utf-8")
    assert made == REFERENCE, "make manual writes the page anew"


def test_every_command_option_and_argument_is_there() -> None:
    sections = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", REFERENCE, re.MULTILINE | re.DOTALL))
    assert list(sections) == list(COMMANDS)
    assert len(PAGES) == len(COMMANDS) + 1
    for words, command in parsed_commands().items():
        name = words.replace(" ", "-")
        page = PAGES[f"superhosts-{name}.1"].replace("\\-", "-")
        assert f"superhosts-{name}\\fR(1)" in PAGES["superhosts.1"].replace("\\-", "-")
        assert f"- [`{words}`](#{name}): " in REFERENCE
        items = re.findall(r"^- `(.*?)`: ", sections[words], re.MULTILINE)
        assert len(items) == len(command.params)
        for each in command.params:
            shown = each.opts if each.param_type_name == "option" else [each.metavar.rstrip(".")]
            shown = [f"{each.key} ="] if each.hidden else shown
            assert all(f"{option}\\fR" in page for option in shown)
            assert any(all(option in item for option in shown) for item in items)
            assert str(each.help) in page.replace("\\(ga", "`").replace("\\(ti", "~")


def test_signs_of_markdown_outside_of_code_are_signs() -> None:
    made = MANUAL.Markdown.prose("a_b 'x/**' [c] `d_e` with --json-x <f>")
    assert made == r"a\_b 'x/\*\*' \[c\] `d_e` with `--json-x` \<f>"


def test_the_package_takes_them_to_where_man_looks() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["shared-data"] == {"build/man": "share/man/man1"}
    assert '"write_manual"](root / "build" / "man")' in (ROOT / wheel["hooks"]["custom"]["path"]).read_text()


TROFF = {"groff": ["-k", "-man", "-ww", "-z"], "mandoc": ["-T", "lint", "-W", "error"], "man": []}


@pytest.mark.parametrize("program", TROFF)
def test_troff_takes_them_without_a_warning_and_man_shows_them(program: str, tmp_path: Path) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not here")
    folder = tmp_path / "share" / "man" / "man1"
    MANUAL.write_manual(folder)
    if program == "man":
        env = {**os.environ, "MANPATH": str(folder.parent), "MANWIDTH": "100", "LC_ALL": "C.UTF-8", "MANPAGER": "cat"}
        for page, words in (("superhosts", "superhosts-scan(1)"), ("superhosts-scan", "--detector NAME")):
            ended = subprocess.run(["man", page], capture_output=True, text=True, env=env, check=True)
            assert words in re.sub("\x1b\\[[0-9;]*m|.\x08", "", ended.stdout)
        return
    ended = subprocess.run([program, *TROFF[program], *folder.iterdir()], capture_output=True, text=True, check=True)
    assert program == "mandoc" or (ended.stdout, ended.stderr) == ("", "")
