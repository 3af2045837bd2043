"""Flow exports from the network: netflow://ADDRESS:PORT and sflow://ADDRESS:PORT.

The kernel's own buffer for a socket is small, a few hundred datagrams on many systems. So the thread of a socket
receives in compiled code without the GIL (recvmmsg), into a queue of bounded memory, and what the kernel dropped all
the same is counted (SO_MEMINFO). The thread that reads the source decodes everything that waits at once, so that
blocks are large when there is much to do. A stop reads what has come by then, and nothing that comes later.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import math
import queue
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np
from numba import types
from numpy.typing import NDArray

from superhosts.core.pairs import PacketBlock
from superhosts.errors import InputError, UsageError
from superhosts.jit.cache import compiled
from superhosts.sources.base import Source, SourceCounters, Wants, whole_number, words_of
from superhosts.sources.exports.collector import Batch, Collector, Settings, made_up_batch
from superhosts.sources.exports.layout import DATAGRAM_SLOTS, END, RECEIVED, START, Bytes, Rows
from superhosts.sources.exports.registry import TemplateFile, state_folder

MOST_WAITING = 128  # batches of 1 MiB that wait to be decoded
STATUS_PAUSE = 0.5  # seconds between two looks at all exporters
DRAIN = 5.0  # seconds after a stop in which datagrams wait to be decoded; what is left then counts as dropped
LONGEST_WAIT = 0.2  # seconds for which records wait for others in their block
LIVE_TIME = {"record": "received"}  # a flow is reported after it has ended: windows do not wait for it
PORTS = {"netflow": 2055, "sflow": 6343}
WORDS = ("sockets", "templates")
MOST_SOCKETS = 64
NONE = "none"
STAGED = 64  # datagrams of one system call
LONGEST = 65_536  # bytes of a slot, which any datagram fits
BATCH_BYTES = 1 << 20
BATCH_DATAGRAMS = 4096
RECEIVE_BUFFER = 64 << 20  # bytes that the kernel is asked for; it may give less
IDLE = 0.05  # seconds without a datagram after which a call returns
GATHERING = 5_000_000  # nanoseconds for which a call gathers datagrams after the first
_RCVBUFFORCE, _ATTACH_FILTER, _MEMINFO = 33, 26, 55  # options of sockets, which Python has no names for
_MEMINFO_DROPS = 8  # its place among the words of SO_MEMINFO
_HEADER, _NAME = 8, 32  # of a message: words of struct mmsghdr, bytes of its address
_WAIT_FOR_ONE = 0x10000
_NAME_LENGTH, _LENGTH = 1, 7  # words of struct mmsghdr
_MASK = (1 << 32) - 1
COUNT, NEXT = 0, 1  # slots of a state: datagrams of the last call, and which of them is next

_recvmmsg = types.ExternalFunction(
    "recvmmsg", types.int32(types.int32, types.voidptr, types.uint32, types.int32, types.uintp)
)
_clock_gettime = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.voidptr))


@dataclass(frozen=True)
class Listening:
    scheme: str
    host: str
    port: int
    sockets: int = 1
    templates: str = ""  # a file; NONE: no file; empty: the usual one

    @property
    def state_file(self) -> Path | None:
        if self.templates == NONE or self.scheme == "sflow":  # sFlow has no templates
            return None
        place = self.host.replace(":", "_").replace("%", "_") or "all"
        return Path(self.templates) if self.templates else state_folder() / f"templates-{place}-{self.port}.json"

    def resolve(self) -> tuple[int, Any]:
        if not self.host:
            return socket.AF_INET, ("0.0.0.0", self.port)
        found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE)
        return found[0][0], found[0][4]


def parse_listening(text: str) -> Listening:
    scheme, _, rest = text.partition(":")
    example = f"{scheme}://0.0.0.0:{PORTS[scheme]}"
    in_brackets = f"an IPv6 address stands in brackets, like {scheme}://[::1]:{PORTS[scheme]}"
    try:
        url = urlsplit(text)
    except ValueError:  # of brackets without their partner, or without an IPv6 address between them
        raise UsageError(f"{text}: this is not an address; write it like {example}; {in_brackets}") from None
    if not rest.startswith("//") or url.path.strip("/") or url.fragment or url.username is not None:
        raise UsageError(f"{text}: write it like {example}")
    if url.netloc.count(":") > 1 and "[" not in url.netloc:
        raise UsageError(f"{text}: {in_brackets}")
    try:
        port = PORTS[scheme] if url.port is None else url.port
    except ValueError:  # of no number, or one that is too large
        port = 0
    if port == 0:
        shown = url.netloc.rpartition(":")[2]
        raise UsageError(f"{text}: port {shown}: must be a number from 1 to 65535; write it like {example}")
    words = words_of(text, url.query, WORDS)
    sockets = whole_number(text, "sockets", words.get("sockets", "1"), 1, MOST_SOCKETS)
    if words.get("templates") == "":
        raise UsageError(f"{text}: templates= needs a value")
    listening = Listening(scheme, url.hostname or "", port, sockets, words.get("templates", ""))
    try:
        listening.resolve()
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{text}: {url.hostname} is not an address of this machine: {reason}") from None
    return listening


class UdpSource(Source):
    live = receives = True
    replays = False
    groups = ("exporter",)

    def __init__(self, name: str, listening: Listening) -> None:
        super().__init__(name)
        self._listening = listening
        self._settings = Settings(is_sflow=listening.scheme == "sflow", time="received", is_live=True)
        for each in open_sockets(listening, name):  # Says at once what is wrong with the port.
            each.close()
        self._sockets: list[socket.socket] = []
        self._batches: queue.Queue[Batch] = queue.Queue(MOST_WAITING)
        self._quiet = [False] * listening.sockets  # nothing has come for a moment
        self._dropped = [0] * listening.sockets
        self._templates: TemplateFile | None = None
        self._blocks: Iterator[PacketBlock] | None = None
        self._threads: list[threading.Thread] = []
        self._first: PacketBlock = ()
        self._looked = 0.0
        self.counters.exports = [{"input": name, "sampling": None}]

    def choose_time(self, which: str) -> None:
        self._settings = self._settings._replace(time=LIVE_TIME.get(which, which))

    def want(self, wants: Wants) -> None:
        super().want(wants)
        self._settings = self._settings._replace(wants=wants)

    def rehearse(self) -> None:
        one, other = socket.socketpair(type=socket.SOCK_DGRAM)
        with one, other:
            one.setblocking(False)
            stage = new_stage()
            receive(one.fileno(), stage, *made_up_batch())
        collector = Collector(SourceCounters(), self._settings)
        list(collector.feed(made_up_batch()))
        collector.take()

    def open(self) -> None:
        self._sockets = self._sockets or open_sockets(self._listening, self.name)

    def first_time(self) -> int | None:
        """Return the time of the first record, for which this waits; None if it was stopped before."""
        self._blocks = self._receive_all()
        self._first = next(self._blocks, ())
        return min((batch.span[0] for batch in self._first if len(batch)), default=None)

    def _read(self) -> Iterator[PacketBlock]:
        blocks, self._blocks = self._blocks or self._receive_all(), None
        first, self._first = self._first, ()
        yield first
        yield from blocks

    def leave(self) -> None:
        """Let the threads end; the one that reads closes the sockets and keeps the templates."""
        self._stopped = True

    def _receive_all(self) -> Iterator[PacketBlock]:
        self.open()
        collector = Collector(self.counters, self._settings)
        path = self._listening.state_file
        if path is not None:
            self._templates = TemplateFile(path, self.counters.warn)
            self._templates.load(collector.registry)
        threads = self._threads = [
            threading.Thread(target=self._receive, args=(number,), name=f"receive {self.name}", daemon=True)
            for number in range(len(self._sockets))
        ]
        for thread in threads:
            thread.start()
        try:
            yield from self._decode(collector)
        finally:
            self._stopped = True
            for thread in threads:
                thread.join()
            for each in self._sockets:
                each.close()
            self._look(collector, now=True)
            self._waits = True

    def _decode(self, collector: Collector) -> Iterator[PacketBlock]:
        """Decode what was received; yield it when nothing more waits, or a block is full."""
        batches, has_rows, taken = self._batches, False, time.monotonic()
        while True:
            if has_rows and time.monotonic() - taken > LONGEST_WAIT:
                self._look(collector)
                has_rows, taken = False, time.monotonic()
                yield collector.take()
            try:
                batch = batches.get(block=False) if has_rows else batches.get(timeout=IDLE)
            except queue.Empty:
                self._look(collector)
                if has_rows:
                    has_rows, taken = False, time.monotonic()
                    yield collector.take()
                elif self._stopped and not any(thread.is_alive() for thread in self._threads):
                    return
                else:
                    self._waits = all(self._quiet) and batches.empty()
                continue
            self._waits = False
            has_rows = True
            self._bytes += int(batch.datagrams[-1, 1])
            yield from collector.feed(batch)

    def _look(self, collector: Collector, *, now: bool = False) -> None:
        collector.dropped = sum(self._dropped)
        if self._templates is not None:
            self._templates.save(collector.registry, now=now)
        if now or time.monotonic() - self._looked >= STATUS_PAUSE:
            self._looked = time.monotonic()
            self.counters.exports = [collector.status(self.name)]

    def _receive(self, number: int) -> None:
        stage, own = new_stage(), self._sockets[number]
        until = math.inf
        while True:
            if until == math.inf:
                self._dropped[number] = dropped_of(own)
                if self._stopped:
                    refuse(own)
                    until = time.monotonic() + DRAIN
            block = np.empty(BATCH_BYTES, np.uint8)  # memory that is never written costs nothing
            datagrams = np.zeros((BATCH_DATAGRAMS, DATAGRAM_SLOTS), np.int64)
            peers = np.zeros((BATCH_DATAGRAMS, 2), np.uint64)
            count = receive(own.fileno(), stage, block, datagrams, peers)
            self._quiet[number] = count == 0
            if count and not self._put(Batch(block, datagrams[:count], peers[:count]), until):
                self._dropped[number] += count
            if not count and until < math.inf:
                return

    def _put(self, batch: Batch, until: float) -> bool:
        """Hand a batch over; wait while too many wait already, but not for ever once the run is stopped."""
        while True:
            try:
                self._batches.put(batch, timeout=IDLE)
                return True
            except queue.Full:
                until = min(until, time.monotonic() + DRAIN) if self._stopped else until
                if time.monotonic() >= until:
                    return False


class Stage(NamedTuple):
    """Where the kernel puts the datagrams of one call, and the structures that tell it so."""

    slots: Bytes
    headers: NDArray[np.uint64]
    names: Bytes
    vectors: NDArray[np.uint64]  # struct iovec; held only because the headers point to it
    clock: Rows
    state: Rows


def new_stage() -> Stage:
    slots, names = np.zeros(STAGED * LONGEST, np.uint8), np.zeros(STAGED * _NAME, np.uint8)
    vectors, headers = np.zeros((STAGED, 2), np.uint64), np.zeros((STAGED, _HEADER), np.uint64)
    for number in range(STAGED):
        vectors[number] = slots.ctypes.data + number * LONGEST, LONGEST
        name = names.ctypes.data + number * _NAME
        headers[number] = name, _NAME, vectors.ctypes.data + number * 16, 1, 0, 0, 0, 0
    return Stage(slots, headers, names, vectors, np.zeros(2, np.int64), np.zeros(2, np.int64))


@compiled
def _now(clock: Rows, which: int) -> int:
    _clock_gettime(np.int32(which), clock.ctypes)
    return clock[0] * 1_000_000_000 + clock[1]  # type: ignore[no-any-return]


@compiled
def _address(stage: Stage, number: int) -> tuple[np.uint64, np.uint64]:
    """Return the address of a sender, an IPv4 address mapped."""
    at, names = number * _NAME, stage.names
    high, low = np.uint64(0), np.uint64(0)
    if names[at] == 2:  # AF_INET; the family is in the byte order of this machine
        low = np.uint64(0xFFFF)
        for place in range(at + 4, at + 8):
            low = low << np.uint64(8) | np.uint64(names[place])
    else:
        for place in range(at + 8, at + 16):
            high = high << np.uint64(8) | np.uint64(names[place])
        for place in range(at + 16, at + 24):
            low = low << np.uint64(8) | np.uint64(names[place])
    return high, low


@compiled
def receive(file: int, stage: Stage, block: Bytes, datagrams: Rows, peers: NDArray[np.uint64]) -> int:
    """Receive datagrams until the block or its rows are full, or a moment after the first; return how many.

    Returns 0 if nothing has come for a moment. What did not fit is there for the next call.
    """
    state, headers = stage.state, stage.headers
    filled = rows = 0
    started = received = _now(stage.clock, 0)
    while True:
        while state[NEXT] < state[COUNT]:
            number = state[NEXT]
            length = np.int64(headers[number, _LENGTH] & np.uint64(_MASK))
            if rows == len(datagrams) or filled + length > len(block):
                return rows
            begins = number * LONGEST
            block[filled : filled + length] = stage.slots[begins : begins + length]
            datagrams[rows, START], datagrams[rows, END] = filled, filled + length
            datagrams[rows, RECEIVED] = received
            peers[rows, 0], peers[rows, 1] = _address(stage, number)
            filled += length
            rows += 1
            state[NEXT] += 1
        if rows and received - started > GATHERING:
            return rows
        for number in range(STAGED):
            headers[number, _NAME_LENGTH] = np.uint64(_NAME)
        got = _recvmmsg(np.int32(file), headers.ctypes, np.uint32(STAGED), np.int32(_WAIT_FOR_ONE), np.uint64(0))
        if got <= 0:
            return rows
        state[COUNT], state[NEXT] = got, 0
        received = _now(stage.clock, 0)
        if rows == 0:
            started = received


def open_sockets(listening: Listening, name: str) -> list[socket.socket]:
    if sys.platform != "linux":
        raise InputError("flow exports are received on Linux only; elsewhere read captures of them", file=name)
    opened: list[socket.socket] = []
    try:
        for _ in range(listening.sockets):
            opened.append(_open_one(listening))
    except OSError as error:
        for each in opened:
            each.close()
        reasons = {
            errno.EADDRINUSE: f"port {listening.port} is in use: another program receives there; "
            "stop it, or choose another port",
            errno.EACCES: f"port {listening.port} is for privileged programs only; choose one from 1024 on",
            errno.EADDRNOTAVAIL: f"{listening.host} is not an address of this machine; use 0.0.0.0 or [::] for all",
        }
        reason = reasons.get(error.errno or 0, f"cannot receive: {error.strerror or error}")
        raise InputError(reason, file=name) from None
    return opened


def _open_one(listening: Listening) -> socket.socket:
    family, place = listening.resolve()
    own = socket.socket(family, socket.SOCK_DGRAM)
    try:
        if family == socket.AF_INET6:
            own.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if place[0] == "::" else 1)
        if listening.sockets > 1:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        with contextlib.suppress(OSError):  # It takes a privilege, and goes beyond the limit of the system.
            own.setsockopt(socket.SOL_SOCKET, _RCVBUFFORCE, RECEIVE_BUFFER)
        microseconds = int(IDLE * 1_000_000)
        timeout = bytes(ctypes.c_long(0)) + bytes(ctypes.c_long(microseconds))
        own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeout)
        own.bind(place)
    except OSError:
        own.close()
        raise
    return own


def dropped_of(own: socket.socket) -> int:
    """Return how many datagrams the kernel has dropped, having no room for them."""
    words = own.getsockopt(socket.SOL_SOCKET, _MEMINFO, 4 * (_MEMINFO_DROPS + 1))
    return int(np.frombuffer(words, np.uint32)[_MEMINFO_DROPS])


def refuse(own: socket.socket) -> None:
    """Take no more datagrams; those that wait stay (a filter of one instruction: return 0 bytes)."""
    code = ctypes.create_string_buffer(struct.pack("=HBBI", 6, 0, 0, 0), 8)
    own.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, struct.pack("@HP", 1, ctypes.addressof(code)))


def open_port(text: str) -> UdpSource:
    return UdpSource(text, parse_listening(text))
