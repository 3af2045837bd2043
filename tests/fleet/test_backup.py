"""A hub goes on from a copy of its state."""

from __future__ import annotations

import shutil
import stat
import tarfile
from pathlib import Path
from typing import Any

import pytest

from commands import Run, process
from fleets import make_sketch, window, write_parcel
from hubs import SITES, Node, union_of
from processes import DEADLINE, ending, make_edge, make_hub, rows, wait_for, windows_in
from processes import Node as Process
from queues import waiting_in
from superhosts.errors import UsageError
from superhosts.fleet import backup
from superhosts.fleet.backup import save_state
from superhosts.output.alerts.machine import Policy
from superhosts.output.alerts.store import AlertStore
from superhosts.output.delivery import Outbox
from superhosts.output.records import Batch
from traffic import content


def restore(file: Path, folder: Path) -> Path:
    """Do what the documentation says."""
    folder.mkdir(0o700)
    with tarfile.open(file) as archive:
        # Python before 3.11.4 has no filters, and the archive is one of our own.
        archive.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    return folder


def sketch(site: str, number: int, base: int = 0) -> Any:
    return make_sketch(site, number, base=5000 * SITES.index(site) + base)


def send(node: Node, site: str, number: int, base: int = 0) -> None:
    path = write_parcel(sketch(site, number, base), node.folder / "wire")
    node.intake.accept(path, path.name, site)


def reported(node: Node) -> list[tuple[int, int, int]]:
    """Return window, sites and revision of each report."""
    starts = [window(number).start for number in range(100)]
    return [(starts.index(each.window.start), len(each.sites), each.revision) for each in node.reports]


def test_a_hub_goes_on_where_the_copy_was_made(tmp_path: Path) -> None:
    """One window is reported, one waits for a site, one has a late sketch."""
    node = Node(tmp_path / "old", grace=3600.0)
    for number in (0, 1):
        for site in SITES:
            send(node, site, number)
    node.hub.step()
    send(node, "ams", 2)
    send(node, "ams", 1, base=2500)
    assert save_state(node.folder / "state", tmp_path / "hub.tar").windows == 3
    (tmp_path / "new").mkdir()
    restore(tmp_path / "hub.tar", tmp_path / "new" / "state")
    again = Node(tmp_path / "new", grace=3600.0)
    again.hub.step()
    assert reported(again) == [(1, 3, 2)]  # nothing that was reported comes again
    for site in SITES[1:]:
        send(again, site, 2)
    again.hub.step()
    assert reported(again)[1:] == [(2, 3, 1)]
    assert content(again.union(2)) == content(union_of(*(sketch(site, 2) for site in SITES)))
    assert not any("SET ASIDE" in line or "LEFT OUT" in line for line in again.said)
    assert not (node.folder / "state" / backup.TEMPORARY).exists()


def test_what_changes_while_the_copy_is_made_is_found_in_it_or_comes_again(tmp_path, monkeypatch) -> None:
    """One window is retired after the database was copied, and another one gets a sketch."""
    node = Node(tmp_path / "old", grace=0.0, late=-1.0)
    for number in (0, 1):
        send(node, "ams", number)
    node.hub.step()
    send(node, "ams", 2)
    real, windows = backup._copy, [node.store.folder(name) for name in node.store.windows()]

    def change(sources: list[Path], folder: Path) -> None:
        if folder.name == windows[1].name:
            node.store.retire(windows[1].name)
            send(node, "fra", 2)
        real(sources, folder)

    monkeypatch.setattr(backup, "_copy", change)
    assert save_state(tmp_path / "old" / "state", tmp_path / "hub.tar").windows == 2
    restore(tmp_path / "hub.tar", tmp_path / "state")
    again = Node(tmp_path, grace=0.0)
    assert again.store.is_past(windows[1].name)
    again.hub.step()
    assert reported(again) == [(2, 2, 1)]
    assert content(again.union(1)) == content(union_of(sketch("ams", 2), sketch("fra", 2)))


