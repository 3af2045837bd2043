"""GPU benchmarks: `python benchmarks/gpu.py [--quick] [--results DIR]`. Writes a table and JSON.

Every rate covers complete calls of public methods, including kernel launches, from the call until the GPU is idle.
Each is reported with its hardware limit, measured in the same run: the speed at which this GPU copies its own memory,
or the speed of copies from host memory.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import numpy as np

from cases import THETA, Case
from harness import HERE, Report
from superhosts.core.device import choose_device, import_cuda
from superhosts.detectors.cbaa import Cbaa
from superhosts.detectors.cube import Cube
from superhosts.detectors.exact import Exact
from superhosts.detectors.gpu import driver
from superhosts.detectors.gpu.launch import Kernel
from superhosts.errors import UsageError
from superhosts.sources.synthetic.traffic import Traffic, window_flows, window_packets

sys.path.append(str(HERE.parent / "deploy"))
from kernels import to_ptx

REPEATS = 7
SEARCHES = 200
SHUFFLED_5M = Case("5 M flows shuffled", Traffic(flows=5_000_000, packets=1 << 27, super_hosts=600), "shuffled")
TRAINS_5M = Case("5 M flows in trains", SHUFFLED_5M.traffic, "trains")
SHUFFLED_50M = Case("50 M flows shuffled", Traffic(flows=50_000_000, packets=1 << 28, super_hosts=3700), "shuffled")


def main() -> None:
    """Run all measurements, print the table, write the files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="inputs ten times smaller")
    parser.add_argument("--results", type=Path, default=HERE / "results")
    options = parser.parse_args()
    try:
        choose_device("cuda")
    except UsageError as error:
        raise SystemExit(f"benchmarks/gpu.py: {error}") from None
    report = Report(quick=options.quick)
    report.machine["gpu"] = gpu_name()
    print(f"{report.machine['gpu']}, commit {report.commit}")
    limits = measure_limits(report)
    measure_merge(report, limits)
    for full in (SHUFFLED_5M, TRAINS_5M, SHUFFLED_50M):
        started = time.perf_counter()
        case = full.quick() if options.quick else full
        hosts, peers = on_gpu(case)
        measure_case(report, case, hosts, peers, limits)
        measure_ptx(report, case, hosts, peers)
        if full is SHUFFLED_5M:
            measure_host_memory(report, case, hosts, peers, limits)
            measure_exact(report, case, hosts, peers)
        report.seconds[case.label] = time.perf_counter() - started
        del hosts, peers
    print("\n" + report.table())
    kind = "gpu-quick" if options.quick else "gpu"
    name = f"{kind}-{report.place}"
    for path in report.write(options.results, name, title="GPU benchmarks"):
        print(path)


def gpu_name() -> str:
    """Return name, memory and driver of the GPU."""
    import cupy

    gpu = cupy.cuda.runtime.getDeviceProperties(0)
    driver = cupy.cuda.runtime.driverGetVersion()
    sizes = f"{gpu['multiProcessorCount']} multiprocessors, {gpu['totalGlobalMem'] / 2**30:.0f} GiB"
    cache = f"L2 {gpu['l2CacheSize'] / 2**20:.0f} MiB"
    return f"{gpu['name'].decode()}, {sizes}, {cache}, driver for CUDA {driver // 1000}.{driver % 1000 // 10}"


def on_gpu(case: Case) -> tuple[Any, Any]:
    """Return hosts and peers of a case as CuPy arrays. The GPU expands the flows to packets."""
    import cupy

    hosts, peers = (cupy.asarray(column) for column in window_flows(case.traffic, 0))
    picks = cupy.asarray(window_packets(case.traffic, 0, order="trains" if case.order == "trains" else "shuffled"))
    return hosts[picks], peers[picks]


def seconds(call: Callable[[], Any], prepare: Callable[[], Any], repeats: int = REPEATS) -> list[float]:
    """Return the seconds of several calls, each until the GPU is idle. The first call, which compiles, is left out."""
    import cupy

    wait = cupy.cuda.runtime.deviceSynchronize  # takes one microsecond; numba's takes ten
    runs = []
    for _ in range(repeats + 1):
        prepare()
        wait()
        start = time.perf_counter()
        call()
        wait()
        runs.append(time.perf_counter() - start)
    return runs[1:]


def add_rate(report: Report, name: str, pairs: int, runs: list[float], note: str) -> float:
    """Add the median rate in G pairs/s, with all runs, and return it."""
    rates = [pairs / run / 1e9 for run in runs]
    report.add("update", name, median(rates), "G pairs/s", note=note, runs=rates)
    return median(rates)


