"""The table of hosts: rows that are safe to show, in some order, those that a filter leaves, and the line of each.

Names, labels and addresses come from traffic and from other machines. They are made printable here, once. An address is
never cut while there is room for it and its number. When a terminal is narrow, intervals become short first, and then
columns go in this order: sites, bars, names, patterns, intervals, and last the numbers.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rich.cells import cell_len
from rich.text import Text

from superhosts.core.hosttable import HOST_COLUMNS, MOST_NAME, interval_text, is_exact, peers_text
from superhosts.core.pairs import Network
from superhosts.core.text import printable
from superhosts.output.alerts.rules import contains
from superhosts.output.report import known_peers
from superhosts.ui.top.drawing import BOLD, DIM, GAP, WARNING, bar, cells_line, chosen_cell, cut
from superhosts.ui.top.feed import Json

TITLES = {name: HOST_COLUMNS[name].title for name in ("host", "name", "peers", "interval", "pattern")}
TITLES |= {"sites": "sites", "bar": ""}
COLUMNS_OF_NUMBERS = [name for name, column in HOST_COLUMNS.items() if column.is_number]
FAINT = ("interval", "sites")  # columns
MARK = 2  # cells for the mark of the cursor
LEAST_BAR, GOOD_BAR, WIDE_BAR = 8, 14, 30
LEAST_NAME, WIDE_NAME = 20, 32
LEAST_SITES, WIDE_SITES = 6, 28
SHORTEST_ADDRESS = 8  # cells that are left of an address beside its number
LEAST_ADDRESS = 15  # so that the columns stay where they are when other IPv4 addresses come


class HostRow(NamedTuple):
    """One host of a window. All text is printable."""

    host: str
    name: str
    side: str
    direction: str
    pattern: str
    sites: tuple[str, ...]  # that saw it, the one with the most peers first
    asked: str  # the host as the other side writes it
    row: Json  # everything

    @property
    def key(self) -> tuple[str, str, str, Any]:
        return self.asked, self.side, self.direction, (self.row.get("counts"), self.row.get("group"))

    @property
    def part(self) -> tuple[str, str]:
        return self.side, self.direction

    @property
    def known(self) -> int:
        return known_peers(self.row)

    @property
    def most(self) -> int:
        return max(self.known, self.row["peers_high"] or 0)

    @property
    def is_exact(self) -> bool:
        return is_exact(self.row)


def host_rows(rows: Iterable[Json]) -> list[HostRow]:
    found = []
    for row in rows:
        text = {name: HOST_COLUMNS[name].write(row) for name in ("host", "name", "side", "direction", "pattern")}
        sites = tuple(printable(site["site"], MOST_NAME) for site in row.get("sites") or ())
        found.append(HostRow(**text, sites=sites, asked=str(row["host"]), row=row))
    return found


def _network(row: HostRow) -> Network | None:
    try:
        return ipaddress.ip_network(row.asked, strict=False)
    except ValueError:
        return None


def _by_address(row: HostRow) -> tuple[int, int, str]:
    """Sort addresses as numbers, IPv4 before IPv6, and names behind them."""
    network = _network(row)
    return (9, 0, row.asked) if network is None else (network.version, int(network.network_address), row.asked)


ORDERS: dict[str, Callable[[HostRow], Any]] = {  # names of columns, in the order in which one key cycles through them
    "peers": lambda row: -row.known,
    "host": _by_address,
    "name": lambda row: (not row.name, row.name.casefold()),
    "pattern": lambda row: (not row.pattern, row.pattern),
    "sites": lambda row: -len(row.sites),
}


def ordered(rows: Sequence[HostRow], order: str) -> list[HostRow]:
    """Return rows in an order, and those that it leaves equal by their peers."""
    return sorted(sorted(rows, key=ORDERS["peers"]), key=ORDERS[order])


def filtered(rows: Sequence[HostRow], text: str) -> list[HostRow]:
    """Return the rows that contain a text, or whose address is in a prefix. Several words must all be found."""
    tests = [_test(word) for word in text.split()]
    return [row for row in rows if all(test(row) for test in tests)]


def _test(word: str) -> Callable[[HostRow], bool]:
    if "/" in word:
        try:
            network = ipaddress.ip_network(word, strict=False)
        except ValueError:
            pass
        else:
            return lambda row: (host := _network(row)) is not None and contains(network, host)
    wanted = word.casefold()
    return lambda row: wanted in "\n".join((row.host, row.name, row.pattern, *row.sites)).casefold()


class Layout(NamedTuple):
    widths: dict[str, int]
    largest: int  # the end of the scale of bars
    shows_part: bool  # rows differ in side or direction, which the host's cell tells
    is_short: bool = False  # intervals are shown as ±3 %, as there is no room for both ends


NO_LAYOUT = Layout({}, 0, False)
LEAST = {"bar": LEAST_BAR, "name": LEAST_NAME, "sites": LEAST_SITES}  # columns that may be cut
# To which they grow, one after the other.
GROWTH = (("bar", GOOD_BAR), ("name", WIDE_NAME), ("sites", WIDE_SITES), ("bar", WIDE_BAR))
WORTH = ("interval", "pattern", "name", "bar", "sites")  # columns that may be left out, the last one first
ORDER = ("host", "name", "peers", "interval", "bar", "pattern", "sites")


def lay_out(rows: Sequence[HostRow], width: int, before: Layout = NO_LAYOUT) -> Layout:
    """Return the columns for some rows. Columns of addresses and numbers are no narrower than `before`."""
    parts = len({row.part for row in rows}) > 1
    cells = [_cells(row, shows_part=parts) for row in rows]
    needed = {name: max((cell_len(each[name]) for each in cells), default=0) for name in TITLES if name != "bar"}
    needed = {name: max(length, cell_len(TITLES[name])) for name, length in needed.items() if length}
    needed["bar"] = LEAST_BAR
    if all(row.is_exact for row in rows):
        needed.pop("interval", None)
    for name in ("host", "peers"):
        needed[name] = max(needed.get(name, 0), before.widths.get(name, 0), LEAST_ADDRESS if name == "host" else 5)
    room = width - MARK - GAP - needed["peers"]
    if room < SHORTEST_ADDRESS:  # A number of which the end is cut off would be a wrong one.
        needed.pop("peers")
        room = width - MARK
    needed["host"] = min(needed["host"], max(room, 1))
    least = {name: min(length, LEAST.get(name, length)) for name, length in needed.items()}
    is_short = "interval" in least and _total(least) > width
    if is_short:
        least["interval"] = max((cell_len(short_interval(row)) for row in rows), default=0)
    for name in reversed(WORTH):
        if _total(least) > width:
            least.pop(name, None)
    for name, widest in GROWTH:
        if name in least:
            wanted = widest if name == "bar" else min(needed[name], widest)
            least[name] += max(min(wanted - least[name], width - _total(least)), 0)
    largest = max((row.most for row in rows), default=0)
    return Layout({name: least[name] for name in ORDER if name in least}, largest, parts, is_short)


def _total(widths: Mapping[str, int]) -> int:
    return MARK + sum(widths.values()) + GAP * (len(widths) - 1)


def header_line(layout: Layout, order: str) -> Text:
    titles = TITLES | ({"interval": HOST_COLUMNS["interval"].short} if layout.is_short else {})
    styles = {name: f"{BOLD} underline" if name == order else DIM for name in titles}
    cells = {name: Text().append(title, styles[name]) for name, title in titles.items()}
    return cells_line(Text(" " * MARK), cells, layout.widths, COLUMNS_OF_NUMBERS)


def host_line(row: HostRow, layout: Layout, *, is_chosen: bool, has_alert: bool = False) -> Text:
    texts = _cells(row, shows_part=layout.shows_part)
    texts["sites"] = sites_text(row, layout.widths.get("sites"))
    if layout.is_short:
        texts["interval"] = short_interval(row)
    cells = {name: Text().append(text, DIM if name in FAINT else "") for name, text in texts.items()}
    cells["host"] = chosen_cell(texts["host"], is_chosen)
    width = layout.widths.get("bar", 0)
    cells["bar"] = bar(row.row["peers_low"], row.most, is_exact=row.is_exact, largest=layout.largest, width=width)
    mark = Text().append("▸" if is_chosen else " ", BOLD).append("!" if has_alert else " ", WARNING)
    return cells_line(mark, cells, layout.widths, COLUMNS_OF_NUMBERS)


def _cells(row: HostRow, *, shows_part: bool) -> dict[str, str]:
    return {
        "host": f"{row.host} {row.side} {row.direction}" if shows_part else row.host,
        "name": row.name,
        "peers": peers_text(row.row),
        "interval": interval_text(row.row),
        "pattern": row.pattern,
        "sites": sites_text(row),
    }


def short_interval(row: HostRow) -> str:
    peers, low, high = (row.row[name] for name in ("peers", "peers_low", "peers_high"))
    if row.is_exact or high is None or not peers:
        return "exact" if row.is_exact else ""
    share = 100 * (high - low) / 2 / peers
    return f"±{share:.0f} %" if share >= 0.95 else f"±{share:.1f} %"


def sites_text(row: HostRow, width: int | None = None) -> str:
    """Return the sites that saw a host; if that is too wide, the first one and how many others."""
    text = ", ".join(row.sites)
    if width is None or cell_len(text) <= width or len(row.sites) < 2:
        return text
    more = f" +{len(row.sites) - 1}"
    return cut(row.sites[0], width - len(more)) + more
