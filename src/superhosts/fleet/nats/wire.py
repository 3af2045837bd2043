"""What crosses the wire between edges and the hub over NATS.

    superhosts.from.SITE.chunk    pieces of a site's sketches, on a JetStream stream
    superhosts.from.SITE.ask      "what of these?": names that the site has sent and heard nothing of (JSON list);
                                  the answer, receipts as a JSON list, goes to the site's inbox
    superhosts.to.SITE            the hub's receipts as they are given (JSON)

A server's permissions speak of subjects, so the site in a subject is the one that the server has authenticated. What
a message says about its site is never asked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from superhosts.errors import UsageError
from superhosts.fleet.parcels import Parcel, check_site
from superhosts.fleet.receipts import MERGED, MOST_REASON, REFUSED, RESEND, Receipt
from superhosts.text import printable

STREAM = "superhosts"
CONSUMER = "hub"
CHUNKS = "superhosts.from.*.chunk"
QUESTIONS = "superhosts.from.*.ask"
CHUNK = 512 << 10  # bytes; larger messages hold up all others on a connection
HEADERS = 8 << 10  # bytes that subject and headers may take beside a chunk
LARGEST = 8 << 30  # bytes of a sketch that are believed
MOST = 1 << 16  # chunks of a sketch that are believed
LEAST = 4096  # bytes of a piece, unless the sketch is smaller: many tiny ones would fill the memory with notes
QUESTION = 500  # names in one question
ASKED = 256 << 10  # bytes of a question that are read; 500 names take less than half of them
ANSWER = 256 << 10  # bytes of an answer; an edge asks again for the names that are left out
_PLACE = re.compile(r"(0|[1-9][0-9]{0,4}) ([1-9][0-9]{0,9}) ([1-9][0-9]{0,9})")  # number, step, size


class Chunk(NamedTuple):
    """A piece of a sketch, as the headers of its message tell it."""

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
        """Return the headers; a server takes the same piece of the same attempt once."""
        return {
            "Nats-Msg-Id": f"{self.name}/{attempt}/{self.number}",
            "Nats-Expected-Stream": STREAM,
            "Superhosts-Name": self.name,
            "Superhosts-Chunk": f"{self.number} {self.step} {self.size}",
        }

    @classmethod
    def parse(cls, headers: Mapping[str, str] | None, length: int) -> Chunk:
        """Read the headers of a message with so many bytes; UsageError where they cannot be right."""
        found = headers or {}
        match = _PLACE.fullmatch(found.get("Superhosts-Chunk", ""))
        if match is None:
            raise UsageError("a message that is no piece of a sketch")
        number, step, size = map(int, match.groups())
        chunk = cls(Parcel.parse(found.get("Superhosts-Name", "")).name, number, step, size)
        good = 0 < size <= LARGEST and min(size, LEAST) <= step <= min(size, CHUNK + HEADERS) and chunk.pieces <= MOST
        if not (good and number < chunk.pieces):
            raise UsageError(f"{chunk.name}: piece {number} of {step} bytes, {size} in all, cannot be")
        if length != chunk.length:
            raise UsageError(f"{chunk.name}: piece {number} has {length} bytes, not {chunk.length}")
        return chunk


def site_of(subject: str) -> str:
    """Return the site in a subject; UsageError where it is no site's name."""
    words = subject.split(".", 3)
    return check_site(words[2] if len(words) == 4 else "")


def encode_receipt(receipt: Receipt) -> bytes:
    """Return a receipt as JSON."""
    return json.dumps(receipt._asdict()).encode()


def encode_receipts(receipts: Iterable[Receipt]) -> bytes:
    """Return the answer to a question, cut to what one message can carry."""
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
    """Read a receipt; None where it is none."""
    return _receipt(_json(data))


def decode_receipts(data: bytes) -> list[Receipt]:
    """Read the answer to a question."""
    found = _json(data)
    receipts = [_receipt(each) for each in found[:QUESTION]] if isinstance(found, list) else []
    return [receipt for receipt in receipts if receipt is not None]


def _receipt(found: Any) -> Receipt | None:
    if not isinstance(found, dict) or found.get("verdict") not in (MERGED, REFUSED, RESEND):
        return None
    try:
        name = Parcel.parse(str(found.get("name"))).name
    except UsageError:
        return None  # names become paths: nothing but a sketch's name may pass
    return Receipt(name, found["verdict"], printable(found.get("reason", ""), MOST_REASON))  # it is shown at the edge


def decode_names(data: bytes, site: str) -> list[str]:
    """Read the names of a question, as far as they are names of this site's sketches."""
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
