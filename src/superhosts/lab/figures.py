"""The figures of comparisons and calibrations: errors of each detector, estimates, coverage, memory against error.

Windows are independent draws of traffic, so a detector has one mean with its interval over them, and each window a
faint dot; no line joins windows. Looks belong to detectors, not to their places in a run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import NormalDist, fmean, stdev
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core.text import counted
from superhosts.core.units import format_size
from superhosts.lab.calibrate import Calibration
from superhosts.lab.experiment import Row, averages
from superhosts.lab.lineup import ENTRANTS
from superhosts.lab.scores import Estimates
from superhosts.lab.sheet import (
    GREY,
    LEAST_RATE,
    MIB,
    OKABE_ITO,
    Look,
    Note,
    caption,
    draw,
    scale_rates,
    series_look,
    show_thousands,
)
from superhosts.sketch.evidence.summary import Share

# Confidence intervals, by formulas that need no statistics package

LEVEL = 0.95
WITHIN = NormalDist().inv_cdf((1 + LEVEL) / 2)  # standard deviations around the mean
# Within how many Student's distribution lies at that level, for 1, 2, 3 and more degrees of freedom
STUDENT = (
    *(12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281, 2.2010, 2.1788, 2.1604, 2.1448),
    *(2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860, 2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484),
)


def student_quantile(freedom: int) -> float:
    """Return the t for which Student's distribution lies within -t and t with probability `LEVEL`."""
    if freedom <= len(STUDENT):
        return STUDENT[freedom - 1]
    first, second = (WITHIN**3 + WITHIN) / 4, (5 * WITHIN**5 + 16 * WITHIN**3 + 3 * WITHIN) / 96
    return WITHIN + first / freedom + second / freedom**2  # the series ends here: three digits are right


def mean_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the interval of the mean of independent values by Student's distribution; None for less than two."""
    if len(values) < 2:
        return None
    reach = student_quantile(len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return fmean(values) - reach, fmean(values) + reach


def count_interval(count: int) -> tuple[float, float]:
    """Return the interval of the mean of a Poisson distribution, of which one count is known (Byar's approximation)."""
    z, above = WITHIN, count + 1
    low = count * (1 - 1 / (9 * count) - z / (3 * math.sqrt(count))) ** 3 if count else 0.0
    return low, above * (1 - 1 / (9 * above) + z / (3 * math.sqrt(above))) ** 3


def most_unseen(cases: int) -> float:
    """Return the upper 95 % bound of a rate after this many cases without an event."""
    return -math.log(1 - LEVEL) / cases


# Estimates against the truth, and how often intervals hold, by the size of the host

LEAST_ERROR, MOST_ERROR = 0.01, 1.0  # relative: the axis is straight below the one and ends at the other
MOST_DRAWN = 150  # hosts of one scatter: more would only make the file larger
CUBE = Look(OKABE_ITO["vermillion"], "o")


class Coverage(NamedTuple):
    """How often the truth lies in the interval, of hosts of similar size."""

    size: float  # geometric mean of their peers
    held: Share


def coverage_by_size(estimates: Estimates, threshold: float) -> list[Coverage]:
    """Return the coverage of hosts from the threshold to twice of it, to four times, and so on."""
    found = []
    groups = np.floor(np.log2(np.maximum(estimates.true / threshold, 1)) + 1e-9).astype(int)
    for group in np.unique(groups):
        mine = groups == group
        size = float(np.exp(np.log(estimates.true[mine]).mean()))
        found.append(Coverage(size, Share(int(estimates.held[mine].sum()), int(mine.sum()))))
    return found


def drawn_hosts(true: NDArray[np.int64], most: int = MOST_DRAWN) -> NDArray[np.int64]:
    """Return which hosts a scatter shows: all, or of many the largest and others at even distances in rank."""
    order: NDArray[np.int64] = np.argsort(-true, kind="stable")
    if len(order) > most:
        order = order[np.unique(np.linspace(0, len(order) - 1, most).round().astype(int))]
    return order


def drawn_words(hosts: int, most: int = MOST_DRAWN) -> str:
    return f"drawn, evenly by rank: {most} of {counted(hosts, 'host')}" if hosts > most else ""


def has_intervals(estimates: Estimates) -> bool:
    return bool(len(estimates.true)) and not bool(np.isnan(estimates.high).all())


def plot_errors(axes: Any, estimates: Estimates, threshold: float, look: Look = CUBE, most: int = MOST_DRAWN) -> None:
    """Draw relative errors over the true number of peers; the axis is straight up to LEAST_ERROR, then logarithmic."""
    some = estimates.of(drawn_hosts(estimates.true, most))
    known, bounds = some.of(np.flatnonzero(some.measured)), some.of(np.flatnonzero(some.saturated))
    style = {**look.options, "ms": 1.6, "lw": 0.5, "ls": "none", "zorder": 3}
    errors = known.peers / known.true - 1
    if has_intervals(some):
        bars = (np.array([known.peers - known.low, known.high - known.peers]) / known.true).clip(0)
        axes.errorbar(known.true, errors, yerr=bars, label="estimate, 95 % interval", **style)
    else:
        axes.plot(known.true, errors, label="estimate, no interval", **style)
    if len(bounds.true):
        lower = {"marker": "^", "ms": 3, "ls": "none", "color": GREY, "zorder": 3}
        axes.plot(bounds.true, bounds.low / bounds.true - 1, label="saturated: lower bound", **lower)
    axes.axhline(0, lw=0.6, color="black", label="truth", zorder=2)
    axes.set_xscale("log")
    axes.set_xlim(left=0.9 * threshold)
    axes.set_yscale("symlog", linthresh=LEAST_ERROR, linscale=1.0)
    ends = [-MOST_ERROR, *(sign * tick for tick in (LEAST_ERROR, 0.1) for sign in (-1, 1)), 0, MOST_ERROR]
    axes.set_yticks(sorted(ends), minor=False)
    axes.set_ylim(-MOST_ERROR, MOST_ERROR)
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:+g} %" if value else "0")
    show_thousands(axes.xaxis)


