"""Packet sockets with a ring: opening, the filter, several readers of one interface, and the kernel's counters."""

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

import numpy as np

from superhosts.core.units import format_size
from superhosts.errors import InputError
from superhosts.sources.livecapture import bpf
from superhosts.sources.livecapture.layout import (
    BLOCK_STATUS,
    ETH_P_ALL,
    FANOUT_HASH,
    FANOUT_UNIQUE_ID,
    PACKET_ADD_MEMBERSHIP,
    PACKET_FANOUT,
    PACKET_MR_PROMISC,
    PACKET_RX_RING,
    PACKET_STATISTICS,
    PACKET_VERSION,
    SO_ATTACH_FILTER,
    SOL_PACKET,
    TO_USER,
    TPACKET_V3,
)
from superhosts.sources.livecapture.ringwalk import Layout

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
