"""Files as the link: in a shared folder, in two folders that rsync synchronises, or in an object store.

    STORE/SITE/NAME.cube            written by the edge, complete from the first moment
    STORE/SITE/NAME.cube.receipt    written by the hub, which then removes the sketch; the edge removes the receipt

Both sides may be killed between any two steps: the step is repeated, and repeating it changes nothing.
"""

from __future__ import annotations

import errno
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, NamedTuple

from superhosts.core.files import remove_or_set_aside
from superhosts.core.notices import WARNING, Notice
from superhosts.core.text import printable
from superhosts.core.units import format_size
from superhosts.errors import UsageError
from superhosts.fleet.filestore import Entry, FileStore, FolderStore
from superhosts.fleet.link import (
    MAX_REASON,
    REFUSED,
    RESEND,
    LinkStatus,
    Receipt,
    Say,
    decode_json,
    decode_receipt,
    retry_delay,
)
from superhosts.fleet.names import SketchId, check_site
from superhosts.fleet.sites import NO_QUOTA, Quotas, Roster
from superhosts.fleet.spool import Spool

if TYPE_CHECKING:
    from superhosts.fleet.intake import Intake

SETTLE = 60.0  # seconds that a file with a wrong checksum may still be in transit
ENDING = ".receipt"
LARGEST = 8 << 30  # bytes of a sketch, unless the hub sets a lower limit
RECEIPT = 64 << 10  # longest receipt, in bytes
TURN = 100  # sketches of one site to take before the store is scanned again
LONGEST = 60.0  # longest time in seconds between two attempts to take a file


@dataclass
class FileCounters:
    sketches: int = 0
    receipts: int = 0
    resends: int = 0  # sketches that did not arrive intact
    ignored: int = 0  # files that are not sketches
    failures: int = 0  # failed attempts to read or write the store
    down: str = ""  # why the link does not work; empty while it does


@dataclass
class _Bad:
    read: tuple[object, ...]  # its state when it was read
    seen: tuple[object, ...]  # its state at the last scan
    since: float  # when it was first seen in that state


class _Failed(NamedTuple):
    times: int
    until: float
    error: OSError


class FileSender:
    def __init__(self, where: Path | FileStore, site: str, say: Say) -> None:
        self._store, self._site = _as_store(where, "--to"), check_site(site)
        self._home = self._store.home(site)
        self.counters = FileCounters()
        self._status = LinkStatus(f"{self._store}/{site}", say, self.counters)

    def run(self, spool: Spool, stop: threading.Event) -> None:
        failed = 0
        while not stop.is_set():
            try:
                self.step(spool)
                self._status.up()
                failed = 0
            except OSError as error:
                self.counters.failures += 1
                self._status.down(_reason(error))
                failed += 1
            with spool.changed:
                pause = _pause(self._store, failed) if failed or spool.waiting() else self._store.longest
                spool.changed.wait(pause)  # a new sketch ends it

    def step(self, spool: Spool) -> None:
        """Process the receipts in the store, and send the sketches that are not in it."""
        self._store.prepare(self._site)
        present = self._store.names(self._site)
        for name in sorted(name for name in present if name.endswith(f".cube{ENDING}")):
            self._take_receipt(self._home / name, spool)
            present -= {name, name.removesuffix(ENDING)}
        trouble: OSError | None = None
        for path in spool.waiting():
            try:
                if path.name not in present and spool.check(path):
                    self._send(path)
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise
                trouble = error  # an unreadable file must not block the others
        if trouble is not None:
            raise trouble

    def _send(self, path: Path) -> None:
        try:
            self._store.put(path, self._home / path.name)
            self.counters.sketches += 1
        except FileNotFoundError:
            if path.exists():
                raise  # else it was delivered or dropped meanwhile

    def _take_receipt(self, path: PurePath, spool: Spool) -> None:
        if not self._store.look(path).is_plain:
            self._store.set_aside(path)  # a folder, a link or a FIFO is not a receipt
            return
        content = decode_json(self._store.read(path, RECEIPT + 1), RECEIPT)
        sketch = path.with_name(path.name.removesuffix(ENDING))
        if (receipt := decode_receipt(content, sketch.name)) is not None:
            self.counters.resends += receipt.verdict == RESEND
            spool.settle(receipt)
            self.counters.receipts += 1
        self._store.remove(sketch)  # left by rsync or a crash; if it must be sent again, it is copied again
        self._store.remove(path)


