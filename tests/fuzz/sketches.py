"""Sketch files whose checksum is right and whose content is not: read, or refused with an error that names the file."""

from __future__ import annotations

import contextlib
import io
import json
import struct
import sys
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import zstandard
from hypothesis import strategies as st

import superhosts as sh
from forging import forged, frame, signed, taken_apart
from fuzz.mutations import Edit, apply, apply_json, edits, json_edits
from fuzz.targets import fresh_folder, target
from superhosts import cli
from superhosts.core.pairs import Part, Window
from superhosts.detectors.registry import DETECTORS
from superhosts.errors import MergeError, SketchFileError, UsageError
from superhosts.output.report import make_rows
from superhosts.pipeline.settings import Settings
from superhosts.sketch.files import find_in_file, read_header
from superhosts.sketch.sketch import Sketch
from traffic import content

FRAME = struct.Struct("<BI")  # coding, bytes of a block
WINDOW = Window(1_794_657_600 * 10**9, 1_794_657_900 * 10**9)
LEAST = {"cbaa": "8MiB", "cbaa-paper": "8MiB"}  # memory; of the others 64 KiB
ALLOWED = (SketchFileError, MergeError, UsageError)
MOST = "64MiB"


@cache
def bases() -> list[bytes]:
    """Return a small sketch of every detector, and others of cubes: two exact ones, pairs, dense, of two families."""
    with fresh_folder() as folder:
        path = folder / "base"
        one, two = _saved(path, "cube"), _saved(path, "cube", first=3)
        union = Sketch.from_bytes(one).merge(Sketch.from_bytes(two)).to_bytes()
        pairs = _sketch("cube").to_bytes(pairs=True)
        others = [union, pairs, _saved(path, "cube", exact=False), _saved(path, "cube", family=6)]
        return [_saved(path, name) for name in DETECTORS] + others


def _saved(path: Path, detector: str, **options: Any) -> bytes:
    _sketch(detector, **options).save(path)
    return path.read_bytes()


def _sketch(detector: str, family: int = 4, exact: bool | None = None, first: int = 0) -> Sketch:
    memory = {} if detector == "exact" else {"memory": LEAST.get(detector, "64KiB")}
    settings = Settings(detector=detector, device="cpu", threads=1, exact=exact, **memory)
    sketch = Sketch(settings.make_detector, window=WINDOW, site="ams")
    for part in {Part(), Part(family)}:
        hosts = np.where(np.arange(300) % 7, 7, first + np.arange(300) % 5).astype(
            np.uint32 if part.family == 4 else np.uint64
        )
        peers = np.arange(300, dtype=np.uint32)
        sketch.part(part).update(hosts, peers if part.family == 4 else np.stack([peers, peers], 1).astype(np.uint64))
        sketch.entries.append({"site": "ams", "start": WINDOW.start, "end": WINDOW.end, **part._asdict(), "pairs": 300})
    return sketch


def blocks_of(data: bytes) -> list[tuple[int, bytes]]:
    """Return coding and content of each block."""
    blocks, at = [], 0
    while at < len(data):
        coding, size = FRAME.unpack_from(data, at)
        at += FRAME.size
        blocks.append((coding, zstandard.decompress(data[at : at + size])))
        at += size
    return blocks


def change(base: int, header_edits: list[Any], block: int, coding: int | None, block_edits: list[Edit]) -> bytes:
    header, rest = taken_apart(bases()[base % len(bases())])
    if blocks := blocks_of(rest):
        number = block % len(blocks)
        before, data = blocks[number]
        blocks[number] = (before if coding is None else coding, apply(data, block_edits))
    packed = [frame(data, coding & 0xFF) for coding, data in blocks]
    return forged(apply_json(header, header_edits), b"".join(packed))


def change_raw(base: int, edits: list[Edit]) -> bytes:
    """Return a sketch with changes to any of its bytes, signed again."""
    return signed(apply(bases()[base % len(bases())][:-32], edits))


