"""Run one query of one engine and print how much memory it used beyond imports, warm-up and input.

python memory_worker.py QUERY-NUMBER|cube|exact FOLDER
"""

from __future__ import annotations

import gc
import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from cases import THETA, Column, load_pairs, update_in_batches
from peers import WAYS, Ask

MIB = 1 << 20


def status(field: str) -> int:
    """Return a field of /proc/self/status in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise KeyError(field)


def peak_of(call: Callable[[], int]) -> tuple[int, int, int, str]:
    """Call a function. Return its result, the memory before, the peak memory, and how the peak was measured."""
    gc.collect()
    try:
        Path("/proc/self/clear_refs").write_text("5")  # Resets VmHWM to the current VmRSS.
        before = status("VmRSS")
        return call(), before, status("VmHWM"), "VmHWM"
    except OSError:
        before = highest = status("VmRSS")
        done = threading.Event()

        def watch() -> None:
            nonlocal highest
            while not done.wait(0.002):
                highest = max(highest, status("VmRSS"))

        watcher = threading.Thread(target=watch)
        watcher.start()
        result = call()
        done.set()
        watcher.join()
        return result, before, max(highest, status("VmRSS")), "sampled"


def open_ours(name: str, hosts: Column, peers: Column) -> Ask:
    """Return a query of the cube or of the exact detector. It includes the memory of the detector itself."""
    if name == "cube":
        from superhosts.detectors.cube import Cube

        def ask_cube() -> Column:
            cube = Cube("128MiB", device="cpu")
            update_in_batches(cube, hosts, peers)
            return cube.super_hosts(THETA).hosts

        return ask_cube
    from superhosts.detectors.exact import Exact

    def ask_exact() -> Column:
        exact = Exact(device="cpu")
        for start in range(0, len(hosts), 4_000_000):
            exact.update(hosts[start : start + 4_000_000], peers[start : start + 4_000_000])
        return exact.super_hosts(THETA).hosts

    return ask_exact


def main(name: str, place: Path) -> None:
    """Load the input, warm up on a small part of it, run the query, print JSON."""
    hosts, peers = load_pairs(place)
    opened = (lambda h, p: open_ours(name, h, p)) if name in ("cube", "exact") else WAYS[int(name)].open
    opened(hosts[:100_000].copy(), peers[:100_000].copy())()
    ask = opened(hosts, peers)
    gc.collect()
    time.sleep(0.3)  # Give allocators time to return memory in the background.
    found, before, peak, how = peak_of(lambda: len(ask()))
    print(
        json.dumps(
            {"found": found, "before": before / MIB, "peak": peak / MIB, "extra": (peak - before) / MIB, "how": how}
        )
    )


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
