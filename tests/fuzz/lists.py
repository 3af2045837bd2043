"""Lists of prefixes that people write, and the word with which a site joins: what is read, or an error that is told."""

from __future__ import annotations

import base64
import csv
import io
import ipaddress
import json
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from fuzz.mutations import Edit, JsonEdit, apply, apply_json, edits, json_edits
from fuzz.targets import fresh_folder, target
from superhosts.core.pairs import Network
from superhosts.core.prefixes import inside, make_table, parse_networks
from superhosts.errors import InputError, UsageError
from superhosts.fleet.nats.credentials import _LENGTH, LONGEST, PREFIX, VERSION, Token, _check
from superhosts.output.alerts.rules import AllowList
from superhosts.output.names import Inventory

# Few distinct bits, so that prefixes contain each other, lie side by side, and end where the address ends.
_bases = st.sampled_from([0, 10 << 24, (10 << 24) + 256, 0xFFFFFF00])
_narrow = st.tuples(_bases, st.integers(0, 255), st.integers(0, 32))
_wide = st.tuples(
    st.sampled_from([0, 0x20010DB8 << 96, (0x20010DB8 << 96) + (1 << 64), (1 << 128) - 256]),
    st.integers(0, 255),
    st.integers(0, 128) | st.integers(120, 128) | st.just(64),
)
_networks = (_narrow.map(lambda drawn: (4, *drawn)) | _wide.map(lambda drawn: (6, *drawn))).map(
    lambda drawn: str(_network(*drawn))
)
_neighbours = st.tuples(st.just(4), st.just(10 << 24), st.integers(0, 7), st.integers(31, 32)).map(
    lambda drawn: str(_network(*drawn))
)
_prefixes = st.lists(_networks, max_size=8) | st.lists(_neighbours, min_size=2, max_size=4)


def _network(family: int, base: int, last: int, length: int) -> Network:
    kind = ipaddress.IPv4Network if family == 4 else ipaddress.IPv6Network
    return kind((base + last, length), strict=False)


def _holds(outer: Network, inner: Network) -> bool:
    return outer.version == inner.version and inner.subnet_of(outer)  # type: ignore[arg-type]


def _attempt(read: Callable[[], Any]) -> tuple[Any, str]:
    try:
        return read(), ""
    except (UsageError, InputError) as error:
        return None, str(error)


@target(st.tuples(_prefixes, st.lists(_networks, max_size=8), edits))
def prefix_lists(case: tuple[list[str], list[str], list[Edit]]) -> None:
    """An address is in the table of a list if it is in one of its prefixes. A damaged list is read, or an error."""
    prefixes, hosts, changes = case
    networks = parse_networks(prefixes, "inner")
    assert [str(network) for network in networks] == prefixes
    for family in (4, 6):
        known = [each for each in map(ipaddress.ip_network, (*prefixes, *hosts)) if each.version == family]
        near = {int(each[at]) + more for each in known for at in (0, -1) for more in (-1, 0, 1)}
        numbers = [number for number in sorted(near) if 0 <= number < 1 << (32 if family == 4 else 128)]
        packed = [(number >> 64, number & (1 << 64) - 1) for number in numbers]
        column = np.array(numbers, np.uint32) if family == 4 else np.array(packed, np.uint64).reshape(-1, 2)
        found = inside(column, make_table(networks, family)).tolist()
        spans = [(int(each[0]), int(each[-1])) for each in networks if each.version == family]
        assert found == [any(first <= number <= last for first, last in spans) for number in numbers]
    with fresh_folder() as folder:
        path = folder / "list"
        path.write_bytes(apply("\n".join((*prefixes, "private # ours", "peers:10.0.0.0/8 rule-1")).encode(), changes))
        read, said = _attempt(lambda: parse_networks([f"@{path}"], "inner"))
        assert str(path) in said if read is None else [make_table(read, family) for family in (4, 6)]
        allowed, said = _attempt(lambda: AllowList.read(path))
        assert str(path) in said or allowed is not None
        for host in hosts if allowed is not None else ():
            allowed.entry_for(ipaddress.ip_network(host), "rule-1")


