"""The figures of a comparison, as PDF and SVG: errors of each detector, estimates, coverage, memory against error.

Windows are independent draws of traffic, so a detector has one mean with its interval over them, and each window a
faint dot; no line joins windows. Looks belong to detectors, not to their places in a run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from superhosts.core.text import counted
from superhosts.core.units import format_size
from superhosts.lab.drawing import GREY, LEAST_RATE, MIB, OKABE_ITO, Look, Note, caption, draw, scale_rates
from superhosts.lab.estimatefigures import drawn_words, plot_coverage, plot_estimates
from superhosts.lab.experiment import Row, averages
from superhosts.lab.intervals import mean_interval, most_unseen
from superhosts.lab.scores import Estimates

RED, BLUE, PURPLE = OKABE_ITO["vermillion"], OKABE_ITO["blue"], OKABE_ITO["purple"]
LOOKS = {
    "cube": Look(RED, "o"),
    "cube-dense": Look(RED, "o", is_open=True),
    "cube-planned": Look(RED, "D", is_open=True),
    "cbaa": Look(BLUE, "s"),
    "cbaa-paper": Look(BLUE, "s", is_open=True),
    "dcds": Look(OKABE_ITO["green"], "^"),
    "vbfa": Look(PURPLE, "v"),
    "vbfa-long": Look(PURPLE, "v", is_open=True),
    "vbfa-wide": Look(PURPLE, ">", is_open=True),
    "gse": Look(OKABE_ITO["orange"], "P"),
    "filter": Look(OKABE_ITO["black"], "X"),
    "spreadsketch": Look(OKABE_ITO["sky"], "p"),
    "pairsample": Look(OKABE_ITO["green"], "d", is_open=True),
    "rgs": Look(OKABE_ITO["sky"], "*"),
}
OWN = Look(GREY, "h")  # of detectors of one's own
RATES = {
    "ftr": "false negatives and positives (FTR)",
    "fnr": "false negatives, of super hosts (FNR)",
    "fpr": "false positives, of super hosts (FPR)",
}
MOST_IN_SMALL = 60  # hosts in each of many small figures
SPREAD = 0.5  # of the distance between detectors: the dots of windows stand one below the other
LABEL_HEIGHT = 0.062  # of a name beside the axes, as a share of their height
ABREAST = 3  # small figures side by side
ASIDE = 0.04  # of a doubling of the memory: between the marks of two detectors


@dataclass(frozen=True)
class Facts:
    """What the figures of a comparison depend on, besides its rows."""

    threshold: float
    key: str  # in words
    command: str
    estimates: Mapping[str, Estimates] = field(default_factory=dict)  # of all windows, by detector


class Spot(NamedTuple):
    """A detector's mean over the windows that have super hosts (of times the median), its interval, and the windows."""

    name: str
    values: list[float]
    mean: float
    low: float
    high: float

    @property
    def bars(self) -> list[list[float]]:
        """The interval as matplotlib takes it; it does not go below 0."""
        return [[self.mean - max(0.0, self.low)], [self.high - self.mean]]


