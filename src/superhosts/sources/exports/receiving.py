"""Datagrams of UDP sockets, many with one system call (recvmmsg), received by compiled code without the GIL.

The kernel's own buffer for a socket is small, a few hundred datagrams on many systems, and what comes while it is full
is lost. So a thread of each socket does nothing but receive, and what it has received waits in memory, up to a limit.
What the kernel dropped all the same is counted (SO_RXQ_OVFL).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import socket
import sys
from typing import NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from superhosts.errors import InputError
from superhosts.jit.cache import compiled
from superhosts.sources.exports.layout import DATAGRAM_SLOTS, END, RECEIVED, START, Bytes, Rows
from superhosts.sources.exports.listening import Listening

STAGED = 64  # datagrams of one system call
LONGEST = 65_536  # bytes of a slot, which any datagram fits
BATCH_BYTES = 1 << 20
BATCH_DATAGRAMS = 4096
RECEIVE_BUFFER = 64 << 20  # bytes that the kernel is asked for; it may give less
IDLE = 0.05  # seconds without a datagram after which a call returns
GATHERING = 5_000_000  # nanoseconds for which a call gathers datagrams after the first
_RXQ_OVFL = 40  # SO_RXQ_OVFL, which Python has no name for
_RCVBUFFORCE = 33
_HEADER, _NAME, _CONTROL = 8, 32, 64  # of a message: words of struct mmsghdr, bytes of its address and control data
_WAIT_FOR_ONE = 0x10000
_NAME_LENGTH, _CONTROL_LENGTH, _LENGTH = 1, 5, 7  # words of struct mmsghdr
_MASK = (1 << 32) - 1
# Slots of a state: datagrams of the last call, which of them is next, and what the kernel has dropped so far.
COUNT, NEXT, DROPPED = 0, 1, 2

_recvmmsg = types.ExternalFunction(
    "recvmmsg", types.int32(types.int32, types.voidptr, types.uint32, types.int32, types.uintp)
)
_clock_gettime = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.voidptr))


class Stage(NamedTuple):
    """Where the kernel puts the datagrams of one call, and the structures that tell it so."""

    slots: Bytes
    headers: NDArray[np.uint64]
    names: Bytes
    controls: Bytes
    vectors: NDArray[np.uint64]  # struct iovec; held only because the headers point to it
    clock: Rows
    state: Rows


def new_stage() -> Stage:
    """Return room for the datagrams of one call."""
    slots, names = np.zeros(STAGED * LONGEST, np.uint8), np.zeros(STAGED * _NAME, np.uint8)
    controls, vectors = np.zeros(STAGED * _CONTROL, np.uint8), np.zeros((STAGED, 2), np.uint64)
    headers = np.zeros((STAGED, _HEADER), np.uint64)
    for number in range(STAGED):
        vectors[number] = slots.ctypes.data + number * LONGEST, LONGEST
        name, control = names.ctypes.data + number * _NAME, controls.ctypes.data + number * _CONTROL
        headers[number] = name, _NAME, vectors.ctypes.data + number * 16, 1, control, _CONTROL, 0, 0
    return Stage(slots, headers, names, controls, vectors, np.zeros(2, np.int64), np.zeros(3, np.int64))


@compiled
def _now(clock: Rows, which: int) -> int:
    _clock_gettime(np.int32(which), clock.ctypes)
    return clock[0] * 1_000_000_000 + clock[1]  # type: ignore[no-any-return]


@compiled
def _note_dropped(stage: Stage, number: int) -> None:
    """Take the kernel's count of dropped datagrams from the control data of a message."""
    at = number * _CONTROL
    controls = stage.controls
    if stage.headers[number, _CONTROL_LENGTH] >= np.uint64(20) and controls[at + 12] == _RXQ_OVFL:
        value = 0
        for place in range(3, -1, -1):
            value = value << 8 | np.int64(controls[at + 16 + place])
        stage.state[DROPPED] = value


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
            _note_dropped(stage, number)
            filled += length
            rows += 1
            state[NEXT] += 1
        if rows and received - started > GATHERING:
            return rows
        for number in range(STAGED):
            headers[number, _NAME_LENGTH], headers[number, _CONTROL_LENGTH] = np.uint64(_NAME), np.uint64(_CONTROL)
        got = _recvmmsg(np.int32(file), headers.ctypes, np.uint32(STAGED), np.int32(_WAIT_FOR_ONE), np.uint64(0))
        if got <= 0:
            return rows
        state[COUNT], state[NEXT] = got, 0
        received = _now(stage.clock, 0)
        if rows == 0:
            started = received


def open_sockets(listening: Listening, name: str) -> list[socket.socket]:
    """Bind the sockets of an input; InputError says what is in the way."""
    if sys.platform != "linux":
        raise InputError("flow exports are received on Linux only; elsewhere read captures of them", file=name)
    opened: list[socket.socket] = []
    try:
        for _ in range(listening.sockets):
            opened.append(_open_one(listening))
    except OSError as error:
        for each in opened:
            each.close()
        raise InputError(_reason(error, listening), file=name) from None
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
        own.setsockopt(socket.SOL_SOCKET, _RXQ_OVFL, 1)
        microseconds = int(IDLE * 1_000_000)
        timeout = bytes(ctypes.c_long(0)) + bytes(ctypes.c_long(microseconds))
        own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeout)
        own.bind(place)
    except OSError:
        own.close()
        raise
    return own


def _reason(error: OSError, listening: Listening) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {listening.port} is in use: another program receives there; stop it, or choose another port"
    if error.errno == errno.EACCES:
        return f"port {listening.port} is for privileged programs only; choose one from 1024 on"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{listening.host} is no address of this machine; use 0.0.0.0 or [::] for all of them"
    return f"cannot receive: {error.strerror or error}"


def new_batch() -> tuple[Bytes, Rows, NDArray[np.uint64]]:
    """Return room for a batch of datagrams. Memory that is never written costs nothing."""
    datagrams = np.zeros((BATCH_DATAGRAMS, DATAGRAM_SLOTS), np.int64)
    return np.empty(BATCH_BYTES, np.uint8), datagrams, np.zeros((BATCH_DATAGRAMS, 2), np.uint64)
