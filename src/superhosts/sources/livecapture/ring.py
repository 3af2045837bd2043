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
from superhosts.jit.cache import compiled
from superhosts.jit.intrinsics import fence
from superhosts.sources.frames.columns import (
    DETAILS,
    EARLIEST4,
    EARLIEST6,
    IPV4,
    IPV6,
    LATEST4,
    LATEST6,
    LIMIT,
    NOT_IP,
    PACKETS,
    TIME,
    TRUNCATED,
    UNSUPPORTED_LINK,
    WANTS,
    Columns,
    Tally,
)
from superhosts.sources.frames.headers import (
    QUICK_BYTES,
    find_headers,
    glance,
    is_ipv4,
    is_usual,
    peek,
    put_ipv4,
    put_ipv6,
)
from superhosts.sources.frames.links import ETHERNET, RAW, Bytes, byte, half, ip_header, little
from superhosts.sources.livecapture import bpf

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
BLOCK, AT, LEFT = 0, 1, 2  # the block; the next packet in it, and how many are left; 0 left: the block is not begun
BLOCKS, TWICE, DAMAGED = 3, 4, 5  # blocks read; packets of `lo` that come again; packets whose numbers make no sense
PLACE_SLOTS = 6


class Layout(NamedTuple):
    """The sizes of a ring."""

    block_bytes: int
    blocks: int
    cooked: int  # 1: no frame has its link-layer header


@compiled
def _short(block: Bytes, at: int) -> int:
    """Two bytes as an unsigned number, least significant first."""
    return byte(block, at) | byte(block, at + 1) << 8


@compiled
def _network_header(ring: Bytes, at: int, start: int, end: int) -> int:
    """Return where the IP header of a packet without a usable link-layer header should be, or minus its counter."""
    hardware, protocol, header = _short(ring, at + HARDWARE), half(ring, at + PROTOCOL), at + _short(ring, at + NET)
    if ARPHRD_IEEE80211 <= hardware <= ARPHRD_IEEE80211_RADIOTAP:
        return -UNSUPPORTED_LINK
    if protocol != 0x0800 and protocol != 0x86DD:
        return -NOT_IP
    if header < start or header > end:
        return -TRUNCATED
    return header


@compiled
def walk_ring(ring: Bytes, words: Words, layout: Layout, place: Place, tally: Tally, columns: Columns) -> None:
    """Read the packets of blocks that the kernel has filled, at most as many as the tally allows.

    `words` are the same bytes as `ring`: a status is read and written as a whole.
    """
    src4, dst4, time4, src6, dst6, time6, details4, details6 = columns
    wants = tally[WANTS]
    size, limit, cooked = layout.block_bytes, tally[LIMIT], layout.cooked
    index, at, left = place[BLOCK], place[AT], place[LEFT]
    time, packets, ipv4, ipv6 = tally[TIME], tally[PACKETS], tally[IPV4], tally[IPV6]
    earliest4, latest4, earliest6, latest6 = tally[EARLIEST4], tally[LATEST4], tally[EARLIEST6], tally[LATEST6]
    while packets < limit:
        start = index * size
        end = start + size
        status = np.uint64(start + BLOCK_STATUS) >> np.uint64(2)
        if not left:
            if not words[status] & np.uint32(TO_USER):
                break
            fence()
            left = little(ring, start + BLOCK_PACKETS)
            at = start + little(ring, start + BLOCK_FIRST)
        while left and packets < limit:
            if at > end - PACKET_HEADER:
                place[DAMAGED] += left
                left = 0
                break
            following, captured = little(ring, at + NEXT), little(ring, at + CAPTURED)
            frame = at + _short(ring, at + MAC)
            behind = frame + captured
            if behind > end:
                place[DAMAGED] += left
                left = 0
                break
            time = little(ring, at + SECONDS) * SECOND + little(ring, at + NANOSECONDS)
            hardware = _short(ring, at + HARDWARE)
            if hardware == ARPHRD_LOOPBACK and byte(ring, at + DIRECTION) == OUTGOING:  # It comes again, incoming.
                place[TWICE] += 1
            else:
                header = details = second = second_details = 0
                if hardware == ARPHRD_ETHER and not cooked and captured >= QUICK_BYTES and is_usual(ring, frame):
                    header = frame + 14
                    if wants:
                        protocol, first, flags, inside = peek(ring, header, behind, 4)
                        details = glance(protocol, first, flags, inside, wants)
                        if not details:
                            header = 0
                if not header:
                    link, begin = ETHERNET, frame
                    if cooked or hardware not in (ARPHRD_ETHER, ARPHRD_LOOPBACK):
                        link, begin = RAW, _network_header(ring, at, frame, behind)
                    if begin < 0:
                        header = begin
                    elif not wants:
                        header = ip_header(ring, begin, behind, link)
                    else:
                        header, details, second, second_details, _, _ = find_headers(ring, begin, behind, link, wants)
                    if header < 0:
                        tally[-header] += 1
                while header > 0:
                    if is_ipv4(ring, header):
                        put_ipv4(ring, header, ipv4, src4, dst4)
                        time4[np.uint64(ipv4)] = time
                        if wants & DETAILS:
                            details4[np.uint64(ipv4)] = details
                        earliest4, latest4 = min(earliest4, time), max(latest4, time)
                        ipv4 += 1
                    else:
                        put_ipv6(ring, header, ipv6, src6, dst6)
                        time6[np.uint64(ipv6)] = time
                        if wants & DETAILS:
                            details6[np.uint64(ipv6)] = details
                        earliest6, latest6 = min(earliest6, time), max(latest6, time)
                        ipv6 += 1
                    header, details, second = second, second_details, 0
                packets += 1
            left -= 1
            if left and following < PACKET_HEADER:
                place[DAMAGED] += left
                left = 0
            at += following
        if not left:
            fence()
            words[status] = TO_KERNEL
            place[BLOCKS] += 1
            index = index + 1 if index + 1 < layout.blocks else 0
    place[BLOCK], place[AT], place[LEFT] = index, at, left
    tally[TIME], tally[PACKETS], tally[IPV4], tally[IPV6] = time, packets, ipv4, ipv6
    tally[EARLIEST4], tally[LATEST4], tally[EARLIEST6], tally[LATEST6] = earliest4, latest4, earliest6, latest6


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
    """How a ring is opened."""

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
        """Add a socket; the first one makes the group."""
        with self._lock:
            found = self._ids.get(index)
            kind = FANOUT_HASH | FANOUT_UNIQUE_ID if found is None else FANOUT_HASH
            own.setsockopt(SOL_PACKET, PACKET_FANOUT, struct.pack("=HH", found or 0, kind))
            if found is None:
                self._ids[index] = own.getsockopt(SOL_PACKET, PACKET_FANOUT) & 0xFFFF


def open_socket(name: str, *, cooked: bool = False) -> socket.socket:
    """Return a packet socket that takes no packets yet; InputError says what is missing."""
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
    """A socket with its ring, which takes packets until it is closed."""

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
        """Wait until there is a block to read, or for this time; return False if the interface has a problem."""
        events = self._poll.poll(seconds * 1000)
        if not any(event & select.POLLERR for _, event in events):
            return True
        self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)  # which clears it
        return False

    def dropped(self) -> int:
        """Return the packets that found the ring full since the last call."""
        _, drops, _ = struct.unpack("=3I", self.socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 12))
        return int(drops)

    def fullness(self) -> float:
        """Return the share of the blocks that wait to be read."""
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
