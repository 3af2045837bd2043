"""From zero counts to a number of peers with an interval: the noise of other hosts is removed host by host.

A host's own peers leave a fraction u = e^(−n/g) of the rows free. Other hosts hit column i with probability p_i, so
the k columns show zero fractions z_i = u(1 − p_i), and their AND shows z = u(1 − p_1···p_k): k+1 equations for k+1
unknowns. Their solution is the maximum-likelihood estimate. (The paper subtracts one average noise for
all hosts of a slice instead; whoever shares a column with a big host is then over-estimated.)

The variance is that of linear counting, raised by the noise that stays in the AND: with t = n/g, P = Π p_i and
D = 1 − P·(1 + Σ (1−p_i)/p_i), Var(n) = g·(e^t·(1 + P/D) − t − 1).

Where fewer than 16 zeros are left, or D ≤ 0, the equations are nearly singular, and the mean fill of each array in
the host's slice takes the place of p_i, as far as the host's own columns allow it: p_i lies between 1 − z_i/z (the
host is as big as its AND) and 1 − z_i (it is nothing). A small host in two full columns is thereby not taken for a
big one. With no zero left in the AND the host is saturated: typically g·ln g peers or more, and only a lower bound is
sure.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.compiled import compiled
from superhosts.results import UNBOUNDED

Floats = NDArray[np.float64]
CONFIDENCE = 1.959963984540054  # two-sided 95 %
FEW_ZEROS = 16
FILLED = -math.log(0.025)  # 3.69: so many zeros expected, and none seen, once in 40
SINGULAR = 1e-9  # D of equations that do not tell the host from its neighbours


class Evidence(NamedTuple):
    """What the sketch shows of some hosts: integers, so that every device decides alike."""

    zeros: NDArray[np.int32]  # (hosts, k): zero bits of each column
    common: NDArray[np.int32]  # (hosts,): zero bits of their AND
    fills: Floats  # (hosts, k): mean fill of each array in the host's slice


class Saturation(NamedTuple):
    """What is known of a host that has left no zero: whole numbers, the same for all such hosts of a sketch."""

    peers: int  # with so many peers one zero is expected: the typical number at which none is left
    low: int  # with fewer peers a zero is left 39 times of 40


class Estimate(NamedTuple):
    """Numbers of peers, unrounded, and their 95 % interval, rounded outward."""

    peers: Floats
    low: NDArray[np.int64]
    high: NDArray[np.int64]
    saturated: NDArray[np.bool_]

    def select(self, keep: NDArray[np.bool_]) -> Estimate:
        """Return the estimates of some hosts."""
        return Estimate(self.peers[keep], self.low[keep], self.high[keep], self.saturated[keep])


@compiled
def free_rows(zeros: Floats, common: float) -> float:
    """Solve u·(1 − Π(1 − z_i/u)) = z for u, the fraction of rows that the host's own peers leave free."""
    low = common
    for z in zeros:
        low = max(low, z)
    high = 1.0
    u = min(1.0, low * 1.01)  # what others leave in the AND is mostly little
    for _ in range(60):  # Newton's steps, and halving where one would leave the bracket: four or five do
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
    """Return peers and variance of one host from zero fractions; `common` must not be 0."""
    u = free_rows(zeros, common)
    noise = 1.0
    for z in zeros:
        noise *= max(0.0, 1.0 - z / u)
    spread = 1.0 - noise  # D, written so that a column without noise does not divide by zero
    for i in range(len(zeros)):
        others = 1.0
        for j in range(len(zeros)):
            if j != i:
                others *= max(0.0, 1.0 - zeros[j] / u)
        spread -= others * zeros[i] / u
    ratio = noise / spread if spread > SINGULAR else 0.0
    if common * rows < FEW_ZEROS or spread <= SINGULAR:
        noise = 1.0
        for i in range(len(zeros)):
            noise *= min(max(fills[i], 1.0 - zeros[i] / common), 1.0 - zeros[i])
        u = min(1.0, common / (1.0 - noise)) if noise < 1 else 1.0
        ratio = noise / (1.0 - noise) if noise < 1 else 0.0
    t = -math.log(u)
    return rows * t, max(0.0, rows * (math.exp(t) * (1.0 + ratio) - t - 1.0))


@compiled
def _estimate_all(evidence: Evidence, rows: int, peers: Floats, deviations: Floats) -> None:
    fractions = np.empty(evidence.zeros.shape[1])
    for host in range(len(peers)):
        for i in range(len(fractions)):
            fractions[i] = evidence.zeros[host, i] / rows
        if evidence.common[host] > 0:
            found, variance = estimate_one(fractions, evidence.common[host] / rows, evidence.fills[host], rows)
            peers[host] = found
            deviations[host] = math.sqrt(variance)


def saturation_of(rows: int, free: float = 1.0, share: int = 1) -> Saturation:
    """Return what is known of a host without a zero left in so many rows, of which others leave a part free.

    n peers leave none with the probability exp(−g·e^(−n/g)): 0.025 at n = g·(ln g − ln 3.69), which is the lower bound.
    With `share`, rows take in only one of so many peers.
    """
    typical = math.log(max(rows * free, 1.0))
    return Saturation(*(max(0, math.floor(share * rows * n)) for n in (typical, typical - math.log(FILLED))))


def saturation_point(rows: int) -> int:
    """Peers with which a column of this many rows typically has no zero left."""
    return saturation_of(rows).peers


def estimate(evidence: Evidence, rows: int) -> Estimate:
    """Estimate the peers of every host in the evidence."""
    count = len(evidence.common)
    peers, deviations = np.zeros(count), np.zeros(count)
    _estimate_all(evidence, rows, peers, deviations)
    return saturate(interval(peers, deviations), evidence.common == 0, saturation_of(rows))


def interval(peers: Floats, deviations: Floats, crowd: float = 0.0) -> Estimate:
    """Return numbers with their 95 % interval, rounded outward, none of them saturated.

    `crowd` is what others may have added to a number: the interval reaches down by so much.
    """
    low = np.maximum(0, np.floor(peers - crowd - CONFIDENCE * deviations)).astype(np.int64)
    high = np.ceil(peers + CONFIDENCE * deviations).astype(np.int64)
    return Estimate(peers, low, high, np.zeros(len(peers), np.bool_))


def saturate(found: Estimate, full: NDArray[np.bool_], known: Saturation, crowd: float = 0.0) -> Estimate:
    """Put what is known of saturated hosts in the place of their numbers; there is no upper bound."""
    return Estimate(
        np.where(full, float(known.peers), found.peers),
        np.where(full, max(0, math.floor(known.low - crowd)), found.low),
        np.where(full, UNBOUNDED, found.high),
        full,
    )


def estimate_by_mean(evidence: Evidence, rows: int) -> Estimate:
    """Estimate as the paper's Theorem 2 does: one noise ε for a slice, the product of its arrays' mean fills."""
    noise = np.minimum(evidence.fills.prod(axis=1), 1 - 1e-12)
    free = np.minimum(1.0, np.maximum(evidence.common, 1) / rows / (1 - noise))
    t = -np.log(free)
    variances = rows * (np.exp(t) * (1 + noise / (1 - noise)) - t - 1)
    found = interval(rows * t, np.sqrt(np.maximum(0.0, variances)))
    return saturate(found, evidence.common == 0, saturation_of(rows))
