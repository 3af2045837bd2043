"""The report of a time, like a day: which super hosts are new, have risen, persist or are gone, as a page and as text.

A host is a super host in each window in which it has at least the threshold of peers. Each window of the time, and of
as long a time before, is asked for by itself. Names, labels and patterns come from traffic and files, so each is
escaped where it is written (`_safe`), and a policy in the page, which needs no other file, forbids scripts.
"""

from __future__ import annotations

import math
import statistics
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from superhosts import __version__
from superhosts.core.hosttable import host_name
from superhosts.core.pairs import Window
from superhosts.core.results import Selection
from superhosts.core.text import aligned, at_least, counted, printable, short_count
from superhosts.core.times import iso_time, shown_row_time, window_span
from superhosts.core.units import SECOND, format_duration
from superhosts.errors import InputError, SuperhostsError
from superhosts.output.report import Row, known_peers
from superhosts.ui.board import MOST_ROWS
from superhosts.ui.folder import Question, SketchFolder

LONGEST = 300.0  # seconds for the questions to all windows
RISEN = 1.5  # times as many peers as before, by the medians
SHOWN = 25  # hosts of a table
LINES = 6  # hosts of the figure, as many as there are colours
MOST_CELL = 80  # characters
GROUPS = {
    "new": "super hosts that were none in the time before",
    "risen": f"{RISEN:g} times as many peers as before, or more, by the medians",
    "persistent": "super hosts in at least half of the windows",
    "other": "super hosts in fewer windows that are not new",
    "gone": "super hosts of the time before that are none now",
}
NUMBERS = ("peers", "largest", "before", "change", "windows")  # columns
Points = list[tuple[Window, int]]
Key = tuple[str, str, str]  # host, side, direction


@dataclass
class Period:
    span: Window
    length: int  # of a window
    threshold: float
    windows: int = 0  # that were asked
    windows_before: int = 0
    sites: list[str] = field(default_factory=list)
    groups: dict[str, list[Row]] = field(default_factory=lambda: {name: [] for name in GROUPS})
    notes: list[str] = field(default_factory=list)
    per_window: Points = field(default_factory=list)  # super hosts
    largest: list[tuple[str, Points]] = field(default_factory=list)  # peers of the largest hosts

    @property
    def headline(self) -> str:
        """What happened, in one line: the subject of a mail."""
        counts = {name: len(hosts) for name, hosts in self.groups.items()}
        gone = counts.pop("gone")
        words = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
        found = counted(sum(counts.values()), "super host") + (f": {words}" if words else "")
        return found + (f"; {gone:,} gone" if gone else "")

    @property
    def lines(self) -> list[str]:
        """What the report is about."""
        start, end = map(iso_time, self.span)
        zone = shown_row_time(end)[19:].replace("Z", "UTC")
        expected = (self.span.end - self.span.start) // self.length
        here = f"windows of {format_duration(self.length)}: {self.windows:,} of {expected:,}"
        return [
            f"{_clock(start)} to {_clock(end)} {zone}, hosts with at least {counted(self.threshold, 'peer')}",
            f"{here}, and {self.windows_before:,} of the time before",
            *([f"Sites: {', '.join(self.sites)}"] if self.sites else []),
        ]

    def as_json(self) -> dict[str, Any]:
        start, end = map(iso_time, self.span)
        others = {name: value for name, value in asdict(self).items() if name not in ("span", "per_window", "largest")}
        return {"start": start, "end": end, **others, "length": self.length / SECOND}


