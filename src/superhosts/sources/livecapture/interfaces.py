"""The network interfaces of this machine, or of the namespace in which this process runs."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import socket
import struct

from superhosts.sources.livecapture.layout import ARPHRD_ETHER, ARPHRD_LOOPBACK, IFF_UP, SIOCGIFFLAGS, SIOCGIFHWADDR


def interface_names() -> list[str]:
    """Return the names of all interfaces."""
    return [name for _, name in socket.if_nameindex()]


def index_of(name: str) -> int | None:
    """Return the kernel's number of an interface; None if there is none of this name."""
    with contextlib.suppress(OSError):
        return socket.if_nametoindex(name)
    return None


def is_up(name: str) -> bool:
    """Return True if an interface is there and switched on."""
    answer = _ask(name, SIOCGIFFLAGS)
    return answer is not None and bool(answer & IFF_UP)


def has_ethernet_headers(name: str) -> bool:
    """Return True if frames of an interface begin with an Ethernet header."""
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
