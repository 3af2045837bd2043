"""Small sketches of sites and windows for the tests of the fleet, and the matching settings of a hub."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from forging import forge
from superhosts.core.pairs import Part, Window
from superhosts.core.units import SECOND
from superhosts.cubefile.container import VERSION
from superhosts.fleet.names import SketchId
from superhosts.pipeline.settings import Settings
from superhosts.sketch.sketch import Sketch

NOON = 1_794_657_600 * SECOND  # 2026-11-14T12:00:00Z
LENGTH = 300 * SECOND
SETTINGS = Settings(memory="64KiB", device="cpu", threads=1)
LARGER = Settings(memory="128KiB", device="cpu", threads=1)  # which does not merge with the others
KEY = "20261114T120000Z-5m"  # the name of window 0


def window(number: int) -> Window:
    return Window(NOON + number * LENGTH, NOON + (number + 1) * LENGTH)


def make_sketch(
    site: str,
    number: int = 0,
    *,
    host: int = 0x0A000007,
    peers: int = 2000,
    base: int = 0,
    settings: Settings = SETTINGS,
) -> Sketch:
    """Return a sketch of one host that talks to peers base..base+peers in a window."""
    sketch = Sketch(settings.make_detector, window=window(number), site=site)
    sketch.part(Part()).update(np.full(peers, host, np.uint32), (base + np.arange(peers)).astype(np.uint32))
    span = {"start": sketch.window.start, "end": sketch.window.end}
    sketch.entries = [{"site": site, **span, **Part()._asdict(), "pairs": peers}]
    return sketch


def write_parcel(sketch: Sketch, folder: Path, site: str | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    fresh = folder / ".fresh.tmp"
    sketch.save(fresh)
    assert sketch.window is not None
    target = folder / SketchId.of(fresh, site or min(sketch.sites), sketch.window).name
    fresh.replace(target)
    return target


def forge_parcel(
    folder: Path, header: Any, blocks: bytes = b"", *, site: str = "ams", number: int = 0, version: int = VERSION
) -> Path:
    """Write a file with a valid checksum and any header, under the name of its sketch."""
    folder.mkdir(parents=True, exist_ok=True)
    fresh = forge(folder / "fresh.cube", header, blocks, version)
    return fresh.rename(folder / SketchId.of(fresh, site, window(number)).name)


def make_odd(path: Path, kind: str) -> None:
    """Put something in the place of a file: a folder, a FIFO, a link to itself, to nothing, or to a device."""
    if path.exists():
        path.unlink()
    if kind == "folder":
        (path / "deep").mkdir(parents=True)
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to({"loop": path.name, "link": "/nonexistent/file", "device": "/dev/zero"}[kind])


def damage_database(path: Path) -> None:
    """Put something else in place of a database, which a process of before may still have open."""
    for ending in ("", "-wal", "-shm"):
        path.with_name(path.name + ending).unlink(missing_ok=True)
    path.write_bytes(b"not a database" * 1000)


def damage(path: Path, offset: int = -100) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 0xFF
    path.write_bytes(bytes(data))
