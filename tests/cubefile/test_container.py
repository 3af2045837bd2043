"""The .cube file: content survives a round trip, and damaged, foreign and malicious files are rejected."""

from __future__ import annotations

import copy
import errno
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import superhosts as sh
from faults import at_sync, fill_disk, full_disk, system_call
from forging import TINY, bundle, columns, forge, frame, make, state, take_apart
from superhosts.core.pairs import HostFormat
from superhosts.cubefile import container
from superhosts.detectors.exact import Exact
from superhosts.errors import DifferenceError, HalfMergedError, OutputError, SketchFileError, UnreadableError
from superhosts.sketch.files import estimate_in_file, read_header
from superhosts.sketch.sketch import Sketch
from taken import little_memory
from traffic import content

# Round trips


@pytest.mark.parametrize(("family", "prefix"), [(6, 48), (6, 64), (6, 96), (6, 128)])
def test_the_reading_of_hosts_is_kept(tmp_path: Path, family: int, prefix: int) -> None:
    reading = HostFormat(family, prefix)
    hosts, peers = columns(reading.key_bits)
    last = hosts if hosts.ndim == 1 else hosts[:, 1]
    last &= ~np.uint64((1 << -prefix % 64) - 1)  # Clear the bits beyond the prefix.
    for name in ("tiny", "exact"):
        detector = make(name, reading.key_bits)
        detector.clear()
        detector.update(hosts, peers)
        detector.format = reading
        detector.save(tmp_path / "a.cube")
        assert sh.load(tmp_path / "a.cube").parts[sh.Part(6)].format == reading


def test_sketches_of_several_parts_or_none(tmp_path: Path) -> None:
    wide = Exact()
    wide.update(columns(32)[0], columns(64)[1])  # wide peers of narrow hosts
    for sketch in (bundle(), sh.Sketch(), sh.Sketch.of(Exact()), sh.Sketch.of(wide)):
        sketch.save(tmp_path / "a.cube")
        assert state(sh.load(tmp_path / "a.cube")) == state(sketch)


WORDS = st.integers(0, (1 << 64) - 1) | st.sampled_from([0, 1, 1 << 63, (1 << 64) - 1])


@given(st.lists(WORDS, max_size=40), st.integers(0, 60))
def test_any_words_survive(tmp_path_factory: pytest.TempPathFactory, words: list[int], zeros: int) -> None:
    path = tmp_path_factory.mktemp("words") / "a.cube"
    array = np.array([*words, *[0] * zeros, *words[:3]], np.uint64)
    container.write(path, {}, {"a": array, "b": array.astype(np.uint32)})
    with container.CubeReader(path) as reader:
        got = reader.arrays()
    assert got["a"].tolist() == array.tolist()
    assert got["b"].tolist() == array.astype(np.uint32).tolist()


