"""A run over inputs: sources → windows → pairs → detectors → super hosts, with its counters.

Inputs are ordered by their first packet and read side by side where they overlap in time (`interleaver.py`; live ones:
`Following` in `sources/readers.py`), so that any order and any split of a capture gives the same result.

A sensor that runs for months sets a `grace`: live inputs do not wait for each other, a clock closes windows when
traffic stops or is slow, and empty windows are yielded, too, as a sign of life. A scan of pipes has the same clock.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

import numpy as np

from superhosts.core import defaults
from superhosts.core.pairs import MOST_GROUPS, PacketBatch, Window
from superhosts.core.profile import Durations
from superhosts.core.text import counted, printable, setting
from superhosts.core.units import SECOND, format_size, parse_duration, parse_size
from superhosts.detectors.detector import Detector
from superhosts.errors import InputError, OutputError, SuperhostsError, UsageError
from superhosts.pipeline.builder import MakeDetector, WindowBuilder, WindowResult
from superhosts.pipeline.contacts import with_details
from superhosts.pipeline.interleaver import Interleaver
from superhosts.pipeline.network import Counters as Counters
from superhosts.pipeline.rehearsal import rehearse
from superhosts.pipeline.settings import Settings, settings_of
from superhosts.pipeline.sliding import SlidingAhead, SlidingPanes
from superhosts.pipeline.windows import LIMITS, Event, Jump, Limits, Piece, PutOff, TumblingWindows, split_by_window
from superhosts.sources.base import PACE, Pace, Source, Stopped, input_border
from superhosts.sources.open import open_inputs
from superhosts.sources.readers import Clock, Following, Step
from superhosts.sources.tables.mapping import as_map
from superhosts.sources.tables.options import TableOptions

Name = str | Path
GRACE = parse_duration(defaults.GRACE) / SECOND


class RunOptions(NamedTuple):
    """How a run treats time and its end; what it looks for is in `Settings`.

    With a grace a window may also come twice: files open windows again as with `reopens`, and live inputs do after a
    clock was set back, which `Scan.on_jump` reports. With `clock_only` neither happens: the clock closes windows of
    live inputs, none of them empty, and inputs wait for each other for the grace.
    """

    grace: float | None = None  # seconds after which the clock closes windows of live inputs
    clock_only: bool = False  # not a sensor that runs for months: packets in order of time matter more than speed
    resume_from: int | None = None  # windows that end at or before this time are done
    find: bool = True  # look for super hosts in each window; without it only sketches are made
    reopens: bool = False  # late packets open their window again, which then comes twice: its sketches are to be merged
    revises: bool = False  # windows that lack late packets are read again in the end and yielded whole (files only)
    joins_short: bool = False  # inputs that end, and are together shorter than a window, are one window
    keeps_sketches: bool = True  # or a window's sketch is freed when the next window comes
    leaves_open: bool = True  # a stop leaves open windows to the next run if all inputs can be read again
    clock: Clock = time.monotonic  # any steady one, in seconds
    wall: Callable[[], int] = time.time_ns  # this machine's time, in nanoseconds since the epoch
    pace: Pace = PACE
    limits: Limits = LIMITS

    @property
    def is_sensor(self) -> bool:
        """True for a sensor: it yields empty windows, too, and follows the packets' clock when that is set."""
        return self.grace is not None and not self.clock_only


def scan_options(
    sources: Sequence[Source],
    settings: Settings,
    *,
    joins_short: bool,
    grace: float = GRACE,
    keeps_sketches: bool = True,
) -> RunOptions:
    """Return the options of a scan: a clock closes windows of pipes; files are read twice if need be, or joined.

    Joining takes the sketches of two windows at once, so not under a limit of memory; who opened is decided by window.
    """
    live = any(source.live for source in sources)
    can_join = settings.memory_total is None and not settings.has_contacts
    return RunOptions(
        grace=grace if live and settings.window != "all" else None,
        clock_only=True,
        revises=True,
        keeps_sketches=keeps_sketches,
        joins_short=joins_short and can_join and not live and settings.window != "all",
    )


CROWDED = "too many conversations in one window: some requests may be counted as replies; use a shorter --window"
UNGROUPED = f"a window had more than {MOST_GROUPS} groups: packets of those that came later are NOT COUNTED"
GAPS = 12  # most empty windows yielded for a gap, which may last years: a hub forgets a site after as many silent ones


