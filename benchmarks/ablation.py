"""Measure what each part of the cube is worth: `python benchmarks/ablation.py [--quick]`.

Every variant has the same memory as the default, dense, and sees the same windows, each with a key of its own. Some
variants are other geometries; others need a change of the source, which is made in a copy of it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

from cases import THETA, update_in_batches
from harness import HERE, Report
from superhosts.core.units import parse_size
from superhosts.detectors.cube import Cube, Geometry
from superhosts.detectors.estimate import Estimate, estimate_by_mean
from superhosts.detectors.formulas import Shape, columns_in
from superhosts.errors import ThresholdWarning
from superhosts.lab.scores import Truth, score
from superhosts.sources.synthetic.traffic import Traffic, window_flows, window_hosts

Changes = tuple[tuple[str, str, str], ...]  # file, what stands in it once, and what replaces it
ADDRESSING, INTRINSICS = "detectors/cube/addressing.py", "jit/intrinsics.py"
NO_ROTATION: Changes = (
    (ADDRESSING, "draw[1]) & MASK64) >> 26) & 63", "draw[1]) & MASK64) >> 26) & 0"),
    (INTRINSICS, "builder.add(pair, shifted(low(hashed), 26))", "pair"),
)
ONE_PRIORITY: Changes = (
    (ADDRESSING, "in range(array // (TICKET_ARRAYS + geometry.turned_lines)):", "in range(0 * array):"),
    (ADDRESSING, "shift = 16 * (array % (TICKET_ARRAYS + geometry.turned_lines))", "shift = 0 * array"),
    (
        ADDRESSING,
        "return carried & (np.uint64(1 << 15) * each)",
        "return (carried >> np.uint64(63)) * (np.uint64(1 << 15) * each)",
    ),
)


class Variant(NamedTuple):
    """A cube of the same memory as the default: other numbers of its geometry, its estimator, changes of its source."""

    sizes: dict[str, int] = {}  # noqa: RUF012
    by_mean: bool = False
    changes: Changes = ()


VARIANTS = {
    "the default": Variant(),
    "estimates by the mean fill of each array": Variant(by_mean=True),
    "lines not turned": Variant({"turned_lines": 0}),
    "neither lines nor words turned": Variant({"turned_lines": 0}, changes=NO_ROTATION),
    "one priority for all arrays": Variant(changes=ONE_PRIORITY),
    "one label for each column": Variant({"label_bits": 0}),
    "no giant columns": Variant({"giants": 0}),
    **{f"{arrays} arrays": Variant({"arrays": arrays}) for arrays in (2, 3, 4, 5, 6, 8)},
    **{f"columns of 2^{bits} rows": Variant({"column_bits": bits}) for bits in range(12, 19, 2)},
}


MEMORIES = ("16MiB", "4MiB")
FLOWS, SUPERS, WINDOWS = 5_000_000, 600, 6
Rates = dict[str, list[tuple[float, float]]]  # FNR and FPR in every window, by memory and variant


class ByMean(Cube):
    """A cube that takes the mean fill of each array for the noise in a host's columns."""

    def _estimates(self, mangled: Any, counts: Any) -> Estimate:
        return estimate_by_mean(self._evidence(mangled, counts), self.geometry.rows)


def main() -> None:
    """Measure all variants, those of a changed source in processes of their own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two small windows")
    parser.add_argument("--results", type=Path, default=HERE / "results")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.simplefilter("ignore", ThresholdWarning)
    if options.worker is not None:
        print(json.dumps(measure([options.worker], quick=options.quick)))
        return
    report = Report(quick=options.quick)
    start = time.perf_counter()
    found = measure([name for name, variant in VARIANTS.items() if not variant.changes], quick=options.quick)
    for name, variant in VARIANTS.items():
        if variant.changes:
            found |= elsewhere(name, quick=options.quick)
    for memory in MEMORIES:
        for name in VARIANTS:
            rates = found[f"{memory}: {name}"]
            runs = [100 * (fnr + fpr) for fnr, fpr in rates]
            fnr, fpr = (100 * fmean(column) for column in zip(*rates, strict=True))
            note = f"± {stdev(runs) / len(runs) ** 0.5:.2f}; FNR {fnr:.2f}, FPR {fpr:.2f}"
            report.add("ablation", f"FTR, {memory}: {name}", fmean(runs), "%", note=note, runs=runs)
    report.seconds["ablation"] = time.perf_counter() - start
    print("\n" + report.table())
    kind = "ablation-quick" if options.quick else "ablation"
    for path in report.write(options.results, f"{kind}-{report.place}", title="Ablation"):
        print(path)


def measure(names: list[str], *, quick: bool) -> Rates:
    """Measure these variants in every memory."""
    found: Rates = {f"{memory}: {name}": [] for memory in MEMORIES for name in names}
    flows, supers = (300_000, 40) if quick else (FLOWS, SUPERS)
    for seed in range(1, 2 + 1 if quick else WINDOWS + 1):
        traffic = Traffic(flows=flows, packets=flows, super_hosts=supers, seed=seed)
        hosts, peers = window_flows(traffic, 0)
        truth = Truth(*window_hosts(traffic, 0))
        for memory in MEMORIES:
            for name in names:
                cube = make(VARIANTS[name], memory, b"key %d of the ablation" % seed)
                update_in_batches(cube, hosts, peers)
                result = score(cube.super_hosts(THETA), truth, THETA)
                found[f"{memory}: {name}"].append((result.fnr, result.fpr))
    return found


def make(variant: Variant, memory: str, key: bytes) -> Cube:
    """Return the default with some numbers changed, and as many columns as fill the memory."""
    usual = Geometry.for_memory(memory)
    changed: Any = usual._replace(**variant.sizes)
    shape = Shape(changed.slice_bits, changed.arrays, changed.column_bits, changed.label_bits)
    columns, giants = columns_in(parse_size(memory) // (changed.arrays << changed.slice_bits), shape, 32)
    geometry = changed._replace(columns=columns, giants=variant.sizes.get("giants", giants))
    kind = ByMean if variant.by_mean else Cube
    return kind(geometry=geometry, key=key, device="cpu", exact=False)


def elsewhere(name: str, *, quick: bool) -> Rates:
    """Measure a variant with a copy of the source, in which its changes are made."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "src"
        shutil.copytree(HERE.parent / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        for file, old, new in VARIANTS[name].changes:
            place = source / "superhosts" / file
            text = place.read_text()
            if text.count(old) != 1:
                raise SystemExit(f"{file} has not once: {old}")
            place.write_text(text.replace(old, new))
        command = [sys.executable, __file__, "--worker", name, *(["--quick"] if quick else [])]
        environment = {**os.environ, "PYTHONPATH": str(source), "NUMBA_CACHE_DIR": str(Path(folder) / "cache")}
        answer = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
        found: Rates = json.loads(answer)
        return found


if __name__ == "__main__":
    main()