@pytest.mark.parametrize("density", [0.0, 0.001, 0.2, 0.5, 1.0])
def test_arrays_of_several_blocks_at_any_density(tmp_path: Path, density: float) -> None:
    rng = np.random.default_rng(1)
    bits = rng.random((container.BLOCK // 8 + 777) * 64) < density
    array = np.packbits(bits, bitorder="little").view(np.uint64)
    container.write(tmp_path / "a", {"note": 1}, {"bits": array})
    with container.CubeReader(tmp_path / "a") as reader:
        assert reader.header["note"] == 1
        assert (reader.arrays()["bits"] == array).all()


# Damage


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    sketch = sh.Sketch.of(make("tiny"))
    sketch.save(tmp_path / "tiny.cube")
    return tmp_path / "tiny.cube"


# Forged files with valid checksums


@pytest.mark.parametrize("columns_of_an_array", [1 << 24, 1 << 40])
def test_absurd_memory_is_refused_before_it_is_taken(tiny: Path, columns_of_an_array: int) -> None:
    header, blocks = take_apart(tiny)
    header["parts"][0]["geometry"].update(columns=columns_of_an_array, column_bits=20)
    header["arrays"][0]["shape"] = [2 * columns_of_an_array, 1 << 14]
    header["arrays"][1]["shape"] = [2 * columns_of_an_array, 1, 1]
    forge(tiny, header, blocks)
    with little_memory(), pytest.raises(SketchFileError, match="memory"):
        sh.load(tiny)


@pytest.mark.parametrize("code", [errno.EIO, errno.EMFILE, errno.EACCES])
def test_a_file_that_cannot_be_read_now_is_told_from_a_damaged_one(tiny: Path, code: int) -> None:
    def broken(*_: object, **__: object) -> bytes:
        raise OSError(code, os.strerror(code))

    for owner, name in ((os, "pread"), (Path, "open")):
        with system_call(name, broken, owner), pytest.raises(UnreadableError, match=os.strerror(code)) as caught:
            sh.load(tiny)
        assert caught.value.exit_status == 3
    for other in (tiny.parent / "nothing.cube", tiny.parent):
        with pytest.raises(SketchFileError, match="cannot be read") as missing:
            sh.load(other)
        assert not isinstance(missing.value, UnreadableError)


def test_a_file_that_fails_while_it_is_merged_is_half_merged_and_unreadable(tiny: Path) -> None:
    reads: list[int] = []
    with system_call("pread", lambda _file, _length, offset: reads.append(offset)):
        Sketch().merge_file(tiny)
    left = len(reads) - 1

    def last_fails(*_: object) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(errno.EIO, "Input/output error")

    with system_call("pread", last_fails), pytest.raises(HalfMergedError) as caught:
        Sketch().merge_file(tiny)
    assert isinstance(caught.value, UnreadableError)


def test_a_limit_on_memory(tiny: Path) -> None:
    with pytest.raises(SketchFileError, match="needs 64 B of memory, the limit is 63 B"):
        sh.load(tiny, max_memory=63)
    sh.load(tiny, max_memory=64)


def test_labels_that_the_arrays_do_not_show_are_refused(tiny: Path) -> None:
    """The geometry determines the memory of labels: many parts with many labels and few columns need much."""
    header, _ = take_apart(tiny)
    part = copy.deepcopy(header["parts"][0])
    part["geometry"].update(columns=1 << 20, label_bits=6)
    shape = [2 << 20, 1]
    ways = [(side, way) for side in ("inner", "outer") for way in ("any", "out", "in")]
    header["parts"] = [{**part, "side": side, "direction": way} for side, way in ways]
    header["arrays"] = [{"name": f"{i}/bits", "dtype": "<u8", "shape": shape} for i in range(6)]
    forge(tiny, header, b"")
    with little_memory(), pytest.raises(SketchFileError, match="header field arrays: missing 0/labels"):
        sh.load(tiny)
    header["arrays"] += [{"name": f"{i}/labels", "dtype": "<u8", "shape": [2 << 20, 64, 1]} for i in range(6)]
    forge(tiny, header, b"")
    message = r"needs 6\.09 GiB of memory, the limit is 1 GiB"
    with little_memory(), pytest.raises(SketchFileError, match=message):
        sh.load(tiny, max_memory="1GiB")


def test_a_header_beyond_the_limit_is_refused_before_it_is_read(tiny: Path) -> None:
    header, blocks = take_apart(tiny)
    text = json.dumps(header).encode()
    forge(tiny, text, blocks)
    assert read_header(tiny, max_header=len(text)).kinds
    forge(tiny, text + b" " * (8 << 20), blocks)
    message = r"tiny\.cube: byte 16: .* the header takes 8 MiB, the limit is 100 B"
    with little_memory(), pytest.raises(SketchFileError, match=message):
        read_header(tiny, max_header=100)


PAIRS = {"float": ("<f8", [1, 1]), "narrow": ("<u4", [1, 1]), "flat": ("<u8", [1]), "five words": ("<u8", [1, 5])}


@pytest.mark.parametrize(("dtype", "shape"), PAIRS.values(), ids=PAIRS.keys())
def test_exact_pairs_of_another_shape(tmp_path: Path, dtype: str, shape: list[int]) -> None:
    make("exact").save(tmp_path / "a.cube")
    header, _ = take_apart(tmp_path / "a.cube")
    header["arrays"][0].update(dtype=dtype, shape=shape)
    data = bytes(np.dtype(dtype).itemsize * int(np.prod(shape)))
    forge(tmp_path / "a.cube", header, frame(data, coding=1))
    with pytest.raises(SketchFileError):
        sh.load(tmp_path / "a.cube")


BLOCKS = {
    "a gap past the end": frame(bytes([255] * 10 + [7])),
    "one bit too many": frame(bytes([0] * 257)),
    "a gap of megabytes": frame(bytes([255]) * (1 << 20) + b"\0"),
    "unknown coding": frame(bytes(32), coding=2),
    "planes too short": frame(bytes(31), coding=1),
    "planes too long": frame(bytes(33), coding=1),
    "not compressed": struct.pack("<BI", 0, 5) + b"hello",
    "length past the end": struct.pack("<BI", 0, 1 << 31) + b"hello",
    "a frame cut short": b"\0\0",
    "nothing": b"",
    "a bomb": frame(bytes(1 << 28), coding=1),
}


def test_blocks_that_lie_are_refused_and_written_nowhere(tiny: Path) -> None:
    header, blocks = take_apart(tiny)
    good = frame(bytes([0] * 4))
    assert header["arrays"][0]["shape"] == [4, 1]
    sh.load(forge(tiny, header, good + good))
    cube = sh.Cube(geometry=TINY[32])
    for name, wrong in {**{name: first + good for name, first in BLOCKS.items()}, "more": blocks + frame(b"")}.items():
        forge(tiny, header, wrong)
        for ask in (sh.load, Sketch.of(cube).merge_file, lambda path: estimate_in_file(path, {sh.Part(4): [1]})):
            with little_memory(), pytest.raises(SketchFileError, match="damaged"):
                ask(tiny)
        assert name == "more" or not cube.bits.any(), name
    forge(tiny, header, frame(bytes([0, 1, 255, 255])) + good)  # a gap without a set bit after it
    sketch = Sketch()
    sketch.merge_file(tiny)
    assert content(sketch) == content(sh.load(tiny))
    assert sketch.part(sh.Part(4)).bits[0, 0] == 0b101  # type: ignore[attr-defined]


# Writing


def test_a_folder_that_is_missing_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    for target in ("none/a.cube", "file/a.cube", "x" * 300, "folder"):
        with pytest.raises(OutputError, match="cannot be written") as caught:
            make("tiny").save(tmp_path / target)
        assert caught.value.exit_status == 4
    assert {path.name for path in tmp_path.iterdir()} == {"file", "folder"}


def test_a_full_disk_leaves_the_old_file_and_nothing_else(tiny: Path) -> None:
    before = tiny.read_bytes()
    with at_sync(fill_disk), pytest.raises(OutputError, match="No space left on device"):
        make("tiny", seed=9).save(tiny)
    with full_disk(100), pytest.raises(OutputError, match="File too large"):
        make("tiny", seed=9).save(tiny)
    assert tiny.read_bytes() == before
    assert list(tiny.parent.iterdir()) == [tiny]


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_interrupted_write_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    def stop(*_: Any) -> None:
        assert len(list(tmp_path.iterdir())) == 1  # a part of the file under its temporary name
        raise error

    with system_call("ascontiguousarray", stop, np), pytest.raises(error):
        make("tiny").save(tmp_path / "a.cube")
    assert list(tmp_path.iterdir()) == []


# Merging bundles


LAST = sh.Part(4, "outer", "in")


def with_last(make_last: Callable[[], Any], *, is_new: bool = False) -> Callable[[Any, Any], None]:
    """Return a change of two sketches: the last part of the second is another one, and new to the first."""

    def change(a: Any, b: Any) -> None:
        b.parts[LAST] = make_last()
        if is_new:
            del a.parts[LAST]

    return change


ANOTHER_KEY = "key [0-9a-f]{16} into key [0-9a-f]{16}"
UNLIKE: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "geometry": (with_last(lambda: sh.Cube(geometry=TINY[32]._replace(columns=3))), "columns 3 into columns 2"),
    "key": (with_last(lambda: make("tiny", key="another one")), ANOTHER_KEY),
    "key of a part that is new": (with_last(lambda: make("tiny", key="another one"), is_new=True), ANOTHER_KEY),
    "detector": (with_last(lambda: make("exact")), "cannot merge exact into cube"),
    "detector of a part that is new": (with_last(lambda: make("exact"), is_new=True), "cannot merge exact into cube"),
    "host prefix": (lambda a, b: setattr(b.parts[sh.Part(6)], "format", HostFormat(6, 48)), "hosts /48 into hosts /64"),
}


@pytest.mark.parametrize("kind", UNLIKE)
def test_a_refused_merge_of_a_sketch_or_a_file_changes_nothing(tmp_path: Path, kind: str) -> None:
    a, b = bundle(seed=1), bundle(seed=2)
    change, message = UNLIKE[kind]
    change(a, b)
    before = state(a), state(b)
    with pytest.raises(DifferenceError, match=message) as caught:
        a.merge(b)
    assert caught.value.exit_status == 2
    assert (state(a), state(b)) == before
    if not kind.startswith("key"):
        b.save(tmp_path / "b.cube")
        with pytest.raises(DifferenceError) as of_file:
            a.merge_file(tmp_path / "b.cube")
        there = of_file.value.there
        assert (there, of_file.value.here) == (caught.value.there, caught.value.here)
        where = f"{tmp_path}/b.cube: cannot be merged into this sketch: it was made with {there}, "
        assert str(of_file.value).startswith(where)
        assert state(a) == before[0]
