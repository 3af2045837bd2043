"""Checks every sketch that arrives at a hub, before it becomes part of a window.

Nothing that arrives is trusted: the name, the site that the link has identified, the checksum, the window, the key's
fingerprint and the geometry must agree with each other and with the hub's settings. Any other sketch is refused,
counted and logged; it is never merged in part.
"""

from __future__ import annotations

import contextlib
import errno
import shutil
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from superhosts.core.fields import UNKNOWN
from superhosts.core.files import is_plain
from superhosts.core.notices import WARNING, Notice
from superhosts.core.pairs import Window
from superhosts.core.text import counted, printable
from superhosts.core.units import SECOND, format_size
from superhosts.cubefile.container import SITE_HEADER, is_whole
from superhosts.detectors.stored import Kind, Stored, check_alike
from superhosts.errors import MergeError, SketchFileError, UnreadableError, UsageError, VersionError
from superhosts.fleet.archive import Archive
from superhosts.fleet.link import MAX_REASON, MERGED, REFUSED, RESEND, Receipt
from superhosts.fleet.names import SketchId, check_site, parse_window_name, site_named, site_of
from superhosts.fleet.sites import Roster
from superhosts.fleet.slidingwindows import Grid
from superhosts.fleet.store import UNION, WindowStore
from superhosts.pipeline.settings import Settings
from superhosts.sketch.files import read_header

RECOUNT = 60.0  # seconds before the disk usage of a site at its limit is measured again
FUTURE = 600.0  # seconds that a window may end in the future before some clock must be wrong
MAX_CHECKED = 10_000  # windows to remember as checked


def expected_kinds(settings: Settings) -> dict[int, Kind]:
    """Return the detector, geometry and key that a part must have, by address family."""
    return {part.family: settings.make_detector(part).kind for part in settings.parts}


@dataclass
class IntakeCounters:
    accepted: int = 0
    repeated: int = 0  # sketches received before
    refused: int = 0
    corrupt: int = 0  # incomplete or damaged: requested again
    ahead: int = 0  # of windows in the future: a site's clock is wrong
    reopened: int = 0  # windows restored from the archive
    doubled: int = 0  # second sketches of a site for a window


@dataclass(frozen=True)
class SiteLimits:
    """What one site may use of a hub's store.

    An enrolled site may still be broken or hostile. Whatever it sends, the other sites are served: each site has its
    own share of the queue, of the windows, of the disk and of the log. `docs/guides/fleet/hostile.md` lists these
    limits.
    """

    windows: int = 20_000  # that the hub keeps at a time
    windows_ahead: int = 1_000  # of these, in the future: the site's clock is wrong, or it invents them
    sketches: int = 1_000  # of one window: restarts, revisions of a downstream hub
    disk_part: int = 4  # at most a quarter of the state's file system


DEFAULT_LIMITS = SiteLimits()


