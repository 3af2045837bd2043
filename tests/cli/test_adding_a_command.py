"""How to add a command: a class of options, a body that takes an object of it, and one line in `HELP`.

A command whose body imports nothing that is slow to load may have both in one file, as here.
"""

from __future__ import annotations

import pytest

from commands import Run
from superhosts.cli import COMMANDS, GROUPS
from superhosts.cli._declaration import Options, arg, opt
from superhosts.cli._options import JSON, QUIET
from superhosts.cli._program import Entry
from superhosts.errors import UsageError


class OtherOptions(Options, panel="Other letters"):
    """A group: these options appear together in the help."""

    json: bool = JSON
    quiet: bool = QUIET


class Toy(OtherOptions):
    """Example: superhosts toy banana --letter a"""

    words: list[str] = arg("WORD...").about("Words to look at.")
    letter: str = opt("LETTER", "a", short="-l").about("The letter to count.")


def toy(options: Toy) -> None:
    """Print how often the letter is there."""
    if len(options.letter) != 1:
        raise UsageError(f"--letter {options.letter}: one letter")
    count = sum(word.count(options.letter) for word in options.words)
    print(f'{{"count": {count}}}' if options.json else count)


ENTRY = Entry(f"{__name__}:Toy", f"{__name__}:toy", "Count a letter in words.")


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMMANDS, "toy", ENTRY)
    monkeypatch.setitem(COMMANDS, "play toy", ENTRY)
    monkeypatch.setitem(GROUPS, "play", "Commands to play with.")


@pytest.mark.usefixtures("added")
def test_it_runs(run: Run) -> None:
    assert run("toy", "banana", "ananas") == (0, "6\n", "")
    assert run("toy", "banana", "-l", "n", "--json").rows == [{"count": 2}]
    assert run("play", "toy", "banana").out == "3\n"


def test_options_are_complete_known_and_stay_as_they_are() -> None:
    options = Toy(words=["banana"])
    assert (options.letter, options.json, options.words) == ("a", False, ["banana"])
    assert options.changed(letter="n").letter == "n"
    with pytest.raises(AttributeError, match="letter cannot be changed"):
        options.letter = "n"  # type: ignore[misc]
    with pytest.raises(TypeError, match="missing option: words"):
        Toy()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unknown options: leter"):
        options.changed(leter="n")


@pytest.mark.usefixtures("added")
def test_it_is_in_the_help(run: Run) -> None:
    assert "Count a letter in words." in run("--help").out
    shown = run("toy", "--help").out
    assert "The letter to count." in shown
    assert "Other letters" in shown
    assert "Example: superhosts toy banana --letter a" in shown
    assert "Commands to play with." in run("--help").out
    assert "Count a letter in words." in run("play", "--help").out


@pytest.mark.usefixtures("added")
def test_its_errors_are_those_of_all_commands(run: Run) -> None:
    assert run("toy", "banana", "--letter", "an") == (2, "", "superhosts: --letter an: one letter\n")
    assert run("toy").status == 2
    assert run("toy", "banana", "--nonsense").status == 2
    assert "Did you mean 'toy'?" in run("toyy").err
