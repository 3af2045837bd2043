"""The cube against the exact answer on somebody's own traffic, for several memories and thresholds at once."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from superhosts.detectors.columnsketch import Fill, ThresholdWarning
from superhosts.detectors.cube import Cube
from superhosts.evaluation.experiment import Makers, PanelSettings, panels_of
from superhosts.evaluation.panel import Make
from superhosts.evaluation.scores import Estimates, Score, Truth, ask_all, score
from superhosts.planning import Prediction, predict
from superhosts.sources.base import Source
from superhosts.units import format_size, parse_size

FEW = 20  # true super hosts of a threshold, below which a rate says little
EVIDENCE = 3  # errors that must be possible before their absence says much
LEAST_MEMORY = 64 << 10


@dataclass
class Trial:
    """A cube of one memory over all windows."""

    memory: int
    scores: dict[float, Score] = field(default_factory=dict)  # by threshold
    estimates: list[Estimates] = field(default_factory=list)  # of hosts at the threshold asked for, by window
    fill: Fill | None = None  # of the fullest window
    expected: Prediction | None = None  # for a window of as many flows

    def holds(self, threshold: float, error: float) -> bool:
        """Say whether wrong answers are no more than `error` of the super hosts, but for chance.

        Where so few super hosts were seen that hardly any error was to be expected, the prediction must agree.
        """
        result = self.scores[threshold]
        allowed = error * result.true
        if result.missed + result.false > allowed + math.sqrt(allowed):
            return False
        doubtful = allowed < EVIDENCE and self.expected is not None and threshold == self.expected.threshold
        return not doubtful or (self.expected is not None and self.expected.total <= 2 * error)

    def all_estimates(self) -> Estimates:
        """Return the estimates of all windows."""
        return Estimates(*map(np.concatenate, zip(*self.estimates, strict=True)))


@dataclass
class Calibration:
    """What was found: trials by memory, ascending, one of them of the memory that was asked for."""

    threshold: float
    memory: int
    error: float
    trials: list[Trial]
    windows: int = 0
    most_flows: int = 0  # distinct pairs of the fullest window

    @property
    def asked(self) -> Trial:
        """The trial of the memory that was asked for."""
        return next(trial for trial in self.trials if trial.memory == self.memory)

    def advice(self) -> str:
        """Return one sentence: what memory would do, or what threshold."""
        true = self.asked.scores[self.threshold].true
        if not true:
            return f"No host has {self.threshold:,g} peers: a lower --threshold would say more."
        doubt = f" (by {true} super hosts only)" if true < FEW else ""
        good = [trial for trial in self.trials if trial.holds(self.threshold, self.error)]
        what = f"{100 * self.error:g} % of super hosts wrong"
        if not good:
            most = format_size(self.trials[-1].memory)
            return f"Threshold {self.threshold:,g} needs more than {most} for at most {what}{doubt}."
        least = good[0]
        lowest = min(t for t in least.scores if least.holds(t, self.error) and least.scores[t].true)
        text = f"{format_size(least.memory)} would do for threshold {self.threshold:,g}{doubt}"
        if least.memory > self.memory:
            text = f"Threshold {self.threshold:,g} needs {format_size(least.memory)}{doubt}"
        if lowest < self.threshold:
            text += f", and down to threshold {lowest:,g}"
        return text + f": at most {what}."


def sizes_around(memory: int) -> list[int]:
    """Return the memories to try: a quarter, half, once and twice what was asked for."""
    return [size for size in (memory // 4, memory // 2, memory, 2 * memory) if size >= LEAST_MEMORY or size == memory]


def cubes_around(memory: int, **options: Any) -> Makers:
    """Return what makes cubes of these memories, for hosts of so many bits."""

    def makers(key_bits: int) -> dict[str, Make]:
        return {str(size): partial(Cube, size, key_bits=key_bits, **options) for size in sizes_around(memory)}

    return makers


def calibrate(
    sources: Sequence[Source], settings: PanelSettings, *, error: float, thresholds: Sequence[float], **hooks: Any
) -> Calibration:
    """Run cubes over captures, beside the exact answer. The settings' makers are those of `cubes_around`."""
    threshold, memory = settings.least_peers or 1024.0, parse_size(settings.memory)
    result = Calibration(threshold, memory, error, [Trial(size) for size in sizes_around(memory)])
    seen = set()
    for window, panel in panels_of(sources, settings, **hooks):
        seen.add(window)
        truth, flows = Truth.of(panel), int(panel.counts()[1].sum())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ThresholdWarning)  # the scores say how low a threshold may be
            for trial in result.trials:
                cube = panel.detectors[str(trial.memory)]
                assert isinstance(cube, Cube)
                _add(trial, cube, truth, (threshold, *thresholds))
                if flows >= result.most_flows:
                    trial.fill, trial.expected = cube.fill(), predict(cube.geometry, max(1, flows), threshold)
        result.most_flows = max(result.most_flows, flows)
    result.windows = len(seen)
    return result


def _add(trial: Trial, cube: Cube, truth: Truth, thresholds: Sequence[float]) -> None:
    """Add one window to a trial; the first threshold is the one asked for."""
    trial.estimates.append(ask_all(cube, truth, thresholds[0]))
    for threshold in dict.fromkeys(thresholds):
        found = score(cube.super_hosts(threshold), truth, threshold)
        old = trial.scores.get(threshold, Score(0, 0, 0, 0))
        trial.scores[threshold] = Score(*(a + b for a, b in zip(old, found, strict=True)))
