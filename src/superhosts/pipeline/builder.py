"""The sketches of windows while these are open: packets in, a sketch and its super hosts out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from superhosts.core.device import run_parallel, thread_count
from superhosts.core.hashing import make_key, secret_of
from superhosts.core.pairs import CONTACTS, MOST_GROUPS, PacketBatch, PairBatch, Part, Window
from superhosts.core.profile import Durations
from superhosts.core.results import SuperHost, SuperHosts
from superhosts.core.text import counted
from superhosts.core.units import parse_duration
from superhosts.detectors.detector import Detector
from superhosts.errors import UsageError
from superhosts.output.report import Report, make_report, search
from superhosts.pipeline.contacts import Conversations, in_order, with_details
from superhosts.pipeline.network import LEAST_SHARE, MOST_SHARE, Network, shares_of
from superhosts.pipeline.settings import Settings
from superhosts.sketch.evidence.sample import Evidence, OpenSample
from superhosts.sketch.sketch import Sketch
from superhosts.sources.base import Sampling

if TYPE_CHECKING:
    from superhosts.sketch.evidence.patterns import Verdict

GATHERED = 1 << 17  # packets of files, for each thread, that are gathered before they are put into a sketch
MOST_GATHERED = 1 << 21  # packets, however many threads there are
GATHERED_BYTES = 104  # of an IPv6 packet that waits, and of its pairs, if both of its ends are hosts

MakeDetector = Callable[[Part], Detector]


class WindowResult(SuperHosts):
    """A window that has closed: its super hosts, its sketch, and how much went into it."""

    window: Window

    def __init__(
        self, window: Window, found: SuperHosts, sketch: Sketch, packets: int, words: Mapping[str, Any] | None = None
    ) -> None:
        vars(self).update(vars(found))
        self.window = window
        self.found = found
        self._sketch: Sketch | None = sketch
        self.packets = packets
        self.words = words or {}  # fields of its report: which hosts were asked for, and how the search has ended
        self.partial = False  # interrupted while it was open: more packets would have come
        self.drops: int | None = None  # packets that live captures have lost in this window; None: there are none
        self.revision = 1  # 2: yielded again, complete; the first time it lacked packets that were far out of order
        self.slides = False  # the window is one of those that overlap
        self.pane: Sketch | None = None  # the last pane of such a window; None: nothing came in it

    @property
    def sketch(self) -> Sketch:
        """The sketch of the window. Raises UsageError if it was freed because the next window came."""
        if self._sketch is None:
            way = "scan(…, keep_sketch=True) keeps the sketches of all windows"
            raise UsageError(f"the sketch of this window was freed when the next window came; {way}")
        return self._sketch

    @property
    def stored(self) -> Sketch | None:
        """The sketch that files and hubs get, so that every packet is in one of them: of the window, or of its pane."""
        return self.pane if self.slides else self.sketch

    def verdict(self, row: SuperHost) -> Verdict | None:
        """Return what a host's peers look like; None without evidence. The sketch must not be freed yet."""
        return self.sketch.verdict(row)

    def free_sketch(self) -> None:
        """Free the memory of the sketch, unless the caller has it elsewhere, too."""
        self._sketch = self.pane = None


class _Monitored(NamedTuple):
    sketch: Sketch
    network: Network
    parts: Sequence[Part]

    def super_hosts(self, threshold: float) -> SuperHosts:
        return self.sketch.collect(lambda part, detector: self._of(part, detector.super_hosts(threshold)), self.parts)

    def top(self, count: int) -> SuperHosts:
        return self.sketch.collect(lambda part, detector: self._of(part, detector.top(count)), self.parts)[:count]

    def _of(self, part: Part, found: SuperHosts) -> SuperHosts:
        return found.select(self.network.monitors(found.hosts, part))


@dataclass(eq=False)
class _OpenWindow:
    sketch: Sketch
    packets: int = 0
    pairs: dict[Part, int] = field(default_factory=dict)
    gathered: list[PacketBatch] = field(default_factory=list)  # counted, but not in the sketch yet
    waiting: int = 0  # packets of these
    held: int = 0  # of these, packets beyond the time that all inputs had reached when the last ones were put in order
    conversations: dict[str, Conversations] | None = None  # by group, only if it matters who opened
    groups: set[str] = field(default_factory=set)  # of its packets
    samples: dict[int, OpenSample] = field(default_factory=dict)  # by address family, only if evidence is asked for
    evidence: Evidence | None = None  # of windows that were joined with this one
    span: tuple[int, int] = (-(1 << 63), (1 << 63) - 1)  # its start and its end


