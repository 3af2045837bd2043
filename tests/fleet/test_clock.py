"""A hub whose own clock is wrong: nothing is removed by age before the clock agrees with what sites and files say."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from fleets import KEY, make_sketch, write_parcel
from hubs import SITES, Node, make_archive, three
from superhosts.core.pairs import Part, Window
from superhosts.core.units import SECOND
from superhosts.fleet.archive import SavedFolder
from superhosts.fleet.clock import Clock, TimeSource
from superhosts.fleet.link import MERGED
from superhosts.fleet.names import SketchId
from superhosts.sketch.sketch import Sketch

DAY = 86400.0


class Time:
    """A clock that a test sets; the steady one runs on."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self.source = TimeSource(lambda: time.time() + self.ahead)


@pytest.fixture
def clock() -> Time:
    return Time()


def make_node(tmp_path: Path, clock: Time, **options: Any) -> Node:
    archive = make_archive(tmp_path, keep=30 * DAY)
    return Node(tmp_path, archive=archive, times=clock.source, **{"grace": 0.0, "sweep_every": 0.0, **options})


def kept(node: Node) -> int:
    return len(list(node.archive.folder.glob("*/*.cube")))


def sketch_of_now(clock: Time, site: str, lag: float = 0.0) -> Sketch:
    """A sketch of the five minutes that ended a moment ago."""
    end = int(clock.source.wall() - lag) // 300 * 300 * SECOND
    sketch = make_sketch(site)
    sketch.window = Window(end - 300 * SECOND, end)
    span = {"start": sketch.window.start, "end": end}
    sketch.entries = [{"site": site, **span, **Part()._asdict(), "pairs": 1}]
    return sketch


def reported(tmp_path: Path, clock: Time) -> Node:
    node = make_node(tmp_path, clock).step(*(make_sketch("ams", number) for number in range(3)))
    assert (kept(node), len(node.store.windows())) == (3, 3)
    return node


@pytest.mark.parametrize("recorded", [True, False], ids=["state kept", "no record"])
def test_a_clock_far_ahead_at_the_start_removes_nothing(tmp_path: Path, clock: Time, recorded: bool):
    before = reported(tmp_path, clock)
    if recorded:
        before.hub.tidy()
    clock.ahead = 100 * DAY
    for _ in range(2):  # also after a second start: what was written meanwhile proves nothing
        node = make_node(tmp_path, clock).step(make_sketch("fra", 7))
        for _ in range(3):
            node.hub.tidy()
        assert len(node.store.windows()) == kept(node) == 4
        assert sum("CLOCK IN DOUBT" in line for line in node.said) == 1
        assert node.hub.status()["clock"]
        assert node.hub.counters.retired == 0


def test_a_clock_that_sites_agree_with_is_believed_again(tmp_path: Path, clock: Time):
    reported(tmp_path, clock)
    clock.ahead = 100 * DAY
    node = make_node(tmp_path, clock)
    node.hub.tidy()
    assert kept(node) == 3
    for site in ("ams", "fra"):
        assert node.send(sketch_of_now(clock, site)).verdict == MERGED  # the hub was switched off for so long
    node.hub.step()
    node.hub.tidy()
    assert node.hub.status()["clock"] is None
    assert kept(node) == 1
    assert len(node.store.windows()) == 1
    assert any("is plausible again" in line for line in node.said)


def lose_state(tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "state")


@pytest.mark.slow
@pytest.mark.parametrize("named", [True, False], ids=["--sites", "sites of the windows"])
@pytest.mark.parametrize("lost", [True, False], ids=["state lost", "state kept"])
def test_one_site_with_the_same_wrong_clock_removes_nothing(tmp_path: Path, clock: Time, named: bool, lost: bool):
    sites = SITES if named else ()
    before = make_node(tmp_path, clock, sites=sites).step(*three())
    before.hub.tidy()
    if lost:
        lose_state(tmp_path)
    clock.ahead = 100 * DAY
    for lags in (range(14, 0, -1), [0]):  # what the first start has written is not proof for the second
        node = make_node(tmp_path, clock, sites=sites).step(
            *(sketch_of_now(clock, "ams", lag=300.0 * lag) for lag in lags)
        )
        node.hub.tidy()
        assert node.hub.status()["clock"]
        assert node.archive.union(KEY).exists()
        for path in tmp_path.glob("archive/*/*.cube"):  # the system stamps files with the wrong time
            if KEY not in path.name:
                os.utime(path, (clock.source.wall(), clock.source.wall()))
    node.send(sketch_of_now(clock, "fra"))
    node.hub.tidy()
    assert node.hub.status()["clock"] is None


