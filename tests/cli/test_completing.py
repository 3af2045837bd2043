"""Shell completion, asked as shells ask: through environment variables."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import superhosts as sh
from commands import Run, parsed_commands, process
from superhosts.cli._completion import usual_values
from superhosts.cli._options import DETECTORS, MERGED_BY_HUBS
from superhosts.lab.lineup import ENTRANTS

Ask = Callable[..., list[str]]
# Words that say what an option takes, where nothing can be offered: files (the shell completes them), numbers, names.
FREE = {"FILE", "DIR", "COUNT", "NUMBER", "K", "TEXT", "URL", "ADDRESS", "HOST:PORT", "TIME", "TOKEN"}
ALSO_FREE = {  # and options of one word with others
    "--allow": "hosts and prefixes",
    "--never-act": "hosts and prefixes",
    "--rule": "rules are named by people",
    "--why": "a note",
    "--web-trust-proxy": "names that a proxy has",
    "--exclude": "prefixes",
    "--filter": "expressions of libpcap",
    "--prefix": "prefixes",
    "--site": "a new name",
    "--by": "a name of a person",
    "--owner": "a name of a person",
    "--note": "a note",
}


@pytest.fixture
def ask(run: Run, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Return a function that gives the lines that a shell gets for a command line whose last word is being typed."""

    def ask(shell: str, *words: str) -> list[str]:
        monkeypatch.setenv("COMP_WORDS", " ".join(["superhosts", *words]))
        monkeypatch.setenv("COMP_CWORD", words[-1] if shell == "fish" else str(len(words)))
        monkeypatch.setenv("_SUPERHOSTS_COMPLETE", f"{shell}_complete")
        ended = run()
        monkeypatch.delenv("_SUPERHOSTS_COMPLETE")
        assert (ended.status, ended.err) == (0, "")
        return ended.out.splitlines()

    return ask


@pytest.fixture
def named(ask: Ask) -> Ask:
    """Return a function that gives the values that bash gets; files are for itself to find."""
    return lambda *words: [line[6:] for line in ask("bash", *words) if line.startswith("plain,")]


ASKED: dict[str, tuple[list[str], list[str]]] = {
    "detectors": (["scan", "--detector", "c"], ["cube", "cbaa", "cbaa-paper"]),
    "detectors of a fleet": (["hub", "--detector", ""], ["cube", "cbaa", "cbaa-paper"]),
    "a list of detectors": (["compare", "--detector", "cube,gs"], ["cube,gse"]),
    "devices": (["scan", "--device", ""], ["auto", "cpu", "cuda", "cuda:all"]),
    "a short option": (["scan", "-w", "1"], ["15m", "1h", "1d"]),
    "a switch": (["scan", "--exact", "o"], ["on", "off"]),
    "special addresses": (["scan", "--special", ""], ["drop", "keep"]),
    "sides": (["scan", "--watch", ""], ["inner", "outer"]),
    "a second side": (["scan", "--watch", "inner,"], ["inner,outer"]),
    "directions": (["edge", "--direction", "in,"], ["in,any", "in,out"]),
    "a word for prefixes": (["scan", "--inner", "p"], ["private"]),
    "a key, or a file": (["scan", "--key-file", "p"], ["public"]),
    "files": (["scan", "--key-file", ""], []),
    "a window, or all": (["scan", "--window", "a"], ["all"]),
    "a window that ends": (["edge", "--window", "a"], []),
    "families": (["synth", "--family", ""], ["4", "6", "both"]),
    "memory": (["plan", "--memory", "1"], ["16MiB", "128MiB", "1GiB"]),
}


def offered(name: str, option: str, incomplete: str) -> list[str]:
    """Return what is offered for the value of an option; nothing if the shell completes files."""
    (found,) = [each for each in parsed_commands()[name].params if option in each.opts]
    return [each.value for each in found.shell_complete(None, incomplete) if each.type == "plain"]


def test_values_of_options() -> None:
    for what, (words, values) in ASKED.items():
        assert offered(*words) == values, what


def test_values_options_and_commands_in_bash(named: Ask) -> None:
    for words, values in (
        (["compare", "--detector", "cube,gs"], ["cube,gse"]),
        (["sc"], ["scan"]),
        (["scan", "--det"], ["--detector"]),
        (["config", "show", "file", ""], ["scan", "watch", "edge", "hub"]),
    ):
        assert named(*words) == values


