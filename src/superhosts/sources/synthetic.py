"""Synthetic traffic named like an input: synth:flows=100k,packets=1M,windows=3,share=0.6,part=2.

With a share only so much of the packets is seen, chosen at random, differently for each part. So places that are given
the same seed and different parts see overlapping traffic of the same flows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import numpy as np

from superhosts.errors import UsageError
from superhosts.pairs import PacketBatch
from superhosts.sources.base import Block, Source, SourceCounters
from superhosts.synthetic.traffic import SyntheticSource, Traffic
from superhosts.units import SECOND, parse_count, parse_duration

PREFIX = "synth:"


def open_synthetic(text: str) -> Source:
    """Open the traffic that a text like "synth:flows=100k,seed=2" describes."""
    values: dict[str, Any] = {}
    for item in filter(None, text.removeprefix(PREFIX).split(",")):
        word, _, value = item.partition("=")
        if word not in _WORDS:
            raise UsageError(f"{text}: {word!r} is not known; known are {', '.join(_WORDS)}")
        name, read = _WORDS[word]
        try:
            values[name] = read(value)
        except ValueError as error:  # a UsageError is one, too
            raise UsageError(f"{text}: {word}: {error}") from None
    share, part = values.pop("share", 1.0), values.pop("part", 0)
    if not 0 < share <= 1:
        raise UsageError(f"{text}: share {share:g}: above 0 and at most 1")
    if part < 0:
        raise UsageError(f"{text}: part {part}: at least 0")
    return SharedTraffic(text, Traffic(**values), share, part)


class SharedTraffic(Source):
    """Some of the packets of synthetic traffic."""

    def __init__(self, name: str, traffic: Traffic, share: float, part: int) -> None:
        self.name = name
        self.counters = SourceCounters()
        self._whole = SyntheticSource(traffic)
        self._share = share
        self._random = np.random.default_rng([traffic.seed, part])

    def first_time(self) -> int | None:
        """Time at which the first window begins."""
        return self._whole.first_time()

    def blocks(self) -> Iterator[Block]:
        """Yield the packets that are seen, once."""
        for block in self._whole.blocks():
            seen = tuple(self._choose(batch) for batch in block)
            for batch in seen:
                self.counters.packets += len(batch)
                if batch.family == 4:
                    self.counters.ipv4 += len(batch)
                else:
                    self.counters.ipv6 += len(batch)
            yield seen

    def position(self) -> int:
        """Packets made so far, seen or not."""
        return self._whole.position()

    def size(self) -> int | None:
        """Packets of all windows, seen or not."""
        return self._whole.size()

    def _choose(self, batch: PacketBatch) -> PacketBatch:
        if self._share == 1:
            return batch
        chosen = self._random.random(len(batch)) < self._share
        return PacketBatch(batch.family, batch.src[chosen], batch.dst[chosen], batch.time[chosen])


def _family(text: str) -> Any:
    return int(text) if text in ("4", "6") else text


def _seconds(text: str) -> int:
    seconds, rest = divmod(parse_duration(text), SECOND)
    if rest:
        raise UsageError("synthetic windows last whole seconds")
    return seconds


def _start(text: str) -> int:
    time = datetime.fromisoformat(text)
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp())


_WORDS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "flows": ("flows", parse_count),
    "packets": ("packets", parse_count),
    "windows": ("windows", parse_count),
    "super_hosts": ("super_hosts", parse_count),
    "seed": ("seed", int),
    "window": ("window_seconds", _seconds),
    "family": ("family", _family),
    "share": ("share", float),
    "part": ("part", int),
    "start": ("start", _start),
}