class Intake:
    """Accepts sketches for a store. Safe to use from several threads."""

    def __init__(
        self,
        store: WindowStore,
        expected: dict[int, Kind],
        roster: Roster,
        *,
        archive: Archive | None = None,
        limits: SiteLimits = DEFAULT_LIMITS,
        grid: Grid | None = None,
    ) -> None:
        self.folder = store.incoming
        self.counters = IntakeCounters()
        self.arrived = threading.Event()  # set when there may be something to report
        self._store, self._expected, self._archive = store, expected, archive
        self._grid = grid  # None: windows of any length
        self.senders: Callable[[], Collection[str]] = tuple  # the sites that send to this hub directly, as far as known
        self.roster, self._say = roster, roster.log
        self._checked: set[str] = set()  # windows whose union fits this hub's settings
        with store.lock:
            self._shares = Shares(store, limits)

    def known(self, name: str) -> Receipt | None:
        try:
            receipt = self._store.receipt(name)
        except UsageError:
            return None
        if receipt is not None:
            self.counters.repeated += 1
        return receipt

    def accept(self, path: Path, name: str, site: str) -> Receipt:
        """Accept or refuse a complete file. OSError and MemoryError mean: try again later."""
        try:
            sketch_id = SketchId.parse(name)
            if sketch_id.site != site:
                raise UsageError(f"{site} sent a sketch of {sketch_id.site}")
            size = path.lstat().st_size
            if (before := self._store.receipt(name)) is not None:
                self.counters.repeated += 1
                return before
            if not is_whole(path) or SketchId.of(path, site, sketch_id.window) != sketch_id:
                self.counters.corrupt += 1
                text = f"{name} from {site}: did not arrive intact, requested again"
                self._say(site, "sketches that did not arrive intact", text)
                return Receipt(name, RESEND, "its checksum is not right")
            self.check(read_header(path, trusted=True, max_header=SITE_HEADER), sketch_id)
            with self._store.lock:
                self._shares.check(sketch_id, size)
                self._open_window(sketch_id)
                self._store.add(path, name)
                self._shares.add(sketch_id, size)
        except UnreadableError as error:
            raise OSError(str(error)) from None
        except (OSError, MemoryError):
            raise
        except (MergeError, UsageError, SketchFileError) as error:
            return self._refuse(name, site, str(error).replace(f"{path}: ", "") + _who_is_older(error, site))
        except Exception as error:  # no input may stop the hub
            return self._refuse(name, site, f"it is invalid ({type(error).__name__}: {error})")
        self.counters.accepted += 1
        self.roster.accepted(sketch_id)
        self._look_at_clock(sketch_id)
        self._look_for_another(sketch_id)
        self.arrived.set()
        return Receipt(name, MERGED)

    def check(self, stored: Stored, sketch_id: SketchId) -> None:
        """Refuse a sketch that contradicts its name, or does not fit this hub."""
        if stored.window != sketch_id.window:
            raise UsageError(f"contains the window {stored.window}, its name says {sketch_id.window}")
        if self._grid is not None:
            self._grid.check(sketch_id.window)
        self._check_sites(stored, sketch_id.site)
        self.check_kinds(stored)

    def _check_sites(self, stored: Stored, sender: str) -> None:
        """Refuse a sketch in the name of another site.

        A downstream hub's union names the sites that send to that hub. So a sketch may name its sender, and sites that
        do not send to this hub directly.
        """
        if not stored.sites:
            raise UsageError("names no site")
        others = sorted(stored.sites - {sender})
        taken = set(self.senders()) if others else set()
        for name in others:
            check_site(name, "the site")
            if name in taken:
                raise UsageError(f"names the site {name}, which sends to this hub directly")
        for entry in stored.entries:
            if entry.get("site") not in stored.sites:
                raise UsageError(f"counts for {entry.get('site')!r}, which is not one of its sites")

    def check_kinds(self, stored: Stored) -> None:
        """Refuse a sketch with another key, geometry, detector or part than this hub merges."""
        for part, kind in stored.kinds.items():
            if part.family not in self._expected:
                raise MergeError(f"cannot merge: this hub has no part {part.words}")
            check_alike(self._expected[part.family], kind)

    def _open_window(self, sketch_id: SketchId) -> None:
        """Restore a window from the archive if the store does not have it, or no longer."""
        self._check_panes(sketch_id)
        if self._store.has(sketch_id.window_name):
            self._check_union(sketch_id.window_name)
            return
        archived = self._archive.read_union(sketch_id.window_name) if self._archive is not None else None
        if self._archive is None or archived is None:
            if self._store.is_past(sketch_id.window_name):
                raise UsageError("its window is past --late, and no archive has the other sites' sketches")
            return
        self._check_settings(archived, "the archived union")
        self._store.reopen(sketch_id.window_name, self._archive.union(sketch_id.window_name))
        self.counters.reopened += 1
        text = f"{sketch_id.window_name}: restored from the archive for a sketch of {sketch_id.site}"
        self._say(sketch_id.site, "windows restored from the archive", text)

    def _check_panes(self, sketch_id: SketchId) -> None:
        """Refuse a pane of windows that cannot be reported again, since other panes of theirs are gone."""
        if self._grid is None or self._grid.panes == 1:
            return
        number = sketch_id.window.start // self._grid.slide
        for other in map(self._grid.pane, self._grid.neighbours(number)):
            is_archived = self._archive is not None and self._archive.holds(other)
            if other != sketch_id.window_name and self._store.is_past(other) and not is_archived:
                raise UsageError("its windows are past --late, and no archive has their other panes")

    def _check_union(self, window: str) -> None:
        """Refuse a sketch of a window whose union was made with other settings: that union would be lost.

        One check per window is enough: this hub makes unions with its own settings only.
        """
        if window in self._checked:
            return
        if (stored := self._read_union(window)) is not None:
            self._check_settings(stored, "the union")
        if len(self._checked) >= MAX_CHECKED:
            self._checked.clear()
        self._checked.add(window)

    def _check_settings(self, stored: Stored, what: str) -> None:
        try:
            self.check_kinds(stored)
        except MergeError as error:
            raise UsageError(f"{what} of its window has other settings: {error}") from None

    def _read_union(self, window: str) -> Stored | None:
        """Return the header of the union that the next one starts from; None if there is none, or it is damaged."""
        path = self._store.folder(window) / UNION
        try:
            if is_plain(path):
                return read_header(path)
        except (UnreadableError, OSError, MemoryError):
            raise
        except Exception:  # any damage: the hub sets the file aside
            return None
        return self._archive.read_union(window) if self._archive is not None else None

    def _look_for_another(self, sketch_id: SketchId) -> None:
        """Log when a site has sent two sketches of one window; that is normal if it was restarted."""
        if self._store.count_of(sketch_id) == 2:
            self.counters.doubled += 1
            why = "restarted, a downstream hub's revision, or two edges of one name"
            text = f"{sketch_id.window_name}: a second sketch of {sketch_id.site} for this window ({why})"
            self._say(sketch_id.site, "second sketches of a window", text)

    def _refuse(self, name: str, site: str, why: str) -> Receipt:
        """Refuse a sketch. The reason, which may quote the sketch, goes to the log and to the edge."""
        self.counters.refused += 1
        self.roster.refused(site)
        name, reason = printable(name), printable(why, MAX_REASON)
        self._say(site, "refused sketches", Notice(f"REFUSED: {name} from {site}: {reason}", "refused", WARNING))
        if site_named(name) == site:  # otherwise the site that it names could no longer send it
            self._store.refuse(name, reason)
        return Receipt(name, REFUSED, reason)

    def _look_at_clock(self, sketch_id: SketchId) -> None:
        ahead = seconds_ahead(sketch_id.window, self._store.times.wall())
        if ahead > FUTURE:
            self.counters.ahead += 1
            off = f"{ahead / 3600:.1f} hours" if ahead < 2 * 86400 else f"{ahead / 86400:.0f} days"
            text = f"{sketch_id.site} reports a window that ends {off} from now: whose clock is wrong?"
            self._say(sketch_id.site, "windows in the future", text)


