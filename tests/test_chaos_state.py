"""The hub loses its state, or what it says is damaged: the archive keeps every union."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import chaos
from chaos import LINKS, Fleet, need_link, put
from processes import SITES, ending


@contextmanager
def lose_state(fleet: Fleet, chance: random.Random) -> Iterator[None]:
    """The hub's state is lost or damaged, the archive is not; then a sketch comes that was merged before."""
    hub, state = fleet.hub, fleet.folder / "hub"
    hub.wait_ready()
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
            put(fleet.parcels[site][number], folder)


@LINKS
def test_a_hub_that_has_lost_its_state_never_loses_what_the_archive_holds(tmp_path: Path, by_files: bool):
    need_link(by_files=by_files)
    count = chaos.share(5, least=3)
    fleet = Fleet(tmp_path, count, by_files=by_files)
    with ending(*fleet.nodes.values()):
        fleet.start()
        fleet.play("lost", count, [lose_state], before=True)  # what was not reported yet is lost with the state
        fleet.drain()
        fleet.check()
