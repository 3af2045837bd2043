"""Predict the work of a restore and the size of a file."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from superhosts.detectors.plan.formulas import zero_limit
from superhosts.detectors.plan.naming import Naming
from superhosts.detectors.plan.population import CAP, Floats, Population
from superhosts.detectors.plan.sizes import CubeSizes

CLASSES = 96  # classes of hosts by size

# Time of a restore on one core, measured within 25 % in windows of 0.1 M to 20 M flows at thresholds 5, 128 and 1024.
SECONDS_PER_COLUMN = 2e-8
SECONDS_PER_LABEL = 8e-9
SECONDS_PER_CANDIDATE = 7e-7
SECONDS_PER_BYTE = 3.5e-10  # of the columns of hosts that pass the tests of their first words


class Work(NamedTuple):
    """What a restore does."""

    hot_columns: float
    candidates: float  # named hosts with only hot columns
    seconds: float  # order of magnitude, on one core


def restore_work(
    sizes: CubeSizes, threshold: float, population: Population, load: tuple[Floats, float], named: Naming
) -> Work:
    """Return the work of a restore: zero counts, labels of hot columns, tests of candidates, rows of true hosts.

    `load` is the distribution of a column's pairs and its step. All numbers of pairs are of written ones.
    """
    chances, step = load
    rows, columns = 1 << sizes.column_bits, sizes.arrays * sizes.columns << sizes.slice_bits
    least = rows * math.log(rows / max(zero_limit(sizes.column_bits, threshold), 1))  # pairs that make a column hot
    below = np.concatenate([np.zeros(1), np.cumsum(chances)])
    peers, hosts = population.merged(np.geomspace(population.peers.min(), 2 * CAP, CLASSES + 1))
    wanted = np.ceil((least - np.append(0.0, peers)) / step)
    hot = 1 - below[np.clip(wanted, 0, len(chances)).astype(np.int64)]
    hot_columns = float(hot[0] * columns)
    candidates = float((hot[1:] ** sizes.arrays * hosts * named.candidate_chance(peers)).sum())
    whole = population.at_least(threshold) * sizes.arrays * rows / 8
    seconds = (
        columns * SECONDS_PER_COLUMN
        + hot_columns * (1 << sizes.label_bits) * SECONDS_PER_LABEL
        + candidates * SECONDS_PER_CANDIDATE
        + whole * SECONDS_PER_BYTE
    )
    return Work(hot_columns, candidates, seconds)


def rows_bytes(sizes: CubeSizes, written: Population) -> float:
    """Return the bytes of a file that lists rows of hosts: the rows, a little above their entropy, hosts and labels.

    `written` has the numbers of written pairs.
    """
    rows, hosts = 1 << sizes.column_bits, max(float(written.hosts.sum()), 1.0)
    set_rows = np.maximum(rows * -np.expm1(-written.peers / rows), 1e-9)
    p = np.clip(set_rows / rows, 1e-12, 1 - 1e-12)
    entropy = -rows * (p * np.log2(p) + (1 - p) * np.log2(1 - p))
    names = hosts * max(sizes.key_bits + 3 - math.log2(hosts), 3.0)
    competing = 1 - (1 - 2.0**-sizes.share_bits) ** written.peers
    labels = min(float((written.hosts * competing).sum()), sizes.columns << sizes.slice_bits + sizes.label_bits)
    return (1.06 * float((written.hosts * entropy).sum()) + names + 32 * sizes.arrays * labels) / 8


def wire_bytes(sizes: CubeSizes, load: Floats, fills: Floats) -> float:
    """Return the bytes of the compressed columns, a tenth above their entropy, and of the uncompressed labels.

    `load` is the distribution of a column's pairs, `fills` the share of its rows that each load sets.
    """
    columns = float(sizes.arrays * sizes.columns << sizes.slice_bits)
    labels = columns * (8 * sizes.key_bits // 32 << sizes.label_bits)
    p = np.clip(fills, 1e-12, 1 - 1e-12)
    entropy = float((load * -(p * np.log2(p) + (1 - p) * np.log2(1 - p))).sum())
    return columns * (1 << sizes.column_bits) / 8 * min(1.0, 1.1 * entropy) + labels
