"""Estimates numbers of peers and confidence intervals from zero counts, removing the noise of other hosts per host.

A host's own peers leave a fraction u = e^(−n/g) of the rows free. Other hosts set a row of column i with probability
p_i, so the k columns have zero fractions z_i = u(1 − p_i), and their AND has z = u(1 − p_1···p_k): k+1 equations for
k+1 unknowns. Their solution is the maximum-likelihood estimate. The paper instead subtracts one average noise for all
hosts of a slice, which overestimates a host that shares a column with a big host.

The variance is that of linear counting, increased by the noise that remains in the AND: with t = n/g, P = Π p_i and
D = 1 − P·(1 + Σ (1−p_i)/p_i), Var(n) = g·(e^t·(1 + P/D) − t − 1).

If fewer than 16 zeros are left, or D ≤ 0, the equations are nearly singular. The estimator then uses the mean fill of
each array in the host's slice as p_i, within the bounds that the host's own columns set: p_i is between 1 − z_i/z (the
host alone filled its AND) and 1 − z_i (the host has no peers). This keeps a small host in two full columns from being
mistaken for a big one. Where other hosts fill all but one of a host's columns, nothing distinguishes its own bits in
the last column from those of others, so the interval begins at 0. If the AND has no zero left, the host is saturated:
only a lower bound is known.

If only one in s pairs is written, the number is s times what the columns show, and sampling adds n·(s − 1) to its
variance. Giant columns are a second measurement of this kind, which continues where the plain columns are full; of the
two, the one with the smaller variance counts.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core.device import run_parallel, split_evenly
from superhosts.core.results import UNBOUNDED
from superhosts.detectors.formulas import saturation_point
from superhosts.jit.cache import compiled

Floats = NDArray[np.float64]
CONFIDENCE = 1.959963984540054  # standard deviations of a two-sided 95 % interval
MIN_ZEROS = 16  # zeros of the AND; with fewer, the equations are nearly singular
FILLED = -math.log(0.025)  # 3.69; with this many zeros expected, none is left once in 40 times
LANES = 16  # hosts that are solved together
MEASURED_HOSTS = 1 << 15  # hosts that a thread measures at a time
PRECISION = 1e-10  # the last step of Newton's method
SINGULAR = 1e-9  # D at or below which the equations do not distinguish the host from its neighbours


class Evidence(NamedTuple):
    """What a sketch shows about some hosts: integer counts, so that the result is the same on every device."""

    zeros: NDArray[np.int32]  # (hosts, k): zero bits of each column
    common: NDArray[np.int32]  # (hosts,): zero bits of their AND
    fills: Floats  # (hosts, k): mean fill of each array in the host's slice


class Saturation(NamedTuple):
    """What is known about a host whose AND has no zero left: integers, the same for all such hosts of a sketch."""

    peers: int  # the number with which one zero is expected, typical of hosts that leave none
    low: int  # with fewer peers, a zero is left 39 times out of 40


class Measured(NamedTuple):
    peers: Floats
    deviations: Floats
    doubtful: NDArray[np.bool_]  # all but one of the columns are full: the host may have no peers at all
    full: NDArray[np.bool_]  # the AND has no zero left; the other fields are meaningless

    def select(self, chosen: NDArray[np.intp]) -> Measured:
        return Measured(self.peers[chosen], self.deviations[chosen], self.doubtful[chosen], self.full[chosen])


class Estimate(NamedTuple):
    """Numbers of peers, unrounded, and their 95 % confidence intervals, rounded outward."""

    peers: Floats
    low: NDArray[np.int64]
    high: NDArray[np.int64]
    saturated: NDArray[np.bool_]

    def select(self, keep: NDArray[np.intp]) -> Estimate:
        return Estimate(self.peers.take(keep), self.low.take(keep), self.high.take(keep), self.saturated.take(keep))


# Hosts are solved LANES at a time, so that the compiler vectorizes all loops over lanes. One array has all numbers of a
# group, because the compiler cannot tell whether several arrays overlap. These are its rows:
COMMON, FREE, INVERSE, LOW, HIGH, PRODUCT, SUM, MOVED, ZEROS = range(9)  # ZEROS is the first of k rows.


@compiled
def _expand(lanes: Floats, arrays: int) -> None:
    """Compute Π(1 − z_i/u) and Σ z_i/u·Π_{j≠i}(1 − z_j/u), of which D and the slope of the equation consist."""
    for lane in range(LANES):
        lanes[INVERSE * LANES + lane] = 1.0 / lanes[FREE * LANES + lane]
        lanes[PRODUCT * LANES + lane], lanes[SUM * LANES + lane] = 1.0, 0.0
    for i in range(ZEROS, ZEROS + arrays):
        for lane in range(LANES):
            own = lanes[i * LANES + lane] * lanes[INVERSE * LANES + lane]
            product = lanes[PRODUCT * LANES + lane]
            lanes[SUM * LANES + lane] = lanes[SUM * LANES + lane] * (1.0 - own) + product * own
            lanes[PRODUCT * LANES + lane] = product * (1.0 - own)


@compiled
def _free_rows(lanes: Floats, arrays: int) -> None:
    """Solve u·(1 − Π(1 − z_i/u)) = z for u, the fraction of rows that the host's own peers leave free."""
    for lane in range(LANES):
        lanes[FREE * LANES + lane], lanes[HIGH * LANES + lane] = lanes[COMMON * LANES + lane], 1.0
    for i in range(ZEROS, ZEROS + arrays):
        for lane in range(LANES):
            lanes[FREE * LANES + lane] = max(lanes[FREE * LANES + lane], lanes[i * LANES + lane])
    _expand(lanes, arrays)
    for lane in range(LANES):  # Other hosts usually add little to the AND.
        low = lanes[FREE * LANES + lane]
        u = lanes[COMMON * LANES + lane] / (1.0 - lanes[PRODUCT * LANES + lane])
        lanes[LOW * LANES + lane], lanes[FREE * LANES + lane] = low, min(1.0, max(low, u))
        lanes[MOVED * LANES + lane] = 1.0
    for _ in range(60):  # Newton's method, with bisection if a step leaves the bracket; two or three steps suffice.
        _expand(lanes, arrays)
        for lane in range(LANES):
            u, product, slope = lanes[FREE * LANES + lane], lanes[PRODUCT * LANES + lane], lanes[SUM * LANES + lane]
            slope = 1.0 - product - slope
            over = u * (1.0 - product) - lanes[COMMON * LANES + lane]
            low = u if over < 0.0 else lanes[LOW * LANES + lane]
            high = lanes[HIGH * LANES + lane] if over < 0.0 else u
            step = u - over / slope if slope > 0.0 else 0.0
            step = 1.0 if step > 1.0 and high == 1.0 else step  # There may be no solution below 1.
            step = step if (step >= low) & (step <= high) else 0.5 * (low + high)
            # A host that is solved stays as it is: its answer must not depend on the others of its group.
            step = step if lanes[MOVED * LANES + lane] > PRECISION else u
            lanes[LOW * LANES + lane], lanes[HIGH * LANES + lane], lanes[FREE * LANES + lane] = low, high, step
            lanes[MOVED * LANES + lane] = abs(step - u)
        moved = 0.0
        for lane in range(LANES):
            moved = max(moved, lanes[MOVED * LANES + lane])
        if moved <= PRECISION:  # The error is about the square of the last step.
            break
    _expand(lanes, arrays)


