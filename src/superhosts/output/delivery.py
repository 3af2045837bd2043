"""Destinations that work in threads of their own: reports wait in a queue, in memory or on disk, and a thread delivers.

`Delivery` has a sender; `BackgroundOutput` writes a file or standard output of a service in the same way.

`write` only queues, so a receiver that is slow, down or hangs never delays the run or other destinations. Attempts that
fail are repeated after pauses that double from one second to a minute, with jitter, so that the sensors of a fleet do
not all come back at the same moment. At its end a run waits for the queue, up to a limit. Reports that are still not
delivered then are an error if they are lost, or if the run had a planned end; those in a queue on disk are sent by the
next run.
"""

from __future__ import annotations

import contextlib
import json
import random
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar

from superhosts.core.database import DamagedError, Database, Format
from superhosts.core.files import hold_folder, is_plain, output_errors, remove_durably, set_aside_and_report
from superhosts.core.notices import WARNING, Notice
from superhosts.core.pairs import Window
from superhosts.core.text import counted, printable
from superhosts.errors import InputError, OutputError, internal_error
from superhosts.output.destination import RUN_THAT_ENDS, Destination, RunKind
from superhosts.output.records import NAMES, Batch, batches_of, digest_of
from superhosts.output.report import Report, Row
from superhosts.output.senders import Address, PermanentError, Sender, TemporaryError, reason_of

ENDING = 2.0  # seconds: the longest pause between attempts while the run waits for the queue
LAST_MOMENT = 5.0  # seconds that a service waits for a queue on disk, which the next run continues
IDLE = 60.0  # seconds after which a thread without work looks again
TOLD = 100  # lost reports between two lines about them
PATIENCE = 2.0  # seconds that the run waits for a report to be written in this process
MOST_WAITING = 10_000  # batches
MEMORY_CAP = 16 << 20  # bytes of batches that wait in memory
QUEUE = "queue.sqlite"
FORMAT = Format(
    "a queue of reports",
    1,
    "batches",
    "CREATE TABLE IF NOT EXISTS batches (number INTEGER PRIMARY KEY, content BLOB NOT NULL);",
)
_FILE = re.compile(r"[0-9]{20}\.json")  # of a batch, in queues of 0.1


@dataclass
class DeliveryOptions:
    """How reports wait for destinations that send. Each run has an object of its own, as its deadline is in it."""

    queue: Path | None = None  # a folder with a queue for each destination; None: they wait in memory
    cap: int = 64 << 20  # bytes in the queue of one destination
    most: int = MOST_WAITING  # batches there
    wait: float = 30.0  # seconds that a run waits for its queues at its end
    site: str = ""  # which installation sends
    say: Callable[[str], None] = lambda _text: None
    ledger: Path | None = None  # of destinations that act; None: none may
    once: bool = False  # a report that is handed in again, after a restart too, is not written to a file again
    first_pause: float = 1.0  # seconds between two attempts
    last_pause: float = 60.0
    _deadline: float | None = field(default=None, init=False, compare=False)

    def time_left(self, most: float) -> float:
        """Return the seconds left for all destinations together: `wait`, at most `most`, from the first question on."""
        if self._deadline is None:
            self._deadline = time.monotonic() + min(self.wait, most)
        return max(self._deadline - time.monotonic(), 0.0)

    def folder_of(self, sender: Sender) -> Path | None:
        """Return the folder of a destination's queue. Another password leads to the same folder."""
        if self.queue is None:
            return None
        address = sender.address
        same = address.text.replace(f":{address.password}@", "@") if address.password else address.text
        digest = blake2b(same.encode(errors="replace"), digest_size=6).hexdigest()
        return self.queue / f"{address.scheme.replace('+', '-')}-{digest}"


