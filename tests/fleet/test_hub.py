"""The hub: one exact answer per window, whatever the order, the repeats and the crashes."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import superhosts as sh
from crowd import together
from faults import DeadError, at_commit, at_rename, die
from fleets import KEY, LARGER, SETTINGS, damage, forge_parcel, make_sketch, window, write_parcel
from forging import take_apart
from hubs import SITES, FakeTime, Node, make_archive, three, union_of
from superhosts.core.pairs import MOST_GROUPS, HostKeys, Part
from superhosts.core.results import Selection
from superhosts.cubefile.container import VERSION
from superhosts.cubefile.header import MOST_PARTS
from superhosts.errors import HalfMergedError, MergeError
from superhosts.fleet.filelink import FileReceiver, FileSender
from superhosts.fleet.link import MERGED, REFUSED, RESEND, Receipt
from superhosts.fleet.report import HubReport
from superhosts.fleet.spool import Spool
from superhosts.fleet.store import UNION, WindowStore
from superhosts.pipeline.settings import Settings
from superhosts.sketch.files import estimate_in_file
from superhosts.sketch.sketch import Sketch
from traffic import content


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_window_is_reported_when_all_sites_are_in_and_the_union_is_exact(node: Node):
    sketches = three()
    for sketch in sketches[:2]:
        assert node.send(sketch).verdict == MERGED
    node.hub.step()
    assert node.reports == []
    node.step(sketches[2])
    (report,) = node.reports
    assert report.attendance == "3 of 3 sites"
    assert content(node.union(0)) == content(union_of(*sketches))
    (row,) = report.rows
    assert row["host"] == "10.0.0.7"
    assert row["peers_low"] <= 1400 <= row["peers_high"]
    assert (row["missing"], row["revision"]) == ([], 1)
    assert [site["site"] for site in row["sites"]] in map(list, itertools.permutations(SITES))
    for site, sketch in zip(sorted(row["sites"], key=lambda seen: seen["site"]), sketches, strict=True):
        sketch.save(node.folder / "alone.cube")
        alone = sh.load(node.folder / "alone.cube").estimate("10.0.0.7")[0]
        assert alone.exact
        assert not row["exact"]  # Several sites saw it.
        assert (site["peers"], site["peers_low"], site["peers_high"]) == alone[1:4]


def test_a_host_that_one_site_saw_is_exact_if_all_sites_counted(node: Node) -> None:
    node.step(*(make_sketch(site, 0, host=0x0A000001 + host, peers=1400 + host) for host, site in enumerate(SITES)))
    (report,) = node.reports
    assert sorted((row["peers"], row["peers_high"], row["exact"]) for row in report.rows) == [
        (1400 + host, 1400 + host, True) for host in range(3)
    ]


def test_each_merged_sketch_shows_that_the_hub_works(node: Node):
    """A service manager ends a hub that does nothing for minutes, not one that merges hundreds of sketches."""
    stop, merged = threading.Event(), []
    node.send_all(*three())

    def on_turn() -> None:
        if node.reports:
            stop.set()

    node.hub.run(stop, on_turn=on_turn, on_merged=lambda: merged.append(len(node.reports)))
    assert merged == [0, 0, 0]


def test_grace_reports_without_a_site_and_says_who_is_missing(tmp_path: Path):
    node = Node(tmp_path, grace=0.0).step(*three()[:2])
    assert node.reports[0].attendance == "2 of 3 sites: missing nyc"
    assert node.reports[0].rows[0]["missing"] == ["nyc"]
    assert node.hub.counters.incomplete == 1


def test_grace_counts_from_the_first_sketch_however_many_follow(tmp_path: Path):
    clock = FakeTime()
    node = Node(tmp_path, sites=(*SITES, "lon"), grace=60.0, times=clock.source)
    for sketch in three():
        node.step(sketch)
        clock.now += 25
    assert node.reports == []  # 75 seconds after the first, but nobody has looked yet
    node.hub.step()
    assert [report.attendance for report in node.reports] == ["3 of 4 sites: missing lon"]


def test_what_comes_while_a_window_is_reported_again_waits_its_pause(tmp_path: Path):
    """However long a report takes, and however many sketches come meanwhile."""
    clock = FakeTime()
    node = Node(tmp_path, sites=("ams",), grace=60.0, late_pause=10.0, times=clock.source)
    times: list[float] = []

    def report(report: HubReport) -> None:
        times.append(clock.now)
        clock.now += 25  # it takes so long
        node.send(make_sketch("fra", base=5000 * len(times)))

    node.report = report
    node.send(make_sketch("ams"))
    for _ in range(40):
        node.hub.step()
        clock.now += 1
    assert len(times) > 2
    assert {after - before for before, after in itertools.pairwise(times)} == {35.0}


def test_a_late_window_waits_for_further_late_sketches(tmp_path: Path):
    """Sketches that come one by one, long after: one report for all that come within the pause."""
    clock = FakeTime()
    node = Node(tmp_path, sites=("ams",), grace=60.0, late_pause=10.0, times=clock.source).step(make_sketch("ams"))
    assert len(node.reports) == 1
    for base in range(30):  # a second apart
        node.step(make_sketch("fra", base=1000 * base))
        clock.now += 1.0
    assert len(node.reports) == 3
    clock.now += 10.0
    node.hub.step()
    assert node.reports[-1].revision == len(node.reports) == 4


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (Settings(memory="64KiB", device="cpu", threads=1, key=b"another key"), "key"),
        (LARGER, "geometry differs"),
        (Settings(memory="8MiB", device="cpu", threads=1, detector="cbaa"), "the detectors differ"),
    ],
)
def test_what_does_not_fit_is_refused_named_and_never_merged(tmp_path: Path, settings: Settings, words: str):
    node = Node(tmp_path, grace=0.0)
    node.send(three()[0])
    wrong = make_sketch("fra", settings=settings)
    receipt = node.send(wrong)
    assert receipt.verdict == REFUSED
    assert words in receipt.reason
    assert node.send(wrong) == receipt
    node.hub.step()
    assert "refused fra" in node.reports[0].attendance
    assert "fra" in node.reports[0].missing
    assert any("REFUSED" in line and "fra" in line for line in node.said)
    assert content(node.union(0)) == content(three()[0])
    assert node.intake.counters.refused == 1
    assert node.intake.known(write_parcel(wrong, tmp_path / "wire").name) == receipt


def test_a_sketch_of_another_version_is_refused_and_the_older_side_is_named(node: Node):
    header, blocks = take_apart(write_parcel(three()[0], node.folder))
    for version, more, words in [
        (99, {}, "format version 99; this program reads {}; upgrade the hub"),
        (1, {}, "format version 1; this program reads {}; upgrade the edge of ams"),
        (VERSION, {"news": 1}, "header field news: unknown field; a later release has written it: upgrade the hub"),
    ]:
        path = forge_parcel(node.folder / "wire", {**header, **more}, blocks, version=version)
        receipt = node.arrive(path, "ams")
        before, _, after = words.partition("{}")
        assert receipt.verdict == REFUSED
        assert before in receipt.reason
        assert receipt.reason.endswith(after)
        assert any(receipt.reason in line for line in node.said)


def test_a_site_cannot_speak_for_another(node: Node):
    path = write_parcel(three()[0], node.folder / "wire")
    receipt = node.arrive(path, "fra")
    assert receipt.verdict == REFUSED
    assert receipt.reason == "fra sent a sketch of ams"
    assert node.arrive(path, "ams").verdict == MERGED  # what fra did does not harm ams


def test_a_damaged_or_cut_file_is_asked_for_again(node: Node):
    path = write_parcel(three()[0], node.folder / "wire")
    whole = path.read_bytes()
    damage(path)
    assert node.arrive(path, "ams").verdict == RESEND
    path.write_bytes(whole[: len(whole) // 2])
    assert node.arrive(path, "ams").verdict == RESEND
    other = make_sketch("ams", peers=5)
    other.save(path)  # another sketch under this name
    assert node.arrive(path, "ams").verdict == RESEND
    path.write_bytes(whole)
    assert node.arrive(path, "ams").verdict == MERGED
    assert node.intake.counters.corrupt == 3


def test_a_name_that_lies_about_the_window_is_refused(node: Node):
    path = write_parcel(three()[0], node.folder / "wire")
    lying = path.with_name(path.name.replace("T1200", "T1300"))
    path.rename(lying)
    receipt = node.arrive(lying, "ams")
    assert receipt.verdict == REFUSED
    assert "window" in receipt.reason


def test_a_clock_an_hour_ahead_is_said_and_the_rest_goes_on(tmp_path: Path):
    node = Node(tmp_path, sites=("ams", "fra"), grace=0.0, times=FakeTime(window(0).end / 1e9).source).step(
        make_sketch("ams", 0), make_sketch("fra", 12)
    )
    assert node.intake.counters.ahead == 1
    assert any("fra" in line and "1.0 hours from now" in line for line in node.said)
    assert {report.attendance for report in node.reports} == {"1 of 2 sites: missing fra", "1 of 2 sites: missing ams"}


STEPS = {  # what the hub does not finish
    "union": at_rename(UNION, die),
    "rows": at_commit(die, after=1),
    "report": contextlib.nullcontext(),
    "issued": at_commit(die, after=2),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_hub_that_dies_at_any_step_loses_nothing_and_repeats_identical_rows(tmp_path: Path, step: str):
    """The step fails once with an error that nothing catches; then a new hub takes the folder as it is."""
    node = Node(tmp_path).send_all(*three())
    reported: list[HubReport] = []
    node.report = die if step == "report" else reported.append
    with STEPS[step], pytest.raises(DeadError):
        node.hub.step()
    assert len(reported) == (step == "issued")
    late = make_sketch("lon", peers=300, base=5000)
    again = Node(tmp_path)
    assert again.send(late).verdict == MERGED  # comes before the report is made again
    again.hub.step()
    again.hub.step()
    first, second = again.reports
    assert [first.revision, second.revision] == [1, 2]
    assert first.sites == list(SITES)
    assert all(list(report.rows) == list(first.rows) for report in reported)
    assert content(again.union(0)) == content(union_of(*three(), late))


def test_a_sketch_in_the_folder_counts_though_the_hub_died_before_the_ledger(tmp_path: Path):
    node = Node(tmp_path)
    sketches = three()
    node.send_all(*sketches[:2])
    path = write_parcel(sketches[2], tmp_path / "wire")
    shutil.copy(path, node.store.folder(KEY) / path.name)
    again = Node(tmp_path)
    assert again.intake.known(path.name) == Receipt(path.name, MERGED)
    again.hub.step()
    assert again.reports[0].attendance == "3 of 3 sites"


def test_memory_is_that_of_one_cube_and_old_sketches_go(tmp_path: Path):
    node = Node(tmp_path, sites=("ams",))
    for number in range(15):
        node.step(make_sketch("ams", number))
    node.hub.tidy()
    kept = [len(node.store.sketches(key)) for key in node.store.windows()]
    assert kept == [0] * 3 + [1] * 12
    late = make_sketch("fra", 0, peers=900, base=9000)
    node.send(late)
    node.hub.step(threading.Event())
    assert node.reports[-1].revision == 2
    assert content(node.union(0)) == content(union_of(make_sketch("ams", 0), late))
    (row,) = node.reports[-1].rows
    assert {site["site"] for site in row["sites"]} == {"ams", "fra"}  # the first from the report before


def test_past_windows_refuse_late_sketches_unless_an_archive_holds_the_union(tmp_path: Path):
    for name, archived in (("plain", False), ("kept", True)):
        archive = make_archive(tmp_path)
        node = Node(tmp_path / name, sites=("ams",), late=-1.0, archive=archive if archived else None)
        first = make_sketch("ams")
        node.step(first)
        node.hub.tidy()
        assert node.store.windows() == []
        assert node.send(first).verdict == MERGED  # known all the same
        late = make_sketch("fra", peers=900, base=9000)
        receipt = node.send(late)
        if not archived:
            assert (receipt.verdict, "--late" in receipt.reason) == (REFUSED, True)
            continue
        assert receipt.verdict == MERGED
        node.hub.step()
        assert [report.revision for report in node.reports] == [1, 2]
        assert content(sh.load(archive.union(KEY))) == content(union_of(first, late))


def test_the_archive_keeps_unions_and_sites_and_sweeps_by_age(tmp_path: Path):
    archive = make_archive(tmp_path, keep=100.0, with_sites=True)
    node = Node(tmp_path, archive=archive)
    sketches = three()
    for sketch in sketches:
        node.send(sketch)
    node.send(make_sketch("ams", peers=100, base=10_000))  # restarted within the window
    node.hub.step()
    names = sorted(path.name for path in archive.folder.glob("*/*.cube"))
    assert names == [f"20261114T120000Z-5m-{name}.cube" for name in ("ams", "fra", "hub", "nyc")]
    own = sh.load(archive.folder / "20261114" / "20261114T120000Z-5m-ams.cube")
    assert content(own) == content(union_of(sketches[0], make_sketch("ams", peers=100, base=10_000)))
    when = [path.stat().st_mtime for path in archive.folder.glob("*/*.cube")]
    assert archive.sweep(min(when) + 90) == 0
    assert archive.sweep(max(when) + 200) == 4
    assert list(archive.folder.iterdir()) == []


def test_a_hub_is_an_edge_of_a_higher_hub(tmp_path: Path):
    said: list[str] = []
    spool = Spool(tmp_path / "up", "eu", cap=1 << 30, say=said.append)
    low = Node(tmp_path / "low", upstream=spool)
    high = Node(tmp_path / "high", sites=("eu", "us"), grace=0.0)
    sender, receiver = FileSender(tmp_path / "link", "eu", said.append), FileReceiver(tmp_path / "link", said.append)
    stop = threading.Event()
    low.step(*three())
    for _ in range(2):
        sender.step(spool)
        receiver.step(high.intake, stop)
    assert spool.waiting() == []
    high.step(make_sketch("us", peers=900, base=1000))
    assert high.reports[-1].attendance == "2 of 2 sites"
    assert content(high.union(0)) == content(union_of(*three(), make_sketch("us", peers=900, base=1000)))
    late = make_sketch("lon", peers=50, base=20_000)  # a late site below re-opens the window above, too
    low.step(late)
    for _ in range(2):
        sender.step(spool)
        receiver.step(high.intake, stop)
    high.hub.step()
    assert content(high.union(0)) == content(union_of(*three(), make_sketch("us", peers=900, base=1000), late))


def test_late_sites_that_come_back_together_are_both_taken(tmp_path: Path):
    barrier = threading.Barrier(2)

    class Together(WindowStore):
        """Two threads restore a window at once, if nothing keeps the second one out."""

        def reopen(self, window: str, union: Path) -> None:
            with contextlib.suppress(threading.BrokenBarrierError):
                barrier.wait(0.5)
            super().reopen(window, union)

    archive = make_archive(tmp_path)
    node = Node(tmp_path, sites=("ams",), late=-1.0, archive=archive, store=Together)
    sketches = three()
    node.step(sketches[0])
    node.hub.tidy()
    paths = [(write_parcel(sketch, tmp_path / "wire"), min(sketch.sites)) for sketch in sketches[1:]]
    receipts = together(*(partial(node.arrive, *each) for each in paths))
    assert [receipt.verdict for receipt in receipts] == [MERGED, MERGED]
    node.hub.step()
    assert content(sh.load(archive.union(KEY))) == content(union_of(*sketches))


def test_a_window_taken_back_is_said_and_not_retired_before_its_sketch_is_in(tmp_path: Path):
    others: list[threading.Thread] = []

    class Tidied(WindowStore):
        """The hub tidies while a window is restored."""

        def reopen(self, window: str, union: Path) -> None:
            super().reopen(window, union)
            others.append(threading.Thread(target=node.hub.tidy))
            others[-1].start()
            others[-1].join(0.3)

    archive = make_archive(tmp_path)
    node = Node(tmp_path, sites=("ams",), late=-1.0, archive=archive, store=Tidied)
    first, second, _ = three()
    node.step(first).hub.tidy()
    node.step(second)
    others[0].join()
    node.hub.step()
    assert [report.revision for report in node.reports] == [1, 2]
    assert content(sh.load(archive.union(KEY))) == content(union_of(first, second))
    assert "20261114T120000Z-5m: restored from the archive for a sketch of fra" in node.said


def test_a_sketch_that_rots_on_the_hubs_disk_is_left_out_and_said(tmp_path: Path):
    node = Node(tmp_path, grace=0.0)
    sketches = three()
    node.send_all(*sketches)
    damage(next(node.store.folder(KEY).glob("*-fra-*.cube")), -40)  # which the checksum alone shows
    node = Node(tmp_path, grace=0.0)  # what this process has checked itself is not checked again
    node.hub.step()
    assert node.hub.counters.damaged == 1
    assert content(node.union(0)) == content(union_of(sketches[0], sketches[2]))
    assert node.reports[0].sites == ["ams", "nyc"]
    assert any("LEFT OUT" in line and "-fra-" in line for line in node.said)


def test_a_sites_sketch_that_rots_after_the_first_report_does_not_stop_the_next(tmp_path: Path):
    node = Node(tmp_path, grace=0.0)
    sketches = three()
    node.step(*sketches[:2])
    damage(next(node.store.folder(KEY).glob("*-fra-*.cube")))
    node.step(sketches[2])
    assert [report.revision for report in node.reports] == [1, 2]
    assert content(node.union(0)) == content(union_of(*sketches))
    assert {site["site"] for site in node.reports[1].rows[0]["sites"]} == set(SITES)  # fra's from the report before
    assert any("LEFT OUT" in line for line in node.said)


def test_a_sketch_that_fails_half_merged_leaves_nothing_in_the_union(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    node = Node(tmp_path, grace=0.0)
    sketches = [make_sketch(site, peers=1500, base=5000 * place) for place, site in enumerate(SITES)]
    node.send_all(*sketches)
    merge_file = Sketch.merge_file

    def half(whole: Sketch, path: Path, **options: Any) -> None:
        merge_file(whole, path, **options)
        if "-fra-" in path.name:
            raise HalfMergedError("a block does not decode", file=str(path))

    monkeypatch.setattr(Sketch, "merge_file", half)
    node.hub.step()
    assert node.reports[0].sites == ["ams", "nyc"]
    assert content(node.union(0)) == content(union_of(sketches[0], sketches[2]))


HOST = 0x0A000007
OPENED, ANSWERED, UNANSWERED = (Part(direction=each) for each in ("opened", "answered", "unanswered"))


def sketch_of(site: str, contents: dict[Part, range]) -> Sketch:
    """Return a site's sketch of one host with these peers in each part."""
    sketch = Sketch(SETTINGS.make_detector, window=window(0), site=site)
    for part, peers in contents.items():
        sketch.part(part).update(np.full(len(peers), HOST, np.uint32), np.array(peers, np.uint32))
    span = {"start": window(0).start, "end": window(0).end}
    sketch.entries = [{"site": site, **span, **part.fields, "pairs": len(peers)} for part, peers in contents.items()]
    return sketch


