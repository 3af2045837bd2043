"""Alerts and sites as lines of a table."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from rich.cells import cell_len
from rich.text import Text

from superhosts.core.text import counted, printable
from superhosts.core.units import format_size
from superhosts.ui.top.drawing import BOLD, DIM, WARNING, cut
from superhosts.ui.top.feed import Json
from superhosts.ui.top.heading import age_text, moment_text
from superhosts.ui.top.hostpage import MISSING, alert_state

GAP = 2
WIDEST = 40  # cells of one column
MOST_NUMBER = 1e18
RIGHT = ("peers", "peak", "lag", "spool", "refused", "clock")


class Item(NamedTuple):
    """One line."""

    key: Hashable
    cells: Mapping[str, str]
    is_urgent: bool = False
    content: Json | None = None


class ListTable(NamedTuple):
    """Lines with the widths of their columns. Columns on the right are left out if they do not fit."""

    items: Sequence[Item]
    widths: Mapping[str, int]

    def header(self) -> Text:
        """Return the names of the columns."""
        names = [_aligned(name, width, name) for name, width in self.widths.items()]
        return Text("  " + (" " * GAP).join(names), DIM)

    def line(self, place: int, is_chosen: bool) -> Text:
        """Return a line."""
        item = self.items[place]
        line = Text().append("▸ " if is_chosen else "  ", BOLD)
        for number, (name, width) in enumerate(self.widths.items()):
            style = ("bold reverse" if is_chosen else BOLD) if number == 0 else ""
            style = WARNING if number == 1 and item.is_urgent else style
            line.append(" " * GAP if number else "")
            line.append(_aligned(cut(item.cells[name], width), width, name), style)
        return line


def list_table(items: Sequence[Item], width: int) -> ListTable:
    """Return lines that fit into a width."""
    widths: dict[str, int] = {}
    room = width - 2
    for name in items[0].cells if items else ():
        needed = min(max(cell_len(name), *(cell_len(item.cells[name]) for item in items)), WIDEST)
        taken = needed if needed <= room else max(room, 0)
        if taken < min(needed, 6):
            break
        widths[name] = taken
        room -= taken + GAP
    return ListTable(items, widths)


def _aligned(text: str, width: int, column: str) -> str:
    space = " " * (width - cell_len(text))
    return space + text if column in RIGHT else text + space


def alert_items(answer: Json) -> list[Item]:
    """Return open alerts, most peers first, then what is muted, then closed alerts."""
    alerts, muted = answer.get("alerts") or (), answer.get("muted") or ()
    largest_first = sorted(alerts, key=lambda alert: -(_known(alert.get("peers")) or 0.0))
    opened = [_alert_item(alert) for alert in largest_first if not alert.get("closed")]
    closed = [_alert_item(alert) for alert in alerts if alert.get("closed")]
    return [*opened, *map(_mute_item, muted), *closed]


def _alert_item(alert: Json) -> Item:
    cells = {
        "host": printable(alert.get("host"), WIDEST),
        "state": alert_state(alert),
        "rule": printable(alert.get("rule"), WIDEST),
        "peers": _number(alert.get("peers")),
        "peak": _number(alert.get("peak")),
        "since": _time(alert.get("opened")),
        "last": _time(alert.get("last")),
    }
    return Item(("alert", alert.get("id")), cells, not alert.get("closed"), alert)


def _mute_item(mute: Json) -> Item:
    why = printable(mute.get("why") or "", WIDEST)
    cells = {
        "host": printable(mute.get("host"), WIDEST),
        "state": "muted",
        "rule": printable(mute.get("rule") or "all", WIDEST),
        "peers": "",
        "peak": "",
        "since": f"until {_time(mute.get('until'))}",
        "last": why,
    }
    return Item(("mute", mute.get("host"), mute.get("rule")), cells, False, mute)


def site_items(sites: Sequence[Json], now: float) -> list[Item]:
    """Return what is known of each site; sites that are missing in the newest window first."""
    ordered = sorted(sites, key=lambda site: (not _is_missing(site), str(site.get("site"))))
    return [_site_item(site, now) for site in ordered]


def _is_missing(site: Json) -> bool:
    return site.get("in_window") is False


def _site_item(site: Json, now: float) -> Item:
    waiting, size = (_known(site.get(name)) for name in ("spool_sketches", "spool_bytes"))
    clock = _known(site.get("clock"))
    cells = {
        "site": printable(site.get("site"), WIDEST),
        "newest window": "missing" if _is_missing(site) else "yes" if site.get("in_window") else "no",
        "heard": _ago(site.get("seen"), now),
        "lag": _age(site.get("window_end"), now),
        "spool": MISSING if waiting is None else f"{_number(waiting)} ({format_size(size or 0)})",
        "refused": _number(site.get("refused")),
        "clock": MISSING if clock is None else f"{round(clock, 1) + 0.0:+.1f} s",
        "version": printable(site.get("version") or MISSING, WIDEST),
        "remark": printable(site.get("mismatch") or ""),
    }
    return Item(str(site.get("site")), cells, _is_missing(site) or bool(site.get("mismatch")), site)


def _ago(moment: Any, now: float) -> str:
    age = _age(moment, now)
    return age if age == MISSING else f"{age} ago"


def _age(moment: Any, now: float) -> str:
    return MISSING if _known(moment) is None else age_text(now - moment)


def _number(value: Any) -> str:
    return MISSING if _known(value) is None else f"{value:,.0f}"


def _known(value: Any) -> float | None:
    """Return a number; None if there is none. The files that a hub has written may be damaged."""
    return float(value) if isinstance(value, int | float) and abs(value) < MOST_NUMBER else None


def _time(seconds: Any) -> str:
    """Return day and time, without the year."""
    return moment_text(seconds, zone=False)[5:] or MISSING


def alerts_heading(items: Sequence[Item]) -> str:
    """Return how many alerts are open, closed and muted."""
    opened = sum(item.is_urgent for item in items)
    muted = sum(item.cells["state"] == "muted" for item in items)
    return f"{counted(opened, 'open alert')}, {len(items) - opened - muted} closed, {muted} muted"
