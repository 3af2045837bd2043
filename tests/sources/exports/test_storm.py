"""A real process under attack for some seconds; `python tests/exports_storm.py` does it for as long as you like."""

from __future__ import annotations

import sys

import pytest

from exports_storm import storm

pytestmark = pytest.mark.slow


@pytest.mark.skipif(sys.platform != "linux", reason="exports are received on Linux only")
def test_hostile_exporters_do_not_harm_an_honest_one() -> None:
    counted = storm(3.0)
    assert counted["honest"] > 0
    assert counted["given_up"] + counted["bad_templates"] > 0
