"""Everything that can be looked at, as plain objects that JSON can hold. Times are seconds since 1970.

A view is put together from what a program has: the board of its last windows, a folder of sketches to ask, the file of
its alerts, what a hub knows of its sites, how full its sketch is. `can` lists the questions that this view answers.
"""

from __future__ import annotations

import math
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from superhosts import __version__
from superhosts.core.hosttable import host_name
from superhosts.core.notices import WARNING, Notice
from superhosts.core.pairs import Part, Window
from superhosts.core.results import Selection
from superhosts.core.text import counted
from superhosts.core.times import seconds_of
from superhosts.core.units import SECOND
from superhosts.errors import SuperhostsError, UsageError
from superhosts.output.alerts.machine import Alert
from superhosts.output.alerts.store import AlertStore, Mute, state_of
from superhosts.output.report import Row, known_peers
from superhosts.ui.board import Board, Point, Shown, reaches, shown_of
from superhosts.ui.folder import BusyError, Contents, PartState, Past, Question, SketchFolder

Annotate = Callable[[Sequence[Row]], Sequence[Row]]  # adds names to rows
MOST_FILLED = 288  # windows, a day of five minutes each
REST = 3.0
AGAIN = 5.0  # seconds between two looks at a folder that grows
Json = dict[str, Any]
CLOSED_ALERTS = 200  # that are listed
MOST_ANSWERED = 10_000  # rows of an answer
NEAR = 50  # rows around the median that say how exact the numbers are
RECENT = 23  # windows before a window, in which the peers of its hosts are told
MOST_LINES = 5  # hosts whose peers are told in all windows
LIVE_WINDOWS = 3  # after this many lengths of it the newest window is not live any more,
LIVE_SECONDS = 300.0  # but not sooner than this


class Filling:
    """Fills a board with the windows of saved sketches, the newest first, in the background.

    So the pages show the past after a restart, and of a folder alone. Each window is asked for by itself, and between
    two the thread sleeps as long as the question took times `REST`: whoever counts packets on the same cores comes
    first.
    """

    def __init__(
        self,
        board: Board,
        folder: SketchFolder,
        selection: Callable[[], Selection],
        annotate: Annotate = lambda rows: rows,
    ) -> None:
        self.parts: Mapping[Part, PartState] = {}  # how full the sketch of the newest window is
        self._board, self._folder, self._selection, self._annotate = board, folder, selection, annotate
        self._left = 0  # windows that are still to be asked
        self._asked: dict[Window, Contents] = {}  # what the folder had of each window when it was asked
        self._failed: dict[Window, str] = {}  # windows that cannot be asked, and why

    @property
    def notes(self) -> list[str]:
        left = counted(self._left, "window of the folder is", "windows of the folder are")
        return ([f"{left} still to be read."] if self._left else []) + self.failures()

    def failures(self) -> list[str]:
        found = []
        failed = dict(self._failed)  # another thread adds to it
        if failed:
            found.append(f"{counted(len(failed), 'window')} cannot be shown: {failed[max(failed)].rstrip('.')}.")
        if damaged := self._folder.damaged:
            found.append(f"{counted(len(damaged), 'file is not a sketch', 'files are not sketches')}: {damaged[0]}.")
        if untimed := self._folder.untimed:
            found.append(f"{counted(len(untimed), 'sketch has', 'sketches have')} no time: {untimed[0]}.")
        return found

    def start(self, stop: threading.Event, say: Callable[[str], None], *, follow: bool, rest: float) -> None:
        """Fill in a thread of its own until `stop`; `follow`: look for new sketches again and again.

        What cannot be shown is said once, until it changes.
        """

        def run() -> None:
            said: list[str] = []
            while not stop.is_set():
                try:
                    all_asked = self.fill(stop, rest)
                except Exception as error:  # Nobody sees what ends a thread.
                    text = f"windows of {self._folder.folder} cannot be shown: {error!r}: please report this"
                    say(Notice(text, "trouble", WARNING))
                    return
                if (failures := self.failures()) != said:
                    self._board.touch()
                    for text in failures:
                        say(text)
                    said = failures
                if (all_asked and not follow) or stop.wait(AGAIN):
                    return

        threading.Thread(target=run, name="views", daemon=True).start()

    def fill(self, stop: threading.Event | None = None, rest: float = 0.0) -> bool:
        """Ask for the newest windows that are not shown, and again for those whose files have changed.

        Return False if some must be asked again, because others had the turn, or the memory.
        """
        shown = {each.window for each in self._board.windows()}
        there = self._folder.contents()
        newest = sorted(there, key=lambda window: (window.end, window.start), reverse=True)[:MOST_FILLED]
        self._asked = {window: self._asked[window] for window in newest if window in self._asked}
        self._failed = {window: self._failed[window] for window in newest if window in self._failed}
        waiting = [
            window
            for window in newest
            if self._asked.get(window) != there[window] and (window in self._asked or window not in shown)
        ]
        try:
            for number, window in enumerate(waiting, 1):
                started = time.monotonic()
                self._left = len(waiting) - number
                if self._ask(window, is_newest=window == newest[0]):
                    self._asked[window] = there[window]
                if stop is not None and stop.wait(rest * (time.monotonic() - started)):
                    break
        finally:
            self._left = 0
        return all(self._asked.get(window) == there[window] for window in waiting)

    def _ask(self, window: Window, *, is_newest: bool) -> bool:
        """Ask for one window, and show it. Return False if it must be asked again."""
        question = Question(self._selection(), *window, exactly=True)
        try:
            answer = self._folder.ask(question, patience=60.0, longest=math.inf)
        except (SuperhostsError, OSError, MemoryError) as error:
            self._failed[window] = str(error) or "too little memory"
            return not isinstance(error, BusyError | MemoryError)
        self._failed.pop(window, None)
        if is_newest:
            self.parts = answer.parts
        found = shown_of(replace(answer.report, rows=self._annotate(answer.report.rows)))
        self._board.put(found._replace(window=window, sites=answer.sites))
        return True


