"""Options of `superhosts bench`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from superhosts.cli._options import DEVICE, FLOWS, MEMORY, PACKETS, JsonObject, worded
from superhosts.core import defaults


@dataclass(frozen=True)
class Bench:
    """Measure this machine: update, restore, merge and save, with the error beside the time.

    A table in the end says where the time of one more update and restore went, by stage and thread.

    Example: superhosts bench --flows 5M --packets 50M
    """

    flows: Annotated[str, worded(FLOWS, "Distinct (host, peer) pairs to measure with, like 5M.")] = "1M"
    packets: Annotated[str, worded(PACKETS, "Packets to measure with, repeats included.")] = "10M"
    memory: Annotated[str, worded(MEMORY, "Memory of the cube.")] = defaults.MEMORY
    device: Annotated[str, DEVICE] = "auto"
    json: JsonObject = False
