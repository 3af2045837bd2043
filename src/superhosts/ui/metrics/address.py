"""Where the endpoint listens: `:9105`, `127.0.0.1:9105`, `[::1]:9105`, `0.0.0.0:9105`."""

from __future__ import annotations

from typing import NamedTuple

from superhosts.errors import UsageError

LOOPBACK = "127.0.0.1"  # unless a host is given


class Place(NamedTuple):
    """A host and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_place(text: str) -> Place:
    """Read an address. Raise UsageError if it is none."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        colon = ""  # an IPv6 address without brackets
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise UsageError(f"{text!r} is not an address to listen at; write it like :9105 or 0.0.0.0:9105")
    return Place(host or LOOPBACK, int(port))