def test_a_hub_tells_who_did_not_answer_at_any_site(tmp_path: Path) -> None:
    node = Node(tmp_path, sites=("ams", "fra"), selection=Selection(1000)).step(
        sketch_of("ams", {OPENED: range(6000), ANSWERED: range(1000)}),
        sketch_of("fra", {OPENED: range(6000), ANSWERED: range(500, 2000)}),
    )
    (report,) = node.reports
    found = {row["direction"]: row for row in report.rows}
    assert set(found) == {"opened", "answered", "unanswered"}
    row = found["unanswered"]
    assert row["peers_low"] <= 4000 <= row["peers_high"]
    sites = {site["site"]: site for site in row["sites"]}
    assert sites["ams"]["peers_low"] <= 5000 <= sites["ams"]["peers_high"]
    assert sites["fra"]["peers_low"] <= 4500 <= sites["fra"]["peers_high"]


def test_sites_that_were_restarted_within_the_window_are_asked_too(tmp_path: Path) -> None:
    node = Node(tmp_path, sites=("ams",), selection=Selection(1000)).step(
        sketch_of("ams", {OPENED: range(3000), ANSWERED: range(0)}),
        sketch_of("ams", {OPENED: range(3000, 6000), ANSWERED: range(1000)}),
    )
    (row,) = [row for row in node.reports[-1].rows if row["direction"] == "unanswered"]
    ((site),) = row["sites"]
    assert site["peers_low"] <= 5000 <= site["peers_high"]
    assert (site["peers"], site["peers_low"]) == (row["peers"], row["peers_low"])