def plot_coverage(axes: Any, estimates: Estimates, threshold: float, look: Look = CUBE) -> list[Coverage]:
    axes.axhline(LEVEL, color="black", lw=0.6, ls="--", zorder=2)
    axes.set(xscale="log", ylim=(0, 1.04))
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
    if not has_intervals(estimates):
        show_thousands(axes.xaxis)
        axes.text(0.5, 0.5, "no intervals", transform=axes.transAxes, ha="center", fontsize=7, color=GREY)
        return []
    found = coverage_by_size(estimates, threshold)
    low, shares, high = np.array([(each.held.low, each.held.value, each.held.high) for each in found]).T
    bars = np.array([shares - low, high - shares]).clip(0)
    axes.errorbar([each.size for each in found], shares, yerr=bars, ls="none", ms=3, zorder=3, **look.options)
    show_thousands(axes.xaxis)
    return found


# The figure of a calibration: estimates, coverage by size of host, and false rates by memory and threshold

HEIGHT = 6.6
THRESHOLD_STEP = 0.06  # of a doubling of the memory: marks of thresholds stand side by side


def draw_calibration(result: Calibration, path: Path, key: str, command: str) -> list[Path]:
    """Draw the figure of a calibration; `key` names the key in words."""
    hosts = len(result.asked.all_estimates().true)
    facts = (
        f"θ = {result.threshold:,g}",
        f"{counted(result.windows, 'window')} of up to {counted(result.most_flows, 'flow')}",
        f"above: a cube of {format_size(result.memory)}"
        + ("" if result.asked.estimated else ", which counted exactly"),
        key,
        drawn_words(hosts) or counted(hosts, "super host"),
    )
    return draw([path], HEIGHT, Note(caption(*facts), command), lambda figure: _paint(figure, result))


def _paint(figure: Any, result: Calibration) -> None:
    scatter, coverage, rates = figure.subplots(3, height_ratios=(1.25, 0.9, 1))
    estimates = result.asked.all_estimates()
    plot_errors(scatter, estimates, result.threshold)
    scatter.set(xlabel="true number of peers", ylabel="relative error")
    scatter.legend(loc="upper right", ncols=2)
    groups = plot_coverage(coverage, estimates, result.threshold)
    for each in groups:
        place = (each.size, 0.04)
        coverage.annotate(f"{each.held.of:,}", place, xycoords=("data", "axes fraction"), ha="center", fontsize=7)
    if groups:
        coverage.set_title("dashed: nominal; numbers: hosts", fontsize=7, loc="left", color=GREY)
        lowest = min(each.held.low for each in groups)
        coverage.set_ylim(bottom=max(0.0, math.floor(10 * lowest - 2) / 10))
    coverage.set_xlim(scatter.get_xlim())
    coverage.set(xlabel="true number of peers", ylabel="intervals that\nhold the truth")
    plot_rates(rates, result)


