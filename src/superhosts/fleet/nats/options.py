"""How a hub or an edge reaches a NATS server: addresses, credentials, certificates, and how long it waits."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from superhosts.errors import UsageError
from superhosts.fleet.nats.enrolment import public_key


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
    refresh: Callable[[], None] | None = field(default=None, compare=False, repr=False)  # of these files, if need be

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
        if self.creds and b"NATS USER JWT" not in self.creds.read_bytes():
            raise UsageError(f"--creds {self.creds}: is not a user's credentials file")
        self.context()

    def _option(self, name: str) -> str:
        """Return the name of an option on the command line."""
        if self.up:
            return "--up" if name == "nats" else f"--up-{name.removeprefix('tls_')}"
        return f"--{name.replace('_', '-')}"

    @property
    def secrets(self) -> list[Path]:
        """The files that only their owner should be able to read."""
        return [path for path in (self.creds, self.nkey, self.tls_key) if path is not None]

    @property
    def urls(self) -> list[str]:
        """The addresses as a list."""
        texts = [text.strip() for text in self.url.split(",") if text.strip()]
        return [text if "://" in text else f"nats://{text}" for text in texts] or [self.url]

    @property
    def shown(self) -> str:
        """The address for messages, without the password."""
        return ", ".join(hide_password(url) for url in self.urls)

    @property
    def wants_tls(self) -> bool:
        """Return True if the connection must use TLS."""
        return any((self.tls_ca, self.tls_cert, *(urlsplit(url).scheme == "tls" for url in self.urls)))

    def context(self) -> ssl.SSLContext | None:
        """Return the TLS context; None if TLS was not requested (the server may still require it)."""
        if not self.wants_tls:
            return None
        try:
            context = ssl.create_default_context(cafile=self.tls_ca)
        except (OSError, ssl.SSLError):
            option = self._option("tls_cert" if self.pinned else "tls_ca")
            raise UsageError(f"{option} {self.tls_ca}: is not a certificate (PEM)") from None
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
    """Return True if an address is valid."""
    try:
        parts = urlsplit(url)
        (parts.hostname or "").encode("idna")
        return parts.scheme in ("nats", "tls") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # invalid port, IPv6 address or host name
        return False
