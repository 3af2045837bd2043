"""Measure the size of sketches on the wire: `python benchmarks/wire.py [--quick] [--only ...]`.

size      the file size of a default cube compared with its memory, and the seconds to write, read and merge it: as a
          window is saved (the rows of each host while the cube is exact), and always as bits and labels
columns   the bytes that edges would save if they sent only the columns that the hub requests

Columns on demand: every edge first sends the number of ones in each column. The hub adds these over all sites. A column
whose sum is less than the ones that a host with 1024 peers sets cannot be hot in the union, whatever its bits are. The
hub requests the other columns, and the edges send them with their labels. Bytes are computed with the codings of files.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import zstandard
from numpy.typing import NDArray

from cases import THETA, update_in_batches
from harness import HERE, Report, timed
from superhosts.detectors.cube import Cube
from superhosts.detectors.formulas import zero_limit
from superhosts.sketch.sketch import Sketch, load
from superhosts.sources.synthetic.traffic import Traffic, window_flows

FLOWS = {100_000: 12, 1_000_000: 120, 5_000_000: 600, 20_000_000: 1400}  # flows → super hosts of a window
SITES = (1, 3, 10, 100)
MEASURED = 3  # sites whose bytes are measured; all sites are similar
RUNS = 5
Pairs = tuple[Any, Any]


def main() -> None:
    """Run the selected sections."""
    sections = {"size": size, "columns": columns}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="ten times fewer flows")
    parser.add_argument("--only", nargs="+", choices=sections, default=list(sections))
    parser.add_argument("--results", type=Path, default=HERE / "results")
    options = parser.parse_args()
    report = Report(quick=options.quick)
    with TemporaryDirectory() as folder:
        for name in options.only:
            start = time.perf_counter()
            sections[name](report, Path(folder))
            report.seconds[name] = time.perf_counter() - start
    print("\n" + report.table())
    part = "" if len(options.only) == len(sections) else "-" + "-".join(options.only)
    kind = "wire-quick" if options.quick else "wire"
    name = f"{kind}-{report.place}{part}"
    for path in report.write(options.results, name, title="Sketches on the wire"):
        print(path)


def flows_of(flows: int, supers: int, seed: int) -> Pairs:
    """Return the distinct pairs of a window."""
    return window_flows(Traffic(flows=flows, packets=flows, super_hosts=supers, seed=seed), 0)


def cube_of(hosts: Any, peers: Any, *, exact: bool = False) -> Cube:
    """Return a default cube filled with these pairs."""
    cube = Cube(device="cpu", exact=exact)
    update_in_batches(cube, hosts, peers)
    cube.flush()
    return cube


def size(report: Report, folder: Path) -> None:
    """Measure bytes and seconds by number of flows, as windows are saved and as bits."""
    path, scale = folder / "a.cube", 10 if report.quick else 1
    for full, supers in FLOWS.items():
        flows, large = full // scale, max(1, supers // scale)
        whole = Sketch.of(cube_of(*flows_of(flows, large, 2)))
        for exact, form in ((True, ""), (False, " as bits")):
            cube = cube_of(*flows_of(flows, large, 1), exact=exact)
            sketch, label = Sketch.of(cube), f"{full / 1_000_000:g} M flows{form}"
            writing = [timed(lambda: sketch.save(path))[0] for _ in range(RUNS)]  # noqa: B023
            stored, raw = path.stat().st_size, cube.geometry.memory
            state = "exact" if cube.exact else "dense"
            note = f"{state}: {stored / 1e6:.2f} MB of {raw / 1e6:.0f} MB, {stored / flows:.2f} bytes a flow"
            report.add("size", f"wire, {label}: share of raw", 100 * stored / raw, "%", note=note)
            reading = [timed(lambda: load(path))[0] for _ in range(RUNS)]
            merging = [timed(lambda: whole.merge_file(path))[0] for _ in range(RUNS)]  # noqa: B023
            for name, runs in (("write", writing), ("read", reading), ("merge_file", merging)):
                report.add("size", f"{name}, {label}", min(runs), "s", runs=runs)


def own_flows(quick: bool) -> Iterator[Pairs]:
    """Yield the pairs of sites with 5 M different flows each."""
    for site in range(max(SITES)):
        yield flows_of(500_000 if quick else 5_000_000, 60 if quick else 600, 100 + site)


def shared_flows(quick: bool) -> Iterator[Pairs]:
    """Yield the pairs of sites that each see a random third of the same 5 M flows."""
    hosts, peers = flows_of(500_000 if quick else 5_000_000, 60 if quick else 600, 1)
    rng = np.random.default_rng(1)
    for _ in range(max(SITES)):
        seen = rng.random(len(hosts)) < 1 / 3
        yield hosts[seen], peers[seen]


def columns(report: Report, folder: Path) -> None:
    """Compare the bytes of whole sketches with those of columns on demand."""
    ways: dict[str, Callable[[bool], Iterator[Pairs]]] = {
        "5 M flows each": own_flows,
        "thirds of 5 M flows": shared_flows,
    }
    for label, make in ways.items():
        for sites, hot, whole, asked in _by_sites(make(report.quick), folder):
            note = f"{asked / 1e6:.2f} MB a site instead of {whole / 1e6:.2f} MB; {hot:.1%} of columns may be hot"
            value = 100 * (1 - asked / whole)
            report.add("columns", f"saved by columns on demand, {label}, {sites} sites", value, "%", note=note)


def _by_sites(traffic: Iterator[Pairs], folder: Path) -> Iterator[tuple[int, float, float, float]]:
    """Yield for each number of sites: the share of hot columns, and a site's bytes of a whole sketch and on demand."""
    kept: list[Cube] = []
    stored: list[int] = []
    total: NDArray[np.int64] | None = None
    full = False  # True once every column may be hot, which more sites cannot change
    for number in range(1, max(SITES) + 1):
        if not full:
            cube = cube_of(*next(traffic))
            ones = cube.geometry.rows - cube.zeros.astype(np.int64)
            total = ones if total is None else total + ones
            full = bool((total >= _least_ones(cube)).all())
            if number <= MEASURED:
                kept.append(cube)
                cube.save(folder / "site.cube")
                stored.append((folder / "site.cube").stat().st_size)
        if number in SITES:
            assert total is not None
            hot = total >= _least_ones(kept[0])
            asked = [_bytes_on_demand(cube, hot) for cube in kept]
            yield number, float(hot.mean()), float(np.mean(stored)), float(np.mean(asked))


def _least_ones(cube: Cube) -> int:
    return cube.geometry.rows - zero_limit(cube.geometry.column_bits, THETA)


def _bytes_on_demand(cube: Cube, hot: NDArray[np.bool_]) -> int:
    """Return the bytes of one site: counts of all columns up, the request down, and the columns with labels up."""
    counts = (cube.geometry.rows - cube.zeros).astype(np.uint16)
    up = zstandard.compress(counts.view(np.uint8).reshape(-1, 2).T.tobytes(), 3)
    down = zstandard.compress(np.packbits(hot).tobytes(), 3)
    return len(up) + len(down) + _coded(cube.bits[hot]) + _coded(cube.labels[hot])


def _coded(array: Any) -> int:
    """Return the bytes of an array in a file."""
    from superhosts.cubefile import container as sketchfile

    compress = zstandard.ZstdCompressor(level=1).compress
    return sum(len(sketchfile._pack(block, compress)) for block in sketchfile._blocks(np.ascontiguousarray(array)))


if __name__ == "__main__":
    main()
