"""What carries sketches from an edge to a hub: the interfaces of a link's two ends.

A link delivers at least once. Duplicates and any order are harmless, since merging is the union.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Protocol

from superhosts.fleet.receipts import Receipt
from superhosts.fleet.spool import Spool


class Sender(Protocol):
    """An edge's end of a link."""

    counters: Any  # a dataclass of numbers

    def run(self, spool: Spool, stop: threading.Event) -> None:
        """Send what waits in the spool until told to stop. Reports a broken link and retries."""


class Acceptor(Protocol):
    """Takes the sketches that a hub's receivers have received. Safe to call from several threads."""

    folder: Path  # for files that are arriving; on the file system of the hub's store

    def accept(self, path: Path, name: str, site: str) -> Receipt:
        """Take a complete file in `folder`, sent by a site that the link has identified. OSError: try again later."""

    def known(self, name: str) -> Receipt | None:
        """Return the earlier receipt for a sketch; None if it was never seen."""


class Receiver(Protocol):
    """A hub's end of a link."""

    counters: Any  # a dataclass of numbers

    def run(self, acceptor: Acceptor, stop: threading.Event, ready: Callable[[], None] = ...) -> None:
        """Receive until told to stop; call `ready` when the link works for the first time."""

    def senders(self) -> Collection[str]:
        """Return the sites that send over this link, as far as it knows them."""

    def earlier(self) -> Mapping[str, int] | None:
        """Return what is left of what waited when the hub started, with its bytes; None: not known yet."""
