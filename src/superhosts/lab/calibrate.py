"""`superhosts.calibrate`: the cube against the exact answer on the user's own traffic.

Cubes of several memories see the same windows as the exact detector and are scored at several thresholds.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple

from superhosts.core import defaults
from superhosts.core.pairs import Window
from superhosts.core.text import counted, named
from superhosts.core.units import format_size, parse_share, parse_size
from superhosts.detectors.columnsketch import Fill
from superhosts.detectors.cube import Cube, Geometry
from superhosts.detectors.plan.population import Population, counted_population
from superhosts.detectors.plan.prediction import Prediction, predict
from superhosts.errors import InputError, ThresholdWarning, UsageError
from superhosts.lab.experiment import Makers, Panels, why_nothing
from superhosts.lab.scores import Estimates, Score, Truth, ask_all, joined, known, score
from superhosts.pipeline.scan import Scan
from superhosts.pipeline.settings import Settings, settings_of
from superhosts.sources.open import Name, open_inputs
from superhosts.sources.tables.mapping import as_map
from superhosts.sources.tables.options import TableOptions

FEW_HOSTS = 20  # true super hosts below which a rate says little
EVIDENCE = 3  # errors that must be possible before their absence says much
LEAST_MEMORY = 64 << 10


@dataclass
class Trial:
    memory: int
    scores: dict[float, Score] = field(default_factory=dict)  # by threshold
    estimates: list[Estimates] = field(default_factory=list)  # of hosts at the threshold asked for, by window
    fill: Fill | None = None  # of the fullest window; None if it was counted exactly
    estimated: int = 0  # windows that were not counted exactly
    expected: dict[float, Prediction | None] = field(default_factory=dict)  # by threshold, for the fullest window

    def holds(self, threshold: float, error: float) -> bool:
        """Return True if wrong answers are at most `error` of the super hosts, allowing for chance.

        Where so few super hosts were seen that hardly any error was to be expected, the prediction must agree.
        """
        result, expected = self.scores[threshold], self.expected.get(threshold)
        allowed = error * result.true
        if result.missed + result.false > allowed + math.sqrt(allowed):
            return False
        return allowed >= EVIDENCE or expected is None or expected.total <= 2 * error

    def lowest(self, threshold: float, error: float) -> float:
        """Return the lowest of the tried thresholds, from one that holds, down to which all hold."""
        for least in sorted((least for least in self.scores if least < threshold), reverse=True):
            if not self.holds(least, error):
                break
            threshold = least
        return threshold

    def to_dict(self, threshold: float) -> dict[str, Any]:
        score, estimates, fill = self.scores[threshold], self.all_estimates(), self.fill
        expected = self.expected.get(threshold)
        return {
            "memory": self.memory,
            "exact": not self.estimated,
            "missed": score.missed,
            "false": score.false,
            "fnr": known(score.fnr),
            "fpr": known(score.fpr),
            "ftr": known(score.ftr),
            "expected_ftr": None if expected is None else expected.total,
            "error": known(estimates.mean_error),
            "coverage": known(estimates.coverage),
            "saturated_hosts": int(estimates.saturated.sum()),
            "fill": None if fill is None else fill.mean,
            "fullest_column": None if fill is None else fill.fullest,
            "ftr_by_threshold": {f"{least:g}": known(score.ftr) for least, score in sorted(self.scores.items())},
        }

    def all_estimates(self) -> Estimates:
        return joined(self.estimates)


@dataclass
class Calibration:
    """The result: trials by memory, ascending, one of them with the memory that was asked for."""

    threshold: float
    memory: int
    error: float
    trials: list[Trial]
    windows: int = 0
    most_flows: int = 0  # distinct pairs of the fullest window

    def __repr__(self) -> str:
        seen = f"{counted(self.windows, 'window')}, up to {counted(self.most_flows, 'flow')}"
        return f"<Calibration: {seen}; {self.advice()}>"

    @property
    def asked(self) -> Trial:
        return next(trial for trial in self.trials if trial.memory == self.memory)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain numbers by name, as `superhosts calibrate --json` prints it."""
        return {
            "threshold": self.threshold,
            "windows": self.windows,
            "most_flows": self.most_flows,
            "super_hosts": self.asked.scores[self.threshold].true,
            "trials": [trial.to_dict(self.threshold) for trial in self.trials],
            "advice": self.advice(),
        }

    def advice(self) -> str:
        """Return one sentence: which memory is enough, or which threshold."""
        if not self.asked.scores[self.threshold].true:
            lower = f"a lower {named('threshold')}"
            return f"No host has {counted(self.threshold, 'peer')}: {lower} would say more."
        wanted = self._named(self.threshold)
        good = [trial for trial in self.trials if trial.holds(self.threshold, self.error)]
        what = f"{100 * self.error:g} % of super hosts wrong"
        if not good:
            most = format_size(self.trials[-1].memory)
            return f"Threshold {wanted} needs more than {most} for at most {what}."
        least = good[0]
        text = f"{format_size(least.memory)} would do for threshold {wanted}"
        if least.memory > self.memory:
            text = f"Threshold {wanted} needs {format_size(least.memory)}"
        lowest = least.lowest(self.threshold, self.error)
        if lowest < self.threshold:
            text += f", and down to threshold {self._named(lowest)}"
        return text + f": at most {what}."

    def _named(self, threshold: float) -> str:
        """Format a threshold, with the number of super hosts if they are few."""
        true = self.asked.scores[threshold].true
        doubt = f" (by {true} super host{'s' if true > 1 else ''} only)" if true < FEW_HOSTS else ""
        return f"{threshold:,g}{doubt}"