class Results:
    """The windows of a run. Any number of threads may ask for the next one; each window goes to one of them.

    Unless `keeps`, the sketch of a thread's window is freed when that thread gets the next one.
    """

    def __init__(self, results: Generator[WindowResult, None, None], *, keeps: bool = True) -> None:
        self._results = results
        self._lock = threading.Lock()
        self._keeps = keeps
        self._last = threading.local()  # .window: the window that this thread got last, weakly

    def __iter__(self) -> Results:
        return self

    def __next__(self) -> WindowResult:
        with self._lock:
            window = next(self._results)
        if not self._keeps:
            last = getattr(self._last, "window", lambda: None)()
            if last is not None:
                last.free_sketch()
            self._last.window = weakref.ref(window)
        return window

    def close(self) -> None:
        """End the run and its readers, once no thread waits for a window."""
        with self._lock:
            self._results.close()


_COLUMNS = ("src", "dst", "time", "details")


class SecondPass:
    """Collects whole windows, those in `wanted`, from inputs in any order.

    The sketch of a window that has closed was yielded, so files with packets far out of order are read a second time
    for those windows alone. Their packets wait in memory and, beyond a limit, in a temporary file.
    """

    def __init__(self, length: int, wanted: Iterable[int], limits: Limits = LIMITS) -> None:
        self._length = length
        self._wanted = np.asarray(sorted(wanted), np.int64)
        self._limits = limits
        self._held: dict[int, list[PacketBatch]] = {}  # packets by window, in memory
        self._count = self._pieces = 0  # of these
        self._stored: dict[int, list[tuple[int, str, int]]] = {}  # by window: family, group and place in the file
        self._file: IO[bytes] | None = None

    def read(self, source: Source, stopped: Callable[[], bool]) -> None:
        """Read an input. Damage ends it silently: the first reading has reported it."""
        with contextlib.suppress(InputError), input_border(source.name):
            for batch in (batch for block in source.blocks() for batch in block):
                if stopped():
                    return
                keep = np.isin(batch.time // self._length, self._wanted)
                for index, piece in split_by_window(batch.take(keep), self._length):
                    self._hold(index, piece)

    def windows(self) -> Iterator[tuple[int, Iterator[PacketBatch]]]:
        for index in sorted(self._held.keys() | self._stored.keys()):
            yield index, self._take(index)

    def close(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):  # what a full disk did not take is not needed
                self._file.close()

    def _hold(self, index: int, piece: PacketBatch) -> None:
        self._held.setdefault(index, []).append(piece)
        self._count += len(piece)
        self._pieces += 1
        if self._count > self._limits.packets or self._pieces > self._limits.pieces:
            self._store()

    def _store(self) -> None:
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="superhosts-")  # noqa: SIM115  closed by `close`
            file = self._file
            for index, pieces in self._held.items():
                for kind in sorted({(piece.family, piece.group) for piece in pieces}):
                    self._stored.setdefault(index, []).append((*kind, file.tell()))
                    chosen = [with_details(piece) for piece in pieces if (piece.family, piece.group) == kind]
                    for name in _COLUMNS:
                        np.save(file, np.concatenate([getattr(piece, name) for piece in chosen]), allow_pickle=False)
            file.flush()  # a full disk shows here, and not when the packets are read
        except OSError as error:
            way = f"{error.strerror}; TMPDIR names another folder"
            raise OutputError(f"{tempfile.gettempdir()}: a temporary file cannot be written: {way}") from None
        self._held, self._count, self._pieces = {}, 0, 0

    def _take(self, index: int) -> Iterator[PacketBatch]:
        for family, group, place in self._stored.pop(index, []):
            assert self._file is not None
            self._file.seek(place)
            src, dst, time, details = (np.load(self._file, allow_pickle=False) for _ in _COLUMNS)
            yield PacketBatch(family, src, dst, time, details=details, group=group)
        yield from self._held.pop(index, [])


