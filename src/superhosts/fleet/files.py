"""A folder as the link: a shared disk, an S3 mount, or two folders that rsync synchronises.

    DIR/SITE/NAME.cube            written by the edge (flushed, renamed)
    DIR/SITE/NAME.cube.receipt    written by the hub, which then removes the sketch; the edge removes the receipt

Both sides may be killed between any two steps: the step is repeated, and repeating it changes nothing.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from superhosts.cubefile.container import MAGIC
from superhosts.durable import copy_synced, remove_or_set_aside, set_aside, write_json
from superhosts.errors import UsageError
from superhosts.fleet.limits import LimitedSay
from superhosts.fleet.link import Acceptor
from superhosts.fleet.parcels import Parcel, check_site
from superhosts.fleet.pauses import growing_pause
from superhosts.fleet.quotas import Quotas
from superhosts.fleet.receipts import MAX_REASON, MERGED, REFUSED, RESEND, Receipt, Say
from superhosts.fleet.spool import Spool
from superhosts.replacing import open_fresh, rename_durably, sync
from superhosts.text import printable
from superhosts.units import format_size

POLL = 0.5  # seconds between two scans of a folder; network mounts do not announce changes
SETTLE = 60.0  # seconds that a file with a wrong checksum may still be in transit
ENDING = ".receipt"
LARGEST = 8 << 30  # bytes of a sketch, unless the hub sets a lower limit
RECEIPT = 64 << 10  # longest receipt, in bytes
TURN = 100  # sketches of one site to take before the folder is scanned again
LONGEST = 60.0  # longest time in seconds between two attempts to take a file
_ZEROS = bytes(1 << 20)


@dataclass
class FileCounters:
    """What one end of the link has done."""

    sketches: int = 0
    receipts: int = 0
    resends: int = 0  # sketches that did not arrive intact
    ignored: int = 0  # files that are not sketches
    failures: int = 0  # failed attempts to read or write the folder
    down: str = ""  # why the link does not work; empty while it does


@dataclass
class _Bad:
    """A file whose checksum was wrong."""

    read: tuple[int, ...]  # its state when it was read
    seen: tuple[int, ...]  # its state at the last scan
    since: float  # when it was first seen in that state


@dataclass
class _Failed:
    """A file that could not be taken."""

    times: int = 0
    until: float = 0.0
    error: OSError | None = None


class _Trouble:
    """Logs when a folder fails and when it works again, once each."""

    def __init__(self, folder: Path, say: Say, counters: FileCounters) -> None:
        self._folder, self._say, self._counters = folder, say, counters
        self._last = ""

    def tell(self, error: OSError, *, times: int = 1, others: int = 0) -> None:
        """Log the reason, count the failed attempts, and record how many other files cannot be taken."""
        self._counters.failures += times
        text = printable(f"{error.strerror or error}" + (f" ({error.filename})" if error.filename else ""), MAX_REASON)
        self._counters.down = text + (f"; {others} more files cannot be taken" if others else "")
        if text != self._last:
            self._last = text
            self._say(f"{self._folder}: {text}; retrying until it works")

    def over(self) -> None:
        self._counters.down = ""
        if self._last:
            self._last = ""
            self._say(f"{self._folder}: works again")


class FileSender:
    """Writes sketches to a folder and waits for the hub's receipts there."""

    def __init__(self, folder: Path, site: str, say: Say) -> None:
        _refuse_file("--to", folder)
        self.folder = folder / check_site(site)
        self.counters = FileCounters()
        self._trouble = _Trouble(self.folder, say, self.counters)

    def run(self, spool: Spool, stop: threading.Event) -> None:
        """Send until told to stop."""
        while not stop.is_set():
            try:
                self.step(spool)
                self._trouble.over()
            except OSError as error:
                self._trouble.tell(error)
            with spool.changed:
                spool.changed.wait(POLL)

    def step(self, spool: Spool) -> None:
        """Process the receipts in the folder, and send the sketches that are not in it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in self.folder.glob(f"*.cube{ENDING}"):
            self._take_receipt(path, spool)
        trouble: OSError | None = None
        for path in spool.waiting():
            target = self.folder / path.name
            try:
                if not target.exists() and not _receipt_path(target).exists():
                    self._copy(path, target)
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise
                trouble = error  # an unreadable file must not block the others
        if trouble is not None:
            raise trouble

    def _copy(self, path: Path, target: Path) -> None:
        temporary = target.with_name(f".{target.name}.tmp")
        try:
            copy_synced(path, temporary, shared=True)
            rename_durably(temporary, target)
            self.counters.sketches += 1
        except FileNotFoundError:
            if path.exists():
                raise
            temporary.unlink(missing_ok=True)  # delivered or dropped meanwhile

    def _take_receipt(self, path: Path, spool: Spool) -> None:
        try:
            content = _read_receipt(path)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ELOOP):
                raise
            set_aside(path)  # a folder, a link or a FIFO is not a receipt
            return
        sketch = path.with_name(path.name.removesuffix(ENDING))
        if isinstance(content, dict) and content.get("verdict") in (MERGED, REFUSED, RESEND):
            receipt = Receipt(sketch.name, content["verdict"], printable(content.get("reason", ""), MAX_REASON))
            if receipt.verdict == RESEND:
                self.counters.resends += 1
            spool.settle(receipt)
            self.counters.receipts += 1
        remove_or_set_aside(sketch)  # left by rsync or a crash; if it must be sent again, it is copied again
        path.unlink(missing_ok=True)


class FileReceiver:
    """Takes sketches from a folder and writes receipts there. Nothing in the folder is trusted."""

    def __init__(
        self,
        folder: Path,
        say: Say,
        *,
        settle: float = SETTLE,
        largest: int = LARGEST,
        clock: Callable[[], float] = time.monotonic,
        quotas: Quotas | None = None,
    ) -> None:
        """Receive sketches of at most `largest` bytes, of each site as many as its quota allows."""
        _refuse_file("--from", folder)
        self.folder = folder
        self.counters = FileCounters()
        self._say = LimitedSay(say, clock=clock)
        self._settle, self._largest, self._clock = settle, largest, clock
        self._quotas = Quotas() if quotas is None else quotas
        self._trouble = _Trouble(folder, say, self.counters)
        self._ignored: set[Path] = set()
        self._bad: dict[Path, _Bad] = {}  # files with wrong checksums
        self._failed: dict[Path, _Failed] = {}  # files that could not be taken
        self._attempts = 0  # failed attempts at the last scan

    def senders(self) -> Collection[str]:
        """Return the sites that have a folder."""
        try:
            return {path.name for path in self.folder.iterdir() if path.is_dir() and path.name[0] != "."}
        except OSError:
            return ()

    def run(self, intake: Acceptor, stop: threading.Event, ready: Callable[[], None] = lambda: None) -> None:
        """Receive until told to stop. A missing folder may be a mount that appears later."""
        ready()
        while not stop.is_set():
            self.look(intake, stop)
            stop.wait(POLL)

    def look(self, intake: Acceptor, stop: threading.Event) -> None:
        """Take what is in the folder now, and log what cannot be taken."""
        try:
            self.step(intake, stop)
            self._trouble.over()
        except OSError as error:
            self._trouble.tell(error, times=self._attempts, others=max(0, len(self._failed) - 1))

    def step(self, intake: Acceptor, stop: threading.Event) -> None:
        """Take what is in the folder now: sites in turns, of each site the oldest windows first."""
        self._attempts = 1
        found, trouble = self._find()
        self._attempts = 1 if trouble is not None else 0
        now = self._clock()
        self._bad = {path: state for path, state in self._bad.items() if path in found}
        self._failed = {path: state for path, state in self._failed.items() if path in found}
        self._ignored &= found
        for path in _in_turns(path for path in found - self._ignored if self._is_due(path, now)):
            if stop.is_set():
                return
            try:
                self._take(path, intake)
                self._failed.pop(path, None)
            except FileNotFoundError:
                continue  # the site has removed it
            except OSError as error:  # an unreadable file must not block the others
                failed = self._failed.setdefault(path, _Failed())
                failed.times += 1
                self._attempts += 1
                failed.until = now + (growing_pause(failed.times - 1, 4.0, LONGEST) if failed.times > 1 else 0.0)
                failed.error = error
        errors = [failed.error for failed in self._failed.values() if failed.error is not None]
        if trouble is not None or errors:
            raise trouble or errors[0]

    def _is_due(self, path: Path, now: float) -> bool:
        return path not in self._failed or self._failed[path].until <= now

    def _find(self) -> tuple[set[Path], OSError | None]:
        """Return the sketches of all sites, and the error of a site's folder that could not be read.

        Raises OSError if the folder itself cannot be read.
        """
        found: set[Path] = set()
        trouble: OSError | None = None
        for site in self.folder.iterdir():
            try:
                if site.is_dir() and site.name[0] != ".":
                    found |= {path for path in site.iterdir() if path.suffix == ".cube" and path.name[0] != "."}
            except OSError as error:
                trouble = error
        return found, trouble

    def _take(self, path: Path, intake: Acceptor) -> None:
        try:
            site = check_site(path.parent.name)
            Parcel.parse(path.name)
        except UsageError as error:
            self._ignore(path, f"ignored: {error}")
            return
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            self._set_aside(path)
            return
        receipt = intake.known(path.name) or self._look(path, status, site, intake)
        if receipt is None:
            return  # it may still be in transit
        self.counters.resends += receipt.verdict == RESEND
        self._bad.pop(path, None)
        answer = _receipt_path(path)
        if answer.is_dir() and not answer.is_symlink():
            self._set_aside(answer)
        write_json(answer, {"verdict": receipt.verdict, "reason": receipt.reason}, shared=True)
        path.unlink(missing_ok=True)
        self.counters.sketches += 1
        self.counters.receipts += 1

    def _look(self, path: Path, status: os.stat_result, site: str, intake: Acceptor) -> Receipt | None:
        """Return the receipt for a file; None if it is not known yet. The same content is read only once."""
        size = max(status.st_size, 512 * status.st_blocks)  # the apparent size, or the size on disk if that is larger
        if size > self._largest:
            reason = f"{format_size(size)} is more than any sketch of this hub's --memory or --geometry can have"
            self._say(site, "files that are too large", f"REFUSED: {path}: {reason}")
            return Receipt(path.name, REFUSED, reason)
        state, now = (status.st_size, status.st_mtime_ns, status.st_ino), self._clock()
        bad = self._bad.get(path)
        if bad is not None:
            if state != bad.seen:
                bad.seen, bad.since = state, now
                return None  # it is being written: read it when it has stopped changing
            if state == bad.read:
                settled = now - bad.since >= self._settle
                return Receipt(path.name, RESEND, "its checksum is not right") if settled else None
        if not self._quotas.allows(site, bytes=size, sketches=1):
            return None  # it waits in the folder
        receipt = self._read(path, site, intake)
        if receipt.verdict != RESEND:
            return receipt
        self._bad[path] = _Bad(state, state, now)
        return receipt if self._settle <= 0 else None

    def _read(self, path: Path, site: str, intake: Acceptor) -> Receipt:
        """Let the intake check a copy of the file, which the site cannot change."""
        arrived = intake.folder / path.name
        remove_or_set_aside(arrived)
        try:
            if not _copy_bounded(path, arrived, self._largest):
                return Receipt(path.name, RESEND, "it is no sketch, or was changed while it was read")
            return intake.accept(arrived, path.name, site)
        finally:
            arrived.unlink(missing_ok=True)

    def _set_aside(self, path: Path) -> None:
        """Rename an entry that is not a file: nothing can be read from it."""
        try:
            self._ignore(path, f"is not a plain file; set aside as {set_aside(path).name}")
        except OSError as error:
            self._ignore(path, f"is not a plain file, ignored; cannot be set aside: {error.strerror}")

    def _ignore(self, path: Path, why: str) -> None:
        self._ignored.add(path)
        self.counters.ignored += 1
        self._say(printable(path.parent.name), "files that are not sketches", f"{printable(path)}: {why}")


def _in_turns(paths: Iterable[Path]) -> list[Path]:
    """Return the oldest windows of every site, with the sites in turns; a site with very many has to wait."""
    sites: dict[Path, list[Path]] = defaultdict(list)
    for path in paths:
        sites[path.parent].append(path)
    ranks = ((rank, path) for mine in sites.values() for rank, path in enumerate(sorted(mine)[:TURN]))
    return [path for _, path in sorted(ranks, key=lambda each: (each[0], each[1].name))]


def _open_plain(path: Path) -> BinaryIO:
    """Open a file in a folder to which others write, without following links or blocking on a FIFO."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not a plain file", str(path))
    return os.fdopen(handle, "rb")


