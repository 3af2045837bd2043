"""The report of a time, like a day: which super hosts are new, have risen, stay or are gone, as a page and as text.

    Period.of(folder, start, end, …)    asks the saved sketch of each window, and of as long a time before
    page(period)                        one file of HTML: styles and figures are inside, and there are no scripts
    text(period)                        the same tables for a terminal or a mail

A host is a super host in each window in which it has at least the threshold of peers. Names, labels and patterns come
from traffic and files, so each is escaped where it is written (`_safe`), and a policy in the page forbids scripts.
"""

from __future__ import annotations

import math
import statistics
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from typing import Any

from superhosts import __version__
from superhosts.core.hosttable import host_name
from superhosts.core.pairs import Window
from superhosts.core.results import Selection
from superhosts.core.text import aligned, at_least, counted, printable, short_count
from superhosts.core.times import iso_time, shown_time
from superhosts.core.units import SECOND, format_duration
from superhosts.errors import InputError, SuperhostsError
from superhosts.output.report import Row, known_peers
from superhosts.ui.board import MOST_ROWS
from superhosts.ui.folder import Question, SketchFolder

LONGEST = 300.0  # seconds for the questions to all windows
RISEN = 1.5  # times as many peers as before, by the medians
SHOWN = 25  # hosts of a table
LINES = 6  # hosts of the figure
MOST_CELL = 80  # characters
Annotate = Callable[[Sequence[Row]], Sequence[Row]]
Key = tuple[str, str, str]  # host, side, direction


@dataclass(frozen=True)
class HostPeriod:
    """A host in the windows in which it was a super host; of one that is gone, `peak`, `first` and `last` are old."""

    host: str
    side: str
    direction: str
    name: str
    pattern: str
    windows: int
    peers: int | None  # the median; None: it is gone
    peak: int
    saturated: bool  # `peak` is a lower bound
    first: int
    last: int
    windows_before: int
    peers_before: int | None
    change: float | None  # of the median: 0.5 is half as many peers again


