"""Predict the error rates of a cube, missed and false super hosts, without any traffic.

A host shares each of its k columns with other hosts, whose pairs there add up to a random load (`load_distribution`).
The load fills a share p_i of the rows. This causes four kinds of errors, for hosts of every size:

* Measuring. Var(n) = g·(e^t·(1 + P/D) − t − 1), as in `detectors/estimate.py`: the estimate of a host near the
  threshold may be on the wrong side of it. With little noise the sum of both rates is 0.80·a·RSE for a tail of
  exponent a.
* Naming. In one array the host wins its label with probability n/(n + L), where L is the number of the others' pairs
  there, provided that one of all these pairs has a high priority. The host is named unless it loses in all arrays.
* Meetings. If two hosts share j ≥ 2 columns, the bits of one appear in the AND of the other more often than the
  estimator assumes: in (q + (1−q)·s^j)·Πp of the rows instead of (q + (1−q)·s)^j·Πp, where q is the fill by the other
  host, s the fill by further hosts, and p the noise of the remaining columns.
* Saturation. Hosts with more than g·ln g peers cannot be measured, and all are reported.

Loads are heavy-tailed: most columns are quiet, and few are shared with a big host. Errors come from the latter, so the
loads are drawn in strata: with 0, 1, … k columns from the upper end of the distribution, each stratum weighted by its
probability. The draws are the same for all geometries, so that differences between predictions are not due to chance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np

from superhosts.errors import UsageError
from superhosts.planning.formulas import MISS_EXPONENT, column_bytes, losing_probability, prefix_test, zero_limit
from superhosts.planning.population import CAP, Floats, Population, load_distribution, population_of

POINTS = 1 << 13  # points of a load distribution
DRAWS = 256  # draws in each stratum
SEARCH_DRAWS = 32  # draws in each stratum while many geometries are compared
MAX_DEVIATIONS = 6.0  # standard deviations around the threshold in which errors are counted
STEPS = 24  # steps of an integral over these deviations
SLACK = 0.25  # estimates up to this much below the threshold count as reaching it
HALF_PEER = 0.5  # the density spreads hosts of n peers evenly over [n, n + 1), half a peer above n on average
SIZE_CLASSES = 24  # classes of hosts away from the threshold
LOG_ROWS_PER_TURN = 3  # a column of g rows has g/8 turns; meetings matter only if both hosts have the same one

# Time of a restore on one core: an order of magnitude, from windows of 5 M and 50 M flows at thresholds 128 and 1024.
SECONDS_PER_COLUMN = 1e-9
SECONDS_PER_LABEL = 1e-8
SECONDS_PER_CANDIDATE = 2e-7
SECONDS_PER_BYTE = 5e-10

CDF_STEPS = 512  # entries of the table of the normal distribution for one standard deviation
_CDF = np.array([0.5 * math.erfc(-x / CDF_STEPS / math.sqrt(2)) for x in range(-8 * CDF_STEPS, 8 * CDF_STEPS + 1)])


class _CubeSizes(Protocol):
    """The sizes of a labelled cube, named as in its geometry."""

    @property
    def key_bits(self) -> int: ...
    @property
    def slice_bits(self) -> int: ...
    @property
    def arrays(self) -> int: ...
    @property
    def column_bits(self) -> int: ...
    @property
    def columns(self) -> int: ...
    @property
    def label_bits(self) -> int: ...
    @property
    def share_bits(self) -> int: ...
    @property
    def giants(self) -> int: ...
    @property
    def sample_bits(self) -> int: ...


@dataclass(frozen=True)
class Prediction:
    """The predicted performance of a cube in a window. Rates are relative to the number of true super hosts."""

    flows: int
    threshold: float
    super_hosts: float  # expected number of true super hosts
    memory: int  # bytes
    standard_error: float  # relative, for a host at the threshold with the median noise in its columns
    missed_measuring: float
    missed_unnamed: float
    false_measuring: float
    false_meeting: float
    false_saturated: float
    fill: float  # mean share of set bits
    saturation: int  # the most peers that can be measured
    hot_columns: float
    candidates: float
    restore_seconds: float  # order of magnitude, on one core
    wire_bytes: float  # approximate size of the compressed file

    @property
    def fnr(self) -> float:
        """False negative rate: true super hosts that are not reported."""
        return min(1.0, self.missed_measuring + (1 - self.missed_measuring) * self.missed_unnamed)

    @property
    def fpr(self) -> float:
        """False positive rate: reported hosts below the threshold. A cube never reports a host that it has not seen."""
        return self.false_measuring + self.false_meeting + self.false_saturated

    @property
    def total(self) -> float:
        """Total false rate, FNR + FPR."""
        return self.fnr + self.fpr


class _Loads(NamedTuple):
    """Random draws of the load in the k columns of a host."""

    fills: Floats  # (draws, k): share of the rows that others fill
    weights: Floats  # probability of each draw
    noise: Floats  # P/D of each draw


def predict(sizes: _CubeSizes, flows: int | Population, threshold: float, *, draws: int = DRAWS) -> Prediction:
    """Predict the performance of a cube of these sizes in a window of `flows` distinct pairs, or of a population."""
    if not 1 <= threshold < CAP:
        raise UsageError(f"threshold {threshold:g}: predictions need a threshold from 1 to below {CAP:,.0f} peers")
    population = flows if isinstance(flows, Population) else population_of(flows)
    rows, places = 1 << sizes.column_bits, float(sizes.columns << sizes.slice_bits)
    true, saturation = population.at_least(threshold), math.floor(rows * math.log(rows))
    if not true:
        raise UsageError(f"threshold {threshold:g}: no host has this many peers, so error rates are undefined")
    step = rows / (POINTS // 32)
    load = load_distribution(population, places, step, POINTS)
    loads = _draw(load, step, rows, sizes.arrays, draws)
    named = _Naming(sizes, population, threshold)
    test = _Test(rows, threshold)
    missed, false = _around_threshold(loads, test, population, named)
    peers, hosts = (
        population.merged(np.geomspace(1.0, threshold / 2, SIZE_CLASSES + 1)) if threshold > 2 else _no_hosts()
    )
    far = float((loads.weights @ test.decide(loads, peers[np.newaxis, :]) * hosts * named.chance(peers)).sum())
    beyond = population.at_least(saturation) - true if threshold > saturation else 0.0
    peers, hosts = population.merged(np.geomspace(threshold, 2 * CAP, SIZE_CLASSES + 1))
    if not len(hosts):  # The mean of the largest class is below the threshold.
        peers, hosts = np.array([float(threshold)]), np.ones(1)
    unnamed = float(((1 - named.chance(peers)) * hosts).sum() / hosts.sum())
    hot, candidates = _work(sizes, threshold, population, load, named)
    fills = -np.expm1(-np.arange(POINTS) * step / rows)
    columns = places * sizes.arrays
    return Prediction(
        flows=population.flows,
        threshold=threshold,
        super_hosts=true,
        memory=_memory(sizes),
        standard_error=math.sqrt(float(_variance(rows, np.array(threshold), _median(loads)))) / threshold,
        missed_measuring=min(1.0, missed / true),
        missed_unnamed=unnamed,
        false_measuring=(false + far) / true,
        false_meeting=_meetings(loads, sizes, test, population, named) / true,
        false_saturated=beyond / true,
        fill=float((load * fills).sum()),  # `@` would start BLAS threads for little work.
        saturation=saturation,
        hot_columns=hot,
        candidates=candidates,
        restore_seconds=_restore_seconds(sizes, threshold, columns, (hot, candidates, true)),
        wire_bytes=_wire_bytes(sizes, columns, float((load * _entropy(fills)).sum())),
    )


def _memory(sizes: _CubeSizes) -> int:
    """Return the bytes of columns and labels. Giant columns have no labels."""
    plain, giant = column_bytes(sizes.column_bits, sizes.label_bits, sizes.key_bits), (1 << sizes.column_bits) // 8
    return sizes.arrays * (sizes.columns * plain + sizes.giants * giant) << sizes.slice_bits


class _Naming:
    """The probability that one of its labels names a host."""

    def __init__(self, sizes: _CubeSizes, population: Population, threshold: float) -> None:
        self._arrays = sizes.arrays
        self._share = min(2.0**-sizes.share_bits, MISS_EXPONENT / threshold)
        step = max(threshold / 128, 1 / 8)
        labels = float(sizes.columns << (sizes.slice_bits + sizes.label_bits))
        chances = load_distribution(population, labels, step, POINTS)
        self._loads, self._chances = _bands(np.arange(float(POINTS)) * step, chances, step)

    def chance(self, peers: Floats) -> Floats:
        """Return the probability that hosts with these peers win in at least one array with a pair of high priority."""
        lost = losing_probability(peers[:, np.newaxis], self._loads, self._share)
        chance: Floats = 1 - (lost @ self._chances) ** self._arrays
        return chance


def _draw(load: Floats, step: float, rows: int, arrays: int, draws: int) -> _Loads:
    """Draw the fills of a host's k columns, in strata of 0 to k crowded columns."""
    below = np.cumsum(load)
    crowded = 1 / 16  # share of the columns, at the upper end of the distribution, that count as crowded
    pairs, weights = [], []
    for stratum, orders in enumerate(_orders(arrays, draws)):
        ranks = np.empty((draws, arrays))
        ranks[:, :stratum] = 1 - crowded * (orders[:, :stratum] + 0.5) / draws
        ranks[:, stratum:] = (1 - crowded) * (orders[:, stratum:] + 0.5) / draws
        pairs.append(np.interp(ranks, below, np.arange(len(load)) * step))
        chance = math.comb(arrays, stratum) * crowded**stratum * (1 - crowded) ** (arrays - stratum)
        weights.append(np.full(draws, chance / draws))
    fills = -np.expm1(-np.concatenate(pairs) / rows)
    return _Loads(fills, np.concatenate(weights), _noise(fills))


