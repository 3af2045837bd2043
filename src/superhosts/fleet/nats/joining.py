"""From a hub's folder to the token of a site, and from the token to the files of an edge."""

from __future__ import annotations

import contextlib
import socket
import ssl
from pathlib import Path
from typing import Any, NamedTuple

from superhosts.core.files import make_folder, read_json, replacing, sync_folder, write_json
from superhosts.errors import OutputError, UsageError
from superhosts.fleet.nats.options import NatsOptions
from superhosts.fleet.nats.setup import CONFIG, near, place_name
from superhosts.fleet.nats.token import Token

REACH = "join.json"  # in the broker's folder: how edges reach it, as somebody said once
PORT = 4222
FOLDER = "join"  # in an edge's spool: the content of its token


class Reach(NamedTuple):
    """How edges reach a hub."""

    url: str
    ca: Path | None  # certificates that its own is checked with
    guessed: bool  # True if nobody has said what edges call this machine

    @property
    def is_local(self) -> bool:
        """Return True if the address is that of this machine to itself."""
        return any(name in self.url for name in ("://127.", "://localhost:", "://[::1]"))


def reach_of(folder: Path, address: str | None, ca: Path | None) -> Reach:
    """Return how edges reach the hub of a broker's folder: as given here or earlier, else as its broker listens."""
    said = _table(read_json(folder / REACH))
    config = _table(read_json(folder / CONFIG))
    tls = _table(config.get("tls"))
    url = address or said.get("address")
    earlier = said.get("tls_ca")
    ca = ca or (Path(earlier) if isinstance(earlier, str) else _authority(tls))
    guess = not isinstance(url, str)
    found = _listening(config, bool(tls or ca)) if not isinstance(url, str) else url
    NatsOptions(found, tls_ca=ca).check()
    if tls and not all(each.startswith("tls://") for each in NatsOptions(found).urls):
        raise UsageError(f"--address {found}: this hub uses TLS; write tls:// instead")
    return Reach(found, ca, guess)


def remember_reach(folder: Path, address: str | None, ca: Path | None) -> None:
    """Keep what somebody has said about the way to a hub, for the next site."""
    given = {"address": address, "tls_ca": None if ca is None else str(ca.absolute())}
    if any(given.values()):
        said = _table(read_json(folder / REACH))
        write_json(folder / REACH, {**said, **{name: value for name, value in given.items() if value}})


def make_token(site: str, seed: Path, reach: Reach, key: bytes | None) -> Token:
    """Return the token of a site."""
    try:
        ca = None if reach.ca is None else reach.ca.read_text("ascii")
    except OSError as error:
        raise UsageError(f"{reach.ca}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"--tls-ca {reach.ca}: is not a certificate (PEM)") from None
    return Token(site, reach.url, seed.read_text("ascii").strip(), key, ca)


class Unpacked(NamedTuple):
    """The files of a token."""

    nkey: Path
    ca: Path | None


def unpack(token: Token, spool: Path) -> Unpacked:
    """Write what a connection needs to an edge's spool, in files that only their owner can read."""
    folder = spool / FOLDER
    nkey, ca = folder / "site.nk", folder / "ca.crt"
    try:
        make_folder(folder)
        _put(nkey, f"{token.seed}\n".encode())
        _put(ca, None if token.ca is None else token.ca.encode())
    except OSError as error:
        raise OutputError(f"{error.filename or folder}: cannot be written: {error.strerror or error}") from None
    return Unpacked(nkey, None if token.ca is None else ca)


def _put(path: Path, data: bytes | None) -> None:
    """Give a file this content; None: remove it."""
    if data is None:
        path.unlink(missing_ok=True)
        return
    with contextlib.suppress(FileNotFoundError):
        if path.read_bytes() == data:
            return
    with replacing(path, private=True, sole=True) as fresh:
        fresh.write_bytes(data)
    sync_folder(path.parent)


def _listening(config: dict[str, Any], tls: bool) -> str:
    """Return the address at which a broker listens, by this machine's name if it listens everywhere."""
    host, port = config.get("host"), config.get("port")
    name = host if isinstance(host, str) and host == near(host) else socket.gethostname()
    place = place_name(name, port if isinstance(port, int) else PORT)
    return f"{'tls' if tls else 'nats'}://{place}"


def _authority(tls: dict[str, Any]) -> Path | None:
    """Return the file that a broker's certificate can be checked with, if its configuration tells.

    Under mutual TLS one authority signs all certificates; a certificate may also be its own authority.
    """
    if isinstance(tls.get("ca_file"), str):
        return Path(tls["ca_file"])
    path = tls.get("cert_file")
    if not isinstance(path, str):
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with contextlib.suppress(OSError, ssl.SSLError):
        context.load_verify_locations(path)
        if any(each["issuer"] == each["subject"] for each in context.get_ca_certs()):
            return Path(path)
    return None


def _table(content: Any) -> dict[str, Any]:
    return content if isinstance(content, dict) else {}
