"""Figures of rows: hosts with their intervals, one host over time, and how an estimate comes about."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from superhosts.core.text import counted, printable
from superhosts.core.times import shown_row_time, shows_local
from superhosts.lab.sheet import OKABE_ITO, Note, caption, draw, series_look, show_thousands
from superhosts.output.report import Row, known_peers

MOST_HOSTS = 40  # of one figure; of more, the largest
LOG_FROM = 8  # the axis is logarithmic if the largest number is so many times the smallest
COUNTED, ESTIMATED = OKABE_ITO["black"], OKABE_ITO["vermillion"]
BOUND = OKABE_ITO["blue"]


class Columns(NamedTuple):
    row: Row
    columns: Sequence[dict[str, Any]]


def draw_hosts(rows: Sequence[Row], path: Path, note: Note) -> list[Path]:
    largest = sorted(rows, key=lambda row: (-known_peers(row), row["window_start"] or "", row["host"]))[:MOST_HOSTS]
    if len(largest) < len(rows):
        note = note._replace(
            caption=caption(note.caption, f"the {len(largest)} largest of {counted(len(rows), 'row')}")
        )
    height = 0.85 + 0.165 * len(largest)
    return draw([path], height, note, lambda figure: plot_hosts(figure.subplots(), largest))


def plot_hosts(axes: Any, rows: Sequence[Row]) -> None:
    """Draw rows from top to bottom: a dot with an error bar where peers are estimated."""
    seen: set[str] = set()
    for place, row in enumerate(rows):
        name, style = _mark(row)
        label = "" if name in seen else name
        seen.add(name)
        bars = None if row["peers"] is None else [[row["peers"] - row["peers_low"]], [row["peers_high"] - row["peers"]]]
        axes.errorbar(known_peers(row), place, xerr=bars, ls="none", capsize=1.5, label=label, zorder=3, **style)
    axes.set_yticks(range(len(rows)), _labels(rows))
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(_noun(rows))
    _scale(axes, axes.xaxis, rows)
    axes.figure.legend(loc="outside upper center", ncols=3, handletextpad=0.3, columnspacing=1.0)


def draw_history(rows: Sequence[Row], path: Path, note: Note) -> list[Path]:
    return draw([path], 2.6, note, lambda figure: plot_history(figure.subplots(), rows))


def plot_history(axes: Any, rows: Sequence[Row]) -> None:
    """Draw the peers of a host over time: a series for each site and part, one dot with its interval for each window.

    Windows without a time stand side by side.
    """
    timed = [row for row in rows if row["window_start"] is not None]
    names = list(dict.fromkeys(map(_series_of, rows)))
    for number, name in enumerate(names):
        mine = [row for row in (timed or rows) if _series_of(row) == name]
        peers = np.array([known_peers(row) for row in mine])
        low = np.array([row["peers_low"] for row in mine])
        high = np.array([known_peers(row) if row["peers_high"] is None else row["peers_high"] for row in mine])
        places = [_middle(row) for row in mine] if timed else list(range(len(mine)))
        look = series_look(number)
        bars = np.array([peers - low, high - peers]).clip(0)
        axes.errorbar(
            places, peers, yerr=bars, lw=0.5, elinewidth=0.8, capsize=1.5, label=name, zorder=3, **look.options
        )
        open_ones = [place for place, row in enumerate(mine) if row["peers"] is None]
        bound = {"marker": "^", "ms": 7, "mfc": "none", "mec": look.colour, "ls": "none", "zorder": 4}
        axes.plot([places[each] for each in open_ones], peers[open_ones], **bound)
    _scale(axes, axes.yaxis, rows)
    axes.set_ylabel(_noun(rows))
    if timed:
        _show_times(axes, timed[0]["window_start"])
    if len(names) > 1:
        axes.figure.legend(loc="outside upper center", ncols=3, handletextpad=0.3, columnspacing=1.0)


def draw_columns(found: Sequence[Columns], path: Path, note: Note) -> list[Path]:
    heights = [0.75 + 0.17 * len(each.columns) for each in found]

    def paint(figure: Any) -> None:
        rows = figure.subplots(len(found), height_ratios=heights, squeeze=False)
        for axes, each in zip(rows[:, 0], found, strict=True):
            plot_columns(axes, each)

    return draw([path], 0.5 + sum(heights), note, paint)


def plot_columns(axes: Any, found: Columns) -> None:
    """Draw how full each column of a host is, beside the mean of its array, and what remains in the AND of all."""
    columns, row = found.columns, found.row
    places = range(len(columns))
    both = [column["mean_fill"] is None for column in columns]
    for place, column in enumerate(columns):
        colour = ESTIMATED if both[place] else BOUND
        axes.barh(place, column["fill"], height=0.55, color=colour, alpha=0.85, zorder=2)
        if column["mean_fill"] is not None:
            axes.plot(column["mean_fill"], place, marker="|", ms=8, mew=1.5, ls="none", color="black", zorder=3)
    names = ["AND of all" if both[place] else f"column {columns[place]['array']}" for place in places]
    axes.set_yticks(list(places), names)
    axes.set_ylim(len(columns) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
    axes.set_xlabel("bits set (black tick: mean of the array)")
    axes.set_title(f"{_part(row)}{_words(row)}", fontsize=7.5, loc="left")


def _mark(row: Row) -> tuple[str, dict[str, Any]]:
    if row["peers"] is None:
        return "saturated: lower bound", {"color": BOUND, "marker": ">", "mfc": "white"}
    if row["exact"]:
        return "counted", {"color": COUNTED, "marker": "s", "ms": 3.5}
    return "estimate, 95 % interval", {"color": ESTIMATED, "marker": "o", "ms": 3.5}


def _labels(rows: Sequence[Row]) -> list[str]:
    varying = [
        name for name in ("window_start", "site", "side", "direction") if len({row.get(name) for row in rows}) > 1
    ]
    labels = []
    for row in rows:
        words = [printable(row["host"])]
        for name in varying:
            value = row.get(name) or "–"
            is_time = name == "window_start" and row.get(name)
            words.append(shown_row_time(value)[5:16].replace("T", " ") if is_time else printable(value))
        labels.append(" ".join(words))
    return labels


def _noun(rows: Sequence[Row]) -> str:
    counts = {row.get("counts") for row in rows} - {None}
    return str(counts.pop()) if len(counts) == 1 else "peers"


def _scale(axes: Any, axis: Any, rows: Sequence[Row]) -> None:
    """Make an axis of peers logarithmic if the numbers are far apart, and else begin it at 0."""
    numbers = [known_peers(row) for row in rows]
    name = axis.axis_name
    if min(numbers) > 0 and max(numbers) >= LOG_FROM * min(numbers):
        getattr(axes, f"set_{name}scale")("log")
    else:
        getattr(axes, f"set_{name}lim")(**{"left" if name == "x" else "bottom": 0})
    show_thousands(axis)


def _series_of(row: Row) -> str:
    return " ".join(filter(None, (printable(row.get("site") or ""), _part(row).rstrip(": ")))) or "all"


def _part(row: Row) -> str:
    words = [word for word in (row["side"], row["direction"]) if word not in ("inner", "any")]
    return f"{' '.join(words)}: " if words else ""


def _words(row: Row) -> str:
    if row["peers"] is None:
        return f"saturated: at least {counted(row['peers_low'], 'peer')}"
    if row["exact"]:
        return f"counted: {counted(row['peers'], 'peer')}"
    return f"estimated: {counted(row['peers'], 'peer')} ({row['peers_low']:,} to {row['peers_high']:,})"


def _middle(row: Row) -> datetime:
    start, end = (datetime.fromisoformat(row[name]) for name in ("window_start", "window_end"))
    middle = start + (end - start) / 2
    return middle.astimezone() if shows_local() else middle


def _show_times(axes: Any, first: str) -> None:
    dates: Any = import_module("matplotlib.dates")
    locator = dates.AutoDateLocator(maxticks=6)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator, show_offset=False))
    zone = "local time" if shows_local() else "UTC"
    axes.set_xlabel(f"middle of the window, {zone}, from {shown_row_time(first)[:10]} on")
