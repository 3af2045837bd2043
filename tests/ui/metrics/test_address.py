"""Where the endpoint listens."""

from __future__ import annotations

import pytest

from superhosts.core.units import Place, parse_place
from superhosts.errors import UsageError


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (":9105", Place("127.0.0.1", 9105)),
        ("0.0.0.0:80", Place("0.0.0.0", 80)),
        ("hub.example:0", Place("hub.example", 0)),
        ("[::1]:65535", Place("::1", 65535)),
    ],
)
def test_an_address_is_a_host_and_a_port_and_without_a_host_this_machine(text: str, place: Place) -> None:
    assert parse_place(text) == place
    assert parse_place(str(place)) == place


@pytest.mark.parametrize("text", ["", "9105", ":", "a:", "a:b", ":65536", ":-1", "::1:9105", ":٣", "a:1:2"])
def test_others_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="write it like :9105"):
        parse_place(text)