def _copy_bounded(source: Path, target: Path, most: int) -> bool:
    """Copy a file that begins like a sketch and has at most `most` bytes; return False for any other.

    The copy is as sparse as the file: a sparse file may be larger than the disk.
    """
    with _open_plain(source) as read, open_fresh(target) as write:
        size = 0
        while block := read.read(len(_ZEROS)):
            if size == 0 and block[: len(MAGIC)] != MAGIC:
                return False
            size += len(block)
            if size > most:
                return False
            if block == _ZEROS:
                write.seek(size)
            else:
                write.write(block)
        write.truncate(size)
        write.flush()
        sync(write.fileno())
    return size > 0


def _read_receipt(path: Path) -> Any:
    """Read a small JSON file written by somebody else; None if it is invalid."""
    with _open_plain(path) as file:
        text = file.read(RECEIPT + 1)
    try:
        return json.loads(text) if len(text) <= RECEIPT else None
    except (RecursionError, ValueError):
        return None


def _receipt_path(sketch: Path) -> Path:
    return sketch.with_name(sketch.name + ENDING)


def _refuse_file(option: str, folder: Path) -> None:
    """Refuse a path that is a file; a missing folder may be a mount that appears later."""
    if folder.is_file():
        raise UsageError(f"{option} {folder}: is a file, not a folder")