def look_at(
    folder: SketchFolder,
    span: Window,
    threshold: float,
    *,
    annotate: Callable[[Sequence[Row]], Sequence[Row]] = lambda rows: rows,
    on_error: Callable[[SuperhostsError], None] = lambda _: None,
    over: Callable[[Sequence[int]], Iterable[int]] = iter,
    longest: float = LONGEST,
) -> Period:
    """Ask for the windows that end within `span`, and in as long a time before. `over` shows progress.

    What cannot be asked within `longest` seconds is left out here and there.
    """
    every = [each for each in folder.contents() if 2 * span.start - span.end < each.end <= span.end]
    lengths = Counter(each.end - each.start for each in every if each.end > span.start)
    if not lengths:
        raise InputError(f"has no window in {window_span(span)}", file=str(folder.folder))
    length = max(lengths, key=lambda each: (lengths[each], each))
    windows = sorted(each for each in every if each.end - each.start == length)
    period = Period(span, length, threshold)
    seen: dict[Key, array[int]] = {}  # numbers of windows, each with the peers, below zero if they are a lower bound
    patterns: dict[Key, tuple[int, str]] = {}  # the newest, with the number of its window
    supers: dict[int, int] = {}  # super hosts of each window that was asked
    until, failed, cut = time.monotonic() + longest, 0, 0
    # Numbers in the order of their reversed bits: however many are asked, they are spread over the whole time.
    for at in over(sorted(range(len(windows)), key=lambda number: f"{number:032b}"[::-1])):
        if supers and time.monotonic() > until:
            break
        question = Question(Selection(threshold, LINES, either=True), *windows[at], exactly=True)
        try:
            answer = folder.ask(question, longest=math.inf)
        except (SuperhostsError, OSError) as error:
            failed += 1
            on_error(error if isinstance(error, SuperhostsError) else InputError(str(error), file=str(folder.folder)))
            continue
        period.sites = sorted({*period.sites, *answer.sites})
        rows = answer.report.rows
        supers[at], cut = sum(row["peers"] is None or row["peers"] >= threshold for row in rows), max(cut, len(rows))
        for row in rows[:MOST_ROWS]:
            key, peers = (str(row["host"]), str(row["side"]), str(row["direction"])), known_peers(row)
            seen.setdefault(key, array("q")).extend((at, -peers if row["peers"] is None else peers))
            patterns[key] = max(patterns.get(key, (-1, "")), (at, str(row.get("pattern") or "")))
    begin = next(number for number, window in enumerate(windows) if window.end > span.start)
    period.per_window = [(windows[at], supers[at]) for at in sorted(supers) if at >= begin]
    period.windows, left = len(period.per_window), len(windows) - len(supers) - failed
    period.windows_before = len(supers) - period.windows
    damaged, others = folder.damaged, len(every) - len(windows)
    notes = {
        f"{counted(others, 'window')} of another length than {format_duration(length)}: left out": others,
        f"{counted(failed, 'window')} cannot be read: left out": failed,
        f"{left:,} of {counted(len(windows), 'window')}, here and there, left out: it took too long": left,
        f"of each window the {MOST_ROWS:,} largest hosts count": cut > MOST_ROWS,
        "no window of the time before is here: nothing is said to be new, risen or gone": not period.windows_before,
        f"{counted(len(damaged), 'file is not a sketch', 'files are not sketches')}: {[*damaged, ''][0]}": damaged,
    }
    period.notes = [note for note, is_so in notes.items() if is_so]
    _sort(period, seen, patterns, windows, begin)
    for hosts in period.groups.values():
        hosts[:SHOWN] = annotate(hosts[:SHOWN])
    return period


def _sort(
    period: Period, seen: dict[Key, array[int]], patterns: dict[Key, tuple[int, str]], windows: list[Window], begin: int
) -> None:
    """Put each host into its group, and the largest into the figure."""
    series = {key: sorted(zip(found[::2], found[1::2], strict=True)) for key, found in seen.items()}
    for key, points in series.items():
        supers = [(at, peers) for at, peers in points if peers < 0 or peers >= period.threshold]
        now, before = [each for each in supers if each[0] >= begin], [each for each in supers if each[0] < begin]
        if not now and not before:  # one of the largest, but no super host
            continue
        usual, old = _median(now), _median(before)
        there, peak = now or before, max((peers for _, peers in now or before), key=abs)
        found: Row = {
            **dict(zip(("host", "side", "direction"), key, strict=True)),
            "pattern": patterns[key][1],
            "windows": len(now),
            "peers": usual,  # the median; None: it is gone, so the peak and the times are those of before
            "peak": abs(peak),
            "saturated": peak < 0,  # The peak is a lower bound.
            "first": iso_time(windows[there[0][0]].start),
            "last": iso_time(windows[there[-1][0]].end),
            "windows_before": len(before),
            "peers_before": old,
            "change": None if usual is None or not old else usual / old - 1,  # 0.5: half as many peers again
        }
        if not now:
            group = "gone"
        elif not before and period.windows_before:
            group = "new"
        elif usual and old and usual >= RISEN * old:
            group = "risen"
        else:
            group = "persistent" if 2 * len(now) >= period.windows else "other"
        period.groups[group].append(found)
    for hosts in period.groups.values():
        hosts.sort(key=lambda each: (-each["peak"], each["host"]))
    now_there = {key: [point for point in points if point[0] >= begin] for key, points in series.items()}
    largest = sorted(now_there, key=lambda key: -max((abs(peers) for _, peers in now_there[key]), default=0))[:LINES]
    is_same = len({key[1:] for key in largest}) < 2
    for key in filter(now_there.get, largest):
        label = key[0] if is_same else " ".join(key)
        period.largest.append((label, [(windows[at], abs(peers)) for at, peers in now_there[key]]))


