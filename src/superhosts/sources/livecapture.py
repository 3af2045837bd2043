"""Packets of a network interface, straight from the kernel: `live:eth0`.

The kernel fills a block and sets its status to TO_USER; the walk reads it and sets it to TO_KERNEL. Fences keep both
sides from seeing a block half written. The walk stops at a block that the kernel still has, or when the columns are
full, even inside a block, and goes on there.

Frames of Ethernet and of the loopback interface begin with an Ethernet header. Those of all other interfaces (tun, PPP,
tunnels) begin with whatever their driver uses, so there the kernel's own offset of the network header counts, and the
protocol that it found. The kernel has taken off the outermost VLAN tag, which addresses do not depend on.

Numbers in the ring are the kernel's, and yet they are checked like those of a file: nothing is read outside the block.
All numbers are little-endian, as numba supports no other machines.

Where nobody wants each packet, the kernel drops those whose pair came before in the same window (`kernelfilter.py`).

A name of several interfaces, or of several readers, opens several sources, each with a ring and a thread of its own.

An interface that goes down, or vanishes, does not end the run: a warning says so, and the capture goes on when the
interface is there again, even if it was made anew under the same name.
"""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import errno
import fcntl
import mmap
import os
import re
import select
import socket
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from operator import add
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core.pairs import PacketBlock
from superhosts.core.profile import measured
from superhosts.core.text import printable
from superhosts.core.units import SECOND, format_size, parse_size
from superhosts.errors import InputError, SuperhostsError, UsageError
from superhosts.jit.cache import compiled, inlined
from superhosts.jit.intrinsics import fence
from superhosts.sources.base import PACE, Notes, Source, whole_number, words_of
from superhosts.sources.frames import columns as frames
from superhosts.sources.frames.columns import Tally
from superhosts.sources.frames.headers import QUICK_BYTES, is_usual
from superhosts.sources.frames.links import (
    ETHERNET,
    NOTHING,
    RAW,
    UNSUPPORTED,
    Bytes,
    byte,
    half,
    little,
    little_half,
    vlan_of,
)
from superhosts.sources.kernelfilter import LEAST_SPAN, Repeats
from superhosts.sources.walk import ENDLESS, MORE, PACKET, SKIP, make_walk

# Numbers of linux/if_packet.h: options of packet sockets, and the layout of a TPACKET_V3 ring.
ETH_P_ALL = 3
SOL_PACKET = 263
PACKET_ADD_MEMBERSHIP, PACKET_RX_RING, PACKET_STATISTICS, PACKET_VERSION, PACKET_FANOUT = 1, 5, 6, 10, 18
PACKET_MR_PROMISC = 1
TPACKET_V3 = 2
FANOUT_HASH, FANOUT_UNIQUE_ID = 0, 0x2000
SO_ATTACH_FILTER = 26
SIOCGIFFLAGS, SIOCGIFHWADDR = 0x8913, 0x8927
IFF_UP = 1

# A block: its header, then packets. These are offsets from its first byte.
BLOCK_STATUS, BLOCK_COUNT, BLOCK_FIRST = 8, 12, 16
TO_KERNEL, TO_USER = 0, 1  # the lowest bit of the status: who may use the block

# A packet: struct tpacket3_hdr, struct sockaddr_ll, room for alignment, the frame. Offsets from its first byte.
NEXT, SECONDS, NANOSECONDS, CAPTURED, MAC, NET = 0, 4, 8, 12, 24, 26
STATUS, TAG = 20, 32  # whether there was a VLAN tag, which the kernel has taken off; its content
PROTOCOL, INDEX, HARDWARE, DIRECTION = 48 + 2, 48 + 4, 48 + 8, 48 + 10  # fields of the address
HAS_TAG = 1 << 4  # in the status
PACKET_HEADER = 48 + 20

OUTGOING = 4  # a direction: sent by this machine
ARPHRD_ETHER, ARPHRD_LOOPBACK = 1, 772
ARPHRD_IEEE80211, ARPHRD_IEEE80211_RADIOTAP = 801, 803