@dataclass
class View:
    """What a program shows. Any thread may ask; every method returns plain objects."""

    title: str  # "hub fra", "archive /var/lib/…"
    board: Board
    selection: Callable[[], Selection]  # which hosts are reported
    is_live: bool = False  # windows are added while it runs
    folder: SketchFolder | None = None
    alerts: AlertStore | None = None
    sites: Callable[[], list[Json]] | None = None  # what a hub knows of each site
    parts: Callable[[], Mapping[Part, PartState]] | None = None  # how full the sketch of the last window was
    annotate: Annotate = lambda rows: rows
    clock: Callable[[], float] = time.time
    _filling: Filling | None = field(default=None, init=False)
    _closing: threading.Event = field(default_factory=threading.Event, init=False)

    # What `superhosts top` asks of whatever it shows (`RemoteFeed` in top/feed.py)
    halted = "not counting"  # two words for the case that nothing new comes

    @property
    def lost(self) -> str:
        """Why nothing new comes at the moment; empty: it does."""
        return ""

    def follow(self, listener: Callable[[], None]) -> None:
        """Call `listener` after each change, from any thread. It does not wait."""
        self.board.listeners.append(listener)

    def start_filling(self, say: Callable[[str], None], *, follow: bool, rest: float = REST) -> None:
        """Show the windows of the folder, too, until `close`, with those that come if it is to `follow`."""
        if self.folder is not None:
            self._filling = Filling(self.board, self.folder, self.selection, self.annotate)
            self._filling.start(self._closing, say, follow=follow, rest=rest)

    def close(self) -> None:
        """Tell nobody of changes any more, read no more sketches, and close the file of alerts."""
        self._closing.set()
        self.board.listeners.clear()
        if self.alerts is not None:
            self.alerts.close()

    @property
    def can(self) -> dict[str, bool]:
        return {
            "ask": self.folder is not None,
            "sites": self.sites is not None,
            "alerts": self.alerts is not None,
            "parts": self.parts is not None or self._filling is not None,
        }

    def summary(self, *, may_change: bool = True) -> Json:
        """Return what is shown, and whether whoever asks may change it: mute hosts, for instance."""
        newest, selection, state, now = self.board.newest, self.selection(), self.state(), self.clock()
        return {
            "title": self.title,
            "version": __version__,
            "live": state["live_until"] > now,
            "can": self.can,
            "may_change": may_change,
            **state,
            "now": now,
            "threshold": selection.threshold,
            "top": selection.top,
            "askable": [] if self.folder is None else self.folder.sites(),
            "newest": None if newest is None else _heading(newest),
        }

    def state(self) -> Json:
        """Return what all viewers hear after each change: a number, how long it is live, and what is not shown."""
        reading = [] if self._filling is None else self._filling.notes
        return {"changed": self.board.version, "live_until": self._live_until(), "reading": reading}

    def _live_until(self) -> float:
        """Return until when the newest window is live; 0: it is not, as no windows are added or it is of the future."""
        newest = self.board.newest
        if not self.is_live or newest is None or newest.window.start > self.clock() * SECOND:
            return 0.0
        start, end = newest.window.start / SECOND, newest.window.end / SECOND
        return end + max(LIVE_WINDOWS * (end - start), LIVE_SECONDS)

    def windows(self) -> list[Json]:
        """Return the windows that are known, the oldest first, with their largest hosts."""
        return [_heading(shown) for shown in self.board.windows()]

    def window(self, start: float | None = None, end: float | None = None) -> Json:
        """Return one window with its rows: the newest, if none is named. Rows of older ones have fewer fields."""
        windows = self.board.windows()
        spans = [_span(each.window) for each in windows]
        named = (at for at, span in enumerate(spans) if span["start"] == start and end in (None, span["end"]))
        place = len(windows) - 1 if start is None else max(named, default=-1)
        if place < 0:
            raise UsageError("this window is not known here")
        shown = windows[place]
        rows = [*shown.rows] if shown.rows else [_short_row(point) for point in shown.points]
        before = windows[max(place - RECENT, 0) : place]
        more = {"recent": _recent(rows, before), "alerts": self._hosts_with_alerts(shown.window)}
        return _heading(shown) | {"rows": rows, "whole": bool(shown.rows) or not shown.points} | more

    def _hosts_with_alerts(self, window: Window) -> list[str]:
        """Return the hosts that had an open alert in a window."""
        if self.alerts is None:
            return []
        found = [*self.alerts.alerts(is_open=True), *self.alerts.alerts(is_open=False, most=CLOSED_ALERTS)]
        return sorted({str(each.host) for each in found if each.opened < window.end and each.last > window.start})

    def trends(self, start: float | None = None, end: float | None = None) -> list[Json]:
        """Return the peers of the largest hosts of some windows, in all of them: the hosts with the highest peaks."""
        timed = [(shown, _span(shown.window)) for shown in self.board.windows() if shown.window.is_timed]
        windows = [
            (shown.points, span)
            for shown, span in timed
            if (start is None or span["end"] > start) and (end is None or span["start"] < end)
        ]
        peaks: dict[tuple[str, str, str], int] = {}
        for points, _ in windows:
            for point in points[:MOST_LINES]:
                peaks[point[:3]] = max(peaks.get(point[:3], 0), _known(point))
        chosen = sorted(peaks, key=lambda key: (-peaks[key], key))[:MOST_LINES]
        lines: dict[tuple[str, str, str], Json] = {
            key: {"host": key[0], "side": key[1], "direction": key[2], "name": "", "points": []} for key in chosen
        }
        hosts = {key[0] for key in chosen}
        for points, span in windows:
            for point in points:
                if point.host in hosts and (line := lines.get(point[:3])) is not None:
                    line["name"] = point.name or line["name"]
                    numbers = {name: getattr(point, name) for name in ("peers", "low", "high")}
                    line["points"].append(span | numbers)
        return [*lines.values()]

    def host(self, host: str, start: float | None = None, end: float | None = None) -> Json:
        """Return one host: its newest row, and its peers in each window that was reported or can be asked.

        `reported` of a point: True where it was one of the super hosts, or of the largest hosts if no threshold was
        asked for; None where the rows of that window are not kept, or not all of them.
        """
        threshold = self.selection().threshold
        windows = [shown for shown in self.board.windows() if shown.window.is_timed]
        points = [
            _span(shown.window) | _numbers(point) | {"reported": reaches(point.peers, shown.threshold or threshold)}
            for shown in windows
            for point in shown.points
            if point.host == host
        ]
        past, notes, newest = None, [], self.board.newest
        if self.folder is not None:
            past = self.folder.past(host, Question(self.selection(), _nanoseconds(start), _nanoseconds(end)))
            whole = {shown.window for shown in windows if shown.hosts <= len(shown.points)}
            points += _unreported(past, points, whole)
            if past.left_out:
                left_out = counted(past.left_out, "older window was", "older windows were")
                notes.append(f"{left_out} not asked: it would take too long.")
            if past.failed:
                notes.append(f"{counted(past.failed, 'window')} cannot be read: {past.why.rstrip('.')}.")
        rows = [row for row in (newest.rows if newest else ()) if str(row["host"]) == host]
        alerts = [] if self.alerts is None else self.alerts.alerts(host=host, most=CLOSED_ALERTS)
        muted = [] if self.alerts is None else self.alerts.muted()
        return {
            "host": host,
            "threshold": threshold,
            "name": next((host_name(row) for row in rows), ""),
            "rows": rows,
            "points": sorted(points, key=lambda point: (point["start"], point["end"])),
            "asked": past is not None and bool(past.sightings or past.failed),
            "notes": notes,
            "alerts": [_alert(alert, muted) for alert in alerts],
        }

    def ask(self, question: Question) -> Json:
        if self.folder is None:
            raise UsageError("no saved sketches to ask: --archive DIR, or --save DIR, keeps them")
        answer = self.folder.ask(question)
        report = answer.report
        return {
            **_span(report.window or Window(0, 0)),
            "title": report.title,
            "notes": list(report.notes),
            "hosts": len(report.rows),
            "rows": list(self.annotate(report.rows[:MOST_ANSWERED])),
            "sketches": answer.sketches,
            "sites": list(answer.sites),
            "seconds": answer.seconds,
        }

    def list_alerts(self) -> Json:
        if self.alerts is None:
            return {"alerts": [], "muted": []}
        found = [*self.alerts.alerts(is_open=True), *self.alerts.alerts(is_open=False, most=CLOSED_ALERTS)]
        muted = self.alerts.muted()
        return {"alerts": [_alert(alert, muted) for alert in found], "muted": muted}

    def alert(self, id: str) -> Json:
        """Return one alert, with what happened to it."""
        store = self._kept_alerts()
        (alert,) = store.find([id])[:1]
        return _alert(alert, store.muted()) | {"history": store.history(alert)}

    def acknowledge(self, ids: Sequence[str], by: str, note: str, *, off: bool) -> int:
        return len(self._kept_alerts().acknowledge(ids, by, note, off=off))

    def note(self, id: str, owner: str | None, note: str | None, by: str) -> None:
        self._kept_alerts().note([id], by, owner, note)

    def _kept_alerts(self) -> AlertStore:
        if self.alerts is None:
            raise UsageError("no alerts are kept here: --alerts FILE keeps them")
        return self.alerts

    def mute(self, host: str, rule: str, seconds: float, why: str, by: str = "") -> None:
        """Want no alerts of a host or prefix for some time; for one rule, or for all if it is empty."""
        self._kept_alerts().mute(host, rule, time.time() + seconds, why, by)

    def unmute(self, host: str, rule: str) -> bool:
        return self.alerts is not None and self.alerts.unmute(host, rule)

    def list_sites(self) -> list[Json]:
        return [] if self.sites is None else self.sites()

    def sketch(self) -> Json:
        parts = {} if self.parts is None else self.parts()
        if not parts and self._filling is not None:
            parts = self._filling.parts
        newest = self.board.newest
        return {
            "parts": [
                {"family": part.family, "side": part.side, "direction": part.direction, **state._asdict()}
                for part, state in parts.items()
            ],
            "accuracy": accuracy(newest.rows) if newest else None,
        }


