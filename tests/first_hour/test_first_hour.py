"""The captures that the commands of the documentation read are those of the plan."""

from __future__ import annotations

import gzip

import pytest

from first_hour.office import FOLDER, captures


@pytest.mark.slow
def test_the_captures_are_those_of_the_plan() -> None:
    for name, content in captures().items():
        assert gzip.decompress((FOLDER / name).read_bytes()) == content, name
