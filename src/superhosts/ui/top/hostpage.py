"""The page of one host: its number with the interval, its past as a chart, evidence, sites and alerts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.text import Text

from superhosts.core.text import at_least, counted, printable, short_count
from superhosts.sketch.evidence.summary import service_text
from superhosts.ui.top.columns import interval_text, peers_text
from superhosts.ui.top.drawing import BAR_STYLE, BOLD, DIM, WARNING, Band, chart, highest
from superhosts.ui.top.feed import Json
from superhosts.ui.top.heading import moment_text, window_text
from superhosts.ui.top.hosts import HostRow, host_rows

CHART = 7  # lines
SCALE = 7  # cells left of the chart
MOST_NAMED = 12  # peers and sites that are listed
MISSING = "–"


def host_page(answer: Json, row: HostRow | None, width: int) -> Text:
    """Return the page. `row`: the line from which somebody came, perhaps of an older window."""
    rows = host_rows(answer.get("rows") or ())
    same = [each for each in rows if row is None or (each.side, each.direction) == (row.side, row.direction)]
    chosen = row or next(iter(same or rows), None)
    newest = same[0] if same else chosen
    when = "" if newest == chosen else ", newest window"
    page = Text()
    for part in (
        _numbers(chosen),
        _past(answer, chosen, width),
        _evidence(newest, when),
        _others(rows, chosen),
        _sites(newest, when),
        _alerts(answer.get("alerts") or ()),
    ):
        for line in part:
            page.append_text(line).append("\n")
    return page


def _numbers(row: HostRow | None) -> Iterator[Text]:
    if row is None:
        yield Text("not reported in the newest window", DIM)
        yield Text()
        return
    line = Text().append(peers_text(row), BOLD).append(f" {printable(row.row.get('counts') or 'peers')}")
    interval = interval_text(row)
    line.append(f"   {interval if row.is_exact or row.high is None else f'95 % interval {interval}'}", DIM)
    if row.side:
        line.append(f"   {row.side}, {row.direction}", DIM)
    yield line
    if row.pattern or row.row.get("reason"):
        pattern = Text().append(row.pattern or "no pattern", BOLD)
        yield pattern.append(f"   {printable(row.row.get('reason') or '')}", DIM)
    yield Text()


def _past(answer: Json, row: HostRow | None, width: int) -> Iterator[Text]:
    if not answer:
        yield Text("asking …", DIM)
        return
    points = [point for point in answer.get("points") or () if _is_same(point, row)]
    bands = [Band(point["start"], point["end"], int(point["low"]), point["high"]) for point in points]
    reported = sum(bool(point.get("reported")) for point in points)
    what = "reported" if answer.get("threshold") is None else "super host"
    title = Text().append("Past", BOLD).append(f"   {counted(len(bands), 'window')}, {what} in {reported:,}", DIM)
    yield title
    for note in answer.get("notes") or ():
        yield Text(printable(note), WARNING)
    if not bands:
        yield Text("no window with times yet", DIM)
        yield Text()
        return
    room = max(width - SCALE - 2, 10)
    for place, line in enumerate(chart(bands, room, CHART)):
        mark = short_count(highest(bands), 3) if place == 0 else "0" if place == CHART - 1 else ""
        yield Text().append(f"{mark:>{SCALE - 2}} ", DIM).append("┤" if mark else "│", DIM).append(line, BAR_STYLE)
    first = moment_text(min(band.start for band in bands))
    last = moment_text(max(band.end for band in bands))
    yield Text(" " * SCALE).append(f"{first}{last:>{max(room - len(first), len(last) + 1)}}", DIM)
    yield Text()


def _is_same(point: Json, row: HostRow | None) -> bool:
    return row is None or (printable(point.get("side")), printable(point.get("direction"))) == (row.side, row.direction)


def _evidence(row: HostRow | None, when: str) -> Iterator[Text]:
    found = None if row is None else row.row.get("evidence")
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


def _others(rows: Sequence[HostRow], chosen: HostRow | None) -> Iterator[Text]:
    """Yield the same host's numbers of other sides and directions."""
    others = [
        row for row in rows if chosen is not None and (row.side, row.direction) != (chosen.side, chosen.direction)
    ]
    for row in others:
        yield Text().append(f"{row.side}, {row.direction}  ", DIM).append(f"{peers_text(row)}   {interval_text(row)}")
    if others:
        yield Text()


def _sites(row: HostRow | None, when: str) -> Iterator[Text]:
    sites = [] if row is None else row.row.get("sites") or []
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
        times = f"since {moment_text(alert.get('opened'))}, peak {_whole(alert.get('peak'))}"
        yield line.append(f"  {printable(alert.get('rule'))}  {times}")
    yield Text()


def alert_state(alert: Json) -> str:
    """Return whether an alert is open or closed, and why it was closed if not because the host is quiet."""
    reason = alert.get("reason") or "quiet"
    return "open" if not alert.get("closed") else "closed" if reason == "quiet" else f"closed: {printable(reason)}"


def _share(value: Any) -> str:
    return f"{value:.0%}".replace("%", " %") if isinstance(value, int | float) else MISSING


def _whole(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else MISSING


def page_title(row: HostRow, span: Any) -> Text:
    """Return the first line of the page."""
    title = Text(" ").append(row.host, BOLD)
    if row.name:
        title.append(f"  {row.name}")
    return title.append(f"  {window_text(span)}", DIM)