def test_the_other_shells_get_the_same_in_their_own_form(ask: Ask) -> None:
    assert ask("fish", "scan", "--exact", "o") == ["plain,on", "plain,off"]
    assert ask("zsh", "scan", "--exact", "o") == ["plain", "on", "_", "plain", "off", "_"]


def test_files_and_folders_are_left_to_the_shell(ask: Ask) -> None:
    for words, kind in ((["scan", "--key-file", ""], "file"), (["scan", "--save", ""], "dir"), (["scan", ""], "file")):
        assert ask("bash", *words) == [f"{kind},"]


def test_sites_come_from_the_sketches_of_the_command_line(named: Ask, tmp_path: Path) -> None:
    for site in ("ams", "fra"):
        sketch = sh.Sketch.of(sh.Cube("64KiB"))
        sketch.sites = {site}
        sketch.save(tmp_path / f"{site}.cube")
    assert named("hosts", str(tmp_path), "--site", "") == ["ams", "fra"]
    assert named("hosts", str(tmp_path), "--site", "ams,") == ["ams,fra"]
    assert named("hosts", str(tmp_path / "ams.cube"), "--site", "") == ["ams"]
    assert named("hosts", str(tmp_path / "none.cube"), "--site", "") == []


def test_enrolled_sites_come_from_the_state_of_the_hub(run: Run, named: Ask, tmp_path: Path) -> None:
    pytest.importorskip("nkeys")
    for site in ("ams", "fra"):
        assert run("site", "enroll", site, "--state", tmp_path).status == 0
    assert named("site", "revoke", "--state", str(tmp_path), "") == ["ams", "fra"]
    assert named("hub", "--state", str(tmp_path), "--sites", "ams,f") == ["ams,fra"]
    assert named("site", "revoke", "--state", str(tmp_path / "none"), "") == []


def test_every_option_offers_values_or_takes_anything() -> None:
    lacking = set()
    for name, command in parsed_commands().items():
        for option in command.params:
            is_plain = option.param_type_name == "option" and not getattr(option, "is_flag", False)
            free = str(option.metavar) in FREE or max(option.opts, key=len) in ALSO_FREE
            if is_plain and not free and not usual_values(str(option.metavar), option.each.offers):
                lacking.add((name, option.opts[0]))
    assert lacking == set()


def test_the_names_of_detectors_are_those_of_the_help() -> None:
    assert [tuple(offered(command, "--detector", "")) for command in ("scan", "edge")] == [DETECTORS, MERGED_BY_HUBS]
    assert offered("compare", "--detector", "") == list(ENTRANTS)


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not here")
def test_in_bash_itself(tmp_path: Path) -> None:
    """Source the script that the program shows, and let bash complete a word with it."""
    shown = process(env={**os.environ, "_SUPERHOSTS_COMPLETE": "bash_source"})
    program = tmp_path / "superhosts"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m superhosts "$@"\n')
    program.chmod(0o755)
    script = tmp_path / "try.sh"
    script.write_text(
        f"{shown.out}\nCOMP_WORDS=(superhosts scan --exact o) COMP_CWORD=3\n"
        '_superhosts_completion superhosts\necho "${COMPREPLY[*]}"\n'
    )
    path = f"{tmp_path}:{os.environ['PATH']}"
    ended = subprocess.run(
        ["bash", script], capture_output=True, text=True, env={**os.environ, "PATH": path}, check=True
    )
    assert ended.stdout.split() == ["on", "off"]


def test_it_is_installed_once(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for shell, file, start in (
        ("bash", ".bash_completions/superhosts.sh", ".bashrc"),
        ("zsh", ".zfunc/_superhosts", ".zshrc"),
        ("fish", ".config/fish/completions/superhosts.fish", ""),
    ):
        monkeypatch.setenv("SHELL", f"/bin/{shell}")
        for _ in range(2):
            assert run("--install-completion").status == 0
        assert (tmp_path / file).read_text() == run("--show-completion").out.removesuffix("\n")
        assert not start or len((tmp_path / start).read_text().splitlines()) == 2
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    assert run("--install-completion").err.startswith("superhosts: --install-completion: the variable SHELL names tcsh")