def _who_is_older(error: Exception, site: str) -> str:
    """Return which end to upgrade, if a sketch is refused because another release has written it."""
    if isinstance(error, VersionError):
        return f"; upgrade {'the hub' if error.is_newer else f'the edge of {site}'}"
    return "; a later release has written it: upgrade the hub" if str(error).endswith(UNKNOWN) else ""


class Shares:
    """What each site uses of a store. The caller holds the store's lock."""

    def __init__(self, store: WindowStore, limits: SiteLimits = DEFAULT_LIMITS) -> None:
        self._store, self._limits = store, limits
        self._windows: dict[str, set[str]] = defaultdict(set)  # by site; may contain windows that are gone
        for window in store.windows():
            for site in map(site_of, store.ledger(window).known):
                self._windows[site].add(window)
        self._count()

    def check(self, sketch_id: SketchId, size: int) -> None:
        """Refuse a sketch of a site that has used up its share (UsageError; OSError if the sketch can come later)."""
        if self._store.count_of(sketch_id) >= self._limits.sketches:
            most = counted(self._limits.sketches, "sketch", "sketches")
            raise UsageError(f"{sketch_id.site} has sent {most} of this window already")
        self._check_windows(sketch_id)
        share = shutil.disk_usage(self._store.incoming).total // self._limits.disk_part
        if self._bytes[sketch_id.site] + size > share and self._store.times.steady() - self._counted >= RECOUNT:
            self._count()
        if self._bytes[sketch_id.site] + size > share:
            text = f"the sketches of {sketch_id.site} have used up their share of this disk, {format_size(share)}"
            raise OSError(errno.EDQUOT, text)

    def add(self, sketch_id: SketchId, size: int) -> None:
        self._windows[sketch_id.site].add(sketch_id.window_name)
        self._bytes[sketch_id.site] += size

    def _check_windows(self, sketch_id: SketchId) -> None:
        mine, most, now = self._windows[sketch_id.site], self._limits, self._store.times.wall()
        if sketch_id.window_name in mine or len(mine) < min(most.windows, most.windows_ahead):
            return
        mine &= set(self._store.windows())
        if len(mine) >= most.windows:
            raise UsageError(f"{sketch_id.site} has {counted(most.windows, 'window')} here, the limit for one site")
        if seconds_ahead(sketch_id.window, now) > FUTURE:
            windows = [window for name in mine if (window := parse_window_name(name)) is not None]
            if sum(seconds_ahead(window, now) > FUTURE for window in windows) >= most.windows_ahead:
                raise UsageError(
                    f"{sketch_id.site} has {counted(most.windows_ahead, 'window')} in the future: is its clock wrong?"
                )

    def _count(self) -> None:
        """Measure the disk usage of each site. Between two measurements new sketches are added to it."""
        self._bytes: dict[str, int] = defaultdict(int)
        self._counted = self._store.times.steady()
        for window in self._store.windows():
            for path in self._store.sketches(window):
                with contextlib.suppress(FileNotFoundError):  # merged and removed meanwhile
                    self._bytes[site_of(path.name)] += path.lstat().st_size


def seconds_ahead(window: Window, now: float) -> float:
    return window.end / SECOND - now


class LinkReceiver(Protocol):
    counters: Any  # a dataclass of numbers

    def run(self, intake: Intake, stop: threading.Event, ready: Callable[[], None] = ...) -> None:
        """Receive until told to stop; call `ready` when the link works for the first time."""

    def senders(self) -> Collection[str]:
        """Return the sites that send over this link, as far as it knows them."""

    def earlier(self) -> Mapping[str, int] | None:
        """Return what is left of what waited when the hub started, with its bytes; None: not known yet."""