def plot_rates(axes: Any, result: Calibration) -> None:
    sizes = [trial.memory / MIB for trial in result.trials]
    tops = [LEAST_RATE]
    for number, threshold in enumerate(sorted(result.asked.scores, reverse=True)):
        scores = [trial.scores[threshold] for trial in result.trials]
        true = scores[0].true
        if not true:
            continue
        rates = np.array([score.ftr for score in scores])
        ends = np.array([count_interval(score.missed + score.false) for score in scores]) / true
        look = series_look(number)
        label = f"θ = {threshold:,g} ({counted(true, 'host')})"
        bars = np.abs([rates - ends[:, 0], ends[:, 1] - rates])
        places = np.array(sizes) * 2 ** (THRESHOLD_STEP * (number - (len(result.asked.scores) - 1) / 2))
        axes.errorbar(places, rates, yerr=bars, elinewidth=0.6, label=label, **look.options)
        exact = [place for place, trial in enumerate(result.trials) if not trial.estimated]
        open_mark = {**look.options, "mfc": "white", "ls": "none", "zorder": 4}
        axes.plot(places[exact], rates[exact], **open_mark)
        tops.append(float(ends.max()))
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [format_size(trial.memory) for trial in result.trials])
    scale_rates(axes.yaxis)
    axes.set_ylim(top=1.5 * max(tops))
    exact_too = any(not trial.estimated for trial in result.trials)
    axes.set(xlabel="memory" + (" (open marks: counted exactly)" if exact_too else ""), ylabel="total false rate")
    axes.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0), ncols=2, fontsize=7, handletextpad=0.3, columnspacing=1)


# The figures of a comparison

LOOKS = {name: Look(OKABE_ITO[each.colour], each.mark, each.is_open) for name, each in ENTRANTS.items()}
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
REFERENCE = "cube-dense"  # beside each other detector
MOST_RATE = 10.0  # rates above it lie outside of panels
MOST_TICKS = 3  # distances between the memories that a panel names
DETECTOR_STEP = 0.04  # of a doubling of the memory: between the marks of two detectors


