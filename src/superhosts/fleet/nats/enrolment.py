"""Who may use the embedded broker, and for what.

Every site has its own key pair (an nkey): the broker knows the public key, the edge keeps the secret one. A site can
send its own sketches and read its own receipts, nothing else.

Every site also has its own account, a namespace of subjects. A message names the subject to which the server sends its
confirmation, and no permission restricts that name; but within an account it can name neither subjects of other sites
nor the queue's interface. Of the hub's account, a site's account sees only the three subjects of the site.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

from superhosts.core.files import make_folder, os_errors, read_json, write_json, write_private
from superhosts.core.times import iso_time
from superhosts.core.units import SECOND
from superhosts.errors import OutputError, UsageError
from superhosts.fleet.names import check_site
from superhosts.fleet.nats.credentials import NatsOptions, Token, format_address, local_host, make_key, public_key
from superhosts.fleet.nats.messages import CHUNKS, QUESTIONS

SITES = "sites.json"  # site → Enrolment
HUB_SEED = "hub.nk"
CONFIG = "nats.conf"  # the server's configuration, in the broker's folder
JOIN_FILE = "join.json"  # the address for edges, saved at the first enrolment
HUB, ANYONE = "hub", "anyone"  # the hub's account; the user without a key
PORT = 4222  # the default of NATS
CONNECTIONS, SUBSCRIPTIONS = 16, 64  # limits of a site; an edge needs one connection and two subscriptions


class Enrolment(NamedTuple):
    """A site that is enrolled or was revoked; None where something is not known, or is none."""

    enrolled: str | None = None  # times as text, for people
    revoked: str | None = None
    key: str | None = None  # the public half; None: revoked
    old_key: str | None = None  # was replaced
    old_key_until: float = 0.0  # seconds since 1970; until then the old key is accepted

    def keys(self, now: float) -> list[str]:
        """Return the public keys that are accepted."""
        old = self.old_key if now < self.old_key_until else None
        return [key for key in (self.key, old) if key is not None]


def list_sites(folder: Path) -> dict[str, Enrolment]:
    """Return all sites that are enrolled or were revoked. Earlier releases stored the key alone."""
    path = folder / SITES
    try:
        content = read_json(path)
        if content is None and not path.exists():
            return {}
        return {check_site(site): _parse(entry) for site, entry in content.items()}
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    except (AttributeError, TypeError, ValueError):
        raise UsageError(f"{path}: damaged; restore it, or remove it and enroll the sites again") from None


def _parse(entry: Any) -> Enrolment:
    *texts, until = found = Enrolment(key=entry) if isinstance(entry, str) else Enrolment(**entry)
    if not isinstance(until, int | float) or not all(isinstance(text, str | None) for text in texts):
        raise ValueError
    return found


def read_sites(folder: Path) -> dict[str, str]:
    """Return the public keys of the enrolled sites."""
    return {site: each.key for site, each in list_sites(folder).items() if each.key is not None}


def enroll(folder: Path, site: str) -> Path:
    """Create a key pair for a site and return the file with the secret key, for the edge. It replaces an older key.

    A running hub with this folder notices within a second or two.
    """
    check_site(site, "SITE")
    with _changing(folder) as sites:
        return _give_key(folder, site, sites)


def rotate(folder: Path, site: str, grace: float = 0.0) -> Path:
    """Replace the key of an enrolled site, as `enroll` does; the old key works for another `grace` seconds."""
    with _changing(folder) as sites:
        old, until = _enrolled(site, sites).key, time.time() + grace
        return _give_key(folder, site, sites, *((old, until) if grace > 0 else ()))


def _give_key(folder: Path, site: str, sites: dict[str, Enrolment], old: str | None = None, until: float = 0.0) -> Path:
    target, (secret, public) = seed_of(folder, site), make_key()
    make_folder(target.parent)
    write_private(target, secret + "\n")
    _write(folder, {**sites, site: Enrolment(_now(), None, public, old, until)})
    return target


def unenroll(folder: Path, site: str) -> None:
    """Revoke a site's key: its edge is rejected from then on."""
    with _changing(folder) as sites:
        _write(folder, {**sites, site: Enrolment(_enrolled(site, sites).enrolled, _now())})
        for secret in (seed_of(folder, site), token_of(folder, site)):
            secret.unlink(missing_ok=True)  # of no use any more, and easily taken for a key that works


@contextmanager
def _changing(folder: Path) -> Iterator[dict[str, Enrolment]]:
    """Yield the sites to one command at a time that changes them."""
    try:
        make_folder(folder)
        with open_private(folder / ".sites.lock") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield list_sites(folder)
    except OSError as error:
        raise OutputError(f"{error.filename or folder / SITES}: cannot be written: {error.strerror}") from None


def _write(folder: Path, sites: Mapping[str, Enrolment]) -> None:
    write_json(folder / SITES, {site: each._asdict() for site, each in sites.items()})