Words = NDArray[np.uint32]
Place = NDArray[np.int64]

# The slots of a place: where the walk goes on, and what it met.
BLOCK, LEFT = 0, 1  # the block, and how many packets of it are left; 0: it is not begun
BLOCKS, TWICE, DAMAGED = 2, 3, 4  # blocks read; packets of `lo` that come again; packets whose numbers make no sense
PLACE_SLOTS = 5
NOT_BEGUN = -1


class Layout(NamedTuple):
    block_bytes: int
    blocks: int
    cooked: int  # 1: no frame has its link-layer header


class Cursor(NamedTuple):
    words: Words  # the bytes of the ring: a status is read and written as a whole
    place: Place
    layout: Layout


class Progress(NamedTuple):
    """The state of a walk. `left` packets are unread in a block: NOT_BEGUN, or 0 if it is to be given back."""

    link: int
    run: int
    shortest: int
    block: int
    left: int
    cooked: int
    at: int  # where the packet is that `_record` has read


@inlined
def _progress(link: int, block: int, left: int, cooked: int, at: int) -> Progress:
    # The last packet of a block is left to `_record`, which looks what follows.
    return Progress(link, 0 if cooked else max(left - 1, 0), -ENDLESS, block, left, cooked, at)


@inlined
def _begin(cursor: Cursor) -> Progress:
    left = cursor.place[LEFT]
    return _progress(ETHERNET, cursor.place[BLOCK], left if left else NOT_BEGUN, cursor.layout.cooked, 0)


@inlined
def _advance(state: Progress, records: int) -> Progress:
    return _progress(state.link, state.block, state.left - records, state.cooked, state.at)


@inlined
def _usual(ring: Bytes, at: int, cursor: Cursor, state: Progress) -> tuple[bool, int, int, int, int]:
    last = (state.block + 1) * cursor.layout.block_bytes
    if at > last - PACKET_HEADER:
        return False, 0, 0, 0, 0
    following, captured = little(ring, at + NEXT), little(ring, at + CAPTURED)
    start = at + little_half(ring, at + MAC)
    end = start + captured
    if following < PACKET_HEADER or captured < QUICK_BYTES or end > last:
        return False, 0, 0, 0, 0
    if little_half(ring, at + HARDWARE) != ARPHRD_ETHER or not is_usual(ring, start):
        return False, 0, 0, 0, 0
    time = little(ring, at + SECONDS) * SECOND + little(ring, at + NANOSECONDS)
    return True, start, end, at + following, time


@compiled
def _give_back(cursor: Cursor, block: int) -> int:
    """Give a block back to the kernel and return the next one."""
    fence()
    cursor.words[np.uint64(block * cursor.layout.block_bytes + BLOCK_STATUS) >> np.uint64(2)] = TO_KERNEL
    cursor.place[BLOCKS] += 1
    return block + 1 if block + 1 < cursor.layout.blocks else 0


