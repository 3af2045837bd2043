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

from superhosts.compiled import compiled
from superhosts.results import UNBOUNDED

Floats = NDArray[np.float64]
CONFIDENCE = 1.959963984540054  # standard deviations of a two-sided 95 % interval
MIN_ZEROS = 16  # zeros of the AND; with fewer, the equations are nearly singular
FILLED = -math.log(0.025)  # 3.69; with this many zeros expected, none is left once in 40 times
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
    """Numbers of peers, unrounded, with their standard deviations."""

    peers: Floats
    deviations: Floats
    doubtful: NDArray[np.bool_]  # all but one of the columns are full: the host may have no peers at all
    full: NDArray[np.bool_]  # the AND has no zero left; the other fields are meaningless

    def select(self, chosen: NDArray[np.intp]) -> Measured:
        """Return the measurements of some hosts."""
        return Measured(self.peers[chosen], self.deviations[chosen], self.doubtful[chosen], self.full[chosen])


class Estimate(NamedTuple):
    """Numbers of peers, unrounded, and their 95 % confidence intervals, rounded outward."""

    peers: Floats
    low: NDArray[np.int64]
    high: NDArray[np.int64]
    saturated: NDArray[np.bool_]

    def select(self, keep: NDArray[np.bool_]) -> Estimate:
        """Return the estimates of the hosts in `keep`."""
        return Estimate(self.peers[keep], self.low[keep], self.high[keep], self.saturated[keep])


@compiled
def free_rows(zeros: Floats, common: float) -> float:
    """Solve u·(1 − Π(1 − z_i/u)) = z for u, the fraction of rows that the host's own peers leave free."""
    low = common
    for z in zeros:
        low = max(low, z)
    high = 1.0
    u = min(1.0, low * 1.01)  # Other hosts usually add little to the AND.
    for _ in range(60):  # Newton's method, with bisection if a step leaves the bracket; four or five steps suffice.
        product, slope, inverse = 1.0, 1.0, 1.0 / u
        for i in range(len(zeros)):
            product *= 1.0 - zeros[i] * inverse
            others = 1.0
            for j in range(len(zeros)):
                if j != i:
                    others *= 1.0 - zeros[j] * inverse
            slope -= others * zeros[i] * inverse
        slope -= product
        over = u * (1.0 - product) - common
        if over < 0.0:
            low = u
        else:
            high = u
        last, u = u, u - over / slope if slope > 0.0 else 0.0
        if not low <= u <= high:
            u = 0.5 * (low + high)
        if abs(u - last) <= 1e-15:
            break
    return u


@compiled
def estimate_one(zeros: Floats, common: float, fills: Floats, rows: int) -> tuple[float, float]:
    """Return the number of peers and its variance for one host from zero fractions. `common` must not be 0."""
    u = free_rows(zeros, common)
    noise = 1.0
    for z in zeros:
        noise *= max(0.0, 1.0 - z / u)
    spread = 1.0 - noise  # D, computed without dividing by p_i, which is 0 in a column without noise
    for i in range(len(zeros)):
        others = 1.0
        for j in range(len(zeros)):
            if j != i:
                others *= max(0.0, 1.0 - zeros[j] / u)
        spread -= others * zeros[i] / u
    ratio = noise / spread if spread > SINGULAR else 0.0
    if common * rows < MIN_ZEROS or spread <= SINGULAR:
        noise = 1.0
        for i in range(len(zeros)):
            noise *= min(max(fills[i], 1.0 - zeros[i] / common), 1.0 - zeros[i])
        u = min(1.0, common / (1.0 - noise)) if noise < 1 else 1.0
        ratio = noise / (1.0 - noise) if noise < 1 else 0.0
    t = -math.log(u)
    return rows * t, max(0.0, rows * (math.exp(t) * (1.0 + ratio) - t - 1.0))


