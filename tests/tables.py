"""Rows of tables with their answer: sets of peers by host and window, in plain Python."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

import superhosts as sh

SECOND = 10**9
WINDOW = 300 * SECOND
NOON = 1_700_000_100 * SECOND  # the start of a window


class Line(NamedTuple):
    src: str
    dst: str
    time: int = NOON


Answer = dict[int, dict[str, int]]


def make_rows(count: int, seed: int = 1, *, wide: bool = False, span: int = 2 * WINDOW) -> list[Line]:
    """Return rows of a few hosts and many peers, in order of time, in whole seconds."""
    generator = random.Random(seed)
    rows = []
    for i in range(count):
        ipv6 = wide and generator.random() < 0.5
        host, peer = generator.randrange(1, 9), generator.randrange(1, 500)
        src, dst = (f"2001:db8::{host:x}", f"2a00:1::{peer:x}") if ipv6 else (f"10.0.0.{host}", str(_ipv4(peer)))
        if generator.random() < 0.3:
            src, dst = dst, src
        rows.append(Line(src, dst, NOON + span * i // count // SECOND * SECOND))
    return rows


def _ipv4(number: int) -> Any:
    return ip_address("172.16.0.0") + number


def answer(rows: Iterable[Line], window: int | None = WINDOW) -> Answer:
    """Return the number of peers of every address by window (0: one window over all)."""
    peers: dict[int, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for row in rows:
        start = 0 if window is None else row.time // window * window
        for host, peer in ((row.src, row.dst), (row.dst, row.src)):
            peers[start][str(ip_address(host))].add(str(ip_address(peer)))
    return {start: {host: len(all_peers) for host, all_peers in hosts.items()} for start, hosts in peers.items()}


def arrow_table(rows: Sequence[Line], **columns: Any) -> pa.Table:
    """Return rows as a table of src and dst, with further columns, or others in place of these."""
    return pa.table({"src": [row.src for row in rows], "dst": [row.dst for row in rows], **columns})


def times(rows: Sequence[Line]) -> list[Any]:
    return [row.time for row in rows]


def numbers(texts: Sequence[str]) -> list[int]:
    return [int(ip_address(text)) for text in texts]


def found(inputs: Any, **settings: Any) -> Answer:
    """Return what a scan with the exact detector finds, in the form of `answer`."""
    run = scan(inputs, **settings)
    whole = settings.get("window") == "all"
    return {0 if whole else window.window.start: {str(row.host): int(row.peers) for row in window} for window in run}


def scan(inputs: Any, **settings: Any) -> Any:
    names = inputs if isinstance(inputs, str | Path) else [str(each) for each in inputs]
    return sh.scan(names, **{"detector": "exact", "threshold": 1, "ipv6_prefix": 128, "window": "5m", **settings})
