"""Sketch files of earlier releases, one of each format version and detector, give the same answers as then."""

from __future__ import annotations

import json
import shutil

import pytest

from golden.make import KEY, SMALL, answers
from places import TESTS
from superhosts import SketchFileError, load
from superhosts.detectors.registry import DETECTORS

GOLDEN = TESTS / "golden"
EXPECTED = {
    path.parent / name: answer
    for path in sorted(GOLDEN.glob("*/answers.json"))
    for name, answer in json.loads(path.read_text()).items()
}


def test_every_detector_has_a_golden_file():
    assert set(SMALL) == set(DETECTORS)
    assert {f"{name}.cube" for name in DETECTORS} <= {path.name for path in EXPECTED}


@pytest.mark.parametrize("path", EXPECTED, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_golden_file_gives_its_answers(path):
    assert answers(path) == EXPECTED[path]


@pytest.mark.parametrize("path", EXPECTED, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_golden_file_survives_being_written_again(path, tmp_path):
    load(path, key=KEY).save(tmp_path / path.name)
    assert answers(tmp_path / path.name) == EXPECTED[path]


@pytest.mark.parametrize("name", ["cube.cube", "cube-rows-32.cube", "cube-rows-128.cube", "union.cube"])
def test_a_golden_file_is_merged_by_the_command(run, tmp_path, name):
    (tmp_path / "key").write_bytes(KEY)
    (tmp_path / "key").chmod(0o600)
    path, union = GOLDEN / "v3" / name, tmp_path / "union.cube"
    shutil.copy(path, tmp_path / "copy.cube")
    assert run("merge", path, tmp_path / "copy.cube", "-o", union, "--key-file", tmp_path / "key").status == 0
    assert answers(union) == EXPECTED[path]


def test_a_file_of_the_first_version_is_refused_by_name():
    with pytest.raises(SketchFileError, match="format version 1; this program reads versions 2 and 3"):
        load(GOLDEN / "v1" / "cube.cube", key=KEY)