def draw_comparison(rows: Sequence[Row], folder: Path, facts: Facts) -> list[Path]:
    """Draw all figures of a comparison into a folder that is prepared; return the files.

    Without super hosts there are no rates, and no figures of them.
    """
    rated = [row for row in rows if row.ftr is not None]
    made: list[Path] = []
    if len({row.memory_given for row in rows}) > 1:
        for column in RATES if rated else ():
            made += _draw(
                folder / f"memory-{column}", 3.6, rows, facts, partial(plot_curves, rows=rated, column=column)
            )
        return made
    names = len({row.detector for row in rows})
    tall = 0.95 + 0.17 * names
    for column in RATES if rated else ():
        made += _draw(folder / column, tall, rows, facts, partial(plot_dots, rows=rated, column=column))
    made += _draw(folder / "restore", tall, rows, facts, partial(plot_dots, rows=rows, column="restore_ms"))
    if not rated:
        return made
    made += _draw(folder / "memory", max(2.4, 0.8 + 0.16 * names), rows, facts, partial(plot_memory, rows=rated))
    if facts.estimates:
        few = partial(plot_estimates, most=MOST_IN_SMALL)
        for name, painter, extra in (("estimates", few, _how_many(facts)), ("coverage", plot_coverage, "")):
            paint = partial(plot_each, facts=facts, painter=painter)
            height = 0.7 + 0.95 * -(-len(facts.estimates) // ABREAST)
            made += draw(_files(folder / name), height, _note(rows, facts, extra), paint)
    return made


def _draw(
    path: Path, height: float, rows: Sequence[Row], facts: Facts, paint: Callable[[Any], str | None]
) -> list[Path]:
    """Draw a figure with one pair of axes. What `paint` returns stands above it."""

    def paint_with_title(figure: Any) -> None:
        axes = figure.subplots()
        if remark := paint(axes):
            axes.set_title(remark, fontsize=7, loc="left", color=GREY)

    return draw(_files(path), height, _note(rows, facts, ""), paint_with_title)


def _files(path: Path) -> list[Path]:
    return [path.with_name(path.name + kind) for kind in (".pdf", ".svg")]


def _note(rows: Sequence[Row], facts: Facts, extra: str) -> Note:
    windows = len({row.window for row in rows})
    flows = max(row.flows for row in rows)
    several = "up to " if len({row.flows for row in rows}) > 1 else ""
    given = {row.memory_given for row in rows}
    only = format_size(next(iter(given)) or 0) if len(given) == 1 and None not in given else ""
    memory = f"{only} for each detector" if only else "" if len(given) > 1 else "default memory of each"
    true = {row.true for row in rows}
    hosts = f"{'up to ' if len(true) > 1 else ''}{counted(max(true), 'super host')} in each"
    words = (f"θ = {facts.threshold:,g}", f"{counted(windows, 'window')} of {several}{counted(flows, 'flow')}", hosts)
    return Note(caption(*words, memory, facts.key, extra), facts.command)


def _how_many(facts: Facts) -> str:
    """Say which hosts are drawn, if not all."""
    most = max(len(each.true) for each in facts.estimates.values())
    return drawn_words(most, MOST_IN_SMALL)


def look_of(name: str) -> Look:
    """Return the look of a detector."""
    return LOOKS.get(name, OWN)


def spots(rows: Sequence[Row], column: str) -> list[Spot]:
    """Return the means of all detectors, the lowest first; of times, medians with quartiles.

    Where no window has an error, the interval ends at the highest rate that is consistent with none in so many hosts.
    """
    found = []
    for name in dict.fromkeys(row.detector for row in rows):
        mine = [row for row in rows if row.detector == name]
        values = [getattr(row, column) for row in mine]
        mean = fmean(values)
        if column not in RATES:  # Times have outliers to one side only.
            low, mean, high = np.quantile(values, [0.25, 0.5, 0.75]).tolist()
        elif not any(values):
            low, high = 0.0, most_unseen(sum(row.true for row in mine))
        else:
            low, high = mean_interval(values) or (mean, mean)
        found.append(Spot(name, values, mean, low, high))
    return sorted(found, key=lambda spot: spot.mean)


def plot_dots(axes: Any, rows: Sequence[Row], column: str) -> str | None:
    """Draw a column of the rows by detector, the lowest on top: mean, 95 % interval, windows as faint dots."""
    all_spots = spots(rows, column)
    for place, spot in enumerate(all_spots):
        look = look_of(spot.name)
        if len(spot.values) > 1:
            heights = place + SPREAD * (np.arange(len(spot.values)) / (len(spot.values) - 1) - 0.5)
            windows = {"marker": ".", "ms": 3, "ls": "none", "alpha": 0.4, "mec": "none", "clip_on": False}
            axes.plot(spot.values, heights, color=look.colour, zorder=2, **windows)
        cap = 1.5 if spot.high > spot.low else 0.0  # One window has no interval.
        axes.errorbar(spot.mean, place, xerr=spot.bars, capsize=cap, clip_on=False, zorder=4, **look.options)
    axes.set_yticks(range(len(all_spots)), [spot.name for spot in all_spots])
    axes.set_ylim(len(all_spots) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    if column not in RATES:
        axes.set(xscale="log", xlabel="restore, ms\nmedian, quartiles; dots: windows")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        return None
    axes.set_xlabel(f"{RATES[column]}\nmean, 95 % interval; dots: windows")
    scale_rates(axes.xaxis)
    axes.set_xlim(right=1.4 * max(LEAST_RATE, *(max(spot.high, *spot.values) for spot in all_spots)))
    return _plot_phantoms(axes, rows, [spot.name for spot in all_spots]) if column == "fpr" else None


def _plot_phantoms(axes: Any, rows: Sequence[Row], names: Sequence[str]) -> str:
    """Mark which share of the super hosts the phantoms are, hosts that never existed; return what the mark means."""
    seen = False
    for place, name in enumerate(names):
        share = fmean(row.phantoms / row.true for row in rows if row.detector == name)
        if share:
            axes.plot(share, place, marker="|", ms=9, mew=1.4, color="black", ls="none", zorder=5, clip_on=False)
            seen = True
    return "black tick: phantoms, hosts never seen" if seen else "no detector reported a phantom"


def plot_memory(axes: Any, rows: Sequence[Row]) -> None:
    """Draw memory against error, with names in a column beside it. No error is a mark on the lower edge."""
    memory = {mean.detector: mean.memory / MIB for mean in averages(rows)}
    all_spots = spots(rows, "ftr")
    for spot in all_spots:
        axes.errorbar(
            memory[spot.name], spot.mean, yerr=spot.bars, clip_on=False, zorder=3, **look_of(spot.name).options
        )
    axes.set_xscale("log", base=2)
    scale_rates(axes.yaxis)
    axes.set_ylim(top=2 * max(LEAST_RATE, *(spot.high for spot in all_spots), 0.0))
    axes.set(xlabel="memory, MiB (with lists of hosts)", ylabel=RATES["ftr"])
    axes.margins(x=0.1)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    scale = axes.yaxis.get_transform().transform
    places = scale(np.array([spot.mean for spot in all_spots])) / scale(np.array(axes.get_ylim()[1]))
    for spot, height in zip(all_spots, spread_labels(places.tolist()), strict=True):
        line = {"arrowstyle": "-", "lw": 0.4, "relpos": (0, 0.5), "color": look_of(spot.name).colour}
        axes.annotate(
            spot.name if spot.mean else f"{spot.name}: 0",
            (memory[spot.name], spot.mean),
            xytext=(1.06, height),
            textcoords="axes fraction",
            va="center",
            fontsize=7.5,
            annotation_clip=False,
            arrowprops=line,
        )


def spread_labels(places: Sequence[float]) -> list[float]:
    """Return heights for names near their rising places (0 to 1), so far apart that none covers another."""
    heights: list[float] = []
    for place in places:
        heights.append(max(place, heights[-1] + LABEL_HEIGHT) if heights else place)
    ceiling = max(1.0, LABEL_HEIGHT * (len(places) - 1))
    for number in range(len(heights) - 1, -1, -1):
        heights[number] = min(heights[number], ceiling)
        ceiling = heights[number] - LABEL_HEIGHT
    return heights


def plot_curves(axes: Any, rows: Sequence[Row], column: str) -> None:
    """Draw a rate over the memory that each detector was given: a line for each, with 95 % intervals over windows."""
    sizes = sorted({row.memory_given for row in rows if row.memory_given})
    by_size = {size: {s.name: s for s in spots([r for r in rows if r.memory_given == size], column)} for size in sizes}
    names = list(dict.fromkeys(row.detector for row in rows))
    for number, name in enumerate(names):
        aside = 2 ** (ASIDE * (number - (len(names) - 1) / 2))  # Many have the same rate, often 0: none hides another.
        mine = [(size / MIB * aside, by_size[size][name]) for size in sizes if name in by_size[size]]
        bars = np.hstack([spot.bars for _, spot in mine])
        places, means = [place for place, _ in mine], [spot.mean for _, spot in mine]
        axes.errorbar(
            places, means, yerr=bars, elinewidth=0.5, label=name, clip_on=False, zorder=3, **look_of(name).options
        )
    axes.set_xscale("log", base=2)
    axes.set_xticks([size / MIB for size in sizes], [f"{size / MIB:g}" for size in sizes])
    scale_rates(axes.yaxis)
    axes.set(xlabel="memory of each detector, MiB", ylabel=RATES[column])
    axes.figure.legend(loc="outside upper center", ncols=3, columnspacing=1.0, handletextpad=0.3)


def plot_each(figure: Any, facts: Facts, painter: Callable[..., Any]) -> None:
    """Draw one small figure for each detector, on the same scales."""
    count = len(facts.estimates)
    lines = -(-count // ABREAST)
    grid = figure.subplots(lines, min(ABREAST, count), sharex=True, sharey=True, squeeze=False)
    columns = grid.shape[1]
    for number, axes in enumerate(grid.flat):
        if number >= count:
            axes.remove()
            continue
        name = list(facts.estimates)[number]
        painter(axes, facts.estimates[name], facts.threshold, look_of(name))
        axes.set_title(name, fontsize=7.5, pad=2)
        axes.tick_params(labelsize=7, labelbottom=number + columns >= count)
    lowest = grid.flat[max(number for number in range(count) if number % columns == min(1, columns - 1))]
    lowest.set_xlabel("true number of peers")
    is_share = painter is plot_coverage
    figure.supylabel("intervals that hold the truth" if is_share else "estimated number of peers", fontsize=8)