@pytest.mark.parametrize("lost", [True, False], ids=["state lost", "state kept"])
def test_the_only_site_of_a_fleet_decides(tmp_path: Path, clock: Time, lost: bool):
    before = make_node(tmp_path, clock, sites=()).step(make_sketch("ams"))
    before.hub.tidy()
    if lost:
        lose_state(tmp_path)
    clock.ahead = 100 * DAY
    node = make_node(tmp_path, clock, sites=())
    node.hub.tidy()
    assert node.hub.status()["clock"]
    node.send(sketch_of_now(clock, "ams"))
    node.hub.tidy()
    assert node.hub.status()["clock"] is None


def test_one_site_of_a_fleet_that_nobody_knows_does_not_decide(tmp_path: Path, clock: Time):
    reported(tmp_path, clock)
    lose_state(tmp_path)
    for note in tmp_path.glob("archive/*/*.json"):
        note.unlink()
    clock.ahead = 100 * DAY
    node = make_node(tmp_path, clock, sites=())
    node.send(sketch_of_now(clock, "ams"))
    node.hub.tidy()
    assert node.hub.status()["clock"]
    node.send(sketch_of_now(clock, "fra"))
    node.hub.tidy()
    assert node.hub.status()["clock"] is None


def test_an_operator_says_that_the_clock_is_right(tmp_path: Path, clock: Time):
    reported(tmp_path, clock).hub.tidy()
    clock.ahead = 100 * DAY
    node = make_node(tmp_path, clock)
    node.hub.tidy()
    assert kept(node) == 3
    (line,) = [line for line in node.said if "CLOCK IN DOUBT" in line]
    record = Path(line.rpartition("touch ")[2])
    os.utime(record, (clock.source.wall(), clock.source.wall()))
    node.hub.tidy()
    assert kept(node) == 0


def test_a_clock_that_jumps_while_the_hub_runs_removes_nothing(tmp_path: Path, clock: Time):
    node = reported(tmp_path, clock)
    node.hub.tidy()
    for ahead in (100 * DAY, -100 * DAY):
        clock.ahead = ahead
        node.hub.tidy()
        assert (kept(node), len(node.store.windows())) == (3, 3)
        assert node.hub.status()["clock"]
    clock.ahead = 0.0
    node.hub.tidy()
    assert node.hub.status()["clock"] is None


def test_what_a_clock_that_was_behind_has_written_is_not_old(tmp_path: Path, clock: Time):
    clock.ahead = -100 * DAY
    node = make_node(tmp_path, clock)
    clock.ahead = 0.0
    now = sketch_of_now(clock, "ams")
    clock.ahead = -100 * DAY
    node.step(now)
    for path in node.archive.folder.glob("*/*.cube"):
        os.utime(path, (clock.source.wall(), clock.source.wall()))
    clock.ahead = 0.0
    assert node.send(sketch_of_now(clock, "fra", lag=600)).verdict == MERGED
    node.hub.step()
    node.hub.tidy()
    assert node.hub.status()["clock"] is None
    assert len(node.store.windows()) == kept(node) == 2


def test_a_short_rest_is_no_doubt_and_old_windows_go(tmp_path: Path, clock: Time):
    reported(tmp_path, clock)
    clock.ahead = 1800.0
    node = make_node(tmp_path, clock, late=600.0)
    node.hub.tidy()
    assert node.hub.status()["clock"] is None
    assert node.store.windows() == []


def test_one_sweep_removes_one_day_at_most_and_says_so(tmp_path: Path):
    said: list[str] = []
    archive = make_archive(tmp_path, keep=DAY, say=said.append)
    for day in range(3):
        sketch = make_sketch("ams", 288 * day)
        path = write_parcel(sketch, tmp_path / "wire")
        archive.add_union(path, SketchId.parse(path.name).window_name)
    later = time.time() + 1000 * DAY
    assert [archive.sweep(later) for _ in range(4)] == [1, 1, 1, 0]
    assert [line.split()[4] for line in said] == ["20261114", "20261115", "20261116"]
    assert "2 more days" in said[0]


def test_windows_are_retired_a_bounded_number_at_a_time(tmp_path: Path, clock: Time):
    node = make_node(tmp_path, clock, late=-1.0, max_retired=2).step(
        *(make_sketch("ams", number) for number in range(3))
    )
    node.hub.tidy()
    assert len(node.store.windows()) == 1
    assert any("past --late" in line for line in node.said)
    node.hub.tidy()
    assert node.store.windows() == []


def test_a_clock_without_files_is_believed(tmp_path: Path, clock: Time):
    clock.ahead = 1000 * DAY
    assert Clock(tmp_path / "clock", lambda: 0.0, print, clock.source).is_believed({})


# A watch, which has no sites


