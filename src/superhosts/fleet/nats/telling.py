"""What the ends of a link tell each other about themselves, in the headers of questions, answers and pieces.

    Superhosts-Wire       MAJOR.MINOR, the version of the messages
    Superhosts-Version    the release, for people
    Superhosts-Time       the sender's clock when it sent this, in nanoseconds since 1970
    Superhosts-Spool      sketches that wait at the edge, and their bytes
    Superhosts-Notice     what the hub wants the operator of the site to know

An end that tells nothing is of an earlier release: version 1.0. Headers that are not known are ignored, so a new minor
version may add some. A major version changes what a message means; ends of different major versions do not exchange
sketches, and both say which of them to upgrade. Nothing is lost: sketches wait at the edge.

Nothing here is trusted: a value that makes no sense counts as missing.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from superhosts import __version__
from superhosts.core.text import printable

WIRE_HEADER = "Superhosts-Wire"
WIRE = (1, 1)
EARLIEST = (1, 0)  # the version of ends that tell none
MAX_VERSION = 40  # characters of a release
MAX_NOTICE = 400
_WIRE = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})")
_SPOOL = re.compile(r"([0-9]{1,12}) ([0-9]{1,18})")
_TIME = re.compile(r"[0-9]{1,19}")


class Spooled(NamedTuple):
    """What waits at an edge."""

    sketches: int
    bytes: int


class Telling(NamedTuple):
    """What one end tells; None where it does not tell."""

    wire: tuple[int, int] = EARLIEST
    version: str | None = None
    sent: int | None = None  # ns since 1970, by its own clock
    spool: Spooled | None = None
    notice: str = ""

    def headers(self) -> dict[str, str]:
        """Return this as headers of a message."""
        found = {WIRE_HEADER: wire_text(self.wire)}
        if self.version is not None:
            found["Superhosts-Version"] = self.version
        if self.sent is not None:
            found["Superhosts-Time"] = str(self.sent)
        if self.spool is not None:
            found["Superhosts-Spool"] = f"{self.spool.sketches} {self.spool.bytes}"
        if self.notice:
            found["Superhosts-Notice"] = printable(self.notice, MAX_NOTICE)
        return found

    @classmethod
    def parse(cls, headers: Mapping[str, str] | None) -> Telling:
        """Return what the headers of a message tell."""
        found = headers or {}
        version = found.get("Superhosts-Version")
        sent = _TIME.fullmatch(found.get("Superhosts-Time", ""))
        spool = _SPOOL.fullmatch(found.get("Superhosts-Spool", ""))
        notice = found.get("Superhosts-Notice")
        return cls(
            parse_wire(found),
            printable(version, MAX_VERSION) if version else None,
            int(sent[0]) if sent else None,
            Spooled(int(spool[1]), int(spool[2])) if spool else None,
            printable(notice, MAX_NOTICE) if notice else "",
        )


def own(spool: Spooled | None = None, notice: str = "", wall: Callable[[], int] = time.time_ns) -> Telling:
    """Return what this end tells now."""
    return Telling(WIRE, __version__, wall(), spool, notice)


def wire_text(wire: tuple[int, int]) -> str:
    """Return a version of the messages as text."""
    return ".".join(map(str, wire))


def parse_wire(headers: Mapping[str, str] | None) -> tuple[int, int]:
    """Return the version of the messages that headers tell."""
    found = _WIRE.fullmatch((headers or {}).get(WIRE_HEADER, ""))
    return (int(found[1]), int(found[2])) if found else EARLIEST


def edge_mismatch(wire: tuple[int, int], site: str) -> str:
    """Return why a hub cannot work with the edge of a site, and which to upgrade; empty if it can."""
    return _mismatch(wire, "this hub", f"the edge of {site}")


def hub_mismatch(wire: tuple[int, int]) -> str:
    """Return why an edge cannot work with its hub, and which to upgrade; empty if it can."""
    return _mismatch(wire, "this edge", "the hub")


def _mismatch(theirs: tuple[int, int], here: str, there: str) -> str:
    if theirs[0] == WIRE[0]:
        return ""
    older = here if theirs[0] > WIRE[0] else there
    versions = f"{there} speaks version {wire_text(theirs)} of the link, {here} {wire_text(WIRE)}"
    return f"{versions}: upgrade {older}"
