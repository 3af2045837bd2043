"""Many captures on a Dask cluster: fold captures into sketches, merge these window by window as a tree, ask the unions.

The client plans, the workers do (tasks.py). A task's name is a digest of its files and of the settings that matter, so
a client that is started again finds what is done in the work folder and goes on with the rest. Tasks are cut by size,
and that size is kept in the work folder: a cluster that has more or fewer workers the next time changes no task.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from superhosts._version import __version__
from superhosts.batch.cluster import check_workers
from superhosts.batch.tasks import Order, Result, carry_out, make_way, recorded
from superhosts.cubefile import container as sketchfile
from superhosts.detectors.registry import DETECTORS
from superhosts.durable import read_json, write_json
from superhosts.errors import OutputError, SuperhostsError, UsageError
from superhosts.hashing import fingerprint, secret_of
from superhosts.network import Network, parse_networks
from superhosts.pairs import Window
from superhosts.pipeline.scan import Counters
from superhosts.pipeline.settings import Settings
from superhosts.reports.rows import Row
from superhosts.sources.finding import FoundFile
from superhosts.sources.urls import is_url

FAN_IN = 8  # sketches that one task merges
TASKS_PER_WORKER = 4  # so that no worker waits long for the last one
LEAST_TASK = 64 << 20  # bytes of captures: below that, making and saving the cubes is most of a task
MOST_FILES = 256  # of one task: files of the same time are read side by side, each by a thread of its own


class BatchWindow(NamedTuple):
    """A window over all captures: its super hosts, and the file that holds its sketch."""

    window: Window
    rows: list[Row]
    path: Path


class TaskError(SuperhostsError):
    """An error on a worker, with its message."""

    def __init__(self, message: str, exit_status: int) -> None:
        super().__init__(message)
        self.exit_status = exit_status


def prepare(settings: Settings) -> Settings:
    """Return settings that mean the same on every machine: files of prefixes read, the key taken from here."""
    if "merge" in DETECTORS[settings.detector].broken_laws:
        raise UsageError(
            f"--detector {settings.detector}: its sketches of many captures do not add up to one; take cube"
        )
    Network(settings.inner, settings.exclude, ipv6_prefix=settings.ipv6_prefix)  # raises if they are invalid
    return replace(
        settings,
        inner=[str(network) for network in parse_networks(settings.inner, "--inner")],
        exclude=[str(network) for network in parse_networks(settings.exclude, "--exclude")],
        key=secret_of(settings.key),
    )


def cut_tasks(captures: Sequence[FoundFile], size: int) -> list[list[FoundFile]]:
    """Split captures into runs of at least `size` bytes or of many files; only the last run may have less."""
    runs: list[list[FoundFile]] = []
    room = 0
    for capture in captures:
        if room <= 0 or len(runs[-1]) == MOST_FILES:
            runs.append([])
            room = size
        runs[-1].append(capture)
        room -= capture.size
    return runs


def digest_of(*what: Any) -> str:
    """Return the name of a result: a digest of everything that decides it."""
    text = json.dumps([__version__, sketchfile.VERSION, *what])
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


class Batch:
    """One run over captures. Iterate over it for the windows, in order; `counters` tells what passed."""

    def __init__(
        self,
        client: Any,
        captures: Sequence[FoundFile],
        settings: Settings,
        folder: Path,
        *,
        task_size: int | None = None,
        on_error: Callable[[SuperhostsError], None],
        on_progress: Callable[[int, int], None],
    ) -> None:
        self.counters = Counters()
        self.tasks = self.reused = 0  # all tasks so far, and those with results from an earlier run
        self._client = client
        self._captures = captures
        self._settings = settings  # as `prepare` returns them
        self._folder = folder.absolute()
        self._task_size = task_size
        self._on_error = on_error
        self._on_progress = on_progress
        self._run = uuid.uuid4().hex[:8]  # keeps the tasks of clients apart
        self._made: set[str] = set()  # digests of this run's results
        self._done = 0
        self._threads: dict[str, int] = {}
        key = fingerprint(secret_of(self._settings.key))
        self._folding = [key, self._settings.fingerprint]

    def __iter__(self) -> Iterator[BatchWindow]:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"--work {self._folder}: cannot be made: {error.strerror or error}") from None
        sample = next((capture.name for capture in self._captures if not is_url(capture.name)), None)
        self._threads = check_workers(self._client, self._folder, sample)
        yield from self._restore(self._unite(self._fold()))

    def clear(self) -> None:
        """Remove this run's results from the work folder, and the folder if nothing else is in it."""
        with contextlib.suppress(OSError):  # another user's file, or a folder in use: nothing is lost
            for path in list(self._folder.iterdir()):
                if path.name.lstrip(".")[:32] not in self._made:
                    continue
                if path.is_dir():  # left by a worker that was killed
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)
            self._folder.rmdir()

    def _fold(self) -> dict[int, list[str]]:
        """Turn captures into sketches; return their files by window."""
        orders = []
        for captures in cut_tasks(self._captures, self._size()):
            names = [capture.name for capture in captures]
            orders.append(self._order("fold", names, self._folding, captures))
        pieces: dict[int, list[str]] = defaultdict(list)
        results = {}
        for order, result in self._carry_out(orders):
            if isinstance(result, TaskError):
                more = f" and {len(order.names) - 1} more" if len(order.names) > 1 else ""
                self._on_error(TaskError(f"{order.names[0]}{more}: {result}", 3))
                continue
            results[order.digest] = result
            for text, status in result["errors"]:
                self._on_error(TaskError(text, status))
        for order in orders:  # in a fixed order, so that merges are the same
            if order.digest in results:
                self._count(results[order.digest]["counters"])
                for piece in results[order.digest]["pieces"]:
                    pieces[piece["key"]].append(piece["file"])
        return pieces

    def _size(self) -> int:
        """Return the bytes of a task: as given, as the last time in this work folder, or by the number of workers."""
        digest = digest_of("size", self._folding)
        self._made.add(digest)
        path = self._folder / f"{digest}.json"
        known = read_json(path)
        if self._task_size is None and type(known) is int and known > 0:
            return known
        total, slots = sum(capture.size for capture in self._captures), sum(self._client.nthreads().values())
        size = self._task_size or max(LEAST_TASK, total // max(1, TASKS_PER_WORKER * slots))
        try:
            make_way(path)
            write_json(path, size, durable=False, shared=True)
        except OSError as error:
            raise OutputError(f"--work {self._folder}: cannot be written: {error.strerror or error}") from None
        return size

    def _count(self, counters: dict[str, Any]) -> None:
        for name, value in counters.items():
            setattr(self.counters, name, getattr(self.counters, name) + value)

    def _unite(self, pieces: dict[int, list[str]]) -> dict[int, str]:
        """Merge the files of each window until one is left."""
        while any(len(names) > 1 for names in pieces.values()):
            orders: dict[str, tuple[int, int]] = {}  # by digest: which window, and where among its files
            merges = []
            merged: dict[int, list[str]] = {}
            for key, names in pieces.items():
                groups = [names[i : i + FAN_IN] for i in range(0, len(names), FAN_IN)]
                merged[key] = [group[0] for group in groups]  # a single file stays as it is
                for place, group in enumerate(groups):
                    if len(group) > 1:
                        merges.append(self._order("merge", group, group))
                        orders[merges[-1].digest] = key, place
            for order, result in self._carry_out(merges):
                key, place = orders[order.digest]
                merged[key][place] = _sure(result)["pieces"][0]["file"]
            pieces = merged
        return {key: name for key, (name,) in pieces.items()}

    def _restore(self, unions: dict[int, str]) -> Iterator[BatchWindow]:
        """Search the unions, and yield the answers in time order."""
        asked = [self._settings.threshold, self._settings.top]
        keys = sorted(unions)
        orders = [self._order("restore", [unions[key]], unions[key], self._folding, asked) for key in keys]
        answers: dict[str, Result] = {}
        waiting = iter(orders)
        following = next(waiting, None)
        for order, result in self._carry_out(orders):
            answers[order.digest] = _sure(result)
            while following is not None and following.digest in answers:
                answer = answers.pop(following.digest)
                yield BatchWindow(Window(*answer["window"]), answer["rows"], self._folder / following.names[0])
                following = next(waiting, None)

    def _order(self, kind: str, names: Sequence[str], *what: Any) -> Order:
        digest = digest_of(kind, *what)
        self._made.add(digest)
        return Order(kind, digest, tuple(names), str(self._folder), self._settings)

    def _carry_out(self, orders: Iterable[Order]) -> Iterator[tuple[Order, Result | TaskError]]:
        """Run tasks; yield their results as they come, those of earlier runs first."""
        from distributed import as_completed

        todo, known = [], []
        for order in orders:
            result = recorded(self._folder, order.digest)
            if result is None:
                todo.append(order)
            else:
                known.append((order, result))
        self.tasks += len(todo) + len(known)
        self.reused += len(known)
        futures = {}
        for order in todo:
            key = f"superhosts-{order.kind}-{order.digest}-{self._run}"
            futures[self._client.submit(carry_out, order, self._threads, key=key)] = order
        for order, result in known:
            self._progress()
            yield order, result
        for future in as_completed(list(futures), loop=self._client.loop):
            self._progress()
            yield futures.pop(future), _outcome(future)

    def _progress(self) -> None:
        self._done += 1
        self._on_progress(self._done, self.tasks)


def _outcome(future: Any) -> Result | TaskError:
    """Return a task's result, or its error. Raises errors that concern all tasks."""
    from distributed import KilledWorker

    try:
        error = future.exception()
        result: Result = {} if error is not None else future.result()
    except (OSError, CancelledError):  # the scheduler does not answer
        raise TaskError("the cluster went away", 2) from None
    if isinstance(error, KilledWorker):
        return TaskError("its workers died, one after the other (out of memory?)", 2)
    if error is not None:
        return TaskError(f"{type(error).__name__}: {error}", 2)
    if "failed" in result:
        raise TaskError(result["failed"], result["status"])
    return result


def _sure(result: Result | TaskError) -> Result:
    if isinstance(result, TaskError):
        raise result
    return result
