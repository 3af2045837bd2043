"""What a source of traffic is: what it yields, what it counts, how long it waits, and the schemes of names.

A source yields blocks of packets (`pairs.PacketBlock`), in reading order. A new one subclasses `Source` and implements
`_read`, and `first_time` unless it is live; what else there is has defaults. A format of files is not a source of
its own: it gives `FileSource` a reader (`input.py`).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from superhosts.core.pairs import PacketBlock
from superhosts.core.text import printable, setting
from superhosts.errors import InputError, SuperhostsError, UsageError, internal_error
from superhosts.jit.memory import is_out_of_memory


class Pace(NamedTuple):
    """How long readers of live inputs, and the run that takes their packets, wait: all in seconds."""

    wake: float = 0.2  # after which a waiting thread checks the clock, and whether to stop
    caught_up: float = 1.0  # without a backlog before the clock counts
    held_up: float = 1.0  # after which the last check of the inputs is out of date
    drain: float = 5.0  # after which a stop no longer waits for a reader
    linger: float = 0.2  # a stopped reader of a pipe still reads: Ctrl-C makes the capture program flush its packets
    poll: float = 0.2  # between two checks of a file or a folder
    quiet: float = 1.0  # without growth after which a file of a folder may be finished
    settled: float = 2.0  # after which a file too short for a capture is opened


class Clocks(NamedTuple):
    steady: Callable[[], float] = time.monotonic  # in seconds, from any moment on
    wall: Callable[[], int] = time.time_ns  # in nanoseconds since the epoch
    sleep: Callable[[float], None] = time.sleep


PACE = Pace()
CLOCKS = Clocks()


LAST_WARNINGS = 20


class Stopped(Exception):  # noqa: N818  not an error
    """A reader was told to stop."""


@contextmanager
def input_border(name: str) -> Iterator[None]:
    """Turn any exception while an input is opened or read into an InputError that names the input.

    So a defect that one input uncovers ends that input, and the others go on. Errors that are meant for users pass, and
    so does a MemoryError if the whole process is out of memory.
    """
    try:
        yield
    except (SuperhostsError, Stopped):
        raise
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", file=name) from error
    except Exception as error:
        if isinstance(error, MemoryError) and is_out_of_memory():
            raise
        raise InputError(internal_error(error), file=name) from error


def first_time_of(source: Source) -> int | None:
    with input_border(source.name):
        return source.first_time()


@dataclass
class SourceCounters:
    packets: int = 0
    ipv4: int = 0
    ipv6: int = 0
    not_ip: int = 0  # ARP, LLDP, ... : whole frames that carry no IP header
    truncated: int = 0  # (snaplen, damage) before the end of the addresses
    unsupported_link: int = 0  # of an interface with an unsupported link type
    rows: int = 0  # those of the packets that are rows of tables
    bad_rows: int = 0  # rows without two addresses of one family, or without a time
    skipped_records: int = 0  # of logs: other events, which are not rows
    records: int = 0  # those of the packets that are records of flow exports
    exports: list[dict[str, Any]] = field(default_factory=list)  # of an input of flow exports: its status
    truncated_files: int = 0  # inputs whose end is missing
    drops: int = 0  # packets that a live capture has lost; they are none of the packets read
    repeats: int = 0  # those of the packets that the kernel dropped, because their pair came before
    warnings: list[str] = field(default_factory=list)  # for the user; only the last few if `on_warning` takes them

    def __post_init__(self) -> None:
        self.on_warning: Callable[[str], None] | None = None  # called by the thread that reads

    def count(self, block: PacketBlock) -> None:
        for batch in block:
            self.packets += len(batch)
            if batch.family == 4:
                self.ipv4 += len(batch)
            else:
                self.ipv6 += len(batch)

    def warn(self, text: str) -> None:
        """Record a warning. If `on_warning` takes it, only the last few are kept: some inputs never end."""
        self.warnings.append(text)
        if self.on_warning is not None:
            self.on_warning(text)
            del self.warnings[:-LAST_WARNINGS]


class Notes:
    """Numbers, each with a time. One thread notes, others ask.

    There are at most so many notes: the oldest two become one, with the later time.
    """

    def __init__(self, merge: Callable[[int, int], int], most: int) -> None:
        self._merge, self._most = merge, most
        self._lock = threading.Lock()
        self._notes: deque[tuple[int, int]] = deque()

    def add(self, time: int, number: int) -> None:
        with self._lock:
            self._notes.append((time, number))
            if len(self._notes) > self._most:
                (first, one), (second, other) = self._notes.popleft(), self._notes.popleft()
                self._notes.appendleft((max(first, second), self._merge(one, other)))

    def between(self, start: int, end: int) -> int:
        with self._lock:
            return sum(number for time, number in self._notes if start <= time < end)

    def take(self, before: int) -> int | None:
        """Forget the first notes, as far as all of them are before a time, and return their numbers merged."""
        taken: int | None = None
        with self._lock:
            while self._notes and self._notes[0][0] < before:
                number = self._notes.popleft()[1]
                taken = number if taken is None else self._merge(taken, number)
        return taken


GROUPS = ("exporter", "interface", "vlan")  # by which packets can be kept apart
TUNNELS = ("outer", "inner", "both")  # whose addresses count: the outermost IP header's, the innermost's, or each


class Sampling:
    """Of which pairs details are wanted: those in the sample of a window, which is made while sources read ahead.

    `limit` is the window's start, its end and the largest hash of the sample so far. It is replaced as a whole, and the
    hash only falls; packets of other times may belong to a window that has no sample yet, so all of them are wanted.
    A source may tell more than is wanted.
    """

    def __init__(self, words: tuple[int, int, int]) -> None:
        self.words = words  # of the hash of a pair of IPv4 addresses (`hashing.mangle64`)
        self.limit = 0, 0, 0


class Wants(NamedTuple):
    details: bool = False  # protocol, ports and flags, in `PacketBatch.details`
    tunnels: str = "outer"  # one of TUNNELS
    sampling: Sampling | None = None  # details only of these packets, if a source can tell them apart; None: of all
    threads: int | None = None  # that may read it; None: one for each CPU
    one_window: bool = False  # all packets are one window: they need no time
    group: str = ""  # one of GROUPS: each batch has the packets of one group
    first_only: bool = False  # the first packets alone, to know when an input begins
    once_within: int | None = None  # ns of windows in which a pair has to come once (0: of all time); None: each packet


PLAIN = Wants()


class Source:
    """One input. The defaults are those of a file; sources that wait for traffic set their flags themselves."""

    replays: bool = True  # the next run can read it again, from its beginning
    live: bool = False  # it waits for traffic that has not happened yet
    loses: bool = False  # packets are lost while it is not read: a live capture
    receives: bool = False  # it opens a ring or sockets, so that a run is prepared before
    wants: Wants = PLAIN
    groups: tuple[str, ...] = ()  # by which its packets can be kept apart
    one_thread: bool = False  # one thread reads it, so that it takes long: several such inputs are read at once
    _bytes: int = 0  # read so far
    _waits: bool = False
    _stopped: bool = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.counters = SourceCounters()

    def want(self, wants: Wants) -> None:
        """Take note of what the run needs. Called before it is read."""
        self.check_group(wants, self.groups)
        self.wants = wants

    def check_group(self, wants: Wants, known: Sequence[str]) -> None:
        """Raise UsageError if packets are to be grouped by what is not known of them."""
        if wants.group and wants.group not in known:
            has = f"; it has {' and '.join(known)}" if known else ""
            raise UsageError(f"{setting('group_by', wants.group)}: {self.name} does not tell it{has}")

    def use_filter(self, expression: str) -> None:
        """Take only packets that match an expression of libpcap. Called before it is read. Only for live captures."""
        raise UsageError(f"--filter: only for live captures (live:eth0), not for {self.name}")

    def choose_time(self, which: str) -> None:
        """Count records of flows by this time, one of the words of --time. Called before it is read."""
        return

    def rehearse(self) -> None:
        """Use the loops that read it, without reading it: none is compiled when traffic comes."""
        return

    def open(self) -> None:
        """Begin to receive, if it receives: called before it is read, once all loops are loaded."""
        return

    def first_time(self) -> int | None:
        """Return the time of the first packet, which `blocks` still yields; a pipe waits for it.

        None: the input has no packets, and is not read. A run that follows live inputs does not ask them.
        """
        return None

    def blocks(self) -> Iterator[PacketBlock]:
        """Yield the packets, once, and count them."""
        for block in self._read():
            self.counters.count(block)
            yield block

    def _read(self) -> Iterator[PacketBlock]:
        """Yield the packets. Count here only what is not a packet with addresses."""
        raise NotImplementedError

    def position(self) -> int:
        """Return the bytes of the input read so far, for the progress bar."""
        return self._bytes

    def size(self) -> int | None:
        """Return the bytes of the whole input, None if they are not known."""
        return None

    def again(self) -> Source:
        """Return a new source that reads the input from its beginning. Only for inputs that replay and are not live."""
        raise InputError("cannot be read a second time", file=self.name)

    def waits(self) -> bool:
        """Return True if everything available has been read and the reader waits for more. Only live inputs wait."""
        return self._waits

    def stop(self) -> None:
        """Make `blocks` end soon. A signal handler may call this: it only sets a flag."""
        self._stopped = True

    def identity(self) -> str | None:
        """Return a name by which later runs recognise a file; None for other inputs and for files without packets."""
        return None

    def lost(self, start: int, end: int) -> int | None:
        """Return the packets lost from one time on and before another; None for an input that loses none."""
        return None

    def fullness(self) -> float | None:
        """Return how full the buffer of a live capture is, from 0 to 1; None for other inputs."""
        return None

    def release(self, before: int) -> None:
        """Take note that all windows that end at or before this time are safe: in a spool, or reported.

        A source that keeps its position elsewhere, like the offsets of a topic, moves it now.
        """
        return

    def leave(self) -> None:
        """Take note that the run is over: nothing is read or released any more. Gives back what others wait for."""
        return

    def finished(self) -> dict[str, tuple[int, int]]:
        """Return the files read to their end so far: identity → first and last time."""
        return {}


def exports_of(sources: Iterable[Source]) -> list[dict[str, Any]]:
    return [status for source in sources for status in source.counters.exports]


class Scheme(NamedTuple):
    """Inputs whose names begin with a word and a colon (synth:flows=100k); they are not files."""

    word: str
    open: Callable[[str], Source | Sequence[Source]]  # takes the whole name, with the word; it may stand for several


def words_of(name: str, query: str, known: Sequence[str]) -> dict[str, str]:
    """Return the words of a name (?word=value&…)."""
    words = dict(parse_qsl(query, keep_blank_values=True))
    for word in words:
        if word not in known:
            raise UsageError(f"{printable(name)}: unknown word {word!r}; use {', '.join(known)}")
    return words


def whole_number(name: str, word: str, value: str, least: int, most: int) -> int:
    if not (value.isascii() and value.isdigit() and least <= int(value) <= most):
        raise UsageError(f"{printable(name)}: {word}={value}: a whole number from {least} to {most}")
    return int(value)
