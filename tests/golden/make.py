"""Write the golden sketch files of the current format version, with the answers that they give.

    python tests/golden/make.py FOLDER          # every detector, each form of a cube, a union
    python tests/golden/make.py FOLDER --keys   # generic keys
    python tests/golden/make.py FOLDER --tallies   # exact cubes and unions of them
    python tests/golden/make.py FOLDER --stream    # the streaming detector
    python tests/golden/make.py FOLDER --more   # what a reader meets less often: other widths, prefixes, full columns …

Run it once, with the release that introduces a format version, and commit the folders as `tests/golden/vN` and
`vN-more`. Never run it over a folder that is committed: the files exist to show that later releases read what earlier
ones wrote. Files that come with an addition to a version get a folder of their own, as `v3-keys`.

`v1` has one cube of the first version, which is refused. `v2` was written by this program while version 2 was current,
with the cubes of that time: no giant columns, no sampling, one form. `v3` and `v3-more` were written under version 3.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import superhosts as sh
from superhosts.detectors.cbaa import Geometry as CbaaGeometry
from superhosts.detectors.registry import DETECTORS

KEY = b"golden key"
THRESHOLD = 200
HOUR = 3_600_000_000_000
SMALL: dict[str, dict[str, Any]] = {
    "cube": {"memory": "256KiB", "exact": False},
    "cbaa": {"geometry": CbaaGeometry(slice_bits=6, index_bits=9, validating_bits=8, column_bits=11)},
    "cbaa-paper": {"geometry": CbaaGeometry(6, 3, 9, 1, 9, 11, 1)},
    "exact": {},
    "stream": {"memory": "12KiB"},
}

OFFICE = Path(__file__).parent.parent / "first_hour" / "captures" / "office.pcap.gz"
SITE: dict[str, Any] = {  # the scan that wrote site.cube: four parts in the rows form
    "site": "ams",
    "inner": "10.20.0.0/16,2001:db8:20::/48",
    "direction": ("out", "in"),
    "window": "all",
    "geometry": "slices=2,arrays=4,columns=100,rows=8192,labels=8,share=8,giants=2",
}

NAMES = {1: "Zoë", 2: "", 3: "a long name " * 30, 4: f"#{0:032x}"}  # more than ASCII, none, shortened, like a hash


def pairs(seed: int, key_bits: int = 32) -> tuple[Any, Any]:
    """Return pairs of 40 hosts with 1 to about 2,000 peers each."""
    rng = np.random.default_rng(seed)
    sizes = (1.22 ** np.arange(40)).astype(np.int64)
    numbers = np.repeat(rng.permutation(1 << 20)[:40], sizes)
    peers = rng.integers(0, 1 << 32, len(numbers), dtype=np.uint32)
    if key_bits == 32:
        return (numbers + (10 << 24)).astype(np.uint32), peers
    words = numbers.astype(np.uint64) + np.uint64(0x20010DB8 << 32)
    if key_bits == 64:
        return words, peers
    return np.column_stack((words, np.arange(len(words), dtype=np.uint64) % 7)), peers


def answers(path: Path) -> dict[str, Any]:
    sketch = sh.load(path, key=KEY)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sh.ThresholdWarning)  # One of the cubes is full.
        found = sketch.super_hosts(THRESHOLD)
    return {
        "window": list(sketch.window) if sketch.window else None,
        "sites": sorted(sketch.sites),
        "counters": sketch.entries,
        "partial": sketch.partial,
        "parts": [[part.family, *part.columns[1:]] for part in sketch.parts],
        "found": [
            [
                *(item.part.family, *item.part.columns[1:], str(item.host)),
                *(item.peers, item.peers_low, item.peers_high, item.saturated, item.detector),
            ]
            for item in found
        ],
    }


def write(folder: Path) -> None:
    for name, sizes in SMALL.items():
        if name == "stream":  # younger than the version
            continue
        detector = DETECTORS[name](**sizes, **({} if name == "exact" else {"key": KEY}), threads=1)
        detector.update(*pairs(1))
        detector.save(folder / f"{name}.cube")
    for key_bits in (64, 128):
        cube = sh.Cube("256KiB", key_bits=key_bits, key=KEY, exact=False)
        cube.update(*pairs(key_bits, key_bits))
        cube.save(folder / f"cube-{key_bits}.cube")
    for key_bits in (32, 128):
        listed = sh.Cube("1MiB", key_bits=key_bits, key=KEY)  # exact, so the file lists the rows of hosts
        listed.update(*pairs(key_bits, key_bits))
        listed.save(folder / f"cube-rows-{key_bits}.cube")
    sampled = sh.Cube(geometry=sh.Geometry(32, 1, 4, 10, 40, 3, 0, giants=2, sample_bits=1), key=KEY, exact=False)
    sampled.update(*pairs(3))
    sampled.save(folder / "cube-sampled.cube")
    union = sh.Sketch(lambda part: sh.Cube("256KiB", key_bits=32 if part.family == 4 else 64, key=KEY))
    for number, part in enumerate([sh.Part(4, "inner", "out"), sh.Part(4, "outer", "in"), sh.Part(6, "inner", "out")]):
        union.part(part).update(*pairs(10 + number, 32 if part.family == 4 else 64))
    union.window, union.sites, union.partial = sh.Window(0, HOUR), {"ams", "fra"}, True
    union.entries = [
        {"site": site, "start": 0, "end": HOUR, "family": 4, "side": "inner", "direction": "out", "pairs": count}
        for site, count in (("ams", 12), ("fra", 34))
    ]
    union.save(folder / "union.cube")


def write_more(folder: Path) -> None:
    """Write cubes that take the less frequent branches of a reader, and the pairs of wide hosts."""
    from superhosts.core.pairs import HostFormat

    sizes: dict[str, Any] = {
        "rows-64": sh.Geometry(64, 3, 4, 12, 40, 2, 3, giants=1),  # eight slices
        "rows-long": sh.Geometry(32, 0, 3, 17, 8, 4, 0, giants=1),  # rows of more than 16 bits
        "rows-sampled": sh.Geometry(32, 1, 5, 12, 60, 3, 2, sample_bits=1),  # no giants; five arrays: two tickets
        "bits-blocks": sh.Geometry(32, 1, 4, 14, 200, 1, 3, giants=1),  # four blocks
        "bits-full": sh.Geometry(64, 0, 2, 8, 6, 1, 1),  # byte planes; all hosts are saturated
        "bits-older": sh.Geometry(32, 0, 3, 10, 200, 1, 3, turned_lines=0),  # version 2 saved by version 3
    }
    for name, geometry in sizes.items():
        cube = sh.Cube(geometry=geometry, key=KEY, exact=name.startswith("rows"), threads=1)
        cube.update(*pairs(len(name), geometry.key_bits))
        cube.save(folder / f"{name}.cube")
    sh.Cube("256KiB", key=KEY).save(folder / "empty.cube")
    for key_bits in (64, 128):
        exact = sh.Exact(key_bits=key_bits, threads=1)
        exact.update(*(column[-2400:] for column in pairs(key_bits, key_bits)))
        exact.save(folder / f"exact-{key_bits}.cube")
    for family, prefix in ((4, 24), (6, 48)):
        cube = sh.Cube("256KiB", key_bits=32 if family == 4 else 64, key=KEY, exact=False)
        cube.format = HostFormat(family, prefix)
        hosts, peers = pairs(prefix, cube.key_bits)
        cube.update(hosts & hosts.dtype.type(-(1 << (8 if family == 4 else 16)) % (1 << cube.key_bits)), peers)
        cube.save(folder / f"prefix-{prefix}.cube")
    (window,) = sh.scan(OFFICE, **SITE, key=KEY, threads=1)
    window.sketch.unlisted = True
    window.sketch.save(folder / "site.cube")


def write_keys(folder: Path) -> None:
    """Write sketches of generic keys: both forms of a cube, and `exact`."""
    numbers, peers = pairs(5)
    users = numbers.astype(np.int64) - (10 << 24) - (1 << 19)  # negative ones, too
    names = [NAMES.get(number % 40, f"user-{user}") for number, user in enumerate(users.tolist())]
    for keys, hosts in (("int64", users), ("text", names)):
        for form, sizes in (("bits", {"memory": "256KiB", "exact": False}), ("rows", {"memory": "4MiB"})):
            cube = sh.Cube(keys=keys, key=KEY, threads=1, **sizes)
            cube.update(hosts, peers.astype(np.int64) if form == "bits" else [f"{peer:x}" for peer in peers.tolist()])
            cube.save(folder / f"{form}-{keys}.cube")
        exact = sh.Exact(keys=keys, key=KEY, threads=1)
        exact.update(hosts[:3000], peers[:3000].astype(np.int64))
        exact.save(folder / f"exact-{keys}.cube")


def write_tallies(folder: Path) -> None:
    """Write exact cubes and their unions, in which two members have some hosts in common."""
    sizes = {f"{bits}": sh.Geometry(bits, 2, 4, 11, 40, 3, 1, giants=1) for bits in (32, 64, 128)}
    sizes["sampled"] = sh.Geometry(32, 1, 3, 10, 40, 3, 0, sample_bits=3)  # some hosts have no row
    for name, geometry in sizes.items():
        read = []
        most = geometry.exact_pairs
        for part in (slice(0, most * 2 // 3), slice(most // 2, most)):
            cube = sh.Cube(geometry=geometry, key=KEY, threads=1)
            cube.update(*(column[part] for column in pairs(7, geometry.key_bits)))
            read.append(sh.Cube.from_bytes(cube.to_bytes(), key=KEY))
        cube.save(folder / f"rows-{name}.cube")
        (folder / f"pairs-{name}.cube").write_bytes(cube.to_bytes(pairs=True))
        (read[0] | read[1]).save(folder / f"union-{name}.cube")
    hosts, peers = pairs(8)
    names = sh.Cube("1MiB", keys="text", key=KEY, threads=1)
    names.update([f"user {host % 97}" for host in hosts.tolist()], peers.astype(np.int64))
    names.save(folder / "rows-text.cube")


def write_stream(folder: Path) -> None:
    """Write streaming detectors of every width, and one of an exact window."""
    for key_bits in (32, 64, 128):
        stream = DETECTORS["stream"](**SMALL["stream"], key_bits=key_bits, key=KEY, threads=1)
        stream.update(*pairs(20 + key_bits, key_bits))
        stream.save(folder / ("stream.cube" if key_bits == 32 else f"stream-{key_bits}.cube"))
    exact = DETECTORS["stream"]("1MiB", key_bits=64, key=KEY, threads=1)
    exact.update(*pairs(20, 64))
    exact.save(folder / "stream-exact.cube")


if __name__ == "__main__":
    made = Path(sys.argv[1])
    made.mkdir()
    {"--more": write_more, "--keys": write_keys, "--tallies": write_tallies, "--stream": write_stream}.get(
        sys.argv[-1], write
    )(made)
    found = {path.name: answers(path) for path in sorted(made.glob("*.cube"))}
    (made / "answers.json").write_text(json.dumps(found, indent=1) + "\n")
