"""Evidence in sketches: saved, loaded, merged in any order, and refused where it is damaged."""

from __future__ import annotations

import io
import itertools
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import superhosts as sh
from naive_evidence import sample
from sketch.evidence.test_sampling import SECRET, random_packets, sampled
from superhosts.core.pairs import Part
from superhosts.cubefile.container import CubeReader, write
from superhosts.errors import MergeError, SketchFileError
from superhosts.sketch.evidence.sample import Evidence
from superhosts.sketch.sketch import Sketch, load, union

SIZE = 1024


def sketch_of(seed: int, *, secret: bytes = SECRET, hosts: int = 60, size: int = SIZE) -> Sketch:
    """Return a sketch with a cube and evidence of both families."""
    cube = sh.Cube("64KiB", key=secret, device="cpu")
    cube.update(np.arange(100, dtype=np.uint32) % 3, np.arange(seed, seed + 100, dtype=np.uint32))
    sketch = Sketch.of(cube)
    rows = {family: sampled(random_packets(900, family, hosts, seed), family, size) for family in (4, 6)}
    sketch.evidence = Evidence(secret, size, rows)
    return sketch


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    sketch = sketch_of(1)
    sketch.save(tmp_path / "a.cube")
    again = load(tmp_path / "a.cube", key=SECRET)
    assert again == sketch
    assert again.evidence == sketch.evidence
    assert again.evidence is not None
    assert again.evidence.rows[6].tolist() == sample(random_packets(900, 6, 60, 1), 6, SIZE, SECRET)


def test_files_show_no_address_without_the_key(tmp_path: Path) -> None:
    sketch = sketch_of(1)
    sketch.save(tmp_path / "a.cube")
    with CubeReader(tmp_path / "a.cube") as reader:
        wide = reader.read_array("evidence/6")
    assert not np.isin(wide[:, 6:], np.array([0x20010DB8 << 32], np.uint64)).any()
    with pytest.raises(MergeError, match="written with key"):
        load(tmp_path / "a.cube", key=b"another key")
    with_it, sketch.evidence = sketch.memory, None
    assert with_it - sketch.memory == sum(rows.nbytes for rows in sketch_of(1).evidence.rows.values())  # type: ignore[union-attr]
    sketch.save(tmp_path / "a.cube")
    with CubeReader(tmp_path / "a.cube") as reader:
        assert "evidence" not in reader.header
    assert load(tmp_path / "a.cube", key=SECRET).evidence is None


@pytest.mark.slow
def test_the_union_is_that_of_all_packets_in_any_order(tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        sketch_of(seed).save(tmp_path / f"{seed}.cube")
    packets = {family: [p for seed in (1, 2, 3) for p in random_packets(900, family, 60, seed)] for family in (4, 6)}
    for order in itertools.permutations((1, 2, 3)):
        merged = union([sketch_of(seed) for seed in order])
        of_files = union([tmp_path / f"{seed}.cube" for seed in (*order, order[0])], key=SECRET)
        assert merged.evidence == of_files.evidence
        for family, all_of_them in packets.items():
            assert merged.evidence.rows[family].tolist() == sample(all_of_them, family, SIZE, SECRET)


@pytest.mark.slow
def test_the_smaller_sample_decides() -> None:
    large, small = sketch_of(1, size=2048), sketch_of(2, size=1024)
    packets = [packet for seed in (1, 2) for packet in random_packets(900, 4, 60, seed)]
    for whole in (large.copy().merge(small), small.copy().merge(large)):
        assert whole.evidence is not None
        assert whole.evidence.size == 1024
        assert whole.evidence.rows[4].tolist() == sample(packets, 4, 1024, SECRET)


def test_a_sketch_without_evidence_adds_none_and_takes_none_away() -> None:
    plain = sketch_of(2)
    plain.evidence = None
    own = sketch_of(1).evidence
    assert own is not None
    for whole in (sketch_of(1) | plain, plain | sketch_of(1), sketch_of(1) | plain | sketch_of(1)):
        assert whole.evidence is not None
        assert whole.evidence.rows[4].tolist() == own.rows[4].tolist()
        assert whole.evidence == own.as_lacking() != own
        assert not whole.evidence.is_whole(4)
        assert Sketch.from_bytes(whole.to_bytes(), key=SECRET).evidence == whole.evidence
    assert (Sketch() | sketch_of(1)).evidence == (sketch_of(1) | Sketch()).evidence == own


def test_a_copy_is_independent() -> None:
    sketch = sketch_of(1)
    copied = sketch.copy()
    sketch.merge(sketch_of(2))
    assert copied.evidence == sketch_of(1).evidence
    assert sketch.evidence != copied.evidence
    sketch.clear()
    assert sketch.evidence is None


def test_evidence_of_another_key_is_refused() -> None:
    one, other = Sketch(), Sketch()
    one.evidence, other.evidence = sketch_of(1).evidence, sketch_of(1, secret=b"another key").evidence
    with pytest.raises(MergeError, match="evidence with key"):
        one.merge(other)


def too_many(arrays: dict[str, np.ndarray]) -> None:
    arrays["evidence/4"] = np.zeros((SIZE + 1, 6), np.uint64)
    arrays["evidence/4"][:, 0] = np.arange(SIZE + 1)


DAMAGE: dict[str, Callable[[dict[str, Any], dict[str, np.ndarray]], Any]] = {
    "order": lambda header, arrays: arrays.update({"evidence/4": arrays["evidence/4"][::-1].copy()}),
    "repeated": lambda header, arrays: arrays["evidence/4"].__setitem__(1, arrays["evidence/4"][0]),
    "too many": lambda header, arrays: too_many(arrays),
    "width": lambda header, arrays: arrays.update({"evidence/4": arrays["evidence/4"][:, :5].copy()}),
    "no field": lambda header, arrays: header.pop("evidence"),
    "size": lambda header, arrays: header["evidence"].update(pairs=5),
    "key": lambda header, arrays: header["evidence"].update(key="0" * 16),
}


@pytest.mark.parametrize("change", DAMAGE)
def test_damaged_evidence_is_refused_and_changes_nothing(tmp_path: Path, change: str) -> None:
    """The digest of the file is right."""
    path = tmp_path / "damaged.cube"
    sketch_of(1).save(path)
    with CubeReader(path) as reader:
        header, arrays = dict(reader.header), reader.arrays()
    header.pop("arrays")
    DAMAGE[change](header, arrays)
    write(path, json.loads(json.dumps(header)), arrays)
    sketch = sketch_of(2)
    for read in (lambda: load(path, key=SECRET), lambda: sketch.merge_file(path, key=SECRET)):
        with pytest.raises((SketchFileError, MergeError)):
            read()
    assert sketch == sketch_of(2)


def test_bytes_and_pickles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUPERHOSTS_KEY", SECRET.decode())
    sketch = sketch_of(1)
    assert pickle.loads(pickle.dumps(sketch)) == sketch
    assert Sketch.from_bytes(sketch.to_bytes(), key=SECRET) == sketch
    assert load(io.BytesIO(sketch.to_bytes()), key=SECRET).part(Part()) == sketch.part(Part())
