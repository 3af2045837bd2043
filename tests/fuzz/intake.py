"""What sites send: a hub goes on whatever arrives, and what it accepts is merged or set aside."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from hypothesis import strategies as st

from fleets import make_sketch, window
from fuzz.sketches import WINDOW, sketches_like
from fuzz.targets import fresh_folder, target
from hubs import Node
from superhosts.fleet.files import FileReceiver
from superhosts.fleet.link import MERGED, REFUSED, RESEND
from superhosts.fleet.parcels import Parcel

assert window(0) == WINDOW
_arriving = sketches_like(0, 0, -1)  # this hub's detector, with one and with two address families


def settle(node: Node, name: str) -> None:
    """Check that a sketch which was accepted is merged, or set aside and named; and that the hub still works."""
    node.hub.step()
    parcel = Parcel.parse(name)
    members = {each for report in node.reports for each in report.sites}
    aside = [path.name for path in node.store.folder(parcel.key).glob(".*aside*")]
    if parcel.site not in members:
        assert any(name in each for each in aside), (name, aside)
        assert any(name in text for text in node.said), node.said


def still_works(node: Node) -> None:
    assert node.send(make_sketch("fra", 0, peers=50)).verdict == MERGED
    node.hub.step()
    assert "fra" in node.reports[-1].sites


@target(_arriving, examples=60)
def desk(data: bytes) -> None:
    with fresh_folder() as folder:
        node = Node(folder, sites=(), grace=0.0)
        arrived = folder / "arrived"
        arrived.write_bytes(data)
        name = Parcel.of(arrived, "ams", WINDOW).name
        named = arrived.rename(folder / name)
        receipt = node.arrive(named, "ams")
        assert receipt.verdict in (MERGED, REFUSED, RESEND)
        assert receipt.reason.isprintable()
        assert len(receipt.reason) < 5000
        if receipt.verdict == MERGED:
            settle(node, name)
        still_works(node)
        Node(folder, sites=(), grace=0.0).hub.step()
        assert all(text.isprintable() for text in node.said), node.said


# A folder that sites share: anything may lie there.

GOOD = "GOOD"  # stands for the right name of a sketch
_NAMES = (GOOD, "x.cube", ".x.cube", "a-b-c.cube", "20261114T120000Z-5m-ams-0000000000000000.cube", "x" * 200 + ".cube")
_NAMES += (
    "20261114T120000Z-5m-fra-0000000000000000.cube",
    "20261114T120000Z-300s-ams-0000000000000000.cube",
    "\n.cube",
)
_NAMES += ("\x1b[1m.cube", "é.cube", os.fsdecode(b"\xff.cube"), "x.receipt", "x")
_SITES = ("ams", "fra", "a b", ".hidden", "x" * 100, "\x1b[1m")
_things = st.tuples(
    st.sampled_from(_SITES),
    st.sampled_from(_NAMES),
    st.sampled_from(["file", "folder", "pipe", "link", "empty", "sparse"]),
)


def make(path: Path, kind: str, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if os.path.lexists(path):
        return
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to("/dev/zero")
    else:
        path.write_bytes(b"" if kind == "empty" else data)
        if kind == "sparse":
            os.truncate(path, 512 << 20)


@target(st.tuples(st.lists(_things, max_size=5), _arriving), examples=25)
def folders(case: tuple[list[tuple[str, str, str]], bytes]) -> None:
    things, data = case
    with fresh_folder() as folder:
        node = Node(folder, sites=(), grace=0.0)
        (folder / "arrived").write_bytes(data)
        name = Parcel.of(folder / "arrived", "ams", WINDOW).name
        for site, given, kind in things:
            make(folder / "link" / site / (name if given == GOOD else given), kind, data)
        (folder / "link").mkdir(exist_ok=True)
        receiver = FileReceiver(folder / "link", node.said.append, settle=0.0)
        for _ in range(2):
            try:
                receiver.step(node.desk, threading.Event())
            except OSError:  # one that cannot be read must not keep the others
                continue
        node.hub.step()
        still_works(node)
        assert all(text.isprintable() for text in node.said), node.said
        assert sum(path.stat().st_blocks for path in (folder / "state").rglob("*")) * 512 < 64 << 20
