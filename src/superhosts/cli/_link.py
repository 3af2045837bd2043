"""From options to the sending end of a link: a folder, an object store, or a NATS server.

The NATS client is an optional package, which is imported only when a link over NATS is asked for.

`edge --join TOKEN`: what an edge needs, from its token.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from superhosts.cli._declaration import check_no_conflict
from superhosts.cli._keys import fleet_key
from superhosts.cli._options import LinkOptions
from superhosts.cli.usage.fleet import Edge
from superhosts.core.files import exposure_warning, os_errors
from superhosts.core.hashing import check_secret
from superhosts.core.keys import VARIABLE
from superhosts.errors import UsageError, import_extra
from superhosts.fleet.filelink import FileSender
from superhosts.fleet.filestore import FileStore, ObjectStore
from superhosts.fleet.nats.credentials import LONGEST, NatsOptions, Token
from superhosts.fleet.spool import LinkSender, Spool
from superhosts.output.console import tell
from superhosts.sources.files import is_url
from superhosts.ui.service import in_background


def nats_options(url: str, link: LinkOptions, *, up: bool = False) -> NatsOptions:
    """Return checked options of a NATS server; `up` is True for that of an upstream hub."""
    options = NatsOptions(url, link.creds, link.nkey, link.tls_ca, link.tls_cert, link.tls_key, up=up)
    options.check()
    return options


def connect_to(url: str, link: LinkOptions, *, up: bool = False) -> NatsOptions:
    """Return the same, if the client is installed, and warn of secrets that others can read."""
    import_extra("the link over NATS", "fleet", "nats")
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # it warns of every TLS connection that the other side ends
    options = nats_options(url, link, up=up)
    for secret in options.secrets:
        if warning := exposure_warning(secret):
            tell(warning)
    return options


def find_place(where: str, option: str) -> Path | FileStore:
    if where.lower().startswith("file://"):
        return Path(where[len("file://") :])
    if not is_url(where):
        return Path(where)
    return ObjectStore(where, option)


def make_sender(to: str | None, connection: NatsOptions | None, site: str) -> LinkSender:
    """Return the sending end of a link by files (`to`) or over NATS."""
    if connection is None:
        assert to is not None
        return FileSender(find_place(to, "--to"), site, tell)
    from superhosts.fleet.nats.send import NatsSender

    return NatsSender(connection, site, tell)


@contextmanager
def sending(sender: LinkSender, spool: Spool) -> Iterator[None]:
    stop = threading.Event()
    with in_background("send", lambda: sender.run(spool, stop), stop):
        yield


OPTION = "--join"


@dataclass(frozen=True)
class Joining:
    token: Token
    options: Edge  # with the name of the site

    def key(self) -> bytes:
        if self.token.key is not None:
            return check_secret(self.token.key, OPTION)
        if self.options.key_file is None and not os.environ.get(VARIABLE):
            raise UsageError(f"{OPTION}: the token has no sketch key: give that of the hub with --key-file")
        return fleet_key(self.options.key_file)

    def connect(self) -> NatsOptions:
        """Return the options of the connection. A token that is replaced in its file holds from the next one on."""
        url = self.token.url if self.options.nats is None else self.options.nats
        options = connect_to(url, self.options.changed(join=None))
        token, given = self.token, str(self.options.join)

        def refreshed() -> NatsOptions:
            nonlocal token
            if given.startswith("@") and Path(given[1:]).exists():
                found = _read(given)
                if found.site != token.site:
                    raise UsageError(
                        f"{OPTION} {given}: now holds the token of {found.site}; this edge is {token.site}"
                    )
                token = found
            return replace(options, seed=token.seed, ca=token.ca)

        return replace(options, seed=token.seed, ca=token.ca, refresh=refreshed)


def join(options: Edge, say: Callable[[str], None] = tell) -> Joining | None:
    """Read the token of an edge and check the other options; None if it has no token."""
    if options.join is None:
        return None
    token = _read(options.join, say)
    says = f"not with {OPTION}: the token says how to reach the hub, and who this is"
    check_no_conflict(options, ("to", "nkey", "creds", "tls_ca"), says)
    if token.key is not None:
        check_no_conflict(options, ["key_file"], f"not with {OPTION}: the token has the sketch key")
    if options.site not in ("", token.site):
        raise UsageError(f"--site {options.site}: {OPTION} has the token of site {token.site}")
    return Joining(token, options.changed(site=token.site))


def _read(given: str, say: Callable[[str], None] = tell) -> Token:
    """Return the token that is given, or that of a file (@FILE)."""
    if not given.startswith("@"):
        return Token.decode(given, OPTION)
    path = Path(given[1:])
    with os_errors(f"{OPTION} {given}: cannot be read", UsageError), path.open("rb") as file:
        text = file.read(LONGEST + 1).decode("ascii", "replace")
    if warning := exposure_warning(path):
        say(warning)
    return Token.decode(text, f"{OPTION} {given}")
