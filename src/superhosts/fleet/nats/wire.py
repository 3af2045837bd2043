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
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from superhosts.core.text import printable
from superhosts.errors import UsageError
from superhosts.fleet.nats.telling import WIRE, WIRE_HEADER, wire_text
from superhosts.fleet.parcels import Parcel, check_site
from superhosts.fleet.receipts import MAX_REASON, MERGED, REFUSED, RESEND, Receipt

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
        """The number of pieces."""
        return -(-self.size // self.step)

    @property
    def length(self) -> int:
        """The bytes of this piece."""
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
        chunk = cls(Parcel.parse(found.get("Superhosts-Name", "")).name, number, step, size)
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
    """Return a receipt as JSON."""
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


def decode_receipt(data: bytes) -> Receipt | None:
    """Parse a receipt; None if it is invalid."""
    return _receipt(_json(data))


def decode_receipts(data: bytes) -> list[Receipt]:
    """Parse the answer to a question."""
    found = _json(data)
    receipts = [_receipt(each) for each in found[:QUESTION]] if isinstance(found, list) else []
    return [receipt for receipt in receipts if receipt is not None]


def _receipt(found: Any) -> Receipt | None:
    if not isinstance(found, dict) or found.get("verdict") not in (MERGED, REFUSED, RESEND):
        return None
    try:
        name = Parcel.parse(str(found.get("name"))).name
    except UsageError:
        return None  # names become paths, so only a sketch's name may pass
    return Receipt(name, found["verdict"], printable(found.get("reason", ""), MAX_REASON))  # the edge shows it


def decode_names(data: bytes, site: str) -> list[str]:
    """Parse a question; return those names that are names of this site's sketches."""
    found = _json(data) if len(data) <= ASKED else None
    names = []
    for name in found[:QUESTION] if isinstance(found, list) else []:
        try:
            if isinstance(name, str) and Parcel.parse(name).site == site:
                names.append(name)
        except UsageError:
            continue
    return names


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None
