"""State files that a disk or a person has spoilt: nothing ends the edge or the hub, and what can be rebuilt is."""

from __future__ import annotations

import json
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from fleets import make_sketch
from fuzz.mutations import apply, apply_json, edits, json_edits
from fuzz.sketches import change
from fuzz.targets import fresh_folder, target
from hubs import Node, as_files, three, union_of
from superhosts.core.database import Database
from superhosts.core.pairs import Window
from superhosts.errors import InputError, OutputError
from superhosts.fleet.edge import FORMAT, STATE, Position
from superhosts.fleet.filelink import FileSender
from superhosts.fleet.link import MERGED
from superhosts.fleet.nats.messages import decode_receipts
from superhosts.fleet.spool import Spool
from superhosts.fleet.store import DATABASE
from superhosts.output.destination import RunKind
from superhosts.output.files import MAX_HEADER
from superhosts.output.registry import open_destination
from superhosts.output.report import HUB_COLUMNS, Report
from traffic import content

Tree = dict[str, bytes]  # path → content


def take(folder: Path) -> Tree:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def put(tree: Tree, folder: Path) -> None:
    for name, data in tree.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def _text(changed: Any) -> bytes:
    return json.dumps(changed).encode(errors="surrogatepass")


def spoilt(data: bytes) -> st.SearchStrategy[bytes]:
    """Return files that differ from a file of JSON, as JSON or in any bytes."""
    tree = json.loads(data.splitlines()[0] if data.count(b"}\n{") else data or b"{}")
    return (
        st.builds(lambda changes: _text(apply_json(tree, changes)), json_edits)
        | st.builds(apply, st.just(data), edits)
        | st.sampled_from([b"", b"{}", b"null", b"[]", b"\0" * 100, b"[" * 5000, b'{"a":' * 5000, b"\xff\xfe"])
    )


# The hub


@cache
def hub_tree() -> Tree:
    """Return the state of a hub with one window that is reported and one for which a site is missing."""
    with fresh_folder() as folder:
        node = Node(folder)
        for sketch in [*three(0), *three(1)[:2]]:
            node.send(sketch)
        node.hub.step()
        assert len(node.reports) == 1
        node.store.ledgers.close()
        return {name: data for name, data in take(folder).items() if name.startswith("state/")}


@cache
def old_tree() -> Tree:
    """Return that state as release 0.1 kept it."""
    with fresh_folder() as folder:
        put(hub_tree(), folder)
        as_files(folder / "state")
        return take(folder)


def _hub_files() -> st.SearchStrategy[tuple[Tree, str, bytes]]:
    """Return the database, or a ledger of 0.1, in place of that of an open or of a past window."""
    ledgers = [data for name, data in old_tree().items() if name.endswith("ledger.json")]
    windows = [Path(name).parent.name for name in old_tree() if name.endswith("ledger.json")]
    places = [f"state/windows/{window}/ledger.json" for window in windows]
    places += [f"state/past/{window}.json" for window in windows]
    old = st.tuples(st.just(old_tree()), st.sampled_from(places), st.sampled_from(ledgers).flatmap(spoilt))
    database = st.builds(apply, st.just(hub_tree()[f"state/{DATABASE}"]), edits)
    return old | st.tuples(st.just(hub_tree()), st.just(f"state/{DATABASE}"), database)


def _unions() -> st.SearchStrategy[tuple[Tree, str, bytes]]:
    names = [name for name in hub_tree() if name.endswith(".cube")]
    drawn = st.builds(apply, st.sampled_from(names).map(hub_tree().get), edits) | st.builds(
        change, st.just(0), json_edits, st.just(0), st.none(), st.just([])
    )
    return st.tuples(st.just(hub_tree()), st.sampled_from(names), drawn)


def _is_object(data: bytes) -> bool:
    try:
        return isinstance(json.loads(data), dict)
    except (ValueError, RecursionError):
        return False


@target(st.deferred(lambda: _hub_files() | _hub_files() | _unions()))
def hub_states(case: tuple[Tree, str, bytes]) -> None:
    tree, name, data = case
    with fresh_folder() as folder:
        put({**tree, name: data}, folder)
        try:
            node = Node(folder, grace=0.0)
        except InputError as error:  # a changed number or name cannot be told from that of others
            if not any(each in str(error) for each in ("of another program", "a later version")):
                raise
            return
        node.hub.step()
        late = three(1)[2]
        assert node.send(late).verdict == "merged"
        node.hub.step()
        assert any("nyc" in report.sites for report in node.reports)
        # Nothing is to be believed in such a file: all comes from the sketches.
        if name.endswith(".json") and not _is_object(data):
            assert content(node.union(1)) == content(union_of(*three(1)))
        Node(folder, grace=0.0).hub.step()


# The edge

CUT = {"window": "5m"}


