"""Address text and columns of it: every row as `ipaddress` reads it, wherever it lies in memory."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from core.columns.test_address_text import naive
from fuzz.targets import target
from superhosts.core.columns.addresses import parse_spans

_CHARACTERS = "0123456789abcdefABCDEF::::....%/ xg\x00\x7f\x80é"
_PIECES = ("::", ":", "0", "00", "ffff", "FFFF", "::ffff:", "1.2.3.4", "255", "256", ".", "1:2:3:4:5:6:7", "abcde")


@st.composite
def _texts(draw: st.DrawFn) -> str:
    address = draw(st.ip_addresses())
    text = draw(st.sampled_from([str(address), address.exploded]))
    for at in draw(st.lists(st.integers(0, 45), max_size=3)):
        text = text[:at] + draw(st.text(_CHARACTERS, max_size=2)) + text[at + draw(st.integers(0, 2)) :]
    return text.upper() if draw(st.booleans()) else text


_rows = st.lists(
    _texts() | st.text(_CHARACTERS, max_size=50) | st.lists(st.sampled_from(_PIECES), max_size=12).map("".join),
    max_size=8,
)


@target(st.tuples(_rows, st.text(_CHARACTERS, max_size=60)))
def addresses(case: tuple[list[str], str]) -> None:
    """What stands behind the text, which may be nothing, does not matter."""
    texts, behind = case
    rows = [text.encode() for text in texts]
    data = np.frombuffer(b"".join(rows) + behind.encode(), np.uint8)
    places = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    kinds, words = parse_spans(data, places[:-1], places[1:])
    found = [(int(kind), int(high), int(low)) for kind, (high, low) in zip(kinds, words, strict=True)]
    assert found == [naive(text) for text in texts]
