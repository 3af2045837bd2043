"""`live:eth0`: the grammar of these names, the interfaces of this machine, and one ring as a source.

A name of several interfaces, or of several readers, opens several sources.

So every ring has a thread of its own, which only moves packets from the ring to columns: a ring needs ten times the
memory of columns for as many packets. What waits there for the windows is bounded (`readers.py`).

An interface that goes down, or vanishes, does not end the run: a warning says so, and the capture goes on when the
interface is there again, even if it was made anew under the same name.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import socket
import struct
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import parse_qsl

import numpy as np

from superhosts.core.pairs import PacketBlock
from superhosts.core.profile import measured
from superhosts.core.text import printable
from superhosts.core.units import parse_size
from superhosts.errors import InputError, SuperhostsError, UsageError
from superhosts.sources.base import CLOCKS, PACE, Clocks, Pace, Scheme, Source, SourceCounters
from superhosts.sources.frames.columns import (
    PACKETS,
    TALLY_SLOTS,
    TIME,
    WANTS,
    ColumnLender,
    Columns,
    start_walk,
    take,
    wants_of,
)
from superhosts.sources.livecapture import bpf
from superhosts.sources.livecapture.ring import (
    ARPHRD_ETHER,
    ARPHRD_LOOPBACK,
    DAMAGED,
    IFF_UP,
    PLACE_SLOTS,
    RETIRE,
    SIOCGIFFLAGS,
    SIOCGIFHWADDR,
    Cursor,
    Fanout,
    Layout,
    Ring,
    RingOptions,
    open_socket,
    walk_ring,
)

WORD = "live"
ANY = "any"  # all interfaces
EXAMPLE = "live:eth0, live:eth0,eth1 or live:any"
RING, SNAP, TUNNEL_SNAP = "64MiB", 128, 256
LEAST_RING, MOST_RING = 256 << 10, 4 << 30
LEAST_SNAP, MOST_SNAP = 64, 65_535
MOST_READERS = 64
WORDS = ("ring", "snap", "readers", "promisc")


@dataclass(frozen=True)
class Capturing:
    interfaces: tuple[str, ...]
    ring: int  # bytes, of each reader
    snap: int | None = None  # bytes of each packet; None: enough for headers
    readers: int = 1  # of each interface
    promisc: bool = True  # also packets that are not for this machine


def parse_name(text: str) -> Capturing:
    names, _, query = text.removeprefix(f"{WORD}:").partition("?")
    interfaces = tuple(dict.fromkeys(name.strip() for name in names.split(",")))
    if not all(interfaces):
        raise UsageError(f"{printable(text)}: write it like {EXAMPLE}")
    if ANY in interfaces and len(interfaces) > 1:
        raise UsageError(f"{printable(text)}: any is all interfaces; name it alone")
    words = dict(parse_qsl(query, keep_blank_values=True))
    for word in words:
        if word not in WORDS:
            raise UsageError(f"{printable(text)}: unknown word {word!r}; use {', '.join(WORDS)}")
    ring, promisc = words.get("ring", RING), words.get("promisc", "yes")
    try:
        size = parse_size(ring)
    except SuperhostsError as error:
        raise UsageError(f"{printable(text)}: ring={ring}: {error}") from None
    if not LEAST_RING <= size <= MOST_RING:
        raise UsageError(f"{printable(text)}: ring={ring}: from 256KiB to 4GiB")
    if promisc not in ("yes", "no"):
        raise UsageError(f"{printable(text)}: promisc={promisc}: yes or no")
    snap = None if "snap" not in words else _whole(text, "snap", words["snap"], LEAST_SNAP, MOST_SNAP)
    readers = _whole(text, "readers", words.get("readers", "1"), 1, MOST_READERS)
    return Capturing(interfaces, size, snap, readers, promisc == "yes")


def _whole(text: str, word: str, value: str, least: int, most: int) -> int:
    if not (value.isascii() and value.isdigit() and least <= int(value) <= most):
        raise UsageError(f"{printable(text)}: {word}={value}: a whole number from {least} to {most}")
    return int(value)


MOST_NOTES = 4096


class Losses:
    """Notes of losses. One thread notes, others ask. If there are very many notes, neighbours become one."""

    def __init__(self, most: int = MOST_NOTES) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._notes: deque[tuple[int, int]] = deque()  # time, packets

    def add(self, time: int, packets: int) -> None:
        """Note packets that were lost at about this time."""
        with self._lock:
            self._notes.append((time, packets))
            if len(self._notes) > self._most:
                notes = list(self._notes)
                self._notes = deque((b[0], a[1] + b[1]) for a, b in zip(notes[::2], notes[1::2], strict=False))
                self._notes.extend(notes[len(notes) & ~1 :])

    def between(self, start: int, end: int) -> int:
        with self._lock:
            return sum(packets for time, packets in self._notes if start <= time < end)

    def forget(self, before: int) -> None:
        """Forget what was lost before a time: nobody asks for it any more."""
        with self._lock:
            while self._notes and self._notes[0][0] < before:
                self._notes.popleft()


def interface_names() -> list[str]:
    return [name for _, name in socket.if_nameindex()]


def index_of(name: str) -> int | None:
    with contextlib.suppress(OSError):
        return socket.if_nametoindex(name)
    return None


def is_up(name: str) -> bool:
    answer = _ask(name, SIOCGIFFLAGS)
    return answer is not None and bool(answer & IFF_UP)


def has_ethernet_headers(name: str) -> bool:
    return _ask(name, SIOCGIFHWADDR) in (ARPHRD_ETHER, ARPHRD_LOOPBACK)


def _ask(name: str, request: int) -> int | None:
    """Return the first number of an answer about an interface; None if it is gone."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            answer = fcntl.ioctl(any_socket, request, struct.pack("16s24x", name.encode()[:15]))
        except OSError as error:
            if error.errno == errno.ENODEV:
                return None
            raise
    return int(struct.unpack_from("H", answer, 16)[0])