@dataclass
class Period:
    start: int
    end: int
    length: int  # of a window
    threshold: float
    expected: int  # windows of this length in the time
    windows: int = 0  # that were asked
    windows_before: int = 0
    sites: list[str] = field(default_factory=list)
    groups: dict[str, list[HostPeriod]] = field(default_factory=dict)  # by the names of `GROUPS`
    per_window: list[tuple[Window, int]] = field(default_factory=list)  # super hosts
    largest: list[tuple[str, list[tuple[Window, int]]]] = field(default_factory=list)  # peers of the largest hosts
    notes: list[str] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        folder: SketchFolder,
        start: int,
        end: int,
        threshold: float,
        *,
        annotate: Annotate = lambda rows: rows,
        on_error: Callable[[SuperhostsError], None] = lambda _: None,
        over: Callable[[Sequence[int]], Iterable[int]] = iter,
        longest: float = LONGEST,
    ) -> Period:
        """Ask for the windows that end between `start` and `end`, and in the same time before.

        `over` shows progress. What cannot be asked within `longest` seconds is left out here and there.
        """
        every = [each for each in folder.contents() if 2 * start - end < each.end <= end]
        lengths = Counter(each.end - each.start for each in every if each.end > start)
        if not lengths:
            text = f"has no window between {shown_time(start)} and {shown_time(end)}"
            raise InputError(text, file=str(folder.folder))
        length = max(lengths, key=lambda each: (lengths[each], each))
        windows = sorted(each for each in every if each.end - each.start == length)
        made = cls(start, end, length, threshold, (end - start) // length)
        if others := len(every) - len(windows):
            made._note(f"{counted(others, 'window')} of another length than {format_duration(length)}", "left out")
        made._ask(folder, windows, on_error, over, longest)._annotate(annotate)
        if damaged := folder.damaged:
            made._note(counted(len(damaged), "file is not a sketch", "files are not sketches"), str(damaged[0]))
        return made

    def _note(self, *words: str) -> None:
        self.notes.append(f"{': '.join(words)}.")

    def _ask(
        self,
        folder: SketchFolder,
        windows: list[Window],
        on_error: Callable[[SuperhostsError], None],
        over: Callable[[Sequence[int]], Iterable[int]],
        longest: float,
    ) -> Period:
        seen: dict[Key, _Seen] = {}
        supers: dict[int, int] = {}  # super hosts of each window that was asked
        sites: set[str] = set()
        until, failed, cut = time.monotonic() + longest, 0, 0
        # Numbers in the order of their reversed bits: however many are asked, they are spread over the whole time.
        for at in over(sorted(range(len(windows)), key=lambda number: f"{number:032b}"[::-1])):
            if supers and time.monotonic() > until:
                break
            question = Question(Selection(self.threshold, LINES, either=True), *windows[at], exactly=True)
            try:
                answer = folder.ask(question, longest=math.inf)
            except (SuperhostsError, OSError) as error:
                failed += 1
                wrong = error if isinstance(error, SuperhostsError) else InputError(str(error), file=str(folder.folder))
                on_error(wrong)
                continue
            sites |= set(answer.sites)
            supers[at] = 0
            cut = max(cut, len(answer.report.rows) - MOST_ROWS)
            for row in answer.report.rows[:MOST_ROWS]:
                place = seen.setdefault((str(row["host"]), str(row["side"]), str(row["direction"])), _Seen())
                supers[at] += place.add(at, row, self.threshold)
        begin = next(number for number, window in enumerate(windows) if window.end > self.start)
        self.sites, self.windows = sorted(sites), sum(at >= begin for at in supers)
        self.windows_before = len(supers) - self.windows
        self.per_window = [(windows[at], supers[at]) for at in sorted(supers) if at >= begin]
        if failed:
            self._note(f"{counted(failed, 'window')} cannot be read", "left out")
        if left := len(windows) - len(supers) - failed:
            self._note(f"{left:,} of {counted(len(windows), 'window')}, here and there, left out", "it took too long")
        if cut:
            self._note(f"Of each window the {MOST_ROWS:,} largest hosts count", f"up to {cut:,} others are left out")
        if not self.windows_before:
            self._note("No window of the time before is here", "nothing is said to be new, risen or gone")
        self._sort(seen, windows, begin)
        return self

    def _sort(self, seen: dict[Key, _Seen], windows: list[Window], begin: int) -> None:
        self.groups = {name: [] for name in GROUPS}
        for key, place in seen.items():
            now, before = place.of(begin, len(windows), self.threshold), place.of(0, begin, self.threshold)
            if not now and not before:  # one of the largest, but no super host
                continue
            usual, old = _median(now), _median(before)
            change = None if usual is None or not old else usual / old - 1
            peak = max(now or before, key=lambda point: abs(point[1]))[1]
            ends = [windows[at] for at, _ in now or before]
            row = place.row
            found = HostPeriod(
                *key, host_name(row), str(row.get("pattern") or ""), len(now), usual, abs(peak), peak < 0,
                min(ends).start, max(ends).end, len(before), old, change,
            )  # fmt: skip
            if not now:
                group = "gone"
            elif not before and self.windows_before:
                group = "new"
            elif change is not None and change >= RISEN - 1:
                group = "risen"
            else:
                group = "persistent" if 2 * len(now) >= self.windows else "other"
            self.groups[group].append(found)
        for name, hosts in self.groups.items():
            if name == "risen":
                hosts.sort(key=lambda each: (-(each.change or 0), each.host))
            else:  # of those that persist, the ones that are there most of the time are first
                hosts.sort(key=lambda each: (name == "persistent" and -each.windows, -each.peak, each.host))
        series = [(key, place.of(begin, len(windows), 0.0)) for key, place in seen.items()]
        largest = sorted(series, key=lambda each: -max((abs(peers) for _, peers in each[1]), default=0))[:LINES]
        several = {key[1:] for key, points in largest if points}
        for key, points in largest:
            label = f"{key[0]} ({key[1]}, {key[2]})" if len(several) > 1 else key[0]
            if points:
                self.largest.append((label, sorted((windows[at], abs(peers)) for at, peers in points)))

    def _annotate(self, annotate: Annotate) -> None:
        """Add who the hosts are, as far as tables show them."""
        for hosts in self.groups.values():
            named = annotate([asdict(each) for each in hosts[:SHOWN]])
            hosts[:SHOWN] = [
                HostPeriod(**{**asdict(each), "name": host_name(row) or each.name})
                for each, row in zip(hosts, named, strict=False)
            ]

    @property
    def headline(self) -> str:
        """What happened, in one line: the subject of a mail."""
        counts = {name: len(hosts) for name, hosts in self.groups.items()}
        here = sum(counts.values()) - counts["gone"]
        words = [f"{count:,} {name}" for name, count in counts.items() if count and name != "gone"]
        gone = f"; {counts['gone']:,} gone" if counts["gone"] else ""
        return f"{counted(here, 'super host')}{': ' if words else ''}{', '.join(words)}{gone}"

    @property
    def lines(self) -> list[str]:
        """What the report is about, for people."""
        length = format_duration(self.length)
        span = f"{_clock(self.start)} to {_clock(self.end)} {_zone(self.end)}"
        windows = f"{self.windows:,} of {counted(self.expected, 'window')} of {length} are here"
        before = f"of the time before, {self.windows_before:,}"
        sites = [f"Sites: {', '.join(self.sites)}"] if self.sites else []
        return [f"{span}, hosts with at least {self.threshold:,g} peers", f"{windows}, {before}", *sites]

    def as_json(self) -> dict[str, Any]:
        def named(host: HostPeriod) -> dict[str, Any]:
            return asdict(host) | {"first": iso_time(host.first), "last": iso_time(host.last)}

        return {
            **{name: iso_time(getattr(self, name)) for name in ("start", "end")},
            "window": format_duration(self.length),
            **{name: getattr(self, name) for name in ("threshold", "expected", "windows", "windows_before", "sites")},
            **{name: [named(each) for each in hosts] for name, hosts in self.groups.items()},
            "notes": self.notes,
        }


class _Seen:
    """The points of a host: the number of the window, and the peers, below zero if they are a lower bound."""

    def __init__(self) -> None:
        self.at, self.peers = array("q"), array("q")
        self.row: Row = {}
        self._newest = -1

    def add(self, at: int, row: Row, threshold: float) -> bool:
        """Take a row of a window; return True if the host is a super host there."""
        peers = known_peers(row)
        self.at.append(at)
        self.peers.append(-peers if row["peers"] is None else peers)
        if at > self._newest:
            self._newest, self.row = at, row
        return row["peers"] is None or peers >= threshold

    def of(self, first: int, end: int, threshold: float) -> list[tuple[int, int]]:
        points = zip(self.at, self.peers, strict=True)
        return [(at, peers) for at, peers in points if first <= at < end and (peers < 0 or peers >= threshold)]


def _median(points: Sequence[tuple[int, int]]) -> int | None:
    return round(statistics.median(abs(peers) for _, peers in points)) if points else None


GROUPS = {
    "new": "super hosts that were none in the time before",
    "risen": f"{RISEN:g} times as many peers as before, or more, by the medians",
    "persistent": "super hosts in at least half of the windows",
    "other": "super hosts in fewer windows that are not new",
    "gone": "super hosts of the time before that are none now",
}
NUMBERS = ("peers", "largest", "before", "change", "windows")


def _table(period: Period, hosts: Sequence[HostPeriod]) -> tuple[list[str], list[list[str]]]:
    """Return the titles and cells of a table, without columns that say nothing."""
    cells = [
        {
            "host": each.host,
            "name": each.name,
            "side": each.side if len({other.side for other in hosts}) > 1 else "",
            "direction": each.direction if len({other.direction for other in hosts}) > 1 else "",
            "peers": "" if each.peers is None else f"{each.peers:,}",
            "largest": at_least(None if each.saturated else each.peak, each.peak),
            "before": "" if each.peers_before is None else f"{each.peers_before:,}",
            "change": "" if each.change is None else f"{each.change:+.0%}".replace("%", " %"),
            "windows": f"{each.windows:,} of {period.windows:,}"
            if each.windows
            else f"{each.windows_before:,} of {period.windows_before:,}",
            "first": _clock(each.first),
            "last": _clock(each.last),
            "pattern": each.pattern,
        }
        for each in hosts[:SHOWN]
    ]
    titles = [title for title in cells[0] if any(row[title] for row in cells)] if cells else []
    return titles, [[row[title] for title in titles] for row in cells]


def _clock(nanoseconds: int) -> str:
    return shown_time(nanoseconds)[:16].replace("T", " ")


def _zone(nanoseconds: int) -> str:
    return shown_time(nanoseconds // SECOND * SECOND)[19:].replace("Z", "UTC")


def text(period: Period) -> str:
    """Return the report as plain text."""
    found = [period.headline, *period.lines]
    for name, meaning in GROUPS.items():
        hosts = period.groups[name]
        if hosts:
            titles, cells = _table(period, hosts)
            rows = [titles, *([printable(cell, MOST_CELL) for cell in row] for row in cells)]
            found += ["", f"{name.capitalize()}: {meaning}"]
            found += [f"  {line}" for line in aligned(rows, [title in NUMBERS for title in titles])]
            found += [f"  and {len(hosts) - SHOWN:,} more"] * (len(hosts) > SHOWN)
    return "\n".join([*found, *([""] if period.notes else []), *map(printable, period.notes)]) + "\n"


# The page


def _safe(value: object) -> str:
    return escape(printable(value, MOST_CELL))


def page(period: Period) -> str:
    """Return the report as a page of HTML that needs nothing else."""
    cards = "".join(
        f'<a class="{name}" href="#{name}"><b>{len(period.groups[name]):,}</b> {name}</a>' for name in GROUPS
    )
    figures = _figure("Super hosts in each window", period, [period.per_window], bars=True)
    if period.largest:
        labels = [_safe(label) for label, _ in period.largest]
        figures += _figure("Peers of the largest hosts", period, [points for _, points in period.largest], labels)
    tables = "".join(_section(period, name) for name in GROUPS)
    notes = "".join(f"<p>{escape(printable(note, 500))}</p>" for note in period.notes)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_safe(period.headline)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{_safe(period.headline)}</h1>\n<p>{'<br>'.join(map(_safe, period.lines))}</p>\n<nav>{cards}</nav>\n"
        f"{notes}{figures}{tables}"
        "<footer>Peers are the median of the windows in which a host was a super host; largest is its largest window. "
        f"Made by superhosts {__version__}.</footer>\n</body>\n</html>\n"
    )


def _section(period: Period, name: str) -> str:
    hosts = period.groups[name]
    head = f'<section id="{name}"><h2>{name.capitalize()} ({len(hosts):,})</h2>\n<p>{escape(GROUPS[name]).capitalize()}'
    if not hosts:
        return f"{head}: none.</p></section>\n"
    titles, cells = _table(period, hosts)
    numbers = [' class="n"' if title in NUMBERS else "" for title in titles]

    def row(tag: str, texts: Sequence[str]) -> str:
        filled = zip(texts, numbers, strict=True)
        return f"<tr>{''.join(f'<{tag}{kind}>{_safe(cell)}</{tag}>' for cell, kind in filled)}</tr>\n"

    body = "".join(row("td", each) for each in cells)
    more = f"<p>and {len(hosts) - SHOWN:,} more</p>" if len(hosts) > SHOWN else ""
    table = f"<table><thead>{row('th', titles)}</thead><tbody>\n{body}</tbody></table>"
    return f'{head}.</p>\n<div class="wide">{table}</div>{more}</section>\n'


WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 190, 40, 18, 8, 24  # of a figure, in units of its own
STEPS = [hours * 3600 * SECOND for hours in (1, 2, 3, 6, 12, 24, 48, 168, 336, 720, 2160, 8760)]
ROUND = [digit * 10**power for power in range(16) for digit in (1, 2, 5)]


def _figure(
    title: str,
    period: Period,
    series: list[list[tuple[Window, int]]],
    labels: Sequence[str] = (),
    *,
    bars: bool = False,
) -> str:
    """Return a figure: bars from zero, or lines over a logarithmic scale, with gaps where windows are missing."""
    values = [value for points in series for _, value in points]
    low, high = min(values, default=1), max(values, default=1)
    if bars:
        step = next(each for each in ROUND if each * 4 >= max(high, 1))
        ticks = list(range(0, max(high, 1) + step, step))
    else:
        first, last = _last(ROUND, max(low, 1)), next(each for each in ROUND if each >= max(high, 2))
        ticks = [each for each in ROUND if first <= each <= last]
        ticks = ticks if len(ticks) <= 7 else [each for each in ticks if str(each)[0] == "1" or each in (first, last)]

    def x(moment: int) -> float:
        return LEFT + (moment - period.start) / (period.end - period.start) * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        whole = (math.log(ticks[-1] / ticks[0]) or 1.0) if not bars else ticks[-1]
        part = value if bars else math.log(max(value, ticks[0]) / ticks[0])
        return HEIGHT - BOTTOM - part / whole * (HEIGHT - TOP - BOTTOM)

    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    drawn = "".join(
        f'<path class="grid" d="M{LEFT} {y(each):.1f}H{right}"/>'
        f'<text class="n" x="{LEFT - 6}" y="{y(each) + 4:.1f}">{short_count(each)}</text>'
        for each in ticks
    )
    step = next((each for each in STEPS if (period.end - period.start) / each <= 9), STEPS[-1])
    for moment in range(-(-period.start // step) * step, period.end + 1, step):
        day, clock = _clock(moment).split(" ")
        drawn += f'<path class="grid" d="M{x(moment):.1f} {bottom}v4"/><text x="{x(moment):.1f}" y="{HEIGHT - 6}">'
        drawn += f"{day[5:] if clock == '00:00' or step >= STEPS[5] else clock}</text>"
    for number, points in enumerate(series, 1):
        path = _bars(points, x, y) if bars else _line(points, x, y, period.length)
        drawn += f'<path class="{"bars" if bars else f"line c{number}"}" d="{"".join(path)}"/>'
    key = "".join(f'<span><i class="c{number}"></i>{label}</span>' for number, label in enumerate(labels, 1))
    said = f"{_safe(title)}: {low:,} to {high:,}"
    picture = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{said}">{drawn}</svg>'
    return f"<figure><figcaption>{_safe(title)}</figcaption>{picture}<div>{key}</div></figure>\n"


def _last(numbers: Sequence[int], most: int) -> int:
    return max(each for each in numbers if each <= most)


Scale = Callable[[int], float]


def _bars(points: Sequence[tuple[Window, int]], x: Scale, y: Callable[[float], float]) -> Iterator[str]:
    for window, value in points:
        begin, end = x(window.start), x(window.end)
        yield f"M{begin:.1f} {y(0):.1f}V{y(value):.1f}H{end - min(1.0, (end - begin) / 4):.1f}V{y(0):.1f}z"


def _line(points: Sequence[tuple[Window, int]], x: Scale, y: Callable[[float], float], length: int) -> Iterator[str]:
    last = None
    for window, value in points:
        joins = last is not None and window.end - last <= length * 3 // 2
        place = f"{x((window.start + window.end) // 2):.1f} {y(value):.1f}"
        yield f"L{place}" if joins else f"M{place}h0"  # a point that stands alone is a dot
        last = window.end


LIGHT = (
    "--ink:#1b1f24;--soft:#5b6570;--rule:#d7dce1;--back:#fff;--bar:#4c78a8;"
    "--c1:#1f6fb2;--c2:#c4471c;--c3:#26805a;--c4:#8a4fb0;--c5:#9a6a00;--c6:#c02a6b"
)
DARK = (
    "--ink:#e6e9ec;--soft:#9aa5b1;--rule:#3a424b;--back:#15181c;--bar:#6f9fd0;"
    "--c1:#6bb1ee;--c2:#f08a5d;--c3:#5fc79a;--c4:#c79be8;--c5:#dcb04c;--c6:#f07fae"
)
STYLE = (
    f"""
:root{{color-scheme:light dark;{LIGHT}}}
@media screen and (prefers-color-scheme:dark){{:root{{{DARK}}}}}
@media print{{:root{{color-scheme:light}}nav{{display:none}}figure,tr{{break-inside:avoid}}h2{{break-after:avoid}}}}
{"".join(f".c{number}{{stroke:var(--c{number});border-color:var(--c{number})}}" for number in range(1, LINES + 1))}
"""
    + """
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--back);max-width:60rem;margin:2rem auto;
padding:0 1rem}
h1{font-size:1.4rem}h2{font-size:1.1rem;margin:1.6rem 0 0}section p{margin:.2rem 0;color:var(--soft)}
nav{display:flex;flex-wrap:wrap;gap:.6rem}nav b{font-size:1.3rem}
nav a{color:inherit;text-decoration:none;border:1px solid var(--rule);border-radius:.4rem;padding:.3rem .8rem}
.wide{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:.2rem .9rem .2rem 0;border-bottom:1px solid var(--rule);white-space:nowrap}
th{color:var(--soft);font-weight:normal}th.n,td.n{text-align:right}
figure{margin:1.2rem 0}figcaption{color:var(--soft)}svg{width:100%;height:auto}
svg text{font:11px system-ui,sans-serif;fill:var(--soft);text-anchor:middle}svg text.n{text-anchor:end}
.grid{stroke:var(--rule);fill:none}.bars{fill:var(--bar)}
.line{fill:none;stroke-width:2;stroke-linecap:round;stroke-linejoin:round}
figure span{margin-right:1.2rem;white-space:nowrap}
i{display:inline-block;width:1rem;border-top:3px solid;margin-right:.4rem;vertical-align:middle}
footer{margin-top:2rem;color:var(--soft);font-size:.85rem}
"""
)