def _enrolled(site: str, sites: Mapping[str, Enrolment]) -> Enrolment:
    known = sorted(name for name, each in sites.items() if each.key is not None)
    if site not in known:
        raise UsageError(f"{site!r} is not enrolled; enrolled are: {', '.join(known) or 'none'}")
    return sites[site]


def _now() -> str:
    return iso_time(time.time_ns() // SECOND * SECOND)


def seed_of(folder: Path, site: str) -> Path:
    return folder / "seeds" / f"{site}.nk"


def token_of(folder: Path, site: str) -> Path:
    return folder / "seeds" / f"{site}.token"


def hub_key(folder: Path) -> tuple[Path, str]:
    """Return the file with the hub's secret key, and the public key; the pair is created at the first start."""
    path = folder / HUB_SEED
    if not path.exists():
        make_folder(folder)
        write_private(path, make_key()[0] + "\n")
    return path, public_key(path)


def accounts(hub: str, sites: Mapping[str, list[str]] | None) -> dict[str, Any]:
    """Return the accounts of a broker's configuration: the hub with all permissions, each site with its own few.

    `sites` has the keys of each site. Without sites no key is needed: every client is in the hub's account, as the user
    `ANYONE`.
    """
    users: list[dict[str, Any]] = [{"nkey": hub}]
    if sites is None:
        users.append({"user": ANYONE, "password": secrets.token_hex(16)})
    ours = {
        "jetstream": {"max_streams": 1},  # the queue, which has a limit of its own
        "users": users,
        "exports": [{"service": CHUNKS}, {"service": QUESTIONS}, {"stream": "superhosts.to.*"}],
    }
    return {HUB: ours, **{f"site-{site}": _account(site, keys) for site, keys in sorted((sites or {}).items())}}


def _account(site: str, keys: list[str]) -> dict[str, Any]:
    sends, hears = (f"superhosts.from.{site}.chunk", f"superhosts.from.{site}.ask"), f"superhosts.to.{site}"
    rights = {"publish": {"allow": list(sends)}, "subscribe": {"allow": [hears, f"_INBOX.{site}.>"]}}
    return {
        "users": [{"nkey": key, "permissions": rights} for key in keys],
        "imports": [
            *({"service": {"account": HUB, "subject": subject}} for subject in sends),
            {"stream": {"account": HUB, "subject": hears}},
        ],
        "limits": {"max_connections": CONNECTIONS, "max_subscriptions": SUBSCRIPTIONS},
    }


def open_private(path: Path) -> IO[bytes]:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.fchmod(handle, 0o600)
    return os.fdopen(handle, "wb")


class HubAddress(NamedTuple):
    url: str
    ca: Path | None  # certificates that its own is checked with
    guessed: bool  # True if nobody has said what edges call this machine

    @property
    def is_local(self) -> bool:
        return any(name in self.url for name in ("://127.", "://localhost:", "://[::1]"))


def hub_address(folder: Path, address: str | None, ca: Path | None) -> HubAddress:
    """Return how edges reach the hub of a broker's folder: as given here or earlier, else as its broker listens."""
    said = _table(read_json(folder / JOIN_FILE))
    config = _table(read_json(folder / CONFIG))
    tls = _table(config.get("tls"))
    url, earlier = address or said.get("address"), said.get("tls_ca")
    ca = ca or (Path(earlier) if isinstance(earlier, str) else _authority(tls))
    found = url if isinstance(url, str) else _listening(config, bool(tls or ca))
    options = NatsOptions(found, tls_ca=ca)
    options.check()
    if tls and not all(each.startswith("tls://") for each in options.urls):
        raise UsageError(f"--address {found}: this hub uses TLS; write tls:// instead")
    return HubAddress(found, ca, guessed=found != url)


def save_hub_address(folder: Path, address: str | None, ca: Path | None) -> None:
    """Keep what somebody has said about the way to a hub, for the next site."""
    given = {"address": address, "tls_ca": None if ca is None else str(ca.absolute())}
    if any(given.values()):
        said = _table(read_json(folder / JOIN_FILE))
        write_json(folder / JOIN_FILE, {**said, **{name: value for name, value in given.items() if value}})


def make_token(site: str, seed: Path, reach: HubAddress, key: bytes | None) -> Token:
    try:
        with os_errors(f"{reach.ca}: cannot be read", UsageError):
            ca = None if reach.ca is None else reach.ca.read_text("ascii")
    except UnicodeDecodeError:
        raise UsageError(f"--tls-ca {reach.ca}: is not a certificate (PEM)") from None
    return Token(site, reach.url, seed.read_text("ascii").strip(), key, ca)


def _listening(config: dict[str, Any], tls: bool) -> str:
    """Return the address at which a broker listens, by this machine's name if it listens everywhere."""
    host, port = config.get("host"), config.get("port")
    name = host if isinstance(host, str) and host == local_host(host) else socket.gethostname()
    place = format_address(name, port if isinstance(port, int) else PORT)
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
