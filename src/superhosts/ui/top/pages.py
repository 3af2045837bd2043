"""Texts of the screens: the lines above the table of hosts, the page of one host, and alerts and sites as lines."""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from superhosts.core.hosttable import interval_text, peers_text
from superhosts.core.pairs import Window
from superhosts.core.text import at_least, counted, printable, short_count
from superhosts.core.times import age_text, shown_time, shows_local, window_cell
from superhosts.core.units import SECOND, format_size
from superhosts.sketch.evidence.summary import service_text
from superhosts.ui.top.drawing import (
    BAR_STYLE,
    BOLD,
    DIM,
    GAP,
    WARNING,
    cells_line,
    chart,
    chosen_cell,
    highest,
    placed,
    sparkline,
)
from superhosts.ui.top.feed import Json, Snapshot, Span, span_of
from superhosts.ui.top.hosts import HostRow, host_rows

MOST_DRAWN = 40  # windows in the line of windows
LEAST_TITLE = 8  # cells
LONGEST = 1000  # characters of a message
NAMED = 3  # missing sites that are named


class Where(NamedTuple):
    wanted: Span | None = None  # a window; None: the newest
    order: str = "peers"
    words: str = ""  # of the filter


def title_line(snapshot: Snapshot, lost: str, where: Where, width: int) -> Text:
    """Return the first line: title, window, whether it is live, alerts, missing sites.

    `lost`: two words if nothing new comes.
    """
    shown, right = snapshot.shown, Text()
    if missing := (shown or {}).get("missing"):
        names = ", ".join(printable(site, 40) for site in missing[:NAMED])
        more = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
        right.append(f"missing: {names}{more}", WARNING).append("  ")
    if snapshot.alerts:
        right.append(counted(len(snapshot.alerts), "alert"), WARNING).append("  ")
    right.append_text(_link(snapshot, lost, where)).append(" ")
    window = "" if shown is None else f"  {window_text(span_of(shown))}"
    room = max(width - right.cell_len - cell_len(window) - 2, LEAST_TITLE)
    title = printable(snapshot.summary.get("title", "superhosts top"), LONGEST)
    if cell_len(title) > room:  # It may be a long path, whose end says the most.
        title = "…" + set_cell_size(title[::-1], room - 1)[::-1]
    return placed(Text(" ").append(title, BOLD).append(window), right, width)


def _link(snapshot: Snapshot, lost: str, where: Where) -> Text:
    if lost:
        return Text(f"○ {lost}", WARNING)
    if not snapshot.summary:
        return Text("…", DIM)
    back = windows_back(snapshot, where.wanted)
    if back:
        return Text(f"◂ {counted(back, 'window')} back", BOLD)
    if is_live(snapshot):
        return Text("● live", "green")
    newest = snapshot.newest
    age = "" if newest is None else f", {age_text(max(now_of(snapshot) - newest[1], 0.0))} ago"
    return Text(f"● newest{age}", DIM)


def now_of(snapshot: Snapshot) -> float:
    now = snapshot.summary.get("now")
    return time.time() if now is None else float(now) + time.monotonic() - snapshot.taken


def is_live(snapshot: Snapshot) -> bool:
    until = snapshot.summary.get("live_until")  # None: an earlier release
    return bool(snapshot.summary.get("live")) and (until is None or now_of(snapshot) < until)


def windows_back(snapshot: Snapshot, wanted: Span | None) -> int:
    spans = [span_of(each) for each in snapshot.windows]
    return len(spans) - 1 - spans.index(wanted) if wanted in spans else 0


def window_text(span: Span | None) -> str:
    if span is None:
        return "no times"
    start, end = (round(moment * SECOND) for moment in span)
    return f"{window_cell(Window(start, end))}{'' if shows_local() else ' UTC'}"


def moment_text(seconds: object, *, zone: bool = True) -> str:
    if not isinstance(seconds, int | float):
        return "–"
    text = shown_time(int(seconds) * SECOND)[:16].replace("T", " ")
    return f"{text} UTC" if zone and not shows_local() else text