_label_texts = st.text("ab ,\"'\n#é\x1b", max_size=4)


@target(st.tuples(st.lists(st.tuples(_networks, _label_texts), max_size=8), st.lists(_networks, max_size=6), edits))
def labels(case: tuple[list[tuple[str, str]], list[str], list[Edit]]) -> None:
    """The most specific label counts; a damaged file is read, or an error."""
    lines, hosts, changes = case
    text = io.StringIO()
    csv.writer(text).writerows([("prefix", "label"), *lines])
    known = {ipaddress.ip_network(prefix): label.strip() for prefix, label in lines if label.strip()}
    with fresh_folder() as folder:
        path = folder / "labels.csv"
        path.write_bytes(text.getvalue().encode())
        inventory, said = _attempt(lambda: Inventory(path))
        assert (inventory is not None) == bool(known), said
        for host in map(ipaddress.ip_network, hosts if known else ()):
            assert inventory.label(host) == _label_of(host, known)
        path.write_bytes(apply(text.getvalue().encode(), changes))
        inventory, said = _attempt(lambda: Inventory(path))
        assert str(path) in said or inventory is not None
        for host in hosts if inventory is not None else ():
            inventory.label(ipaddress.ip_network(host))


def _label_of(host: Network, known: dict[Network, str]) -> str | None:
    if host in known:
        return known[host]
    subnet = 24 if host.version == 4 else 64
    within = sorted(each for each in known if each.num_addresses == 1 and _holds(host, each))
    if within and host.prefixlen >= subnet:
        return known[within[0]] + (f" and {len(within) - 1} more" if len(within) > 1 else "")
    around = [each for each in known if _holds(each, host)]
    return known[max(around, key=lambda each: each.prefixlen)] if around else None


_SEED = "SUAIBDPBAUTWCWBKIO6XHQNINK5FWJW4OHLXC3HQ2KFE4PEJUA44CNHTC4"
_tokens = st.tuples(
    st.sampled_from(["ams", "fra-1", "x" * 63]),
    st.sampled_from(["tls://hub.example:4222", "nats://[2001:db8::1]:4222"]),
    st.just(_SEED),
    st.none() | st.binary(min_size=1, max_size=40),
    st.none() | st.text(min_size=1, max_size=40),
)


@target(st.tuples(_tokens, edits, json_edits, st.integers(0, 1 << 16)))
def tokens(case: tuple[tuple[Any, ...], list[Edit], list[JsonEdit], int]) -> None:
    """A token is read as it was made. A damaged one is an error, and so is one that somebody else made up."""
    fields, changes, twists, where = case
    token = Token(*fields)
    word = token.encode()
    assert Token.decode(" " * (where % 4) + word + "\n" * (where % 3)) == token
    at = len(word) - 2 - where % (len(word) - 10)  # The last character may have bits that mean nothing.
    other = "A" if word[at] != "A" else "B"
    assert _attempt(lambda: Token.decode(word[:at] + other + word[at + 1 :]))[0] is None
    assert _SEED not in repr(token)
    _read(apply(word.encode(), changes).decode("ascii", "replace"), expected=token)
    content = {"site": token.site, "url": token.url, "seed": token.seed, "key": "YWJj", "ca": token.ca}
    packed = zlib.compress(json.dumps(apply_json(content, twists)).encode())
    _read(_made_up(packed))
    _read(_made_up(apply(packed, changes)))


def _made_up(packed: bytes) -> str:
    data = _LENGTH.pack(len(packed)) + packed
    return f"{PREFIX}{VERSION}_" + base64.urlsafe_b64encode(data + _check(data)).decode().rstrip("=")


def _read(word: str, expected: Token | None = None) -> None:
    token, said = _attempt(lambda: Token.decode(word, "--join"))
    if token is None:
        assert said.startswith("--join")
        assert _SEED not in said
        assert word[-20:] not in said or len(word) < 40
        return
    assert expected is None or token == expected
    assert all(isinstance(each, str) and each for each in (token.site, token.url, token.seed))
    assert token.key is None or isinstance(token.key, bytes)
    assert len(word) <= LONGEST