@inlined
def _record(
    ring: Bytes, at: int, cursor: Cursor, state: Progress, time: int, tally: Tally
) -> tuple[int, int, int, int, int, Progress]:
    block, left, place = state.block, state.left, cursor.place
    if not left:
        block, left = _give_back(cursor, block), NOT_BEGUN
    first = block * cursor.layout.block_bytes
    last = first + cursor.layout.block_bytes
    if left == NOT_BEGUN:
        if not cursor.words[np.uint64(first + BLOCK_STATUS) >> np.uint64(2)] & np.uint32(TO_USER):
            return MORE, 0, 0, 0, time, _progress(ETHERNET, block, NOT_BEGUN, state.cooked, 0)
        fence()
        left = little(ring, first + BLOCK_COUNT)
        at = first + little(ring, first + BLOCK_FIRST)
    following, captured, frame = 0, 0, -1
    if left and at <= last - PACKET_HEADER:
        following, captured = little(ring, at + NEXT), little(ring, at + CAPTURED)
        frame = at + little_half(ring, at + MAC)
    end = frame + captured
    if frame < 0 or end > last:
        place[DAMAGED] += left
        return SKIP, 0, 0, 0, time, _progress(ETHERNET, block, 0, state.cooked, 0)
    time = little(ring, at + SECONDS) * SECOND + little(ring, at + NANOSECONDS)
    hardware = little_half(ring, at + HARDWARE)
    link, start, what = ETHERNET, frame, PACKET
    if hardware == ARPHRD_LOOPBACK and byte(ring, at + DIRECTION) == OUTGOING:  # It comes again, incoming.
        place[TWICE] += 1
        what = SKIP
    elif state.cooked or (hardware != ARPHRD_ETHER and hardware != ARPHRD_LOOPBACK):
        protocol, start = half(ring, at + PROTOCOL), at + little_half(ring, at + NET)
        link = RAW
        if ARPHRD_IEEE80211 <= hardware <= ARPHRD_IEEE80211_RADIOTAP:
            link = UNSUPPORTED
        elif protocol != 0x0800 and protocol != 0x86DD:
            link = NOTHING
        if start < frame or start > end:
            start = end
    left -= 1
    if left and following < PACKET_HEADER:
        place[DAMAGED] += left
        left = 0
    return what, start, end, at + following, time, _progress(link, block, left, state.cooked, at)


@inlined
def _finish(cursor: Cursor, state: Progress) -> None:
    block, left = state.block, state.left
    if not left:
        block = _give_back(cursor, block)
    cursor.place[BLOCK], cursor.place[LEFT] = block, max(left, 0)


@inlined
def _group(ring: Bytes, at: int, start: int, end: int, state: Progress, wants: int) -> int:
    place = state.at if at < 0 else at
    if wants & frames.INTERFACE:
        return little(ring, place + INDEX) & 0xFFFF
    if little(ring, place + STATUS) & HAS_TAG:
        return little(ring, place + TAG) & 0x0FFF
    return vlan_of(ring, start, end, state.link)


walk_ring = make_walk(_begin, _usual, _record, _finish, _advance, _group, rich=True, name="walk_ring")

BLOCK_BYTES = 1 << 20
LEAST_BLOCKS = 4
FRAME_BYTES = 2048  # the kernel asks for it, and does not use it
RETIRE = 50  # milliseconds after which the kernel hands over a block that is not full
RIGHT = (
    "needs the right to capture (CAP_NET_RAW): run as root, or give it to a copy of the Python interpreter "
    "(setcap cap_net_raw+ep), or run a systemd unit with AmbientCapabilities=CAP_NET_RAW (see docs/guides/live.md)"
)
LINUX_ONLY = "capturing works on Linux only; elsewhere: tcpdump -U -w - | superhosts scan -"


