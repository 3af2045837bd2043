"""Section "restore": time from a filled sketch to the list of super hosts, and to the estimates of a million hosts."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray

from cases import FLOWS_5M, FLOWS_50M, THETA, update_in_batches
from harness import Report
from superhosts.detectors.cbaa import Cbaa
from superhosts.detectors.cube import Cube

BUDGET = 4.0  # seconds to spend on the repeats of one figure
LEAST, MOST = 11, 300  # limits of the number of repeats
ASKED = 1_000_000  # hosts whose peers are estimated


def run(report: Report, _folder: Path) -> None:
    """Measure both sizes."""
    for full in (FLOWS_5M, FLOWS_50M):
        case = full.quick() if report.quick else full
        hosts, peers = case.make()
        detectors = {
            "cube": Cube("128MiB", device="cpu"),
            "cube, dense": Cube("128MiB", device="cpu", exact=False),
            "cbaa": Cbaa("128MiB", device="cpu"),
        }
        for title, detector in detectors.items():
            update_in_batches(detector, hosts, peers)
            score = case.score(detector.super_hosts(THETA).hosts)
            detector.super_hosts(THETA)
            runs: list[float] = []
            while len(runs) < LEAST or (sum(runs) < 1000 * BUDGET and len(runs) < MOST):
                start = time.perf_counter()
                detector.super_hosts(THETA)
                runs.append(1e3 * (time.perf_counter() - start))
            name = f"restore, {case.label}: {title}"
            report.add("restore", name, median(runs), "ms, median", note=f"best {min(runs):.2f}; {score}", runs=runs)
            if title == "cube, dense":
                _estimate(report, case.label, detector, hosts)
            detector.clear()


def _estimate(report: Report, label: str, cube: Cube, hosts: NDArray[np.uint32]) -> None:
    """Measure the estimates of a million hosts, half of which the cube has seen."""
    seen = np.unique(hosts)[: ASKED // 2]
    asked = np.random.default_rng(1).permutation(np.concatenate([seen, ~seen[: ASKED - len(seen)]]))
    asked = np.resize(asked, ASKED)
    cube.estimate(asked)
    runs: list[float] = []
    for _ in range(5):
        start = time.perf_counter()
        cube.estimate(asked)
        runs.append(time.perf_counter() - start)
    report.add("restore", f"estimate, {label}: {ASKED:,} hosts", min(runs), "s", note="best of 5", runs=runs)