@cache
def edge_tree() -> Tree:
    with fresh_folder() as folder:
        (folder / "a.pcap").touch()
        position = Position(folder, ["a.pcap"], CUT)
        position.advance(10**18, {f"{folder / 'a.pcap'}@5": (5, 10**18 - 1)})
        position.set_open(Window(5, 6))
        position.close()
        return take(folder)


def _positions() -> st.SearchStrategy[tuple[bytes | None, bytes]]:
    """Return states of an edge with another position, and those of which some bytes are wrong (None, bytes)."""
    state = edge_tree()[STATE]
    position = b'{"x": {"frontier": 5, "files": {"a.pcap@5": [5, 9]}}}'
    return st.tuples(spoilt(position), st.just(state)) | st.tuples(st.none(), st.builds(apply, st.just(state), edits))


@target(st.deferred(_positions))
def positions(case: tuple[bytes | None, bytes]) -> None:
    with fresh_folder() as folder:
        value, data = case
        (folder / STATE).write_bytes(data)
        if value is not None:
            with closing(Database(folder / STATE, FORMAT)) as database:
                database.save(position=value)
        try:
            position = Position(folder, ["a.pcap"], CUT)
        except InputError as error:
            if "a later version" not in str(error):
                raise
            return
        assert position.frontier is None or isinstance(position.frontier, int)
        assert all(isinstance(name, str) for name in position.done())
        (folder / "a.pcap").touch()
        position.advance(2 * 10**18, {f"{folder / 'a.pcap'}@5": (5, 9)})
        again = Position(folder, ["a.pcap"], CUT)
        assert again.frontier == position.frontier
        assert again.done() == position.done()


@cache
def spool_tree() -> Tree:
    with fresh_folder() as folder:
        spool = Spool(folder, "ams", cap=1 << 30, say=lambda text: None)
        for number in range(2):
            spool.put(make_sketch("ams", number, peers=9))
        return take(folder)


_RECEIPT = b'{"verdict": "merged", "reason": ""}'


@target(st.deferred(lambda: st.tuples(spoilt(_RECEIPT), st.builds(apply, st.just(min(spool_tree().values())), edits))))
def receipts(case: tuple[bytes, bytes]) -> None:
    """A receipt and a sketch in the spool that are spoilt: the others are sent."""
    receipt, sketch = case
    with fresh_folder() as folder:
        first, second = sorted(spool_tree())
        put({**spool_tree(), second: sketch}, folder / "spool")
        put({f"{first}.receipt": receipt}, folder / "link" / "ams")
        spool = Spool(folder / "spool", "ams", cap=1 << 30, say=lambda text: None)
        sender = FileSender(folder / "link", "ams", lambda text: None)
        sender.step(spool)
        sender.step(spool)
        left = {path.name for path in spool.waiting()}
        sent = {path.name for path in (folder / "link" / "ams").glob("*.cube")}
        assert left <= sent
        if not _is_object(receipt):
            assert first in left


@target(st.deferred(lambda: spoilt(json.dumps([{"name": min(spool_tree()), **json.loads(_RECEIPT)}]).encode())))
def answers(data: bytes) -> None:
    """What a hub, or somebody in its place, answers to an edge."""
    with fresh_folder() as folder:
        put(spool_tree(), folder)
        spool = Spool(folder, "ams", cap=1 << 30, say=lambda text: None)
        given = decode_receipts(data)
        for receipt in given:
            spool.settle(receipt)
        merged = {receipt.name for receipt in given if receipt.verdict == MERGED}
        gone = set(spool_tree()) - {path.name for path in folder.glob("*.cube")}
        assert gone <= {receipt.name for receipt in given}
        assert merged & set(spool_tree()) <= gone


# Results that a hub appends to


@target(st.tuples(st.binary(max_size=60) | st.text("a\n\r", max_size=9000).map(str.encode), st.booleans()))
def outputs(case: tuple[bytes, bool]) -> None:
    """A file of lines that a crash has cut off goes on with a whole line."""
    data, as_csv = case
    with fresh_folder() as folder:
        path = folder / ("rows.csv" if as_csv else "rows.jsonl")
        path.write_bytes(data)
        if as_csv and (b"\n" in data or len(data) >= MAX_HEADER):
            with suppress(OutputError):  # No such line is a header.
                open_destination(str(path), RunKind(HUB_COLUMNS, endless=True))
                raise AssertionError(f"{data!r} is taken for a file of rows")
            assert path.read_bytes() == data
            return
        file = open_destination(str(path), RunKind(HUB_COLUMNS, endless=True))
        file.write(Report(rows=[dict.fromkeys(HUB_COLUMNS, 1)]))
        file.close()
        kept = data[: data.rfind(b"\n") + 1]
        written = path.read_bytes()
        assert written.startswith(kept)
        assert written.endswith(b"\n")
        assert written[len(kept) :].count(b"\n") == 1 + as_csv
