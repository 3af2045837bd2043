"""The messages between edges and the hub over NATS.

    superhosts.from.SITE.chunk    pieces of a site's sketches, on a JetStream stream
    superhosts.from.SITE.ask      names of sketches that the site has sent and has no receipt for (JSON list); the
                                  answer, receipts as a JSON list, goes to the site's inbox
    superhosts.to.SITE            the hub's receipts (JSON)

A server's permissions apply to subjects, so the site in a subject is the one that the server has authenticated. The
content of a message is never used to identify its site.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from superhosts import __version__
from superhosts.core.text import printable
from superhosts.errors import UsageError
from superhosts.fleet.link import Receipt, decode_json, decode_receipt
from superhosts.fleet.names import SketchId, check_site, site_named

WIRE_HEADER = "Superhosts-Wire"
WIRE = (1, 1)
EARLIEST = (1, 0)  # the version of ends that tell none
MAX_VERSION = 40  # characters of a release
MAX_NOTICE = 400
_WIRE = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})")
_SPOOL = re.compile(r"([0-9]{1,12}) ([0-9]{1,18})")
_TIME = re.compile(r"[0-9]{1,19}")


class PeerInfo(NamedTuple):
    """Metadata about one end of a link in the headers of its messages: version, clock, backlog; None where missing.

        Superhosts-Wire       MAJOR.MINOR, the version of the messages
        Superhosts-Version    the release, for people
        Superhosts-Time       the sender's clock when it sent this, in nanoseconds since 1970
        Superhosts-Spool      sketches that wait at the edge, and their bytes
        Superhosts-Notice     what the hub wants the operator of the site to know

    An end that sends none is of an earlier release: version 1.0. Unknown headers are ignored, so a new minor version
    may add some. A major version changes what a message means; ends of different major versions do not exchange
    sketches, and both say which of them to upgrade. Nothing is lost: sketches wait at the edge. Nothing here is
    trusted: an invalid value counts as missing.
    """

    wire: tuple[int, int] = EARLIEST
    version: str | None = None
    sent: int | None = None  # ns since 1970, by its own clock
    spool: tuple[int, int] | None = None  # sketches, bytes
    notice: str = ""

    def headers(self) -> dict[str, str]:
        found = {WIRE_HEADER: wire_text(self.wire)}
        if self.version is not None:
            found["Superhosts-Version"] = self.version
        if self.sent is not None:
            found["Superhosts-Time"] = str(self.sent)
        if self.spool is not None:
            found["Superhosts-Spool"] = "{} {}".format(*self.spool)
        if self.notice:
            found["Superhosts-Notice"] = printable(self.notice, MAX_NOTICE)
        return found

    @classmethod
    def parse(cls, headers: Mapping[str, str] | None) -> PeerInfo:
        found = headers or {}
        version = found.get("Superhosts-Version")
        sent = _TIME.fullmatch(found.get("Superhosts-Time", ""))
        spool = _SPOOL.fullmatch(found.get("Superhosts-Spool", ""))
        notice = found.get("Superhosts-Notice")
        return cls(
            parse_wire(found),
            printable(version, MAX_VERSION) if version else None,
            int(sent[0]) if sent else None,
            (int(spool[1]), int(spool[2])) if spool else None,
            printable(notice, MAX_NOTICE) if notice else "",
        )


def own_info(spool: tuple[int, int] | None = None, notice: str = "") -> PeerInfo:
    return PeerInfo(WIRE, __version__, time.time_ns(), spool, notice)


def wire_text(wire: tuple[int, int]) -> str:
    return ".".join(map(str, wire))


def parse_wire(headers: Mapping[str, str] | None) -> tuple[int, int]:
    found = _WIRE.fullmatch((headers or {}).get(WIRE_HEADER, ""))
    return (int(found[1]), int(found[2])) if found else EARLIEST


def mismatch(theirs: tuple[int, int], here: str, there: str) -> str:
    """Return why two ends of a link cannot work with each other, and which to upgrade; empty if they can."""
    if theirs[0] == WIRE[0]:
        return ""
    older = here if theirs[0] > WIRE[0] else there
    versions = f"{there} speaks version {wire_text(theirs)} of the link, {here} {wire_text(WIRE)}"
    return f"{versions}: upgrade {older}"


STREAM = "superhosts"
CONSUMER = "hub"
CHUNKS = "superhosts.from.*.chunk"
QUESTIONS = "superhosts.from.*.ask"
CHUNK = 512 << 10  # bytes; larger messages would delay all others on the connection
HEADERS = 8 << 10  # bytes for the subject and headers of a chunk
LARGEST = 8 << 30  # largest plausible sketch, in bytes
MAX_PIECES = 1 << 16  # of a sketch
MIN_STEP = 4096  # bytes of a piece, unless the sketch is smaller: bookkeeping for tiny pieces would fill the memory
QUESTION = 500  # names in one question
ASKED = 256 << 10  # longest question in bytes; 500 names take less than half of it
ANSWER = 256 << 10  # longest answer in bytes; an edge asks again for names that are left out
_PLACE = re.compile(r"(0|[1-9][0-9]{0,4}) ([1-9][0-9]{0,9}) ([1-9][0-9]{0,9})")  # number, step, size


class Chunk(NamedTuple):
    """A piece of a sketch, as the headers of its message describe it."""

    name: str
    number: int
    step: int  # bytes of every piece but the last
    size: int  # bytes of the whole sketch

    @property
    def pieces(self) -> int:
        return -(-self.size // self.step)

    @property
    def length(self) -> int:
        return min(self.step, self.size - self.number * self.step)

    def headers(self, attempt: str) -> dict[str, str]:
        """Return the headers; the server drops duplicates of a piece of the same attempt."""
        return {
            "Nats-Msg-Id": f"{self.name}/{attempt}/{self.number}",
            "Nats-Expected-Stream": STREAM,
            WIRE_HEADER: wire_text(WIRE),
            "Superhosts-Name": self.name,
            "Superhosts-Chunk": f"{self.number} {self.step} {self.size}",
        }

    @classmethod
    def parse(cls, headers: Mapping[str, str] | None, length: int) -> Chunk:
        """Parse the headers of a message of `length` bytes. Raises UsageError if they are invalid."""
        found = headers or {}
        match = _PLACE.fullmatch(found.get("Superhosts-Chunk", ""))
        if match is None:
            raise UsageError("a message that is not a piece of a sketch")
        number, step, size = map(int, match.groups())
        chunk = cls(SketchId.parse(found.get("Superhosts-Name", "")).name, number, step, size)
        fits = 0 < size <= LARGEST and min(size, MIN_STEP) <= step <= min(size, CHUNK + HEADERS)
        if not (fits and number < chunk.pieces <= MAX_PIECES):
            raise UsageError(f"{chunk.name}: piece {number} of {step} bytes, {size} in total, is invalid")
        if length != chunk.length:
            raise UsageError(f"{chunk.name}: piece {number} has {length} bytes, not {chunk.length}")
        return chunk


def site_of(subject: str) -> str:
    """Return the site in a subject. Raises UsageError if it is not a valid name."""
    words = subject.split(".", 3)
    return check_site(words[2] if len(words) == 4 else "")


def encode_receipt(receipt: Receipt) -> bytes:
    return json.dumps(receipt._asdict()).encode()


def encode_receipts(receipts: Iterable[Receipt]) -> bytes:
    """Return the answer to a question, limited to what fits in one message."""
    whole: list[str] = []
    room = ANSWER - 2  # brackets
    for receipt in receipts:
        text = json.dumps(receipt._asdict())
        room -= len(text) + 1
        if room < 0:
            break
        whole.append(text)
    return f"[{','.join(whole)}]".encode()


def decode_receipts(data: bytes) -> list[Receipt]:
    """Parse a receipt, or a list of them; invalid ones are left out."""
    found = decode_json(data)
    receipts = []
    for each in found[:QUESTION] if isinstance(found, list) else [found]:
        name = str(each.get("name")) if isinstance(each, dict) else ""
        receipt = decode_receipt(each, name) if site_named(name) else None  # names become paths
        receipts += [] if receipt is None else [receipt]
    return receipts


def decode_names(data: bytes, site: str) -> list[str]:
    """Parse a question; return those names that are names of this site's sketches."""
    found = decode_json(data, ASKED)
    names = found[:QUESTION] if isinstance(found, list) else []
    return [name for name in names if isinstance(name, str) and site_named(name) == site]