class Delivery(Destination):
    batches: ClassVar[type[Batch]] = Batch  # that wait in the queue

    def __init__(self, sender: Sender, run: RunKind = RUN_THAT_ENDS, options: DeliveryOptions | None = None) -> None:
        super().__init__(sender.address.shown, run)
        options = options or DeliveryOptions()
        self.kind = sender.address.scheme
        self.delivered = 0
        self.refused = 0  # batches that the receiver will never take
        self._sender, self._options, self._say = sender, options, options.say
        self.folder = options.folder_of(sender)  # of the queue; None: it is in memory
        self._outbox = Outbox(self.folder, cap=options.cap, most=options.most, say=options.say, kind=self.batches)
        self._is_ending = self._is_woken = False  # changed with the lock of the queue
        self._failed = self._repeat_failed = False  # the last attempt
        self._open_alerts: list[Batch] = []  # to be sent again and again; another thread may replace them
        self._told = 0
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._prepare()
        if len(self._outbox):
            self._say(f"{self.name}: reports of earlier runs that wait: {len(self._outbox)}")
        self._thread.start()

    def _prepare(self) -> None:
        """Look at what an earlier run has left, before the first delivery."""

    def _write(self, report: Report) -> None:
        for batch in batches_of(report, self._options.site, self._sender.most_records):
            self.send(batch)

    def send(self, batch: Batch, patience: float = 0.0) -> None:
        self._outbox.put(batch, patience)
        dropped = self._outbox.dropped
        if dropped and (not self._told or dropped >= self._told + TOLD):
            self._told = dropped
            self._say(Notice(f"{self.name}: its queue is full; reports LOST so far: {dropped}", "lost", WARNING))

    def keep_open(self, events: Callable[[], Sequence[Row]]) -> None:
        if self._sender.repeat_after is not None:
            report = Report(rows=events())
            self._open_alerts = list(batches_of(report, self._options.site, self._sender.most_records))

    def reopen(self) -> None:
        """Try again at once: an operator may have mended something."""
        with self._outbox.changed:
            self._is_woken = True
            self._outbox.changed.notify_all()

    def close(self) -> None:
        """Wait for the queue, up to the limit. OutputError: reports are lost, or a run that ends could not send all."""
        if text := self._finish():
            raise OutputError(text)

    def abandon(self) -> None:
        if text := self._finish():
            self._say(text)

    @property
    def queued_bytes(self) -> int:
        return self._outbox.size

    def status(self) -> dict[str, int]:
        dropped = self._outbox.dropped + self.refused
        return super().status() | {"waiting": len(self._outbox), "dropped": dropped, "delivered": self.delivered}

    def _finish(self) -> Notice | None:
        keeps = self.run.endless and not self.run.waits and self.folder is not None
        with self._outbox.changed:
            self._is_ending = self._is_woken = True
            self._outbox.changed.notify_all()
            while len(self._outbox):
                left = self._options.time_left(LAST_MOMENT if keeps else self._options.wait)
                if not left or not self._thread.is_alive():
                    break
                self._outbox.changed.wait(left)
            self._outbox.is_stopped = True
            self._outbox.changed.notify_all()
        if len(self._outbox):
            self._sender.abort()
        self._thread.join(1.0)
        waiting, lost = len(self._outbox), self._outbox.dropped + self.refused
        self._outbox.close()
        where = "" if self.folder is None else f"; they wait in {self.folder} for the next run"
        if waiting and keeps:
            self._say(f"{self.name}: {counted(waiting, 'report')} not delivered yet{where}")
            waiting = 0
        texts = [f"{counted(waiting, 'report')} NOT DELIVERED{where}"] if waiting else []
        texts += [f"{counted(lost, 'report')} LOST"] if lost and not keeps else []
        if not texts:
            return None
        return Notice(f"{self.name}: {', '.join(texts)}", "not-delivered" if waiting else "lost", WARNING)

    def _run(self) -> None:
        pause = self._options.first_pause
        every = self._sender.repeat_after
        due = time.monotonic() + (every or 0.0)
        while not self._outbox.is_stopped:
            is_retrying = self._failed and len(self._outbox)
            if every is not None and time.monotonic() >= due and not is_retrying:
                self._repeat()
                due = time.monotonic() + every
            idle = IDLE if every is None else min(IDLE, max(due - time.monotonic(), 0.0))
            taken = self._outbox.take(idle)
            if taken is None or self._outbox.is_stopped:
                continue
            wait = self._attempt(*taken)
            if wait is None:
                pause = self._options.first_pause
                continue
            longest = ENDING if self._is_ending else self._options.last_pause
            jittered = min(pause, longest) * random.uniform(0.5, 1.0)
            with self._outbox.changed:
                until = max(jittered, min(wait, longest))
                self._outbox.changed.wait_for(lambda: self._is_woken or self._outbox.is_stopped, until)
                self._is_woken = False
            pause = min(2 * pause, self._options.last_pause)
        self._sender.close()

    def _attempt(self, number: int, batch: Batch) -> float | None:
        """Deliver a batch; return None if it is done with, or the least number of seconds to wait."""
        try:
            self._sender.deliver(batch)
        except (TemporaryError, OSError) as error:
            self.counters.failures += 1
            if not self._failed and not self._outbox.is_stopped:
                text = f"{self.name} does NOT TAKE reports: {printable(reason_of(error))}; they wait, retrying"
                self._say(Notice(text, "not-take", WARNING))
            self._failed = True
            self._outbox.release()
            return getattr(error, "after", 0.0)
        except Exception as error:  # A sender that fails with one batch must deliver the next.
            self.counters.failures += 1
            self.refused += 1
            if self.refused % TOLD == 1:
                what = reason_of(error) if isinstance(error, PermanentError) else internal_error(error)
                text = f"{self.name} REFUSES a report: {printable(what)}; reports refused so far: {self.refused}"
                self._say(Notice(text, "refuses", WARNING))
        else:
            self.delivered += 1
            if self._failed:
                self._say(Notice(f"{self.name} takes reports again", "recovered"))
            self._failed = False
        self._outbox.remove(number)
        return None

    def _repeat(self) -> None:
        """Send open alerts again. If that fails, the next time is soon enough: they do not wait in the queue."""
        try:
            for batch in self._open_alerts:
                self._sender.deliver(batch)
        except Exception as error:  # A sender that fails here must deliver the next batch.
            self.counters.failures += 1
            if not self._repeat_failed:
                what = reason_of(error) if isinstance(error, TemporaryError | PermanentError | OSError) else repr(error)
                text = f"{self.name} does NOT TAKE open alerts again: {printable(what)}; retrying"
                self._say(Notice(text, "not-take", WARNING))
            self._repeat_failed = True
        else:
            self._repeat_failed = False