class SteadyTime(Time):
    """A clock and a steady clock that a test sets; both go on together, and `ahead` is what somebody sets."""

    def __init__(self) -> None:
        self.ahead = self.gone = 0.0
        self.begin = time.time()
        self.source = TimeSource(lambda: self.begin + self.gone + self.ahead, lambda: self.gone)


def saved(folder: Path, ages: dict[str, float], now: float) -> None:
    folder.mkdir(exist_ok=True)
    for name, age in ages.items():
        path = folder / name
        path.touch()
        os.utime(path, (now - age, now - age))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != ".clock")


def test_saved_sketches_of_this_site_are_removed_by_age_and_nothing_else(tmp_path: Path) -> None:
    clock, said, folder = SteadyTime(), list[str](), tmp_path / "saved"
    first, second = "20261001T120000Z-5m", "20261002T120000Z-5m"
    new = {f"{second}-local.cube": DAY, f".{second}-local.cube.7-9.tmp": 5.0}
    others = (
        *(f"{first}-ams.cube", f"{first}-local-2.cube", f"{first}.cube", f"{first}-local.cube.bak", "notes.cube"),
        *(
            f"x{first}-local.cube",
            f".{first}-local.cube",
            f"{first}-local.cube.1-2.tmp",
            "20269901T120000Z-5m-local.cube",
        ),
    )
    old = {
        f"{first}-local.cube": 31 * DAY,
        f".{first}-local.cube.1-2.tmp": DAY,
        "20261003T120000Z-1h-local.cube": 99 * DAY,
    }
    saved(folder, {**new, **old, **dict.fromkeys(others, 99 * DAY)}, clock.begin)
    kept = SavedFolder(folder, "local", 30 * DAY, said.append, clock.source)
    assert [kept.sweep_if_believed() for _ in range(3)] == [1, 1, 0]  # a day each time
    assert names(folder) == sorted([*new, *others])
    assert said[0] == (
        f"--save {folder}: 1 sketch of 20261001 removed: older than 30 days; those of 1 more day go at the next looks"
    )
    assert len(said) == 2


def test_a_watch_with_a_clock_far_ahead_waits_and_believes_it_in_the_end(tmp_path: Path) -> None:
    """It has no other evidence. A day is enough to notice the warning, and no folder may grow for ever."""
    clock, said, folder, name = SteadyTime(), list[str](), tmp_path / "saved", "20261001T120000Z-5m-local.cube"
    saved(folder, {name: DAY}, clock.begin)
    kept = SavedFolder(folder, "local", 30 * DAY, said.append, clock.source)
    assert kept.sweep_if_believed() == 0
    clock.ahead = 400 * DAY
    for clock.gone in (60.0, 0.9 * DAY):
        assert (kept.sweep_if_believed(), names(folder)) == (0, [name])
    assert len(said) == 1
    assert said[0].startswith("CLOCK IN DOUBT: it shows ")
    assert "nothing is removed by age for the next 24.0 h, so set the clock if it is wrong; if it is" in said[0]
    assert said[0].endswith(f"touch {folder}/.clock")
    again = SavedFolder(folder, "local", 30 * DAY, said.append, clock.source)  # a restart begins to wait anew
    assert (again.sweep_if_believed(), len(said)) == (0, 2)
    clock.gone = 2 * DAY
    assert (again.sweep_if_believed(), names(folder)) == (1, [])


def test_a_watch_that_was_off_for_a_night_removes_at_once(tmp_path: Path) -> None:
    clock, said, folder, name = SteadyTime(), list[str](), tmp_path / "saved", "20261001T120000Z-5m-local.cube"
    saved(folder, {name: 29.5 * DAY}, clock.begin)
    saved(folder, {"20261101T120000Z-5m-local.cube": 0.0}, clock.begin)
    assert SavedFolder(folder, "local", 30 * DAY, said.append, clock.source).sweep_if_believed() == 0
    clock.ahead = 0.9 * DAY
    assert SavedFolder(folder, "local", 30 * DAY, said.append, clock.source).sweep_if_believed() == 1
    assert not any("DOUBT" in line for line in said)


def test_a_clock_that_is_set_right_is_believed_at_once(tmp_path: Path) -> None:
    """A machine without a battery starts in 1970, and hears of the time later."""
    clock, said, folder, name = SteadyTime(), list[str](), tmp_path / "saved", "20261001T120000Z-5m-local.cube"
    saved(folder, {name: 31 * DAY, "20261101T120000Z-5m-local.cube": 0.0}, clock.begin)
    clock.ahead = -clock.begin
    kept = SavedFolder(folder, "local", 30 * DAY, said.append, clock.source)
    assert (kept.sweep_if_believed(), "CLOCK IN DOUBT: it shows 1970" in said[0]) == (0, True)
    clock.ahead = 0.0
    assert kept.sweep_if_believed() == 1
    assert names(folder) == ["20261101T120000Z-5m-local.cube"]
