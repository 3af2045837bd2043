"""Every fuzz target for a small number of cases, always the same; `make fuzz` runs them for as long as you like."""

from __future__ import annotations

import marshal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuzz.__main__ import save
from fuzz.campaign import CURRENT, Campaign
from fuzz.targets import NAMES, TARGETS, Target, load


@pytest.mark.hypothesis
@pytest.mark.parametrize("name", NAMES)
def test_target(name: str) -> None:
    target = load(name)
    few = max(5, settings().max_examples // 4)  # a campaign has many
    usual = settings(max_examples=few, database=None, suppress_health_check=list(HealthCheck))
    usual(given(case=target.cases)(lambda case: target.check(case)))()


# The harness itself


def test_every_target_is_listed() -> None:
    assert [load(name).name for name in NAMES] == NAMES
    assert set(TARGETS) == set(NAMES)


def fails_from_seven_on(number: int) -> None:
    assert number < 7


def test_a_campaign_ends_with_the_smallest_case_that_fails(tmp_path: Path) -> None:
    campaign = Campaign(Target("planted", st.integers(0, 1 << 40), fails_from_seven_on), tmp_path)
    with pytest.raises(AssertionError):
        campaign.run(1, 200, 0)
    path = save("planted", (tmp_path / CURRENT).read_bytes(), "assert number < 7", tmp_path / "failures")
    assert path.read_text() == "7\n# assert number < 7\n"


PLANTED = """
import os, sys, time
from pathlib import Path
from fuzz.campaign import Campaign
from fuzz.targets import Target
campaign = Campaign(Target("planted", None, {check}), Path(sys.argv[1]), hang=1.0)
campaign.guard()
campaign.run_case(("some", b"case"))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("check", "said"), [("lambda case: os.abort()", "Aborted"), ("lambda case: time.sleep(600)", "Timeout")]
)
def test_the_case_that_ends_the_process_is_known(check: str, said: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", PLANTED.format(check=check), str(tmp_path)]
    ended = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=600)
    assert ended.returncode != 0
    assert marshal.loads((tmp_path / CURRENT).read_bytes()) == ("some", b"case")
    assert said in ended.stderr
