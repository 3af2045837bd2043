"""Predict the error rates of a cube, missed and false super hosts, without any traffic.

A host shares each of its k columns with other hosts, whose pairs there add up to a random load (`draw_loads`), which
fills a share p_i of the rows. "Planning" in docs/explanation/decisions.md has the kinds of errors that this causes:
measuring (`Decision`), naming (`Naming`), meetings and saturation. All of it happens in written pairs: if one in s
pairs is written, hosts and threshold are s times smaller.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from superhosts.detectors.formulas import GIANT_BITS, Floats, Sizes, zero_limit
from superhosts.detectors.plan.decision import FEWEST_NORMAL, Decision, Fill, Naming, written_chances
from superhosts.detectors.plan.population import (
    CAP,
    Population,
    bands,
    draw_loads,
    load_distribution,
    population_of,
    thinned,
)
from superhosts.errors import UsageError

CLASSES = 96  # classes of hosts by size

# Time of a restore on one core, measured within 25 % in windows of 0.1 M to 20 M flows at thresholds 5, 128 and 1024.
SECONDS_PER_COLUMN = 2e-8
SECONDS_PER_LABEL = 8e-9
SECONDS_PER_CANDIDATE = 7e-7
SECONDS_PER_BYTE = 3.5e-10  # of the columns of hosts that pass the tests of their first words


class Work(NamedTuple):
    hot_columns: float
    candidates: float  # named hosts with only hot columns
    seconds: float  # order of magnitude, on one core


def rows_bytes(sizes: Sizes, written: Population) -> float:
    """Return the bytes of a file that lists rows of hosts: the rows, a little above their entropy, hosts and labels."""
    rows, hosts = 1 << sizes.column_bits, max(float(written.hosts.sum()), 1.0)
    set_rows = np.maximum(rows * -np.expm1(-written.peers / rows), 1e-9)
    p = np.clip(set_rows / rows, 1e-12, 1 - 1e-12)
    entropy = -rows * (p * np.log2(p) + (1 - p) * np.log2(1 - p))
    names = hosts * max(sizes.key_bits + 3 - math.log2(hosts), 3.0)
    competing = 1 - (1 - 2.0**-sizes.share_bits) ** written.peers
    labels = min(float((written.hosts * competing).sum()), sizes.columns << sizes.slice_bits + sizes.label_bits)
    return (1.06 * float((written.hosts * entropy).sum()) + names + 32 * sizes.arrays * labels) / 8


def wire_bytes(sizes: Sizes, load: Floats, fills: Floats) -> float:
    """Return the bytes of the compressed columns, a tenth above their entropy, and of the uncompressed labels."""
    columns = float(sizes.arrays * sizes.columns << sizes.slice_bits)
    labels = columns * (8 * sizes.key_bits // 32 << sizes.label_bits)
    p = np.clip(fills, 1e-12, 1 - 1e-12)
    entropy = float((load * -(p * np.log2(p) + (1 - p) * np.log2(1 - p))).sum())
    return columns * (1 << sizes.column_bits) / 8 * min(1.0, 1.1 * entropy) + labels


POINTS = 1 << 13  # points of a load distribution
STEPS_PER_COLUMN = 256  # of them, as many as a column has rows in pairs
DRAWS = 256  # draws in each stratum
SEARCH_DRAWS = 32  # draws in each stratum while many geometries are compared
MAX_DEVIATIONS = 6.0  # standard deviations around the threshold in which errors are counted
STEPS = 24  # steps of an integral over these deviations
HALF_PEER = 0.5  # the density spreads hosts of n peers evenly over [n, n + 1), half a peer above n on average
SIZE_CLASSES = 24  # classes of hosts away from the threshold
FEW_CLASSES = 160  # classes of hosts around a threshold of few written pairs
LOG_ROWS_PER_TURN = 3  # a column of g rows has g/8 turns; meetings matter only if both hosts have the same one


@dataclass(frozen=True)
class Rates:
    """Predicted error rates by cause, relative to the number of true super hosts."""

    missed_measuring: float
    missed_unnamed: float
    false_measuring: float
    false_meeting: float
    false_saturated: float

    @property
    def fnr(self) -> float:
        return min(1.0, self.missed_measuring + (1 - self.missed_measuring) * self.missed_unnamed)

    @property
    def fpr(self) -> float:
        """False positive rate: reported hosts below the threshold. A cube never reports a host that it has not seen."""
        return self.false_measuring + self.false_meeting + self.false_saturated

    @property
    def total(self) -> float:
        return self.fnr + self.fpr


@dataclass(frozen=True)
class Prediction(Rates):
    flows: int
    threshold: float
    super_hosts: float  # expected number of true super hosts
    memory: int  # bytes
    standard_error: float  # relative, for a host at the threshold with the median noise in its columns
    fill: float  # mean share of set bits
    saturation: int  # the most peers that can be measured, in giant columns if there are any
    hot_columns: float
    candidates: float
    restore_seconds: float  # order of magnitude, on one core
    wire_bytes: float  # approximate size of the compressed file of a dense cube
    rows_bytes: float  # approximate size of the file while the cube is exact


def predict(sizes: Sizes, flows: int | Population, threshold: float, *, draws: int = DRAWS) -> Prediction:
    window = _Window(sizes, flows, threshold, draws)
    work, load = window.work(), window.load
    fills = -np.expm1(-np.arange(POINTS) * window.step / window.rows)
    return Prediction(
        **vars(window.rates()),
        flows=window.population.flows,
        threshold=threshold,
        super_hosts=window.true,
        memory=sizes.memory,
        standard_error=window.standard_error,
        fill=float((load * fills).sum()),  # `@` would start BLAS threads for little work.
        saturation=sizes.most_peers,
        hot_columns=work.hot_columns,
        candidates=work.candidates,
        restore_seconds=work.seconds,
        wire_bytes=wire_bytes(sizes, load, fills),
        rows_bytes=rows_bytes(sizes, window.written),
    )


def rough_rates(sizes: Sizes, population: Population, threshold: float) -> Rates:
    """Predict the error rates from fewer draws and without meetings, to compare many sizes."""
    return _Window(sizes, population, threshold, SEARCH_DRAWS).rates(meetings=False)


def restore_seconds(sizes: Sizes, population: Population, threshold: float) -> float:
    return _Window(sizes, population, threshold, draws=1).work().seconds


def check_predictable(threshold: float) -> None:
    if not 1 <= threshold < CAP:
        raise UsageError(f"threshold {threshold:g}: predictions need a threshold from 1 to below {CAP:,.0f} peers")


class _Window:
    def __init__(self, sizes: Sizes, flows: int | Population, threshold: float, draws: int) -> None:
        check_predictable(threshold)
        self.sizes, self.threshold = sizes, threshold
        self.population = flows if isinstance(flows, Population) else population_of(flows, threshold)
        self.true = self.population.at_least(threshold)
        if not self.true:
            raise UsageError(f"threshold {threshold:g}: no host has this many peers, so error rates are undefined")
        self.rows, self.sample = 1 << sizes.column_bits, 1 << sizes.sample_bits
        self.step = self.rows / STEPS_PER_COLUMN
        self.written = thinned(self.population, self.sample)
        self.load = self._load_of(self.written, sizes.columns)
        self.named = Naming(sizes, self.written, threshold / self.sample)
        self.decision, load = Decision(self.rows, threshold / self.sample, self.sample), self.load
        giant = Decision(self.rows, threshold / (self.sample << GIANT_BITS), self.sample << GIANT_BITS)
        self._columns, self._measured = sizes.columns, self.written
        if sizes.giants and giant.quiet_error < self.decision.quiet_error:
            self.decision, self._columns = giant, sizes.giants
            self._measured = thinned(self.population, giant.sample)
            load = self._load_of(self._measured, sizes.giants)
        self.loads = draw_loads(load, self.step, self.rows, sizes.arrays, draws)

    def _load_of(self, population: Population, columns: int) -> Floats:
        return load_distribution(population, float(columns << self.sizes.slice_bits), self.step, POINTS)

    @property
    def standard_error(self) -> float:
        return float(self.decision.deviation(self.loads.median_noise)) / self.decision.threshold

    def work(self) -> Work:
        """Return the work of a restore: zero counts, labels of hot columns, tests of candidates, rows of true hosts."""
        sizes, threshold = self.sizes, self.threshold / self.sample
        rows, columns = self.rows, sizes.arrays * sizes.columns << sizes.slice_bits
        least = rows * math.log(rows / max(zero_limit(sizes.column_bits, threshold), 1))  # pairs that make a column hot
        below = np.concatenate([np.zeros(1), np.cumsum(self.load)])
        peers, hosts = self.written.merged(np.geomspace(self.written.peers.min(), 2 * CAP, CLASSES + 1))
        wanted = np.ceil((least - np.append(0.0, peers)) / self.step)
        hot = 1 - below[np.clip(wanted, 0, len(self.load)).astype(np.int64)]
        hot_columns = float(hot[0] * columns)
        candidates = float((hot[1:] ** sizes.arrays * hosts * self.named.candidate_chance(peers)).sum())
        whole = self.written.at_least(threshold) * sizes.arrays * rows / 8
        seconds = (
            columns * SECONDS_PER_COLUMN
            + hot_columns * (1 << sizes.label_bits) * SECONDS_PER_LABEL
            + candidates * SECONDS_PER_CANDIDATE
            + whole * SECONDS_PER_BYTE
        )
        return Work(hot_columns, candidates, seconds)

    def rates(self, *, meetings: bool = True) -> Rates:
        missed, unnamed, false = self._few() if self.decision.threshold < FEWEST_NORMAL else self._many()
        most = self.sizes.most_peers
        beyond = self.population.at_least(most) - self.true if self.threshold > most else 0.0
        return Rates(
            missed_measuring=min(1.0, missed / self.true),
            missed_unnamed=unnamed,
            false_measuring=false / self.true,
            false_meeting=self._meetings() / self.true if meetings else 0.0,
            false_saturated=beyond / self.true,
        )

    def _chance(self, measured: Floats) -> Floats:
        """Return the probability that labels name hosts with these numbers of measured pairs."""
        return self.named.chance(measured * (self.decision.sample // self.sample))

    def _few(self) -> tuple[float, float, float]:
        """Return the number of missed hosts, the share of unnamed ones, and the number of false ones.

        For thresholds of few written pairs: by the exact numbers of peers and of written pairs.
        """
        passed, least = self.decision.decide_few(self.loads), math.ceil(self.threshold)
        top, sample = len(passed) - 1, self.decision.sample
        edges = np.rint(np.geomspace(1, 8 * (top + 1) * sample, FEW_CLASSES))
        edges = np.unique(np.concatenate([edges, np.arange(1.0, min(least, top) + 1), [least]]))
        above = self.population.above(edges)
        hosts, true = above - np.append(above[1:], 0.0), edges >= least
        peers = np.append(np.rint(np.sqrt(edges[:-1] * (edges[1:] - 1))), edges[-1])
        chances, named = written_chances(peers, sample, top), np.append(0.0, self._chance(np.arange(1.0, top + 1)))
        more = np.maximum(1 - chances.sum(axis=1), 0.0)  # more written pairs than `top`
        named_more = more * self._chance(np.maximum(peers / sample, top))
        missed = float((hosts * (chances @ (1 - passed)))[true].sum())
        unnamed = 1 - float((hosts * (chances @ named + named_more))[true].sum()) / self.true
        false = float((hosts * (chances @ (passed * named) + named_more))[~true].sum())
        return missed, max(unnamed, 0.0), false

    def _many(self) -> tuple[float, float, float]:
        """Return the number of missed hosts, the share of unnamed ones, and the number of false ones.

        Missed hosts are at or above the threshold and measured below it. False ones are named hosts that are measured
        at or above it: near the threshold by the density of hosts, and below half of it by classes.
        """
        decision, threshold = self.decision, self.decision.threshold
        half, cap = HALF_PEER / decision.sample, CAP / decision.sample
        unit = decision.deviation(self.loads.noise)[:, np.newaxis]
        x = (np.arange(STEPS) + 0.5) * (MAX_DEVIATIONS / STEPS)
        width = np.minimum(unit, (cap - threshold) / MAX_DEVIATIONS)  # No host is larger than the cap.
        above = threshold + width * x
        missed = (1 - decision.decide(self.loads, above - half)) * self._measured.density(above) * width
        width = np.minimum(unit, threshold / 2 / MAX_DEVIATIONS)
        below = threshold - width * x
        names = np.interp(below, (grid := np.linspace(threshold / 2, threshold, 9)), self._chance(grid))
        false = decision.decide(self.loads, below - half) * self._measured.density(below) * width * names
        scale = MAX_DEVIATIONS / STEPS
        least = float(self._measured.peers.min())
        peers, hosts = self._measured.merged(np.geomspace(least, threshold / 2, SIZE_CLASSES + 1))
        passed = self.loads.weights @ decision.decide(self.loads, peers[np.newaxis, :])
        far = float((passed * hosts * self._chance(peers)).sum())
        peers, hosts = self._measured.merged(np.geomspace(threshold, 2 * cap, SIZE_CLASSES + 1))
        if not len(hosts):  # The mean of the largest class is below the threshold.
            peers, hosts = np.array([threshold]), np.ones(1)
        unnamed = float(((1 - self._chance(peers)) * hosts).sum() / hosts.sum())
        weights = self.loads.weights
        return (float(weights @ missed.sum(axis=1)) * scale, unnamed, float(weights @ false.sum(axis=1)) * scale + far)

    def _meetings(self) -> float:
        """Return the number of hosts that pass only because a bigger host shares several of their columns.

        If two hosts share j ≥ 2 columns, the bits of one appear in the AND of the other in (q + (1−q)·s^j)·Πp of the
        rows, and the estimator assumes (q + (1−q)·s)^j·Πp, where q is the fill by the other host, s the fill by further
        hosts, and p the noise of the remaining columns.
        """
        decision, loads, sizes = self.decision, self.loads, self.sizes
        if decision.threshold <= 4:
            return 0.0
        arrays, half, smallest = sizes.arrays, decision.threshold / 2, float(self._measured.peers.min())
        below_half, above_half = (
            np.geomspace(smallest, half, SIZE_CLASSES),
            np.linspace(half, decision.threshold, SIZE_CLASSES),
        )
        low, many = self._measured.merged(np.concatenate([below_half[:-1], above_half]))
        big, hosts = self._measured.merged(np.geomspace(max(half / 8, 2.0), 2 * CAP, SIZE_CLASSES + 1))
        own = -np.expm1(-big / decision.rows)[:, np.newaxis]  # q: fill by the bigger host
        others = float((loads.weights * loads.fills[:, -1]).sum())  # s: fill by further hosts in the shared columns
        filled = own + (1 - own) * others
        expected, small = many * self._chance(low), low[:, np.newaxis, np.newaxis]
        lifted, turns = 0.0, max(1 << (sizes.column_bits - LOG_ROWS_PER_TURN), 64)
        for met in range(2, arrays + 1):
            rate = math.comb(arrays, met) / (float(self._columns) ** met * turns * (1 << sizes.slice_bits))
            rest, weights = bands(loads.fills[:, met:].prod(axis=1), loads.weights, 1e-3, 2.0)
            fills = [Fill(filled, met)]
            if met < arrays:
                fills.append(Fill(rest ** (1 / (arrays - met)), arrays - met))
            together = (own + (1 - own) * others**met) * rest
            real, assumed = decision.passes(small, fills, together, filled**met * rest)
            lifted += rate * float(expected @ (np.maximum(real - assumed, 0.0) @ weights) @ hosts)
        return lifted
