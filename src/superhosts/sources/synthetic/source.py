"""Synthetic traffic as an input: synth:flows=100k,packets=1M,windows=3,share=0.6,part=2.

With a share, only that share of the packets is seen, chosen at random for each part. So sites with the same seed and
different parts see overlapping traffic of the same flows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import numpy as np

from superhosts.core.pairs import PacketBlock
from superhosts.core.text import named, setting
from superhosts.core.units import SECOND, parse_count, parse_duration
from superhosts.errors import UsageError
from superhosts.sources.base import Source
from superhosts.sources.synthetic.traffic import TooFewFlowsError, Traffic, packet_blocks


def open_synthetic(text: str) -> Source:
    """Open the traffic that a text like "synth:flows=100k,seed=2" describes."""
    values: dict[str, Any] = {}
    for item in filter(None, text.removeprefix("synth:").split(",")):
        word, _, value = item.partition("=")
        if word not in _WORDS:
            raise UsageError(f"{text}: unknown word {word!r}; use {', '.join(_WORDS)}")
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
    try:
        traffic = Traffic(**values)
    except TooFewFlowsError as error:
        raise UsageError(f"{text}: flows: {error}") from None
    except UsageError as error:
        raise UsageError(f"{text}: {error}") from None
    return SyntheticSource(text, traffic, share, part)


def make_traffic(**given: str | int) -> Traffic:
    """Return the traffic that words like those of an input describe, given as options."""
    values: dict[str, Any] = {}
    for word, value in given.items():
        name, read = _WORDS[word]
        try:
            values[name] = read(str(value))
        except UsageError as error:
            raise UsageError(f"{setting(word, value)}: {error}") from None
    try:
        return Traffic(**values)
    except TooFewFlowsError as error:
        raise UsageError(f"{named('flows')}: {error}") from None


class SyntheticSource(Source):
    """Synthetic traffic, of which a share of the packets is seen; its position counts packets, not bytes."""

    def __init__(self, name: str, traffic: Traffic, share: float = 1.0, part: int = 0) -> None:
        super().__init__(name)
        self._traffic = traffic
        self._share, self._part = share, part
        self._made = 0  # packets, seen or not

    def first_time(self) -> int | None:
        return self._traffic.first_window

    def _read(self) -> Iterator[PacketBlock]:
        random = np.random.default_rng([self._traffic.seed, self._part])
        for block in packet_blocks(self._traffic):
            self._made += sum(len(batch) for batch in block)
            seen = (
                block
                if self._share == 1
                else tuple(batch.take(random.random(len(batch)) < self._share) for batch in block)
            )
            yield seen

    def again(self) -> Source:
        return SyntheticSource(self.name, self._traffic, self._share, self._part)

    def position(self) -> int:
        return self._made

    def size(self) -> int | None:
        """Packets of all windows, seen or not."""
        return self._traffic.all_packets


def _family(text: str) -> Any:
    if text not in ("4", "6", "both"):
        raise UsageError("choose 4, 6 or both")
    return text if text == "both" else int(text)


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
