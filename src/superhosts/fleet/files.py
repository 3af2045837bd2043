"""A folder as the link: a shared disk, an S3 mount, or two folders that rsync keeps alike.

    DIR/SITE/NAME.cube            put there by the edge, whole (synced, renamed)
    DIR/SITE/NAME.cube.receipt    put there by the hub, which then removes the sketch; the edge removes the receipt

Both sides may be killed between any two steps: whatever is found is done again, and doing it twice changes nothing.
"""

from __future__ import annotations

import errno
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from superhosts.errors import UsageError
from superhosts.fleet.durable import copy_synced, place, read_json, write_json
from superhosts.fleet.link import RESEND, Desk, Receipt, Say
from superhosts.fleet.parcels import Parcel, check_site
from superhosts.fleet.spool import Spool

POLL = 0.5  # seconds between two looks at a folder; network mounts tell nobody of changes
SETTLE = 60.0  # seconds that a file without a right checksum may still be on its way
ENDING = ".receipt"


@dataclass
class FileCounters:
    """What a side of the link has moved."""

    sketches: int = 0
    receipts: int = 0
    resends: int = 0  # sketches that did not arrive whole
    ignored: int = 0  # files that are no sketches
    failures: int = 0  # times that the folder could not be read or written


class _Trouble:
    """Says it when a folder fails and when it is back, once each."""

    def __init__(self, folder: Path, say: Say, counters: FileCounters) -> None:
        self._folder, self._say, self._counters = folder, say, counters
        self._last = ""

    def tell(self, error: OSError) -> None:
        self._counters.failures += 1
        text = f"{error.strerror or error}" + (f" ({error.filename})" if error.filename else "")
        if text != self._last:
            self._last = text
            self._say(f"{self._folder}: {text}; trying again until it works")

    def over(self) -> None:
        if self._last:
            self._last = ""
            self._say(f"{self._folder}: works again")


class FileSender:
    """Puts sketches into a folder and waits for the hub's receipts there."""

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
        """Take the receipts that are there, and send what is not on its way."""
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
                trouble = error  # one that cannot be read must not keep the others
        if trouble is not None:
            raise trouble

    def _copy(self, path: Path, target: Path) -> None:
        temporary = target.with_name(f".{target.name}.tmp")
        try:
            copy_synced(path, temporary, shared=True)
            place(temporary, target)
            self.counters.sketches += 1
        except FileNotFoundError:
            if path.exists():
                raise
            temporary.unlink(missing_ok=True)  # delivered or dropped meanwhile

    def _take_receipt(self, path: Path, spool: Spool) -> None:
        content = read_json(path)
        sketch = path.with_name(path.name.removesuffix(ENDING))
        if isinstance(content, dict):
            receipt = Receipt(sketch.name, str(content.get("verdict")), str(content.get("reason", "")))
            if receipt.verdict == RESEND:
                self.counters.resends += 1
            spool.settle(receipt)
            self.counters.receipts += 1
        sketch.unlink(missing_ok=True)  # where rsync or a crash has left it; a wanted one is put there again
        path.unlink(missing_ok=True)


class FileReceiver:
    """Takes sketches from a folder and leaves receipts there."""

    def __init__(self, folder: Path, say: Say, *, settle: float = SETTLE) -> None:
        _refuse_file("--from", folder)
        self.folder = folder
        self.counters = FileCounters()
        self._say = say
        self._settle = settle
        self._trouble = _Trouble(folder, say, self.counters)
        self._ignored: set[Path] = set()
        self._unsettled: dict[Path, tuple[float, tuple[int, int]]] = {}  # since when a file has been bad, its state

    def run(self, desk: Desk, stop: threading.Event) -> None:
        """Receive until told to stop."""
        while not stop.is_set():
            try:
                self.step(desk, stop)
                self._trouble.over()
            except OSError as error:
                self._trouble.tell(error)
            stop.wait(POLL)

    def step(self, desk: Desk, stop: threading.Event) -> None:
        """Take all that is there now, oldest window first."""
        found, trouble = self._find()
        self._unsettled = {path: state for path, state in self._unsettled.items() if path in found}
        self._ignored &= found
        for path in sorted(found, key=lambda path: path.name):
            if stop.is_set():
                return
            try:
                self._take(path, desk)
            except OSError as error:  # one that cannot be read must not keep the others
                trouble = error
        if trouble is not None:
            raise trouble

    def _find(self) -> tuple[set[Path], OSError | None]:
        """Return the sketches of all sites, and why a site's folder could not be read. OSError: there is no folder."""
        found: set[Path] = set()
        trouble: OSError | None = None
        for site in self.folder.iterdir():
            try:
                if site.is_dir():
                    found |= {path for path in site.iterdir() if path.suffix == ".cube" and path.name[0] != "."}
            except OSError as error:
                trouble = error
        return found, trouble

    def _take(self, path: Path, desk: Desk) -> None:
        try:
            site = check_site(path.parent.name)
            Parcel.parse(path.name)
        except UsageError as error:
            if path not in self._ignored:
                self._ignored.add(path)
                self.counters.ignored += 1
                self._say(f"{path}: ignored: {error}")
            return
        receipt = desk.known(path.name)
        if receipt is None:
            if path in self._unsettled and not self._is_due(path):
                return
            arrived = desk.folder / path.name
            try:
                copy_synced(path, arrived)
                receipt = desk.accept(arrived, path.name, site)
            finally:
                arrived.unlink(missing_ok=True)
        if receipt.verdict == RESEND:
            if not self._is_due(path):
                return
            self.counters.resends += 1
        self._unsettled.pop(path, None)
        write_json(_receipt_path(path), {"verdict": receipt.verdict, "reason": receipt.reason}, shared=True)
        path.unlink(missing_ok=True)
        self.counters.sketches += 1
        self.counters.receipts += 1

    def _is_due(self, path: Path) -> bool:
        """Say whether a file that was not whole is worth another look: it has changed, or will not change any more."""
        status = path.stat()
        state = (status.st_size, status.st_mtime_ns)
        since, before = self._unsettled.setdefault(path, (time.monotonic(), state))
        if before != state:
            del self._unsettled[path]
            return True
        return time.monotonic() - since >= self._settle


def _receipt_path(sketch: Path) -> Path:
    return sketch.with_name(sketch.name + ENDING)


def _refuse_file(option: str, folder: Path) -> None:
    """Refuse a path that can never become the folder; one that is not there yet may be a mount that comes."""
    if folder.is_file():
        raise UsageError(f"{option} {folder}: is a file, not a folder")
