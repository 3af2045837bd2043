"""The intake against sites that are broken or hostile: whatever arrives gets a receipt, and the others go on."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faults import system_call
from fleets import forge_parcel, make_sketch, window, write_parcel
from forging import take_apart
from hubs import FakeTime, Node, WatchedIntake, full
from superhosts.cubefile.container import MAGIC
from superhosts.errors import UsageError
from superhosts.fleet import filelink
from superhosts.fleet.filelink import FileReceiver, FileSender
from superhosts.fleet.intake import RECOUNT, Intake, SiteLimits
from superhosts.fleet.link import MAX_REASON, MERGED, REFUSED, Receipt
from superhosts.fleet.names import SketchId, parse_window_name
from superhosts.fleet.nats import messages
from superhosts.fleet.nats.messages import Chunk, decode_receipts, encode_receipt, encode_receipts
from superhosts.fleet.sites import LINES_PER_MINUTE, SiteLog
from superhosts.fleet.spool import Spool

NAME = "20261114T120000Z-5m-ams-0123456789abcdef.cube"
ESCAPES = "\x1b[2J\nhub: FORGED \u202e\udcff"
T = TypeVar("T")


def rewritten(path: Path, site: str = "ams", **changes: Any) -> Path:
    """A sketch whose header says something else."""
    header, blocks = take_apart(path)
    return forge_parcel(path.parent / "changed", {**header, **changes}, blocks, site=site)


def honest(folder: Path, site: str = "ams") -> Path:
    return write_parcel(make_sketch(site), folder)


def printable_line(text: str) -> bool:
    return text.isprintable()


def refused_or(parse: Callable[[], T]) -> T | None:
    """What is read; None where it is refused, in few printable words."""
    try:
        return parse()
    except UsageError as refused:
        text = str(refused)
    assert printable_line(text)
    assert len(text) < 3000
    return None


def test_a_header_of_more_than_a_mebibyte_is_refused_before_it_is_read(tmp_path: Path) -> None:
    node = Node(tmp_path)
    path = honest(tmp_path / "wire")
    large = rewritten(path, padding="x" * (1 << 20))
    receipt = node.arrive(large, "ams")
    assert receipt.verdict == REFUSED
    assert "the header takes 1" in receipt.reason
    assert "the limit is 1 MiB" in receipt.reason
    assert node.arrive(path, "ams").verdict == MERGED


def test_reasons_and_names_are_cut_and_escaped(tmp_path: Path) -> None:
    node = Node(tmp_path)
    path = honest(tmp_path / "wire")
    part = take_apart(path)[0]["parts"][0]
    receipts = [node.intake.accept(tmp_path / "none", ESCAPES * 10_000, "ams")]
    for changes in (
        {"parts": [{**part, "detector": ESCAPES * 1000}]},
        {"sites": [ESCAPES * 1000, "ams"]},
        {"counters": [{"site": ESCAPES * 1000}]},
    ):
        receipts.append(node.arrive(rewritten(path, **changes), "ams"))
    # An edge does not trust the text of a receipt.
    receipts += decode_receipts(json.dumps({"name": NAME, "verdict": REFUSED, "reason": ESCAPES * 100_000}).encode())
    assert len(receipts) == 5
    for receipt in receipts:
        assert receipt.verdict == REFUSED
        assert printable_line(receipt.name + receipt.reason)
        assert len(receipt.name + receipt.reason) < 20 * MAX_REASON
        assert len(encode_receipt(receipt)) < 64 << 10
    assert node.intake.counters.refused == len(node.said) == 4
    assert all(printable_line(line) for line in node.said)


def test_an_answer_fits_into_a_message() -> None:
    receipts = [Receipt(NAME, REFUSED, "\U0001f600" * MAX_REASON)] * messages.QUESTION
    answer = encode_receipts(receipts)
    assert len(answer) <= messages.ANSWER
    assert 0 < len(decode_receipts(answer)) < messages.QUESTION  # the edge asks for the others again
    few = receipts[:10]
    assert len(decode_receipts(encode_receipts(few))) == 10


def test_the_sites_of_a_sketch_are_the_senders(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.intake.senders = lambda: {"ams", "fra", "eu"}
    theirs = rewritten(honest(tmp_path / "wire", "fra"), "ams")  # the whole sketch says fra
    receipt = node.arrive(theirs, "ams")
    assert (receipt.verdict, receipt.reason) == (REFUSED, "names the site fra, which sends to this hub directly")
    both = rewritten(honest(tmp_path / "wire"), sites=["ams", "fra"])
    assert node.arrive(both, "ams").verdict == REFUSED
    nobody = rewritten(honest(tmp_path / "wire"), sites=[], counters=[])
    assert node.arrive(nobody, "ams").reason == "names no site"
    own = honest(tmp_path / "wire")
    foreign = rewritten(own, counters=[{**take_apart(own)[0]["counters"][0], "site": "fra"}])
    assert node.arrive(foreign, "ams").reason == "counts for 'fra', which is not one of its sites"
    below = make_sketch("muc")
    below.merge(make_sketch("ber"))
    assert node.send(below, "eu").verdict == MERGED  # a downstream hub's union: nobody sends to this hub as ber or muc


def test_windows_that_a_site_makes_up_do_not_fill_the_hub(tmp_path: Path) -> None:
    node = Node(tmp_path, limits=SiteLimits(windows=3))
    for number in range(3):
        assert node.send(make_sketch("ams", number)).verdict == MERGED
    refused = node.send(make_sketch("ams", 3))
    assert (refused.verdict, refused.reason) == (REFUSED, "ams has 3 windows here, the limit for one site")
    assert node.send(make_sketch("ams", 0, peers=50)).verdict == MERGED  # of a window that it has
    assert node.send(make_sketch("fra", 3)).verdict == MERGED  # others go on
    again = Node(tmp_path, limits=SiteLimits(windows=3))
    assert again.send(make_sketch("ams", 4)).verdict == REFUSED  # also after a restart
    again.store.retire(again.store.windows()[0])
    assert again.send(make_sketch("ams", 5)).verdict == MERGED  # a window that is gone counts no more
    assert again.send(make_sketch("ams", 6)).verdict == REFUSED


def test_windows_in_the_future_have_a_limit_of_their_own(tmp_path: Path) -> None:
    node = Node(tmp_path, limits=SiteLimits(windows_ahead=2), times=FakeTime(window(10).end / 1e9).source)
    for number in (*range(8, 12), 20, 21):
        assert node.send(make_sketch("ams", number)).verdict == MERGED
    assert "ams has 2 windows in the future: is its clock wrong?" in node.send(make_sketch("ams", 22)).reason
    assert node.send(make_sketch("ams", 7)).verdict == MERGED


def test_a_site_has_its_share_of_a_window(tmp_path: Path) -> None:
    node = Node(tmp_path, limits=SiteLimits(sketches=2))
    for peers in (10, 20):
        assert node.send(make_sketch("ams", 0, peers=peers)).verdict == MERGED
    assert "has sent 2 sketches of this window already" in node.send(make_sketch("ams", 0, peers=30)).reason


def test_a_site_has_its_share_of_the_disk(tmp_path: Path) -> None:
    clock, sketches = FakeTime(), [make_sketch("ams", 0, peers=peers) for peers in (10, 20)]
    size = sum(write_parcel(sketch, tmp_path / "size").stat().st_size for sketch in sketches)
    share = SiteLimits(disk_part=shutil.disk_usage(tmp_path).total // size)
    node = Node(tmp_path, times=clock.source, limits=share)
    for sketch in sketches:
        assert node.send(sketch).verdict == MERGED
    with pytest.raises(OSError, match=r"the sketches of ams have used up their share of this disk"):
        node.send(make_sketch("ams", 1, peers=10))
    assert node.send(make_sketch("fra", 1, peers=10)).verdict == MERGED
    with pytest.raises(OSError, match=r"the sketches of ams have used up their share of this disk"):
        Node(tmp_path, limits=share).send(make_sketch("ams", 1, peers=10))  # also after a restart
    for path in node.store.sketches(node.store.windows()[0]):
        path.unlink()  # merged, and not needed any more
    with pytest.raises(OSError, match=r"the sketches of ams have used up their share of this disk"):
        node.send(make_sketch("ams", 1, peers=10))
    clock.now += RECOUNT
    assert node.send(make_sketch("ams", 1, peers=10)).verdict == MERGED


def test_lines_about_a_site_are_few() -> None:
    said: list[str] = []
    now = 0.0
    say = SiteLog(said.append, lambda: now)
    for number in range(1000):
        say("ams", "refused sketches", f"ams {number}")
    say("ams", "malformed messages", "another kind")
    say("fra", "refused sketches", "fra 0")
    assert said == [f"ams {number}" for number in range(LINES_PER_MINUTE)] + ["another kind", "fra 0"]
    now = 60.0
    say.flush()
    assert said[-1] == "ams: 995 more in a minute: refused sketches"
    say("fra", "refused sketches", "fra 1")
    assert said[-2:] == ["ams: 995 more in a minute: refused sketches", "fra 1"]
    for number in range(5000):  # names that somebody makes up
        say(f"site{number}", "refused sketches", "x")
    assert len(said) < 2000


# Whatever crosses the wire


HEADERS = st.dictionaries(
    st.sampled_from(["Superhosts-Name", "Superhosts-Chunk", "x"]),
    st.one_of(
        st.text(max_size=50),
        st.just(NAME),
        st.from_regex(r"\A-?[0-9]{1,30} -?[0-9]{1,30} -?[0-9]{1,30}\Z"),
        st.tuples(*[st.integers(-1, 1 << 40)] * 3).map(lambda numbers: " ".join(map(str, numbers))),
    ),
)


@given(st.none() | HEADERS, st.integers(0, 1 << 21))
def test_headers_are_a_piece_or_refused(headers: dict[str, str] | None, length: int) -> None:
    chunk = refused_or(lambda: Chunk.parse(headers, length))
    if chunk is None:
        return
    assert 0 <= chunk.number < chunk.pieces <= messages.MAX_PIECES
    assert 0 < chunk.length == length <= chunk.step
    assert chunk.number * chunk.step + chunk.length <= chunk.size <= messages.LARGEST
    assert Chunk.parse(chunk.headers("0"), length) == chunk


@pytest.mark.parametrize(
    "text", ["0 5 5 ", "0  5 5", "00 5 5", "+0 5 5", "0_0 5 5", "٠ 5 5", "0 5 5\n", "0 5", "9" * 5000]
)
def test_pieces_are_counted_in_plain_digits(text: str) -> None:
    with pytest.raises(UsageError, match="not a piece of a sketch"):
        Chunk.parse({"Superhosts-Name": NAME, "Superhosts-Chunk": text}, 5)


def test_windows_that_no_time_can_have() -> None:
    for key in ("00010101T000000Z-5m", "99991231T235959Z-1d", "20261114T120000Z-9999999999d", "22620411T234716Z-1d"):
        assert parse_window_name(key) is None
    assert parse_window_name("22620411T000000Z-1h") is not None


# Whatever a sealed file says


# A folder that others write into


def link_of(tmp_path: Path, node: Node, **options: Any) -> tuple[Path, FileReceiver]:
    folder = tmp_path / "link"
    (folder / "ams").mkdir(parents=True)
    return folder / "ams", FileReceiver(folder, node.said.append, **options)


def step(receiver: FileReceiver, node: Node, intake: Intake | None = None) -> None:
    receiver.step(intake or node.intake, threading.Event())


def test_a_file_larger_than_any_sketch_is_refused_without_reading_it(tmp_path, monkeypatch) -> None:
    node = Node(tmp_path)
    link, receiver = link_of(tmp_path, node, largest=1 << 30)
    huge = link / NAME
    with huge.open("wb") as file:
        file.write(MAGIC)
        file.truncate(50 << 30)  # it takes no disk where it lies
    opened: list[str] = []
    with system_call("open", lambda path, *_: opened.append(str(path))):
        step(receiver, node)
    assert str(huge) not in opened
    assert not huge.exists()
    receipt = json.loads(Path(f"{huge}.receipt").read_text())
    assert receipt["verdict"] == REFUSED
    assert "50 GiB is more than any sketch of this hub's" in receipt["reason"]
    assert list(node.intake.folder.iterdir()) == []
    step(receiver, node)
    assert len(node.said) == 1


def test_a_file_with_holes_takes_no_disk_and_is_read_once(tmp_path: Path) -> None:
    node, clock = Node(tmp_path), FakeTime()
    link, receiver = link_of(tmp_path, node, largest=1 << 30, clock=clock.source.steady)
    sparse = link / NAME
    with sparse.open("wb") as file:
        file.write(MAGIC)
        file.truncate(64 << 20)
    taken: list[int] = []

    def look(path: Path, name: str, site: str) -> Receipt:
        taken.append(512 * path.stat().st_blocks)
        assert path.stat().st_size == 64 << 20
        return node.intake.accept(path, name, site)

    intake = WatchedIntake(node.intake, look)
    for _ in range(5):
        step(receiver, node, intake)
    assert len(taken) == 1
    assert taken[0] < 4 << 20
    clock.now += filelink.SETTLE
    step(receiver, node, intake)
    assert len(taken) == 1  # what it holds is known
    assert not sparse.exists()
    assert receiver.counters.resends == 1


def test_a_file_that_is_being_written_is_not_read_over_and_over(tmp_path: Path) -> None:
    node = Node(tmp_path)
    link, receiver = link_of(tmp_path, node)
    whole = honest(tmp_path / "wire")
    data = whole.read_bytes()
    target = link / whole.name
    for size in range(100, 1000, 100):
        target.write_bytes(data[:size])
        step(receiver, node)
    assert node.intake.counters.corrupt == 1
    target.write_bytes(data)
    step(receiver, node)  # it has changed once more
    step(receiver, node)  # it has not
    assert node.intake.counters.accepted == 1
    assert not target.exists()


def test_odd_things_in_a_sites_folder_are_named_and_got_out_of_the_way(tmp_path: Path) -> None:
    node = Node(tmp_path)
    link, receiver = link_of(tmp_path, node)
    names = [SketchId("ams", window(number), "0" * 16).name for number in range(3)]
    os.mkfifo(link / names[0])
    (link / names[1]).mkdir()
    (link / names[2]).symlink_to(tmp_path)
    (link / "a-b-c.cube").write_text("foreign")
    (link / f".{NAME}.tmp").write_text("hidden")
    (link / "notes.txt").write_text("foreign")
    (link / "nested").mkdir()
    (link.parent / "stray.cube").write_text("in no site's folder")
    (link.parent / ".snapshot").mkdir()
    good = honest(link)
    for _ in range(3):
        step(receiver, node)
    assert node.intake.counters.accepted == 1
    assert not good.exists()
    assert receiver.counters.ignored == 4
    assert len(node.said) == 4
    assert all(sum(name in line for line in node.said) == 1 for name in (*names, "a-b-c.cube"))
    assert sorted(path.name for path in link.iterdir() if path.name.endswith(".aside")) == [
        f".{name}.aside" for name in names
    ]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_cannot_be_read_keeps_nobody(tmp_path: Path) -> None:
    node = Node(tmp_path)
    link, receiver = link_of(tmp_path, node)
    shut = write_parcel(make_sketch("ams", 0), link)
    shut.chmod(0)
    write_parcel(make_sketch("ams", 1), link)
    with pytest.raises(PermissionError):
        step(receiver, node)
    assert node.intake.counters.accepted == 1


def test_a_file_that_cannot_be_taken_is_tried_ever_less_often(tmp_path: Path) -> None:
    node, clock = Node(tmp_path), FakeTime(0.0)
    link, receiver = link_of(tmp_path, node, clock=clock.source.steady)
    honest(link)
    asked: list[str] = []
    disk = WatchedIntake(node.intake, lambda path, name, site: (asked.append(name), full(path, name, site))[1])
    for _ in range(1000):
        with pytest.raises(OSError, match="No space left"):
            step(receiver, node, disk)
        clock.now += 1.0
    assert 10 < len(asked) < 30
    clock.now += 60.0
    step(receiver, node)
    assert node.intake.counters.accepted == 1


def test_failures_are_attempts_and_all_files_in_trouble_are_counted(tmp_path: Path) -> None:
    node, clock = Node(tmp_path), FakeTime()
    link, receiver = link_of(tmp_path, node, clock=clock.source.steady)
    for number in range(3):
        write_parcel(make_sketch("ams", number), link)
    asked: list[str] = []
    disk = WatchedIntake(node.intake, lambda path, name, site: (asked.append(name), full(path, name, site))[1])
    for _ in range(20):
        receiver.look(disk, threading.Event())
        clock.now += 0.5
    assert receiver.counters.failures == len(asked) < 20
    assert receiver.counters.down == "No space left on device; 2 more files cannot be taken"
    assert sum("No space left" in line for line in node.said) == 1


def test_a_folder_in_place_of_a_receipt_is_set_aside(tmp_path: Path) -> None:
    node = Node(tmp_path)
    link, receiver = link_of(tmp_path, node)
    sketch = honest(link)
    answer = link / f"{sketch.name}.receipt"
    (answer / "inner").mkdir(parents=True)
    receiver.look(node.intake, threading.Event())
    assert answer.is_file()
    assert not sketch.exists()
    assert (link / f".{answer.name}.aside" / "inner").is_dir()
    assert (receiver.counters.down, receiver.counters.failures) == ("", 0)
    assert any(f"set aside as .{answer.name}.aside" in line for line in node.said)


def test_sites_take_turns(tmp_path: Path) -> None:
    node = Node(tmp_path)
    link, receiver = link_of(tmp_path, node)
    (link.parent / "fra").mkdir()
    for number in range(300):
        (link / SketchId("ams", window(-1000 + number), "0" * 16).name).write_bytes(MAGIC)
    other = write_parcel(make_sketch("fra"), link.parent / "fra")
    seen: list[str] = []

    def watch(path: Path, name: str, site: str) -> Receipt:
        seen.append(site)
        return node.intake.accept(path, name, site)

    step(receiver, node, WatchedIntake(node.intake, watch))
    assert "fra" in seen[:2]
    assert seen.count("ams") == filelink.TURN
    assert not other.exists()


def test_an_edge_does_not_trust_receipts_in_a_folder(tmp_path: Path) -> None:
    said: list[str] = []
    spool = Spool(tmp_path / "spool", "ams", cap=1 << 30, say=said.append)
    first, second = (spool.put(make_sketch("ams", number)) for number in range(2))
    link = tmp_path / "link" / "ams"
    link.mkdir(parents=True)
    os.mkfifo(link / f"{NAME}.receipt")  # nobody ever writes into it
    (link / f"x{NAME}.receipt").mkdir()
    (link / f"{first.name}.receipt").write_text(json.dumps({"verdict": REFUSED, "reason": ESCAPES * 100}))
    (link / f"{second.name}.receipt").write_text(json.dumps({"verdict": "eaten", "reason": []}))
    sender = FileSender(tmp_path / "link", "ams", said.append)
    sender.step(spool)
    assert [path.name for path in spool.waiting()] == [second.name]
    (line,) = said
    assert printable_line(line)
    assert len(line) < 20 * MAX_REASON
    (link / f"{second.name}.receipt").write_text(" " * (65 << 10) + json.dumps({"verdict": MERGED}))
    sender.step(spool)
    assert [path.name for path in spool.waiting()] == [second.name]
