"""The sketches of windows while these are open: packets in, a sketch and its super hosts out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from superhosts.detectors.base import Detector
from superhosts.network import Network
from superhosts.pairs import PacketBatch, PairBatch, Part, Window
from superhosts.pipeline.settings import Settings
from superhosts.results import Found
from superhosts.sketches.bundle import Sketch

MakeDetector = Callable[[Part], Detector]


@dataclass
class WindowResult:
    """A window that has closed: its super hosts, its sketch, and how much went into it."""

    window: Window
    found: list[Found]
    sketch: Sketch
    packets: int
    partial: bool = False  # interrupted while it was open: more packets would have come
    revision: int = 1  # 2: yielded again, complete; the first time it lacked packets that were far out of order

    def __iter__(self) -> Iterator[Found]:
        return iter(self.found)


@dataclass
class _OpenWindow:
    """A window that still takes packets."""

    sketch: Sketch
    packets: int = 0
    pairs: dict[Part, int] = field(default_factory=dict)


class WindowBuilder:
    """Turns packets into pairs and pairs into one sketch for each window that is open.

    `make_detector` makes an empty detector for a part; without it the settings do. Without `find` only sketches are
    made, and no super hosts are looked for.
    """

    def __init__(self, settings: Settings, make_detector: MakeDetector | None = None, *, find: bool = True) -> None:
        self.skipped = 0  # packets of a family that the detector does not take
        self.network = Network(settings.inner, settings.exclude, ipv6_prefix=settings.ipv6_prefix)
        self._settings = settings
        self._make_detector = settings.make_detector if make_detector is None else make_detector
        self._find = find
        self._open: dict[int, _OpenWindow] = {}  # by start; more than one only if an older window turns up late

    @property
    def packets(self) -> int:
        """Packets of the windows that are open."""
        return sum(opened.packets for opened in self._open.values())

    def update(self, start: int, batch: PacketBatch) -> None:
        """Take packets into the window that begins at `start`, or 0 for the one window over everything."""
        opened = self._open.setdefault(start, self._new())
        for part, pairs in self._pairs(batch):
            if len(pairs):
                opened.sketch.part(part).update(pairs)
                opened.pairs[part] = opened.pairs.get(part, 0) + len(pairs)
        opened.packets += len(batch)

    def count(self, batch: PacketBatch) -> None:
        """Count packets that go into no window now."""
        for _ in self._pairs(batch):
            pass

    def close(self, start: int, window: Window) -> WindowResult:
        """Return the window that begins at `start`; an empty one if no packet came."""
        opened = self._open.pop(start, None) or self._new()
        sketch, site = opened.sketch, self._settings.site
        sketch.window = window
        sketch.entries = [
            {"site": site, "start": window.start, "end": window.end, **part._asdict(), "pairs": pairs}
            for part, pairs in opened.pairs.items()
        ]
        return WindowResult(window, self.find(sketch) if self._find else [], sketch, opened.packets)

    def clear(self) -> None:
        """Forget the windows that are open."""
        self._open.clear()

    def find(self, sketch: Sketch) -> list[Found]:
        """Return the hosts of a sketch that are asked for and monitored."""
        selection = self._settings.selection

        def monitored(part: Part, detector: Detector) -> Any:
            found = selection.ask(detector)
            return found.select(self.network.monitors(found.hosts, part))

        return selection.limit(sketch.collect(monitored))

    def _new(self) -> _OpenWindow:
        return _OpenWindow(Sketch(self._make_detector, site=self._settings.site))

    def _pairs(self, batch: PacketBatch) -> Iterator[tuple[Part, PairBatch]]:
        parts = self._settings.parts
        if all(part.family != batch.family for part in parts):
            self.skipped += len(batch)
        yield from self.network.pairs(batch, parts)
