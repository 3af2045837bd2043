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
from types import MappingProxyType
from typing import IO, Any, NamedTuple

from superhosts.core.files import os_errors, read_json, write_json, write_private
from superhosts.core.times import iso_time
from superhosts.core.units import SECOND
from superhosts.errors import OutputError, UsageError
from superhosts.fleet.names import check_site
from superhosts.fleet.nats.credentials import NatsOptions, Token, format_address, local_host, make_key, public_key
from superhosts.fleet.nats.messages import CHUNKS, QUESTIONS

SITES = "sites.json"  # site → public key
OUTGOING = "sites-outgoing.json"  # site → the key that was replaced, and until when it is accepted
HISTORY = "sites-history.json"  # site → when it was enrolled and revoked; for people, nothing depends on it
HUB_SEED = "hub.nk"
CONFIG = "nats.conf"  # the server's configuration, in the broker's folder
JOIN_FILE = "join.json"  # the address for edges, saved at the first enrolment
HUB, ANYONE = "hub", "anyone"  # the hub's account; the user without a key
PORT = 4222  # the default of NATS
CONNECTIONS, SUBSCRIPTIONS = 16, 64  # limits of a site; an edge needs one connection and two subscriptions
NO_KEYS: Mapping[str, str] = MappingProxyType({})


def enroll(folder: Path, site: str, seed: Path | None = None) -> Path:
    """Create a key pair for a site and return the file with the secret key, for the edge. It replaces an older key.

    A running hub with this folder notices within a second or two.
    """
    check_site(site, "SITE")
    with _changing(folder) as sites:
        return _give_key(folder, site, sites, seed or seed_of(folder, site), None)


def rotate(folder: Path, site: str, grace: float = 0.0) -> Path:
    """Replace the key of an enrolled site, as `enroll` does; the old key works for another `grace` seconds."""
    with _changing(folder) as sites:
        outgoing = Outgoing(_enrolled_key(site, sites), time.time() + grace) if grace > 0 else None
        return _give_key(folder, site, sites, seed_of(folder, site), outgoing)


def unenroll(folder: Path, site: str) -> None:
    """Revoke a site's key: its edge is rejected from then on."""
    with _changing(folder) as sites:
        _enrolled_key(site, sites)
        _write_outgoing(folder, site, None)
        write_json(folder / SITES, {name: key for name, key in sites.items() if name != site})
        _note(folder, site, {**_history(folder).get(site, {}), "revoked": _now()})
        for secret in (seed_of(folder, site), token_of(folder, site)):
            secret.unlink(missing_ok=True)  # of no use any more, and easily taken for a key that works


@contextmanager
def _changing(folder: Path) -> Iterator[dict[str, str]]:
    """Yield the sites to one command at a time that changes them."""
    try:
        private_folder(folder)
        with open_private(folder / ".sites.lock") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield read_sites(folder)
    except OSError as error:
        raise OutputError(f"{error.filename or folder / SITES}: cannot be written: {error.strerror}") from None


def _give_key(folder: Path, site: str, sites: dict[str, str], target: Path, outgoing: Outgoing | None) -> Path:
    secret, public = make_key()
    private_folder(target.parent)
    _write_outgoing(folder, site, outgoing)
    write_private(target, secret + "\n")
    write_json(folder / SITES, {**sites, site: public})
    _note(folder, site, {"enrolled": _now(), "revoked": None})
    return target


def _enrolled_key(site: str, sites: Mapping[str, str]) -> str:
    if site not in sites:
        raise UsageError(f"{site!r} is not enrolled; enrolled are: {', '.join(sorted(sites)) or 'none'}")
    return sites[site]


def seed_of(folder: Path, site: str) -> Path:
    return folder / "seeds" / f"{site}.nk"


def token_of(folder: Path, site: str) -> Path:
    return folder / "seeds" / f"{site}.token"


def read_sites(folder: Path) -> dict[str, str]:
    path = folder / SITES
    with os_errors(f"{path}: cannot be read", UsageError):
        content = read_json(path)
        if content is None and not path.exists():
            return {}
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content.values()):
        raise UsageError(f"{path}: damaged; restore it, or remove it and enroll the sites again")
    return {check_site(site): key for site, key in content.items()}


