"""A hub without a link, and the sketches of three sites."""

from __future__ import annotations

import contextlib
import errno
import itertools
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import superhosts as sh
from fleets import SETTINGS, make_sketch, write_parcel
from superhosts.fleet.archive import Archive
from superhosts.fleet.clock import THIS_MACHINE, TimeSource
from superhosts.fleet.hub import Hub, HubSettings
from superhosts.fleet.intake import DEFAULT_LIMITS, Intake, SiteLimits, expected_kinds
from superhosts.fleet.link import Receipt
from superhosts.fleet.report import HubReport
from superhosts.fleet.sites import Roster
from superhosts.fleet.spool import Spool
from superhosts.fleet.store import DATABASE, OPEN, PAST, SLIDING, UNION, WindowStore
from superhosts.pipeline.settings import Settings
from superhosts.sketch.sketch import Sketch

SITES = ("ams", "fra", "nyc")
Accept = Callable[[Path, str, str], Receipt]


def make_archive(folder: Path, *, keep: float = 1e9, say: Callable[[str], None] = print, **options: Any) -> Archive:
    return Archive(folder / "archive", keep=keep, key=None, say=say, **{"site": "hub", "with_sites": False, **options})


class Node:
    def __init__(
        self,
        folder: Path,
        *,
        archive: Archive | None = None,
        upstream: Spool | None = None,
        kind: Settings = SETTINGS,
        times: TimeSource = THIS_MACHINE,
        limits: SiteLimits = DEFAULT_LIMITS,
        store: type[WindowStore] = WindowStore,
        intake: type[Intake] = Intake,
        **options: Any,
    ) -> None:
        self.folder = folder
        self.said: list[str] = []
        self.reports: list[HubReport] = []
        self.report: Callable[[HubReport], None] = self.reports.append  # a test may replace it
        self.archive = archive
        self.store = store(folder / "state", self.said.append, times)
        self.intake = intake(
            self.store,
            expected_kinds(kind),
            Roster(self.said.append, times),
            archive=archive,
            limits=limits,
            grid=options.get("grid"),
        )
        settings = HubSettings(**{"sites": SITES, "late_pause": 0.0, "tidy_every": 0.0, **options})
        self.hub = Hub(
            self.store,
            self.intake,
            settings,
            lambda made: self.report(made),
            self.said.append,
            archive=archive,
            upstream=upstream,
        )
        self._arrivals = itertools.count()

    def send(self, sketch: Sketch, site: str | None = None) -> Receipt:
        path = write_parcel(sketch, self.folder / "wire", site)
        return self.arrive(path, site or min(sketch.sites))

    def send_all(self, *sketches: Sketch) -> Self:
        for sketch in sketches:
            self.send(sketch)
        return self

    def step(self, *sketches: Sketch) -> Self:
        """Deliver sketches, and let the hub report what is ready."""
        self.send_all(*sketches).hub.step()
        return self

    def arrive(self, path: Path, site: str) -> Receipt:
        arrived = self.intake.folder / f"{next(self._arrivals)}.part"
        shutil.copyfile(path, arrived)
        return self.intake.accept(arrived, path.name, site)

    def union(self, number: int) -> Sketch:
        key = sorted(self.store.windows())[number]
        return sh.load(self.store.folder(key) / UNION)


def as_files(state: Path) -> None:
    """Turn a state into one of release 0.1, which had its ledgers and rows in files."""
    names = {OPEN: "windows/{}/ledger.json", PAST: "past/{}.json", SLIDING: "sliding/{}.json"}
    with contextlib.closing(sqlite3.connect(state / DATABASE)) as database:
        found = database.execute(
            "SELECT kind, window, l.content, r.content FROM ledgers l LEFT JOIN rows r USING (kind, window)"
        )
        for kind, window, ledger, rows in found:
            path = state / names[kind].format(window)
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(ledger)
            if rows is not None:
                path.with_name("rows.jsonl" if kind == OPEN else f"{window}.jsonl").write_bytes(rows)
    for path in state.glob(f"{DATABASE}*"):
        path.unlink()


class FakeTime:
    """A clock that a test sets. It stands still otherwise."""

    def __init__(self, now: float = 1e9) -> None:
        self.now = now
        self.source = TimeSource(lambda: self.now, lambda: self.now)


class WatchedIntake:
    """An intake in front of another one: a test sees each sketch, and may fail instead of passing it on."""

    def __init__(self, intake: Intake, accept: Accept, known: Callable[[str], Receipt | None] | None = None) -> None:
        self.folder, self.accept, self.known = intake.folder, accept, known or intake.known


def full(path: Path, name: str, site: str) -> Receipt:
    raise OSError(errno.ENOSPC, "No space left on device")


def union_of(*sketches: Sketch) -> Sketch:
    whole = Sketch()
    for sketch in sketches:
        whole.merge(sketch)
    return whole


def three(number: int = 0) -> list[Sketch]:
    """Return sketches of three sites that see overlapping parts of one scanner's peers: 700 each, 1,400 in total."""
    return [make_sketch(site, number, peers=700, base=350 * place) for place, site in enumerate(SITES)]