def sketches_like(*chosen: int) -> st.SearchStrategy[bytes]:
    """Return changed sketches; of all bases, or of chosen ones."""
    # Some of the others are large.
    base = st.sampled_from(chosen or (*[0, -1, -2, -3, -4] * len(DETECTORS), *range(len(DETECTORS))))
    headers = st.builds(change, base, json_edits, st.just(0), st.none(), st.just([]))
    coding = st.none() | st.integers(0, 3)
    bodies = st.builds(change, base, st.just([]) | json_edits, st.integers(0, 11), coding, edits)
    return headers | headers | bodies | st.builds(change_raw, base, edits)


@contextlib.contextmanager
def refusing() -> Iterator[None]:
    with contextlib.suppress(*ALLOWED):
        yield


@target(sketches_like())
def sketches(data: bytes) -> None:
    """Every way to read a file agrees, and what was read can be asked, saved and read again."""
    with fresh_folder() as folder:
        path = folder / "sketch.cube"
        path.write_bytes(data)
        with refusing():
            read_header(path)
        with refusing():
            find_in_file(path, "0.0.0.7")
        merged = loaded = None
        with refusing():
            loaded = sh.load(path, max_memory=MOST)
        with refusing():
            merged = Sketch()
            merged.merge_file(path)
            assert loaded is not None
        if loaded is None:
            return
        assert merged is not None
        assert content(merged) == content(loaded)
        read_header(path)
        loaded.save(folder / "again.cube")
        again = sh.load(folder / "again.cube")
        assert ask(loaded) == ask(merged) == ask(again)
        assert content(again) == content(loaded)
        assert (again.window, again.sites) == (loaded.window, loaded.sites)
        for base in bases()[:1]:
            (folder / "base.cube").write_bytes(base)
            whole = sh.load(folder / "base.cube")
            with refusing():
                whole.merge_file(path)


def ask(sketch: Sketch) -> list[str]:
    answers: list[str] = []
    questions = (lambda: sketch.super_hosts(8), lambda: sketch.top(3), lambda: sketch.estimate("0.0.0.7"))
    for question in questions:
        with warnings.catch_warnings(), contextlib.suppress(UsageError):  # not every detector answers all of them
            warnings.simplefilter("ignore")
            answers.append(json.dumps(make_rows(sketch.window, question())))
    return answers


def run_command(*arguments: object) -> tuple[int, str]:
    """Run the command line in this process; return its status and all that it has shown."""
    out = io.StringIO()
    given = patch.object(sys, "argv", ["superhosts", *map(str, arguments)])
    shown = contextlib.redirect_stdout(out), contextlib.redirect_stderr(out)
    with given, shown[0], shown[1], warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tests make errors of them
        try:
            cli.main()
        except SystemExit as end:
            return int(end.code or 0), out.getvalue()
    return 0, out.getvalue()


COMMANDS = [
    words.split()
    for words in (
        "hosts FILE",
        "hosts --union FILE BASE",
        "hosts --json FILE",
        "hosts --since 2026-01-01 FILE",
        "explain FILE 0.0.0.7",
        "explain --json FILE BASE 0.0.0.7",
        "merge FILE BASE -o OUT",
    )
]


@target(st.tuples(sketches_like(), st.sampled_from(COMMANDS)))
def commands(case: tuple[bytes, list[str]]) -> None:
    """A command ends with a known status, and shows nothing that a terminal would obey."""
    data, words = case
    with fresh_folder() as folder:
        places = {"FILE": folder / "sketch.cube", "BASE": folder / "base.cube", "OUT": folder / "out.cube"}
        places["FILE"].write_bytes(data)
        places["BASE"].write_bytes(bases()[0])
        status, shown = run_command(*(places.get(word, word) for word in words))
    assert status in (0, 2, 3), (status, shown)
    assert "Traceback" not in shown
    assert all(character.isprintable() or character in "\n" for character in shown), shown
    assert len(shown) < 20_000, len(shown)