@lru_cache(maxsize=32)
def _orders(arrays: int, draws: int) -> Floats:
    """Return permutations of the draws, one for each stratum and array. They are the same for all geometries."""
    random = np.random.Generator(np.random.PCG64(1))
    return np.array([[random.permutation(draws) for _ in range(arrays)] for _ in range(arrays + 1)], float).transpose(
        0, 2, 1
    )


def _noise(fills: Floats) -> Floats:
    """Return P/D of every draw. It is huge where the estimator's equations have no solution."""
    together = fills.prod(axis=1)
    spread = 1 - together
    for array in range(fills.shape[1]):
        others = np.delete(fills, array, axis=1).prod(axis=1)
        spread = spread - (1 - fills[:, array]) * others
    ratio: Floats = together / np.maximum(spread, 1e-9)
    return ratio


def _median(loads: _Loads) -> Floats:
    """Return the median noise of all hosts."""
    order = np.argsort(loads.noise)
    middle: Floats = loads.noise[order[np.searchsorted(np.cumsum(loads.weights[order]), 0.5)]]
    return middle


def _variance(rows: int, peers: Floats, noise: Floats) -> Floats:
    """Return the variance of the estimate for hosts with these peers."""
    load = np.minimum(peers / rows, 30.0)
    variance: Floats = rows * (np.exp(load) * (1 + noise) - load - 1)
    return np.maximum(variance, 1e-9)


