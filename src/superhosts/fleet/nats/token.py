"""All that an edge needs to join a fleet, as one word: the hub's address, the site's key, the CA, the sketch key.

    shjoin1_BASE64      1 is the version of the token

The word is safe in shells, URLs and chat windows. It holds secrets: whoever has it can send as that site and read
addresses from the fleet's sketches. Its content is JSON behind its length and before a checksum, so that a token that
was cut off is told from one that was changed. Fields that are not known are ignored: a newer hub may add some.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import struct
import zlib
from dataclasses import dataclass, field
from typing import Any

from superhosts.errors import UsageError
from superhosts.fleet.parcels import check_site

PREFIX, VERSION = "shjoin", 1
CHECK = 8  # bytes of the checksum
LONGEST = 1 << 20  # characters of a token, and bytes of its content; certificates take some thousand
_LENGTH = struct.Struct(">I")
_TOKEN = re.compile(rf"{PREFIX}([0-9]{{1,4}})_(.*)", re.DOTALL)


@dataclass(frozen=True)
class Token:
    """What a token holds. Its text never shows the secrets."""

    site: str
    url: str  # of the hub's broker
    seed: str = field(repr=False)  # the secret half of the site's nkey
    key: bytes | None = field(default=None, repr=False)  # the sketch key; None if whoever enrolled the site had none
    ca: str | None = None  # certificates (PEM) that the hub's is checked with; None: those of the edge's system

    def encode(self) -> str:
        """Return the token as text."""
        content: dict[str, Any] = {"site": self.site, "url": self.url, "seed": self.seed, "ca": self.ca}
        content["key"] = None if self.key is None else base64.b64encode(self.key).decode()
        packed = zlib.compress(json.dumps(content).encode(), 9)
        data = _LENGTH.pack(len(packed)) + packed
        text = base64.urlsafe_b64encode(data + _check(data)).decode().rstrip("=")
        return f"{PREFIX}{VERSION}_{text}"

    @classmethod
    def decode(cls, text: str, place: str = "--join") -> Token:
        """Read a token. Raise UsageError, which names `place` and what is wrong, but never quotes the token."""
        found = _TOKEN.fullmatch(text.strip())
        if found is None or len(text) > LONGEST:
            raise UsageError(f"{place}: not a token of superhosts site enroll (a word that begins with {PREFIX})")
        if int(found[1]) != VERSION:
            side = "this edge" if int(found[1]) > VERSION else "the hub, and enroll the site again"
            raise UsageError(f"{place}: a token of version {int(found[1])}, and {VERSION} is needed: upgrade {side}")
        packed = _unpack(found[2], place)
        try:
            inflated = zlib.decompressobj()
            content = json.loads(inflated.decompress(packed, LONGEST))
            key = content.get("key")
            return cls(
                check_site(_text(content, "site"), place),
                _text(content, "url"),
                _text(content, "seed"),
                None if key is None else base64.b64decode(_text(content, "key"), validate=True),
                None if content.get("ca") is None else _text(content, "ca"),
            )
        except UsageError:
            raise
        except (AttributeError, KeyError, ValueError, RecursionError, zlib.error) as error:
            raise UsageError(f"{place}: a token without what an edge needs ({type(error).__name__})") from None


def _unpack(text: str, place: str) -> bytes:
    """Return the content of a token, after checking its length and checksum."""
    damaged = f"{place}: the token is damaged"
    again = "copy it again, or make a new one (superhosts site rotate)"
    if odd := re.search(r"[^A-Za-z0-9_-]", text):
        raise UsageError(f"{damaged}: character {odd.start() + 1} of its content belongs to no token; {again}")
    whole = len(text) // 4 * 4 + (len(text) % 4 if len(text) % 4 != 1 else 0)
    data = base64.urlsafe_b64decode(text[:whole] + "=" * (-whole % 4))
    needed = _LENGTH.unpack(data[: _LENGTH.size])[0] if len(data) >= _LENGTH.size else 0
    needed += _LENGTH.size + CHECK
    if len(data) < needed <= LONGEST:
        raise UsageError(f"{place}: the token is cut short: {len(data)} of {needed} bytes; {again}")
    if len(data) != needed or _check(data[:-CHECK]) != data[-CHECK:] or len(text) != whole:
        raise UsageError(f"{damaged}: its checksum is wrong; {again}")
    return data[_LENGTH.size : -CHECK]


def _check(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=CHECK, person=b"superhosts join").digest()


def _text(content: dict[str, Any], name: str) -> str:
    value = content[name]
    if not isinstance(value, str) or not value:
        raise ValueError(name)
    return value
