"""The figure of a calibration: estimates, coverage by size of host, and false rates by memory and threshold."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from superhosts.core.text import counted
from superhosts.core.units import format_size
from superhosts.lab.calibration import Calibration
from superhosts.lab.drawing import GREY, LEAST_RATE, MIB, Note, caption, draw, scale_rates, series_look
from superhosts.lab.estimatefigures import drawn_words, plot_coverage, plot_estimates
from superhosts.lab.intervals import count_interval, wilson_interval

HEIGHT = 6.6
ASIDE = 0.06  # of a doubling of the memory: marks of thresholds stand side by side


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
    plot_estimates(scatter, estimates, result.threshold)
    scatter.set(xlabel="true number of peers", ylabel="estimated number of peers")
    scatter.legend(loc="upper left")
    groups = plot_coverage(coverage, estimates, result.threshold)
    for each in groups:
        place = (each.size, 0.04)
        coverage.annotate(f"{each.hosts:,}", place, xycoords=("data", "axes fraction"), ha="center", fontsize=7)
    if groups:
        coverage.set_title("dashed: nominal; numbers: hosts", fontsize=7, loc="left", color=GREY)
        lowest = min(wilson_interval(each.held, each.hosts)[0] for each in groups)
        coverage.set_ylim(bottom=max(0.0, math.floor(10 * lowest - 2) / 10))
    coverage.set_xlim(scatter.get_xlim())
    coverage.set(xlabel="true number of peers", ylabel="intervals that\nhold the truth")
    plot_rates(rates, result)


def plot_rates(axes: Any, result: Calibration) -> None:
    """Draw the total false rate by memory, a line for each threshold; open marks where the cube counted exactly."""
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
        places = np.array(sizes) * 2 ** (ASIDE * (number - (len(result.asked.scores) - 1) / 2))
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