class WindowBuilder:
    """Turns packets into pairs and pairs into one sketch for each window that is open.

    `gathers` packets wait before they go into a sketch, because a block alone is too small for many cores; live traffic
    needs 1. Without `find` no super hosts are looked for. `sorts`: packets of several inputs are put in order before
    they are judged. `sampling` is told the limit of the sample that was filled last, so that sources leave out details
    which no sample can take: the one feedback against the direction of the packets. `joins`: the first windows may
    become one (`join`). Of detectors that cannot be merged, a sketch of them together is filled meanwhile.
    """

    def __init__(
        self,
        settings: Settings,
        make_detector: MakeDetector | None = None,
        *,
        find: bool = True,
        gathers: int | None = None,
        sorts: bool = False,
        sampling: Sampling | None = None,
        joins: bool = False,
    ) -> None:
        self.pairs = 0  # repeats included
        self.skipped = 0  # packets of a family that the detector does not take
        self.unknown_contact = 0  # packets of which that is not known
        self.reached: int | None = None  # the time that all inputs have reached; None: their end
        self.ungrouped = 0  # packets of more groups than a window may have
        self.crowded = False  # some window had more conversations than can be told apart well
        self.network = settings.make_network()
        self.restoring = Durations()  # the search for super hosts of a window
        self.selection = settings.selection
        self._settings = settings
        self._parts, self._reported = settings.parts, settings.reported_parts
        self._make_detector = make_detector or settings.make_detector
        self._find = find
        self._threads = thread_count(settings.threads)
        self._gathers = min(GATHERED * self._threads, MOST_GATHERED) if gathers is None else gathers
        self._sorts, self._sampling = sorts, sampling
        self._gathering: _OpenWindow | None = None  # the window whose packets are gathered
        together = joins and "merge" in settings.kind.broken_laws
        self._together = Sketch(self._make_detector, site=settings.site) if together else None
        self._open: dict[int, _OpenWindow] = {}  # by start; more than one only if an older window turns up late

    @property
    def packets(self) -> int:
        return sum(opened.packets for opened in self._open.values())

    def update(self, start: int, batch: PacketBatch) -> None:
        """Take packets into the window that begins at `start`, or 0 for the one window over everything."""
        if start not in self._open:
            self._open[start] = self._new()
            if self._settings.window != "all":
                length = parse_duration(self._settings.slide or self._settings.window)
                self._open[start].span = start, start + length
        opened = self._open[start]
        if batch.group not in opened.groups and len(opened.groups) == MOST_GROUPS:
            self.ungrouped += len(batch)
            return
        opened.groups.add(batch.group)
        if self._gathering is not None and self._gathering is not opened:  # one at a time, so that memory is bounded
            self._fill(self._gathering)
        self._gathering = opened
        opened.gathered.append(batch)
        opened.packets += len(batch)
        opened.waiting += len(batch)
        if opened.waiting - opened.held >= self._gathers:
            self._fill(opened)

    def _fill(self, opened: _OpenWindow, *, whole: bool = False) -> None:
        """Put the gathered packets of a window into its sketch; `whole`: also those that others may have to precede."""
        if self._gathering is opened:
            self._gathering = None
        batches, opened.gathered = opened.gathered, []
        if self._sorts:
            batches, opened.gathered = in_order(batches, None if whole else self.reached)
        opened.waiting = opened.held = sum(map(len, opened.gathered))
        if opened.samples:
            batches = [with_details(batch) for batch in batches]
            self._sample(batches, opened.samples)
            if self._sampling is not None and 4 in opened.samples:
                self._sampling.limit = *opened.span, opened.samples[4].limit
        by_part: dict[Part, list[PairBatch]] = {}
        for part, pairs in self._pairs(batches, opened.conversations):
            if len(pairs):
                by_part.setdefault(part, []).append(pairs)
        for part, found in by_part.items():
            for twin in (part.with_contact(each) for each in CONTACTS if part.contact):
                if twin._replace(group="") in self._parts:  # so that a sketch tells "nobody answered" from "not asked"
                    opened.sketch.part(twin)
            for sketch in (opened.sketch, self._together):
                if sketch is not None:
                    sketch.part(part).update_many(found)
            opened.pairs[part] = opened.pairs.get(part, 0) + sum(map(len, found))

    def count(self, batch: PacketBatch) -> None:
        self._pairs([batch])

    def join(self, starts: Sequence[int]) -> int:
        """Make one of several open windows; return the start under which it is open."""
        first, *others = starts
        whole = self._open[first]
        self._fill(whole, whole=True)
        for opened in map(self._open.pop, others):
            self._fill(opened, whole=True)
            if self._together is None:
                whole.sketch.merge(opened.sketch)
            other = self._evidence_of(opened)
            whole.evidence = other if whole.evidence is None or other is None else whole.evidence.merged(other)
            whole.packets += opened.packets
            for part, pairs in opened.pairs.items():
                whole.pairs[part] = whole.pairs.get(part, 0) + pairs
        whole.sketch, self._together = self._together or whole.sketch, None
        return first

    def close(self, start: int, window: Window) -> WindowResult:
        """Return the window that begins at `start`; an empty one if no packet came."""
        closed = self.close_pane(start, window)
        return self.result(closed.sketch, window, closed.packets)

    def close_pane(self, start: int, window: Window) -> WindowResult:
        """Return the same without looking for its super hosts: it is a pane of windows that overlap."""
        self._together = None  # The input is longer than a window.
        opened = self._open.pop(start, None) or self._new()
        self._fill(opened, whole=True)
        sketch, site = opened.sketch, self._settings.site
        sketch.evidence = self._evidence_of(opened)
        sketch.window = window
        sketch.entries = [
            {"site": site, "start": window.start, "end": window.end, **part.fields, "pairs": pairs}
            for part, pairs in opened.pairs.items()
        ]
        return WindowResult(window, SuperHosts.none(), sketch, opened.packets)

    def result(self, sketch: Sketch, window: Window, packets: int) -> WindowResult:
        if not self._find:
            return WindowResult(window, SuperHosts.none(), sketch, packets)
        with self.restoring.measured():
            found, words = self._search(sketch)
        return WindowResult(window, found, sketch, packets, words)

    def peek(self, start: int, window: Window, *, is_pane: bool = False) -> WindowResult | None:
        """Return the window that begins at `start` as it is now, None if it is not open. It goes on as if not asked."""
        opened = self._open.get(start)
        if opened is None:
            return None
        self._fill(opened)
        if opened.samples:
            opened.sketch.evidence = self._evidence_of(opened)
        found, words = (SuperHosts.none(), {}) if is_pane else self._search(opened.sketch)
        return WindowResult(window, found, opened.sketch, opened.packets, words)

    def clear(self) -> None:
        self.count_gathered()
        self._open.clear()

    def count_gathered(self) -> None:
        """Count the packets that are gathered, and drop them: the run is over, and they go into no sketch."""
        for opened in self._open.values():
            self._pairs(opened.gathered)
            opened.gathered, opened.waiting = [], 0
        self._gathering = None

    def _search(self, sketch: Sketch) -> tuple[SuperHosts, dict[str, Any]]:
        groups = dict.fromkeys(part.group for part in sketch.parts)
        reported = [part._replace(group=group) for group in groups for part in self._reported] or self._reported
        return search(sketch, self.selection, self._settings.count, _Monitored(sketch, self.network, reported))

    def _new(self) -> _OpenWindow:
        opened = _OpenWindow(Sketch(self._make_detector, site=self._settings.site))
        if self._settings.has_contacts:
            opened.conversations = {}
        if self._settings.evidence:
            key = make_key(secret_of(self._settings.key))
            opened.samples = {f: OpenSample(f, self._settings.evidence_pairs, key) for f in self._settings.families}
        return opened

    def _sample(self, batches: Sequence[PacketBatch], samples: dict[int, OpenSample]) -> None:
        size = min(max(-(-sum(map(len, batches)) // self._threads), LEAST_SHARE), MOST_SHARE)
        counts = partial(self.network.counting, sides=tuple(dict.fromkeys(part.side for part in self._parts)))
        calls = [
            (samples[batch.family], share, counts)
            for batch in batches
            if batch.family in samples
            for share in shares_of(batch, size)
        ]
        run_parallel(OpenSample.add, calls, self._threads)

    def _evidence_of(self, opened: _OpenWindow) -> Evidence | None:
        if not opened.samples:
            return opened.evidence
        rows = {family: sample.rows(self._threads) for family, sample in opened.samples.items()}
        found = Evidence(secret_of(self._settings.key), self._settings.evidence_pairs, rows)
        return found if opened.evidence is None else found.merged(opened.evidence)

    def _pairs(
        self, batches: Sequence[PacketBatch], conversations: dict[str, Conversations] | None = None
    ) -> list[tuple[Part, PairBatch]]:
        before, found = self.network.counters.no_contact, []
        for group in dict.fromkeys(batch.group for batch in batches):
            chosen = [batch for batch in batches if batch.group == group]
            parts = [part._replace(group=group) for part in self._parts] if group else self._parts
            if conversations is not None:
                chosen = [with_details(batch) for batch in chosen]
                if group not in conversations:
                    conversations[group] = Conversations(self._settings.key)
                self.unknown_contact += conversations[group].judge(chosen)
                self.crowded |= conversations[group].is_crowded
            for batch in chosen:
                if all(part.family != batch.family for part in parts):
                    self.skipped += len(batch)
            found += self.network.pairs(chosen, parts, self._threads)
        if conversations is None:  # nobody has judged them
            self.network.counters.no_contact = before
        self.pairs += sum(len(pairs) for _, pairs in found)
        return found


def gathered_memory(threads: int) -> int:
    return min(GATHERED * threads, MOST_GATHERED) * GATHERED_BYTES


def report_of(result: WindowResult, exports: Sequence[dict[str, Any]] = ()) -> Report:
    """Return the report of a window, with what people should know about it; `exports`: the status of flow exports."""
    return make_report(
        result.window,
        result.found,
        result.words,
        result.sketch,
        partial=result.partial,
        notes=[counted(result.drops, "packet dropped", "packets dropped")] if result.drops else [],
        revision=result.revision,
        drops=result.drops,
        exports=exports,
    )