def test_the_command(run: Run, tmp_path: Path) -> None:
    node = Node(tmp_path, grace=3600.0)
    send(node, "ams", 0)
    state, file = tmp_path / "state", tmp_path / "hub.tar"
    kept = {"up/x.cube", "broker/sites.json", "broker/hub.nk", "clock"}
    for name in (*kept, "broker/seeds/ams.nk", "broker/store/x", "incoming/y"):
        (state / name).parent.mkdir(parents=True, exist_ok=True)
        (state / name).write_text(name)
    AlertStore(tmp_path / "alerts.sqlite").close()
    outbox = Outbox(state / "outputs" / "file-1", cap=1 << 20, say=print)
    outbox.put(Batch("1", []))
    ended = run("backup", file, "--state", state, "--alerts", tmp_path / "alerts.sqlite")
    outbox.close()
    assert ended.status == 0, ended.err
    assert "hub.tar: 1 window," in ended.err
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    found = restore(file, tmp_path / "found")
    names = {str(path.relative_to(found)) for path in found.rglob("*") if path.is_file()}
    assert {*kept, "hub.sqlite", "alerts.sqlite"} <= names
    assert not any("seeds" in name or "store" in name or "incoming" in name for name in names)
    AlertStore(found / "alerts.sqlite", must_exist=True).machine(Policy())
    assert [each["id"] for each in waiting_in(found)] == ["1"]
    before = file.read_bytes()
    ended = run("backup", file, "--state", state)
    assert (ended.status, file.read_bytes() == before) == (4, True)
    assert "exists; --force replaces it" in ended.err
    assert run("backup", file, "--state", state, "--force").status == 0
    for options, status, words in [
        (["--state", tmp_path / "nothing"], 2, "not the state of a hub"),
        (["--state", state, "--alerts", tmp_path / "gone"], 2, "no such file"),
        (["--state", state, "--alerts", file], 3, "cannot be copied"),
    ]:
        ended = run("backup", tmp_path / "other.tar", *options)
        assert (ended.status, ended.out) == (status, "")
        assert words in ended.err
    assert not (tmp_path / "other.tar").exists()


def test_sites_that_are_enrolled_before_the_hub_has_run_are_copied(run: Run, tmp_path: Path) -> None:
    assert run("site", "enroll", "ams", "--state", tmp_path / "state").status == 0
    ended = run("backup", tmp_path / "hub.tar", "--state", tmp_path / "state")
    assert (ended.status, "hub.tar: 0 windows, 1 file," in ended.err) == (0, True), ended.err
    listed = [
        run("site", "list", "--json", "--state", folder).rows
        for folder in (tmp_path / "state", restore(tmp_path / "hub.tar", tmp_path / "found"))
    ]
    assert listed[0] == listed[1]
    assert [row["site"] for row in listed[1]] == ["ams"]


def test_a_file_that_cannot_be_linked_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(tmp_path, grace=3600.0)
    send(node, "ams", 0)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.link", refuse)
    assert save_state(tmp_path / "state", tmp_path / "hub.tar").windows == 1
    found = restore(tmp_path / "hub.tar", tmp_path / "found")
    (path,) = found.glob("windows/*/2*.cube")
    assert path.read_bytes() == next(tmp_path.glob(f"state/windows/*/{path.name}")).read_bytes()
    with pytest.raises(UsageError):
        save_state(tmp_path / "gone", tmp_path / "x.tar")


@pytest.mark.slow
def test_a_real_hub_is_copied_while_it_runs_lost_and_goes_on_elsewhere(tmp_path: Path) -> None:
    """With its sites: the token of an edge works at the new hub, which listens where the old one did."""
    synth = "synth:flows=4k,packets=8k,windows={},super_hosts=2"
    hub, link = make_hub(tmp_path, sites=("ams",))
    (tmp_path / "token").touch(0o600)
    made = process("site", "enroll", "ams", "--state", tmp_path / "hub", "--address", link[1])
    (tmp_path / "token").write_text(made.out)
    arguments = [str(tmp_path / "new") if each == str(tmp_path / "hub") else each for each in hub.arguments]
    moved = Process(tmp_path / "new.log", *arguments)
    found: list[list[Any]] = []
    for node, windows in ((hub, 2), (moved, 4)):
        edge = make_edge(tmp_path, "ams", ["--join", f"@{tmp_path / 'token'}"], synth.format(windows))
        with ending(node, edge):
            node.start().wait_ready()
            edge.start()
            assert edge.process.wait(DEADLINE) == 0
            wait_for(lambda windows=windows: windows_in(tmp_path / "found.jsonl") == windows, "all is reported")
            if node is hub:
                assert process("backup", tmp_path / "hub.tar", "--state", tmp_path / "hub").status == 0
        found.append(rows(tmp_path / "found.jsonl"))
        shutil.rmtree(tmp_path / "spool-ams")
        if node is hub:
            shutil.rmtree(tmp_path / "hub")
            restore(tmp_path / "hub.tar", tmp_path / "new")
    before, after = found
    assert after[: len(before)] == before  # what the old hub had reported, and the edge sends again, is known
    assert not {row["window_start"] for row in before} & {row["window_start"] for row in after[len(before) :]}
    assert {row["revision"] for row in after} == {1}
