"""Create small sketches, take sketch files apart, and write changed ones with a valid checksum."""

from __future__ import annotations

import copy
import hashlib
import json
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import zstandard

import superhosts as sh
from superhosts.detectors.cbaa import PaperCbaa
from superhosts.detectors.cbaa.addressing import Geometry as CbaaGeometry
from superhosts.detectors.exact import Exact
from traffic import content

TINY = {bits: sh.Geometry(bits, 0, 2, 6, 2, 0, 3) for bits in (32, 64, 128)}


def columns(bits: int, count: int = 300, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    if bits == 32:
        return rng.integers(1 << 32, size=count, dtype=np.uint32), rng.integers(1 << 32, size=count, dtype=np.uint32)
    hosts = rng.integers(1 << 63, size=count if bits == 64 else (count, 2), dtype=np.uint64)
    return hosts, rng.integers(1 << 63, size=(count, 2), dtype=np.uint64)


def make(name: str, bits: int = 32, seed: int = 1, **options: Any) -> Any:
    if name == "cube":
        detector: Any = sh.Cube(geometry=sh.Geometry.for_memory("1MiB", bits), exact=False, **options)
    elif name == "tiny":
        detector = sh.Cube(geometry=TINY[bits], exact=False, **options)
    elif name == "exact":
        detector = Exact(key_bits=bits)
    else:
        kind = PaperCbaa if name == "cbaa-paper" else sh.Cbaa
        detector = kind(geometry=CbaaGeometry(slice_bits=0), **options)
    detector.update(*columns(bits, seed=seed))
    return detector


PARTS = {sh.Part(4): 32, sh.Part(6): 64, sh.Part(4, "outer", "in"): 32}


def bundle(
    site: str = "ams",
    start: int = 0,
    seed: int = 1,
    make_part: Callable[..., Any] = make,
    parts: Iterable[sh.Part] = PARTS,
    **options: Any,
) -> Any:
    sketch = sh.Sketch(window=sh.Window(start, start + 300), site=site)
    for part in parts:
        sketch.parts[part] = make_part("tiny", PARTS[part], seed + PARTS[part], **options)
        sketch.entries.append(
            {"site": site, "start": start, "end": start + 300, **part._asdict(), "packets": 300 + seed}
        )
    return sketch


def state(sketch: Any) -> Any:
    return copy.deepcopy((content(sketch), sketch.window, sketch.sites, sketch.entries))


def take_apart(path: Path) -> tuple[dict[str, Any], bytes]:
    return taken_apart(path.read_bytes())


def taken_apart(data: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the header of a sketch file and its blocks."""
    (length,) = struct.unpack_from("<I", data, 12)
    return json.loads(data[16 : 16 + length]), data[16 + length : -32]


def forge(path: Path, header: Any, blocks: bytes, version: int = 2) -> Path:
    path.write_bytes(forged(header, blocks, version))
    return path


def forged(header: Any, blocks: bytes, version: int = 2) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode(errors="surrogatepass")
    return signed(struct.pack("<8sII", b"\x89CUBE\r\n\x1a", version, len(text)) + text + blocks)


def signed(data: bytes) -> bytes:
    return data + hashlib.blake2b(data, digest_size=32).digest()


def frame(data: bytes, coding: int = 0) -> bytes:
    packed = zstandard.compress(data)
    return struct.pack("<BI", coding, len(packed)) + packed