class Fanout:
    """The group of sockets that share the packets of one interface by the hash of their flows."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ids: dict[int, int] = {}  # by the interface's number, which changes when it is made anew

    def join(self, own: socket.socket, index: int) -> None:
        with self._lock:
            found = self._ids.get(index)
            kind = FANOUT_HASH | FANOUT_UNIQUE_ID if found is None else FANOUT_HASH
            own.setsockopt(SOL_PACKET, PACKET_FANOUT, struct.pack("=HH", found or 0, kind))
            if found is None:
                self._ids[index] = own.getsockopt(SOL_PACKET, PACKET_FANOUT) & 0xFFFF


def open_socket(name: str, *, cooked: bool = False) -> socket.socket:
    if not hasattr(socket, "AF_PACKET"):
        raise InputError(LINUX_ONLY, file=name)
    try:
        return socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM if cooked else socket.SOCK_RAW, 0)
    except PermissionError:
        raise InputError(RIGHT, file=name) from None
    except OSError as error:
        if error.errno == errno.EAFNOSUPPORT:
            raise InputError("this kernel has no packet sockets (CONFIG_PACKET)", file=name) from None
        raise InputError(f"no packet socket: {error.strerror}", file=name) from None


class Ring:
    def __init__(
        self,
        name: str,
        index: int,
        capturing: Capturing,
        program: bytes | Repeats,
        *,
        cooked: bool,
        fanout: Fanout | None,
    ) -> None:
        """Open it for an interface by its number; 0: for all of them."""
        block = min(BLOCK_BYTES, max(capturing.ring // LEAST_BLOCKS // mmap.PAGESIZE, 1) * mmap.PAGESIZE)
        self.layout = Layout(block, max(capturing.ring // block, LEAST_BLOCKS), int(cooked))
        self.socket = open_socket(name, cooked=cooked)
        try:
            self._open(index, program, fanout, promisc=capturing.promisc)
        except OSError as error:
            self.socket.close()
            size = format_size(capturing.ring)
            if error.errno == errno.ENOMEM:
                raise InputError(f"no memory for a ring of {size}; take less: ?ring=16MiB", file=name) from None
            raise InputError(f"cannot be captured: {error.strerror}", file=name) from None
        self.words = np.frombuffer(self._map, np.uint32)
        self.bytes = self.words.view(np.uint8)
        self._poll = select.poll()
        self._poll.register(self.socket, select.POLLIN | select.POLLERR)

    def _open(self, index: int, program: bytes | Repeats, fanout: Fanout | None, *, promisc: bool) -> None:
        """Set everything up before the first packet is let through, and map the ring last."""
        own, layout = self.socket, self.layout
        own.setsockopt(SOL_PACKET, PACKET_VERSION, TPACKET_V3)
        frames = layout.block_bytes // FRAME_BYTES * layout.blocks
        request = struct.pack("=7I", layout.block_bytes, layout.blocks, FRAME_BYTES, frames, RETIRE, 0, 0)
        own.setsockopt(SOL_PACKET, PACKET_RX_RING, request)
        attach(own, accept(0))
        bind(own, index)
        if promisc and index:
            member = struct.pack("=iHH8x", index, PACKET_MR_PROMISC, 0)
            own.setsockopt(SOL_PACKET, PACKET_ADD_MEMBERSHIP, member)
        if fanout is not None:
            fanout.join(own, index)
        if isinstance(program, bytes):
            attach(own, program)
        else:
            program.attach(own)
        self._map = mmap.mmap(own.fileno(), layout.block_bytes * layout.blocks, mmap.MAP_SHARED)

    def wait(self, seconds: float) -> bool:
        events = self._poll.poll(seconds * 1000)
        if not any(event & select.POLLERR for _, event in events):
            return True
        self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)  # which clears it
        return False

    def dropped(self) -> int:
        _, drops, _ = struct.unpack("=3I", self.socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 12))
        return int(drops)

    def fullness(self) -> float:
        waiting = self.words[BLOCK_STATUS // 4 :: self.layout.block_bytes // 4] & TO_USER
        return float(waiting.mean())

    def close(self) -> None:
        self.socket.close()


def bind(own: socket.socket, index: int) -> None:
    """Take packets of an interface by its number; 0: of all interfaces, for which Python's own `bind` has no name."""
    address = struct.pack("=HHi12x", socket.AF_PACKET, socket.htons(ETH_P_ALL), index)
    if ctypes.CDLL(None, use_errno=True).bind(own.fileno(), address, len(address)):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def attach(own: socket.socket, program: bytes) -> None:
    """Let the packets through that a program takes, and only the bytes that it takes."""
    code = ctypes.create_string_buffer(program, len(program))
    # struct sock_fprog: the number of instructions, and where they are
    own.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("@HP", len(program) // 8, ctypes.addressof(code)))


DLT_ETHERNET, DLT_RAW = 1, 12  # libpcap's link types
_RETURN = 0x06  # BPF_RET | BPF_K
_NETMASK_UNKNOWN = 0xFFFFFFFF
_LIBRARIES = ("libpcap.so.1", "libpcap.so.0.8", "libpcap.so")
INSTALL = "install it (Debian and Ubuntu: apt install libpcap0.8; Fedora: dnf install libpcap)"


class MissingLibraryError(SuperhostsError):
    """libpcap, which compiles filters, is not there."""


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint), ("instructions", ctypes.c_void_p))