class Scan:
    """One run over inputs. Iterating over it yields the windows; `counters` has the packets read so far, by kind.

    Any thread may call it at any time; threads that iterate share the windows. Leaving a loop ends the readers: keep
    the iterator (`windows = iter(run)`) to go on later. With `reopen`, another loop reads the inputs again and counts
    anew, or raises UsageError if one of them can be read only once. Without, a run that has ended yields no more
    windows, and one that was left raises UsageError.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        settings: Settings,
        options: RunOptions | None = None,
        *,
        make_detector: MakeDetector | None = None,
        on_error: Callable[[SuperhostsError], None] | None = None,
        on_progress: Callable[[int, int], None] | None = None,
        reopen: Callable[[], Sequence[Source]] | None = None,
    ) -> None:
        """Prepare a run. `make_detector` makes an empty detector for a part, in place of the settings.

        An input that fails goes to `on_error` where that is given, and the rest goes on. `on_progress` is told the
        bytes and packets read so far. `reopen` opens the same inputs again.
        """
        options = RunOptions() if options is None else options
        if settings.window == "all" and (options.grace is not None or options.resume_from is not None):
            way = "it ends with the input, and never by a clock; write it like 5m"
            raise UsageError(f"{setting('window', 'all')}: {way}")
        self.settings = settings
        self._options = options
        self._make_detector = make_detector
        self._on_error = on_error
        self._on_progress = on_progress
        self._reopen = reopen
        self.on_jump: Callable[[Jump], None] | None = None
        self.on_window: Callable[[WindowResult], None] | None = None  # told each window before it is yielded
        self._lock = threading.RLock()  # over the windows that are open; never held while an input is read
        self._running: weakref.ref[Results] | None = None  # weak: leaving a loop ends the readers
        self._prepare(sources)

    def _prepare(self, sources: Sequence[Source]) -> None:
        settings, options = self.settings, self._options
        self.sources = list(sources)
        sampling, one_window = settings.sampling, settings.window == "all"
        wants = settings.wants._replace(sampling=sampling, threads=settings.threads, one_window=one_window)
        for source in self.sources:
            source.want(wants)
        self._stopping = False
        # A folder or an interface may be empty for a long time: it cannot be asked for its first packet like a file.
        timed, live = options.grace is not None, any(source.live for source in self.sources)
        self._follows = any(source.live and (timed or source.replays or source.loses) for source in self.sources)
        slides = settings.slides and options.find  # or the windows are its panes
        gaps = GAPS if options.is_sensor else settings.panes - 1 if slides else 0  # panes in which nothing came
        self._windows = TumblingWindows(
            None if settings.window == "all" else parse_duration(settings.slide or settings.window),
            resume_from=options.resume_from,
            gaps=gaps if self._follows else 0,
            reopens=options.reopens or (timed and not self._follows),
            revises=options.revises and all(source.replays and not source.live for source in self.sources),
            wall=options.wall if self._follows and options.is_sensor else None,
            joins=options.joins_short,
            limits=options.limits,
        )
        self._builder = WindowBuilder(
            settings,
            self._make_detector,
            find=options.find,
            gathers=1 if live else None,
            sorts=settings.has_contacts and len(self.sources) > 1,
            sampling=sampling,
            joins=options.joins_short,
        )
        self._sliding = self._slide(self._builder) if slides else None
        self._ahead = SlidingAhead(self._sliding) if self._sliding is not None and not live else None
        self._last_pane: int | None = None
        self._following: Following | None = None
        self._interleaver: Interleaver | None = None
        self._revised = 0
        self._taken = 0  # packets that the windows have got
        self._has_begun = False
        self._is_prepared = self._is_over = False  # the run can begin, and has come to its end

    def _slide(self, builder: WindowBuilder) -> SlidingPanes:
        lengths = parse_duration(self.settings.window), parse_duration(self.settings.slide)
        keeps_all = self._options.is_sensor or any(source.live for source in self.sources)
        return SlidingPanes(*lengths, builder.result, keeps_all=keeps_all)

    def __repr__(self) -> str:
        settings = self.settings
        names = [printable(source.name) for source in self.sources]
        inputs = names[0] if len(names) == 1 else counted(len(names), "input")
        with self._lock:
            state = "read" if self._is_over else "begun" if self._has_begun else "not begun"
            packets, pairs = self._taken, self._builder.pairs
        reached = f" ({counted(packets, 'packet')}, {counted(pairs, 'pair')})" if self._has_begun else ""
        memory = settings.geometry or format_size(parse_size(settings.memory))
        slide = f" by {settings.slide}" if settings.slides else ""
        words = [inputs, f"window {settings.window}{slide}", f"{settings.kind.name} {memory}", settings.device]
        return f"<Scan: {', '.join(words)}; {state}{reached}>"

    @property
    def counters(self) -> Counters:
        """Return the present counters."""
        with self._lock:
            total = Counters(late=self._windows.late, stray=self._windows.stray, skipped_family=self._builder.skipped)
            total.ungrouped = self._builder.ungrouped
            total.repeated, total.revised = self._windows.repeated, self._revised
            total.unrevised = len(self._windows.put_off)
            total.skipped_windows = 0 if self._sliding is None else self._sliding.skipped
        for source in self.sources if self._interleaver is None else self._interleaver.begun():
            total.add(source.counters)
        if self._stopping:
            total.unused = total.ipv4 + total.ipv6 - total.repeats - self._taken
        total.pairs = self._builder.pairs
        total.add(self._builder.network.counters)
        # Packets of which it is not known whether they open or answer do neither.
        unknown = min(self._builder.unknown_contact, total.no_contact)
        total.no_contact -= unknown
        total.unknown_details += unknown
        if self._builder.crowded:
            total.warnings.append(CROWDED)
        if total.ungrouped:
            total.warnings.append(UNGROUPED)
        total.outside = self._builder.network.outside.most_seen()
        return total

    @property
    def restoring(self) -> Durations:
        """How long the search for the super hosts of a window took."""
        return self._builder.restoring

    def select(self, threshold: float | None, top: int | None) -> None:
        """Report other hosts, from the next window on that is searched for them."""
        self.settings = replace(self.settings, threshold=threshold, top=top)
        self._builder.selection = self.settings.selection

    def stop(self) -> None:
        """End the iteration within a second. May be called by a signal handler or another thread.

        Windows that are open are yielded as they are, marked as partial, unless they are left to the next run.
        """
        self._stopping = True
        for source in self.sources:
            source.stop()

    def prepare(self, *, saves: bool = False, merges: bool = False) -> bool:
        """Load or compile all loops, and then open what receives live traffic; `saves` and `merges`: sketches.

        Return False if the run was stopped before it received anything: it is over.
        """
        if self._is_prepared:
            return not self._is_over
        self._is_prepared = True
        how = {"find": self._options.find, "saves": saves, "merges": merges}
        rehearse(self.settings, self._make_detector, sources=self.sources, **how)
        if self._stopping:
            self._is_over = True
            return False
        for source in self.sources:
            if not self._stopping:
                with contextlib.suppress(SuperhostsError):  # The thread that reads it will tell.
                    source.open()
        return True

    def open_window(self) -> Window | None:
        """Return the earliest open window: what a crash would lose of input that cannot be read again."""
        with self._lock:
            return self._windows.earliest()

    def peek(self) -> WindowResult | None:
        """Return the earliest open window as it is now, if any. Only for `on_progress`; its sketch must not be kept."""
        window, sliding = self.open_window(), self._sliding
        if window is None:
            return None
        if self._ahead is not None:
            self._ahead.wait()
        found = self._builder.peek(self._start_of(window), window, is_pane=sliding is not None)
        return found if sliding is None or found is None else sliding.peek(found)

    def pending(self) -> int:
        """Return the packets that are in no window that was yielded: their windows are open, or not open yet."""
        with self._lock:
            return self._windows.waiting + self._builder.packets

    def __iter__(self) -> Results:
        with self._lock:
            running = None if self._running is None else self._running()
            if running is None:
                if self._has_begun and self._reopen is not None:
                    for source in self.sources:
                        if source.live or not source.replays:
                            way = "keep its windows (windows = list(run)) to use them again"
                            raise UsageError(f"{source.name}: was read, and can be read only once; {way}")
                    self._prepare(self._reopen())
                elif self._has_begun and not self._is_over:
                    raise UsageError(
                        "this scan was left before its end or has failed, and reads its inputs once: keep its iterator "
                        "(windows = iter(run)) to go on later, or scan again"
                    )
                running = Results(self._run(), keeps=self._options.keeps_sketches)
                self._running = weakref.ref(running)
            return running

    def _run(self) -> Generator[WindowResult, None, None]:
        if self._is_over:
            return
        self._has_begun = True
        try:
            for result in self._results():
                if self.on_window is not None:
                    self.on_window(result)
                yield result
                del result  # frees its cubes while the next window's are made
            self._is_over = True
        finally:
            self._running = None  # even if the iterator is kept
            if self._ahead is not None:
                self._ahead.close()
            if self._sliding is not None:
                self._sliding.clear()  # The scan may live on, and shall not keep the panes.
            self._builder.count_gathered()  # after an error, or if the loop was left
            for source in self.sources:
                source.leave()

    def _results(self) -> Iterator[WindowResult]:
        if any(source.receives for source in self.sources) and not self.prepare():
            return
        try:
            for events in self._read():
                for event in self._each(events):
                    yield from self._handle(event)
                if self._ahead is not None:
                    yield from self._shown(self._ahead.done())
                if self._on_progress is not None:
                    self._on_progress(*self._reached())
        except SuperhostsError:
            yield from self._stop_ahead()
            raise
        yield from self._stop_ahead()
        interrupted = self._stopping
        if interrupted and self._options.leaves_open and all(source.replays for source in self.sources):
            self._builder.clear()
            return
        if interrupted:
            for event in self._each(self._windows.split()):
                yield from self._handle(event)
        for event in self._each(self._windows.finish()):
            for result in self._handle(event):
                result.partial = interrupted
                yield result
                del result  # its cubes, while the next window's are made
        if self._windows.put_off and not interrupted:
            yield from self._revise()

    def _stop_ahead(self) -> Iterator[WindowResult]:
        """Yield the window that is being made; the others are made when they are asked for."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            with contextlib.closing(ahead):
                yield from self._shown(ahead.finish())

    def _shown(self, windows: Iterator[WindowResult]) -> Iterator[WindowResult]:
        """Yield the windows with packets, or all for a sensor, which shows that it is alive."""
        return (window for window in windows if window.packets or self._options.is_sensor)

    def _read(self) -> Iterator[Iterator[Event]]:
        options, limit = self._options, self._options.limits.packets // 2
        common: dict[str, Any] = {"attempt": self._try, "stopped": lambda: self._stopping, "pace": options.pace}
        steps: Iterable[Step]
        if self._follows:
            # If many packets wait for their windows, inputs wait for each other.
            is_full = (lambda: self._windows.waiting > limit) if options.clock_only else None
            steps = self._following = Following(
                self.sources,
                grace=options.grace,
                clock=options.clock,
                horizon=self._windows.horizon,
                is_full=is_full,
                **common,
            )
        else:
            steps = self._interleaver = Interleaver(self.sources, threads=self.settings.threads, **common)
        for step in steps:
            if step.begins is not None:
                with self._lock:
                    self._windows.expect(*step.begins)
            self._taken += sum(map(len, step.block))
            self._builder.reached = step.watermark
            yield self._windows.push(step.block, step.watermark)
            if step.clock is not None:
                yield self._windows.tick(step.clock)

    def _reached(self) -> tuple[int, int]:
        if self._interleaver is not None:
            return self._interleaver.reached()
        packets = sum(source.counters.packets for source in self.sources)
        return sum(source.position() for source in self.sources), packets

    def _each(self, events: Iterator[Event]) -> Iterator[Event]:
        """Yield events, each produced under the lock, so that other threads never see half a change of the windows."""
        while True:
            with self._lock:
                event = next(events, None)
            if event is None:
                return
            yield event

    def _handle(self, event: Event) -> Iterator[WindowResult]:
        if isinstance(event, Piece):
            self._builder.update(self._start_of(event.window), event.batch)
        elif isinstance(event, PutOff):
            self._builder.count(event.batch)  # counted now, and not when they are read again
        elif isinstance(event, Jump):
            if self._following is not None:
                self._following.forget_clock()
            if self._sliding is not None:
                self._sliding.clear()
            if self.on_jump is not None:
                self.on_jump(event)
        else:
            start = self._builder.join(event.starts) if event.starts else self._start_of(event.window)
            if self._sliding is None:
                result = self._builder.close(start, event.window)
                result.drops = self._drops(event.window)
                yield result
                return
            pane = self._builder.close_pane(start, event.window)
            self._last_pane = event.window.start // (event.window.end - event.window.start)
            pane.drops = self._drops(event.window)
            yield from self._shown((self._ahead or self._sliding).add(pane))

    def _drops(self, window: Window) -> int | None:
        if self._windows.length is None and any(source.loses for source in self.sources):
            return sum(source.counters.drops for source in self.sources)
        lost = [packets for source in self.sources if (packets := source.lost(*window)) is not None]
        return sum(lost) if lost else None

    def _start_of(self, window: Window) -> int:
        return 0 if self._windows.length is None else window.start  # the one window over everything grows

    def _try(self, call: Callable[[], Any]) -> Any:
        """Call for an input. A failure goes to `on_error` and drops the input; without `on_error` it ends the scan."""
        try:
            return call()
        except Stopped:
            return None
        except SuperhostsError as error:
            if self._on_error is None:
                raise
            self._on_error(error)
            return None

    # The second reading

    def _revise(self) -> Iterator[WindowResult]:
        assert self._windows.length is not None
        length, panes = self._windows.length, self.settings.panes if self._sliding is not None else 1
        late = dict(self._windows.put_off)
        # All is counted already. If it matters who opened, a window is put in order as a whole: its packets come file
        # by file.
        sorts = self.settings.has_contacts
        gathers = 1 << 62 if sorts else None
        builder = WindowBuilder(
            self.settings, self._make_detector, find=self._options.find, gathers=gathers, sorts=sorts
        )
        sliding = None if self._sliding is None else self._slide(builder)
        wanted = {near for index in late for near in range(index - panes + 1, index + panes)}
        with contextlib.closing(SecondPass(length, wanted, self._options.limits)) as second:
            if not all(self._try(partial(self._read_again, source, second)) for source in self.sources):
                return
            for index, batches in second.windows():
                window = Window(index * length, (index + 1) * length)
                for batch in batches:
                    builder.update(window.start, batch)
                if sliding is None:
                    results = iter([builder.close(window.start, window)])
                else:
                    results = sliding.add(builder.close_pane(window.start, window))
                yield from self._revised_ones(results, late, panes)
                if index in late:
                    self._windows.was_read_again(index)
                if self._stopping:
                    return
        if sliding is not None and self._last_pane is not None:
            yield from self._revised_ones(sliding.advance(self._last_pane + 1), late, panes)

    def _revised_ones(
        self, results: Iterator[WindowResult], late: dict[int, int], panes: int
    ) -> Iterator[WindowResult]:
        """Yield the windows that lacked packets, of which `late` has the number for each pane, as their revision."""
        assert self._windows.length is not None
        for result in results:
            last = result.window.end // self._windows.length - 1
            lacked = sum(late.get(index, 0) for index in range(last - panes + 1, last + 1))
            was_skipped = self._sliding is not None and self._sliding.was_skipped(last)
            if lacked or was_skipped:
                result.revision = 1 if result.packets <= lacked or was_skipped else 2  # 1: it was not reported before
                self._revised += result.revision > 1
                yield result
            del result

    def _read_again(self, source: Source, second: SecondPass) -> bool:
        with input_border(source.name):
            again = source.again()
        second.read(again, lambda: self._stopping)
        if not self._stopping and again.counters.packets != source.counters.packets:
            raise InputError("changed between two readings", file=source.name)
        return not self._stopping


