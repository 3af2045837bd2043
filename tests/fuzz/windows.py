"""Windows of arbitrary times: every packet is accounted for once, and a scan finds what plain sets find."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

import packets as p
from fuzz.targets import fresh_folder, target
from superhosts.core.pairs import PacketBatch, Window
from superhosts.core.units import SECOND
from superhosts.pipeline.scan import scan
from superhosts.pipeline.windows import SETTLE, Closed, Event, Jump, Piece, PutOff, TumblingWindows
from superhosts.sketch.sketch import Sketch

YEAR = 365 * 86400 * SECOND
NOON = 1_700_000_100 * SECOND  # the start of a window of five minutes
LENGTH = 300 * SECOND
LENGTHS = (1, 1000, SECOND, 300 * SECOND, 30 * 86400 * SECOND, YEAR + 1)

# A burst of packets: when it begins, the time between two packets, how many. Few draws make many packets.
_jumps = st.sampled_from([0, 1, SECOND, 300 * SECOND, 3600 * SECOND, 86400 * SECOND, YEAR, 3 * YEAR, 40 * YEAR])
_signs = st.sampled_from([1, -1])
_begins = st.builds(lambda jump, sign, more: NOON + sign * jump + more, _jumps, _signs, st.integers(0, 999))
_steps = st.sampled_from([0, 1, -1, SECOND, -SECOND, 300 * SECOND, -7 * SECOND, 43_200 * SECOND, 11 * 86400 * SECOND])
_bursts = st.tuples(_begins | st.integers(-(2**63), 2**63 - 1), _steps, st.integers(1, 40))
_events = st.lists(
    st.tuples(st.just("push"), st.lists(_bursts, min_size=1, max_size=3)) | st.tuples(st.just("tick"), _begins),
    max_size=12,
)


def times_of(bursts: list[tuple[int, int, int]]) -> list[int]:
    """Return the times of bursts, as far as 64 bits hold them."""
    times = [begin + number * step for begin, step, count in bursts for number in range(count)]
    return [min(max(time, -(2**63)), 2**63 - 1) for time in times]


def batch(times: Sequence[int], first: int = 0) -> PacketBatch:
    """Packets at these times; each is known by its source, counted from `first`."""
    src = np.arange(first, first + len(times), dtype=np.uint32)
    return PacketBatch(4, src, src, np.array(times, np.int64))


class Run:
    """Pushes lists of times, some of each address family, and keeps what came out: every packet is in one place."""

    def __init__(
        self,
        length: int | None = LENGTH,
        *,
        settle: int = SETTLE,
        expect: int | None = None,
        wall: int | None = None,
        **options: Any,
    ) -> None:
        self.wall = wall  # of live traffic
        live = {} if wall is None else {"wall": lambda: self.wall}
        self.windows = TumblingWindows(length, settle=settle, **live, **options)
        if expect is not None:
            self.windows.expect(expect)
        self.times: list[int] = []  # of all packets, by number
        self.inside: dict[Window, list[int]] = {}  # numbers of packets
        self.open: set[Window] = set()
        self.closed: list[Window] = []
        self.jumps: list[int] = []
        self.put_off: list[int] = []  # numbers of packets

    def push(self, *lists: Iterable[int], watermark: int | None = None, size: int = 10**9) -> Run:
        rows = [list(times) for times in lists]
        for part in (times[place : place + size] for times in rows for place in range(0, len(times), size)):
            whole = batch(part, len(self.times))
            self.times += part
            four, six = (whole.take(rows) for rows in (whole.src % 7 != 0, whole.src % 7 == 0))
            wide = np.stack([six.src, six.src], axis=1).astype(np.uint64)
            self.take(self.windows.push((four, PacketBatch(6, wide, wide, six.time)), watermark))
            self.check()
        return self

    def take(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, Jump):
                self.jumps.append(event.by)
            elif isinstance(event, PutOff):
                self.put_off += event.batch.src.tolist() if event.batch.family == 4 else event.batch.src[:, 0].tolist()
            elif isinstance(event, Closed):
                joined = [window for window in self.open if window.start in event.starts]
                if joined:
                    self.inside[event.window] = [number for each in joined for number in self.inside.pop(each)]
                self.open -= {event.window, *joined}
                self.closed.append(event.window)
            elif isinstance(event, Piece):
                again = self.wall is not None or self.windows.reopens
                assert again or event.window not in self.closed, "a closed window changed"
                if self.windows.length is not None:
                    assert event.window.start <= event.batch.time.min() <= event.batch.time.max() < event.window.end
                    self.open.add(event.window)
                src = (event.batch.src if event.batch.family == 4 else event.batch.src[:, 0]).tolist()
                assert [self.times[number] for number in src] == event.batch.time.tolist()
                self.inside.setdefault(event.window, []).extend(src)

    def check(self) -> None:
        windows = self.windows
        lost = windows.late + windows.stray + windows.repeated
        assert sum(map(len, self.inside.values())) + windows.waiting + lost == len(self.times), "a packet is lost"

    def finish(self) -> Run:
        self.take(self.windows.finish())
        self.check()
        assert self.windows.waiting == 0
        assert not self.open, "every window that got packets was closed after them"
        if self.windows.length is not None and not self.windows.gaps:
            assert set(self.inside) == set(self.closed), "no other window was closed"
        assert all(len(set(numbers)) == len(numbers) for numbers in self.inside.values())
        return self

    def tick(self, seconds: float) -> Run:
        """Let the clock say that it is so many seconds past noon."""
        self.take(self.windows.tick(NOON + round(seconds * SECOND)))
        return self

    @property
    def starts(self) -> list[int]:
        """Closed windows in order, counted from noon."""
        return [(window.start - NOON) // LENGTH for window in self.closed]

    @property
    def sizes(self) -> list[int]:
        return [len(self.inside[window]) for window in self.closed]

    @property
    def lost(self) -> tuple[int, int]:
        return self.windows.late, self.windows.stray

    def by_start(self) -> dict[int, list[int]]:
        return {window.start: sorted(numbers) for window, numbers in self.inside.items()}


MODES: dict[str, dict[str, Any]] = {
    "counts": {},  # what is late is counted
    "reopens": {"reopens": True},
    "revises": {"revises": True},
    "live": {"wall": NOON},
}


@target(st.tuples(st.sampled_from(LENGTHS), st.sampled_from([1, 3, 20, 1000]), st.sampled_from(sorted(MODES)), _events))
def windows(case: tuple[int, int, str, list[tuple[str, Any]]]) -> None:
    length, settle, mode, events = case
    run = Run(length, settle=settle, **MODES[mode])
    for what, value in events:
        if what == "tick":
            run.take(run.windows.tick(value))
        else:
            run.push(times_of(value))
    cut = run.finish().windows
    assert not {number for numbers in run.inside.values() for number in numbers} & set(run.put_off)
    assert sum(cut.put_off.values()) <= len(run.put_off) == len(set(run.put_off))
    if any(what == "tick" for what, _ in events):
        return
    if run.times and max(run.times) - min(run.times) <= YEAR and mode != "live":
        assert cut.stray == 0
    if run.times == sorted(run.times) and mode != "live":
        assert cut.late == 0
        assert run.closed == sorted(set(run.closed))
    if mode == "reopens":
        assert cut.late == 0


# The same from end to end: captures, scanned with the exact detector.

_ends = st.integers(0, 5)
_near = _bursts.filter(lambda burst: abs(burst[0] - NOON) < YEAR // 4)
_talk = st.lists(st.tuples(_near, _ends, _ends), max_size=8)


def truth(frames: list[tuple[int, str, str]], length: int) -> dict[tuple[int, str], int]:
    peers: defaultdict[tuple[int, str], set[str]] = defaultdict(set)
    for time, src, dst in frames:
        if src != dst:
            peers[time // length * length, src].add(dst)
            peers[time // length * length, dst].add(src)
    return {key: len(found) for key, found in peers.items()}


@target(st.tuples(st.sampled_from([1, 60, 300, 86400]), _talk, st.booleans(), st.integers(1, 3)))
def scans(case: tuple[int, list[tuple[tuple[int, int, int], int, int]], bool, int]) -> None:
    """A scan of files, each of which holds some of the packets, finds what plain sets find."""
    seconds, talk, in_order, files = case
    frames = [
        (time - time % 1000, f"10.0.0.{src}", f"10.0.0.{dst + number % 3}")
        for burst, src, dst in talk
        for number, time in enumerate(times_of([burst]))
        if 0 <= time < 2**32 * SECOND
    ]
    if in_order:
        frames.sort()
    with fresh_folder() as folder:
        paths = [folder / f"{number}.pcap" for number in range(files)]
        for number, path in enumerate(paths):
            own = frames[number::files]
            path.write_bytes(p.pcap([(time, p.ethernet(0x0800, p.ipv4(src, dst))) for time, src, dst in own]))
        run = scan(paths, detector="exact", window=f"{seconds}s", threshold=1, device="cpu", threads=1)
        sketches: dict[int, Sketch] = {}
        for window in run:  # a window that is opened again comes twice
            sketches.setdefault(window.window.start, Sketch()).merge(window.sketch)
    found = {(start, str(item.host)): item.peers for start, each in sketches.items() for item in each.super_hosts(1)}
    counters = run.counters
    assert counters.packets == len(frames)
    expected = truth(frames, seconds * SECOND)
    if counters.late or counters.stray:
        assert not in_order
        assert all(peers <= expected[key] for key, peers in found.items())
    else:
        assert found == expected
