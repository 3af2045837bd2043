"""Write the golden sketch files of the current format version, with the answers that they give.

    python tests/golden/make.py FOLDER

Run it once, with the release that introduces a format version, and commit the folder as `tests/golden/vN`. Never run
it over a folder that is committed: the files exist to show that later releases read what earlier ones wrote.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

import superhosts as sh
from superhosts.detectors.cbaa import Geometry as CbaaGeometry
from superhosts.detectors.dcds import Geometry as DcdsGeometry
from superhosts.detectors.vbfa import Geometry as VbfaGeometry

KEY = b"golden key"
THRESHOLD = 200
HOUR = 3_600_000_000_000
SMALL: dict[str, dict[str, Any]] = {
    "cube": {"memory": "256KiB", "exact": False},
    "cbaa": {"geometry": CbaaGeometry(slice_bits=6, index_bits=9, validating_bits=8, column_bits=11)},
    "cbaa-paper": {"geometry": CbaaGeometry(6, 3, 9, 1, 9, 11, 1)},
    "exact": {},
    "dcds": {"geometry": DcdsGeometry(column_bits=11)},
    "vbfa": {"geometry": VbfaGeometry(column_bits=11)},
    "gse": {"memory": "256KiB"},
    "filter": {"memory": "256KiB", "threshold": 100},
    "spreadsketch": {"memory": "256KiB"},
    "pairsample": {"memory": "32KiB"},
    "rgs": {"memory": "16KiB"},
}


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
    """Return what a file says: its notes, and its hosts."""
    sketch = sh.load(path, key=KEY)
    return {
        "window": list(sketch.window) if sketch.window else None,
        "sites": sorted(sketch.sites),
        "counters": sketch.entries,
        "partial": sketch.partial,
        "parts": [list(part) for part in sketch.parts],
        "found": [
            [*item.part, str(item.host), item.peers, item.peers_low, item.peers_high, item.saturated, item.detector]
            for item in sketch.super_hosts(THRESHOLD)
        ],
    }


def write(folder: Path) -> None:
    from superhosts.detectors.registry import DETECTORS

    folder.mkdir()
    for name, sizes in SMALL.items():
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
    found = {path.name: answers(path) for path in sorted(folder.glob("*.cube"))}
    (folder / "answers.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
