"""Untrusted text is displayed as one printable line of bounded length."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from superhosts.text import MOST_NAME, MOST_SHOWN, is_name, printable


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


@given(st.text(st.characters(), max_size=80))
def test_a_name_is_shown_and_stored_as_it_is(text: str) -> None:
    if is_name(text):
        assert printable(text) == text
        assert json.dumps(text, ensure_ascii=False) == f'"{text}"'
        assert 0 < len(text.encode()) <= MOST_NAME
    else:
        assert not text or not text.isprintable() or set(text) & set('"\\') or len(text.encode()) > MOST_NAME