class FileReceiver:
    """Takes sketches from a store and writes receipts there. Nothing in the store is trusted."""

    def __init__(
        self,
        where: Path | FileStore,
        say: Say,
        *,
        settle: float = SETTLE,
        largest: int = LARGEST,
        clock: Callable[[], float] = time.monotonic,
        quotas: Quotas | None = None,
    ) -> None:
        """Receive sketches of at most `largest` bytes, of each site as many as its quota allows."""
        self._store = _as_store(where, "--from")
        self.counters = FileCounters()
        self._quotas = Quotas(NO_QUOTA, Roster(say)) if quotas is None else quotas
        self._say = self._quotas.roster.log
        self._settle, self._largest, self._clock = settle, largest, clock
        self._status = LinkStatus(str(self._store), say, self.counters)
        self._ignored: set[PurePath] = set()
        self._bad: dict[PurePath, _Bad] = {}  # files with wrong checksums
        self._failed: dict[PurePath, _Failed] = {}  # files that could not be taken
        self._earlier: dict[str, int] | None = None  # of what was there first: what is left, with its bytes
        self._unlisted = 0  # times in a row that the store could not be scanned

    def senders(self) -> Collection[str]:
        return self._store.sites()

    def run(self, intake: Intake, stop: threading.Event, ready: Callable[[], None] = lambda: None) -> None:
        """Receive until told to stop. A missing folder may be a mount that appears later."""
        ready()
        while not stop.is_set():
            self.look(intake, stop)
            stop.wait(_pause(self._store, self._unlisted))

    def look(self, intake: Intake, stop: threading.Event) -> None:
        try:
            self.step(intake, stop)
            self._status.up()
        except OSError as error:
            others = max(0, len(self._failed) - 1)
            self._status.down(_reason(error), more=f"; {others} more files cannot be taken" if others else "")

    def step(self, intake: Intake, stop: threading.Event) -> None:
        """Take what is in the store now: sites in turns, of each site the oldest windows first."""
        self.counters.failures += 1
        self._unlisted += 1
        found, trouble = self._store.sketches()
        self._unlisted = 0
        self.counters.failures -= trouble is None
        if self._earlier is None:
            self._earlier = {}
            for path in found:
                with suppress(OSError):
                    self._earlier[str(path)] = self._store.look(path).size
        elif self._earlier:
            names = set(map(str, found))
            self._earlier = {name: size for name, size in self._earlier.items() if name in names}
        now = self._clock()
        self._bad = {path: state for path, state in self._bad.items() if path in found}
        self._failed = {path: state for path, state in self._failed.items() if path in found}
        self._ignored &= found
        resting = {path for path, failed in self._failed.items() if failed.until > now}
        for path in _in_turns(found - self._ignored - resting):
            if stop.is_set():
                return
            try:
                self._take(path, intake)
                self._failed.pop(path, None)
            except FileNotFoundError:
                continue  # the site has removed it
            except OSError as error:  # an unreadable file must not block the others
                self.counters.failures += 1
                times = self._failed[path].times if path in self._failed else 0
                pause = retry_delay(times, 4.0, LONGEST) if times else 0.0
                self._failed[path] = _Failed(times + 1, now + pause, error)
        for each in (trouble, *(failed.error for failed in self._failed.values())):
            if each is not None:
                raise each

    def earlier(self) -> dict[str, int] | None:
        """Return what is left of what the first scan has found, with its bytes; None before that scan."""
        return None if self._earlier is None else dict(self._earlier)

    def _take(self, path: PurePath, intake: Intake) -> None:
        try:
            site = check_site(path.parent.name)
            SketchId.parse(path.name)
        except UsageError as error:
            self._ignore(path, f"ignored: {error}")
            return
        entry = self._store.look(path)
        if not entry.is_plain:
            self._set_aside(path)
            return
        receipt = intake.known(path.name) or self._look(path, entry, site, intake)
        if receipt is None:
            return  # it may still be in transit
        self.counters.resends += receipt.verdict == RESEND
        self._bad.pop(path, None)
        answer = path.with_name(path.name + ENDING)
        with suppress(FileNotFoundError):
            if self._store.look(answer).is_folder:
                self._set_aside(answer)
        self._store.write(answer, {"verdict": receipt.verdict, "reason": receipt.reason})
        self._store.remove(path)
        if self._earlier:
            self._earlier.pop(str(path), None)
        self.counters.sketches += 1
        self.counters.receipts += 1

    def _look(self, path: PurePath, entry: Entry, site: str, intake: Intake) -> Receipt | None:
        """Return the receipt for a file; None if it is not known yet. The same content is read only once."""
        if entry.size > self._largest:
            reason = f"{format_size(entry.size)} is more than any sketch of this hub's --memory or --geometry can have"
            self._say(site, "files that are too large", Notice(f"REFUSED: {path}: {reason}", "refused", WARNING))
            return Receipt(path.name, REFUSED, reason)
        state, now = entry.state, self._clock()
        bad = self._bad.get(path)
        if bad is not None:
            if state != bad.seen:
                bad.seen, bad.since = state, now
                return None  # it is being written: read it when it has stopped changing
            if state == bad.read:
                settled = now - bad.since >= self._settle
                return Receipt(path.name, RESEND, "its checksum is not right") if settled else None
        if not self._quotas.allows(site, bytes=entry.size, sketches=1):
            return None  # it waits in the folder
        receipt = self._read(path, site, intake)
        if receipt.verdict != RESEND:
            return receipt
        self._bad[path] = _Bad(state, state, now)
        return receipt if self._settle <= 0 else None

    def _read(self, path: PurePath, site: str, intake: Intake) -> Receipt:
        """Let the intake check a copy of the file, which the site cannot change."""
        arrived = intake.folder / path.name
        remove_or_set_aside(arrived)
        try:
            if not self._store.fetch(path, arrived, self._largest):
                return Receipt(path.name, RESEND, "it is not a sketch, or was changed while it was read")
            return intake.accept(arrived, path.name, site)
        finally:
            arrived.unlink(missing_ok=True)

    def _set_aside(self, path: PurePath) -> None:
        """Rename an entry that is not a file: nothing can be read from it."""
        try:
            self._ignore(path, f"is not a plain file; set aside as {self._store.set_aside(path)}")
        except OSError as error:
            self._ignore(path, f"is not a plain file, ignored; cannot be set aside: {error.strerror}")

    def _ignore(self, path: PurePath, why: str) -> None:
        self._ignored.add(path)
        self.counters.ignored += 1
        self._say(printable(path.parent.name), "files that are not sketches", f"{printable(path)}: {why}")


def _in_turns(paths: Iterable[PurePath]) -> list[PurePath]:
    """Return the oldest windows of every site, with the sites in turns; a site with very many has to wait."""
    sites: dict[PurePath, list[PurePath]] = defaultdict(list)
    for path in paths:
        sites[path.parent].append(path)
    ranks = ((rank, path) for mine in sites.values() for rank, path in enumerate(sorted(mine)[:TURN]))
    return [path for _, path in sorted(ranks, key=lambda each: (each[0], each[1].name))]


def _reason(error: OSError) -> str:
    why = error.strerror or str(error) or type(error).__name__
    return printable(why + (f" ({error.filename})" if error.filename else ""), MAX_REASON)


def _pause(store: FileStore, failed: int) -> float:
    """Return the seconds until the next look at a store that has failed so many times in a row."""
    return retry_delay(failed, store.poll, store.longest) if failed else store.poll


def _as_store(where: Path | FileStore, option: str) -> FileStore:
    """Return the store at a path, which must not be a file; a missing folder may be a mount that appears later."""
    if not isinstance(where, Path):
        return where
    if where.is_file():
        raise UsageError(f"{option} {where}: is a file, not a folder")
    return FolderStore(where)
