"""From options to the sending end of a link: a folder, an object store, or a NATS server.

The NATS client is an optional package, so `_nats.py` is imported only when a link over NATS is asked for.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from superhosts.cli._console import tell
from superhosts.cli._options import LinkOptions
from superhosts.cli._service import in_background
from superhosts.fleet.filelink import FileSender
from superhosts.fleet.filestore import FileStore, ObjectStore
from superhosts.fleet.link import LinkSender
from superhosts.fleet.spool import Spool
from superhosts.sources.files import is_url

if TYPE_CHECKING:
    from superhosts.cli._nats import NatsOptions


def connect_to(url: str, link: LinkOptions, *, up: bool = False) -> NatsOptions:
    """Return checked options of a NATS server; `up` is True for that of an upstream hub."""
    from superhosts.cli._nats import link_options

    return link_options(url, link, up=up)


def find_place(where: str, option: str) -> Path | FileStore:
    """Return the folder or the object store that an option names."""
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
    from superhosts.cli._nats import NatsSender

    return NatsSender(connection, site, tell)


@contextmanager
def sending(sender: LinkSender, spool: Spool) -> Iterator[None]:
    """Run a sender in a background thread, and stop it at the end."""
    stop = threading.Event()
    with in_background("send", lambda: sender.run(spool, stop), stop):
        yield