def accept(size: int) -> bytes:
    return struct.pack("=HBBI", _RETURN, 0, 0, size)


@cache
def load_libpcap() -> Any:
    for name in (*_LIBRARIES, ctypes.util.find_library("pcap")):
        if name is None:
            continue
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        library.pcap_open_dead.restype = ctypes.c_void_p
        library.pcap_geterr.restype = ctypes.c_char_p
        return library
    return None


def compile_filter(expression: str, link: int, size: int) -> bytes:
    """Return the program that takes the first `size` bytes of the packets that match an expression.

    Raises UsageError with libpcap's message if the expression is wrong, and MissingLibraryError without libpcap.
    """
    said = f"--filter {printable(expression)!r}"
    if re.search(r"\bvlan\b", expression):
        raise UsageError(f"{said}: vlan matches nothing, as the kernel takes VLAN tags off before it filters; omit it")
    library = load_libpcap()
    if library is None:
        raise MissingLibraryError(f"{said}: needs libpcap, which is not here: {INSTALL}")
    handle = ctypes.c_void_p(library.pcap_open_dead(link, size))
    if not handle:
        raise MemoryError("no memory for a filter")
    try:
        program = _Program()
        if library.pcap_compile(handle, ctypes.byref(program), expression.encode(), 1, _NETMASK_UNKNOWN):
            message = library.pcap_geterr(handle).decode(errors="replace")
            raise UsageError(f"{said}: {printable(message)}")
        try:
            return ctypes.string_at(program.instructions, 8 * program.length)
        finally:
            library.pcap_freecode(ctypes.byref(program))
    finally:
        library.pcap_close(handle)


WORD = "live"
ANY = "any"  # all interfaces
EXAMPLE = "live:eth0, live:eth0,eth1 or live:any"
RING, SNAP, TUNNEL_SNAP = "64MiB", 128, 256
LEAST_RING, MOST_RING = 256 << 10, 4 << 30
LEAST_SNAP, MOST_SNAP = 64, 65_535
MOST_READERS = 64
WORDS = ("ring", "snap", "readers", "promisc", "repeats")


@dataclass(frozen=True)
class Capturing:
    interfaces: tuple[str, ...]
    ring: int  # bytes, of each reader
    snap: int | None = None  # bytes of each packet; None: enough for headers
    readers: int = 1  # of each interface
    promisc: bool = True  # also packets that are not for this machine
    repeats: bool = False  # each packet, also where its pair is known


def parse_name(text: str) -> Capturing:
    names, _, query = text.removeprefix(f"{WORD}:").partition("?")
    interfaces = tuple(dict.fromkeys(name.strip() for name in names.split(",")))
    if not all(interfaces):
        raise UsageError(f"{printable(text)}: write it like {EXAMPLE}")
    if ANY in interfaces and len(interfaces) > 1:
        raise UsageError(f"{printable(text)}: any is all interfaces; name it alone")
    words = words_of(text, query, WORDS)
    ring = words.get("ring", RING)
    try:
        size = parse_size(ring)
    except SuperhostsError as error:
        raise UsageError(f"{printable(text)}: ring={ring}: {error}") from None
    if not LEAST_RING <= size <= MOST_RING:
        raise UsageError(f"{printable(text)}: ring={ring}: from 256KiB to 4GiB")
    promisc, repeats = words.get("promisc", "yes"), words.get("repeats", "no")
    for word, value in (("promisc", promisc), ("repeats", repeats)):
        if value not in ("yes", "no"):
            raise UsageError(f"{printable(text)}: {word}={value}: yes or no")
    snap = whole_number(text, "snap", words["snap"], LEAST_SNAP, MOST_SNAP) if "snap" in words else None
    readers = whole_number(text, "readers", words.get("readers", "1"), 1, MOST_READERS)
    return Capturing(interfaces, size, snap, readers, promisc == "yes", repeats == "yes")


