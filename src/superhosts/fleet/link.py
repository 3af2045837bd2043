"""What carries sketches from an edge to a hub, and what the hub says of each.

A link delivers at least once: duplicates and any order are harmless, since merging is the union. An edge keeps its
copy until the hub itself has said what became of it; that a broker or a folder has it is not enough.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from superhosts.fleet.spool import Spool

MERGED = "merged"  # it lies in its window's folder at the hub, durably: the union is a function of that folder
REFUSED = "refused"  # another key, geometry or version: sending it again would not help
RESEND = "resend"  # it did not arrive whole, or was lost on the way
REASON = 400  # characters of a reason: it may quote what a site has made up, and goes to the logs of hub and edge
Say = Callable[[str], None]  # one line for the operator
MOST_SAID = 500  # characters of a reason in such a line


class Receipt(NamedTuple):
    """The hub's word on one sketch."""

    name: str
    verdict: str
    reason: str = ""


class Sender(Protocol):
    """An edge's side of a link."""

    counters: Any  # a dataclass of numbers

    def run(self, spool: Spool, stop: threading.Event) -> None:
        """Send what waits in the spool until told to stop. A link that is down is said, and tried again."""


class Desk(Protocol):
    """Where a hub's receivers hand in what has arrived. Safe to call from several threads."""

    folder: Path  # for files that are arriving; on the file system of the hub's store

    def accept(self, path: Path, name: str, site: str) -> Receipt:
        """Take a whole file that lies in `folder`, from a site as the link knows it. OSError: not now, try again."""

    def known(self, name: str) -> Receipt | None:
        """Return what was said of a sketch before, None where it was never seen."""


class Receiver(Protocol):
    """A hub's side of a link."""

    counters: Any  # a dataclass of numbers

    def run(self, desk: Desk, stop: threading.Event, ready: Callable[[], None] = ...) -> None:
        """Receive until told to stop; call `ready` when the link works for the first time."""

    def senders(self) -> Collection[str]:
        """Return the sites that send by this link, as far as it knows them."""
