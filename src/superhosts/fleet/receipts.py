"""What a hub says about a sketch that it was sent.

An edge keeps its copy of a sketch until the hub itself has given a receipt for it; that a broker or a folder has the
sketch is not enough.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

MERGED = "merged"  # the hub's disk has it in its window's folder; the union is computed from that folder
REFUSED = "refused"  # another key, geometry or version: sending it again would not help
RESEND = "resend"  # it did not arrive whole, or was lost on the way
MAX_REASON = 400  # characters of a reason: it may quote text made up by a site, and goes to the logs of hub and edge
MAX_SAID = 500  # characters of a reason in a log line
Say = Callable[[str], None]  # writes one line for the operator


class Receipt(NamedTuple):
    """The hub's verdict on one sketch."""

    name: str
    verdict: str
    reason: str = ""
