"""Process many captures on a Dask cluster: fold captures into sketches, merge these window by window, query the unions.

The client (`Batch`) plans the tasks, and workers run them (`run_task`). Tasks exchange data through files in the work
folder, which all workers share. A result is named by a digest of its files and of the settings that affect it, so a
restarted client finds finished results. It is written in a private folder and renamed, and its record (a small .json
file with its own checksum) comes last. So a task may be killed, repeated, or run twice at the same time. Captures are
grouped into tasks by a size that the work folder stores: the tasks stay the same with more or fewer workers.

Folding is exact: the union of the workers' sketches is the sketch of the whole window. A packet that arrives after its
window has closed re-opens the window here; a scan reads its files a second time for such packets. Each task decides by
itself which times are strays, years away from all others.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
import traceback
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from superhosts import __version__
from superhosts.core.device import thread_count
from superhosts.core.files import is_plain, make_folder, output_errors, read_json, rename_durably, set_aside, write_json
from superhosts.core.hashing import fingerprint, secret_of
from superhosts.core.pairs import Window
from superhosts.core.prefixes import parse_networks
from superhosts.core.text import counted
from superhosts.cubefile.container import VERSION, is_whole, stored_digest
from superhosts.cubefile.header import Entry
from superhosts.detectors.registry import MERGED
from superhosts.errors import OutputError, SuperhostsError, UsageError, import_extra
from superhosts.output.report import Row, make_rows
from superhosts.pipeline.builder import WindowBuilder
from superhosts.pipeline.scan import Counters, RunOptions, Scan
from superhosts.pipeline.settings import Settings
from superhosts.sketch.sketch import Sketch, load
from superhosts.sources.files import FoundFile, is_url
from superhosts.sources.open import open_inputs
from superhosts.sources.tables.options import DEFAULT, TableOptions

TIMEOUT = 10  # seconds to wait for the scheduler, and for the first worker, unless another timeout is given
Result = dict[str, Any]  # the outcome of a task, as stored in its record
NAME_DIGITS = 16  # hexadecimal digits of a file's checksum in its name
FAN_IN = 8  # sketches that one task merges
TASKS_PER_WORKER = 4  # several, so that no worker idles long while the last tasks run
LEAST_TASK = 64 << 20  # bytes of captures; in smaller tasks, creating and saving the cubes would dominate
MOST_FILES = 256  # files of one task: overlapping files are read concurrently, each by its own thread


@dataclass(frozen=True)
class Task:
    kind: str  # "fold", "merge" or "restore"
    digest: str
    names: Sequence[str]  # captures, or sketches in the folder
    folder: str  # the work folder
    settings: Settings = field(repr=False)  # contains the key, which must not appear in logs
    tables: TableOptions = DEFAULT  # how tables among the captures are read
    version: str = __version__


def run_task(task: Task, threads: Mapping[str, int]) -> Result:
    """Run a task on a worker, unless its result exists. `threads`: how many threads the cubes of each worker may use.

    An error that a user can act on is returned as {"failed": message, "status": exit status}.
    """
    from distributed import get_worker

    folder = Path(task.folder)
    try:
        if task.version != __version__:
            raise UsageError(
                f"a worker has superhosts {__version__}, the client has {task.version}: install the same version"
            )
        known = find_result(folder, task.digest)
        if known is not None:
            return known
        settings = replace(task.settings, threads=threads.get(get_worker().address, 1))
        # Results are made in a private folder, and moved to the work folder when they are complete. The process id
        # helps an operator to find the owner, but it is not unique across machines.
        private = folder / f".{task.digest}.{os.getpid()}.{uuid.uuid4().hex}"
        try:
            private.mkdir(0o700)
            result = _FUNCTIONS[task.kind](task, settings, private)
            write_json(private / "record.json", {"result": result, "check": _checksum(result)})
            _move(private / "record.json", folder / f"{task.digest}.json")
        except OSError as error:
            raise OutputError(f"--work {folder}: cannot be written on a worker: {error.strerror or error}") from None
        finally:
            shutil.rmtree(private, ignore_errors=True)
        return result
    except SuperhostsError as error:
        return {"failed": str(error), "status": error.exit_status}


def find_result(folder: Path, digest: str) -> Result | None:
    """Return an earlier result, or None if it is missing, incomplete or had failed inputs.

    The checksums of its files are verified, because disks decay and mounts lose blocks. Inputs that failed may be
    readable now.
    """
    try:
        record = read_json(folder / f"{digest}.json")
        if not isinstance(record, dict) or record.get("check") != _checksum(record.get("result")):
            return None
        result: Result = record["result"]
        files = [folder / piece["file"] for piece in result["pieces"]]
        whole = not result.get("errors") and all(is_plain(file) and is_whole(file) for file in files)
    except OSError:
        return None
    return result if whole else None


def _checksum(result: Any) -> str:
    return hashlib.blake2b(json.dumps(result, sort_keys=True).encode(), digest_size=16).hexdigest()


def set_aside_non_file(path: Path) -> None:
    """Set aside anything other than a plain file at `path`, where a file will be written."""
    if os.path.lexists(path) and not is_plain(path):
        set_aside(path)


def share_like_folder(path: Path, folder: Path) -> None:
    """Give a file of the work folder to those who have access to the folder: workers may be several users.

    A folder that this program makes is closed to others. Does nothing on mounts without permissions.
    """
    with suppress(PermissionError, NotImplementedError):
        path.chmod(folder.stat().st_mode & 0o666)


def _move(path: Path, target: Path) -> None:
    set_aside_non_file(target)
    share_like_folder(path, target.parent)
    rename_durably(path, target)


def _keep(task: Task, private: Path, key: int, sketch: Sketch) -> dict[str, Any]:
    """Save a sketch in the work folder, under a name that contains a digest of its content."""
    path = private / "sketch.cube"
    sketch.save(path)
    name = f"{task.digest}-{stored_digest(path)[:NAME_DIGITS]}.cube"
    _move(path, Path(task.folder) / name)
    return {"key": key, "file": name}


def _fold(task: Task, settings: Settings, private: Path) -> Result:
    errors: list[tuple[str, int, str]] = []

    def on_error(error: SuperhostsError) -> None:
        cause = "" if error.__cause__ is None else "".join(traceback.format_exception(error.__cause__))
        errors.append((str(error), error.exit_status, cause))

    sources = open_inputs(task.names, on_error, tables=task.tables)
    run = Scan(sources, settings, RunOptions(find=False, reopens=True), on_error=on_error)
    pieces: dict[int, dict[str, Any]] = {}
    for result in run:
        # The window "all" starts differently in each task.
        key = 0 if settings.window == "all" else result.window.start
        if key in pieces:
            _add(result.sketch, Path(task.folder) / pieces[key]["file"], settings)
        pieces[key] = _keep(task, private, key, result.sketch)
        del result  # Free its cubes before the next iteration creates those of the next window.
    return {"pieces": list(pieces.values()), "counters": asdict(run.counters), "errors": errors}


def _merge(task: Task, settings: Settings, private: Path) -> Result:
    first, *rest = (Path(task.folder) / name for name in task.names)
    whole = load(first, key=settings.key, threads=settings.threads)
    for path in rest:
        _add(whole, path, settings)
    window = whole.window
    assert window is not None
    return {"pieces": [_keep(task, private, 0 if settings.window == "all" else window.start, whole)]}


def _add(whole: Sketch, path: Path, settings: Settings) -> None:
    """Merge a file into a sketch of other packets of the same window. Their counts of pairs are added."""
    before, whole.entries = whole.entries, []
    whole.merge_file(path, key=settings.key)
    assert whole.window is not None
    start, end = whole.window
    sums: dict[tuple[Any, ...], Entry] = {}  # one entry for each part, as one scan over all packets would produce
    for entry in before + whole.entries:
        part = tuple(entry.get(name) for name in ("site", "family", "side", "direction", "counts", "filter", "group"))
        pairs = entry["pairs"] + (sums[part]["pairs"] if part in sums else 0)
        sums[part] = {**entry, "start": start, "end": end, "pairs": pairs}
    whole.entries = list(sums.values())


def _restore(task: Task, settings: Settings, private: Path) -> Result:
    (name,) = task.names
    sketch = load(Path(task.folder) / name, key=settings.key, threads=settings.threads)
    assert sketch.window is not None
    found = WindowBuilder(settings).result(sketch, sketch.window, 0).found  # the same query as in a scan
    return {"pieces": [], "window": list(sketch.window), "rows": make_rows(sketch.window, found)}


_FUNCTIONS = {"fold": _fold, "merge": _merge, "restore": _restore}


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
    if settings.kind.name not in MERGED:
        raise UsageError(f"--detector {settings.kind.name}: workers merge {', '.join(MERGED)}")
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
    text = json.dumps([__version__, VERSION, *what])
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
        self._client, self._captures, self._folder = client, captures, folder.absolute()
        self._settings = settings  # as `prepare` returns them
        self._task_size, self._tables, self._execute = task_size, tables, execute
        self._on_error, self._on_progress = on_error, on_progress
        self._run = uuid.uuid4().hex[:8]  # distinguishes the tasks of this client from those of other clients
        self._made: set[str] = set()  # digests of this run's results
        self._done = 0
        self._threads: dict[str, int] = {}
        key = fingerprint(secret_of(self._settings.key))
        self._folding = [key, self._settings.fingerprint, *([] if tables == DEFAULT else [repr(tables)])]

    def __iter__(self) -> Iterator[BatchWindow]:
        with output_errors(f"--work {self._folder}"):
            make_folder(self._folder)
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
        groups = split_into_tasks(self._captures, self._size())
        tasks = [self._make_task("fold", [each.name for each in group], self._folding, group) for group in groups]
        pieces: dict[int, list[str]] = defaultdict(list)
        results = {}

        def on_failed(task: Task, error: TaskError) -> None:
            more = f" and {len(task.names) - 1} more" if len(task.names) > 1 else ""
            self._on_error(TaskError(f"{task.names[0]}{more}: {error}", 3))

        for task, result in self._run_tasks(tasks, on_failed):
            results[task.digest] = result
            for text, status, cause in result["errors"]:
                self._on_error(TaskError(text, status, cause))
        # In task order, so that the merges do not depend on which task finishes first.
        for result in (results[task.digest] for task in tasks if task.digest in results):
            for name, value in result["counters"].items():
                setattr(self.counters, name, getattr(self.counters, name) + value)
            for piece in result["pieces"]:
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
        with output_errors(f"--work {self._folder}"):
            set_aside_non_file(path)
            write_json(path, size, durable=False)
            share_like_folder(path, self._folder)
        return size

    def _merge(self, pieces: dict[int, list[str]]) -> dict[int, str]:
        while any(len(names) > 1 for names in pieces.values()):
            groups = {
                window: [tuple(names[i : i + FAN_IN]) for i in range(0, len(names), FAN_IN)]
                for window, names in pieces.items()
            }
            tasks = [self._make_task("merge", each, each) for some in groups.values() for each in some if len(each) > 1]
            merged = {task.names: result["pieces"][0]["file"] for task, result in self._run_tasks(tasks)}
            # A group of one file needs no merge.
            pieces = {window: [merged.get(each, each[0]) for each in some] for window, some in groups.items()}
        return {window: name for window, (name,) in pieces.items()}

    def _restore(self, unions: dict[int, str]) -> Iterator[BatchWindow]:
        query = [self._settings.threshold, self._settings.top]
        files = [unions[window] for window in sorted(unions)]
        tasks = [self._make_task("restore", [file], file, self._folding, query) for file in files]
        answers: dict[str, Result] = {}
        for done, result in self._run_tasks(list(tasks)):
            answers[done.digest] = result
            while tasks and tasks[0].digest in answers:  # in the order of the windows
                task = tasks.pop(0)
                answer = answers.pop(task.digest)
                yield BatchWindow(Window(*answer["window"]), answer["rows"], self._folder / task.names[0])

    def _make_task(self, kind: str, names: Sequence[str], *what: Any) -> Task:
        digest = digest_of(kind, *what)
        self._made.add(digest)
        return Task(kind, digest, tuple(names), str(self._folder), self._settings, self._tables)

    def _run_tasks(
        self, tasks: Iterable[Task], on_failed: Callable[[Task, TaskError], None] | None = None
    ) -> Iterator[tuple[Task, Result]]:
        """Run tasks on the cluster. Yield existing results first, then new ones as they complete.

        An error that is specific to one task is raised, or goes to `on_failed`.
        """
        from distributed import as_completed

        known, futures = [], {}
        for task in tasks:
            result = find_result(self._folder, task.digest)
            if result is None:
                key = f"superhosts-{task.kind}-{task.digest}-{self._run}"
                futures[self._client.submit(self._execute, task, self._threads, key=key)] = task
            else:
                known.append((task, result))
        self.tasks += len(futures) + len(known)
        self.reused += len(known)
        done = as_completed(list(futures), loop=self._client.loop)
        for task, outcome in chain(known, ((futures.pop(future), _outcome(future)) for future in done)):
            self._done += 1
            self._on_progress(self._done, self.tasks)
            if not isinstance(outcome, TaskError):
                yield task, outcome
            elif on_failed is not None:
                on_failed(task, outcome)
            else:
                raise outcome


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


@contextmanager
def connect(scheduler: str | None, workers: int | None = None, *, timeout: float | None = None) -> Iterator[Any]:
    """Yield a client of the cluster at `scheduler`, or without one, of local worker processes."""
    dask = import_extra("the batch command", "batch", "distributed")
    before = logging.root.manager.disable
    # Dask logs a traceback of every error that it recovers from. Errors that matter are raised as ours.
    logging.disable()
    try:
        with contextlib.ExitStack() as stack:
            cluster = stack.enter_context(_start_local(dask, workers)) if scheduler is None else scheduler
            try:
                client = dask.Client(cluster, timeout=timeout or TIMEOUT, set_as_default=False)
            except (OSError, ValueError) as error:  # A timeout is an OSError, too.
                raise UsageError(f"--scheduler {scheduler}: cannot be reached: {error}") from None
            yield stack.enter_context(client)
    finally:
        logging.disable(before)


def _start_local(dask: Any, workers: int | None) -> Any:
    count = thread_count() if workers is None else workers
    try:
        return dask.LocalCluster(
            n_workers=count,
            threads_per_worker=1,
            processes=True,
            dashboard_address="127.0.0.1:0",  # any free port, as the default port may be in use
            memory_limit=0,  # Cubes have a fixed size, and Dask's default limit would kill workers.
            silence_logs=logging.CRITICAL,
        )
    except (RuntimeError, OSError) as error:  # A worker died, or the system refused a process or a file.
        processes = counted(count, "worker process", "worker processes")
        why = f"cannot be started: {str(error).rstrip('.')}; out of memory? try fewer --workers"
        raise UsageError(f"--local-cluster: {processes} {why}") from None


def check_workers(client: Any, folder: Path, sample: str | None, *, timeout: float | None = None) -> dict[str, int]:
    """Return for each worker how many threads its cubes may use. Raise an error if a worker is unsuitable.

    `sample` is the path of an input, which every worker must be able to read.
    """
    try:
        client.wait_for_workers(1, timeout=timeout or TIMEOUT)
    except OSError:
        raise UsageError(f"the cluster at {client.scheduler.address} has no workers; start some") from None
    token = uuid.uuid4().hex
    probe = folder / f".probe.{token}"
    with output_errors(f"--work {folder}"):
        probe.write_text(token)
    try:
        answers = client.run(_worker_check(str(probe), token, sample), on_error="return")
    finally:
        probe.unlink(missing_ok=True)
    for address, answer in answers.items():
        _check_answer(address, answer, folder, sample)
    slots: Counter[str] = Counter()
    for address, count in client.nthreads().items():
        if address in answers:
            slots[answers[address]["machine"]] += count
    return {a: max(1, answer["cores"] // max(1, slots[answer["machine"]])) for a, answer in answers.items()}


def _worker_check(probe: str, token: str, sample: str | None) -> Callable[[], dict[str, Any]]:
    """Return a function to run on every worker.

    Dask sends a nested function as code, not by name, so it runs even on a worker that does not have this package.
    """

    def answer() -> dict[str, Any]:
        import os
        import socket
        from pathlib import Path

        try:
            from superhosts import __version__ as version
        except ImportError:
            return {"version": None}
        try:
            from superhosts.core.device import thread_count

            cores = thread_count()
        except ImportError:  # This is another version, which the client rejects.
            cores = 1
        file = Path(probe)
        return {
            "version": version,
            "machine": socket.gethostname(),
            "cores": cores,
            "sees": file.exists() and file.read_text() == token,
            "writes": os.access(file.parent, os.W_OK),
            "reads": sample is None or os.access(sample, os.R_OK),
        }

    return answer


def _check_answer(address: str, answer: Any, folder: Path, sample: str | None) -> None:
    if isinstance(answer, BaseException):
        raise UsageError(f"worker {address} is incompatible with this client: {type(answer).__name__}: {answer}")
    if answer["version"] is None:
        raise UsageError(f"worker {address} does not have superhosts: run pip install superhosts=={__version__} there")
    if answer["version"] != __version__:
        raise UsageError(
            f"worker {address} has superhosts {answer['version']}, this client has {__version__}: "
            "install the same version"
        )
    if not answer["sees"]:
        raise UsageError(f"--work {folder}: worker {address} does not see it; use a folder that all workers share")
    if not answer["writes"]:
        raise OutputError(f"--work {folder}: worker {address} cannot write to it")
    if not answer["reads"]:
        raise UsageError(f"{sample}: worker {address} cannot read it; use inputs in a shared folder, or URLs")
