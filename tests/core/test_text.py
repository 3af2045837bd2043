"""Untrusted text is shown as one printable line, numbers have one form each, and what a site may be called."""

from __future__ import annotations

import ast
import itertools
import json
import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from places import ROOT
from superhosts.core.fields import MAX_NAME, is_file_name, is_fleet_name, is_name
from superhosts.core.text import MOST_SHOWN, at_least, counted, printable, short_count, short_rate

SOURCE = ROOT / "src" / "superhosts"
# Numbers that are never 1, by the file that shows them.
ALWAYS_MANY = {
    "_progress.py": ("{len(items)} sketches", "{packets} packets"),
    "plan.py": ("{saturation} peers", "{exact_pairs} pairs"),
    "traffic.py": ("{need} flows",),  # thousands
    "columnsketch.py": ("{_most_peers} peers", "{smallest} peers"),
    "capture.py": ("{_counted} packets",),
    "assembly.py": ("{len(mine)} sketches",),
    "pairtable.py": ("{8 * words} bytes",),
    "memory.py": ("{size} bytes",),
    "files.py": ("{_frames} packets",),  # one has words of its own
    "folder.py": ("{len(chosen)} sketches",),  # more than one may ask for
}


def test_untrusted_text_is_escaped_and_shortened() -> None:
    assert printable("ams\x1b[2J\nfra\u202e\ud800\u2028é") == "ams\\x1b[2J\\nfra\\u202e\\ud800\\u2028é"
    assert printable("x" * 100_000) == "x" * MOST_SHOWN + "… (100,000 characters)"


@given(st.text(st.characters()))
def test_whatever_comes_is_one_line_that_can_be_encoded(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    shown.encode()  # Raises an error for a lone surrogate.
    assert len(shown) <= 10 * MOST_SHOWN + 40


def test_numbers_for_people() -> None:
    nouns = {0: "0 hosts", 1: "1 host", 2: "2 hosts", 12345: "12,345 hosts"}
    assert {number: counted(number, "host") for number in nouns} == nouns
    assert counted(1.0, "window was", "windows were") == "1 window was"
    assert counted(2, "window was", "windows were") == "2 windows were"
    three = {0: "0", 999: "999", 1000: "1k", 9949: "9.95k", 123_456: "123k", 999_999: "1M", 5 * 10**6: "5M"}
    assert {number: short_count(number, 3) for number in three} == three
    six = {500: "500", 10_020: "10.02k", 1.5e6: "1.5M", 3e9: "3G"}
    assert {number: short_count(number) for number in six} == six
    rates = {0: "0", 9500: "9,500", 12_300: "12 k", 2.55e6: "2.5 M"}
    assert {number: short_rate(number) for number in rates} == rates


NOUNS = set(
    re.findall(
        "[a-z]+",
        "packets hosts windows files sites sketches peers flows pairs rows bytes captures tasks detectors threads "
        "inputs values fields labels words intervals",
    )
)


def numbers_without_a_singular(source: str) -> Iterator[str]:
    """Yield the places of a module that put a plural behind a number without asking whether there is one."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            for number, words in itertools.pairwise(node.values):
                if not isinstance(number, ast.FormattedValue) or not isinstance(words, ast.Constant):
                    continue
                name = ast.unparse(number.value).rpartition(".")[2]
                counts = number.format_spec is not None or "len(" in name or "count" in name
                follows = re.match(r" (?:super |more )?([a-z]+)\b", str(words.value))
                if counts and follows and follows[1] in NOUNS and not name.isupper() and "counted(" not in name:
                    yield f"line {node.lineno}: {{{name}}}{words.value}"


@pytest.mark.slow
def test_one_thing_is_never_called_by_its_plural() -> None:
    found = [
        f"{path.name}: {place}"
        for path in sorted(SOURCE.rglob("*.py"))
        for place in numbers_without_a_singular(path.read_text())
        if not any(map(place.count, ALWAYS_MANY.get(path.name, ())))
    ]
    assert found == []


@given(st.integers(0, 10**12 - 10**9))
def test_three_digits_have_room_in_five_characters(number: int) -> None:
    assert len(short_count(number, 3)) <= 5


def test_estimates_without_an_upper_bound() -> None:
    assert [at_least(1234, 1000), at_least(None, 1000)] == ["1,234", "≥ 1,000"]
    written = [path.name for path in SOURCE.rglob("*.py") if '"≥ {' in path.read_text()]
    assert written == ["text.py"]


# Names of sites


@given(st.text(st.characters(), max_size=80))
def test_a_name_is_shown_and_stored_as_it_is(text: str) -> None:
    if is_name(text):
        assert printable(text) == text
        assert json.dumps(text, ensure_ascii=False) == f'"{text}"'
        assert 0 < len(text.encode()) <= MAX_NAME
    else:
        assert not text or not text.isprintable() or set(text) & set('"\\') or len(text.encode()) > MAX_NAME


@pytest.mark.parametrize("name", ["", "a/b", "a\\b", "a\0b", "/"])
def test_a_file_name_has_no_slashes(name: str) -> None:
    assert not is_file_name(name)
    assert not is_fleet_name(name)


@given(st.from_regex(r"[A-Za-z0-9_.\-é]{0,65}", fullmatch=True))
def test_a_name_in_a_fleet_is_valid_everywhere(text: str) -> None:
    if is_fleet_name(text):
        assert is_name(text)
        assert is_file_name(text)
        assert text.isascii()
        assert text[0].isalnum()


def test_names_in_a_fleet() -> None:
    assert all(map(is_fleet_name, ("ams", "A-1_b", "9", "x" * MAX_NAME)))
    assert not any(map(is_fleet_name, ("-a", "_a", "a.b", "a b", "a*", "é", "x" * (MAX_NAME + 1), "ams\n")))