def _normal(x: Floats) -> Floats:
    """Return the probability that a standard normal variable is below x."""
    below: Floats = _CDF[(np.clip(x, -8.0, 8.0) * CDF_STEPS + (8 * CDF_STEPS + 0.5)).astype(np.int64)]
    return below


class _Fill(NamedTuple):
    """The share of rows that others fill, the same in this many columns of a host."""

    share: Floats
    columns: int = 1


class _Test(NamedTuple):
    """The decision of the estimator whether a host reaches the threshold."""

    rows: int
    threshold: float

    def passes(self, peers: Floats, fills: Sequence[_Fill], *common: Floats) -> list[Floats]:
        """Return the probability that hosts pass, for each given share of rows that others fill in all columns.

        `fills` contains the share that others fill in each of the columns. The estimate reaches θ where
        u0·(1 − Π(1 − z_i/u0)) ≥ z with u0 = e^(−θ/g): the estimator computes the noise for a host with θ peers,
        p_i' = 1 − z_i/u0. In crowded columns that is far less than the noise of a small host.
        """
        ratio = np.exp(np.minimum((self.threshold - SLACK - peers) / self.rows, 30.0))  # u/u0
        quiet = math.sqrt(float(_variance(self.rows, np.array(self.threshold), np.array(0.0))))
        least = -3 * quiet / self.rows
        product, inverses, cold = np.ones(1), np.zeros(1), np.zeros(1, bool)
        for share, columns in fills:
            seen = 1 - ratio * (1 - share)
            cold = cold | (seen < least)  # Some column has clearly fewer ones than θ peers would set.
            seen = np.maximum(seen, 1e-9)
            product = product * seen**columns
            inverses = inverses + columns * (1 / seen - 1)
        spread = np.maximum(1 - product - inverses * product, 1e-9)  # D'
        scale = self.rows / spread / np.sqrt(_variance(self.rows, np.array(self.threshold), product / spread))
        free = 1 - product
        return [np.where(cold, 0.0, _normal(scale * (free - ratio * (1 - shared)))) for shared in common]

    def decide(self, loads: _Loads, peers: Floats) -> Floats:
        """Return the probability that hosts pass for every draw. `peers` has a row for each draw, or one for all."""
        fills = [_Fill(share[:, np.newaxis]) for share in loads.fills.T]
        return self.passes(peers, fills, loads.fills.prod(axis=1)[:, np.newaxis])[0]


