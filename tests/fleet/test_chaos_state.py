"""The hub loses its state, or what it says is damaged: the archive keeps every union."""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import chaos
from chaos import NATS_OR_BOTH, SITES, Fleet, need_link, put
from processes import Node, ending, wait_for
from superhosts.core.files import read_json

pytestmark = pytest.mark.slow


@contextmanager
def lose_state(fleet: Fleet, chance: random.Random) -> Iterator[None]:
    """The hub's state is lost or damaged, the archive is not; then a sketch comes that was merged before."""
    hub, state = fleet.hub, fleet.folder / "hub"
    hub.wait_ready()
    wait_for(lambda: is_frozen_with_all_reported(hub, state), "the hub has reported what it holds")
    hub.kill()
    windows, past = list((state / "windows").iterdir()), list((state / "past").iterdir())
    losses: list[Callable[[], object]] = [
        lambda: shutil.rmtree(state / "windows"),
        lambda: [shutil.rmtree(state / name) for name in ("windows", "past")],
        lambda: [(window / "ledger.json").write_bytes(b"") for window in windows],
        lambda: [(window / "ledger.json").write_text('{"known": 5, "merged": "x"}') for window in windows],
        lambda: [os.truncate(union, union.stat().st_size // 2) for union in state.glob("windows/*/merged.cube")],
        lambda: [path.write_bytes(b"") for path in past],
    ]
    chance.choice(losses)()
    hub.start()
    yield
    lost = range(max(1, fleet.ended - 1))
    for site in chance.sample(SITES, 2):
        for number in chance.sample(lost, min(len(lost), 2)):
            folder = fleet.folder / "link" / site if fleet.by_files else fleet.folder / f"spool-{site}"
            put(fleet.sketch_files[site][number], folder)


def is_frozen_with_all_reported(hub: Node, state: Path) -> bool:
    """Stop a hub and look whether every sketch that it holds is in a report; if not, let it go on.

    What was not reported yet is lost with the state, and edges close windows whenever their clocks say so.
    """
    assert hub.process is not None
    hub.process.send_signal(signal.SIGSTOP)
    wait_for(lambda: is_stopped(hub.process.pid) or not hub.running, "the hub stands still")
    if all(is_reported(folder) for folder in (state / "windows").iterdir() if folder.is_dir()):
        return True
    hub.process.send_signal(signal.SIGCONT)
    return False


def is_stopped(pid: int) -> bool:
    states = [task.read_text().rpartition(")")[2].split()[0] for task in Path(f"/proc/{pid}/task").glob("*/stat")]
    return bool(states) and set(states) <= {"T"}


def is_reported(folder: Path) -> bool:
    ledger = read_json(folder / "ledger.json")
    if ledger is None or ledger["issuing"] is not None or ledger["issued"] is None:
        return False
    here = {path.name for path in folder.glob("*.cube") if path.name != "merged.cube"}
    return here | set(ledger["known"]) <= set(ledger["issued"]["members"])


@NATS_OR_BOTH
def test_a_hub_that_has_lost_its_state_never_loses_what_the_archive_holds(tmp_path: Path, by_files: bool):
    need_link(by_files=by_files)
    count = chaos.share(5, least=3)
    fleet = Fleet(tmp_path, count, by_files=by_files)
    with ending(*fleet.nodes.values()):
        fleet.start()
        fleet.play("lost", count, [lose_state], before=True)
        fleet.drain()
        fleet.check()