def calibrate(
    inputs: Name | Sequence[Name],
    *,
    threshold: float = defaults.THRESHOLD,
    memory: str | int = defaults.MEMORY,
    error: str | float = "1%",
    inner: str | Sequence[str] = (),
    exclude: str | Sequence[str] = (),
    watch: str | Sequence[str] = "inner",
    direction: str | Sequence[str] = "any",
    special: str = defaults.SPECIAL,
    window: str = defaults.WINDOW,
    exact: bool | Literal["on", "off"] | None = None,
    ipv4_prefix: int = defaults.IPV4_PREFIX,
    ipv6_prefix: int = defaults.IPV6_PREFIX,
    key: bytes | str | None = None,
    device: str = "auto",
    map: str | Mapping[str, object] | None = None,
    format: str | None = None,
    time: str = "record",
) -> Calibration:
    """Compare the cube with the exact answer on your own traffic, and say how much memory it needs.

    Cubes with more and with less than `memory` are tried, too. `error` is the share of super hosts that may be wrong.
    They count exactly while the pairs of a window fit; saved windows and hubs estimate, so calibrate for these with
    exact=False. The exact answer keeps every pair of a window in memory: of very long captures, take a part. The other
    arguments are those of `scan`.

    >>> print(calibrate("trace.pcap", inner="10.0.0.0/8").advice())
    """
    settings = settings_of(locals())
    names = [inputs] if isinstance(inputs, Name) else list(inputs)
    share = parse_share(error)
    panels = cube_panels(settings)
    run = panels.run(open_inputs(names, tables=TableOptions(format, as_map(map), time)))
    result = judge(run, panels, error=share)
    if not result.windows:
        raise InputError(
            f"nothing to judge: {why_nothing(run.counters)}", file=", ".join([str(name) for name in names])
        )
    return result


def thresholds_below(threshold: float) -> list[float]:
    return [least for least in (threshold / 8, threshold / 4, threshold / 2) if least >= 16]


def sizes_around(memory: int) -> list[int]:
    return [size for size in (memory // 4, memory // 2, memory, 2 * memory) if size >= LEAST_MEMORY or size == memory]


def cube_panels(settings: Settings) -> Panels:
    """Return panels of cubes with the memory of the settings and with others around it."""

    def makers(key_bits: int) -> Makers:
        cube = partial(Cube, key_bits=key_bits, key=settings.key, device=settings.device, exact=settings.exact)
        return {str(size): partial(cube, size) for size in sizes_around(parse_size(settings.memory))}

    return Panels(makers, settings)


class _Crowd(NamedTuple):
    """The hosts of the fullest window that has super hosts, and the cubes that saw it."""

    flows: int
    population: Population
    geometries: list[Geometry | None]  # by trial; None if it counted the window exactly


def judge(
    run: Scan, panels: Panels, *, error: float, on_window: Callable[[Window, int], None] | None = None
) -> Calibration:
    """Run cubes over inputs and compare them with the exact answer.

    `on_window` gets every window and its number of hosts before the cubes are searched.
    """
    threshold, memory = run.settings.selection.threshold or float(defaults.THRESHOLD), parse_size(run.settings.memory)
    result = Calibration(threshold, memory, error, [Trial(size) for size in sizes_around(memory)])
    asked = [threshold, *thresholds_below(threshold)]
    crowds: dict[float, _Crowd] = {}
    seen = set()
    for window, panel in panels.of(run):
        seen.add(window)
        hosts, peers = panel.counts()
        truth, flows = Truth(hosts, peers), int(peers.sum())
        if on_window is not None:
            on_window(window, len(truth))
        cubes: list[Any] = [panel.detectors[str(trial.memory)] for trial in result.trials]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ThresholdWarning)  # the scores say how low a threshold may be
            for trial, cube in zip(result.trials, cubes, strict=True):
                _add(trial, cube, truth, asked)
                if flows >= result.most_flows:
                    trial.fill = None if cube.exact else cube.fill()
        geometries = [None if cube.exact else cube.geometry for cube in cubes]
        crowd = _Crowd(flows, counted_population(peers), geometries)
        for least in asked:
            if crowd.population.at_least(least) and (least not in crowds or flows >= crowds[least].flows):
                crowds[least] = crowd
        result.most_flows = max(result.most_flows, flows)
    for least, crowd in crowds.items():
        for trial, geometry in zip(result.trials, crowd.geometries, strict=True):
            if geometry is not None:
                trial.expected[least] = prediction_for(geometry, crowd.population, least)
    result.windows = len(seen)
    return result


def prediction_for(geometry: Geometry, population: Population, threshold: float) -> Prediction | None:
    """Predict the errors of a cube for counted hosts; None for thresholds too low for predictions."""
    try:
        return predict(geometry, population, threshold)
    except UsageError:
        return None


def _add(trial: Trial, cube: Cube, truth: Truth, thresholds: Sequence[float]) -> None:
    trial.estimated += not cube.exact
    trial.estimates.append(ask_all(cube, truth, thresholds[0]))
    for threshold in thresholds:
        found = score(cube.super_hosts(threshold), truth, threshold)
        old = trial.scores.get(threshold, Score(0, 0, 0, 0))
        trial.scores[threshold] = Score(*(a + b for a, b in zip(old, found, strict=True)))