def _around_threshold(loads: _Loads, test: _Test, population: Population, named: _Naming) -> tuple[float, float]:
    """Return the numbers of missed and of false super hosts near the threshold.

    Missed hosts are at or above the threshold and measured below it. False ones are named hosts with θ/2 to θ peers
    that are measured at or above it.
    """
    threshold = test.threshold
    unit = np.sqrt(_variance(test.rows, np.array(threshold), loads.noise[:, np.newaxis]))
    x = (np.arange(STEPS) + 0.5) * (MAX_DEVIATIONS / STEPS)
    width = np.minimum(unit, (CAP - threshold) / MAX_DEVIATIONS)  # No host is larger than the cap.
    above = threshold + width * x
    missed = (1 - test.decide(loads, above - HALF_PEER)) * population.density(above) * width
    width = np.minimum(unit, threshold / 2 / MAX_DEVIATIONS)
    below = threshold - width * x
    names = np.interp(below, (grid := np.linspace(threshold / 2, threshold, 9)), named.chance(grid))
    false = test.decide(loads, below - HALF_PEER) * population.density(below) * width * names
    scale = MAX_DEVIATIONS / STEPS
    return float(loads.weights @ missed.sum(axis=1)) * scale, float(loads.weights @ false.sum(axis=1)) * scale