@compiled
def _estimate_lane(lanes: Floats, fills: Floats, first: int, host: int, rows: int) -> tuple[float, float]:
    """Return the number of peers and its variance for one host of the solved group that begins with `first`."""
    lane = host - first
    u, common = lanes[FREE * LANES + lane], lanes[COMMON * LANES + lane]
    noise = max(0.0, lanes[PRODUCT * LANES + lane])
    spread = 1.0 - noise - lanes[SUM * LANES + lane]  # D, computed without dividing by p_i, which may be 0
    ratio = noise / spread
    if common * rows < MIN_ZEROS or spread <= SINGULAR:
        noise = 1.0
        for i in range(fills.shape[1]):
            z = lanes[(ZEROS + i) * LANES + lane]
            noise *= min(max(fills[host, i], 1.0 - z / common), 1.0 - z)
        u = min(1.0, common / (1.0 - noise)) if noise < 1 else 1.0
        ratio = noise / (1.0 - noise) if noise < 1 else 0.0
    t = -math.log(u)
    return rows * t, max(0.0, rows * ((1.0 + ratio) / u - t - 1.0))


def saturation_of(rows: int, free: float = 1.0, sample: int = 1) -> Saturation:
    """Return what is known about a host that left no zero in `rows` rows, of which others leave the fraction `free`.

    n peers leave no zero with probability exp(−g·e^(−n/g)), which is 0.025 at n = g·(ln g − ln 3.69): the lower bound.
    With `sample`, only one in `sample` peers sets a row.
    """
    return Saturation(saturation_point(rows, free, sample), saturation_point(rows, free / FILLED, sample))


