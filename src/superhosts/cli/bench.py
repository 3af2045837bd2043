"""`superhosts bench`: the speed of this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from superhosts.cli._outputs import Json, say

if TYPE_CHECKING:
    from superhosts.detectors.cube import Cube
    from superhosts.pairs import Addresses


def bench(
    flows: Annotated[str, typer.Option(help="Distinct pairs.")] = "1M",
    packets: Annotated[str, typer.Option(help="Pairs in all, repeats included.")] = "10M",
    memory: Annotated[str, typer.Option("--memory", "-m", help="Memory of the cube.")] = "128MiB",
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:all, cuda:0,1 or auto.")] = "auto",
    json: Json = False,
) -> None:
    """Measure this machine: update, restore, merge and save, with the error beside the time.

    Example: superhosts bench --flows 5M --packets 50M
    """
    import json as json_module
    import tempfile
    import time
    from pathlib import Path

    from superhosts.detectors.cube import Cube
    from superhosts.detectors.exact import Exact
    from superhosts.device import gpus_of, simulated
    from superhosts.synthetic.traffic import Traffic, window_flows, window_packets
    from superhosts.units import parse_count

    traffic = Traffic(
        flows=parse_count(flows), packets=parse_count(packets), super_hosts=max(1, parse_count(flows) // 10_000)
    )
    cube = Cube(memory, device=device)
    say("making traffic …")
    hosts, peers = window_flows(traffic, 0)
    figures: dict[str, float | int | str] = {
        "machine": _machine(cube.device),
        "flows": traffic.flows,
        "pairs": traffic.packets,
    }
    for order in ("trains", "shuffled"):
        picks = window_packets(traffic, 0, order=order)
        batch = hosts[picks], peers[picks]
        figures[f"update, {order} (M pairs/s)"] = _update_rate(cube, *batch)
    if len(gpus_of(cube.device)) == 1 and not simulated():  # a batch lies in the memory of one
        figures["update from GPU memory, shuffled (M pairs/s)"] = _update_rate(cube, *_on_gpu(cube.device, *batch))
    cube.super_hosts(1024)
    start = time.perf_counter()
    found = cube.super_hosts(1024)
    figures["restore (ms)"] = round(1e3 * (time.perf_counter() - start), 2)
    cube.merge(cube)  # warm
    start = time.perf_counter()
    cube.merge(cube)
    figures["merge (ms)"] = round(1e3 * (time.perf_counter() - start), 1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.cube"
        start = time.perf_counter()
        cube.save(path)
        figures["save (ms)"] = round(1e3 * (time.perf_counter() - start))
        figures["file (MB)"] = round(path.stat().st_size / 1e6, 2)
    exact = Exact()
    exact.update(hosts, peers)
    truth = set(exact.super_hosts(1024).hosts.tolist())
    got = set(found.hosts.tolist())
    figures["super hosts"] = len(truth)
    figures["missed / false"] = f"{len(truth - got)} / {len(got - truth)}"
    if json:
        print(json_module.dumps(figures))
    else:
        width = max(map(len, figures))
        for name, value in figures.items():
            print(f"{name:{width}} {value if isinstance(value, str) else f'{value:,}'}")


def _machine(device: str) -> str:
    """Name the GPUs where there are any, and the CPU."""
    import platform

    from superhosts.device import gpus_of, import_cuda, thread_count

    names = [getattr(import_cuda().gpus[gpu], "name", "simulated GPU") for gpu in gpus_of(device)]
    gpus = [name.decode() if isinstance(name, bytes) else str(name) for name in names]
    return ", ".join([device, *gpus, platform.machine(), f"{thread_count()} threads"])


def _update_rate(cube: Cube, hosts: Addresses, peers: Addresses) -> float:
    """Return how many million pairs a second an empty cube takes, from the first to the last bit written."""
    import time

    cube.update(hosts, peers)  # warm: kernels loaded, pages touched
    cube.flush()  # or clear would drop the pairs that wait, and nothing would be warm
    cube.clear()
    cube.flush()  # a GPU clears later than it is told to
    start = time.perf_counter()
    cube.update(hosts, peers)
    cube.flush()
    return round(len(hosts) / (time.perf_counter() - start) / 1e6, 1)


def _on_gpu(device: str, *columns: Addresses) -> list[Addresses]:
    """Copy columns into the memory of the device's GPU."""
    import cupy

    from superhosts.device import gpus_of

    with cupy.cuda.Device(gpus_of(device)[0]):
        return [cupy.asarray(column) for column in columns]
