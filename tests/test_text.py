"""Untrusted text is displayed as one printable line of bounded length."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from superhosts.text import MOST_SHOWN, printable


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
