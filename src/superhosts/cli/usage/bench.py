"""Options of `superhosts bench`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from superhosts import defaults
from superhosts.cli._options import DEVICE, FLOWS, MEMORY, PACKETS, Json


@dataclass(frozen=True)
class Bench:
    """Measure this machine: update, restore, merge and save, with the error beside the time.

    Example: superhosts bench --flows 5M --packets 50M
    """

    flows: Annotated[str, FLOWS] = "1M"
    packets: Annotated[str, PACKETS] = "10M"
    memory: Annotated[str, MEMORY] = defaults.MEMORY
    device: Annotated[str, DEVICE] = "auto"
    json: Json = False
