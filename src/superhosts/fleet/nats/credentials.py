"""How a hub or an edge reaches a NATS server: addresses, keys, certificates, and the token with which an edge joins."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import ssl
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from superhosts.core.files import os_errors
from superhosts.errors import UsageError, import_extra
from superhosts.fleet.names import check_site


@dataclass(frozen=True)
class Timing:
    """How long the ends of a link wait, in seconds."""

    reply: int = 5  # for a connection attempt, and for a reply of the server
    first_pause: float = 1.0  # between two attempts to connect, growing
    last_pause: float = 30.0
    answer: float = 2.0  # for the hub's answer to a question of an edge
    look: float = 1.0  # between two checks whether another hub reads the queue


DEFAULT_TIMING = Timing()


@dataclass(frozen=True)
class NatsOptions:
    """The address of the server (several of a cluster, separated by commas) and the credentials."""

    url: str
    creds: Path | None = None  # a user's .creds file (JWT)
    nkey: Path | None = None  # a file with an nkey seed
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    pinned: bool = False  # tls_ca is the server's own certificate; its host name is not checked
    up: bool = False  # to an upstream hub: --up and its options
    timing: Timing = DEFAULT_TIMING
    seed: str | None = field(default=None, repr=False)  # an nkey seed, and the authority (PEM): from a token
    ca: str | None = field(default=None, repr=False)
    refresh: Callable[[], NatsOptions] | None = field(default=None, compare=False, repr=False)  # before a connection

    def check(self) -> None:
        """Refuse options that can never work, by name."""
        for url in self.urls:
            if not _is_address(url):
                raise UsageError(
                    f"{self._option('nats')} {hide_password(url)!r}: "
                    "not an address like nats://hub.example:4222 or tls://[2001:db8::1]:4222"
                )
        if self.creds and self.nkey:
            raise UsageError("--creds and --nkey: give one of them")
        if bool(self.tls_cert) != bool(self.tls_key):
            raise UsageError(f"{self._option('tls_cert')} and {self._option('tls_key')}: give both or none")
        for name in ("creds", "nkey", "tls_ca", "tls_cert", "tls_key"):
            path = getattr(self, name)
            if path is not None and not (path.is_file() and os.access(path, os.R_OK)):
                raise UsageError(f"{self._option(name)} {path}: cannot be read")
        if self.nkey:
            public_key(self.nkey)
        if self.seed:
            _public_half(self.seed.encode(), "--join")
        if self.creds and b"NATS USER JWT" not in self.creds.read_bytes():
            raise UsageError(f"--creds {self.creds}: is not a user's credentials file")
        self.context()

    def _option(self, name: str) -> str:
        if self.up:
            return "--up" if name == "nats" else f"--up-{name.removeprefix('tls_')}"
        return f"--{name.replace('_', '-')}"

    @property
    def secrets(self) -> list[Path]:
        return [path for path in (self.creds, self.nkey, self.tls_key) if path is not None]

    @property
    def urls(self) -> list[str]:
        texts = [text.strip() for text in self.url.split(",") if text.strip()]
        return [text if "://" in text else f"nats://{text}" for text in texts] or [self.url]

    @property
    def shown(self) -> str:
        """The address for messages, without the password."""
        return ", ".join(hide_password(url) for url in self.urls)

    @property
    def wants_tls(self) -> bool:
        return any((self.tls_ca, self.ca, self.tls_cert, *(urlsplit(url).scheme == "tls" for url in self.urls)))

    def context(self) -> ssl.SSLContext | None:
        """Return the TLS context; None if TLS was not requested (the server may still require it)."""
        if not self.wants_tls:
            return None
        try:
            context = ssl.create_default_context(cafile=self.tls_ca, cadata=self.ca)
        except (OSError, ValueError):
            place = f"{self._option('tls_cert' if self.pinned else 'tls_ca')} {self.tls_ca}"
            raise UsageError(f"{'--join' if self.ca else place}: is not a certificate (PEM)") from None
        if self.pinned:
            context.check_hostname = False
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        if self.tls_cert:
            try:
                context.load_cert_chain(self.tls_cert, self.tls_key)
            except (OSError, ssl.SSLError) as error:
                names = f"{self._option('tls_cert')} {self.tls_cert}, {self._option('tls_key')} {self.tls_key}"
                raise UsageError(f"{names}: {error}") from None
        return context


def hide_password(url: str) -> str:
    """Return an address without user name and password, even if it is invalid."""
    scheme, mark, rest = url.rpartition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}"


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        (parts.hostname or "").encode("idna")
        return parts.scheme in ("nats", "tls") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # invalid port, IPv6 address or host name
        return False


PREFIX, VERSION = "shjoin", 1
CHECK = 8  # bytes of the checksum
LONGEST = 1 << 20  # characters of a token, and bytes of its content; certificates take some thousand
_LENGTH = struct.Struct(">I")
_TOKEN = re.compile(rf"{PREFIX}([0-9]{{1,4}})_(.*)", re.DOTALL)


@dataclass(frozen=True)
class Token:
    """All that an edge needs to join a fleet, as one word: the hub's address, the site's key, the CA, the sketch key.

        shjoin1_BASE64      1 is the version of the token

    The word is safe in shells, URLs and chat windows. It holds secrets: whoever has it can send as that site and read
    addresses from the fleet's sketches. Its content is JSON behind its length and before a checksum, so that a token
    that was truncated is told from one that was changed. Unknown fields are ignored: a newer hub may add some.
    """

    site: str
    url: str  # of the hub's broker
    seed: str = field(repr=False)  # the secret half of the site's nkey
    key: bytes | None = field(default=None, repr=False)  # the sketch key; None if whoever enrolled the site had none
    ca: str | None = None  # certificates (PEM) that the hub's is checked with; None: those of the edge's system

    def encode(self) -> str:
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
            content = json.loads(zlib.decompressobj().decompress(packed, LONGEST))
            site, url, seed = (_text(content[name]) for name in ("site", "url", "seed"))
            key, ca = (None if content.get(name) is None else _text(content[name]) for name in ("key", "ca"))
            token = cls(site, url, seed, None if key is None else base64.b64decode(key, validate=True), ca)
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError, zlib.error) as error:
            raise UsageError(f"{place}: a token without what an edge needs ({type(error).__name__})") from None
        check_site(token.site, place)
        return token


def _unpack(text: str, place: str) -> bytes:
    """Return the content of a token, after checking its length and checksum."""
    damaged = f"{place}: the token is damaged"
    again = "copy it again, or make a new one (superhosts site rotate)"
    if odd := re.search(r"[^A-Za-z0-9_-]", text):
        raise UsageError(f"{damaged}: invalid character at position {odd.start() + 1}; {again}")
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


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError
    return value


def make_key() -> tuple[str, str]:
    nkeys = _nkeys()
    seed = nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER).decode()
    return seed, _public_half(seed.encode(), "")


def public_key(path: Path) -> str:
    """Return the public key of a seed in a file. Raises UsageError if the file has none."""
    with os_errors(f"{path}: cannot be read", UsageError):
        return _public_half(path.read_bytes().strip(), str(path))


def _public_half(seed: bytes, place: str) -> str:
    nkeys = _nkeys()
    try:
        return str(nkeys.from_seed(bytearray(seed)).public_key.decode())
    except (nkeys.NkeysError, ValueError, TypeError):
        raise UsageError(f"{place}: is not an nkey seed (one line that begins with SU)") from None


def _nkeys() -> Any:
    return import_extra("keys for a broker", "fleet", "nkeys")


def format_address(host: str, port: int) -> str:
    """Format HOST:PORT, with brackets for IPv6."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def local_host(host: str) -> str:
    """Return the address at which this machine itself reaches a server."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