def _meetings(loads: _Loads, sizes: _CubeSizes, test: _Test, population: Population, named: _Naming) -> float:
    """Return the number of hosts that pass the threshold only because a bigger host shares several of their columns."""
    if test.threshold <= 4:
        return 0.0
    arrays, half = sizes.arrays, test.threshold / 2
    below_half, above_half = np.geomspace(1.0, half, SIZE_CLASSES), np.linspace(half, test.threshold, SIZE_CLASSES)
    low, many = population.merged(np.concatenate([below_half[:-1], above_half]))
    big, hosts = population.merged(np.geomspace(max(half / 8, 2.0), 2 * CAP, SIZE_CLASSES + 1))
    own = -np.expm1(-big / test.rows)[:, np.newaxis]  # q: fill by the bigger host
    others = float((loads.weights * loads.fills[:, -1]).sum())  # s: fill by further hosts in the shared columns
    filled = own + (1 - own) * others
    expected, small = many * named.chance(low), low[:, np.newaxis, np.newaxis]
    lifted, turns = 0.0, max(1 << (sizes.column_bits - LOG_ROWS_PER_TURN), 64)
    for met in range(2, arrays + 1):
        rate = math.comb(arrays, met) / (float(sizes.columns) ** met * turns * (1 << sizes.slice_bits))
        rest, weights = _bands(loads.fills[:, met:].prod(axis=1), loads.weights, 1e-3, 2.0)
        fills = [_Fill(filled, met)]
        if met < arrays:
            fills.append(_Fill(rest ** (1 / (arrays - met)), arrays - met))
        together = (own + (1 - own) * others**met) * rest
        real, assumed = test.passes(small, fills, together, filled**met * rest)
        lifted += rate * float(expected @ (np.maximum(real - assumed, 0.0) @ weights) @ hosts)
    return lifted


def _bands(values: Floats, weights: Floats, finest: float, each: float = 1.1) -> tuple[Floats, Floats]:
    """Reduce weighted values to their means in bands, each wider than the one before by the factor `each`."""
    bands = np.log1p(values / finest) / math.log(each)
    numbers = bands.astype(np.int64)
    sums = np.bincount(numbers, weights).astype(np.float64)
    full = sums > 0
    return np.bincount(numbers, weights * values)[full] / sums[full], sums[full]


def _no_hosts() -> tuple[Floats, Floats]:
    return np.empty(0), np.empty(0)


def _work(
    sizes: _CubeSizes, threshold: float, population: Population, load: Floats, named: _Naming
) -> tuple[float, float]:
    """Return the number of hot columns and of candidates: named hosts with only hot columns, which a restore checks."""
    rows = 1 << sizes.column_bits
    step = rows / (POINTS // 32)
    least = rows * math.log(rows / max(zero_limit(sizes.column_bits, threshold), 1))  # pairs that make a column hot
    below = np.concatenate([np.zeros(1), np.cumsum(load)])
    peers, hosts = population.merged(np.geomspace(1.0, 2 * CAP, 4 * SIZE_CLASSES + 1))
    wanted = np.ceil((least - np.append(0.0, peers)) / step)
    hot = 1 - below[np.clip(wanted, 0, POINTS).astype(np.int64)]
    candidates = float((hot[1:] ** sizes.arrays * hosts * named.chance(peers)).sum())
    return float(hot[0] * sizes.arrays * (sizes.columns << sizes.slice_bits)), candidates


def _entropy(fills: Floats) -> Floats:
    """Return the entropy of a row in bits, if this share of the rows is set."""
    p = np.clip(fills, 1e-12, 1 - 1e-12)
    bits: Floats = -(p * np.log2(p) + (1 - p) * np.log2(1 - p))
    return bits


def _wire_bytes(sizes: _CubeSizes, columns: float, entropy: float) -> float:
    """Return the bytes of the compressed columns, a tenth above their entropy, and of the uncompressed labels."""
    labels = columns * (8 * sizes.key_bits // 32 << sizes.label_bits)
    return columns * (1 << sizes.column_bits) / 8 * min(1.0, 1.1 * entropy) + labels


def _restore_seconds(sizes: _CubeSizes, threshold: float, columns: float, work: tuple[float, float, float]) -> float:
    """Return the time of a restore: zero counts, labels of hot columns, pre-checks, rows of true hosts."""
    hot, candidates, true = work
    checked = 8 * prefix_test(sizes.column_bits, threshold).words * sizes.arrays
    whole = true * sizes.arrays * (1 << sizes.column_bits) / 8
    return (
        columns * SECONDS_PER_COLUMN
        + hot * (1 << sizes.label_bits) * SECONDS_PER_LABEL
        + candidates * (SECONDS_PER_CANDIDATE + checked * SECONDS_PER_BYTE)
        + whole * SECONDS_PER_BYTE
    )
