"""The queue of one destination: batches of records that wait until it has taken them.

With a folder, every batch is a file there before `put` returns (flushed, renamed), and is removed once it is delivered.
So a crash loses nothing, and the next run goes on with what waits; a batch whose delivery a crash interrupted is sent
again, with the same id. Without a folder, or while the disk is full, batches wait in memory. The space is bounded: when
it is used up, the oldest batches are dropped and counted.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from superhosts.core.files import hold_folder, is_plain, parse_json, replacing, set_aside_and_report, sync_folder
from superhosts.core.notices import WARNING, Notice
from superhosts.errors import OutputError
from superhosts.output.batches import Batch

MOST_WAITING = 10_000  # batches
MEMORY_CAP = 16 << 20  # bytes of batches that wait in memory
_NAME = re.compile(r"([0-9]{20})\.json")


def left_behind(queue: Path, used: set[Path]) -> dict[Path, int]:
    """Return the folders of a queue that no destination uses any more, and how many batches wait in each."""
    try:
        others = [folder for folder in queue.iterdir() if folder not in used and folder.is_dir()]
        counts = {folder: sum(1 for path in folder.iterdir() if _NAME.fullmatch(path.name)) for folder in others}
    except OSError:
        return {}
    return {folder: count for folder, count in sorted(counts.items()) if count}


@dataclass(eq=False)
class Item:
    """One batch in the queue."""

    number: int
    size: int
    data: bytes | None  # None: it is in a file
    is_tried: bool = False  # in vain


class Outbox:
    """Batches in the order in which they came. Safe to use from several threads."""

    def __init__(
        self,
        folder: Path | None,
        *,
        cap: int,
        say: Callable[[str], None],
        memory_cap: int = MEMORY_CAP,
        most: int = MOST_WAITING,
        kind: type[Batch] = Batch,
    ) -> None:
        """Open the queue in a folder, which no other process may use, or one in memory. `kind`: of its batches."""
        self.folder = folder
        self.dropped = 0
        self.changed = threading.Condition()
        self._cap, self._memory_cap, self._most, self._say = cap, memory_cap, most, say
        self._kind = kind
        self._lock: IO[str] | None = None
        self._items: list[Item] = []
        self._next = 1
        self._taken: Item | None = None  # the batch that is being delivered
        self._trouble = ""  # why batches could not be written to the folder
        if folder is not None:
            self._lock = hold_folder(folder)
            self._read_folder(folder)

    def _read_folder(self, folder: Path) -> None:
        try:
            for left in folder.glob(".*.tmp"):  # A run was killed while it wrote this file.
                left.unlink(missing_ok=True)
            for path in sorted(folder.iterdir()):
                found = _NAME.fullmatch(path.name)
                if found and is_plain(path):
                    self._items.append(Item(int(found[1]), path.stat().st_size, None))
        except OSError as error:
            self.close()
            raise OutputError(f"{error.filename or folder}: cannot be read: {error.strerror}") from None
        if self._items:
            self._next = self._items[-1].number + 1

    def __len__(self) -> int:
        return len(self._items)

    @property
    def size(self) -> int:
        """The bytes of the batches that wait."""
        return sum(item.size for item in list(self._items))

    def put(self, batch: Batch) -> None:
        """Queue a batch; drop the oldest ones if the queue is full."""
        with self.changed:
            self._append(batch)
            self._save()
            self._trim()

    def offer(self, batch: Batch, patience: float) -> None:
        """Queue a batch, and wait a moment until it is delivered; one that is not is saved, as by `put`."""
        with self.changed:
            item = self._append(batch)
            self.changed.wait_for(lambda: item not in self._items or item.is_tried, patience)
            if item in self._items:
                self._save()
                self._trim()

    def _append(self, batch: Batch) -> Item:
        data = json.dumps(batch.as_json()).encode()
        item = Item(self._next, len(data), data)
        self._items.append(item)
        self._next += 1
        self.changed.notify_all()
        return item

    def last_ids(self, most: int) -> list[str]:
        """Return the ids of the last batches that wait, as far as they can be read."""
        found = []
        with self.changed:
            for item in self._items[-most:]:
                with contextlib.suppress(OSError, ValueError):
                    found.append(self._parse(item).id)
        return found

    def _parse(self, item: Item) -> Batch:
        return self._kind.from_json(json.loads(item.data) if item.data is not None else self._read(item))

    def take(self, wait: float, stopped: threading.Event | None = None) -> tuple[Item, Batch] | None:
        """Return the oldest batch, which stays in the queue until `remove`; None if there is none for a while.

        Whoever sets `stopped` notifies `changed` afterwards, and this returns at once.
        """
        with self.changed:
            if not self._items and not (stopped is not None and stopped.is_set()):
                self.changed.wait(wait)
            while self._items:
                item = self._items[0]
                try:
                    batch = self._parse(item)
                except (OSError, ValueError) as error:
                    self._set_aside(item, error)
                    continue
                self._taken = item
                return item, batch
        return None

    def remove(self, item: Item) -> None:
        """Forget a batch that was delivered, or that its destination refuses for good."""
        with self.changed:
            self._taken = None
            self._forget(item)
            if self._items and self._trouble:
                self._save()
            self.changed.notify_all()

    def release(self) -> None:
        """Leave the batch that was taken in the queue: it could not be delivered."""
        with self.changed:
            if self._taken is not None:
                self._taken.is_tried = True
            self._taken = None
            self.changed.notify_all()

    def close(self) -> None:
        """Let another process use the folder."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _path(self, item: Item) -> Path:
        assert self.folder is not None
        return self.folder / f"{item.number:020d}.json"

    def _read(self, item: Item) -> object:
        content: object = parse_json(self._path(item))
        return content

    def _save(self) -> None:
        """Write batches that are in memory to the folder, the oldest first, until one fails."""
        if self.folder is None:
            return
        for item in self._items:
            if item.data is None:
                continue
            try:
                with replacing(self._path(item), private=True, sole=True) as temporary:
                    temporary.write_bytes(item.data)
                sync_folder(self.folder)
            except OSError as error:
                reason = error.strerror or str(error)
                if not self._trouble:
                    self._say(
                        Notice(
                            f"{self.folder}: cannot be written: {reason}; reports WAIT IN MEMORY until it can",
                            "wait-in-memory",
                            WARNING,
                        )
                    )
                self._trouble = reason
                return
            item.data = None
        if self._trouble:
            self._say(Notice(f"{self.folder}: written again", "recovered"))
            self._trouble = ""

    def _trim(self) -> None:
        """Drop the oldest batches until the rest fits, but never the one that is being delivered."""

        def drop(candidates: list[Item]) -> bool:
            free = [item for item in candidates if item is not self._taken]
            if free:
                self._forget(free[0])
                self.dropped += 1
            return bool(free)

        while self._items and (len(self._items) > self._most or sum(item.size for item in self._items) > self._cap):
            if not drop(self._items):
                break
        while True:
            held = [item for item in self._items if item.data is not None]
            if sum(item.size for item in held) <= self._memory_cap or not drop(held):
                break

    def _forget(self, item: Item) -> None:
        if item not in self._items:
            return
        self._items.remove(item)
        if item.data is None:
            try:
                self._path(item).unlink(missing_ok=True)
            except OSError as error:
                self._say(
                    Notice(
                        f"{self._path(item)}: cannot be removed: {error.strerror}; a restart sends it AGAIN",
                        "again",
                        WARNING,
                    )
                )

    def _set_aside(self, item: Item, error: Exception) -> None:
        """Set a file aside that cannot be read or is damaged."""
        self._items.remove(item)
        self.dropped += 1
        if item.data is None:
            try:
                set_aside_and_report(self._path(item), f"cannot be read ({error})", self._say)
            except OutputError as failed:
                self._say(Notice(str(failed), "trouble", WARNING))
