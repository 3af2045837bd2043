"""Process many captures on a Dask cluster: fold captures into sketches, merge these window by window, query the unions.

The client plans the tasks, and workers run them (tasks.py). The merges of a window form a tree. A task is named by a
digest of its files and of the settings that affect its result, so a restarted client finds finished results in the
work folder and continues with the rest. Captures are grouped into tasks by size. That size is stored in the work
folder, so the tasks remain the same if the cluster later has more or fewer workers.
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

from superhosts import __version__
from superhosts.core.files import make_folder, read_json, write_json
from superhosts.core.hashing import fingerprint, secret_of
from superhosts.core.pairs import Window
from superhosts.core.prefixes import parse_networks
from superhosts.cubefile import container as sketchfile
from superhosts.detectors.registry import DETECTORS
from superhosts.errors import OutputError, SuperhostsError, UsageError
from superhosts.fleet.cluster.cluster import check_workers
from superhosts.fleet.cluster.tasks import Result, Task, find_result, run_task, set_aside_non_file, share_like_folder
from superhosts.output.rows import Row
from superhosts.pipeline.scan import Counters
from superhosts.pipeline.settings import Settings
from superhosts.sources.files import FoundFile, is_url
from superhosts.sources.tables.options import DEFAULT, TableOptions

FAN_IN = 8  # sketches that one task merges
TASKS_PER_WORKER = 4  # several, so that no worker idles long while the last tasks run
LEAST_TASK = 64 << 20  # bytes of captures; in smaller tasks, creating and saving the cubes would dominate
MOST_FILES = 256  # files of one task: overlapping files are read concurrently, each by its own thread


class BatchWindow(NamedTuple):
    """A window over all captures: its super hosts, and the file with its sketch."""

    window: Window
    rows: list[Row]
    path: Path


class TaskError(SuperhostsError):
    """An error from a worker, with its message and the traceback of its cause, if there was one."""

    def __init__(self, message: str, exit_status: int, traceback: str = "") -> None:
        super().__init__(message)
        self.exit_status, self.traceback = exit_status, traceback


def prepare(settings: Settings) -> Settings:
    """Return settings that do not depend on the machine: prefix files are read and the key is resolved here."""
    if settings.kind.name not in DETECTORS:
        raise UsageError(f"--detector {settings.kind.name}: workers merge {', '.join(DETECTORS)}")
    settings.make_network()  # Raises UsageError if its options are invalid.
    return replace(
        settings.with_threshold(),
        inner=[str(network) for network in parse_networks(settings.inner, "inner")],
        exclude=[str(network) for network in parse_networks(settings.exclude, "exclude")],
        key=secret_of(settings.key),
    )


def split_into_tasks(captures: Sequence[FoundFile], size: int) -> list[list[FoundFile]]:
    """Split captures into groups of at least `size` bytes or MOST_FILES files. Only the last group may be smaller."""
    groups: list[list[FoundFile]] = []
    left = 0
    for capture in captures:
        if left <= 0 or len(groups[-1]) == MOST_FILES:
            groups.append([])
            left = size
        groups[-1].append(capture)
        left -= capture.size
    return groups


def digest_of(*what: Any) -> str:
    """Return the name of a result: a digest of everything that determines it."""
    text = json.dumps([__version__, sketchfile.VERSION, *what])
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


class Batch:
    """One run over captures. Iterating over it yields the windows in order; `counters` has the totals so far."""

    def __init__(
        self,
        client: Any,
        captures: Sequence[FoundFile],
        settings: Settings,
        folder: Path,
        *,
        task_size: int | None = None,
        tables: TableOptions = DEFAULT,
        on_error: Callable[[SuperhostsError], None],
        on_progress: Callable[[int, int], None],
        execute: Callable[[Task, dict[str, int]], Result] = run_task,
    ) -> None:
        """Prepare a run. `execute` runs a task on a worker, which knows how many threads each worker may use."""
        self.counters = Counters()
        self.tasks = self.reused = 0  # number of all tasks so far, and of those whose results already existed
        self._client = client
        self._captures = captures
        self._settings = settings  # as `prepare` returns them
        self._folder = folder.absolute()
        self._task_size = task_size
        self._tables = tables
        self._on_error = on_error
        self._on_progress = on_progress
        self._execute = execute
        self._run = uuid.uuid4().hex[:8]  # distinguishes the tasks of this client from those of other clients
        self._made: set[str] = set()  # digests of this run's results
        self._done = 0
        self._threads: dict[str, int] = {}
        key = fingerprint(secret_of(self._settings.key))
        self._folding = [key, self._settings.fingerprint, *([] if tables == DEFAULT else [repr(tables)])]

    def __iter__(self) -> Iterator[BatchWindow]:
        try:
            make_folder(self._folder)
        except OSError as error:
            raise OutputError(f"--work {self._folder}: cannot be created: {error.strerror or error}") from None
        sample = next((capture.name for capture in self._captures if not is_url(capture.name)), None)
        self._threads = check_workers(self._client, self._folder, sample)
        yield from self._restore(self._merge(self._fold()))

    def clear(self) -> None:
        """Remove this run's results from the work folder, and the folder itself if it is then empty."""
        with contextlib.suppress(OSError):  # Leave files of other users, and a folder that is in use.
            for path in list(self._folder.iterdir()):
                if path.name.lstrip(".")[:32] not in self._made:
                    continue
                if path.is_dir():  # A worker that was killed has left it.
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)
            self._folder.rmdir()

    def _fold(self) -> dict[int, list[str]]:
        """Convert captures to sketches. Return the sketch files of each window."""
        tasks = []
        for captures in split_into_tasks(self._captures, self._size()):
            names = [capture.name for capture in captures]
            tasks.append(self._make_task("fold", names, self._folding, captures))
        pieces: dict[int, list[str]] = defaultdict(list)
        results = {}
        for task, result in self._run_tasks(tasks):
            if isinstance(result, TaskError):
                more = f" and {len(task.names) - 1} more" if len(task.names) > 1 else ""
                self._on_error(TaskError(f"{task.names[0]}{more}: {result}", 3))
                continue
            results[task.digest] = result
            for text, status, cause in result["errors"]:
                self._on_error(TaskError(text, status, cause))
        for task in tasks:  # In task order, so that the merges do not depend on which task finishes first.
            if task.digest in results:
                self._count(results[task.digest]["counters"])
                for piece in results[task.digest]["pieces"]:
                    pieces[piece["key"]].append(piece["file"])
        return pieces

    def _size(self) -> int:
        """Return the bytes of a task: as requested, as recorded in the work folder, or by the number of workers."""
        digest = digest_of("size", self._folding)
        self._made.add(digest)
        path = self._folder / f"{digest}.json"
        known = read_json(path)
        if self._task_size is None and type(known) is int and known > 0:
            return known
        total, slots = sum(capture.size for capture in self._captures), sum(self._client.nthreads().values())
        size = self._task_size or max(LEAST_TASK, total // max(1, TASKS_PER_WORKER * slots))
        try:
            set_aside_non_file(path)
            write_json(path, size, durable=False)
            share_like_folder(path, self._folder)
        except OSError as error:
            raise OutputError(f"--work {self._folder}: cannot be written: {error.strerror or error}") from None
        return size

    def _count(self, counters: dict[str, Any]) -> None:
        for name, value in counters.items():
            setattr(self.counters, name, getattr(self.counters, name) + value)

    def _merge(self, pieces: dict[int, list[str]]) -> dict[int, str]:
        """Merge the files of each window until one is left."""
        while any(len(names) > 1 for names in pieces.values()):
            targets: dict[str, tuple[int, int]] = {}  # by digest: the window, and the position among its files
            tasks = []
            merged: dict[int, list[str]] = {}
            for window, names in pieces.items():
                groups = [names[i : i + FAN_IN] for i in range(0, len(names), FAN_IN)]
                merged[window] = [group[0] for group in groups]  # A group of one file needs no merge.
                for position, group in enumerate(groups):
                    if len(group) > 1:
                        tasks.append(self._make_task("merge", group, group))
                        targets[tasks[-1].digest] = window, position
            for task, result in self._run_tasks(tasks):
                window, position = targets[task.digest]
                merged[window][position] = _result_or_raise(result)["pieces"][0]["file"]
            pieces = merged
        return {window: name for window, (name,) in pieces.items()}

    def _restore(self, unions: dict[int, str]) -> Iterator[BatchWindow]:
        """Query the unions, and yield the windows in order of time."""
        query = [self._settings.threshold, self._settings.top]
        files = [unions[window] for window in sorted(unions)]
        tasks = [self._make_task("restore", [file], file, self._folding, query) for file in files]
        answers: dict[str, Result] = {}
        waiting = iter(tasks)
        following = next(waiting, None)
        for task, result in self._run_tasks(tasks):
            answers[task.digest] = _result_or_raise(result)
            while following is not None and following.digest in answers:
                answer = answers.pop(following.digest)
                yield BatchWindow(Window(*answer["window"]), answer["rows"], self._folder / following.names[0])
                following = next(waiting, None)

    def _make_task(self, kind: str, names: Sequence[str], *what: Any) -> Task:
        digest = digest_of(kind, *what)
        self._made.add(digest)
        return Task(kind, digest, tuple(names), str(self._folder), self._settings, self._tables)

    def _run_tasks(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, Result | TaskError]]:
        """Run tasks on the cluster. Yield existing results first, then new ones as they complete."""
        from distributed import as_completed

        todo, known = [], []
        for task in tasks:
            result = find_result(self._folder, task.digest)
            if result is None:
                todo.append(task)
            else:
                known.append((task, result))
        self.tasks += len(todo) + len(known)
        self.reused += len(known)
        futures = {}
        for task in todo:
            key = f"superhosts-{task.kind}-{task.digest}-{self._run}"
            futures[self._client.submit(self._execute, task, self._threads, key=key)] = task
        for task, result in known:
            self._progress()
            yield task, result
        for future in as_completed(list(futures), loop=self._client.loop):
            self._progress()
            yield futures.pop(future), _outcome(future)

    def _progress(self) -> None:
        self._done += 1
        self._on_progress(self._done, self.tasks)


def _outcome(future: Any) -> Result | TaskError:
    """Return a task's result, or the error that is specific to this task. Raise an error that concerns all tasks."""
    from distributed import KilledWorker

    try:
        error = future.exception()
        result: Result = {} if error is not None else future.result()
    except (OSError, CancelledError):  # The scheduler does not answer.
        raise TaskError("lost the connection to the cluster; run the same command again to continue", 2) from None
    if isinstance(error, KilledWorker):
        return TaskError("every worker that ran this task died (out of memory?)", 2)
    if error is not None:
        return TaskError(f"{type(error).__name__}: {error}", 2)
    if "failed" in result:
        raise TaskError(result["failed"], result["status"])
    return result


def _result_or_raise(result: Result | TaskError) -> Result:
    if isinstance(result, TaskError):
        raise result
    return result
