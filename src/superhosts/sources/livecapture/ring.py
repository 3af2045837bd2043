"""Packet sockets with a TPACKET_V3 ring: how one is opened, and the compiled walk over its blocks.

The kernel fills a block and sets its status to TO_USER; the walk reads it and sets it to TO_KERNEL. Fences keep both
sides from seeing a block half written. The walk stops at a block that the kernel still has, or when the columns are
full, even inside a block, and goes on there.

Frames of Ethernet and of the loopback interface begin with an Ethernet header. Those of all other interfaces (tun, PPP,
tunnels) begin with whatever their driver uses, so there the kernel's own offset of the network header counts, and the
protocol that it found. The kernel has taken off the outermost VLAN tag, which addresses do not depend on.

Numbers in the ring are the kernel's, and yet they are checked like those of a file: nothing is read outside the block.
All numbers are little-endian, as numba supports no other machines.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import select
import socket
import struct
import threading
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core.units import SECOND, format_size
from superhosts.errors import InputError
from superhosts.jit.cache import compiled, inlined
from superhosts.jit.intrinsics import fence
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
)
from superhosts.sources.livecapture import bpf
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
BLOCK_STATUS, BLOCK_PACKETS, BLOCK_FIRST = 8, 12, 16
TO_KERNEL, TO_USER = 0, 1  # the lowest bit of the status: who may use the block

# A packet: struct tpacket3_hdr, struct sockaddr_ll, room for alignment, the frame. Offsets from its first byte.
NEXT, SECONDS, NANOSECONDS, CAPTURED, MAC, NET = 0, 4, 8, 12, 24, 26
PROTOCOL, HARDWARE, DIRECTION = 48 + 2, 48 + 8, 48 + 10  # fields of the address
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


@inlined
def _progress(link: int, block: int, left: int, cooked: int) -> Progress:
    # The last packet of a block is left to `_record`, which looks what follows.
    return Progress(link, 0 if cooked else max(left - 1, 0), -ENDLESS, block, left, cooked)


@inlined
def _begin(cursor: Cursor) -> Progress:
    left = cursor.place[LEFT]
    return _progress(ETHERNET, cursor.place[BLOCK], left if left else NOT_BEGUN, cursor.layout.cooked)


@inlined
def _advance(state: Progress, records: int) -> Progress:
    return _progress(state.link, state.block, state.left - records, state.cooked)


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
            return MORE, 0, 0, 0, time, _progress(ETHERNET, block, NOT_BEGUN, state.cooked)
        fence()
        left = little(ring, first + BLOCK_PACKETS)
        at = first + little(ring, first + BLOCK_FIRST)
    following, captured, frame = 0, 0, -1
    if left and at <= last - PACKET_HEADER:
        following, captured = little(ring, at + NEXT), little(ring, at + CAPTURED)
        frame = at + little_half(ring, at + MAC)
    end = frame + captured
    if frame < 0 or end > last:
        place[DAMAGED] += left
        return SKIP, 0, 0, 0, time, _progress(ETHERNET, block, 0, state.cooked)
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
    return what, start, end, at + following, time, _progress(link, block, left, state.cooked)


@inlined
def _finish(cursor: Cursor, state: Progress) -> None:
    block, left = state.block, state.left
    if not left:
        block = _give_back(cursor, block)
    cursor.place[BLOCK], cursor.place[LEFT] = block, max(left, 0)


walk_ring = make_walk(_begin, _usual, _record, _finish, _advance, rich=True, name="walk_ring")

BLOCK_BYTES = 1 << 20
LEAST_BLOCKS = 4
FRAME_BYTES = 2048  # the kernel asks for it, and does not use it
RETIRE = 50  # milliseconds after which the kernel hands over a block that is not full
RIGHT = (
    "needs the right to capture (CAP_NET_RAW): run as root, or give it to a copy of the Python interpreter "
    "(setcap cap_net_raw+ep), or run a systemd unit with AmbientCapabilities=CAP_NET_RAW (see docs/guides/live.md)"
)
LINUX_ONLY = "capturing works on Linux only; elsewhere: tcpdump -U -w - | superhosts scan -"


@dataclass(frozen=True)
class RingOptions:
    index: int  # of the interface; 0: all of them
    size: int
    program: bpf.Program
    cooked: bool = False
    promisc: bool = True
    fanout: Fanout | None = None


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
    def __init__(self, options: RingOptions, name: str) -> None:
        block = min(BLOCK_BYTES, max(options.size // LEAST_BLOCKS // mmap.PAGESIZE, 1) * mmap.PAGESIZE)
        self.layout = Layout(block, max(options.size // block, LEAST_BLOCKS), int(options.cooked))
        self.socket = open_socket(name, cooked=options.cooked)
        try:
            self._open(options)
        except OSError as error:
            self.socket.close()
            size = format_size(options.size)
            if error.errno == errno.ENOMEM:
                raise InputError(f"no memory for a ring of {size}; take less: ?ring=16MiB", file=name) from None
            raise InputError(f"cannot be captured: {error.strerror}", file=name) from None
        self.words = np.frombuffer(self._map, np.uint32)
        self.bytes = self.words.view(np.uint8)
        self._poll = select.poll()
        self._poll.register(self.socket, select.POLLIN | select.POLLERR)

    def _open(self, options: RingOptions) -> None:
        """Set everything up before the first packet is let through, and map the ring last."""
        own, layout = self.socket, self.layout
        own.setsockopt(SOL_PACKET, PACKET_VERSION, TPACKET_V3)
        frames = layout.block_bytes // FRAME_BYTES * layout.blocks
        request = struct.pack("=7I", layout.block_bytes, layout.blocks, FRAME_BYTES, frames, RETIRE, 0, 0)
        own.setsockopt(SOL_PACKET, PACKET_RX_RING, request)
        attach(own, bpf.take(0))
        bind(own, options.index)
        if options.promisc and options.index:
            member = struct.pack("=iHH8x", options.index, PACKET_MR_PROMISC, 0)
            own.setsockopt(SOL_PACKET, PACKET_ADD_MEMBERSHIP, member)
        if options.fanout is not None:
            options.fanout.join(own, options.index)
        attach(own, options.program)
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
        """Give back the ring. Its memory goes when the arrays are gone."""
        self.socket.close()


def bind(own: socket.socket, index: int) -> None:
    """Take packets of an interface by its number; 0: of all interfaces, for which Python's own `bind` has no name."""
    address = struct.pack("=HHi12x", socket.AF_PACKET, socket.htons(ETH_P_ALL), index)
    if ctypes.CDLL(None, use_errno=True).bind(own.fileno(), address, len(address)):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def attach(own: socket.socket, program: bpf.Program) -> None:
    """Let the packets through that a program takes, and only the bytes that it takes."""
    code = ctypes.create_string_buffer(program, len(program))
    # struct sock_fprog: the number of instructions, and where they are
    own.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("@HP", len(program) // 8, ctypes.addressof(code)))
