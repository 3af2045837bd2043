"""A run over inputs: sources → windows → pairs → detectors → super hosts, with its counters.

Inputs are ordered by their first packet and read side by side where they overlap in time (interleaving.py), so that any
order and any split of a capture gives the same result.

A sensor that runs for months sets a `grace`: live inputs do not wait for each other, a clock closes windows when
traffic stops or is slow, and empty windows are yielded, too, as a sign of life. A scan of pipes has the same clock.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from superhosts.core.pairs import Window
from superhosts.core.profile import Durations
from superhosts.core.text import counted, printable, setting
from superhosts.core.units import format_size, parse_duration, parse_size
from superhosts.errors import InputError, SuperhostsError, UsageError
from superhosts.pipeline.ahead import SlidingAhead
from superhosts.pipeline.building import MakeDetector, WindowBuilder, WindowResult, compile_all
from superhosts.pipeline.interleaving import Interleaving
from superhosts.pipeline.run_options import RunOptions as RunOptions
from superhosts.pipeline.second_reading import SecondReading
from superhosts.pipeline.settings import Settings
from superhosts.pipeline.sliding import SlidingPanes
from superhosts.pipeline.windows.events import Event, Piece, PutOff
from superhosts.pipeline.windows.jumps import Jump
from superhosts.pipeline.windows.tumbling import TumblingWindows
from superhosts.sources.base import Source, Stopped, input_border
from superhosts.sources.readers import Following

CROWDED = (
    "a window had so many conversations that some of those that were opened may have been taken for answers; take "
    "shorter windows"
)
GAPS = 12  # most empty windows yielded for a gap, which may last years: a hub forgets a site after as many silent ones


@dataclass
class Counters:
    """Packets of the whole scan, and those that did not become pairs, by reason."""

    packets: int = 0
    ipv4: int = 0
    ipv6: int = 0
    not_ip: int = 0
    truncated: int = 0
    unsupported_link: int = 0  # packets of interfaces whose kind of frames cannot be read
    rows: int = 0  # those of the packets that are rows of tables
    bad_rows: int = 0  # rows without two addresses of one family, or without a time
    skipped_records: int = 0  # of logs: other events, which are no rows
    records: int = 0  # those of the packets that are records of flow exports
    exports: list[dict[str, Any]] = field(default_factory=list)  # the status of each input of flow exports
    no_inner_end: int = 0
    same_ends: int = 0
    special_ends: int = 0  # ends of packets that are no hosts, being multicast, broadcast or unspecified addresses
    late: int = 0
    stray: int = 0
    repeated: int = 0  # packets of windows that were done before this run
    revised: int = 0  # windows that were read a second time: some of their packets lay far out of order
    skipped_windows: int = 0  # windows that overlap, and have exactly the packets of the window before
    unrevised: int = 0  # windows still to be read a second time; after the run: windows that lack packets
    filtered: int = 0  # of other protocols or ports than those asked for
    unknown_details: int = 0  # packets of whose protocol or ports, which are asked for, nothing is known
    no_contact: int = 0  # packets that neither open a conversation nor answer, where only those count
    skipped_family: int = 0  # IPv6 packets for a detector that takes IPv4 only
    outside: list[str] = field(default_factory=list)  # prefixes seen most in packets without an inner end, if most are
    pairs: int = 0  # (host, peer) pairs, repeats included
    truncated_files: int = 0  # inputs whose end is missing
    drops: int = 0  # packets that live captures have lost, besides those read
    unused: int = 0  # packets that were read ahead when the scan was stopped: in no window
    warnings: list[str] = field(default_factory=list)


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


class Scan:
    """One run over inputs. Iterating over it yields the windows; `counters` has the packets read so far, by kind.

    Any thread may call it at any time. Threads that iterate at the same time share the windows.

    The run ends when nobody iterates any more: leaving a loop early ends the readers. Keep the iterator (`windows =
    iter(run)`) to go on later. With `reopen`, another loop reads the inputs again, from their beginning, and counts
    anew; it raises UsageError if one of them can be read only once. Without, inputs are read once: after a run has come
    to its end another loop gets no windows, and after one that was left it raises UsageError.
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
        """Prepare a run.

        `make_detector` makes an empty detector for a part, in place of the settings. An input that fails goes to
        `on_error` where that is given, and the rest goes on. `on_progress` is told the bytes and packets read so far.
        `reopen` opens the same inputs again.
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
        """Make everything that one run uses."""
        settings, options = self.settings, self._options
        self.sources = list(sources)
        if settings.threads is not None:
            for source in self.sources:
                source.use_threads(settings.threads)
        if settings.window == "all":
            for source in self.sources:
                source.use_one_window()
        sampling = settings.sampling
        for source in self.sources:
            source.want(replace(settings.wants, sampling=sampling))
        self._stopping = False
        # A folder or an interface may be empty for a long time: it cannot be asked for its first packet like a file.
        timed = options.grace is not None
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
        live = any(source.live for source in self.sources)
        self._builder = WindowBuilder(settings, self._make_detector, find=options.find, gathers=1 if live else None)
        self._builder.sorts, self._builder.sampling = settings.has_contacts and len(self.sources) > 1, sampling
        self._sliding = self._slide(self._builder) if slides else None
        self._ahead: SlidingAhead | None = None
        if self._sliding is not None and not live:
            self._ahead = SlidingAhead(self._sliding, self._select)
        self._selected: tuple[float | None, int | None] | None = None  # what `select` asks for, until it is so
        self._last_pane: int | None = None
        self._following: Following | None = None
        self._interleaving: Interleaving | None = None
        self._revised = 0
        self._taken = 0  # packets that the windows have got
        self._has_begun = False
        self._is_over = False  # the run has come to its end

    def _slide(self, builder: WindowBuilder) -> SlidingPanes:
        lengths = parse_duration(self.settings.window), parse_duration(self.settings.slide)
        keeps_all = self._options.is_sensor or any(source.live for source in self.sources)
        return SlidingPanes(*lengths, builder.result, keeps_all=keeps_all)

    def __repr__(self) -> str:
        """Say what is scanned, how, and how far it has come."""
        settings = self.settings
        names = [printable(source.name) for source in self.sources]
        inputs = names[0] if len(names) == 1 else counted(len(names), "input")
        with self._lock:
            state = "read" if self._is_over else "begun" if self._has_begun else "not begun"
            packets, pairs = self._taken, self._builder.pairs
        reached = f" ({counted(packets, 'packet')}, {counted(pairs, 'pair')})" if self._has_begun else ""
        memory = settings.geometry or format_size(parse_size(settings.memory))
        slide = f" by {settings.slide}" if settings.slides else ""
        words = [inputs, f"window {settings.window}{slide}", f"{settings.detector} {memory}", settings.device]
        return f"<Scan: {', '.join(words)}; {state}{reached}>"

    @property
    def counters(self) -> Counters:
        """Return the present counters."""
        with self._lock:
            total = Counters(late=self._windows.late, stray=self._windows.stray, skipped_family=self._builder.skipped)
            total.repeated, total.revised = self._windows.repeated, self._revised
            total.unrevised = len(self._windows.put_off)
            total.skipped_windows = 0 if self._sliding is None else self._sliding.skipped
        for source in self.sources if self._interleaving is None else self._interleaving.begun():
            for name, value in asdict(source.counters).items():
                if name == "warnings":
                    total.warnings += value
                else:
                    setattr(total, name, getattr(total, name) + value)
        if self._stopping:
            total.unused = total.ipv4 + total.ipv6 - self._taken
        total.pairs = self._builder.pairs
        for name, value in vars(self._builder.network.counters).items():
            setattr(total, name, value)
        # Packets of which it is not known whether they open or answer do neither.
        unknown = min(self._builder.unknown_contact, total.no_contact)
        total.no_contact -= unknown
        total.unknown_details += unknown
        if self._builder.crowded:
            total.warnings.append(CROWDED)
        total.outside = self._builder.network.outside.most_seen()
        return total

    @property
    def restoring(self) -> Durations:
        """How long the search for the super hosts of a window took."""
        return self._builder.restoring

    def select(self, threshold: float | None, top: int | None) -> None:
        """Report other hosts, from the next window on that closes. Only for the thread that iterates."""
        self._selected = threshold, top
        if self._ahead is None or not self._ahead.is_busy:  # or else when the window that is being made was yielded
            self._select()

    def _select(self) -> None:
        if self._selected is not None:
            threshold, top = self._selected
            self.settings = replace(self.settings, threshold=threshold, top=top)
            self._builder.selection, self._selected = self.settings.selection, None

    def stop(self) -> None:
        """End the iteration within a second. May be called by a signal handler or another thread.

        Windows that are open are yielded as they are, marked as partial, unless they are left to the next run.
        """
        self._stopping = True
        for source in self.sources:
            source.stop()

    def open_window(self) -> Window | None:
        """Return the earliest open window: what a crash would lose of input that cannot be read again."""
        with self._lock:
            return self._windows.earliest()

    def peek(self) -> WindowResult | None:
        """Return the earliest open window as it is now; None if none is open. Only for `on_progress` to call.

        The window goes on as if nobody had asked. Its sketch is not to be kept or changed.
        """
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
                    self._begin_again(self._reopen)
                elif self._has_begun and not self._is_over:
                    raise UsageError(
                        "this scan was left before its end or has failed, and reads its inputs once: keep its iterator "
                        "(windows = iter(run)) to go on later, or scan again"
                    )
                running = Results(self._run(), keeps=self._options.keeps_sketches)
                self._running = weakref.ref(running)
            return running

    def _begin_again(self, reopen: Callable[[], Sequence[Source]]) -> None:
        for source in self.sources:
            if source.live or not source.replays:
                way = "keep its windows (windows = list(run)) to use them again"
                raise UsageError(f"{source.name}: was read, and can be read only once; {way}")
        self._prepare(reopen())

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
        if any(source.loses for source in self.sources):
            compile_all(self.settings, self._make_detector)
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
            try:
                yield from self._shown(ahead.finish())
            finally:
                ahead.close()

    def _shown(self, windows: Iterator[WindowResult]) -> Iterator[WindowResult]:
        """Yield the windows with packets, or all for a sensor, which shows that it is alive."""
        return (window for window in windows if window.packets or self._options.is_sensor)

    def _read(self) -> Iterator[Iterator[Event]]:
        """Read the inputs; yield what their blocks and the passing of time do to the windows."""
        for step in self._follow() if self._follows else self._interleave():
            if step.begins is not None:
                with self._lock:
                    self._windows.expect(*step.begins)
            self._taken += sum(map(len, step.block))
            self._builder.reached = step.watermark
            yield self._windows.push(step.block, step.watermark)
            if step.clock is not None:
                yield self._windows.tick(step.clock)

    def _interleave(self) -> Interleaving:
        self._interleaving = Interleaving(
            self.sources,
            attempt=self._try,
            stopped=lambda: self._stopping,
            threads=self.settings.threads,
            pace=self._options.pace,
        )
        return self._interleaving

    def _follow(self) -> Following:
        self._following = Following(
            self.sources,
            grace=self._options.grace,
            clock=self._options.clock,
            attempt=self._try,
            stopped=lambda: self._stopping,
            horizon=self._windows.horizon,
            is_full=self._is_full if self._options.clock_only else None,
            pace=self._options.pace,
        )
        return self._following

    def _is_full(self) -> bool:
        """Return True if so many packets wait for their windows that inputs should wait for each other."""
        return self._windows.waiting > self._options.limits.packets // 2

    def _reached(self) -> tuple[int, int]:
        """Return the bytes and packets read so far."""
        if self._interleaving is not None:
            return self._interleaving.reached()
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
            if self._ahead is not None:
                yield from self._shown(self._ahead.finish())
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
        """Return the packets that live captures have lost in a window; None if there are no live captures."""
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
        """Read the windows again for which packets came too late, and yield them whole."""
        assert self._windows.length is not None
        length, panes = self._windows.length, self.settings.panes if self._sliding is not None else 1
        late = dict(self._windows.put_off)
        # All is counted already. If it matters who opened, a window is put in order as a whole: its packets come file
        # by file.
        gathers = 1 << 62 if self.settings.has_contacts else None
        builder = WindowBuilder(self.settings, self._make_detector, find=self._options.find, gathers=gathers)
        builder.sorts = self.settings.has_contacts
        sliding = None if self._sliding is None else self._slide(builder)
        wanted = {near for index in late for near in range(index - panes + 1, index + panes)}
        with closing(SecondReading(length, wanted, self._options.limits)) as second:
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

    def _read_again(self, source: Source, second: SecondReading) -> bool:
        """Read an input a second time; False if the scan was stopped."""
        with input_border(source.name):
            again = source.again()
        second.read(again, lambda: self._stopping)
        if not self._stopping and again.counters.packets != source.counters.packets:
            raise InputError("changed between two readings", file=source.name)
        return not self._stopping
