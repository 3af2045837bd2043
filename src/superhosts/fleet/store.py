"""What a hub keeps on disk: a folder for each window, with the sites' sketches, their union, and a ledger.

    STATE/incoming/                             files that are arriving
    STATE/windows/20261114T120000Z-5m/
        20261114T120000Z-5m-ams-1a2b….cube      a site's sketch, as it came
        merged.cube                             the union of the sketches that the ledger calls merged
        ledger.json                             who is in, what was reported
    STATE/past/20261114T120000Z-5m.json         ledgers of windows whose sketches are gone

The union is a function of the sketches in the folder, so a sketch counts as merged when it lies there durably. All else
can be made again after a crash.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from superhosts.errors import OutputError
from superhosts.fleet.durable import copy_synced, make_folder, make_way, place, read_json, sync_folder, write_json
from superhosts.fleet.link import MERGED, REFUSED, Receipt
from superhosts.fleet.parcels import Parcel, parse_key

UNION = "merged.cube"
LEDGER = "ledger.json"
MOST_REFUSED = 1000  # refused sketches that are remembered: nobody may fill the memory with them


@dataclass
class Issue:
    """One report of a window: which sketches are in it, and who is missing."""

    revision: int = 1
    members: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    @classmethod
    def parse(cls, content: Any) -> Issue | None:
        """Read what was written of a report; None where there was none."""
        return cls(**_known(cls, content)) if content else None


@dataclass
class Ledger:
    """What a hub knows of one window."""

    first: float = 0.0  # when its first sketch came, by this machine's clock; so is the next
    unreported: float = 0.0  # when the first sketch came that is in no report yet, or the window was taken back
    known: list[str] = field(default_factory=list)  # all sketches that were ever accepted
    merged: list[str] = field(default_factory=list)  # sketches that are in the union on disk
    issued: Issue | None = None  # the last report that has left the hub
    issuing: Issue | None = None  # a report that is being made: after a crash it is made again, the same

    @classmethod
    def parse(cls, content: Any) -> Ledger:
        """Read a ledger as it was written, by this release or a newer one."""
        found = _known(cls, content)
        return cls(**{**found, **{name: Issue.parse(found.get(name)) for name in ("issued", "issuing")}})

    @property
    def is_due(self) -> bool:
        """Say whether there is something to report that was not reported."""
        return self.issuing is not None or set(self.known) != set(self.issued.members if self.issued else ())


class Store:
    """The windows of a hub. Safe to use from several threads."""

    def __init__(self, state: Path) -> None:
        self.incoming, self._windows, self._past = state / "incoming", state / "windows", state / "past"
        self.lock = threading.RLock()
        try:
            for folder in (self.incoming, self._windows, self._past):
                make_folder(folder)
        except OSError as error:
            raise OutputError(f"{state}: cannot be made: {error.strerror}") from None
        self.fresh: set[str] = set()  # sketches whose checksums this very process has checked
        self._refused: dict[str, str] = {}  # name → reason; not kept: a hub with other options looks again
        for left in self.incoming.iterdir():  # no receipt was given for these: they come again
            if not left.name.startswith("."):  # one that was set aside
                make_way(left)
        self._ledgers = {key: self._recover(key) for key in self._keys_on_disk()}

    def _keys_on_disk(self) -> list[str]:
        """Return the windows that have a folder; what a kill has left of others is removed."""
        for folder in list(self._windows.iterdir()):
            if folder.name.startswith("."):  # being retired
                shutil.rmtree(folder, ignore_errors=True)
            elif (self._past / f"{folder.name}.json").exists() and not (folder / LEDGER).exists():
                shutil.rmtree(folder, ignore_errors=True)  # being taken back: the past ledger and the archive hold all
            else:
                with contextlib.suppress(OSError):  # empty: no sketch was renamed into it; others stay
                    folder.rmdir()
        return sorted(path.name for path in self._windows.iterdir() if parse_key(path.name))

    def _recover(self, key: str) -> Ledger:
        """Read a ledger, and add sketches that lie in the folder but not yet in it: the hub died in between."""
        ledger = Ledger.parse(read_json(self._windows / key / LEDGER))
        for path in self.sketches(key):
            if path.name not in ledger.known:
                self._enter(ledger, path.name)
        return ledger

    def windows(self) -> list[str]:
        """Return the windows that are kept, oldest first."""
        with self.lock:
            return sorted(self._ledgers)

    def ledger(self, key: str) -> Ledger:
        """Return a window's ledger."""
        with self.lock:
            return self._ledgers[key]

    def folder(self, key: str) -> Path:
        """Return where a window's sketches lie."""
        return self._windows / key

    def sketches(self, key: str) -> list[Path]:
        """Return the sites' sketches of a window."""
        return sorted(path for path in self.folder(key).glob("*-*-*.cube") if not path.name.startswith("."))

    def receipt(self, name: str) -> Receipt | None:
        """Return what was said of a sketch before."""
        key = Parcel.parse(name).key
        with self.lock:
            if name in self._refused:
                return Receipt(name, REFUSED, self._refused[name])
            ledger = self._ledgers.get(key) or self._past_ledger(key)
        return Receipt(name, MERGED) if ledger is not None and name in ledger.known else None

    def refusals(self, key: str) -> dict[str, str]:
        """Return the sites whose sketches of a window were refused, and why."""
        with self.lock:
            parcels = [(Parcel.parse(name), reason) for name, reason in self._refused.items()]
        return {parcel.site: reason for parcel, reason in parcels if parcel.key == key}

    def count_of(self, parcel: Parcel) -> int:
        """Return how many sketches of this site a window has had."""
        with self.lock:
            known = list(self._ledgers[parcel.key].known) if parcel.key in self._ledgers else []
        return sum(Parcel.parse(name).site == parcel.site for name in known)

    def is_past(self, key: str) -> bool:
        """Say whether a window was kept once and is not any more."""
        return key not in self._ledgers and (self._past / f"{key}.json").exists()

    def add(self, path: Path, name: str) -> None:
        """Take in a sketch that was found good: once this returns, it is in its window."""
        key = Parcel.parse(name).key
        with self.lock:
            if key not in self._ledgers:
                make_folder(self.folder(key))
            place(path, self.folder(key) / name)
            ledger = self._ledgers.setdefault(key, Ledger())  # not before: a window without a sketch is none
            self.fresh.add(name)
            if name not in ledger.known:
                self._enter(ledger, name)
            self.write(key)

    def _enter(self, ledger: Ledger, name: str) -> None:
        now = time.time()
        if not ledger.known:
            ledger.first = now
        if set(ledger.known) == set(ledger.issued.members if ledger.issued else ()):
            ledger.unreported = now
        ledger.known.append(name)

    def refuse(self, name: str, reason: str) -> None:
        """Remember that a sketch was refused, and why."""
        with self.lock:
            self._refused[name] = reason
            while len(self._refused) > MOST_REFUSED:
                del self._refused[next(iter(self._refused))]

    def reopen(self, key: str, union: Path) -> None:
        """Take a past window back, with its union as it was archived."""
        with self.lock:
            ledger = self._past_ledger(key)
            if ledger is None or key in self._ledgers:
                return  # it is back already
            folder = self.folder(key)
            make_folder(folder)
            temporary = folder / f".{UNION}.tmp"
            copy_synced(union, temporary)
            place(temporary, folder / UNION)
            ledger.unreported = time.time()
            self._ledgers[key] = ledger
            self.write(key)
            (self._past / f"{key}.json").unlink(missing_ok=True)

    def drop_sketches(self, key: str) -> None:
        """Remove the sites' sketches that the union holds."""
        with self.lock:
            merged = set(self.ledger(key).merged)
            for path in self.sketches(key):
                if path.name in merged:
                    path.unlink(missing_ok=True)

    def retire(self, key: str) -> None:
        """Keep only the ledger of a window; nothing of one that had no sketch, whose sketches may still come.

        The folder goes under another name first, at once: half of a window must never be taken for the whole.
        """
        with self.lock:
            ledger = self._ledgers[key]
            if ledger.known or ledger.issued:
                write_json(self._past / f"{key}.json", asdict(ledger))
            going = self.folder(f".{key}")
            shutil.rmtree(going, ignore_errors=True)
            self.folder(key).rename(going)
            del self._ledgers[key]
            sync_folder(self._windows)
            shutil.rmtree(going, ignore_errors=True)

    def forget_past(self, age: float) -> None:
        """Remove ledgers of past windows that are older than `age` seconds."""
        for path in self._past.glob("*.json"):
            with contextlib.suppress(FileNotFoundError):  # taken back meanwhile
                if time.time() - path.stat().st_mtime > age:
                    path.unlink()

    def write(self, key: str) -> None:
        """Write a window's ledger down."""
        with self.lock:
            write_json(self.folder(key) / LEDGER, asdict(self._ledgers[key]))

    def _past_ledger(self, key: str) -> Ledger | None:
        content = read_json(self._past / f"{key}.json")
        return None if content is None else Ledger.parse(content)


def _known(kind: Any, content: Any) -> dict[str, Any]:
    """Return the fields that this release knows of what was written; a newer one may have more."""
    names = {each.name for each in fields(kind)}
    return {name: value for name, value in content.items() if name in names} if isinstance(content, dict) else {}
