"""How often a cube will be wrong: rates of missed and false super hosts, predicted without any traffic.

A host shares each of its k columns with strangers, whose pairs there add up to a random load (`load_distribution`). The
load fills a share p_i of the rows. From this follow, for hosts of every size:

* Measuring. Var(n) = g·(e^t·(1 + P/D) − t − 1), as in `detectors/estimate.py`: a host near the threshold falls on the
  wrong side of it. With little noise the sum of both rates is 0.80·a·RSE for a tail of exponent a.
* Naming. In one array the host wins its label with probability n/(n + L), L being the pairs of the others there, if
  a pair of theirs or of its own has a high priority. It is named unless it loses in all arrays.
* Meetings. Two hosts that share j ≥ 2 columns see each other's bits in the AND more often than the estimator thinks:
  (q + (1−q)·s^j)·Πp of the rows instead of (q + (1−q)·s)^j·Πp, with q the fill by the other host, s that by strangers
  and p the noise of the remaining columns.
* Saturation. Beyond g·ln g peers hosts cannot be measured, and all are reported.

Loads are heavy-tailed: a column is mostly quiet and sometimes shared with a big host. Errors come from those that are
not quiet, so the loads are drawn in strata: with 0, 1, … k columns from the upper end of the distribution, each stratum
with its own probability. The draws are the same for all geometries, so that predictions compare smoothly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np

from superhosts.errors import UsageError
from superhosts.planning.formulas import column_bytes, losing_probability, prefix_test, zero_limit
from superhosts.planning.population import CAP, Floats, Population, load_distribution, population_of

POINTS = 1 << 13  # of a load's distribution
DRAWS = 256  # in each stratum
FEW_DRAWS = 32  # while many geometries are compared
REACH = 6.0  # standard deviations beyond which nobody errs
STEPS = 24  # of an integral over so many deviations
HALF = 0.5  # peers are whole numbers: of hosts spread evenly over [n, n + 1), each has n
FAR = 24  # classes of hosts below half the threshold
TURNS = 64  # ways in which a host's rows are turned in an array; two hosts look alike only if they agree
MISS = 24  # labels of priority below 1 − 24/θ are not looked at

# Time of a restore on one core: an order of magnitude, from windows of 5 M and 50 M flows at thresholds 128 and 1024.
SECONDS_PER_COLUMN = 1e-9
SECONDS_PER_LABEL = 1e-8
SECONDS_PER_CANDIDATE = 2e-7
SECONDS_PER_BYTE = 5e-10

FINE = 512  # steps of the normal distribution's table in one standard deviation
_BELOW = np.array([0.5 * math.erfc(-x / FINE / math.sqrt(2)) for x in range(-8 * FINE, 8 * FINE + 1)])


class _CubeSizes(Protocol):
    """The sizes of a labelled cube, by the names that its geometry has."""

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


@dataclass(frozen=True)
class Prediction:
    """What to expect of a cube in a window of so many flows. Rates are shares of the true super hosts."""

    flows: int
    threshold: float
    super_hosts: float  # expected true ones
    memory: int  # bytes
    standard_error: float  # relative, of a host at the threshold, with the median noise of its columns
    missed_measuring: float
    missed_unnamed: float
    false_measuring: float
    false_meeting: float
    false_saturated: float
    fill: float  # mean share of set bits
    saturation: int  # peers beyond which a host is only known to have more
    hot_columns: float
    candidates: float
    restore_seconds: float  # order of magnitude, one core
    wire_bytes: float  # of the compressed file, about

    @property
    def fnr(self) -> float:
        """False negative rate: true super hosts that are not reported."""
        return min(1.0, self.missed_measuring + (1 - self.missed_measuring) * self.missed_unnamed)

    @property
    def fpr(self) -> float:
        """False positive rate: hosts reported below the threshold. Nobody is reported who was never seen."""
        return self.false_measuring + self.false_meeting + self.false_saturated

    @property
    def total(self) -> float:
        """Total false rate, FNR + FPR."""
        return self.fnr + self.fpr


class _Loads(NamedTuple):
    """What fills the k columns of a host: draws, one row each, and the probability that each draw stands for."""

    fills: Floats
    weights: Floats
    noise: Floats  # P/D


def predict(sizes: _CubeSizes, flows: int | Population, threshold: float, *, draws: int = DRAWS) -> Prediction:
    """Predict what a cube of these sizes does with a window of so many distinct pairs, or such hosts."""
    if not 1 <= threshold < CAP:
        raise UsageError(f"threshold {threshold:g}: predictions reach from 1 to below {CAP:,.0f} peers")
    population = flows if isinstance(flows, Population) else population_of(flows)
    rows, places = 1 << sizes.column_bits, float(sizes.columns << sizes.slice_bits)
    true, saturation = population.at_least(threshold), math.floor(rows * math.log(rows))
    if not true:
        raise UsageError(f"threshold {threshold:g}: rates are shares of hosts with so many peers, and there are none")
    step = rows / (POINTS // 32)
    load = load_distribution(population, places, step, POINTS)
    loads = _draw(load, step, rows, sizes.arrays, draws)
    named = _Naming(sizes, population, threshold)
    test = _Test(rows, threshold)
    missed, false = _around_threshold(loads, test, population, named)
    peers, hosts = population.merged(np.geomspace(1.0, threshold / 2, FAR + 1)) if threshold > 2 else _nobody()
    far = float((loads.weights @ test.decide(loads, peers[np.newaxis, :]) * hosts * named.chance(peers)).sum())
    beyond = population.at_least(saturation) - true if threshold > saturation else 0.0
    peers, hosts = population.merged(np.geomspace(threshold, 2 * CAP, FAR + 1))
    if not len(hosts):  # the mean of the largest class is below the threshold
        peers, hosts = np.array([float(threshold)]), np.ones(1)
    unnamed = float(((1 - named.chance(peers)) * hosts).sum() / hosts.sum())
    hot, candidates = _work(sizes, threshold, population, load, named)
    fills = -np.expm1(-np.arange(POINTS) * step / rows)
    columns = places * sizes.arrays
    return Prediction(
        flows=population.flows,
        threshold=threshold,
        super_hosts=true,
        memory=int(columns) * column_bytes(sizes.column_bits, sizes.label_bits, sizes.key_bits),
        standard_error=math.sqrt(float(_variance(rows, np.array(threshold), _median(loads)))) / threshold,
        missed_measuring=min(1.0, missed / true),
        missed_unnamed=unnamed,
        false_measuring=(false + far) / true,
        false_meeting=_meetings(loads, sizes, test, population, named) / true,
        false_saturated=beyond / true,
        fill=float((load * fills).sum()),  # `@` would wake threads for so little
        saturation=saturation,
        hot_columns=hot,
        candidates=candidates,
        restore_seconds=_restore_seconds(sizes, threshold, columns, (hot, candidates, true)),
        wire_bytes=_wire_bytes(sizes, columns, float((load * _entropy(fills)).sum())),
    )


class _Naming:
    """The chance of hosts to be named by one of their labels."""

    def __init__(self, sizes: _CubeSizes, population: Population, threshold: float) -> None:
        self._arrays = sizes.arrays
        self._share = min(2.0**-sizes.share_bits, MISS / threshold)
        step = max(threshold / 128, 1 / 8)
        labels = float(sizes.columns << (sizes.slice_bits + sizes.label_bits))
        chances = load_distribution(population, labels, step, POINTS)
        self._loads, self._chances = _bands(np.arange(float(POINTS)) * step, chances, step)

    def chance(self, peers: Floats) -> Floats:
        """Probability that a host of so many peers wins in one array at least, with a pair of high priority."""
        lost = losing_probability(peers[:, np.newaxis], self._loads, self._share)
        chance: Floats = 1 - (lost @ self._chances) ** self._arrays
        return chance


def _draw(load: Floats, step: float, rows: int, arrays: int, draws: int) -> _Loads:
    """Draw the fills of the k columns of a host, in strata of 0 to k crowded columns."""
    below = np.cumsum(load)
    crowded = 1 / 16  # the upper end of the distribution
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
    """Permutations of the draws, one for each stratum and array: the same ones for all geometries."""
    random = np.random.Generator(np.random.PCG64(1))
    return np.array([[random.permutation(draws) for _ in range(arrays)] for _ in range(arrays + 1)], float).transpose(
        0, 2, 1
    )


def _noise(fills: Floats) -> Floats:
    """P/D of every draw; huge where the equations cannot be solved."""
    together = fills.prod(axis=1)
    spread = 1 - together
    for array in range(fills.shape[1]):
        others = np.delete(fills, array, axis=1).prod(axis=1)
        spread = spread - (1 - fills[:, array]) * others
    ratio: Floats = together / np.maximum(spread, 1e-9)
    return ratio


def _median(loads: _Loads) -> Floats:
    """Return the noise that half of all hosts exceed."""
    order = np.argsort(loads.noise)
    middle: Floats = loads.noise[order[np.searchsorted(np.cumsum(loads.weights[order]), 0.5)]]
    return middle


def _variance(rows: int, peers: Floats, noise: Floats) -> Floats:
    """Variance of the estimate for hosts of so many peers."""
    load = np.minimum(peers / rows, 30.0)
    variance: Floats = rows * (np.exp(load) * (1 + noise) - load - 1)
    return np.maximum(variance, 1e-9)


def _normal(x: Floats) -> Floats:
    """Probability that a standard normal variable is below x."""
    below: Floats = _BELOW[(np.clip(x, -8.0, 8.0) * FINE + (8 * FINE + 0.5)).astype(np.int64)]
    return below


class _Test(NamedTuple):
    """The decision of the estimator: whether a host counts as one of the threshold."""

    rows: int
    threshold: float

    def passes(self, peers: Floats, fills: list[Floats], common: Floats) -> Floats:
        """Probability that hosts pass, given the rows that others fill in each of their columns and in all of them.

        The estimate reaches θ where u0·(1 − Π(1 − z_i/u0)) ≥ z with u0 = e^(−θ/g): the noise counts as a host of θ
        peers would see it, p_i' = 1 − z_i/u0. In crowded columns that is far less than the noise of a small host.
        """
        ratio = np.exp(np.minimum((self.threshold - peers) / self.rows, 30.0))  # u/u0
        seen = np.array(np.broadcast_arrays(*[1 - ratio * (1 - fill) for fill in fills]))
        shares = np.maximum(seen, 1e-9)
        product = shares.prod(axis=0)
        spread = np.maximum(1 - product - ((1 / shares - 1) * product).sum(axis=0), 1e-9)  # D'
        margin = 1 - product - ratio * (1 - common)
        quiet = math.sqrt(float(_variance(self.rows, np.array(self.threshold), np.array(0.0))))
        cold = seen.min(axis=0) < -3 * quiet / self.rows  # a column that shows less than the threshold
        deviation = np.sqrt(_variance(self.rows, np.array(self.threshold), product / spread))
        chance: Floats = np.where(cold, 0.0, _normal(self.rows * margin / spread / deviation))
        return chance

    def decide(self, loads: _Loads, peers: Floats) -> Floats:
        """Probability that hosts pass for every draw: a row of peers for each, or one for all."""
        fills = [fill[:, np.newaxis] for fill in loads.fills.T]
        return self.passes(peers, fills, loads.fills.prod(axis=1)[:, np.newaxis])


def _around_threshold(loads: _Loads, test: _Test, population: Population, named: _Naming) -> tuple[float, float]:
    """Hosts at or above the threshold that are measured below it; named hosts from θ/2 that are measured above it."""
    threshold = test.threshold
    unit = np.sqrt(_variance(test.rows, np.array(threshold), loads.noise[:, np.newaxis]))
    x = (np.arange(STEPS) + 0.5) * (REACH / STEPS)
    width = np.minimum(unit, (CAP - threshold) / REACH)  # near the cap, fewer deviations: up to the largest host
    above = threshold + width * x
    missed = (1 - test.decide(loads, above - HALF)) * population.density(above) * width
    width = np.minimum(unit, threshold / 2 / REACH)
    below = threshold - width * x
    names = np.interp(below, (grid := np.linspace(threshold / 2, threshold, 9)), named.chance(grid))
    false = test.decide(loads, below - HALF) * population.density(below) * width * names
    scale = REACH / STEPS
    return float(loads.weights @ missed.sum(axis=1)) * scale, float(loads.weights @ false.sum(axis=1)) * scale


def _meetings(loads: _Loads, sizes: _CubeSizes, test: _Test, population: Population, named: _Naming) -> float:
    """Hosts below the threshold that a bigger host in several of their columns lifts above it."""
    if test.threshold <= 4:
        return 0.0
    arrays, half = sizes.arrays, test.threshold / 2
    edges = np.concatenate([np.geomspace(1.0, half, FAR)[:-1], np.linspace(half, test.threshold, FAR)])
    low, many = population.merged(edges)
    big, hosts = population.merged(np.geomspace(max(half / 8, 2.0), 2 * CAP, FAR + 1))
    own = -np.expm1(-big / test.rows)[:, np.newaxis]  # q
    others = float((loads.weights * loads.fills[:, -1]).sum())  # s: strangers in the columns that both share
    filled = own + (1 - own) * others
    expected, small = many * named.chance(low), low[:, np.newaxis, np.newaxis]
    lifted = 0.0
    for met in range(2, arrays + 1):
        rate = math.comb(arrays, met) / (float(sizes.columns) ** met * (TURNS << sizes.slice_bits))
        rest, weights = _bands(loads.fills[:, met:].prod(axis=1), loads.weights, 1e-3, 2.0)
        fills = [filled] * met + [rest ** (1 / (arrays - met))] * (arrays - met) if met < arrays else [filled] * met
        together = (own + (1 - own) * others**met) * rest
        gained = test.passes(small, fills, together) - test.passes(small, fills, filled**met * rest)
        lifted += rate * float(expected @ (np.maximum(gained, 0.0) @ weights) @ hosts)
    return lifted


def _bands(values: Floats, weights: Floats, finest: float, each: float = 1.1) -> tuple[Floats, Floats]:
    """Replace weighted values by few: their means in bands, each wider than the last by the same factor."""
    bands = np.log1p(values / finest) / math.log(each)
    numbers = bands.astype(np.int64)
    sums = np.bincount(numbers, weights).astype(np.float64)
    full = sums > 0
    return np.bincount(numbers, weights * values)[full] / sums[full], sums[full]


def _nobody() -> tuple[Floats, Floats]:
    return np.empty(0), np.empty(0)


def _work(
    sizes: _CubeSizes, threshold: float, population: Population, load: Floats, named: _Naming
) -> tuple[float, float]:
    """Hot columns, and hosts that are named and have only hot columns: those that a restore looks at."""
    rows = 1 << sizes.column_bits
    step = rows / (POINTS // 32)
    least = rows * math.log(rows / max(zero_limit(sizes.column_bits, threshold), 1))  # pairs that make a column hot
    below = np.concatenate([np.zeros(1), np.cumsum(load)])
    peers, hosts = population.merged(np.geomspace(1.0, 2 * CAP, 4 * FAR + 1))
    wanted = np.ceil((least - np.append(0.0, peers)) / step)
    hot = 1 - below[np.clip(wanted, 0, POINTS).astype(np.int64)]
    candidates = float((hot[1:] ** sizes.arrays * hosts * named.chance(peers)).sum())
    return float(hot[0] * sizes.arrays * (sizes.columns << sizes.slice_bits)), candidates


def _entropy(fills: Floats) -> Floats:
    """Bits that a row carries, at best, when such a share of rows is set."""
    p = np.clip(fills, 1e-12, 1 - 1e-12)
    bits: Floats = -(p * np.log2(p) + (1 - p) * np.log2(1 - p))
    return bits


def _wire_bytes(sizes: _CubeSizes, columns: float, entropy: float) -> float:
    """Bytes of the compressed columns, a tenth above their entropy, and of labels as they are."""
    labels = columns * (8 * sizes.key_bits // 32 << sizes.label_bits)
    return columns * (1 << sizes.column_bits) / 8 * min(1.0, 1.1 * entropy) + labels


def _restore_seconds(sizes: _CubeSizes, threshold: float, columns: float, work: tuple[float, float, float]) -> float:
    """Time of a restore: zero counts, labels of hot columns, a first look at candidates, all rows of true hosts."""
    hot, candidates, true = work
    look = 8 * prefix_test(sizes.column_bits, threshold).words * sizes.arrays
    whole = true * sizes.arrays * (1 << sizes.column_bits) / 8
    return (
        columns * SECONDS_PER_COLUMN
        + hot * (1 << sizes.label_bits) * SECONDS_PER_LABEL
        + candidates * (SECONDS_PER_CANDIDATE + look * SECONDS_PER_BYTE)
        + whole * SECONDS_PER_BYTE
    )
