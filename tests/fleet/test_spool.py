"""The spool of an edge: nothing leaves it without the hub's word, and it never grows beyond its cap."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

import superhosts as sh
from faults import full_disk, system_call
from fleets import KEY, damage, make_sketch, window
from superhosts.errors import OutputError, UsageError
from superhosts.fleet.edge import Position
from superhosts.fleet.link import MERGED, REFUSED, RESEND, Receipt
from superhosts.fleet.names import SketchId, check_site
from superhosts.fleet.spool import Spool
from traffic import content


@pytest.fixture
def spool(tmp_path: Path, said: list[str]) -> Spool:
    return Spool(tmp_path / "spool", "ams", cap=1 << 30, say=said.append)


def test_names_say_what_a_sketch_is_and_equal_content_has_one_name(spool: Spool):
    first = spool.put(make_sketch("ams"))
    sketch_id = SketchId.parse(first.name)
    assert (sketch_id.site, sketch_id.window, sketch_id.window_name) == ("ams", window(0), KEY)
    assert spool.put(make_sketch("ams")) == first
    assert spool.put(make_sketch("ams", peers=2001)) != first
    assert len(spool.waiting()) == 2


@pytest.mark.parametrize(
    "name",
    [
        "20261114T120000Z-5m-ams.cube",
        "20261114T120000Z-5m-ams-0123456789abcdeg.cube",
        "20261114T120000Z-300s-ams-0123456789abcdef.cube",  # 5m is its name
        "20261314T120000Z-5m-ams-0123456789abcdef.cube",
        "20261114T120000Z-5m-a.s-0123456789abcdef.cube",
        "../20261114T120000Z-5m-ams-0123456789abcdef.cube",
        "20261114T120000Z-5m-ams-0123456789abcdef.cube\n",
    ],
)
def test_other_names_are_refused(name: str):
    with pytest.raises(UsageError):
        SketchId.parse(name)


def test_a_site_may_have_a_hyphen_in_its_name():
    name = "20261114T120000Z-5m-ams-2_b-0123456789abcdef.cube"
    assert SketchId.parse(name).site == "ams-2_b"
    assert SketchId.parse(name).name == name


@pytest.mark.parametrize("site", ["", "a.b", "a b", "a*", "-a", "a/b", "x" * 64, "ä"])
def test_sites_are_words(site: str):
    with pytest.raises(UsageError, match="--site"):
        check_site(site)


def test_sketches_wait_oldest_window_first_and_go_with_the_receipt(spool: Spool):
    paths = [spool.put(make_sketch("ams", number)) for number in (2, 0, 1)]
    assert spool.waiting() == [paths[1], paths[2], paths[0]]
    spool.settle(Receipt(paths[2].name, MERGED))
    spool.settle(Receipt(paths[2].name, MERGED))  # a second receipt of the same
    assert spool.waiting() == [paths[1], paths[0]]
    assert spool.counters.delivered == 1


@pytest.mark.parametrize("verdict", [MERGED, REFUSED, RESEND])
@pytest.mark.parametrize("name", ["../victim", "state.sqlite", "{folder}/state.sqlite", "..", ""])
def test_a_receipt_touches_nothing_but_sketches_of_the_site(spool: Spool, tmp_path: Path, name: str, verdict: str):
    victims = [tmp_path / "victim", spool.folder / "state.sqlite"]
    other = spool.put(make_sketch("ams"))
    foreign = other.rename(other.with_name(other.name.replace("-ams-", "-fra-")))
    for victim in victims:
        victim.write_text("precious")
    for each in (name.format(folder=spool.folder), foreign.name):
        spool.settle(Receipt(each, verdict, "from the wire"))
    assert all(victim.read_text() == "precious" for victim in victims)
    assert foreign.exists()


def test_a_refused_sketch_is_kept_aside_and_said(spool: Spool, said: list[str]):
    path = spool.put(make_sketch("ams"))
    spool.settle(Receipt(path.name, REFUSED, "cannot merge: key aa into key bb"))
    assert spool.waiting() == []
    assert (spool.folder / "refused" / path.name).exists()
    assert "key aa into key bb" in said[0]


def test_a_sketch_that_the_hub_wants_again_stays_unless_it_is_damaged(spool: Spool, said: list[str]):
    path = spool.put(make_sketch("ams"))
    spool.settle(Receipt(path.name, RESEND, "checksum"))
    assert spool.waiting() == [path]
    damage(path)
    spool.settle(Receipt(path.name, RESEND, "checksum"))
    assert spool.waiting() == []
    assert (spool.folder / "damaged" / path.name).exists()
    assert spool.counters.damaged == 1
    assert "DAMAGED" in said[0]


def test_a_start_finds_what_is_whole_and_sets_aside_what_is_not(spool: Spool, tmp_path: Path, said: list[str]):
    good, cut, other = (spool.put(make_sketch("ams", number)) for number in range(3))
    os.truncate(cut, cut.stat().st_size // 2)
    renamed = other.with_name(other.name.replace("Z-5m", "Z-1h"))
    other.rename(renamed)
    (spool.folder / ".fresh.tmp").write_bytes(b"half")
    again = Spool(tmp_path / "spool", "ams", cap=1 << 30, say=said.append)
    assert again.waiting() == sorted([good, cut, renamed])  # a start reads none of them
    assert [again.check(path) for path in (good, cut, renamed)] == [True, False, False]
    assert again.waiting() == [good]
    assert again.counters.damaged == 2
    assert not (spool.folder / ".fresh.tmp").exists()
    assert content(sh.load(good)) == content(make_sketch("ams", 0))


def test_a_sketch_that_cannot_be_read_now_is_not_damaged(spool: Spool, tmp_path: Path, said: list[str]):
    path = spool.put(make_sketch("ams"))

    def broken(*_: object) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    with system_call("pread", broken):
        spool.settle(Receipt(path.name, RESEND, "checksum"))
        again = Spool(tmp_path / "spool", "ams", cap=1 << 30, say=said.append)
        assert again.check(path)  # the attempt to send it tells more
    assert spool.waiting() == again.waiting() == [path]
    assert again.counters.damaged == spool.counters.damaged == 0
    assert len(said) == 2
    assert all("cannot be read now" in line and "Input/output error" in line for line in said)


def test_a_spool_with_sketches_of_another_site_is_refused(spool: Spool, tmp_path: Path, said: list[str]):
    path = spool.put(make_sketch("ams"))
    with pytest.raises(UsageError, match=r"spool: sketches of site ams wait here, this is fra; .*--site ams"):
        Spool(tmp_path / "spool", "fra", cap=1 << 30, say=said.append)
    assert path.exists()
    spool.settle(Receipt(path.name, MERGED))
    Spool(tmp_path / "spool", "fra", cap=1 << 30, say=said.append)


def test_at_the_cap_the_oldest_window_is_dropped_loudly_but_those_set_aside_go_first(tmp_path: Path, said: list[str]):
    size = Spool(tmp_path / "probe", "ams", cap=1 << 30, say=said.append).put(make_sketch("ams")).stat().st_size
    spool = Spool(tmp_path / "spool", "ams", cap=3 * size + size // 2, say=said.append)
    first = spool.put(make_sketch("ams", 0))
    spool.settle(Receipt(first.name, REFUSED, "no"))
    said.clear()
    paths = [spool.put(make_sketch("ams", number)) for number in range(1, 4)]
    assert (spool.waiting(), spool.counters.dropped, said) == (paths, 0, [])
    assert not (spool.folder / "refused" / first.name).exists()
    paths += [spool.put(make_sketch("ams", number)) for number in (4, 5)]
    assert spool.waiting() == paths[2:]
    assert spool.counters.dropped == 2
    assert all("DROPPED" in line for line in said)
    assert paths[0].name in said[0]
    alone = Spool(tmp_path / "alone", "ams", cap=10, say=said.append)
    path = alone.put(make_sketch("ams"))
    assert alone.waiting() == [path]  # one sketch larger than the cap is kept


def test_a_disk_that_takes_no_more_leaves_nothing_half(spool: Spool):
    with full_disk(100), pytest.raises(OutputError, match="File too large"):
        spool.put(make_sketch("ams"))
    assert [path for path in spool.folder.iterdir() if path.is_file()] == []


def test_a_position_belongs_to_its_inputs_and_skips_only_what_lies_before_the_frontier(tmp_path: Path):
    cut = {"window": "5m"}
    early, reaches, gone = (f"{tmp_path / name}@1" for name in ("early", "reaches", "gone"))
    (tmp_path / "early.gz").touch()  # compressed since
    (tmp_path / "reaches").touch()
    position = Position(tmp_path, ["a", "b"], cut)
    assert position.frontier is None
    assert position.done() == frozenset()
    position.advance(500, {early: (1, 499), reaches: (2, 500), gone: (3, 400)})
    again = Position(tmp_path, ["b", "a"], cut)
    assert again.frontier == 500
    assert again.done() == {early}
    again.advance(800, {})
    assert Position(tmp_path, ["a", "b"], cut).done() == {early, reaches}
    assert Position(tmp_path, ["a", "b"], {"window": "1m"}).frontier is None
    assert Position(tmp_path, ["a"], cut).frontier is None


def test_the_same_name_in_another_folder_is_another_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cap.pcap").touch()
    monkeypatch.chdir(tmp_path / "one")
    Position(tmp_path, ["cap.pcap"], {}).advance(500, {})
    assert Position(tmp_path, [str(tmp_path / "one" / "cap.pcap")], {}).frontier == 500
    monkeypatch.chdir(tmp_path / "two")
    assert Position(tmp_path, ["cap.pcap"], {}).frontier is None
