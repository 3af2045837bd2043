"""How well a list of super hosts matches the truth: the paper's scores, with its boundary corrected.

docs/explanation/paper.md says why.

With H the hosts of at least θ peers: FNR = missed / |H|, FPR = reported with fewer than θ peers / |H|, FTR = FNR + FPR.
FPR is relative to |H|, not to all other hosts, of which there are millions: it may exceed 1.
Where there is nothing to divide by, a rate is not a number; `known` gives None for it, as files and tables want it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core.results import UNBOUNDED, SuperHosts
from superhosts.detectors.detector import Detector
from superhosts.detectors.exact import Exact, HostTable


class Truth(HostTable):
    @classmethod
    def of(cls, exact: Exact) -> Truth:
        return cls(*exact.counts())


class Score(NamedTuple):
    """One answer, or several added up, against the truth."""

    true: int  # number of true super hosts
    missed: int
    false: int  # reported with fewer peers than the threshold
    phantoms: int  # of these, hosts that were never seen

    @property
    def fnr(self) -> float:
        return self.missed / self.true if self.true else math.nan

    @property
    def fpr(self) -> float:
        return self.false / self.true if self.true else math.nan

    @property
    def ftr(self) -> float:
        return self.fnr + self.fpr


def score(found: SuperHosts, truth: Truth, threshold: float) -> Score:
    peers = truth.peers_of(found.hosts)
    true = len(truth.at_least(threshold)[1])
    right = int((peers >= threshold).sum())
    return Score(true, true - right, len(peers) - right, int((peers == 0).sum()))


class Estimates(NamedTuple):
    """The estimates of all true super hosts, found or not: no selection by the estimate itself."""

    true: NDArray[np.int64]
    peers: NDArray[np.int64]
    low: NDArray[np.int64] | NDArray[np.float64]  # not a number where there is no interval
    high: NDArray[np.float64]  # infinite where there is no upper bound
    saturated: NDArray[np.bool_]

    def of(self, places: NDArray[np.int64]) -> Estimates:
        return Estimates(
            self.true[places], self.peers[places], self.low[places], self.high[places], self.saturated[places]
        )

    @property
    def measured(self) -> NDArray[np.bool_]:
        return ~self.saturated

    @property
    def errors(self) -> NDArray[np.float64]:
        """Relative errors of those that have a number."""
        return self.peers[self.measured] / self.true[self.measured] - 1

    @property
    def mean_error(self) -> float:
        """Mean relative error without its sign."""
        return float(np.abs(self.errors).mean()) if self.measured.any() else math.nan

    @property
    def held(self) -> NDArray[np.bool_]:
        return (self.low <= self.true) & (self.true <= self.high)

    @property
    def coverage(self) -> float:
        return float(self.held.mean()) if len(self.true) and not np.isnan(self.high).all() else math.nan


def joined(several: Sequence[Estimates]) -> Estimates:
    return Estimates(*map(np.concatenate, zip(*several, strict=True)))


def ask_all(detector: Detector, truth: Truth, threshold: float) -> Estimates:
    hosts, true = truth.at_least(threshold)
    rows = detector.estimate_many(hosts)
    high = np.where(rows.peers_high == UNBOUNDED, np.inf, rows.peers_high)
    return Estimates(true, rows.peers, rows.peers_low, high, rows.saturated)


def known(rate: float) -> float | None:
    return None if math.isnan(rate) else rate


def percent(rate: float | None, places: int = 2) -> str:
    """Write a rate for a table; a dash where there was nothing to divide by."""
    return "–" if rate is None else f"{100 * rate:.{places}f}"