def measure_limits(report: Report) -> dict[str, float]:
    """Measure the bandwidths of the GPU's memory and of its bus, in bytes per second."""
    import cupy

    size = 1 << 30
    here, there = cupy.zeros(size // 4, np.uint32), cupy.zeros(size // 4, np.uint32)
    copy = median(seconds(lambda: cupy.copyto(there, here), lambda: None))
    pinned = import_cuda().pinned_array(size // 4, np.uint32)
    pinned[:] = 1
    bus = median(seconds(lambda: there.set(pinned), lambda: None))
    report.add("limits", "limit: copy within the GPU, read and written", 2 * size / copy / 1e9, "GB/s")
    report.add("limits", "limit: pinned host memory to the GPU", size / bus / 1e9, "GB/s")
    return {"copy": 2 * size / copy, "bus": size / bus}


def measure_case(report: Report, case: Case, hosts: Any, peers: Any, limits: dict[str, float]) -> None:
    """Measure update and restore of both detectors with pairs in GPU memory."""
    for detector in (Cube(device="cuda"), Cbaa(device="cuda")):
        runs = seconds(lambda d=detector: (d.update(hosts, peers), d.flush()), detector.clear)
        note = f"reading the pairs once: {limits['copy'] / 8e9:.0f} G pairs/s"
        add_rate(report, f"GPU update, {case.label}: {detector.name}", len(hosts), runs, note)
        if case.order == "trains":
            continue
        search = detector.search_for(THETA)
        found, _ = detector.engine.search(search)
        runs = [1e3 * run for run in seconds(lambda d=detector, s=search: d.engine.search(s), lambda: None, SEARCHES)]
        bits = detector.geometry.memory / limits["copy"] * 1e3
        note = f"reading the sketch once: {bits:.3f} ms; {len(found)} candidates on the host, best {min(runs):.3f}"
        report.add("restore", f"GPU restore, {case.label}: {detector.name}", median(runs), "ms", note=note, runs=runs)
        score = case.score(detector.super_hosts(THETA).hosts)
        runs = [1e3 * run for run in seconds(lambda d=detector: d.super_hosts(THETA), lambda: None, SEARCHES)]
        name = f"GPU super_hosts(), {case.label}: {detector.name}"
        report.add("restore", name, median(runs), "ms", note=f"with all estimates; {score}", runs=runs)


def measure_ptx(report: Report, case: Case, hosts: Any, peers: Any) -> None:
    """Compare kernels as a wheel brings them with those that numba compiles for this GPU, in turn."""
    compiled, shipped = Cube(device="cuda"), Cube(device="cuda")
    for cube, load in ((compiled, Kernel.load), (shipped, load_ptx)):
        with patch.object(Kernel, "load", load):
            for _ in range(3):  # The third search is the first that only replays.
                cube.update(hosts, peers)
                cube.super_hosts(THETA)

    def update(cube: Cube) -> None:
        cube.clear()
        cube.update(hosts, peers)
        cube.flush()

    def search(cube: Cube) -> None:
        cube.super_hosts(THETA)

    for name, work, repeats in (("update", update, REPEATS), ("super_hosts()", search, SEARCHES)):
        runs = [
            [seconds(lambda c=c, w=work: w(c), lambda: None, 1)[0] for c in (compiled, shipped)] for _ in range(repeats)
        ]
        ratios = [slow / fast for slow, fast in runs]
        report.add("wheel", f"GPU {name}, {case.label}: speed of PTX / compiled", median(ratios), "x", runs=ratios)


def load_ptx(kernel: Kernel, gpu: int, arguments: tuple[Any, ...]) -> driver.Function:
    name, code = to_ptx(kernel.function, arguments)
    return driver.Function(code, name)


def measure_host_memory(report: Report, case: Case, hosts: Any, peers: Any, limits: dict[str, float]) -> None:
    """Measure updates from pinned and from ordinary host memory."""
    import cupy

    cube = Cube(device="cuda")
    ordinary = [cupy.asnumpy(column) for column in (hosts, peers)]
    pinned = [import_cuda().pinned_array(len(hosts), np.uint32) for _ in range(2)]
    for target, source in zip(pinned, ordinary, strict=True):
        target[:] = source
    bus = limits["bus"] / 8e9
    for kind, columns in (("pinned", pinned), ("ordinary", ordinary)):
        runs = seconds(lambda c=columns: (cube.update(*c), cube.flush()), cube.clear)
        note = f"the bus carries {bus:.2f} G pairs/s"
        rate = add_rate(report, f"GPU update from {kind} host memory", len(hosts), runs, note)
        if kind == "pinned":
            report.add("update", "GPU update from pinned host memory, share of the copy", 100 * rate / bus, "%")
    score = case.score(cube.super_hosts(THETA).hosts)
    report.add("update", "errors of that window", score.missed + score.false, "hosts", note=str(score))


def measure_exact(report: Report, case: Case, hosts: Any, peers: Any) -> None:
    """Measure a whole window, update and restore, compared with the exact answer by radix sort."""
    rates = {}
    for detector in (Cube(device="cuda"), Exact(device="cuda")):
        runs = seconds(lambda d=detector: (d.update(hosts, peers), d.super_hosts(THETA)), detector.clear)
        score = case.score(detector.super_hosts(THETA).hosts)
        name = f"GPU whole window, {case.label}: {detector.name}"
        rates[detector.name] = add_rate(report, name, len(hosts), runs, str(score))
    report.add("update", "GPU whole window: cube / exact", rates["cube"] / rates["exact"], "x")


def measure_merge(report: Report, limits: dict[str, float]) -> None:
    """Measure the merge of two cubes. The target has its old content before every run, so that each changes words."""
    one, other, content = Cube(device="cuda"), Cube(device="cuda"), Cube(device="cuda")
    columns = [np.random.default_rng(seed).integers(0, 1 << 32, 1_000_000, dtype=np.uint32) for seed in (1, 2)]
    other.update(*columns)
    content.update(columns[1], columns[0])

    def prepare() -> None:
        one.clear()
        one.merge(content)

    runs = [1e3 * run for run in seconds(lambda: one.merge(other), prepare, SEARCHES)]
    floor = 1e3 * 3 * one.memory / limits["copy"]
    note = f"two cubes read, one written: {floor:.3f} ms; best {min(runs):.3f}"
    report.add("merge", "GPU merge of a 128 MiB cube", median(runs), "ms", note=note, runs=runs)
    runs = [1e3 * run for run in seconds(lambda: one.merge(other), lambda: None, SEARCHES)]
    report.add("merge", "GPU merge of the same cube again", median(runs), "ms", note="no word changes", runs=runs)


if __name__ == "__main__":
    main()
