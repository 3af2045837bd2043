"""`superhosts bench`: the speed of this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from superhosts.cli.output import Json, say


def bench(
    flows: Annotated[str, typer.Option(help="Distinct pairs.")] = "1M",
    packets: Annotated[str, typer.Option(help="Pairs in all, repeats included.")] = "10M",
    memory: Annotated[str, typer.Option("--memory", "-m", help="Memory of the cube.")] = "128MiB",
    device: Annotated[str, typer.Option(help="cpu or auto.")] = "auto",
    json: Json = False,
) -> None:
    """Measure this machine: update, restore, merge and save, with the error beside the time.

    Example: superhosts bench --flows 5M --packets 50M
    """
    import json as json_module
    import platform
    import tempfile
    import time
    from pathlib import Path

    from superhosts.detectors.cube import Cube
    from superhosts.detectors.exact import Exact
    from superhosts.device import thread_count
    from superhosts.sources.synth import Traffic, window_flows, window_packets
    from superhosts.units import parse_count

    traffic = Traffic(
        flows=parse_count(flows), packets=parse_count(packets), super_hosts=max(1, parse_count(flows) // 10_000)
    )
    say("making traffic …")
    hosts, peers = window_flows(traffic, 0)
    figures: dict[str, float | int | str] = {
        "machine": f"{platform.machine()}, {thread_count()} threads",
        "flows": traffic.flows,
        "pairs": traffic.packets,
    }
    cube = Cube(memory, device=device)
    for order in ("trains", "shuffled"):
        picks = window_packets(traffic, 0, order=order)
        batch = hosts[picks], peers[picks]
        cube.update(*batch)  # warm: kernels loaded, pages touched
        cube.clear()
        start = time.perf_counter()
        cube.update(*batch)
        cube.flush()
        figures[f"update, {order} (M pairs/s)"] = round(traffic.packets / (time.perf_counter() - start) / 1e6, 1)
    cube.super_hosts(1024)
    start = time.perf_counter()
    found = cube.super_hosts(1024)
    figures["restore (ms)"] = round(1e3 * (time.perf_counter() - start), 2)
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
        for name, value in figures.items():
            print(f"{name:28} {value if isinstance(value, str) else f'{value:,}'}")
