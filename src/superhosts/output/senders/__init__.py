"""Senders: each delivers batches of records to one kind of receiver. Here are their interface and their addresses.

A sender is one class in one file, and its schemes are in `SENDERS` of `registry.py`. Its constructor checks the address
and opens no connection, because the receiver may be down at the moment. `deliver` is called in a thread of its own, one
batch after the other. It returns when the receiver has the batch, or raises

* `TemporaryError` if the receiver may take it later: it does not answer, or refuses credentials that an operator can
  mend. The same batch comes again, after pauses that grow.
* `PermanentError` if the receiver will never take this batch. It is dropped and counted.

A batch may be delivered twice. Records and batches have ids by which a receiver can tell.

An address is `scheme://user@host:port/path?option=value`. Tokens hide in paths (Slack) and in queries (Teams), so
messages, logs and the status show the scheme, the user and the host of an address, and of other destinations the path.
A password on a command line is visible to every user of the machine. So it is refused there: options name files that
hold secrets (`password-file=`), and `--output @FILE` reads whole addresses from a file.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from superhosts.core.files import exposure_warning
from superhosts.core.text import printable
from superhosts.core.units import SECOND, parse_duration
from superhosts.errors import UsageError
from superhosts.output.mappings import FORMATS, line_of
from superhosts.output.records import Batch, Record

if TYPE_CHECKING:
    import ssl

Part = TypeVar("Part")
TIMEOUT = "10s"  # of a receiver that does not answer


class TemporaryError(Exception):
    """The receiver does not take a batch now. `after`: the least number of seconds before the next attempt."""

    def __init__(self, message: str, *, after: float = 0.0) -> None:
        super().__init__(message)
        self.after = after


class PermanentError(Exception):
    """The receiver will never take this batch."""


class Sender(ABC):
    options: ClassVar[tuple[str, ...]] = ()  # that its addresses take
    formats: ClassVar[tuple[str, ...]] = ("json", *FORMATS)  # what the option `format` may be, the default first
    hides_path: ClassVar[bool] = False  # paths of its addresses may hold tokens
    passes_query: ClassVar[bool] = False  # unknown options belong to the receiver
    most_records: ClassVar[int | None] = 1000  # of a batch; None: a whole window
    repeat_after: float | None = None  # seconds after which open alerts are sent again; None: the receiver keeps them

    def __init__(self, address: Address) -> None:
        self.address = address
        self.format = address.choice("format", self.formats, self.formats[0])  # of records
        self._begun, self._done = "", 0  # the batch of which some parts were taken, and how many

    @classmethod
    def open(cls, text: str, *, private: bool = False) -> Sender:
        """Return the sender of an address, which may hold a password if it is `private`: it comes from a file.

        Raises UsageError, also for an unknown option, or MissingExtraError.
        """
        scheme, _, rest = text.partition(":")
        if not rest.startswith("//"):
            path, _, query = rest.partition("?")
            netloc, path = "", unquote(path)
        else:
            try:
                parts = urlsplit(text)
            except ValueError:
                raise UsageError(f"{masked(text)}: not an address") from None
            netloc, path, query = parts.netloc, parts.path, parts.query
        pieces = [(piece, dict(parse_qsl(piece, keep_blank_values=True))) for piece in query.split("&") if piece]
        ours: dict[str, str] = {}
        for _, found in pieces:
            ours |= {name: value for name, value in found.items() if name in cls.options}
        foreign = [piece for piece, found in pieces if not set(found) & set(cls.options)]
        query = "&".join(foreign) if cls.passes_query else ""
        address = Address(text, scheme, netloc, path, query, ours, cls.hides_path)
        if foreign and not cls.passes_query:
            name = printable(foreign[0].partition("=")[0])
            raise address.error(f"unknown option {name}; known options: {', '.join(cls.options) or 'none'}")
        if address.password and not private:
            way = "give password-file=FILE, or write the whole address to a file and give @FILE"
            raise address.error(f"every user of this machine can see a password on a command line; {way}")
        return cls(address)

    @abstractmethod
    def deliver(self, batch: Batch) -> None:
        """Deliver a batch, or raise TemporaryError or PermanentError."""

    def line(self, record: Record) -> str:
        """Return a record as one line, in the format that the address asks for."""
        return line_of(record, self.format)

    def remaining(self, batch: Batch, parts: Iterable[Part]) -> Iterator[tuple[int, Part]]:
        """Yield the parts of a batch with their numbers; a second attempt begins with the first that was not taken."""
        if batch.id != self._begun:
            self._begun, self._done = batch.id, 0
        for number, part in enumerate(parts):
            if number >= self._done:
                yield number, part
                self._done += 1

    def abort(self) -> None:  # noqa: B027  # most senders are ended by their time limits
        """End a delivery that is under way, from another thread: the program ends."""

    def close(self) -> None:  # noqa: B027  # some senders have nothing to close
        """Close connections."""


def reason_of(error: BaseException) -> str:
    inner = getattr(error, "reason", None)
    if isinstance(inner, BaseException):
        return reason_of(inner)
    if isinstance(error, TimeoutError):
        return "it does not answer"
    verify = getattr(error, "verify_message", None)
    if verify:
        return f"its certificate is not trusted ({verify})"
    return str(getattr(error, "strerror", None) or inner or error or type(error).__name__)


@dataclass(frozen=True)
class Address:
    text: str = field(repr=False)
    scheme: str
    netloc: str = field(default="", repr=False)  # with user and password, if there are any
    path: str = field(default="", repr=False)
    query: str = field(default="", repr=False)
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    hides_path: bool = False
    given: str = ""  # as it was written; empty: it may hold secrets

    @property
    def shown(self) -> str:
        if self.given:
            return self.given
        if not self.netloc:
            return f"{self.scheme}:{'…' if self.hides_path else printable(self.path)}"
        user = f"{self.user}@" if self.user else ""
        more = bool(self.path.strip("/") or self.query)
        path = ("/…" if more else "") if self.hides_path else self.path.rstrip("/")
        return printable(f"{self.scheme}://{user}{self.place}{path}")

    @property
    def place(self) -> str:
        return self.netloc.rpartition("@")[2]

    @property
    def user(self) -> str:
        return unquote(self.netloc.rpartition("@")[0].partition(":")[0])

    @property
    def password(self) -> str:
        return unquote(self.netloc.rpartition("@")[0].partition(":")[2])

    def host_and_port(self, port: int) -> tuple[str, int]:
        try:
            parts = urlsplit(f"//{self.place}")
            found, host = parts.port, parts.hostname
        except ValueError:
            found, host = 0, None
        if not host or found == 0:
            raise self.error("name a host, like collector.example or [2001:db8::1]:514")
        return host, found or port

    def read_password(self) -> str:
        """Return the password of now: files are read each time, so that a new one counts at once. Raises as a file."""
        file = self.file("password-file")
        return self.password if file is None else read_secret(file)

    def choice(self, name: str, words: tuple[str, ...], default: str) -> str:
        value = self.options.get(name, default)
        if value not in words:
            raise self.error(f"{name}={printable(value)}: use {', '.join(words)}")
        return value

    def seconds(self, name: str, default: str) -> float:
        """Return an option that is a duration, in seconds. Raises UsageError."""
        try:
            return parse_duration(self.options.get(name, default)) / SECOND
        except UsageError as error:
            raise self.error(f"{name}: {error}") from None

    def file(self, name: str) -> Path | None:
        """Return an option that is a file, which must be readable. Raises UsageError."""
        text = self.options.get(name)
        if text is None:
            return None
        try:
            with Path(text).open("rb"):
                return Path(text)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise self.error(f"{name}={printable(text)}: cannot be read: {reason}") from None

    def tls(self) -> ssl.SSLContext:
        """Return the TLS context of the options `ca`, `cert` and `key`. Raises UsageError."""
        import ssl  # 8 ms, which runs without such an address do not wait for

        ca, cert, key = self.file("ca"), self.file("cert"), self.file("key")
        try:
            context = ssl.create_default_context(cafile=ca)
            if cert is not None:
                context.load_cert_chain(cert, key)
        except (OSError, ssl.SSLError) as error:
            raise self.error(f"ca, cert or key: {getattr(error, 'reason', None) or error}") from None
        return context

    def warnings(self) -> list[str]:
        names = [name for name in self.options if name.endswith("-file") or name in ("key", "creds", "nkey")]
        return [warning for name in names if (warning := exposure_warning(Path(self.options[name])))]

    def error(self, why: str) -> UsageError:
        return UsageError(f"{self.shown}: {why}")


def read_secret(path: Path) -> str:
    """Return the first line of a file with a secret. Raises OSError, or ValueError if it is empty or no text."""
    lines = path.read_text(encoding="utf-8").splitlines()
    if not lines or not lines[0].strip():
        raise ValueError(f"{path}: empty")
    return lines[0].strip()


def masked(text: str) -> str:
    """Return any address without what may be secret in it: user, password, path and query."""
    scheme, mark, rest = text.partition("://")
    if not mark:
        return printable(text)
    place = rest.replace("?", "/").replace("#", "/").split("/")
    more = "/…" if "/" in rest.rstrip("/") or "?" in rest else ""
    return printable(f"{scheme}://{place[0].rpartition('@')[2]}{more}")
