"""Programs of the kernel's packet filter: one that takes the heads of all packets, and those that libpcap compiles.

libpcap is loaded where it is present and a filter is asked for; nothing else needs it.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import re
import struct
from functools import cache
from typing import Any

from superhosts.core.text import printable
from superhosts.errors import SuperhostsError, UsageError

ETHERNET, RAW_IP = 1, 12  # libpcap's link types: DLT_EN10MB, DLT_RAW
_RETURN = 0x06  # BPF_RET | BPF_K
_NETMASK_UNKNOWN = 0xFFFFFFFF
_NAMES = ("libpcap.so.1", "libpcap.so.0.8", "libpcap.so")
INSTALL = "install it (Debian and Ubuntu: apt install libpcap0.8; Fedora: dnf install libpcap)"
Program = bytes  # instructions of eight bytes


class MissingLibraryError(SuperhostsError):
    """libpcap, which compiles filters, is not there."""


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint), ("instructions", ctypes.c_void_p))


def take(size: int) -> Program:
    return struct.pack("=HBBI", _RETURN, 0, 0, size)


@cache
def load_libpcap() -> Any:
    """Return libpcap, None if it is not there."""
    for name in (*_NAMES, ctypes.util.find_library("pcap")):
        if name is None:
            continue
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        library.pcap_open_dead.restype = ctypes.c_void_p
        library.pcap_open_dead.argtypes = (ctypes.c_int, ctypes.c_int)
        library.pcap_compile.argtypes = (
            ctypes.c_void_p,
            ctypes.POINTER(_Program),
            ctypes.c_char_p,
            ctypes.c_int,
            ctypes.c_uint32,
        )
        library.pcap_geterr.restype = ctypes.c_char_p
        library.pcap_geterr.argtypes = (ctypes.c_void_p,)
        library.pcap_freecode.argtypes = (ctypes.POINTER(_Program),)
        library.pcap_close.argtypes = (ctypes.c_void_p,)
        return library
    return None


def compile_filter(expression: str, link: int, size: int) -> Program:
    """Return the program that takes the first `size` bytes of the packets that match an expression.

    Raises UsageError with libpcap's message if the expression is wrong, and MissingLibraryError without libpcap.
    """
    said = f"--filter {printable(expression)!r}"
    if re.search(r"\bvlan\b", expression):
        raise UsageError(f"{said}: vlan matches nothing, as the kernel takes VLAN tags off before it filters; omit it")
    library = load_libpcap()
    if library is None:
        raise MissingLibraryError(f"{said}: needs libpcap, which is not here: {INSTALL}")
    handle = library.pcap_open_dead(link, size)
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
