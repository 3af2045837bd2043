"""What every kind of traffic offers to the pipeline, and the counters that it keeps.

A source yields blocks of packets (`pairs.PacketBlock`), in reading order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from superhosts.errors import InputError
from superhosts.pairs import PacketBlock

LAST_WARNINGS = 20


@dataclass
class SourceCounters:
    """Everything that passed, and everything that did not become a packet with two addresses."""

    packets: int = 0
    ipv4: int = 0
    ipv6: int = 0
    not_ip: int = 0  # ARP, LLDP, ... : whole frames that carry no IP header
    cut: int = 0  # cut so short (snaplen, damage) that the addresses are missing
    unsupported_link: int = 0  # of an interface whose kind of frames cannot be read
    warnings: list[str] = field(default_factory=list)  # for the user; those that are passed on: the last few

    def __post_init__(self) -> None:
        self.on_warning: Callable[[str], None] | None = None  # called by the thread that reads

    def count(self, block: PacketBlock) -> None:
        """Count a block whose packets all have their addresses."""
        for batch in block:
            self.packets += len(batch)
            if batch.family == 4:
                self.ipv4 += len(batch)
            else:
                self.ipv6 += len(batch)

    def warn(self, text: str) -> None:
        """Note a warning; pass it on where somebody takes it, and keep only the last few: some inputs never end."""
        self.warnings.append(text)
        if self.on_warning is not None:
            self.on_warning(text)
            del self.warnings[:-LAST_WARNINGS]


class Source(Protocol):
    """One input: a capture file, a pipe, a folder that is followed, synthetic traffic."""

    name: str
    counters: SourceCounters
    replays: bool = True  # the next run can read it again, from its beginning
    live: bool = False  # it waits for traffic that has not happened yet

    def first_time(self) -> int | None:
        """Time of the first packet in nanoseconds, None for an empty input. Reads nothing that is then lost."""

    def blocks(self) -> Iterator[PacketBlock]:
        """Yield the traffic, once."""

    def position(self) -> int:
        """Bytes of the input consumed so far, for the progress bar."""

    def size(self) -> int | None:
        """Bytes of the whole input where that is known."""

    def again(self) -> Source:
        """Return the input anew, to be read a second time; only for what `replays` and is not live."""
        raise InputError("cannot be read a second time", file=self.name)

    def waits(self) -> bool:
        """Return True if all there is has been read, and the reader waits for more. Only live inputs do."""
        return False

    def stop(self) -> None:
        """End the reading soon. May be called by a signal handler: it only sets a flag."""
        return

    def identity(self) -> str | None:
        """Return what a file is known by in later runs; None for what is not a file or has no packet."""
        return None

    def finished(self) -> dict[str, tuple[int, int]]:
        """Files read to their end so far: identity → first and last time."""
        return {}
