"""What a site may be called, and that every stricter rule allows no more than the one before."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from superhosts.core.fields import MAX_NAME, is_file_name, is_fleet_name, is_name
from superhosts.core.text import printable


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
