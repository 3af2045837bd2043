"""The queue of a destination: nothing is lost by a crash, the space is bounded, a full disk is survived."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from faults import DeadError, at_rename, die, fill_disk, full_disk
from superhosts.errors import UsageError
from superhosts.output import delivery as module
from superhosts.output.records import Batch

ROOM = 1 << 20
_opened: list[module.Outbox] = []


@pytest.fixture(autouse=True)
def closing() -> Iterator[None]:
    yield
    while _opened:
        _opened.pop().close()


def Outbox(*arguments: Any, **options: Any) -> module.Outbox:  # noqa: N802
    _opened.append(module.Outbox(*arguments, **options))
    return _opened[-1]


def batch(number: int, size: int = 0) -> Batch:
    return Batch(str(number), [{"kind": "superhost", "id": str(number), "site": "", "host": "x" * size}])


def size_of(one: Batch) -> int:
    outbox = Outbox(None, cap=ROOM, say=print)
    outbox.put(one)
    return outbox._items[0].size


def drain(outbox: module.Outbox) -> list[str]:
    found = []
    while (taken := outbox.take(0)) is not None:
        item, one = taken
        found.append(one.id)
        outbox.remove(item)
    return found


def test_a_restart_goes_on_where_the_last_run_stopped(tmp_path: Path) -> None:
    first = Outbox(tmp_path, cap=ROOM, say=print)
    for number in range(3):
        first.put(batch(number))
    taken = first.take(0)
    assert taken is not None
    first.remove(taken[0])
    assert first.take(0) is not None  # under way, but not delivered
    first.close()  # as the end of the process does
    second = Outbox(tmp_path, cap=ROOM, say=print)
    second.put(batch(3))
    assert drain(second) == ["1", "2", "3"]


@pytest.mark.parametrize("after", range(3))
def test_a_crash_while_a_batch_is_written_leaves_whole_ones(tmp_path: Path, after: int) -> None:
    outbox = Outbox(tmp_path, cap=ROOM, say=print)
    with at_rename("*.json", die, after=after):
        for number in range(after):
            outbox.put(batch(number))
        with pytest.raises(DeadError):
            outbox.put(batch(after))
    outbox.close()
    (tmp_path / ".00000000000000000009.json.tmp").write_text("half a ba")
    assert drain(Outbox(tmp_path, cap=ROOM, say=print)) == [str(number) for number in range(after)]
    assert not [*tmp_path.glob(".*.tmp")]


def test_two_processes_do_not_share_a_queue(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path, cap=ROOM, say=print)
    with pytest.raises(UsageError, match="another process is using this folder"):
        Outbox(tmp_path, cap=ROOM, say=print)
    outbox.close()
    Outbox(tmp_path, cap=ROOM, say=print).close()


@pytest.mark.parametrize("on_disk", [False, True])
def test_the_oldest_are_dropped_but_not_the_one_under_way(tmp_path: Path, on_disk: bool) -> None:
    one = size_of(batch(0))
    outbox = Outbox(tmp_path if on_disk else None, cap=3 * one, say=print)
    outbox.put(batch(0))
    taken = outbox.take(0)
    assert taken is not None
    for number in range(1, 6):
        outbox.put(batch(number))
    assert (len(outbox), outbox.dropped) == (3, 3)
    outbox.remove(taken[0])
    assert drain(outbox) == ["4", "5"]
    assert (len(outbox), outbox.take(0)) == (0, None)
    outbox.put(batch(6, size=10 * one))  # larger than the queue
    assert (len(outbox), outbox.dropped) == (0, 4)
    assert not [*tmp_path.glob("*.json")]
    few = Outbox(None, cap=ROOM, say=print, most=2)
    for number in range(5):
        few.put(batch(number))
    assert (drain(few), few.dropped) == (["3", "4"], 3)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [(lambda: at_rename("*.json", fill_disk), "No space left on device"), (lambda: full_disk(), "File too large")],
)
def test_while_the_disk_is_full_batches_wait_in_memory_and_are_saved_later(
    tmp_path: Path, fault: Any, reason: str
) -> None:
    said: list[str] = []
    one = size_of(batch(0))
    outbox = Outbox(tmp_path, cap=ROOM, memory_cap=2 * one, say=said.append)
    outbox.put(batch(0))
    with fault():
        for number in range(1, 4):
            outbox.put(batch(number))
    assert said == [f"{tmp_path}: cannot be written: {reason}; reports WAIT IN MEMORY until it can"]
    assert (len(outbox), outbox.dropped) == (3, 1)  # The oldest of those in memory.
    assert len([*tmp_path.glob("*.json")]) == 1
    outbox.put(batch(4))
    assert said[1:] == [f"{tmp_path}: written again"]
    assert len([*tmp_path.glob("*.json")]) == 4
    outbox.close()
    assert drain(Outbox(tmp_path, cap=ROOM, say=print)) == ["0", "2", "3", "4"]


def test_a_damaged_file_is_set_aside_and_the_others_are_sent(tmp_path: Path) -> None:
    said: list[str] = []
    outbox = Outbox(tmp_path, cap=ROOM, say=said.append)
    for number in range(3):
        outbox.put(batch(number))
    names = sorted(path.name for path in tmp_path.glob("*.json"))
    (tmp_path / names[0]).write_text("{")
    (tmp_path / names[1]).write_text('{"id": "1", "records": [], "colour": "red"}')
    assert drain(outbox) == ["2"]
    assert (outbox.dropped, len(said)) == (2, 2)
    assert all("SET ASIDE" in line for line in said)


def test_a_file_that_cannot_be_removed_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    outbox = Outbox(tmp_path, cap=ROOM, say=said.append)
    outbox.put(batch(0))

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refuse)
        assert drain(outbox) == ["0"]
    assert said[0].endswith("cannot be removed: Input/output error; a restart sends it AGAIN")
    outbox.close()
    assert drain(Outbox(tmp_path, cap=ROOM, say=print)) == ["0"]
