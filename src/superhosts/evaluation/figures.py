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
}
RATES = {
    "fnr": "false negatives, share of super hosts (FNR)",
    "fpr": "false positives, share of super hosts (FPR)",
    "ftr": "false negatives and positives (FTR)",
}
LEAST_RATE = 1e-3  # rates are drawn from here on a logarithmic axis, below it on a straight one


def prepare(folder: Path) -> None:
    """Refuse what cannot be drawn, or not be written, before hours of work are spent on it."""
    _pyplot()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OutputError(f"{folder}: figures cannot be written there: {error.strerror}") from None


def draw_comparison(rows: Sequence[Row], folder: Path, command: str) -> list[Path]:
    """Draw all figures of a comparison into a folder that is prepared; return the files."""
    plt = _pyplot()
    made: list[Path] = []
    for column, label in RATES.items():
        made += _draw(plt, folder / column, command, partial(_by_window, rows=rows, column=column, label=label))
    restore = partial(_by_window, rows=rows, column="restore_ms", label="restore, ms")
    made += _draw(plt, folder / "restore", command, restore)
    made += _draw(plt, folder / "memory", command, partial(_memory, means=averages(rows)))
    return made


def draw_estimates(estimates: Estimates, path: Path, command: str, threshold: float) -> list[Path]:
    """Draw the estimate of every super host against its true number of peers, with intervals."""
    return _draw(
        _pyplot(), path.with_suffix(""), command, partial(_estimates, estimates=estimates, threshold=threshold)
    )


def _pyplot() -> Any:
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
        files = [path.with_name(path.name + kind) for kind in (".png", ".svg")]
        for file in files:
            figure.savefig(file, dpi=150, metadata={"Date": None} if file.suffix == ".svg" else None)
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror}") from None
    finally:
        plt.close(figure)
    return files


def _by_window(axes: Any, rows: Sequence[Row], column: str, label: str) -> None:
    for name in dict.fromkeys(row.detector for row in rows):
        values = [getattr(row, column) for row in rows if row.detector == name]
        axes.plot(range(1, len(values) + 1), values, marker="o", ms=3, lw=1.2, color=COLOURS.get(name), label=name)
    if column in RATES:
        axes.set_yscale("symlog", linthresh=LEAST_RATE)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
    else:
        axes.set_yscale("log")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set(xlabel="window", ylabel=label)
    axes.figure.legend(loc="outside right upper", frameon=False)


def _memory(axes: Any, means: Sequence[Mean]) -> None:
    for turn, mean in enumerate(sorted(means, key=lambda mean: mean.ftr)):
        place, rate = mean.memory / (1 << 20), max(mean.ftr, LEAST_RATE)
        axes.errorbar(place, rate, yerr=min(mean.ftr_error, 0.9 * rate), fmt="o", color=COLOURS.get(mean.detector))
        side = {"xytext": (6, -3), "ha": "left"} if turn % 2 else {"xytext": (-6, -3), "ha": "right"}
        axes.annotate(mean.detector, (place, rate), textcoords="offset points", fontsize=8, **side)
    axes.set_xscale("log", base=2)
    axes.set(yscale="log", xlabel="memory, MiB (host lists included)", ylabel=RATES["ftr"])
    axes.margins(x=0.25)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")


def _estimates(axes: Any, estimates: Estimates, threshold: float) -> None:
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