def test_where_nobody_asked_who_answered_nothing_is_said_of_it(tmp_path: Path) -> None:
    sketch = sketch_of("ams", {OPENED: range(3000)})
    assert {row.part for row in sketch.top(10)} == {OPENED}
    sketch.save(tmp_path / "a.cube")
    asked = {part: HostKeys(np.array([HOST], np.uint32)) for part in (OPENED, UNANSWERED)}
    assert list(estimate_in_file(tmp_path / "a.cube", asked)) == [OPENED]


def test_in_a_file_as_in_memory(tmp_path: Path) -> None:
    sketch_of("ams", {OPENED: range(3000), ANSWERED: range(1000)}).save(tmp_path / "a.cube")
    asked = {UNANSWERED: HostKeys(np.array([HOST], np.uint32))}
    (stored,) = estimate_in_file(tmp_path / "a.cube", asked)[UNANSWERED]
    (held,) = sh.load(tmp_path / "a.cube").collect(lambda _, detector: detector.top(1), [UNANSWERED])
    assert (stored.peers, stored.peers_low, stored.peers_high) == (held.peers, held.peers_low, held.peers_high)


@pytest.mark.parametrize("turn", [False, True])
def test_one_that_knows_who_answered_does_not_merge_with_one_that_does_not(tmp_path: Path, turn: bool) -> None:
    knows, not_ = sketch_of("ams", {OPENED: range(9), ANSWERED: range(9)}), sketch_of("fra", {OPENED: range(9)})
    mine, other = (not_, knows) if turn else (knows, not_)
    with pytest.raises(MergeError, match=r"peers.*opened,answered"):
        mine.merge(other)
    other.save(tmp_path / "other.cube")
    with pytest.raises(MergeError, match=r"other\.cube.*peers"):
        mine.merge_file(tmp_path / "other.cube")


def test_filters_keep_rows_apart(tmp_path: Path) -> None:
    node = Node(tmp_path, sites=("ams", "fra"), selection=Selection(1000)).step(
        sketch_of("ams", {Part(filter="tcp port 443"): range(3000)}), sketch_of("fra", {Part(): range(2000, 6000)})
    )
    found = {row.get("filter"): row for row in node.reports[0].rows}
    assert {name: [site["site"] for site in row["sites"]] for name, row in found.items()} == {
        "tcp port 443": ["ams"],
        None: ["fra"],
    }
    assert found["tcp port 443"]["peers_high"] < 3600


def test_a_sketch_has_so_many_parts_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_PARTS == 84 * MOST_GROUPS
    monkeypatch.setattr("superhosts.sketch.sketch.MOST_PARTS", 84)  # so many as a sketch without groups may have
    whole = Sketch(SETTINGS.make_detector)
    for number in range(84):
        whole.merge(sketch_of("ams", {Part(filter=f"port {number}"): range(1)}))
    with pytest.raises(MergeError, match="84 parts"):
        whole.merge(sketch_of("ams", {Part(filter="port 84"): range(1)}))