def status_line(snapshot: Snapshot, lost: str, where: Where, rows: int, width: int) -> Text:
    left = Text(" ")
    if lost:
        left.append(printable(lost), WARNING)
    elif snapshot.shown is None:
        left.append("no window yet" if snapshot.summary else "asking …", DIM)
    else:
        left.append_text(_which(snapshot.shown, rows, where))
        for note in _reading(snapshot):
            left.append(f" ({note.rstrip('.')})", WARNING)
    right = _windows(snapshot, where, min(MOST_DRAWN, width // 3))
    return placed(left, right.append(" ") if right.cell_len else right, width)


def why_empty(snapshot: Snapshot, told: str, where: Where) -> str:
    """Return why there are no rows; `told`: what is known about it."""
    if snapshot.shown is None:
        reading = " ".join(_reading(snapshot))
        return printable(told, most=LONGEST) if told else reading or "The first window will appear here."
    if where.words:
        return f"No host with {printable(where.words)}: Esc shows all."
    return "No host to report in this window."


def _reading(snapshot: Snapshot) -> list[str]:
    return [printable(note) for note in snapshot.summary.get("reading") or ()]


def _which(shown: Json, rows: int, where: Where) -> Text:
    notes = [printable(note) for note in shown.get("notes") or ()]
    if (revision := shown.get("revision") or 1) > 1:
        notes.append(f"revision {revision}")
    title = printable(shown.get("title") or counted(shown.get("hosts") or 0, "host"))
    text = Text().append(title, DIM)
    if where.words:
        text = Text(f"{rows:,} of {counted(len(shown['rows']), 'host')} with ").append(printable(where.words), BOLD)
    for note in notes:
        text.append(f" ({note})", DIM)
    return text


def _windows(snapshot: Snapshot, where: Where, most: int) -> Text:
    windows = snapshot.windows
    if len(windows) < 2 or most < 8:
        return Text()
    chosen = len(windows) - 1 - windows_back(snapshot, where.wanted)
    begin = max(min(chosen - most // 2, len(windows) - most), 0)
    part = windows[begin : begin + most]
    largest = [each.get("largest") or {} for each in part]
    peers = [each.get("low") or 0 if each.get("peers") is None else each["peers"] for each in largest]
    return sparkline([int(each) for each in peers], chosen - begin)


def keys_line(keys: Sequence[tuple[str, str]], width: int) -> Text:
    line = Text(" ")
    for place, (key, deed) in enumerate(keys):
        gap = "  " if place else ""
        if line.cell_len + len(gap) + len(key) + 1 + len(deed) > width:
            break
        line.append(gap).append(key, BOLD).append(f" {deed}", DIM)
    return line


CHART = 7  # lines
SCALE = 7  # cells left of the chart
MOST_NAMED = 12  # peers and sites that are listed
MISSING = "–"


def host_page(answer: Json, row: HostRow, width: int) -> Text:
    """Return the page. `row`: the line from which somebody came, perhaps of an older window."""
    rows = host_rows(answer.get("rows") or ())
    newest = next((each for each in rows if each.part == row.part), row)
    when = "" if newest == row else ", newest window"
    page = Text()
    for part in (
        _numbers(row),
        _past(answer, row, width),
        _evidence(newest, when),
        _others(rows, row),
        _sites(newest, when),
        _alerts(answer.get("alerts") or ()),
    ):
        for line in part:
            page.append_text(line).append("\n")
    return page


def _numbers(row: HostRow) -> Iterator[Text]:
    line = Text().append(peers_text(row.row), BOLD).append(f" {printable(row.row.get('counts') or 'peers')}")
    interval = interval_text(row.row)
    line.append(f"   {interval if row.is_exact or row.row['peers_high'] is None else f'95 % interval {interval}'}", DIM)
    if row.side:
        line.append(f"   {row.side}, {row.direction}", DIM)
    yield line
    if row.pattern or row.row.get("reason"):
        pattern = Text().append(row.pattern or "no pattern", BOLD)
        yield pattern.append(f"   {printable(row.row.get('reason') or '')}", DIM)
    yield Text()


def _past(answer: Json, row: HostRow, width: int) -> Iterator[Text]:
    if not answer:
        yield Text("asking …", DIM)
        return
    points = [
        point
        for point in answer.get("points") or ()
        if (printable(point.get("side")), printable(point.get("direction"))) == row.part
    ]
    reported = sum(bool(point.get("reported")) for point in points)
    what = "reported" if answer.get("threshold") is None else "super host"
    yield Text().append("Past", BOLD).append(f"   {counted(len(points), 'window')}, {what} in {reported:,}", DIM)
    for note in answer.get("notes") or ():
        yield Text(printable(note), WARNING)
    if not points:
        yield Text("no window with times yet", DIM)
        yield Text()
        return
    room = max(width - SCALE - 2, 10)
    for place, line in enumerate(chart(points, room, CHART)):
        mark = short_count(highest(points), 3) if place == 0 else "0" if place == CHART - 1 else ""
        yield Text().append(f"{mark:>{SCALE - 2}} ", DIM).append("┤" if mark else "│", DIM).append(line, BAR_STYLE)
    first = moment_text(min(point["start"] for point in points))
    last = moment_text(max(point["end"] for point in points))
    yield Text(" " * SCALE).append(f"{first}{last:>{max(room - len(first), len(last) + 1)}}", DIM)
    yield Text()


def _evidence(row: HostRow, when: str) -> Iterator[Text]:
    found = row.row.get("evidence")
    if not isinstance(found, dict):
        return
    whole = "all pairs" if found.get("complete") else "a sample"
    yield Text().append(f"Evidence{when}", BOLD).append(f"   {counted(found.get('pairs') or 0, 'pair')}, {whole}", DIM)
    failed = f"{_share(found.get('failed'))} of {counted(found.get('attempts') or 0, 'attempt')}"
    yield Text(f"answered {_share(found.get('answered'))}   opened {_share(found.get('opened'))}   failed {failed}")
    each = (printable(found.get(name, MISSING)) for name in ("packets_per_peer", "ports_per_peer"))
    yield Text("packets a peer {}   ports a peer {}".format(*each))
    yield from _named("services", [printable(service_text(port)) for port in found.get("ports") or ()])
    nets = [f"{count:,} {printable(prefix)}" for prefix, count in (found.get("nets") or {}).items()]
    yield from _named("networks", nets)
    yield from _named("peers", [printable(peer) for peer in found.get("peers") or ()])
    yield Text()


def _named(name: str, values: Sequence[str]) -> Iterator[Text]:
    if values:
        more = f" and {len(values) - MOST_NAMED} more" if len(values) > MOST_NAMED else ""
        yield Text().append(f"{name}  ", DIM).append(", ".join(values[:MOST_NAMED]) + more)


def _others(rows: Sequence[HostRow], chosen: HostRow) -> Iterator[Text]:
    others = [row for row in rows if row.part != chosen.part]
    for row in others:
        line = Text().append(f"{row.side}, {row.direction}  ", DIM)
        yield line.append(f"{peers_text(row.row)}   {interval_text(row.row)}")
    if others:
        yield Text()


def _sites(row: HostRow, when: str) -> Iterator[Text]:
    sites = row.row.get("sites") or []
    if not sites:
        return
    yield Text(f"Sites{when}", BOLD)
    for site in sites[:MOST_NAMED]:
        number = at_least(site.get("peers"), site.get("peers_low") or 0)
        yield Text(f"{printable(site.get('site'), 40):<20} ").append(f"{number:>10}", DIM)
    if len(sites) > MOST_NAMED:
        yield Text(f"and {len(sites) - MOST_NAMED} more", DIM)
    yield Text()


def _alerts(alerts: Sequence[Json]) -> Iterator[Text]:
    if not alerts:
        return
    yield Text("Alerts", BOLD)
    for alert in alerts[:MOST_NAMED]:
        line = Text().append(alert_state(alert), DIM if alert.get("closed") else WARNING)
        times = f"since {moment_text(alert.get('opened'))}, peak {_number(alert.get('peak'))}"
        yield line.append(f"  {printable(alert.get('rule'))}  {times}")
    yield Text()


def alert_state(alert: Json) -> str:
    """Return whether an alert is open or closed, and why it was closed if not because the host is quiet."""
    reason = alert.get("reason") or "quiet"
    if alert.get("state") in ("acknowledged", "muted"):
        return str(alert["state"])
    return "open" if not alert.get("closed") else "closed" if reason == "quiet" else f"closed: {printable(reason)}"


def _share(value: Any) -> str:
    return f"{value:.0%}".replace("%", " %") if isinstance(value, int | float) else MISSING


def page_title(row: HostRow, span: Any) -> Text:
    title = Text(" ").append(row.host, BOLD)
    if row.name:
        title.append(f"  {row.name}")
    return title.append(f"  {window_text(span)}", DIM)


WIDEST = 40  # cells of one column
MOST_NUMBER = 1e18
RIGHT = ("peers", "peak", "lag", "spool", "refused", "clock")
ALERT_COLUMNS = ("host", "state", "rule", "peers", "peak", "since", "last", "pattern", "name", "note")


class Item(NamedTuple):
    key: Hashable
    cells: Mapping[str, str]
    is_urgent: bool
    content: Json


class ListTable(NamedTuple):
    """Lines with the widths of their columns. Columns on the right are left out if they do not fit."""

    items: Sequence[Item]
    widths: Mapping[str, int]

    def header(self) -> Text:
        return cells_line(Text("  "), {name: Text(name, DIM) for name in self.widths}, self.widths, RIGHT)

    def line(self, place: int, is_chosen: bool) -> Text:
        item = self.items[place]
        cells = {name: Text(text) for name, text in item.cells.items()}
        first, second = [*cells][:2]
        cells[first] = chosen_cell(item.cells[first], is_chosen)
        cells[second] = Text(item.cells[second], WARNING if item.is_urgent else "")
        return cells_line(Text().append("▸ " if is_chosen else "  ", BOLD), cells, self.widths, RIGHT)


def list_table(items: Sequence[Item], width: int) -> ListTable:
    widths: dict[str, int] = {}
    room = width - 2
    for name in items[0].cells if items else ():
        if not any(item.cells[name] for item in items):
            continue
        needed = min(max(cell_len(name), *(cell_len(item.cells[name]) for item in items)), WIDEST)
        taken = needed if needed <= room else max(room, 0)
        if taken < min(needed, 6):
            break
        widths[name] = taken
        room -= taken + GAP
    return ListTable(items, widths)


def alert_items(answer: Json) -> list[Item]:
    alerts, muted = answer.get("alerts") or (), answer.get("muted") or ()
    largest_first = sorted(alerts, key=lambda alert: -(_known(alert.get("peers")) or 0.0))
    opened = [_alert_item(alert) for alert in largest_first if not alert.get("closed")]
    closed = [_alert_item(alert) for alert in alerts if alert.get("closed")]
    return [*opened, *map(_mute_item, muted), *closed]


def _alert_item(alert: Json) -> Item:
    whose = printable(alert.get("host"), WIDEST), alert_state(alert), printable(alert.get("rule"), WIDEST)
    numbers = _number(alert.get("peers")), _number(alert.get("peak"))
    known = alert.get("known") or {}
    more = known.get("pattern"), known.get("label") or known.get("name"), alert.get("note")
    times = _time(alert.get("opened")), _time(alert.get("last"))
    cells = dict(zip(ALERT_COLUMNS, (*whose, *numbers, *times, *(printable(text or "") for text in more)), strict=True))
    return Item(("alert", alert.get("id")), cells, not alert.get("closed"), alert)


def _mute_item(mute: Json) -> Item:
    whose = printable(mute.get("host"), WIDEST), "muted", printable(mute.get("rule") or "all", WIDEST)
    times = f"until {_time(mute.get('until'))}", printable(mute.get("why") or "", WIDEST)
    cells = dict(zip(ALERT_COLUMNS, (*whose, "", "", *times, "", "", ""), strict=True))
    return Item(("mute", mute.get("host"), mute.get("rule")), cells, False, mute)


def site_items(sites: Sequence[Json], now: float) -> list[Item]:
    ordered = sorted(sites, key=lambda site: (site.get("in_window") is not False, str(site.get("site"))))
    return [_site_item(site, now) for site in ordered]


def _site_item(site: Json, now: float) -> Item:
    is_missing = site.get("in_window") is False
    waiting, size = (_known(site.get(name)) for name in ("spool_sketches", "spool_bytes"))
    clock = _known(site.get("clock"))
    cells = {
        "site": printable(site.get("site"), WIDEST),
        "newest window": "missing" if is_missing else "yes" if site.get("in_window") else "no",
        "heard": f"{_age(site.get('seen'), now)} ago".replace(f"{MISSING} ago", MISSING),
        "lag": _age(site.get("window_end"), now),
        "spool": MISSING if waiting is None else f"{_number(waiting)} ({format_size(size or 0)})",
        "refused": _number(site.get("refused")),
        "clock": MISSING if clock is None else f"{round(clock, 1) + 0.0:+.1f} s",
        "version": printable(site.get("version") or MISSING, WIDEST),
        "remark": printable(site.get("mismatch") or ""),
    }
    return Item(str(site.get("site")), cells, is_missing or bool(site.get("mismatch")), site)


def _age(moment: Any, now: float) -> str:
    return MISSING if _known(moment) is None else age_text(max(now - moment, 0.0))


def _number(value: Any) -> str:
    return MISSING if _known(value) is None else f"{value:,.0f}"


def _known(value: Any) -> float | None:
    """Return a number; None if there is none. The files that a hub has written may be damaged."""
    return float(value) if isinstance(value, int | float) and abs(value) < MOST_NUMBER else None


def _time(seconds: Any) -> str:
    return moment_text(seconds, zone=False)[5:] or MISSING


def alerts_heading(items: Sequence[Item]) -> str:
    opened = sum(item.is_urgent for item in items)
    muted = sum("until" in item.content for item in items)
    return f"{counted(opened, 'open alert')}, {len(items) - opened - muted} closed, {muted} muted"