@compiled
def measure(evidence: Evidence, rows: int, sample: int = 1) -> Measured:
    zeros, common, fills = evidence
    count, arrays = zeros.shape
    peers, deviations = np.zeros(count), np.zeros(count)
    doubtful, full = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    lanes, one = np.empty((ZEROS + arrays) * LANES), 1 / rows
    for first in range(0, count, LANES):
        for lane in range(LANES):
            host = min(first + lane, count - 1)
            lanes[COMMON * LANES + lane] = max(1, common[host]) * one
            for i in range(arrays):
                lanes[(ZEROS + i) * LANES + lane] = zeros[host, i] * one
        _free_rows(lanes, arrays)
        for host in range(first, min(first + LANES, count)):
            full[host] = common[host] == 0
            if not full[host]:
                number, variance = _estimate_lane(lanes, fills, first, host, rows)
                peers[host] = sample * number
                deviations[host] = math.sqrt(sample * sample * variance + sample * number * (sample - 1))
                quiet = 0  # columns that are not nearly full
                for i in range(arrays):
                    quiet += zeros[host, i] >= MIN_ZEROS
                doubtful[host] = quiet == 1 and arrays > 1
    return Measured(peers, deviations, doubtful, full)


def measure_all(evidence: Evidence, rows: int, sample: int, threads: int) -> Measured:
    """Return `measure` of the same evidence, on all threads if it is about many hosts."""
    hosts = len(evidence.common)
    if hosts < 2 * MEASURED_HOSTS or threads < 2:
        return measure(evidence, rows, sample)
    spans = split_evenly(hosts, hosts // MEASURED_HOSTS)
    zeros, common, fills = evidence
    calls = [(Evidence(zeros[a:b], common[a:b], fills[a:b]), rows, sample) for a, b in spans]
    found = run_parallel(measure, calls, threads)
    return Measured(*(np.concatenate(columns) for columns in zip(*found, strict=True)))


def estimate(evidence: Evidence, rows: int) -> Estimate:
    return conclude(measure(evidence, rows), saturation_of(rows))


@compiled
def better_of(plain: Measured, giant: Measured) -> Measured:
    takes = plain.full | (~giant.full & (giant.deviations < plain.deviations))
    return Measured(
        np.where(takes, giant.peers, plain.peers),
        np.where(takes, giant.deviations, plain.deviations),
        np.where(takes, giant.doubtful, plain.doubtful),
        np.where(takes, giant.full, plain.full),
    )


@compiled
def conclude(found: Measured, known: Saturation) -> Estimate:
    """Return measurements as estimates with intervals; `known` is what is known about saturated hosts."""
    result = interval(found.peers, found.deviations)
    for host in range(len(found.peers)):
        if found.doubtful[host]:
            result.low[host] = 0
    return saturate(result, found.full, known)


@compiled
def interval(peers: Floats, deviations: Floats, crowd: float = 0.0) -> Estimate:
    """Return 95 % intervals, rounded outward. `crowd`, peers that others may have added, lowers the lower bound."""
    low, high = np.empty(len(peers), np.int64), np.empty(len(peers), np.int64)
    for host in range(len(peers)):
        reach = CONFIDENCE * deviations[host]
        low[host] = np.int64(max(0.0, np.floor(peers[host] - crowd - reach)))
        high[host] = np.int64(np.ceil(peers[host] + reach))
    return Estimate(peers, low, high, np.zeros(len(peers), np.bool_))


@compiled
def saturate(found: Estimate, full: NDArray[np.bool_], known: Saturation, crowd: float = 0.0) -> Estimate:
    """Replace the estimates of saturated hosts (`full`) by what is known about them; they have no upper bound."""
    peers, low, high = found.peers.copy(), found.low.copy(), found.high.copy()
    for host in range(len(full)):
        if full[host]:
            peers[host], high[host] = known.peers, UNBOUNDED
            low[host] = np.int64(max(0.0, np.floor(known.low - crowd)))
    return Estimate(peers, low, high, full)


def estimate_by_mean(evidence: Evidence, rows: int) -> Estimate:
    """Estimate as in the paper's Theorem 2: one noise ε per slice, the product of the mean fills of its arrays."""
    noise = np.minimum(evidence.fills.prod(axis=1), 1 - 1e-12)
    free = np.minimum(1.0, np.maximum(evidence.common, 1) / rows / (1 - noise))
    t = -np.log(free)
    variances = rows * (np.exp(t) * (1 + noise / (1 - noise)) - t - 1)
    found = interval(rows * t, np.sqrt(np.maximum(0.0, variances)))
    return saturate(found, evidence.common == 0, saturation_of(rows))
