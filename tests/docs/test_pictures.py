"""Pictures of the documentation that a script draws are those that the script draws now."""

from __future__ import annotations

import runpy
from xml.etree import ElementTree

import pytest

from places import DOCS

pytestmark = pytest.mark.slow

IMAGES = DOCS / "images"


def test_the_overview_is_what_its_script_draws() -> None:
    drawn = runpy.run_path(str(IMAGES / "overview.py"))["picture"]()
    assert (IMAGES / "overview.svg").read_text(encoding="utf-8") == drawn
    root = ElementTree.fromstring(drawn)
    width, height = map(float, root.attrib["viewBox"].split()[2:])
    places = [(float(each.attrib["x"]), float(each.attrib["y"])) for each in root.iter() if "x" in each.attrib]
    assert len(places) > 300
    assert all(0 <= x < width and 0 <= y < height for x, y in places)


def test_the_and_of_the_overview_follows_from_its_columns() -> None:
    script = runpy.run_path(str(IMAGES / "overview.py"))
    columns = [array[column] for array, column in zip(script["fill_cube"](), script["HOT"], strict=True)]
    own = [{row for row, is_own in column.items() if is_own} for column in columns]
    assert own[0] == own[1] == own[2]
    assert len(own[0]) == script["BUSY_ROWS"]
    assert all(len(column) > len(own[0]) for column in columns[:2])  # Neighbours have set bits there, too,
    assert set.intersection(*map(set, columns)) >= own[0]  # which the AND drops for the most part.
    ElementTree.fromstring((IMAGES / "overview.svg").read_text(encoding="utf-8"))