@compiled
def _measure_all(evidence: Evidence, rows: int, peers: Floats, deviations: Floats, doubtful: NDArray[np.bool_]) -> None:
    fractions = np.empty(evidence.zeros.shape[1])
    for host in range(len(peers)):
        quiet = 0  # columns that are not nearly full
        for i in range(len(fractions)):
            fractions[i] = evidence.zeros[host, i] / rows
            quiet += evidence.zeros[host, i] >= MIN_ZEROS
        if evidence.common[host] > 0:
            found, variance = estimate_one(fractions, evidence.common[host] / rows, evidence.fills[host], rows)
            peers[host] = found
            deviations[host] = math.sqrt(variance)
            doubtful[host] = quiet == 1 and len(fractions) > 1


def saturation_of(rows: int, free: float = 1.0, share: int = 1) -> Saturation:
    """Return what is known about a host that left no zero in `rows` rows, of which others leave the fraction `free`.

    n peers leave no zero with probability exp(−g·e^(−n/g)), which is 0.025 at n = g·(ln g − ln 3.69): the lower bound.
    With `share`, only one in `share` peers sets a row.
    """
    typical = math.log(max(rows * free, 1.0))
    return Saturation(*(max(0, math.floor(share * rows * n)) for n in (typical, typical - math.log(FILLED))))


def saturation_point(rows: int) -> int:
    """Return the number of peers with which a column of `rows` rows typically has no zero left."""
    return saturation_of(rows).peers


def measure(evidence: Evidence, rows: int, share: int = 1) -> Measured:
    """Measure the peers of every host in the evidence, of which one in `share` is written."""
    count = len(evidence.common)
    peers, deviations, doubtful = np.zeros(count), np.zeros(count), np.zeros(count, np.bool_)
    _measure_all(evidence, rows, peers, deviations, doubtful)
    peers *= share
    deviations = np.sqrt((share * deviations) ** 2 + peers * (share - 1))
    return Measured(peers, deviations, doubtful, evidence.common == 0)


def estimate(evidence: Evidence, rows: int) -> Estimate:
    """Estimate the peers of every host in the evidence."""
    return conclude(measure(evidence, rows), saturation_of(rows))


def better_of(plain: Measured, giant: Measured) -> Measured:
    """Return the measurement with the smaller variance for each host."""
    takes = plain.full | (~giant.full & (giant.deviations < plain.deviations))
    return Measured(
        np.where(takes, giant.peers, plain.peers),
        np.where(takes, giant.deviations, plain.deviations),
        np.where(takes, giant.doubtful, plain.doubtful),
        np.where(takes, giant.full, plain.full),
    )


def conclude(found: Measured, known: Saturation) -> Estimate:
    """Return measurements as estimates with intervals; `known` is what is known about saturated hosts."""
    result = interval(found.peers, found.deviations)
    return saturate(result._replace(low=np.where(found.doubtful, 0, result.low)), found.full, known)


def interval(peers: Floats, deviations: Floats, crowd: float = 0.0) -> Estimate:
    """Return estimates with 95 % confidence intervals, rounded outward, and none of them saturated.

    `crowd` is the number of peers that other hosts may have added; it lowers the lower bound.
    """
    low = np.maximum(0, np.floor(peers - crowd - CONFIDENCE * deviations)).astype(np.int64)
    high = np.ceil(peers + CONFIDENCE * deviations).astype(np.int64)
    return Estimate(peers, low, high, np.zeros(len(peers), np.bool_))


def saturate(found: Estimate, full: NDArray[np.bool_], known: Saturation, crowd: float = 0.0) -> Estimate:
    """Replace the estimates of saturated hosts (`full`) by what is known about them; they have no upper bound."""
    return Estimate(
        np.where(full, float(known.peers), found.peers),
        np.where(full, max(0, math.floor(known.low - crowd)), found.low),
        np.where(full, UNBOUNDED, found.high),
        full,
    )


def estimate_by_mean(evidence: Evidence, rows: int) -> Estimate:
    """Estimate as in the paper's Theorem 2: one noise ε per slice, the product of the mean fills of its arrays."""
    noise = np.minimum(evidence.fills.prod(axis=1), 1 - 1e-12)
    free = np.minimum(1.0, np.maximum(evidence.common, 1) / rows / (1 - noise))
    t = -np.log(free)
    variances = rows * (np.exp(t) * (1 + noise / (1 - noise)) - t - 1)
    found = interval(rows * t, np.sqrt(np.maximum(0.0, variances)))
    return saturate(found, evidence.common == 0, saturation_of(rows))
