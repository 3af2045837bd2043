"""A folder that a capture program fills: files that grow, rotate, are compressed, used again, damaged or gone."""

from __future__ import annotations

import gzip
import lzma
import os
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import zstandard

import packets as p
from livescans import SOON, Clock
from superhosts.errors import InputError, SuperhostsError
from superhosts.sources.base import Clocks, Pace, SourceCounters
from superhosts.sources.capture import open_capture
from superhosts.sources.folder import FolderSource
from superhosts.sources.open import file_format, open_inputs
from superhosts.sources.tables.options import DEFAULT
from traffic import NOON, STEP, Frames, packet, talk, write
from waiting import wait_for


def frames(first: int, count: int) -> Frames:
    """Packets that are known by their times: number `first` and so on."""
    return talk("10.0.0.1", count, NOON + first * STEP)


class Follower:
    """Reads a folder in a thread, and says which packets have come, by number."""

    def __init__(
        self,
        folder: Path,
        *,
        done: frozenset[str] = frozenset(),
        quiet: float = 0.15,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], int] = time.time_ns,
        on_error: Callable[[SuperhostsError], None] = lambda _: None,
    ) -> None:
        self.errors: list[SuperhostsError] = []
        self.pauses = 0  # in which all that the last look has found was read
        self._on_error = on_error
        self._clock = clock
        pace, clocks = Pace(poll=0.01, quiet=quiet), Clocks(clock, wall, self._pause)
        kinds = partial(file_format, tables=DEFAULT, pool={})
        self.source = FolderSource(folder, kinds, done=done, on_error=self._report, pace=pace, clocks=clocks)
        self.numbers: list[int] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        for block in self.source.blocks():
            for batch in block:
                self.numbers += ((batch.time - NOON) // STEP).tolist()

    def _pause(self, seconds: float) -> None:
        self.pauses += 1
        time.sleep(seconds)

    def _report(self, error: SuperhostsError) -> None:
        self.errors.append(error)
        self._on_error(error)

    def until(self, condition: Callable[[], bool], what: str = "") -> None:
        def met() -> bool:
            assert self._thread.is_alive()
            return condition()

        wait_for(met, lambda: (what, self.numbers[-10:], self.source.counters.warnings, self.errors), SOON)

    def look(self) -> None:
        """Wait until it has looked at the folder as it is now, and has read what it could."""
        assert isinstance(self._clock, Clock)
        before = self.pauses
        self._clock.now += 0.02  # the pause between two looks is over
        self.until(lambda: self.pauses >= before + 2)  # the first look may have begun earlier

    def come(self, *numbers: int) -> None:
        """Wait until these packets have come, no others, in this order."""
        self.until(lambda: len(self.numbers) >= len(numbers), "too few packets")
        assert self.numbers == list(numbers)

    def stop(self) -> None:
        self.source.stop()
        self._thread.join(SOON)
        assert not self._thread.is_alive()


Follow = Callable[..., Follower]


@pytest.fixture
def follow() -> Iterator[Follow]:
    followers: list[Follower] = []

    def start(*args: object, **options: object) -> Follower:
        followers.append(Follower(*args, **options))  # type: ignore[arg-type]
        return followers[-1]

    yield start
    for follower in followers:
        follower.stop()


def append(path: Path, some: Frames | bytes) -> None:
    with path.open("ab") as file:
        file.write(some if isinstance(some, bytes) else b"".join(p.record(*frame) for frame in some))


def identity(path: Path, number: int) -> str:
    return f"{path}@{NOON + number * STEP}"


def test_files_come_in_the_order_of_time_whatever_their_names(tmp_path: Path, follow: Follow) -> None:
    for name, first in (("b", 0), ("c", 10), ("a", 20), ("dump10", 30), ("dump9", 40)):
        write(tmp_path / name, frames(first, 10))
    follower = follow(tmp_path)
    follower.come(*range(50))
    assert follower.source.counters.packets == 50
    assert follower.source.counters.warnings == []


def test_a_file_of_a_clock_that_was_ahead_does_not_end_the_one_that_grows(tmp_path: Path, follow: Follow) -> None:
    """As a restart finds it: the file that was stamped ahead lies there unread, and begins later than all others."""
    day = 86400 * p.SECOND // STEP
    write(tmp_path / "a", frames(0, 2))
    write(tmp_path / "b", frames(day, 3))
    write(tmp_path / "c", frames(10, 2))
    for name, number in (("a", 2), ("b", 9), ("c", 12)):
        os.utime(tmp_path / name, ns=(NOON, NOON + number * STEP))
    clock = Clock()
    follower = follow(tmp_path, clock=clock, wall=lambda: NOON + 20 * STEP)
    follower.until(lambda: len(follower.numbers) == 2)
    clock.now += 1  # none has grown for a second
    follower.come(0, 1, day, day + 1, day + 2, 10, 11)
    follower.until(follower.source.waits)
    clock.now += 100
    append(tmp_path / "c", frames(12, 2))
    follower.come(0, 1, day, day + 1, day + 2, 10, 11, 12, 13)
    assert follower.source.counters.warnings == []


def test_a_folder_that_is_empty_at_first(tmp_path: Path, follow: Follow) -> None:
    follower = follow(tmp_path)
    follower.until(follower.source.waits)
    assert FolderSource(tmp_path).first_time() is None
    write(tmp_path / "a", frames(3, 2))
    follower.come(3, 4)
    follower.until(follower.source.waits)
    assert FolderSource(tmp_path).first_time() == NOON + 3 * STEP


@pytest.mark.slow
def test_rotation_while_traffic_goes_on(tmp_path: Path, follow: Follow) -> None:
    """The files rotate every 40 packets, some of which come in two halves; nothing is lost or repeated."""
    follower = follow(tmp_path)
    for file in range(8):
        path = tmp_path / f"dump{7 - file}"  # names run the other way
        path.write_bytes(p.pcap_header())
        for number, frame in enumerate(frames(40 * file, 40)):
            append(path, p.record(*frame)[:30])
            if number % 16 == 5:
                before = follower.pauses
                follower.until(lambda before=before: follower.pauses >= before + 2)  # type: ignore[misc]
            append(path, p.record(*frame)[30:])
    follower.come(*range(320))
    follower.until(lambda: len(follower.source.finished()) == 7)
    ends = follower.source.finished()[identity(tmp_path / "dump7", 0)]
    assert ends == (NOON, NOON + 39 * STEP)
    assert follower.source.counters.warnings == follower.errors == []


def test_a_file_is_not_over_while_it_grows_although_a_later_one_is_there(tmp_path: Path, follow: Follow) -> None:
    first, clock = write(tmp_path / "a", frames(0, 1)), Clock()
    follower = follow(tmp_path, clock=clock, quiet=0.5)
    follower.come(0)
    follower.until(follower.source.waits)
    write(tmp_path / "b", frames(100, 1))
    clock.now += 0.4
    follower.until(lambda: not follower.source.waits())  # it knows b
    for number in range(1, 8):
        append(first, frames(number, 1))
        follower.come(*range(number + 1))
        clock.now += 0.4  # at no time half a second since it grew
    follower.look()
    assert not follower.source.waits()  # b is there to be read
    assert follower.numbers[-1] < 100
    clock.now += 0.2
    follower.come(*range(8), 100)
    append(first, frames(8, 1))
    clock.now += 1
    follower.until(lambda: bool(follower.source.counters.warnings))
    (said,) = follower.source.counters.warnings
    assert said == f"{first}: grew after another file had followed it; what was added is not read"


@pytest.mark.parametrize("ending", [".gz", ".zst", ".xz"])
def test_a_file_that_is_compressed_after_its_rotation_is_read_once(tmp_path: Path, follow: Follow, ending: str) -> None:
    compress = {".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress, ".xz": lzma.compress}[ending]
    first, packed = write(tmp_path / "a.pcap", frames(0, 50)), tmp_path / f"a.pcap{ending}"
    clock = Clock()
    follower = follow(tmp_path, clock=clock)
    follower.come(*range(50))
    write(tmp_path / "b.pcap", frames(50, 10))
    clock.now += 1
    follower.come(*range(60))
    packed.write_bytes(compress(first.read_bytes()))  # both are there for a moment
    follower.look()
    first.unlink()
    follower.look()
    follower.come(*range(60))
    done = frozenset(follower.source.finished())
    assert done == {identity(first, 0)}
    again = follow(tmp_path, done=done)  # the next run
    again.come(*range(50, 60))
    assert open_capture(packed).identity() in done  # type: ignore[attr-defined]
    (other,) = open_inputs([packed, tmp_path / "b.pcap"], done=done)
    assert other.name == str(tmp_path / "b.pcap")
    everything = follow(tmp_path)
    everything.come(*range(60))


def test_a_compressed_file_that_is_still_written_is_followed_too(tmp_path: Path, follow: Follow) -> None:
    packed = gzip.compress(p.pcap(frames(0, 400)))
    path = tmp_path / "a.pcap.gz"
    follower = follow(tmp_path, clock=Clock())
    path.touch()
    for place in range(0, len(packed), 500):
        append(path, packed[place : place + 500])
        follower.look()
    follower.come(*range(400))
    assert follower.source.counters.warnings == follower.errors == []


def test_every_round_of_a_ring_of_names_is_read(tmp_path: Path, follow: Follow) -> None:
    follower = follow(tmp_path)
    for file in range(7):
        path = tmp_path / f"dump{file % 3}"
        path.write_bytes(p.pcap_header())  # truncates: the same inode, as tcpdump -W does it
        append(path, frames(file * 10, 10))
        follower.until(lambda file=file: len(follower.numbers) >= 10 * file + 10)  # type: ignore[misc]
    follower.come(*range(70))
    assert len(follower.source.finished()) <= 7


def test_a_file_that_is_used_again_while_it_is_read(tmp_path: Path, follow: Follow) -> None:
    path = write(tmp_path / "dump", frames(0, 30))
    follower = follow(tmp_path)
    follower.come(*range(30))
    path.write_bytes(p.pcap(frames(50, 3)))
    follower.come(*range(30), 50, 51, 52)
    assert follower.source.counters.warnings == [f"{path}: was truncated while it was read"]


@pytest.mark.parametrize("rename", [True, False])
def test_a_file_that_was_renamed_or_removed_is_over(tmp_path: Path, follow: Follow, rename: bool) -> None:
    path, clock = write(tmp_path / "a", frames(0, 5)), Clock()
    follower = follow(tmp_path, clock=clock)
    follower.come(*range(5))
    with path.open("ab") as writer:
        if rename:
            path.rename(tmp_path / ".old")
        else:
            path.unlink()
        follower.look()
        writer.write(b"".join(p.record(*frame) for frame in frames(5, 5)))  # the descriptor is still written to
    follower.come(*range(10))
    clock.now += 1
    follower.until(follower.source.waits)  # it is over, and nothing else is there
    write(tmp_path / "b", frames(-5, 1))  # it begins earlier, and does not end a file that may still grow
    clock.now += 1
    follower.come(*range(10), -5)


def test_a_clock_that_was_set_back_does_not_end_the_following(tmp_path: Path, follow: Follow) -> None:
    write(tmp_path / "a", frames(1000, 5))
    follower = follow(tmp_path, quiet=0.03)
    follower.come(*range(1000, 1005))
    later = write(tmp_path / "b", frames(0, 1))
    follower.until(lambda: append(later, frames(len(follower.numbers), 1)) or 0 in follower.numbers)  # type: ignore[func-returns-value]


def test_what_is_no_capture_is_reported_once_and_the_rest_goes_on(tmp_path: Path, follow: Follow) -> None:
    (tmp_path / "folder").mkdir()
    write(tmp_path / "folder" / "x", frames(900, 1))
    for name in (".hidden", "x.tmp", "x.part"):
        write(tmp_path / name, frames(900, 1))
    (tmp_path / "notes.txt").write_text("this is not a capture, and it is long enough")
    damaged = tmp_path / "damaged"
    damaged.write_bytes(p.pcap(frames(0, 2)) + p.record(NOON, b"x", captured=1 << 31) + bytes(50))
    cut = tmp_path / "cut"
    cut.write_bytes(p.pcap(frames(2, 3))[:-7])
    (tmp_path / "empty").touch()
    (tmp_path / "header").write_bytes(p.pcap_header())
    write(tmp_path / "good", frames(5, 2))
    follower = follow(tmp_path)
    follower.come(0, 1, 2, 3, 5, 6)
    append(tmp_path / "notes.txt", b"more")
    append(tmp_path / "header", frames(7, 1))  # at last; the look that finds it has also found more notes
    follower.come(0, 1, 2, 3, 5, 6, 7)
    assert sorted(Path(error.file).name for error in follower.errors) == ["damaged", "notes.txt"]  # type: ignore[attr-defined]
    assert all(isinstance(error, InputError) for error in follower.errors)
    assert [warning.split(":")[0] for warning in follower.source.counters.warnings] == [str(cut)]
    follower.until(lambda: identity(cut, 2) in follower.source.finished())
    assert identity(damaged, 0) not in follower.source.finished()


def test_without_a_taker_errors_are_warnings(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("this is not a capture, and it is long enough")
    source = FolderSource(tmp_path)
    assert source.first_time() is None
    assert "notes.txt: not a capture" in source.counters.warnings[0]


def test_warnings_that_are_passed_on_are_kept_only_for_a_while() -> None:
    """A folder is followed for months."""
    counters, heard = SourceCounters(), list[str]()
    counters.on_warning = heard.append
    for number in range(30):
        counters.warn(str(number))
    assert (len(heard), counters.warnings) == (30, heard[-20:])


def test_a_folder_that_goes_away_and_comes_back(tmp_path: Path, follow: Follow) -> None:
    folder = tmp_path / "captures"
    folder.mkdir()
    follower = follow(folder)
    folder.rmdir()
    follower.until(lambda: bool(follower.source.counters.warnings))
    folder.mkdir()
    write(folder / "a", frames(0, 2))
    follower.come(0, 1)
    assert follower.source.counters.warnings == [f"{folder}: cannot be read: No such file or directory; trying again"]


@pytest.mark.slow
def test_many_files_need_one_descriptor_and_no_second_each(tmp_path: Path, follow: Follow) -> None:
    for number in range(300):
        write(tmp_path / f"{number}", frames(number, 1))
    held = Path("/proc/self/fd")
    before = len(list(held.iterdir())) if held.exists() else 0
    most = 0

    def clock() -> float:
        """Count open descriptors whenever the reader asks for the time."""
        nonlocal most
        most = max(most, len(list(held.iterdir())) if before else 0)
        return time.monotonic()

    follower = follow(tmp_path, quiet=1.0, clock=clock)
    follower.come(*range(300))
    assert most <= before + 4
    for path in list(tmp_path.iterdir())[:290]:
        path.unlink()
    follower.until(lambda: len(follower.source.finished()) <= 10)  # what is gone is forgotten


def test_stopping_while_it_waits_and_while_it_reads(tmp_path: Path) -> None:
    waiting = Follower(tmp_path)
    waiting.until(waiting.source.waits)
    waiting.stop()
    write(tmp_path / "a", frames(0, 5)[:-1])
    append(tmp_path / "a", p.record(NOON, b"abc")[:9])
    reading = Follower(tmp_path)
    reading.come(*range(4))
    reading.stop()
    assert reading.source.counters.warnings == []  # the record that is not whole may still become so
    assert reading.source.finished() == {}


def test_the_identity_is_that_of_the_very_first_packet(tmp_path: Path) -> None:
    stray = write(tmp_path / "a.pcap", [packet(5 * p.SECOND, "10.0.0.1", "10.0.0.2"), *frames(0, 30)])
    source = open_capture(stray)
    assert source.first_time() == NOON
    list(source.blocks())
    assert source.finished() == {f"{stray}@{5 * p.SECOND}": (5 * p.SECOND, NOON + 29 * STEP)}


def zeek_log(numbers: range) -> bytes:
    """Return the lines of a Zeek log, of connections that are known by their times."""
    head = "#separator \\x09\n#fields\tts\tid.orig_h\tid.resp_h\n#types\ttime\taddr\taddr\n"
    times = ((NOON + number * STEP) / p.SECOND for number in numbers)
    return (head + "".join(f"{time:.6f}\t10.0.0.1\t172.16.0.9\n" for time in times)).encode()


def test_a_log_is_read_while_it_grows_and_after_it_was_rotated(tmp_path: Path, follow: Follow) -> None:
    current, lines = tmp_path / "conn.log", zeek_log(range(5)).splitlines(keepends=True)
    current.write_bytes(b"".join(lines[:5]))
    reading = follow(tmp_path)
    reading.until(lambda: reading.numbers == [0, 1])
    with current.open("ab") as file:
        file.write(b"".join(lines[5:7]) + lines[7][:9])
    reading.until(lambda: reading.numbers == [0, 1, 2, 3])
    with current.open("ab") as file:
        file.write(lines[7][9:])
    reading.until(lambda: reading.numbers == [0, 1, 2, 3, 4])
    current.unlink()
    current.write_bytes(zeek_log(range(10, 12)))
    reading.until(lambda: reading.numbers[5:] == [10, 11])
    assert (reading.errors, reading.source.counters.rows) == ([], 7)


def test_tables_and_captures_of_one_folder(tmp_path: Path, follow: Follow) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    write(tmp_path / "a.pcap", frames(0, 3))
    times = pyarrow.array([NOON + number * STEP for number in range(3, 6)])
    table = pyarrow.table({"src": ["10.0.0.1"] * 3, "dst": ["172.16.0.9"] * 3, "ts": times})
    parquet.write_table(table, tmp_path / "b.parquet")
    (tmp_path / "c.parquet").write_bytes((tmp_path / "b.parquet").read_bytes()[:-9])
    write(tmp_path / "d.pcap", frames(6, 2))
    reading = follow(tmp_path)
    reading.until(lambda: reading.numbers == list(range(8)))
    assert [str(error).partition(": ")[2][:20] for error in reading.errors] == ["damaged Parquet file"]
    assert reading.source.counters.rows == 3
    write(tmp_path / "e.pcap", frames(8, 1))
    reading.until(lambda: identity(tmp_path / "b.parquet", 3) in reading.source.finished())