@dataclass(frozen=True)
class ReportBatch(Batch):
    """The rows of one report; `span`: when its window begins and ends, in nanoseconds."""

    span: tuple[int, int] | None = None
    title: str = ""
    notes: Sequence[str] = ()
    is_incomplete: bool = False

    @classmethod
    def of(cls, report: Report) -> ReportBatch:
        """Return the rows of a report. The same report has the same id, also if more names of its hosts are known."""
        span = None if report.window is None else (report.window.start, report.window.end)
        rows = [dict(row) for row in report.rows]
        plain = [{name: value for name, value in row.items() if name not in NAMES} for row in rows]
        about = json.dumps([span, report.revision, plain], default=str).encode()
        words = {"title": report.title, "notes": list(report.notes), "is_incomplete": report.is_incomplete}
        return cls(digest_of(about), rows, revision=report.revision, span=span, **words)  # type: ignore[arg-type]

    def as_json(self) -> dict[str, Any]:
        """Return the batch as a dictionary that JSON can hold; its rows are many, and not copied."""
        return dict(vars(self))

    @property
    def report(self) -> Report:
        window = None if self.span is None else Window(*self.span)
        words = {"title": self.title, "notes": self.notes, "is_incomplete": self.is_incomplete}
        return Report(rows=self.records, window=window, revision=self.revision, **words)  # type: ignore[arg-type]


class Writer(Sender):
    """Writes reports to a destination in this process."""

    def __init__(self, inner: Destination, place: str) -> None:
        super().__init__(Address(place, inner.kind, given=inner.name))
        self.batch = ""  # the id of the one that is being written
        self._inner = inner
        self._lock = threading.Lock()  # held while it is written
        self._reopens = False  # once it is not being written

    def deliver(self, batch: Batch) -> None:
        assert isinstance(batch, ReportBatch)
        with self._lock:
            self.batch = batch.id
            try:
                if self._reopens:
                    self._inner.reopen()
                    self._reopens = False
                self._inner.write(batch.report)
            except OutputError as error:
                raise TemporaryError(str(error).removeprefix(f"{self._inner.name}: ")) from error

    def reopen(self) -> None:
        self._reopens = True
        if self._lock.acquire(blocking=False):
            try:
                self._inner.reopen()
                self._reopens = False
            finally:
                self._lock.release()

    def close(self) -> None:
        self._inner.close()