def scan(
    inputs: Name | Sequence[Name],
    *,
    inner: str | Sequence[str] = (),
    exclude: str | Sequence[str] = (),
    watch: str | Sequence[str] = "inner",
    direction: str | Sequence[str] = "any",
    threshold: float | None = None,
    top: int | None = None,
    window: str | None = None,
    slide: str = "",
    detector: str | type[Detector] = "cube",
    memory: str | int = defaults.MEMORY,
    geometry: str = "",
    exact: bool | Literal["on", "off"] | None = None,
    memory_total: str | int | None = None,
    special: str = defaults.SPECIAL,
    ipv4_prefix: int = defaults.IPV4_PREFIX,
    ipv6_prefix: int = defaults.IPV6_PREFIX,
    key: bytes | str | None = None,
    site: str = "",
    device: str = "auto",
    threads: int | None = None,
    peers: str | Sequence[str] = (),
    count: str = "hosts",
    by: str = "address",
    proto: str | Sequence[str] = (),
    port: str | int | Sequence[str | int] = (),
    tunnels: str = "outer",
    group_by: str = "",
    evidence: bool = False,
    evidence_pairs: int = defaults.EVIDENCE_PAIRS,
    families: Sequence[int] = (4, 6),
    map: str | Mapping[str, object] | None = None,
    format: str | None = None,
    time: str = "record",
    keep_sketch: bool = False,
) -> Scan:
    """Scan inputs; iterate over the result for the windows, each of which is a result with its super hosts.

    An input is a file, a folder, a pattern, a URL, "-" (standard input), netflow://… or synth:… (`sources/open.py`).

    Which hosts:

    - `inner`: the prefixes of the monitored network ("10.0.0.0/8", "private", "@FILE"); without it every address is.
    - `exclude`: prefixes whose addresses are never hosts, but remain peers. `special`: "drop" multicast, broadcast and
      unspecified hosts, or "keep" them.
    - `watch`: "inner" hosts, "outer" ones or both. `direction`: peers in "any" direction, "in", "out" or several.
    - `threshold`: hosts with at least this many peers. `top`: this many hosts with the most peers. Without both, the
      ten hosts with the most peers, and all with 1024 or more.
    - `peers`: "any" that the host exchanges packets with (the default), those to whom it "opened" a conversation, and
      of these the ones that "answered" or left it "unanswered"; or several. direction="in": those who opened to it.
    - `count`: distinct "hosts", destination "ports", or "host-ports" (both together). Ports are those that the host
      opened, unless `peers` says otherwise. `by`: a host is an "address" (or prefix), or an "address-port": an address
      with the destination port.
    - `proto`, `port`: only packets of these protocols, or with one of these ports at either end.
    - `tunnels`: which IP header of a tunnelled packet counts, the "outer" one, the "inner" one or "both".
    - `group_by`: "exporter", "interface" or "vlan" keeps the hosts of overlapping networks apart: rows have a `group`.
    - `evidence`: keep a sample of who talked to whom, at most `evidence_pairs` of each address family. Then
      `window.verdict(row)` says what a host's peers look like: its pattern, the reason and a summary.
    - `ipv4_prefix`, `ipv6_prefix`: networks of this length are hosts. `families`: address families that count.

    How:

    - `window`: a length like "5m", or "all" for one window. Without it, inputs that end and are together shorter than 5
      minutes are one window; others have windows of 5 minutes. `slide`: windows overlap, and each begins this much
      after the one before ("30s"; the window is a multiple of it).
    - `detector`: "auto", as of the commands, is "stream" with 4 MiB or less, unless windows slide, sketches are kept or
      an option of cubes is given: better with so little memory, but its sketches cannot be merged.
    - `memory` (or a `geometry` that `plan` gives), `exact`: count exactly while the pairs of a window fit (True,
      False, or None as the device decides). `memory_total`: the most memory that a scan may need.
    - `key`: the secret; without one, the public key, which everybody knows (`own_key()` is yours). `site`: a name that
      sketches carry. `device`: "auto", "cpu", "cuda". `threads`: how many.
    - `map`, `format`, `time`: of tables and logs, the names of columns ("src=a,dst=b,time=c", or a dictionary) where
      they are unusual, the format where it is not recognised, and the time of a record that counts, its "start" or
      "end", of flow exports also "export" or "received" ("record": the start, or received where exports are live).
      Rows without a time need window="all".

    A window's sketch (`window.sketch`) is freed when the next window comes, unless `keep_sketch`. Another loop over the
    same scan reads the inputs again; of a pipe or standard input that is an error. A window of files far out of order
    may come a second time, in the end, as `revision` 2: that is the whole of it.

    >>> for window in scan("trace.pcap", inner="10.0.0.0/8", threshold=1024, window="5m"):
    ...     for row in window:
    ...         print(row.host, row.peers)
    """
    given = locals()  # the arguments, of which most are settings
    names = _names(inputs)
    ports = [str(each) for each in ((port,) if isinstance(port, str | int) else port)]
    settings = settings_of(given | {"port": ports}, merges=keep_sketch)
    reopen = partial(open_inputs, names, tables=TableOptions(format, as_map(map), time))
    sources = reopen()
    options = scan_options(sources, settings, joins_short=window is None and not slide, keeps_sketches=keep_sketch)
    return Scan(sources, settings, options, reopen=reopen)


def _names(inputs: Any) -> list[Name]:
    is_several = isinstance(inputs, Iterable) and not isinstance(inputs, Name | bytes | Mapping)
    # A data frame would yield the names of its columns.
    has_names = is_several and not any(hasattr(inputs, each) for each in ("columns", "__arrow_c_stream__", "read"))
    names = list(inputs) if has_names else [inputs]
    if not names:
        raise UsageError("scan: there is no input; pass at least one file, folder, pattern or URL")
    for name in names:
        if not isinstance(name, Name):
            way = "pass names of files; a table goes to cube.update(table, host=…, peer=…)"
            raise UsageError(f"scan: {type(name).__name__} is not the name of an input; {way}")
    return names
