"""Windows of arbitrary times: every packet is accounted for once, and a scan finds what plain sets find."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
from hypothesis import strategies as st

import packets as p
from fuzz.targets import fresh_folder, target
from superhosts.core.pairs import PacketBatch
from superhosts.core.units import SECOND
from superhosts.pipeline.scan import scan
from superhosts.pipeline.windows import Closed, Event, Jump, Piece, PutOff, TumblingWindows
from superhosts.sketch.sketch import Sketch

YEAR = 365 * 86400 * SECOND
NOON = 1_700_000_100 * SECOND
LENGTHS = (1, 1000, SECOND, 300 * SECOND, 30 * 86400 * SECOND, YEAR + 1)

# A burst of packets: when it begins, the time between two packets, how many. Few draws make many packets.
_jumps = st.sampled_from([0, 1, SECOND, 300 * SECOND, 3600 * SECOND, 86400 * SECOND, YEAR, 3 * YEAR, 40 * YEAR])
_begins = st.builds(
    lambda jump, sign, more: NOON + sign * jump + more, _jumps, st.sampled_from([1, -1]), st.integers(0, 999)
)
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


class Ledger:
    """What has come out of windows, held against what went in. Packets are known by their source address."""

    def __init__(self, length: int, *, reopens: bool) -> None:
        self.length = length
        self.reopens = reopens
        self.times: list[int] = []
        self.seen: set[int] = set()
        self.open: set[int] = set()
        self.closed: list[int] = []
        self.put_off: list[int] = []

    def batch(self, times: list[int]) -> PacketBatch:
        ids = np.arange(len(self.times), len(self.times) + len(times), dtype=np.uint32)
        self.times += times
        return PacketBatch(4, ids, ids, np.array(times, np.int64))

    def take(self, event: Event) -> None:
        if isinstance(event, Jump):  # the traffic's clock was set: windows may be opened again
            self.reopens = True
        elif isinstance(event, PutOff):
            self.put_off += event.batch.src.tolist()
        else:
            self._take_window(event)

    def _take_window(self, event: Piece | Closed) -> None:
        index = event.window.start // self.length
        assert event.window == (index * self.length, (index + 1) * self.length)
        assert self.reopens or index not in self.closed
        if isinstance(event, Closed):
            self.open.discard(index)
            self.closed.append(index)
            return
        self.open.add(index)
        for number, time in zip(event.batch.src.tolist(), event.batch.time.tolist(), strict=True):
            assert number not in self.seen
            assert time == self.times[number]
            assert time // self.length == index
            self.seen.add(number)


MODES: dict[str, dict[str, Any]] = {
    "counts": {},  # what is late is counted
    "reopens": {"reopens": True},
    "revises": {"revises": True},
    "live": {"wall": lambda: NOON},
}


@target(st.tuples(st.sampled_from(LENGTHS), st.sampled_from([1, 3, 20, 1000]), st.sampled_from(sorted(MODES)), _events))
def windows(case: tuple[int, int, str, list[tuple[str, Any]]]) -> None:
    length, settle, mode, events = case
    cut = TumblingWindows(length, settle=settle, **MODES[mode])
    ledger = Ledger(length, reopens=mode == "reopens")
    for what, value in events:
        for event in cut.tick(value) if what == "tick" else cut.push((ledger.batch(times_of(value)),)):
            ledger.take(event)
    for event in cut.finish():
        ledger.take(event)
    assert not ledger.open
    assert len(ledger.seen) + cut.late + cut.stray + cut.repeated == len(ledger.times)
    assert not ledger.seen & set(ledger.put_off)
    assert sum(cut.put_off.values()) <= len(ledger.put_off) == len(set(ledger.put_off))
    if any(what == "tick" for what, _ in events):
        return
    if ledger.times and max(ledger.times) - min(ledger.times) <= YEAR and mode != "live":
        assert cut.stray == 0
    if ledger.times == sorted(ledger.times) and mode != "live":
        assert cut.late == 0
        assert ledger.closed == sorted(set(ledger.closed))
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