@dataclass(frozen=True)
class Facts:
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

    def add(name: str, height: float, paint: Callable[[Any], None], extra: str = "") -> None:
        files = [folder / f"{name}{kind}" for kind in (".pdf", ".svg")]
        made.extend(draw(files, height, _note(rows, facts, extra), paint))

    def add_one(name: str, height: float, plot: Callable[..., str | None], rows: Sequence[Row], *column: str) -> None:
        def paint(figure: Any) -> None:
            axes = figure.subplots()
            if remark := plot(axes, rows, *column):
                axes.set_title(remark, fontsize=7, loc="left", color=GREY)

        add(name, height, paint)

    is_sweep = len({row.memory_given for row in rows}) > 1
    names = len({row.detector for row in rows})
    tall = 0.95 + 0.17 * names
    for column in RATES if rated else ():
        if is_sweep:
            height = 0.95 + 0.95 * panel_lines({row.detector for row in rated})
            add(f"memory-{column}", height, partial(plot_panels, rows=rated, column=column))
        else:
            add_one(column, tall, plot_dots, rated, column)
    if not is_sweep:
        add_one("restore", tall, plot_dots, rows, "restore_ms")
    if rated and not is_sweep:
        add_one("memory", max(2.4, 0.8 + 0.16 * names), plot_memory, rated)
        if facts.estimates:
            height, few = 0.7 + 0.95 * -(-len(facts.estimates) // ABREAST), partial(plot_errors, most=MOST_IN_SMALL)
            add("estimates", height, partial(plot_each, facts=facts, painter=few), _how_many(facts))
            add("coverage", height, partial(plot_each, facts=facts, painter=plot_coverage))
    return made


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
    most = max(len(each.true) for each in facts.estimates.values())
    return drawn_words(most, MOST_IN_SMALL)


def look_of(name: str) -> Look:
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


def plot_panels(figure: Any, rows: Sequence[Row], column: str) -> None:
    """Draw a rate over the memory: our cubes in one panel, and each other detector in one with a cube beside it."""
    names = sorted(dict.fromkeys(row.detector for row in rows), key=lambda name: (*LOOKS, name).index(name))
    cubes = [name for name in names if name in ENTRANTS and ENTRANTS[name].detector == "cube"]
    beside = [next((name for name in (REFERENCE, *cubes) if name in cubes), "")] if cubes else []
    panels = [cubes] * bool(cubes) + [[*beside, name] for name in names if name not in cubes]
    lines = panel_lines(names)
    grid = figure.subplots(lines, min(ABREAST, len(panels)), sharex=True, sharey=True, squeeze=False)
    columns = grid.shape[1]
    top = LEAST_RATE
    for number, axes in enumerate(grid.flat):
        if number >= len(panels):
            axes.remove()
            continue
        top = max(top, plot_curves(axes, [row for row in rows if row.detector in panels[number]], column))
        axes.set_title(panels[number][-1] if number or not cubes else "cubes", fontsize=7.5, pad=2)
        axes.tick_params(labelsize=7, labelbottom=number + columns >= len(panels))
    grid[0, 0].set_ylim(top=1.5 * min(top, MOST_RATE))
    sizes = sorted({row.memory_given / MIB for row in rows if row.memory_given})
    grid[0, 0].set_xticks(sizes[:: max(1, -(-(len(sizes) - 1) // MOST_TICKS))])
    _lowest(grid, len(panels)).set_xlabel("memory of each detector, MiB")
    figure.supylabel(RATES[column], fontsize=8)
    figure.legend(*_handles(grid[0, 0]), loc="outside upper center", ncols=3, columnspacing=1.0, handletextpad=0.3)


def _lowest(grid: Any, count: int) -> Any:
    """Return the lowest of `count` panels in the middle column, which has the name of the axis of all."""
    columns = grid.shape[1]
    return grid.flat[max(number for number in range(count) if number % columns == min(1, columns - 1))]


def panel_lines(names: Collection[str]) -> int:
    cubes = sum(name in ENTRANTS and ENTRANTS[name].detector == "cube" for name in names)
    return -(-(len(names) - cubes + bool(cubes)) // ABREAST)


def _handles(axes: Any) -> tuple[list[Any], list[str]]:
    """Return the marks of the first panel without their error bars, and their names."""
    handles, names = axes.get_legend_handles_labels()
    return [handle[0] for handle in handles], names


def plot_curves(axes: Any, rows: Sequence[Row], column: str) -> float:
    """Draw a rate over the memory that each detector was given, with intervals over windows; return the highest end."""
    sizes = sorted({row.memory_given for row in rows if row.memory_given})
    by_size = {size: {s.name: s for s in spots([r for r in rows if r.memory_given == size], column)} for size in sizes}
    names = list(dict.fromkeys(row.detector for row in rows))
    for number, name in enumerate(names):
        # Many have the same rate, often 0: none hides another.
        aside = 2 ** (DETECTOR_STEP * (number - (len(names) - 1) / 2))
        mine = [(size / MIB * aside, by_size[size][name]) for size in sizes if name in by_size[size]]
        bars = np.hstack([spot.bars for _, spot in mine])
        places, means = [place for place, _ in mine], [spot.mean for _, spot in mine]
        style = {**look_of(name).options, "ms": 2.4, "lw": 0.7, "elinewidth": 0.5, "zorder": 3 + number}
        axes.errorbar(places, means, yerr=bars, label=name, **style)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    scale_rates(axes.yaxis)
    return max(spot.high for spots_ in by_size.values() for spot in spots_.values())


def plot_each(figure: Any, facts: Facts, painter: Callable[..., Any]) -> None:
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
    _lowest(grid, count).set_xlabel("true number of peers")
    is_share = painter is plot_coverage
    figure.supylabel("intervals that hold the truth" if is_share else "relative error", fontsize=8)
