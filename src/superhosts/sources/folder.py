"""Follows a folder into which one program rotates its captures or logs (tcpdump -G or -C, dumpcap -b, Zeek).

- Files are read in the order of their first packets, or of their last change if those lie hours ahead of the clock.
  The last one is read while it grows, compressed or not.
- A file is finished when it has not grown for a second and a file that begins later exists. After a clock was set back
  the next file does not begin later, but it grows, and a program writes to one file at a time: the first is finished
  after ten seconds then. A file that was renamed, removed or overwritten is finished, too.
- The identity of a file is its name without the suffix of a compression, and the time of its first packet. So a file
  that is compressed after its rotation is read once, and every round of a ring of names is read.
- A file that is damaged or not a capture is reported once, and the other files are read.
- The folder is polled, which also works on network file systems and in containers, where the kernel's change events do
  not. One file is open at a time, and memory holds only what is in the folder.

It ends when `stop` is called.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from superhosts.core.notices import WARNING, Notice
from superhosts.core.pairs import PacketBlock
from superhosts.core.units import SECOND
from superhosts.errors import InputError, SuperhostsError
from superhosts.sources.base import CLOCKS, GROUPS, PACE, Clocks, Pace, Source, SourceCounters, Stopped, input_border
from superhosts.sources.capture import CAPTURES
from superhosts.sources.compression import decompressed
from superhosts.sources.files import is_finished
from superhosts.sources.input import FileFormat, Input, Span, identity_of, read_first, without_compression
from superhosts.sources.stream import PlainStream, Stream

_SHORT = 24  # bytes: less than the header of a capture
_LOOKING = 10  # pause between two listings, in multiples of the time of one: a folder may hold very many files
_LONGEST = 1.0  # seconds of that pause at most: files that are not listed yet do not exist for the source
_SET_BACK = 10  # multiple of `Pace.quiet` after which a growing file that begins earlier takes over
_AHEAD = 3600 * SECOND  # nanoseconds ahead of the clock from which the time of a first packet is not accepted


@dataclass
class _File:
    name: str
    path: Path
    inode: int
    size: int
    changed: int
    since: float  # when it was first seen in this state
    grows: bool = False
    first: int | None = None  # time of its first packet
    identity: str | None = None


class FolderSource(Source):
    """The files of a folder, present and future. `done` holds identities to leave out.

    `recognise` returns the format of a file, given its first bytes and a function that returns its first lines; where
    it returns None, the file is taken for a capture.
    What is wrong with a file goes to `on_error`, called by the reading thread, or else to the warnings.
    With `only`, a name in the folder, the source is that one file, which is read while it grows.
    """

    replays = True
    live = True
    groups = GROUPS  # each file is checked when its turn comes

    def __init__(
        self,
        path: str | Path,
        recognise: Callable[[bytes, Callable[[], bytes]], FileFormat | None] = lambda _head, _lines: None,
        *,
        only: str | None = None,
        done: frozenset[str] = frozenset(),
        on_error: Callable[[SuperhostsError], None] | None = None,
        pace: Pace = PACE,
        clocks: Clocks = CLOCKS,
    ) -> None:
        super().__init__(str(path if only is None else Path(path) / only))
        self.now = clocks.steady
        self._only = only
        self._path = Path(path).absolute()
        self._on_error = on_error
        self._recognise = recognise
        self._pace = pace
        self._clocks = clocks
        self._files: dict[str, _File] = {}
        self._taken: set[str] = set(done)
        self._finished: dict[str, tuple[int, int]] = {}
        self._ended: dict[str, int] = {}  # where they ended, by name
        self._reported: set[str] = set()
        self._unreadable = False
        self._next_look = 0.0

    def first_time(self) -> int | None:
        self._look()
        file = self._earliest()
        return None if file is None else file.first

    def _read(self) -> Iterator[PacketBlock]:
        try:
            while True:
                self._look()
                file = self._earliest()
                self._waits = file is None
                if file is None:
                    self._pause()
                else:
                    yield from self._read_file(file)
        except Stopped:
            return

    def finished(self) -> dict[str, tuple[int, int]]:
        return dict(self._finished)

    # Reading

    def _read_file(self, file: _File) -> Iterator[PacketBlock]:
        identity = file.identity
        assert identity is not None
        tail = _Tail(self, file)
        try:
            with input_border(tail.name):
                format = self._format(Input(file.path))
                self.check_group(self.wants, format.groups)
                reader = format.open(tail, self.counters, self.wants)
        except InputError as error:
            if os.path.lexists(file.path):
                self._taken.add(identity)
                self._report(file.name, error)
            else:  # gone since the listing, and perhaps compressed: the next listing finds it
                self._files.pop(file.name, None)
            return
        if tail.inode != file.inode or tail.size() < file.size:  # not what the last listing found
            self._files.pop(file.name, None)
            reader.close()
            return
        self._taken.add(identity)
        span = Span(file.first)
        try:
            with input_border(tail.name):
                while (block := reader.read()) is not None:
                    if block:
                        span.add(block)
                        yield block
                    self._check()
            self._finished[identity] = span.ends()
            self._ended[file.name] = tail.position
        except InputError as error:
            self._report(file.name, error)
        finally:
            self._bytes += reader.position()
            reader.close()

    def _format(self, file: Input) -> FileFormat:
        return self._recognise(file.head(), file.first_lines) or CAPTURES

    def is_over(self, tail: _Tail) -> bool:
        """Return True if a file that was read to its present end is finished; else wait a moment."""
        self._look()
        listed, now = self._files.get(tail.file.name), self.now()
        tail.replaced = True
        if tail.size() < tail.position:
            self.counters.truncated_files += 1
            self.counters.warn(f"{tail.name}: was truncated while it was read")
            return True
        gone = listed is None or listed.inode != tail.inode
        if listed is not None and not gone:
            if listed.first is not None and listed.first != tail.file.first:
                self.counters.warn(f"{tail.name}: was written anew before it was read to its end")
                return True
            if listed.size == tail.position:
                tail.grew = min(tail.grew, listed.since)
        tail.replaced = False
        needed = self._pace.quiet if gone else self._quiet_needed(tail)
        if needed is not None and now - tail.grew >= needed:
            return True
        self._waits = needed is None
        self._pause()
        return False

    def _quiet_needed(self, tail: _Tail) -> float | None:
        """Return the seconds without growth after which a file is finished; None if it may still grow."""
        unread = [f for f in self._files.values() if f.first is not None and f.identity not in self._taken]
        here = self._place(self._files.get(tail.file.name, tail.file))
        if any(self._place(other) > here for other in unread):
            return self._pace.quiet
        if any(other.grows and other.since > tail.grew for other in unread):
            return _SET_BACK * self._pace.quiet
        return None

    def read_more(self) -> None:
        self._waits = False

    def _check(self) -> None:
        if self._stopped:
            raise Stopped

    def _pause(self) -> None:
        self._check()
        self._clocks.sleep(self._pace.poll)
        self._check()

    # Looking

    def _earliest(self) -> _File | None:
        """Return the file to read next: the earliest that was not read; a plain one before its compressed copy."""
        unread = [f for f in self._files.values() if f.first is not None and f.identity not in self._taken]
        return min(unread, key=self._place, default=None)

    def _place(self, file: _File) -> tuple[int, str]:
        """Return a file's place in the order: by its first packet or, if that is hours ahead, by its last change.

        Otherwise a file from a time when the clock was wrong would follow all others, and the file that grows now would
        count as finished in every pause.
        """
        first = file.first or 0
        return (min(first, file.changed) if first > self._clocks.wall() + _AHEAD else first), file.name

    def _look(self) -> None:
        """Find new and changed files, and forget those that are gone; at most once per pause."""
        began = self.now()
        if began < self._next_look:
            return
        try:
            with os.scandir(self._path) as entries:
                wanted = entries if self._only is None else (each for each in entries if each.name == self._only)
                found = dict(filter(None, map(_status, wanted)))
        except OSError as error:  # gone, or a network that is down: it may come back
            if not self._unreadable:
                self.counters.warn(
                    Notice(f"{self.name}: cannot be read: {error.strerror or error}; trying again", "trouble", WARNING)
                )
            self._unreadable = True
            self._next_look = self.now() + self._pace.poll
            return
        self._unreadable = False
        # Opening new files does not count: the first may compile for seconds, and files come meanwhile.
        listing = self.now() - began
        for name, status in found.items():
            self._check()
            self._update(name, status)
        self._files = {name: file for name, file in self._files.items() if name in found}
        self._forget(found)
        self._next_look = self.now() + max(self._pace.poll, min(_LOOKING * listing, _LONGEST))

    def _update(self, name: str, status: os.stat_result) -> None:
        before, now = self._files.get(name), self.now()
        same = before is not None and (before.inode, before.size, before.changed) == _signature(status)
        if before is not None and same and (before.first is not None or not 0 < before.size < _SHORT):
            return
        file = _File(name, self._path / name, *_signature(status), now)
        if before is not None:
            file.since = before.since if same else now
            file.grows = status.st_ino == before.inode and status.st_size > before.size
        self._files[name] = file
        if status.st_size < _SHORT and now - file.since < self._pace.settled:
            return
        try:
            with input_border(str(file.path)):
                file.first = self._first_time(file)
        except InputError as error:
            if os.path.lexists(file.path):
                self._report(name, error)
        if file.first is not None:
            file.identity = identity_of(file.path, file.first)
            if file.identity in self._finished and file.size > self._ended.get(name, file.size):
                self.counters.warn(f"{file.path}: grew after another file had followed it; what was added is not read")
                self._ended[name] = file.size

    def _first_time(self, file: _File) -> int | None:
        """Return the time of the first packet of a file, None where it has none yet."""
        found = Input(file.path)
        reader = self._format(found).open(found, SourceCounters(), self.wants._replace(first_only=True, group=""))
        try:
            return read_first(reader)[0]
        finally:
            reader.close()

    def _forget(self, found: dict[str, os.stat_result]) -> None:
        here = {without_compression(str(self._path / name)) for name in found}
        self._taken = {identity for identity in self._taken if identity.rpartition("@")[0] in here}
        self._finished = {name: ends for name, ends in self._finished.items() if name in self._taken}
        self._ended = {name: end for name, end in self._ended.items() if name in found}
        self._reported = {name for name in self._reported if name in found}

    def _report(self, name: str, error: InputError) -> None:
        if name in self._reported:
            return
        self._reported.add(name)
        if self._on_error is not None:
            self._on_error(error)
        else:
            self.counters.warn(str(error))


def _status(entry: os.DirEntry[str]) -> tuple[str, os.stat_result] | None:
    if not is_finished(entry.name):
        return None
    try:
        status = entry.stat()
    except OSError:  # gone already
        return None
    return (entry.name, status) if stat.S_ISREG(status.st_mode) else None


def _signature(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_size, status.st_mtime_ns


class _Tail:
    """The bytes of a file, which are waited for until the file is finished."""

    def __init__(self, source: FolderSource, file: _File) -> None:
        self.name = str(file.path)
        self.file = file
        self.position = 0
        self.grew = source.now()  # when it last had more to read
        self.replaced = False  # by other content
        self._source = source

    def open(self) -> Stream:
        try:
            self._raw = self.file.path.open("rb", buffering=0)
        except OSError as error:
            raise InputError(f"cannot be opened: {error.strerror or error}", file=self.name) from error
        self.inode = os.fstat(self._raw.fileno()).st_ino
        return decompressed(PlainStream(self.name, self, live=True))

    def readinto(self, view: memoryview) -> int:
        """Fill some of `view`, waiting for bytes; 0 when the file is finished."""
        while not (got := self._raw.readinto(view) or 0):
            if self._source.is_over(self):
                if self.replaced or not (got := self._raw.readinto(view) or 0):  # it may have grown since
                    return 0
                break
        self.position += got
        self.grew = self._source.now()
        self._source.read_more()
        return got

    def size(self) -> int:
        """Return its present size in bytes; once it is closed, the one that it had."""
        return self._last_size if self._raw.closed else os.fstat(self._raw.fileno()).st_size

    def close(self) -> None:
        if not self._raw.closed:
            self._last_size = self.size()
        self._raw.close()
