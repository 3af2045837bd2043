"""Sockets of the system, as tests of UDP need to know them."""

from __future__ import annotations

import socket
from pathlib import Path

from waiting import wait_for


def waiting_bytes(port: int) -> int | None:
    """Return the bytes that wait in the sockets of a port; None if nobody listens there."""
    found = None
    for name in ("udp", "udp6"):
        for line in Path("/proc/net", name).read_text().splitlines()[1:]:
            words = line.split()
            if int(words[1].rpartition(":")[2], 16) == port:
                found = (found or 0) + int(words[4].partition(":")[2], 16)
    return found


def wait_listening(port: int) -> None:
    wait_for(lambda: waiting_bytes(port) is not None, f"a program listens on port {port}")


def wait_received(port: int) -> None:
    wait_for(lambda: waiting_bytes(port) == 0, f"everything sent to port {port} is received")


def send(port: int, *datagrams: bytes, to: str = "127.0.0.1") -> None:
    with socket.socket(socket.AF_INET6 if ":" in to else socket.AF_INET, socket.SOCK_DGRAM) as own:
        for datagram in datagrams:
            own.sendto(datagram, (to, port))