MOST_NOTES = 4096  # of losses


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
    loses = receives = True
    groups = ("interface", "vlan")

    _lender: frames.ColumnLender
    _columns: frames.Columns

    def __init__(self, interface: str, capturing: Capturing, fanout: Fanout | None = None) -> None:
        super().__init__(f"{WORD}:{interface}")
        open_socket(self.name).close()
        if interface != ANY and index_of(interface) is None:
            known = ", ".join(printable(name) for name in interface_names())
            raise InputError(f"no such interface; here are {known}, or any for all of them", file=self.name)
        self._interface, self._capturing, self._fanout = interface, capturing, fanout
        self._filter: str | None = None
        self._ring: Ring | None = None
        self._repeats: Repeats | None = None
        self._repeated = (0, 0)  # packets of IPv4 and IPv6 that it has dropped
        self._bound = 0  # the number of the interface
        self._trouble = ""  # what is wrong with the interface, as it was said
        self._looked = 0.0
        self._losses = Notes(add, MOST_NOTES)
        self._tally = np.zeros(frames.TALLY_SLOTS, np.int64)
        self._place = np.zeros(PLACE_SLOTS, np.int64)

    def use_filter(self, expression: str) -> None:
        """Take only packets that match; UsageError with libpcap's message if the expression is wrong."""
        self._filter = expression
        if expression:
            self._program()

    def _read(self) -> Iterator[PacketBlock]:
        self.open()
        try:
            while not self._stopped:
                if block := self._next():
                    yield block
            yield from self._rest()
        finally:
            self._waits = True
            self._close()

    def lost(self, start: int, end: int) -> int | None:
        return self._losses.between(start, end)

    def fullness(self) -> float | None:
        return None if self._ring is None else self._ring.fullness()

    def release(self, before: int) -> None:
        self._losses.take(before)

    # Reading

    def rehearse(self) -> None:
        self._tally[frames.WANTS] = frames.wants_of(self.wants)
        rows = BLOCK_PACKETS * (2 if self.wants.tunnels == "both" else 1)
        self._lender = frames.ColumnLender(rows, rows, self.wants)
        self._columns = self._lender.borrow()
        empty = np.zeros(32, np.uint32)
        self._walk(empty.view(np.uint8), empty, Layout(128, 1, 0))

    def open(self) -> None:
        if self._ring is None:
            self.rehearse()
            self._open()

    def _open(self) -> None:
        index = 0 if self._interface == ANY else index_of(self._interface)
        if index is None:
            raise InputError("the interface has vanished", file=self.name)
        # One filter has to fit all interfaces: then the kernel is to leave out link-layer headers.
        cooked = bool(self._filter) and self._interface == ANY
        program = self._drop_repeats() or self._program()
        self._ring = Ring(self.name, index, self._capturing, program, cooked=cooked, fanout=self._fanout)
        self._bound = index
        self._place[:] = 0
        if index and not is_up(self._interface):
            self._check_interface()

    def _close(self) -> None:
        if self._repeats is not None:
            self._count_repeats(self._repeats)
            self._repeats.close()
        if self._ring is not None:
            self._ring.close()
        self._repeats, self._repeated = None, (0, 0)

    @property
    def _snap(self) -> int:
        return self._capturing.snap or (SNAP if self.wants.tunnels == "outer" else TUNNEL_SNAP)

    def _drop_repeats(self) -> Repeats | None:
        """Return the program that drops repeats; None: each packet is wanted, or it may not be"""
        span = self.wants.once_within
        if span is not None and not self._capturing.repeats and not self._filter and not 0 < span < LEAST_SPAN:
            with contextlib.suppress(OSError):
                self._repeats = Repeats(span, self._snap)
        return self._repeats

    def _count_repeats(self, repeats: Repeats) -> None:
        dropped = repeats.dropped()
        narrow, wide = (now - before for now, before in zip(dropped, self._repeated, strict=True))
        self._repeated, counters = dropped, self.counters
        counters.ipv4 += narrow
        counters.ipv6 += wide
        counters.packets += narrow + wide
        counters.repeats += narrow + wide

    def _program(self) -> bytes:
        """Return the program that cuts packets behind their headers, and drops those that the filter drops."""
        size = self._snap
        if not self._filter:
            return accept(size)
        plain = self._interface != ANY and has_ethernet_headers(self._interface)
        return compile_filter(self._filter, DLT_ETHERNET if plain else DLT_RAW, size)

    def _next(self) -> PacketBlock:
        """Return what is in the ring; wait a moment if that is nothing."""
        block = self._take()
        if block:
            self._waits = False
            return block
        self._waits = True
        ring = self._ring
        assert ring is not None
        now = time.monotonic()
        if not ring.wait(PACE.wake) or (self._trouble and now - self._looked > CHECKED):
            self._looked = now
            self._check_interface()
        return ()

    def _rest(self) -> Iterator[PacketBlock]:
        stopped, limit = time.time_ns(), time.monotonic() + LONGEST_LINGER
        quiet = time.monotonic() + LINGER
        is_last = False
        while not is_last:
            is_last = time.monotonic() >= min(quiet, limit)  # asked before reading: this process may have slept
            if block := self._take():
                yield block
                quiet = time.monotonic() + LINGER
                is_last |= int(self._tally[frames.TIME]) > stopped
            elif not is_last:
                time.sleep(RETIRE / 5000)

    def _take(self) -> PacketBlock:
        """Return the packets that are in the ring, at most as many as the columns hold, and count them."""
        ring, lender, columns = self._ring, self._lender, self._columns
        assert ring is not None
        with measured("walk") as work:
            self._walk(ring.bytes, ring.words, ring.layout)
            work.amount += int(self._tally[frames.PACKETS])
        if self._repeats is not None:
            self._count_repeats(self._repeats)
            self._repeats.tell()
        self._note_drops(ring)
        if not self._tally[frames.PACKETS]:
            return ()
        kept = lender.kept(columns, self._tally)
        if kept.time4.base is not None or kept.time6.base is not None:  # Some of what was lent is on its way.
            self._columns = lender.borrow()
        named = frames.vlan_name if self.wants.group == "vlan" else interface_name
        return frames.take(kept, self._tally, self.counters, named)

    def _walk(self, ring: np.ndarray, words: np.ndarray, layout: Layout) -> None:
        frames.start_walk(self._tally, BLOCK_PACKETS)
        walk_ring(ring, Cursor(words, self._place, layout), self._tally, self._columns)

    def _note_drops(self, ring: Ring) -> None:
        drops, self._place[DAMAGED] = ring.dropped() + int(self._place[DAMAGED]), 0
        if not drops:
            return
        when = int(self._tally[frames.TIME]) if self._tally[frames.PACKETS] else time.time_ns()
        if self._repeats is not None:
            self._repeats.forget()  # what it let through may be among them
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
            self._close()
            self._open()
        if trouble and trouble != self._trouble:
            self.counters.warn(f"{self.name}: the interface {trouble}; the capture goes on when it is up again")
        elif self._trouble and not trouble:
            self.counters.warn(f"{self.name}: the interface is up again")
        self._trouble = trouble


def interface_name(index: int) -> str:
    with contextlib.suppress(OSError):
        return socket.if_indextoname(index)
    return f"interface {index}"


def open_live(text: str) -> list[Source]:
    capturing = parse_name(text)
    sources: list[Source] = []
    for interface in capturing.interfaces:
        fanout = Fanout() if capturing.readers > 1 else None
        sources += [LiveSource(interface, capturing, fanout) for _ in range(capturing.readers)]
    return sources
