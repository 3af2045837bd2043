"""Several files: some are read before their turn, and nothing but the speed shows it."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import packets as p
from superhosts.core.pairs import PacketBatch, PacketBlock
from superhosts.errors import InputError, SuperhostsError
from superhosts.pipeline.interleaver import Interleaver
from superhosts.pipeline.scan import Scan
from superhosts.pipeline.settings import Settings
from superhosts.sources.base import Source, SourceCounters
from superhosts.sources.open import open_inputs
from superhosts.sources.readers import MOST_SHARE, READ_AHEAD, Step

LONG = 60.0  # seconds after which a test fails that would wait for ever


def block(time: int, packets: int = 1) -> PacketBlock:
    addresses = np.zeros(packets, np.uint32)
    return (PacketBatch(4, addresses, addresses, np.full(packets, time)),)


class Recorded(Source):
    """An input of given blocks that one thread reads. A function among them is called when its turn comes."""

    one_thread = True

    def __init__(self, name: str, first: int, items: list[PacketBlock | Callable[[], Any]]) -> None:
        self.name, self._first, self.items = name, first, items
        self.counters = SourceCounters()
        self.yielded = 0
        self.begun = threading.Event()

    def first_time(self) -> int | None:
        return self._first

    def blocks(self) -> Iterator[PacketBlock]:
        self.begun.set()
        for item in self.items:
            if callable(item):
                item()
            else:
                self.counters.count(item)
                self.yielded += 1
                yield item

    def position(self) -> int:
        return self.yielded


def attempt(call: Callable[[], Any]) -> Any:
    return call()


def interleave(sources: list[Source], threads: int, stopped: Callable[[], bool] = lambda: False) -> Interleaver:
    return Interleaver(sources, attempt=attempt, stopped=stopped, threads=threads)


def wait(event: threading.Event) -> None:
    assert event.wait(LONG)


def test_the_next_files_are_read_while_the_first_is() -> None:
    """The first file has its second block only once the others have begun."""
    later = [Recorded(f"file {number}", 100 * number, [block(100 * number)]) for number in (1, 2)]
    first = Recorded("first", 0, [block(0), *(partial(wait, file.begun) for file in later), block(1)])
    steps = list(interleave([later[1], first, later[0]], 2))
    assert [step.block[0].time[0] for step in steps] == [0, 1, 100, 200]
    assert [step.watermark for step in steps] == [1, 100, 200, None]


def test_no_more_files_are_open_than_threads_read_at_once() -> None:
    files: list[Source] = []
    most: list[int] = []

    def count() -> None:
        most.append(sum(file.begun.is_set() and not file.yielded for file in files if isinstance(file, Recorded)))

    files += [Recorded(f"file {number}", number, [count, block(number)]) for number in range(300)]
    assert len(list(interleave(files, 4))) == 300
    assert 1 <= max(most) <= 5


def test_a_large_file_waits_at_its_share() -> None:
    """The second file would fill all memory if its reader did not wait."""
    packets = 1 << 16
    holds = MOST_SHARE // (packets * (4 + 4 + 8))  # bytes of two addresses and a time
    full = threading.Event()
    large = Recorded(
        "large", 10, [*[block(10, packets)] * (holds - READ_AHEAD), full.set, *[block(11, packets)] * holds]
    )
    first = Recorded("first", 0, [block(0), partial(wait, full), block(1)])
    taken = 0
    for step in interleave([first, large], 1):
        taken += step.block[0].time[0] >= 10
        assert large.yielded - taken <= holds + READ_AHEAD + 2
    assert taken == 2 * holds - READ_AHEAD


def is_read(source: Source) -> bool:
    """Return True if a thread reads a source, which does not end by itself."""
    return any(thread.name == f"read {source.name}" for thread in threading.enumerate())


def test_files_that_many_threads_read_wait_for_their_turn() -> None:
    release = threading.Event()
    files: list[Source] = [Recorded("first", 0, [block(0), block(1)])]
    files += [Recorded(f"large {number}", number, [partial(wait, release), block(number)]) for number in (10, 20)]
    files[1].one_thread = False
    steps = iter(interleave(files, 4))
    next(steps)
    assert [is_read(file) for file in files[1:]] == [False, True]
    release.set()
    assert len(list(steps)) == 3


def test_warnings_and_errors_come_in_the_order_of_the_files() -> None:
    told: list[str] = []
    second = Recorded("second", 10, [])
    third = Recorded("third", 20, [block(20)])

    def fail() -> None:
        second.counters.warn("second warns")
        raise InputError("is damaged", file="second")

    second_read = threading.Event()
    second.items = [block(10), second_read.set, fail]
    first = Recorded("first", 0, [])
    first.items = [
        block(0),
        partial(wait, second_read),
        partial(wait, third.begun),
        lambda: first.counters.warn("first warns"),
    ]
    for source in (first, second, third):
        source.counters.on_warning = told.append
    scan = Scan(
        [first, second, third], Settings(memory="1MiB", threads=2), on_error=lambda error: told.append(str(error))
    )
    list(scan)
    assert told == ["first warns", "second warns", "second: is damaged"]
    assert scan.counters.packets == 3


def test_a_stop_leaves_packets_uncounted_whose_turn_has_not_come() -> None:
    read = threading.Event()
    second = Recorded("second", 10, [block(10, 7), read.set])
    scan = Scan([Recorded("first", 0, []), second], Settings(memory="1MiB", threads=2))
    first = scan.sources[0]
    assert isinstance(first, Recorded)
    first.items = [block(0, 3), partial(wait, read), scan.stop, block(1, 5)]
    list(scan)
    assert second.counters.packets == 7
    assert scan.counters.packets <= 8


def test_first_packets_are_looked_for_by_several_threads() -> None:
    """Two files wait for each other; warnings come in the order of the files all the same."""
    barrier, told = threading.Barrier(2), []

    class Probed(Recorded):
        def first_time(self) -> int | None:
            if self.name in ("0", "1"):
                barrier.wait(LONG)
            self.counters.warn(self.name)
            return super().first_time()

    files: list[Source] = [Probed(str(number), 20 - number, [block(20 - number)]) for number in range(20)]
    for file in files:
        file.counters.on_warning = told.append
    assert [step.block[0].time[0] for step in interleave(files, 2)] == list(range(1, 21))
    assert told == [str(number) for number in range(20)]


def described(step: Step) -> Any:
    columns = [(batch.family, batch.src.tolist(), batch.dst.tolist(), batch.time.tolist()) for batch in step.block]
    return columns, step.watermark, step.begins, step.clock


@pytest.mark.parametrize("overlap", [0, 3])
def test_any_number_of_threads_yields_the_same_steps(overlap: int, tmp_path: Path) -> None:
    """A rotation of compressed files, one of them damaged, one that ends early, one empty."""
    paths = []
    for number in range(12):
        times = range(10 * number, 10 * (number + 1) + overlap)
        data = gzip.compress(p.pcap([(10**18 + 1000 * time, p.ethernet(0x0800, p.ipv4())) for time in times]))
        data = {4: data[:-20], 7: data[:40] + bytes(30) + data[70:], 9: gzip.compress(b"")}.get(number, data)
        paths.append(tmp_path / f"{number}.pcap.gz")
        paths[-1].write_bytes(data)
    seen = []
    for threads in (1, 2, 5):
        told: list[str] = []

        def tried(call: Callable[[], Any], told: list[str] = told) -> Any:
            try:
                return call()
            except SuperhostsError as error:
                told.append(str(error))

        sources = open_inputs(paths, lambda error, told=told: told.append(str(error)), on_warning=told.append)
        steps = Interleaver(sources, attempt=tried, stopped=lambda: False, threads=threads)
        seen.append(([described(step) for step in steps], told, [source.counters for source in sources]))
    assert len(seen[0][0]) >= 9
    assert seen[0] == seen[1] == seen[2]
