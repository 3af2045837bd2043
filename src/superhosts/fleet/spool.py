"""An edge's folder of sketches that wait for the hub's receipt.

Every sketch is on disk (flushed, renamed) before anything is sent, and is removed when the hub has given its receipt.
While the hub is away the folder grows up to its cap; then the oldest window is dropped, with a log line, so that the
newest windows are never the missing ones. Sketches that the hub refuses, or that are damaged on this disk, are set
aside for an operator; they count towards the cap and are dropped first. Other things among the sketches (folders,
links, FIFOs) are renamed and never opened: opening a FIFO could block.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from superhosts.core.files import is_plain, make_folder, rename_durably, set_aside, set_aside_and_report
from superhosts.core.notices import WARNING, Notice
from superhosts.core.text import counted, printable
from superhosts.core.units import format_size
from superhosts.cubefile.container import CubeReader
from superhosts.errors import OutputError, SketchFileError, UnreadableError, UsageError
from superhosts.fleet.link import MERGED, REFUSED, Receipt, Say
from superhosts.fleet.names import SketchId, site_named
from superhosts.sketch.sketch import Sketch

SHOWN = 20  # how many names of files set aside the status shows
_NOT_PLAIN = "something that this program has not made there (not a plain file)"


@dataclass
class SpoolCounters:
    spooled: int = 0
    delivered: int = 0
    refused: int = 0
    damaged: int = 0
    dropped: int = 0  # lost: the spool was at its cap


class Spool:
    """Sketches on disk, oldest window first. Safe to use from several threads."""

    def __init__(self, folder: Path, site: str, *, cap: int, say: Say) -> None:
        self.folder, self.site, self.cap, self._say = folder, site, cap, say
        self.counters = SpoolCounters()
        self.changed = threading.Condition()
        self._aside = (folder / "refused", folder / "damaged")
        self._passed_over: set[str] = set()  # entries that are not files and could not be set aside
        try:
            make_folder(folder)
            self._make_way()
            for each in self._aside:
                make_folder(each)
        except OSError as error:
            raise OutputError(f"{error.filename or folder}: cannot be made or used: {error.strerror}") from None
        self._check_sites()
        # To read gigabytes would delay the start: each of these is verified before it is sent.
        self._unverified = {path.name for path in self.waiting()}

    def _make_way(self) -> None:
        """Free the names of folders, and remove temporary files of a killed run."""
        for path in self._aside:
            if os.path.lexists(path) and not path.is_dir():
                set_aside_and_report(path, _NOT_PLAIN, self._say)
        for left in self.folder.glob(".*.tmp"):
            if left.is_dir() and not left.is_symlink():
                set_aside_and_report(left, _NOT_PLAIN, self._say)
            else:
                left.unlink(missing_ok=True)

    def _check_sites(self) -> None:
        """Refuse a folder with sketches of another site: this site's link could never deliver them."""
        for path in _sketches(self.folder):
            other = site_named(path.name)
            if other not in (None, self.site):
                way = f"start it with --site {other} until they are sent, or give each site a folder of its own"
                raise UsageError(f"{self.folder}: sketches of site {other} wait here, this is {self.site}; {way}")

    def waiting(self) -> list[Path]:
        """Return the sketches that wait for a receipt, oldest window first.

        Anything else with the name of a sketch is set aside.
        """
        found = []
        for path in _named_like_sketches(self.folder):
            if not is_plain(path):
                self._set_aside(path)
            elif site_named(path.name) != self.site:
                self._set_damaged(path, "not the name of a sketch of this site")
            else:
                found.append(path)
        return sorted(found)

    def refused(self) -> list[Path]:
        """Return the sketches that the hub has refused, in this run or earlier, and that are still kept."""
        return sorted(_sketches(self._aside[0]))

    def aside(self) -> list[str]:
        """Return some names of what was set aside, in this run or earlier, and waits for an operator."""
        names = [path.name for path in self.folder.glob(".*.aside*")]
        names += [f"{folder.name}/{path.name}" for folder in self._aside for path in _sketches(folder)]
        return [printable(name) for name in sorted(names)[:SHOWN]]

    def put(self, sketch: Sketch) -> Path:
        """Write a window's sketch. Raises OutputError if the disk is full, and leaves nothing behind."""
        assert sketch.window is not None
        fresh = self.folder / ".fresh.tmp"
        try:
            sketch.save(fresh)
            target = self.folder / SketchId.of(fresh, self.site, sketch.window).name
            rename_durably(fresh, target)
        except OSError as error:
            raise OutputError(f"{self.folder}: cannot be written: {error.strerror or error}") from error
        finally:
            with contextlib.suppress(OSError):
                fresh.unlink()
        with self.changed:
            self.counters.spooled += 1
            self._hold_cap()
            self.changed.notify_all()
        return target

    def settle(self, receipt: Receipt) -> None:
        """Do what a receipt requires: remove the sketch, set it aside, or keep it."""
        if site_named(receipt.name) != self.site:
            return  # the name becomes a path, so it must be the name of a sketch
        path = self.folder / receipt.name
        with self.changed:
            if not is_plain(path):
                return  # a repeated receipt, or dropped meanwhile
            if receipt.verdict == MERGED:
                path.unlink(missing_ok=True)
                self.counters.delivered += 1
            elif receipt.verdict == REFUSED:
                self._put_aside(path, self._aside[0])
                self.counters.refused += 1
                text = f"the hub REFUSES {receipt.name}: {receipt.reason} (kept in {self._aside[0]})"
                self._say(Notice(text, "refuses", WARNING))
            else:
                self.verify(path)
            self.changed.notify_all()

    def check(self, path: Path) -> bool:
        """Return True if a sketch may be sent. One of an earlier run is verified first, once."""
        with self.changed:
            is_earlier = path.name in self._unverified
            self._unverified.discard(path.name)
        return not is_earlier or self.verify(path) or is_plain(path)

    def sizes(self) -> dict[str, int]:
        return {path.name: _size(path) for path in self.waiting()}

    def verify(self, path: Path) -> bool:
        """Return True if a sketch is intact. A damaged one is set aside; one that cannot be read now stays."""
        try:
            sketch_id = SketchId.parse(path.name)
            with CubeReader(path) as reader:
                window = reader.header.get("window")
            if SketchId.of(path, sketch_id.site, sketch_id.window) == sketch_id and window == list(sketch_id.window):
                return True
            reason = "its content does not match its name"
        except (UnreadableError, OSError) as error:
            if path.exists():
                self._say(Notice(f"{path.name} in the spool cannot be read now: {error}", "trouble", WARNING))
            return False
        except (SketchFileError, UsageError) as error:
            reason = str(error)
        if is_plain(path):
            self._set_damaged(path, reason)
        return False

    def backlog(self) -> tuple[int, int]:
        sizes = self.sizes()
        return len(sizes), sum(sizes.values())

    def size(self) -> int:
        """Return the bytes of all sketches, including those set aside."""
        return sum(_size(path) for folder in (self.folder, *self._aside) for path in _sketches(folder))

    def oldest(self) -> float | None:
        """Return when the oldest sketch that waits was written, in seconds since 1970; None if none waits."""
        for path in self.waiting():
            with contextlib.suppress(OSError):  # delivered meanwhile
                return path.stat().st_mtime
        return None

    def _set_damaged(self, path: Path, reason: str) -> None:
        with self.changed:
            if not is_plain(path):
                return  # another thread was faster
            self._put_aside(path, self._aside[1])
            self.counters.damaged += 1
        text = f"{printable(path.name)}: {printable(reason)} (kept in {self._aside[1]})"
        self._say(Notice(f"DAMAGED in the spool, not sent: {text}", "damaged", WARNING))

    def _set_aside(self, path: Path) -> None:
        """Rename an entry that is not a file; if that fails, log it once and skip the entry from then on."""
        with self.changed:
            if path.name in self._passed_over:
                return
            try:
                set_aside_and_report(path, _NOT_PLAIN, self._say)
            except OutputError as error:
                self._passed_over.add(path.name)
                self._say(Notice(str(error), "trouble", WARNING))

    def _put_aside(self, path: Path, folder: Path) -> None:
        target = folder / path.name
        if os.path.lexists(target) and not is_plain(target):
            set_aside(target)
        with contextlib.suppress(FileNotFoundError):
            path.replace(target)

    def _hold_cap(self) -> None:
        """Remove sketches down to the cap: those set aside first, then the oldest windows, never the newest."""
        excess = self.size() - self.cap
        aside = sorted(path for folder in self._aside for path in _sketches(folder))
        waiting = self.waiting()
        for path in (*aside, *waiting[:-1]):
            if excess <= 0:
                return
            excess -= _size(path)
            path.unlink(missing_ok=True)
            if path in waiting:
                self.counters.dropped += 1
                full = f"the spool is at its cap of {format_size(self.cap)}"
                text = f"{path.name}; {full}, {counted(len(waiting), 'window waits', 'windows wait')} for the hub"
                self._say(Notice(f"DROPPED, lost for good: {text}", "dropped", WARNING))


def _named_like_sketches(folder: Path) -> Iterator[Path]:
    return (path for path in folder.glob("*.cube") if not path.name.startswith("."))


def _sketches(folder: Path) -> Iterator[Path]:
    return filter(is_plain, _named_like_sketches(folder))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # delivered meanwhile
        return 0


class LinkSender(Protocol):
    counters: Any  # a dataclass of numbers

    def run(self, spool: Spool, stop: threading.Event) -> None:
        """Send what waits in the spool until told to stop. Reports a broken link and retries."""
