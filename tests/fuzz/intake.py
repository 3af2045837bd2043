"""What sites send: a hub goes on whatever arrives, and what it accepts is merged or set aside."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hypothesis import strategies as st
from nats.aio.msg import Msg

from fleets import make_sketch, window
from fuzz.mutations import apply, edits
from fuzz.sketches import WINDOW, sketches_like
from fuzz.targets import fresh_folder, target
from hubs import Node
from superhosts.fleet.filelink import FileReceiver
from superhosts.fleet.link import MERGED, REFUSED, RESEND
from superhosts.fleet.names import SketchId
from superhosts.fleet.nats.credentials import NatsOptions
from superhosts.fleet.nats.messages import MIN_STEP, Chunk, decode_receipts
from superhosts.fleet.nats.receive import NatsReceiver

assert window(0) == WINDOW
_arriving = sketches_like(0, 0, -1)  # this hub's detector, with one and with two address families


def settle(node: Node, name: str) -> None:
    """Check that a sketch which was accepted is merged, or set aside and named; and that the hub still works."""
    node.hub.step()
    sketch_id = SketchId.parse(name)
    members = {each for report in node.reports for each in report.sites}
    aside = [path.name for path in node.store.folder(sketch_id.window_name).glob(".*aside*")]
    if sketch_id.site not in members:
        assert any(name in each for each in aside), (name, aside)
        assert any(name in text for text in node.said), node.said


def still_works(node: Node) -> None:
    assert node.send(make_sketch("fra", 0, peers=50)).verdict == MERGED
    node.hub.step()
    assert "fra" in node.reports[-1].sites


@target(_arriving)
def intake(data: bytes) -> None:
    with fresh_folder() as folder:
        node = Node(folder, sites=(), grace=0.0)
        arrived = folder / "arrived"
        arrived.write_bytes(data)
        name = SketchId.of(arrived, "ams", WINDOW).name
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
_NAMES = (GOOD, "x.cube", ".x.cube", "a-b-c.cube", "x" * 200 + ".cube", "\n.cube", "\x1b[1m.cube", "é.cube")
_NAMES += ("x.receipt", "x")
_NAMES += tuple(f"20261114T120000Z-{middle}-0000000000000000.cube" for middle in ("5m-ams", "5m-fra", "300s-ams"))
_NAMES += (os.fsdecode(b"\xff.cube"),)
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


@target(st.tuples(st.lists(_things, max_size=5), _arriving))
def folders(case: tuple[list[tuple[str, str, str]], bytes]) -> None:
    things, data = case
    with fresh_folder() as folder:
        node = Node(folder, sites=(), grace=0.0)
        (folder / "arrived").write_bytes(data)
        name = SketchId.of(folder / "arrived", "ams", WINDOW).name
        for site, given, kind in things:
            make(folder / "link" / site / (name if given == GOOD else given), kind, data)
        (folder / "link").mkdir(exist_ok=True)
        receiver = FileReceiver(folder / "link", node.said.append, settle=0.0)
        for _ in range(2):
            try:
                receiver.step(node.intake, threading.Event())
            except OSError:  # one that cannot be read must not keep the others
                continue
        node.hub.step()
        still_works(node)
        assert all(text.isprintable() for text in node.said), node.said
        assert sum(path.stat().st_blocks for path in (folder / "state").rglob("*")) * 512 < 64 << 20


# Pieces over NATS, in any order, with any headers, from any site.

_SUBJECTS = (*["superhosts.from.ams.chunk"] * 6, "superhosts.from.fra.chunk", "superhosts.from.\x1b[1m.chunk", "x")
_HEADERS = ("Superhosts-Name", "Superhosts-Chunk")
_CHUNKS = ("0 4096 4096", "0 1 1", "-1 4096 5000", "0 0 0", "1 4096 99999999999", "65536 4096 268439552")
_CHUNKS += ("0 4096", "٣ 4096 4096")
_piece = st.tuples(
    st.sampled_from(_SUBJECTS),
    st.integers(0, 7),  # which piece
    st.none() | st.tuples(st.sampled_from(_HEADERS), st.none() | st.text(max_size=9) | st.sampled_from(_CHUNKS)),
    st.just([]) | edits,
)
_ASKED = ("superhosts.from.ams.ask", "superhosts.from.fra.ask", "superhosts.from", "superhosts.from.a b.ask")
_question = st.tuples(
    st.sampled_from(_ASKED),
    st.sampled_from([b"[]", b"{}", b"[1, null, []]", b"[" * 5000, b"\xff", b"", b'["x"]', b"NAME", b"[NAME]"]),
    st.sampled_from(["_INBOX.ams.1", "_INBOX.fra.1", "superhosts.to.fra", ""]),
)


class Wire:
    """Stands for the connection: it takes all that the hub says."""

    is_connected = True

    def __init__(self) -> None:
        self.client = self.jetstream = self
        self.published: list[tuple[str, bytes]] = []

    async def publish(self, subject: str, data: bytes = b"", **_: Any) -> None:
        self.published.append((subject, data))

    async def stream_info(self, *_: Any, **__: Any) -> Any:
        return SimpleNamespace(state=SimpleNamespace(subjects=None))  # an empty queue


def pieces_of(name: str, data: bytes) -> list[tuple[dict[str, str], bytes]]:
    step = max(-(-len(data) // 8), min(len(data), MIN_STEP))
    chunks = [Chunk(name, number, step, len(data)) for number in range(-(-len(data) // step))]
    return [(chunk.headers("1"), data[chunk.number * step : chunk.number * step + chunk.length]) for chunk in chunks]


async def deliver(receiver: NatsReceiver, node: Node, data: bytes, messages: list[Any], name: str) -> Wire:
    wire = Wire()
    receiver.assembler.begin(node.intake)
    receiver.assembler.link = wire
    whole = pieces_of(name, data)
    everything = [(_SUBJECTS[0], number, None, []) for number in range(len(whole))]
    for place, message in enumerate([*messages, *everything]):  # at last all of them, as they should be
        if len(message) == 3:
            subject, text, reply = message
            await receiver.assembler.take_question(
                Msg(None, subject, reply, text.replace(b"NAME", f'"{name}"'.encode()), None)
            )
            continue
        subject, number, header, changes = message
        headers, part = whole[number % len(whole)]
        if header is not None:
            headers = {**headers, header[0]: header[1]} if header[1] is not None else {_HEADERS[0]: name}
        reply = "x" if place % 5 == 4 else f"$JS.ACK.superhosts.hub.1.{place}.{place}.1.0"  # the latter is the server's
        await receiver.assembler.take(Msg(None, subject, reply, apply(part, changes), headers))
    await receiver.assembler.finish()
    return wire


@target(st.tuples(_arriving, st.lists(_piece | _question, max_size=8)))
def pieces(case: tuple[bytes, list[Any]]) -> None:
    data, messages = case
    with fresh_folder() as folder:
        node = Node(folder, sites=(), grace=0.0)
        (folder / "arrived").write_bytes(data)
        name = SketchId.of(folder / "arrived", "ams", WINDOW).name
        receiver = NatsReceiver(NatsOptions("nats://localhost"), node.said.append)
        wire = asyncio.run(deliver(receiver, node, data, messages, name))
        assert receiver.counters.failures == 0, node.said
        given = [each for _, text in wire.published for each in decode_receipts(text) if each.name == name]
        assert given, wire.published
        if any(receipt.verdict == MERGED for receipt in given):
            settle(node, name)
        still_works(node)
        assert all(text.isprintable() for text in node.said), node.said
