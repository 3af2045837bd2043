"""The figures of a comparison, as PNG and SVG: the paper's four by window, and memory against error.

Under each stands the command that made it. Colours belong to detectors, not to their places in a run.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from superhosts.errors import MissingExtraError, OutputError
from superhosts.evaluation.experiment import Mean, Row, averages
from superhosts.evaluation.scores import Estimates

COLOURS = {
    "cube": "#d62728",
    "cube-dense": "#ff9896",
    "cube-planned": "#e377c2",
    "cbaa": "#1f77b4",
    "cbaa-paper": "#17becf",
    "dcds": "#2ca02c",
    "vbfa": "#9467bd",
    "vbfa-long": "#c5a3e0",
    "vbfa-wide": "#6b3fa0",
    "gse": "#ff7f0e",
    "filter": "#7f7f7f",
    "spreadsketch": "#8c564b",
    "pairsample": "#bcbd22",
    "rgs": "#393b79",
}
MARKERS = dict(zip(COLOURS, "o8DsvP^<>Xph*d", strict=True))
LINES = ("-", "--", "-.", ":")
RATES = {
    "fnr": "false negatives, share of super hosts (FNR)",
    "fpr": "false positives, share of super hosts (FPR)",
    "ftr": "false negatives and positives (FTR)",
}
MIB = 1 << 20
LEAST_RATE = 1e-3  # rates are drawn from here on a logarithmic axis, below it on a straight one
ABREAST = 0.6  # share of the distance between windows over which the detectors of one stand side by side
LABEL_HEIGHT = 0.055  # of a name beside the axes, as a share of their height


def prepare_folder(folder: Path) -> None:
    """Raise if figures cannot be drawn or written, before hours of work; make the folder."""
    pyplot()
    _check(folder, folder.parent)
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder}: figures cannot be written there: {error.strerror}") from None
    _check(folder, folder)


def prepare_file(path: Path) -> None:
    """Raise if a figure cannot be drawn or written to this file, before the work."""
    pyplot()
    _check(path, path.parent)
    for file in _files(path):
        if file.is_dir():
            raise OutputError(f"{file}: cannot be written: it is a folder")


def _check(path: Path, folder: Path) -> None:
    """Raise if the folder of a path does not exist or is not writable."""
    if not folder.is_dir():
        raise OutputError(f"{path}: figures cannot be written there: {folder} is not a folder")
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OutputError(f"{path}: figures cannot be written there: {error.strerror}") from None


def draw_comparison(rows: Sequence[Row], folder: Path, command: str) -> list[Path]:
    """Draw all figures of a comparison into a folder that is prepared; return the files.

    Without super hosts there are no rates, and no figures of them.
    """
    plt = pyplot()
    made: list[Path] = []
    rated = any(row.ftr is not None for row in rows)
    for column, label in RATES.items() if rated else ():
        made += _draw(plt, folder / column, command, partial(plot_by_window, rows=rows, column=column, label=label))
    restore = partial(plot_by_window, rows=rows, column="restore_ms", label="restore, ms")
    made += _draw(plt, folder / "restore", command, restore)
    if rated:
        made += _draw(plt, folder / "memory", command, partial(plot_memory, means=averages(rows)))
    return made


def draw_estimates(estimates: Estimates, path: Path, command: str, threshold: float) -> list[Path]:
    """Draw the estimate of every super host against its true number of peers, with intervals."""
    return _draw(pyplot(), path, command, partial(plot_estimates, estimates=estimates, threshold=threshold))


def _files(path: Path) -> list[Path]:
    """Return the two files of a figure; a name that ends as one of them names both."""
    stem = path.name.removesuffix(".png").removesuffix(".svg")
    return [path.with_name(stem + kind) for kind in (".png", ".svg")]


def pyplot() -> Any:
    """Return matplotlib's pyplot, set up for files. Raise MissingExtraError if it is not installed."""
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise MissingExtraError("figures", "figures") from error
    mpl.use("Agg")
    mpl.rcParams.update({"svg.hashsalt": "superhosts", "svg.fonttype": "none"})  # the same file again, text as text
    mpl.rcParams.update({"axes.grid": True, "grid.alpha": 0.3, "font.size": 9})
    import matplotlib.pyplot as plt

    return plt