def _median(points: Sequence[tuple[int, int]]) -> int | None:
    return round(statistics.median(abs(peers) for _, peers in points)) if points else None


def _table(period: Period, hosts: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Return the titles and cells of a table, without columns that say nothing."""
    varying = [name for name in ("side", "direction") if len({each[name] for each in hosts}) > 1]
    cells = [
        {
            "host": each["host"],
            "name": host_name(each),
            **{name: each[name] for name in varying},
            "peers": "" if each["peers"] is None else f"{each['peers']:,}",
            "largest": at_least(None if each["saturated"] else each["peak"], each["peak"]),
            "before": "" if each["peers_before"] is None else f"{each['peers_before']:,}",
            "change": "" if each["change"] is None else f"{round(100 * each['change']):+,} %",
            "windows": f"{each['windows']:,} of {period.windows:,}"
            if each["windows"]
            else f"{each['windows_before']:,} of {period.windows_before:,}",
            "first": _clock(each["first"]),
            "last": _clock(each["last"]),
            "pattern": each["pattern"],
        }
        for each in hosts[:SHOWN]
    ]
    titles = [title for title in cells[0] if any(row[title] for row in cells)]
    return titles, [[printable(row[title], MOST_CELL) for title in titles] for row in cells]


def _clock(time: str) -> str:
    return shown_row_time(time)[:16].replace("T", " ")


def text(period: Period) -> str:
    """Return the report as plain text."""
    found = [period.headline, *period.lines]
    for name, hosts in period.groups.items():
        if hosts:
            titles, cells = _table(period, hosts)
            table = aligned([titles, *cells], [title in NUMBERS for title in titles])
            found += ["", f"{name.capitalize()}: {GROUPS[name]}", *(f"  {line}" for line in table)]
            found += [f"  and {len(hosts) - SHOWN:,} more"] * (len(hosts) > SHOWN)
    return "\n".join([*found, *([""] if period.notes else []), *map(printable, period.notes)]) + "\n"


def _safe(value: object, most: int = 4 * MOST_CELL) -> str:
    return escape(printable(value, most))


def page(period: Period) -> str:
    """Return the report as a page of HTML."""
    title, style = _safe(period.headline), Path(__file__).with_suffix(".css").read_text(encoding="utf-8")
    cards = "".join(f'<a href="#{name}"><b>{len(hosts):,}</b> {name}</a>' for name, hosts in period.groups.items())
    figures = _figure("Super hosts in each window", period.span, [period.per_window])
    if period.largest:
        labels, series = zip(*period.largest, strict=True)
        figures += _figure("Peers of the largest hosts", period.span, series, labels)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
        f"<p>{'<br>'.join(map(_safe, period.lines))}</p>\n<nav>{cards}</nav>\n"
        f"{''.join(f'<p>{_safe(note)}</p>' for note in period.notes)}{figures}"
        f"{''.join(_section(period, name, hosts) for name, hosts in period.groups.items())}<footer>"
        "Peers are the median of the windows in which a host was a super host; largest is its largest window. "
        f"Made by superhosts {__version__}.</footer>\n</body>\n</html>\n"
    )


def _section(period: Period, name: str, hosts: Sequence[Row]) -> str:
    head = f'<section id="{name}"><h2>{name.capitalize()} ({len(hosts):,})</h2>\n<p>{GROUPS[name].capitalize()}'
    if not hosts:
        return f"{head}: none.</p></section>\n"
    titles, cells = _table(period, hosts)

    def row(tag: str, texts: Sequence[str]) -> str:
        kinds = (' class="n"' if title in NUMBERS else "" for title in titles)
        filled = (f"<{tag}{kind}>{_safe(cell)}</{tag}>" for cell, kind in zip(texts, kinds, strict=True))
        return f"<tr>{''.join(filled)}</tr>\n"

    more = f"<p>and {len(hosts) - SHOWN:,} more</p>" if len(hosts) > SHOWN else ""
    body = "".join(row("td", each) for each in cells)
    table = f"<table><thead>{row('th', titles)}</thead><tbody>\n{body}</tbody></table>"
    return f'{head}.</p>\n<div class="wide">{table}</div>{more}</section>\n'


WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 190, 40, 742, 8, 166  # of a figure, in units of its own
HOURS = (1, 2, 3, 6, 12, 24, 48, 168, 336, 720, 2160, 8760)  # between two times of its axis
ROUND = [digit * 10**power for power in range(16) for digit in (1, 2, 5)]


def _figure(title: str, span: Window, series: Sequence[Points], labels: Sequence[str] = ()) -> str:
    """Return lines with labels over a logarithmic scale, with gaps where windows are missing; else bars from zero."""
    values = [value for points in series for _, value in points]
    low, high = max(min(values, default=1), 1), max([1, *values])
    step = next(each for each in ROUND if each * 4 >= high)
    ticks = list(range(0, high + step, step))
    if labels:
        first = max(each for each in ROUND if each <= low)
        last = next(each for each in ROUND if each > max(low, high - 1))
        ticks = [each for each in ROUND if first <= each <= last]
        ticks = ticks if len(ticks) <= 7 else [each for each in ticks if str(each)[0] == "1" or each in (first, last)]

    def x(moment: int) -> float:
        return LEFT + (moment - span.start) / (span.end - span.start) * (RIGHT - LEFT)

    def y(value: int) -> float:
        share = math.log(max(value, 1) / ticks[0]) / math.log(ticks[-1] / ticks[0]) if labels else value / ticks[-1]
        return BOTTOM - share * (BOTTOM - TOP)

    def path(points: Points) -> str:
        found, last = [], None
        for (start, end), value in points:
            begin, stop, height = x(start), x(end), y(value)
            if not labels:
                found.append(f"M{begin:.1f} {BOTTOM}V{height:.1f}H{stop - min(1, (stop - begin) / 4):.1f}V{BOTTOM}z")
            elif last is not None and start - last <= (end - start) // 2:
                found.append(f"L{(begin + stop) / 2:.1f} {height:.1f}")
            else:  # A point that stands alone is a dot.
                found.append(f"M{(begin + stop) / 2:.1f} {height:.1f}h0")
            last = end
        return "".join(found)

    drawn = "".join(
        f'<path class="grid" d="M{LEFT} {y(each):.1f}H{RIGHT}"/>'
        f'<text class="n" x="{LEFT - 6}" y="{y(each) + 4:.1f}">{short_count(each)}</text>'
        for each in ticks
    )
    hours = next((each for each in HOURS if (span.end - span.start) / (each * 3600 * SECOND) <= 9), HOURS[-1])
    step = hours * 3600 * SECOND
    for moment in range(-(-span.start // step) * step, span.end + 1, step):
        day, clock = _clock(iso_time(moment)).split(" ")
        drawn += f'<path class="grid" d="M{x(moment):.1f} {BOTTOM}v4"/><text x="{x(moment):.1f}" y="{HEIGHT - 6}">'
        drawn += f"{day[5:] if clock == '00:00' or hours >= 24 else clock}</text>"
    for number, points in enumerate(series, 1):
        drawn += f'<path class="{f"line c{number}" if labels else "bars"}" d="{path(points)}"/>'
    key = "".join(f'<span><i class="c{number}"></i>{_safe(label)}</span>' for number, label in enumerate(labels, 1))
    picture = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}: up to {high:,}">{drawn}</svg>'
    return f"<figure><figcaption>{title}</figcaption>{picture}<div>{key}</div></figure>\n"