class BackgroundOutput(Delivery):
    """Writes to another destination in a thread of its own; what cannot be written waits in a queue.

    The run waits for a moment, so that a report is written when it counts as done.
    """

    batches = ReportBatch

    def __init__(
        self, inner: Destination, options: DeliveryOptions, place: str = "", *, patience: float = PATIENCE
    ) -> None:
        self.inner, self._writer, self._patience = inner, Writer(inner, place), patience
        try:
            super().__init__(self._writer, inner.run, options)
        except BaseException:
            inner.close()
            raise

    def _write(self, report: Report) -> None:
        self._queue(ReportBatch.of(report))

    def _queue(self, batch: ReportBatch) -> None:
        is_behind = len(self._outbox) > 0  # the run does not wait for it
        self.send(batch, 0.0 if is_behind else self._patience)
        if not is_behind and len(self._outbox) and not self._failed:
            self._failed = True
            text = f"{self.name} is NOT READ or does not answer: reports for it wait, the other destinations continue"
            self._say(Notice(text, "not-read", WARNING))

    def reopen(self) -> None:
        super().reopen()
        self._writer.reopen()


class Outbox:
    """The queue of one destination: batches of records wait, in order, until it has taken them. Safe for threads.

    With a folder, every batch is in a database there before `put` returns, and is removed once it is delivered. So a
    crash loses nothing, and the next run goes on with what waits; a batch whose delivery a crash interrupted is sent
    again, with the same id. Without a folder, or while the disk is full, batches wait in memory. The space is bounded:
    when it is used up, the oldest batches are dropped and counted.
    """

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
        self.size = 0  # bytes of all batches
        self.changed = threading.Condition()
        self.is_stopped = False  # `take` waits no more
        self._cap = cap if folder is not None else min(cap, memory_cap)
        self._memory_cap, self._most, self._say, self._kind = memory_cap, most, say, kind
        self._sizes: dict[int, int] = {}  # of all batches by their numbers, the oldest first
        self._held: dict[int, bytes] = {}  # batches that are not in the database
        self._gone: list[int] = []  # batches that are there, and should not be
        self._taken = self._tried = 0  # the batch that is being delivered, and the last one that was in vain
        self._trouble = ""  # why the database could not be written
        self.database: Database | None = None
        if folder is not None:
            self._lock = hold_folder(folder)
            try:
                put_aside = partial(set_aside_and_report, say=say)
                self.database = Database.opened(folder / QUEUE, FORMAT, put_aside, self._load)
            except BaseException:
                self._lock.close()
                raise
        self.size = sum(self._sizes.values())
        self._next = max(self._sizes, default=0) + 1

    def _load(self, database: Database) -> None:
        """Look at what earlier runs have left; move over what earlier versions have left in a file for each batch."""
        folder = database.path.parent
        with output_errors(folder):
            files = sorted(path for path in folder.iterdir() if _FILE.fullmatch(path.name) and is_plain(path))
            if files:
                with database.transaction() as connection:
                    content = ((path.read_bytes(),) for path in files)
                    connection.executemany("INSERT INTO batches (content) VALUES (?)", content)
            remove_durably(*files, *folder.glob(".*.tmp"))  # A run was killed while it wrote such a file.
        with database.reading() as connection:
            self._sizes = dict(connection.execute("SELECT number, length(content) FROM batches ORDER BY number"))

    def __len__(self) -> int:
        return len(self._sizes)

    def put(self, batch: Batch, patience: float = 0.0) -> None:
        """Queue a batch, and save it if it is not delivered in a moment; drop the oldest ones if it is full."""
        data = json.dumps(batch.as_json()).encode()
        with self.changed:
            number, self._next = self._next, self._next + 1
            self._sizes[number], self._held[number] = len(data), data
            self.size += len(data)
            self.changed.notify_all()
            if patience:
                self.changed.wait_for(lambda: number not in self._sizes or self._tried == number, patience)
            if number in self._sizes:
                self._trim(self._sizes, lambda: len(self) > self._most or self.size > self._cap)
                self._save()
                if self._trouble:
                    self._trim(self._held, lambda: sum(map(len, self._held.values())) > self._memory_cap)

    def last_ids(self, most: int) -> list[str]:
        """Return the ids of the last batches that wait, as far as they can be read."""
        found = []
        with self.changed:
            for number in list(self._sizes)[-most:]:
                with contextlib.suppress(InputError, OutputError):
                    found.append(self._read(number).id)
        return found

    def _read(self, number: int) -> Batch:
        if self.database is None or number in self._held:
            return self._kind.from_json(json.loads(self._held[number]))
        with self.database.reading() as connection:
            (data,) = connection.execute("SELECT content FROM batches WHERE number = ?", (number,)).fetchone()
            return self._kind.from_json(json.loads(data))

    def take(self, wait: float) -> tuple[int, Batch] | None:
        """Return the oldest batch, which stays in the queue until `remove`; None if there is none for a while."""
        with self.changed:
            if not self._sizes and not self.is_stopped:
                self.changed.wait(wait)
            while self._sizes and not self.is_stopped:
                number = next(iter(self._sizes))
                try:
                    batch = self._read(number)
                except (InputError, OutputError) as error:
                    why = error.why if isinstance(error, DamagedError) else str(error)
                    self._say(
                        Notice(f"{self.folder}: a report that waits cannot be read: {why}; LOST", "lost", WARNING)
                    )
                    self.dropped += 1
                    self.remove(number)
                else:
                    self._taken = number
                    return number, batch
        return None

    def remove(self, number: int) -> None:
        """Forget a batch that was delivered, or that its destination refuses for good."""
        with self.changed:
            self._taken = 0
            self._forget(number)
            self._save()
            self.changed.notify_all()

    def release(self) -> None:
        """Leave the batch that was taken in the queue: it could not be delivered."""
        with self.changed:
            self._tried, self._taken = self._taken, 0
            self.changed.notify_all()

    def close(self) -> None:
        with self.changed:
            if self.database is not None:
                self.database.close()
                self.database = None
            if self.folder is not None:
                self._lock.close()

    def _save(self) -> None:
        """Write what is in memory to the database, and remove from it what is done with."""
        if self.database is None or not (self._held or self._gone):
            return
        try:
            with self.database.transaction() as connection:
                connection.executemany("INSERT INTO batches VALUES (?, ?)", self._held.items())
                connection.executemany("DELETE FROM batches WHERE number = ?", [(each,) for each in self._gone])
        except (InputError, OutputError) as error:
            if not self._trouble:
                what = "reports WAIT IN MEMORY until it can" if self._held else "a restart sends reports AGAIN"
                self._say(Notice(f"{error}; {what}", "wait-in-memory" if self._held else "again", WARNING))
            self._trouble = str(error)
            return
        self._held.clear()
        self._gone.clear()
        if self._trouble:
            self._say(Notice(f"{self.folder}: written again", "recovered"))
            self._trouble = ""

    def _trim(self, batches: dict[int, Any], is_full: Callable[[], bool]) -> None:
        """Drop the oldest of some batches until the rest fits, but never the one that is being delivered."""
        while is_full():
            oldest = next((number for number in batches if number != self._taken), None)
            if oldest is None:
                return
            self._forget(oldest)
            self.dropped += 1

    def _forget(self, number: int) -> None:
        self.size -= self._sizes.pop(number)
        if self._held.pop(number, None) is None:
            self._gone.append(number)


def left_behind(queue: Path, used: set[Path]) -> dict[Path, int]:
    """Return the folders of a queue that no destination uses any more, and how many batches wait in each."""
    counts: dict[Path, int] = {}
    with contextlib.suppress(OSError):
        for folder in sorted(queue.iterdir()):
            if folder in used or not folder.is_dir():
                continue
            counts[folder] = sum(1 for path in folder.iterdir() if _FILE.fullmatch(path.name))
            if (folder / QUEUE).is_file():
                with contextlib.suppress(InputError, OutputError):
                    database = Database(folder / QUEUE, FORMAT)
                    with contextlib.closing(database), database.reading() as connection:
                        counts[folder] += connection.execute("SELECT count(*) FROM batches").fetchone()[0]
    return {folder: count for folder, count in counts.items() if count}