class Outgoing(NamedTuple):
    key: str
    until: float  # seconds since 1970


def read_outgoing(folder: Path, now: float) -> dict[str, Outgoing]:
    """Return the keys that were replaced and are accepted for a while, by site."""
    found = {}
    for site, entry in _tables(folder / OUTGOING).items():
        key, until = entry.get("key"), entry.get("until")
        if isinstance(key, str) and isinstance(until, int | float) and until > now:
            found[site] = Outgoing(key, float(until))
    return found


def _write_outgoing(folder: Path, site: str, entry: Outgoing | None) -> None:
    """Note which older key of a site is accepted for a while; None: none is."""
    kept = {**read_outgoing(folder, time.time()), site: entry}
    if entry is not None or (folder / OUTGOING).exists():
        write_json(folder / OUTGOING, {name: each._asdict() for name, each in kept.items() if each is not None})


class Enrolment(NamedTuple):
    """A site that is enrolled or was revoked; times as text, None where they are not known."""

    site: str
    enrolled: str | None
    revoked: str | None
    key: str | None  # the public half of the key that counts now


def list_sites(folder: Path) -> list[Enrolment]:
    """Return all sites that are enrolled or were revoked, by name. Sites of older versions have no times."""
    sites, history = read_sites(folder), _history(folder)
    found = []
    for site in sorted({*sites, *history}):
        times = history.get(site, {})
        revoked = None if site in sites else times.get("revoked")
        if site in sites or revoked is not None:
            found.append(Enrolment(site, times.get("enrolled"), revoked, sites.get(site)))
    return found


def _history(folder: Path) -> dict[str, dict[str, str | None]]:
    return _tables(folder / HISTORY)


def _note(folder: Path, site: str, times: dict[str, str | None]) -> None:
    write_json(folder / HISTORY, {**_history(folder), site: times}, durable=False)


def _now() -> str:
    return iso_time(time.time_ns() // SECOND * SECOND)


def hub_key(folder: Path) -> tuple[Path, str]:
    """Return the file with the hub's secret key, and the public key; the pair is created at the first start."""
    path = folder / HUB_SEED
    if not path.exists():
        private_folder(folder)
        write_private(path, make_key()[0] + "\n")
    return path, public_key(path)


def accounts(hub: str, sites: Mapping[str, str] | None, outgoing: Mapping[str, str] = NO_KEYS) -> dict[str, Any]:
    """Return the accounts of a broker's configuration: the hub with all permissions, each site with its own few.

    A site may have a second key, an `outgoing` one. Without sites no key is needed: every client is in the hub's
    account, as the user `ANYONE`.
    """
    users: list[dict[str, Any]] = [{"nkey": hub}]
    if sites is None:
        users.append({"user": ANYONE, "password": secrets.token_hex(16)})
    ours = {
        "jetstream": {"max_streams": 1},  # the queue, which has a limit of its own
        "users": users,
        "exports": [{"service": CHUNKS}, {"service": QUESTIONS}, {"stream": "superhosts.to.*"}],
    }
    keys = {site: [key, *filter(None, [outgoing.get(site)])] for site, key in sorted((sites or {}).items())}
    return {HUB: ours, **{f"site-{site}": _account(site, of_site) for site, of_site in keys.items()}}


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


def private_folder(folder: Path) -> None:
    """Create a folder that only its owner can access; leave an existing one as it is."""
    if not folder.is_dir():
        private_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
        folder.chmod(0o700)  # whatever the umask


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
        ca = None if reach.ca is None else reach.ca.read_text("ascii")
    except OSError as error:
        raise UsageError(f"{reach.ca}: cannot be read: {error.strerror}") from None
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


def _tables(path: Path) -> dict[str, Any]:
    """Return the tables of a file, by site."""
    return {site: entry for site, entry in _table(read_json(path)).items() if isinstance(entry, dict)}