def _draw(plt: Any, path: Path, command: str, draw: Callable[[Any], None]) -> list[Path]:
    figure, axes = plt.subplots(figsize=(7.2, 4.4), layout="constrained")
    try:
        draw(axes)
        figure.supxlabel(command, fontsize=7, family="monospace", color="#555555")
        files = _files(path)
        for file in files:
            figure.savefig(file, dpi=150, metadata={"Date": None} if file.suffix == ".svg" else None)
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror}") from None
    finally:
        plt.close(figure)
    return files


def plot_by_window(axes: Any, rows: Sequence[Row], column: str, label: str) -> None:
    """Draw a column of the rows by window: one line for each detector."""
    names = list(dict.fromkeys(row.detector for row in rows))
    for number, name in enumerate(names):
        values = [getattr(row, column) for row in rows if row.detector == name]
        known = [np.nan if value is None else value for value in values]
        aside = ABREAST * ((number + 0.5) / len(names) - 0.5)  # many have the same rate, often 0: none hides another
        windows = np.arange(1, len(values) + 1) + aside
        axes.plot(windows, known, lw=0.9, ms=4, clip_on=False, zorder=3, label=name, **_style(name, number))
    if column in RATES:
        _scale_rates(axes)
    else:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    last = max(len(rows) // len(names), 1)
    axes.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
    axes.set(xlabel="window", ylabel=label, xlim=(0.5, last + 0.5))
    axes.figure.legend(loc="outside right upper", frameon=False)


def _scale_rates(axes: Any) -> None:
    """Make rates begin at 0, which a logarithmic axis does not have."""
    axes.set_yscale("symlog", linthresh=LEAST_RATE)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")


def _style(name: str, number: int) -> dict[str, Any]:
    """Return the style of a detector's line: colour, marker and dashes."""
    return {"color": COLOURS.get(name), "marker": MARKERS.get(name, "o"), "ls": LINES[number % len(LINES)]}


def plot_memory(axes: Any, means: Sequence[Mean]) -> None:
    """Draw memory against error, with names in a column beside it. No error is an open mark on the lower edge."""
    rated = sorted(((mean.ftr, mean) for mean in means if mean.ftr is not None), key=lambda pair: pair[0])
    for rate, mean in rated:
        face = {} if rate else {"mfc": "white", "ms": 7}
        style = {"color": COLOURS.get(mean.detector), "fmt": MARKERS.get(mean.detector, "o"), **face}
        axes.errorbar(mean.memory / MIB, rate, yerr=min(mean.ftr_error or 0.0, rate), clip_on=False, zorder=3, **style)
    axes.set_xscale("log", base=2)
    _scale_rates(axes)
    axes.set_ylim(top=2 * max(LEAST_RATE, *(rate for rate, _ in rated), 0.0))
    axes.set(xlabel="memory, MiB (host lists included)", ylabel=RATES["ftr"])
    axes.margins(x=0.1)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    scale = axes.yaxis.get_transform().transform
    places = scale(np.array([rate for rate, _ in rated])) / scale(np.array(axes.get_ylim()[1]))
    for (rate, mean), height in zip(rated, spread_labels(places.tolist()), strict=True):
        line = {"arrowstyle": "-", "lw": 0.5, "relpos": (0, 0.5), "color": COLOURS.get(mean.detector, "black")}
        axes.annotate(
            mean.detector if rate else f"{mean.detector}: 0",
            (mean.memory / MIB, rate),
            xytext=(1.04, height),
            textcoords="axes fraction",
            va="center",
            fontsize=8,
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


def plot_estimates(axes: Any, estimates: Estimates, threshold: float) -> None:
    """Draw estimates against true numbers of peers, with intervals."""
    known = estimates.measured
    true, peers = estimates.true[known], estimates.peers[known]
    bars = np.array([peers - estimates.low[known], estimates.high[known] - peers]).clip(0)
    axes.errorbar(true, peers, yerr=bars, fmt="o", ms=3, lw=0.8, color=COLOURS["cube"], label="estimate, 95 % interval")
    if (~known).any():
        low = estimates.low[~known]
        axes.plot(estimates.true[~known], low, "^", ms=5, color="#7f7f7f", label="saturated: a lower bound")
    ends = [threshold, max(threshold, *estimates.true.tolist())] if len(estimates.true) else [threshold, 2 * threshold]
    axes.plot(ends, ends, lw=0.8, color="black", label="estimate = truth")
    axes.set(xscale="log", yscale="log", xlabel="true number of peers", ylabel="estimated number of peers")
    axes.legend(frameon=False)