def accuracy(rows: Sequence[Row]) -> Json | None:
    """Return how exact the numbers of a window are: half the width of the intervals of typical rows, as a share."""
    numbers = [row for row in rows if row["peers"] and row["peers_high"] is not None]
    estimates = [row for row in numbers if row["peers_low"] < row["peers_high"]]
    measured = sorted(estimates or numbers, key=known_peers)
    middle = len(measured) // 2
    near = measured[max(middle - NEAR // 2, 0) : middle + NEAR // 2 + 1]
    if not near:
        return None
    widths = [(row["peers_high"] - row["peers_low"]) / 2 / row["peers"] for row in near]
    return {"peers": round(statistics.median(map(known_peers, near))), "share": statistics.median(widths)}


def _unreported(past: Past, points: Sequence[Json], whole: Set[Window]) -> Iterator[Json]:
    """Yield a host's points of saved sketches, but those that were reported. All rows of `whole` windows are known."""
    names = ("start", "end", "side", "direction")
    known = {tuple(point[name] for name in names) for point in points}
    for sighting in past.sightings:
        for item in sighting.found:
            numbers = {"peers": item.peers, "low": item.peers_low, "high": item.peers_high}
            point = _span(sighting.window) | {"side": item.part.side, "direction": item.part.direction, **numbers}
            point["reported"] = False if sighting.window in whole else None
            if tuple(point[name] for name in names) not in known:
                yield point


def _heading(shown: Shown) -> Json:
    largest = [_numbers(point) | {"host": point.host, "name": point.name} for point in shown.points[:1]]
    return {
        **_span(shown.window),
        **{name: getattr(shown, name) for name in ("hosts", "super_hosts", "title", "revision")},
        **{name: list(getattr(shown, name)) for name in ("notes", "sites", "missing")},
        "patterns": dict(shown.patterns),
        "largest": next(iter(largest), None),
    }


def _known(point: Point) -> int:
    return point.low if point.peers is None else point.peers


def _recent(rows: Sequence[Row], before: Sequence[Shown]) -> Json:
    """Return the peers of each row in the windows before, the oldest first; null: it is not among the hosts kept."""
    peers = [{point[:3]: _known(point) for point in shown.points} for shown in before]
    found = []
    for row in rows:
        key = str(row["host"]), str(row["side"]), str(row["direction"])
        line = [of.get(key) for of in peers]
        found.append(line if any(value is not None for value in line) else None)
    return {
        "whole": [shown.threshold is not None and shown.hosts <= len(shown.points) for shown in before],
        "peers": found,
    }


def _span(window: Window) -> Json:
    if not window.is_timed:
        return {"start": None, "end": None}
    return {"start": window.start / SECOND, "end": window.end / SECOND}


def _numbers(point: Point) -> Json:
    return {name: getattr(point, name) for name in ("side", "direction", "peers", "low", "high")}


def _short_row(point: Point) -> Row:
    row: Row = {"host": point.host, "side": point.side, "direction": point.direction}
    row |= {"peers": point.peers, "peers_low": point.low, "peers_high": point.high, "saturated": point.peers is None}
    return row | {name: value for name, value in (("label", point.name), ("pattern", point.pattern)) if value}


def _alert(alert: Alert, muted: Sequence[Mute]) -> Json:
    """Return an alert with its times in seconds; `closed` is 0 while it is open."""
    times = {name: getattr(alert, name) / SECOND for name in ("opened", "last", "peak_at", "closed")}
    known = dict(alert.known)
    for name in ("first_seen", "acknowledged"):
        if name in known:
            known[name] = seconds_of(known[name])
    told = {"state": state_of(alert, muted), "text": alert.text, "duration": alert.duration / SECOND}
    return {"id": alert.id, **asdict(alert), **times, **told, **known}


def _nanoseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * SECOND)
