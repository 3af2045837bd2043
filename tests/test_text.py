"""Untrusted text is displayed as one printable line of bounded length."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from superhosts.text import MOST_SHOWN, counted, printable


def test_control_characters_line_breaks_and_marks_are_escaped() -> None:
    assert printable("ams\x1b[2J\nfra\u202e\ud800\u2028é") == "ams\\x1b[2J\\nfra\\u202e\\ud800\\u2028é"


def test_a_long_text_is_shortened_and_says_how_long_it_was() -> None:
    assert printable("x" * 100_000) == "x" * MOST_SHOWN + "… (100,000 characters)"


@given(st.text(st.characters()))
def test_whatever_comes_is_one_line_that_can_be_encoded(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    shown.encode()  # Raises an error for a lone surrogate.
    assert len(shown) <= 10 * MOST_SHOWN + 40


@pytest.mark.parametrize(
    ("number", "words"),
    [(0, "0 hosts"), (1, "1 host"), (2, "2 hosts"), (1.0, "1 host"), (12345, "12,345 hosts")],
)
def test_numbers_with_their_nouns(number: float, words: str) -> None:
    assert counted(number, "host") == words


def test_plurals_that_are_no_added_s() -> None:
    assert counted(1, "window was", "windows were") == "1 window was"
    assert counted(2, "window was", "windows were") == "2 windows were"
