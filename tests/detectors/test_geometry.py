"""The text form of a geometry: `plan` prints it, and every command that creates cubes parses it."""

from __future__ import annotations

from typing import Any

import pytest

from superhosts.core.pairs import Part
from superhosts.detectors.cube import Geometry
from superhosts.errors import GeometryError, UsageError
from superhosts.fleet.intake import expected_kinds
from superhosts.pipeline.settings import Settings

TEXT = "slices=8,arrays=4,columns=17,rows=1024,labels=4,share=2"
SMALL = Geometry(32, 3, 4, 10, 17, 2, 1)


def test_spelling_and_reading() -> None:
    assert SMALL.spelled == TEXT
    assert Geometry.parse(TEXT) == SMALL
    assert Geometry.parse("rows=1024, share=2, labels=4, slices=8, columns=17, arrays=4") == SMALL
    assert Geometry.parse(TEXT, 128) == SMALL._replace(key_bits=128)
    for geometry in (Geometry.for_memory("128MiB"), Geometry.for_traffic("8MiB", flows="20M", threshold=300)):
        assert Geometry.parse(geometry.spelled) == geometry


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("128MiB", "'128MiB' is invalid; write it as superhosts plan prints it: slices=64"),
        (TEXT.replace("share=2", "share=x"), "'share=x' is invalid"),
        (TEXT.replace("share=2", "share=-2"), "'share=-2' is invalid"),
        (TEXT.replace("arrays=4", "arrays=0"), "'arrays=0' is invalid"),
        (TEXT + ",arrays=4", "'arrays=4' is invalid"),
        (TEXT + ",height=4", "'height=4' is invalid"),
        ("slices=8,arrays=4,columns=17", "labels, rows, share missing"),
        (TEXT.replace("rows=1024", "rows=1000"), "rows=1000 must be a power of two"),
        (TEXT.replace("columns=17", "columns=1"), "columns=1"),
        (TEXT.replace("arrays=4", "arrays=99"), "arrays=99"),
    ],
)
def test_a_geometry_that_is_none(text: str, words: str) -> None:
    with pytest.raises(GeometryError, match=words):
        Settings(geometry=text)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"memory": "64MiB"}, "geometry= and memory: choose one"), ({"detector": "cbaa"}, 'only with detector="cube"')],
)
def test_contradictions(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Settings(geometry=TEXT, **options)


def test_settings_make_cubes_of_it() -> None:
    settings = Settings(geometry=TEXT, ipv6_prefix=128, device="cpu", threads=2)
    assert settings.make_detector(Part(4, "inner", "any")).geometry == SMALL
    wide = settings.make_detector(Part(6, "inner", "any"))
    assert wide.geometry == SMALL._replace(key_bits=128)
    assert settings.cube_memory == wide.geometry.memory > SMALL.memory
    assert settings.most_memory == (SMALL.memory * 3 // 2) + (wide.geometry.memory * 3 // 2) + (2 * 2 * 4 << 20)
    assert settings.fingerprint != Settings(ipv6_prefix=128).fingerprint
    assert expected_kinds(settings) != expected_kinds(Settings(ipv6_prefix=128, device="cpu"))
