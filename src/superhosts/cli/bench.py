"""`superhosts bench`: the speed of this machine."""

from __future__ import annotations

import json
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from superhosts.cli._progress import Progress
from superhosts.cli._summary import profile_lines
from superhosts.cli.usage.lab import Bench
from superhosts.core import defaults
from superhosts.core.device import gpus_of, import_cuda, simulated, thread_count
from superhosts.core.pairs import Addresses
from superhosts.core.profile import Profile, timing
from superhosts.core.text import counted
from superhosts.core.units import parse_count
from superhosts.detectors.cube import Cube
from superhosts.detectors.exact import Exact
from superhosts.sources.synthetic.traffic import Traffic, window_flows, window_packets

MEASUREMENTS = 8  # the traffic, two updates, restoring, merging, saving, the exact answer and the stages


def bench(options: Bench) -> None:
    traffic = Traffic(
        flows=parse_count(options.flows),
        packets=parse_count(options.packets),
        super_hosts=max(1, parse_count(options.flows) // 10_000),
    )
    cube = Cube(options.memory, device=options.device, exact=False)
    with Progress("measurements", MEASUREMENTS) as progress:
        figures, profile = _measure(cube, traffic, progress.step)
    if options.json:
        print(json.dumps({**figures, "profile": profile.as_json()}))
    else:
        width = max(map(len, figures))
        for name, value in figures.items():
            print(f"{name:{width}} {value if isinstance(value, str) else f'{value:,}'}")
        print()
        print(*profile_lines(profile), sep="\n")


def _measure(cube: Cube, traffic: Traffic, step: Callable[[], None]) -> tuple[dict[str, Any], Profile]:
    """Return the figures, and where the time goes. `step` is called before each measurement."""
    step()
    hosts, peers = window_flows(traffic, 0)
    figures: dict[str, Any] = {"machine": _machine(cube.device), "flows": traffic.flows, "pairs": traffic.packets}
    for order in ("trains", "shuffled"):
        step()
        picks = window_packets(traffic, 0, order=order)
        batch = hosts[picks], peers[picks]
        figures[f"update, {order} (M pairs/s)"] = update_rate(cube, *batch)
    if len(gpus_of(cube.device)) == 1 and not simulated():  # a batch is in the memory of one GPU
        figures["update from GPU memory, shuffled (M pairs/s)"] = update_rate(cube, *_on_gpu(cube.device, *batch))
    step()
    cube.super_hosts(defaults.THRESHOLD)
    start = time.perf_counter()
    found = cube.super_hosts(defaults.THRESHOLD)
    figures["restore (ms)"] = round(1e3 * (time.perf_counter() - start), 2)
    step()
    cube.merge(cube)  # warm up
    start = time.perf_counter()
    cube.merge(cube)
    figures["merge (ms)"] = round(1e3 * (time.perf_counter() - start), 1)
    step()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.cube"
        start = time.perf_counter()
        cube.save(path)
        figures["save (ms)"] = round(1e3 * (time.perf_counter() - start))
        figures["file (MB)"] = round(path.stat().st_size / 1e6, 2)
    step()
    exact = Exact()
    exact.update(hosts, peers)
    truth = set(exact.super_hosts(defaults.THRESHOLD).hosts.tolist())
    got = set(found.hosts.tolist())
    figures["super hosts"] = len(truth)
    figures["missed / false"] = f"{len(truth - got)} / {len(got - truth)}"
    step()
    return figures, measure_stages(cube, *batch)


def _machine(device: str) -> str:
    names = [getattr(import_cuda().gpus[gpu], "name", "simulated GPU") for gpu in gpus_of(device)]
    gpus = [name.decode() if isinstance(name, bytes) else str(name) for name in names]
    return ", ".join([device, *gpus, platform.machine(), counted(thread_count(), "thread")])


def update_rate(cube: Cube, hosts: Addresses, peers: Addresses) -> float:
    """Return million pairs per second into an empty cube, until the last bit is written."""
    cube.update(hosts, peers)  # warm up: load kernels, touch pages
    cube.flush()  # otherwise clear would drop the pairs that wait, and nothing would be warm
    cube.clear()
    cube.flush()  # a GPU clears asynchronously
    start = time.perf_counter()
    cube.update(hosts, peers)
    cube.flush()
    return round(len(hosts) / (time.perf_counter() - start) / 1e6, 1)


def measure_stages(cube: Cube, hosts: Addresses, peers: Addresses) -> Profile:
    """Return where the time of one more update and restore goes, in a cube that is warm."""
    cube.clear()
    cube.flush()
    with timing() as watch:
        cube.update(hosts, peers)
        cube.super_hosts(defaults.THRESHOLD)
    return watch.profile()


def _on_gpu(device: str, *columns: Addresses) -> list[Addresses]:
    import cupy

    with cupy.cuda.Device(gpus_of(device)[0]):
        return [cupy.asarray(column) for column in columns]