BLOCK_PACKETS = 131_072
CHECKED = 1.0  # seconds between two looks for an interface that is gone
LINGER = 3 * RETIRE / 1000  # seconds without a block after which a stopped reader has everything
LONGEST_LINGER = 1.0
ADVICE = "see docs/guides/live.md: a larger ring (?ring=256MiB), --filter, or more readers (?readers=2)"


class LiveSource(Source):
    live = True
    replays = False
    loses = True

    def __init__(
        self,
        interface: str,
        capturing: Capturing,
        fanout: Fanout | None = None,
        *,
        pace: Pace = PACE,
        clocks: Clocks = CLOCKS,
    ) -> None:
        self.name = f"{WORD}:{interface}"
        self.counters = SourceCounters()
        open_socket(self.name).close()
        if interface != ANY and index_of(interface) is None:
            known = ", ".join(printable(name) for name in interface_names())
            raise InputError(f"no such interface; here are {known}, or any for all of them", file=self.name)
        self._interface, self._capturing, self._fanout = interface, capturing, fanout
        self._pace, self._clocks = pace, clocks
        self._filter: str | None = None
        self._ring: Ring | None = None
        self._bound = 0  # the number of the interface
        self._trouble = ""  # what is wrong with the interface, as it was said
        self._looked = 0.0
        self._losses = Losses()
        self._tally = np.zeros(TALLY_SLOTS, np.int64)
        self._place = np.zeros(PLACE_SLOTS, np.int64)
        self._lender: ColumnLender | None = None
        self._columns: Columns | None = None

    def use_filter(self, expression: str) -> None:
        """Take only packets that match; UsageError with libpcap's message if the expression is wrong."""
        self._filter = expression
        if expression:
            self._program()

    def blocks(self) -> Iterator[PacketBlock]:
        self._prepare()
        try:
            while not self._stopped:
                if block := self._next():
                    yield block
            yield from self._rest()
        finally:
            self._waits = True
            if self._ring is not None:
                self._ring.close()

    def lost(self, start: int, end: int) -> int | None:
        return self._losses.between(start, end)

    def fullness(self) -> float | None:
        return None if self._ring is None else self._ring.fullness()

    def release(self, before: int) -> None:
        self._losses.forget(before)

    # Reading

    def _prepare(self) -> None:
        """Open the ring, once everything is compiled: from then on packets come."""
        self._tally[WANTS] = wants_of(self.wants)
        rows = BLOCK_PACKETS * (2 if self.wants.tunnels == "both" else 1)
        self._lender = ColumnLender(rows, rows, self.wants.details)
        self._columns = self._lender.borrow()
        empty = np.zeros(32, np.uint32)
        self._walk(empty.view(np.uint8), empty, Layout(128, 1, 0))
        self._open()

    def _open(self) -> None:
        index = 0 if self._interface == ANY else index_of(self._interface)
        if index is None:
            raise InputError("the interface has vanished", file=self.name)
        options = RingOptions(
            index,
            self._capturing.ring,
            self._program(),
            self._is_cooked(),
            self._capturing.promisc,
            self._fanout,
        )
        self._ring = Ring(options, self.name)
        self._bound = index
        self._place[:] = 0
        if index and not is_up(self._interface):
            self._check_interface()

    def _program(self) -> bpf.Program:
        """Return the program that cuts packets behind their headers, and drops those that the filter drops."""
        size = self._capturing.snap or (SNAP if self.wants.tunnels == "outer" else TUNNEL_SNAP)
        if not self._filter:
            return bpf.take(size)
        plain = self._interface != ANY and has_ethernet_headers(self._interface)
        return bpf.compile_filter(self._filter, bpf.ETHERNET if plain else bpf.RAW_IP, size)

    def _is_cooked(self) -> bool:
        """Return True if the kernel is to leave out link-layer headers: one filter has to fit all interfaces."""
        return bool(self._filter) and self._interface == ANY

    def _next(self) -> PacketBlock:
        """Return what is in the ring; wait a moment if that is nothing."""
        block = self._read()
        if block:
            self._waits = False
            return block
        self._waits = True
        ring = self._ring
        assert ring is not None
        now = self._clocks.steady()
        if not ring.wait(self._pace.wake) or (self._trouble and now - self._looked > CHECKED):
            self._looked = now
            self._check_interface()
        return ()

    def _rest(self) -> Iterator[PacketBlock]:
        stopped, limit = self._clocks.wall(), self._clocks.steady() + LONGEST_LINGER
        quiet = self._clocks.steady() + LINGER
        is_last = False
        while not is_last:
            is_last = self._clocks.steady() >= min(quiet, limit)  # asked before reading: this process may have slept
            if block := self._read():
                yield block
                quiet = self._clocks.steady() + LINGER
                is_last |= int(self._tally[TIME]) > stopped
            elif not is_last:
                self._clocks.sleep(RETIRE / 5000)

    def _read(self) -> PacketBlock:
        """Return the packets that are in the ring, at most as many as the columns hold, and count them."""
        ring, lender, columns = self._ring, self._lender, self._columns
        assert ring is not None
        assert lender is not None
        assert columns is not None
        with measured("walk") as work:
            self._walk(ring.bytes, ring.words, ring.layout)
            work.amount += int(self._tally[PACKETS])
        self._note_drops(ring)
        if not self._tally[PACKETS]:
            return ()
        kept = lender.kept(columns, self._tally)
        if kept.time4.base is not None or kept.time6.base is not None:  # Some of what was lent is on its way.
            self._columns = lender.borrow()
        return take(kept, self._tally, self.counters)

    def _walk(self, ring: np.ndarray, words: np.ndarray, layout: Layout) -> None:
        assert self._columns is not None
        start_walk(self._tally, BLOCK_PACKETS)
        walk_ring(ring, Cursor(words, self._place, layout), self._tally, self._columns)

    def _note_drops(self, ring: Ring) -> None:
        drops, self._place[DAMAGED] = ring.dropped() + int(self._place[DAMAGED]), 0
        if not drops:
            return
        when = int(self._tally[TIME]) if self._tally[PACKETS] else self._clocks.wall()
        if not self.counters.drops:
            self.counters.warn(f"{self.name}: packets are dropped, because the ring is full; {ADVICE}")
        self.counters.drops += drops
        self._losses.add(when, drops)

    def _check_interface(self) -> None:
        if self._interface == ANY:
            return
        index = index_of(self._interface)
        trouble = "has vanished" if index is None else "is down" if not is_up(self._interface) else ""
        if index is not None and index != self._bound:
            assert self._ring is not None
            self._ring.close()
            self._open()
        if trouble and trouble != self._trouble:
            self.counters.warn(f"{self.name}: the interface {trouble}; the capture goes on when it is up again")
        elif self._trouble and not trouble:
            self.counters.warn(f"{self.name}: the interface is up again")
        self._trouble = trouble


def open_live(text: str) -> list[Source]:
    capturing = parse_name(text)
    sources: list[Source] = []
    for interface in capturing.interfaces:
        fanout = Fanout() if capturing.readers > 1 else None
        sources += [LiveSource(interface, capturing, fanout) for _ in range(capturing.readers)]
    return sources


LIVE = Scheme(WORD, open_live)
