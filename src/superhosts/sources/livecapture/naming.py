"""The grammar of live inputs: live:eth0, live:eth0,eth1, live:any, live:eth0?ring=256MiB&snap=256."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qsl

from superhosts.core.text import printable
from superhosts.core.units import parse_size
from superhosts.errors import SuperhostsError, UsageError

WORD = "live"
ANY = "any"  # all interfaces
EXAMPLE = "live:eth0, live:eth0,eth1 or live:any"
RING, SNAP, TUNNEL_SNAP = "64MiB", 128, 256
LEAST_RING, MOST_RING = 256 << 10, 4 << 30
LEAST_SNAP, MOST_SNAP = 64, 65_535
MOST_READERS = 64
WORDS = ("ring", "snap", "readers", "promisc")


@dataclass(frozen=True)
class Capturing:
    """Which interfaces are captured, and how."""

    interfaces: tuple[str, ...]
    ring: int  # bytes, of each reader
    snap: int | None = None  # bytes of each packet; None: enough for headers
    readers: int = 1  # of each interface
    promisc: bool = True  # also packets that are not for this machine


def parse_name(text: str) -> Capturing:
    """Read the name of an input; UsageError if it makes no sense."""
    names, _, query = text.removeprefix(f"{WORD}:").partition("?")
    interfaces = tuple(dict.fromkeys(name.strip() for name in names.split(",")))
    if not all(interfaces):
        raise UsageError(f"{printable(text)}: write it like {EXAMPLE}")
    if ANY in interfaces and len(interfaces) > 1:
        raise UsageError(f"{printable(text)}: any is all interfaces; name it alone")
    words = dict(parse_qsl(query, keep_blank_values=True))
    for word in words:
        if word not in WORDS:
            raise UsageError(f"{printable(text)}: unknown word {word!r}; use {', '.join(WORDS)}")
    ring, promisc = words.get("ring", RING), words.get("promisc", "yes")
    try:
        size = parse_size(ring)
    except SuperhostsError as error:
        raise UsageError(f"{printable(text)}: ring={ring}: {error}") from None
    if not LEAST_RING <= size <= MOST_RING:
        raise UsageError(f"{printable(text)}: ring={ring}: from 256KiB to 4GiB")
    if promisc not in ("yes", "no"):
        raise UsageError(f"{printable(text)}: promisc={promisc}: yes or no")
    snap = None if "snap" not in words else _whole(text, "snap", words["snap"], LEAST_SNAP, MOST_SNAP)
    readers = _whole(text, "readers", words.get("readers", "1"), 1, MOST_READERS)
    return Capturing(interfaces, size, snap, readers, promisc == "yes")


def _whole(text: str, word: str, value: str, least: int, most: int) -> int:
    if not (value.isascii() and value.isdigit() and least <= int(value) <= most):
        raise UsageError(f"{printable(text)}: {word}={value}: a whole number from {least} to {most}")
    return int(value)
