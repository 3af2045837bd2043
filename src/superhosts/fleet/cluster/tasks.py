"""The tasks that workers run: fold captures into sketches, merge sketches, restore super hosts from a sketch.

Tasks exchange data through files in the work folder, which all workers share; only names and small numbers pass
through the cluster. A result is named by a digest of everything that determines it. It is written in a private folder
and renamed, and its record (a small .json file) comes last. So a task may be killed, repeated, or run twice at the
same time, and a record always refers to a complete result. A record contains its own checksum: if it does not match,
the record is ignored and the task runs again.

Folding is exact. A worker reads some of the captures, and the packets of a window are spread over many. The worker
saves a sketch of its share of each window, and the union of these is the sketch of the whole window, because merging
is exact. A packet that arrives after its window has closed re-opens the window here, so that the union contains every
packet that one scan over all captures would count. Such a scan drops late packets, so a batch may count more than a
scan, never less. One decision is made separately in each task: which times are strays, years away from all others. A
single scan would compare them with more captures.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import traceback
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from superhosts import __version__
from superhosts.core.files import is_plain, read_json, rename_durably, set_aside, write_json
from superhosts.core.pairs import Window
from superhosts.cubefile.container import DIGEST, is_whole
from superhosts.cubefile.header import Entry
from superhosts.errors import OutputError, SuperhostsError, UsageError
from superhosts.output.rows import make_rows
from superhosts.pipeline.builder import WindowBuilder
from superhosts.pipeline.scan import RunOptions, Scan
from superhosts.pipeline.settings import Settings
from superhosts.sketch.sketch import Sketch, load
from superhosts.sources.open import open_inputs
from superhosts.sources.tables.options import DEFAULT, TableOptions

Result = dict[str, Any]  # the outcome of a task, as stored in its record
NAME_DIGITS = 16  # hexadecimal digits of a file's checksum in its name


@dataclass(frozen=True)
class Task:
    """One task: what to do with which files, and the digest that names the result."""

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
        with _attempt(folder, task.digest) as attempt:
            result = _FUNCTIONS[task.kind](task, settings, attempt)
            attempt.record(result)
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


class _Attempt:
    """One attempt at a task: writes into a private folder and moves complete files to the work folder."""

    def __init__(self, folder: Path, digest: str) -> None:
        self.folder = folder
        self._digest = digest
        # The process id helps an operator to find the owner, but it is not unique across machines.
        self.private = folder / f".{digest}.{os.getpid()}.{uuid.uuid4().hex}"

    def keep(self, key: int, sketch: Sketch) -> dict[str, Any]:
        """Save a sketch in the work folder, under a name that contains a digest of its content."""
        path = self.private / "sketch.cube"
        sketch.save(path)
        with path.open("rb") as file:
            file.seek(-DIGEST, 2)
            content = file.read(DIGEST).hex()[:NAME_DIGITS]
        name = f"{self._digest}-{content}.cube"
        set_aside_non_file(self.folder / name)
        share_like_folder(path, self.folder)
        rename_durably(path, self.folder / name)
        return {"key": key, "file": name}

    def record(self, result: Result) -> None:
        """Write the record, which marks the result as complete."""
        path, target = self.private / "record.json", self.folder / f"{self._digest}.json"
        write_json(path, {"result": result, "check": _checksum(result)})
        set_aside_non_file(target)
        share_like_folder(path, self.folder)
        rename_durably(path, target)


@contextmanager
def _attempt(folder: Path, digest: str) -> Iterator[_Attempt]:
    attempt = _Attempt(folder, digest)
    try:
        attempt.private.mkdir(0o700)
        yield attempt
    except OSError as error:
        raise OutputError(f"--work {folder}: cannot be written on a worker: {error.strerror or error}") from None
    finally:
        shutil.rmtree(attempt.private, ignore_errors=True)


def _fold(task: Task, settings: Settings, attempt: _Attempt) -> Result:
    """Scan captures into one sketch for each window."""
    errors: list[tuple[str, int, str]] = []

    def on_error(error: SuperhostsError) -> None:
        cause = "" if error.__cause__ is None else "".join(traceback.format_exception(error.__cause__))
        errors.append((str(error), error.exit_status, cause))

    sources = open_inputs(task.names, on_error, tables=task.tables)
    run = Scan(sources, settings, RunOptions(find=False, reopens=True), on_error=on_error)
    pieces: dict[int, dict[str, Any]] = {}
    for result in run:
        key = (
            0 if settings.window == "all" else result.window.start
        )  # The window "all" starts differently in each task.
        if key in pieces:
            _add(result.sketch, attempt.folder / pieces[key]["file"], settings)
        pieces[key] = attempt.keep(key, result.sketch)
        del result  # Free its cubes before the next iteration creates those of the next window.
    return {"pieces": list(pieces.values()), "counters": asdict(run.counters), "errors": errors}


def _merge(task: Task, settings: Settings, attempt: _Attempt) -> Result:
    """Merge sketches of one window."""
    first, *rest = (attempt.folder / name for name in task.names)
    whole = load(first, key=settings.key, threads=settings.threads)
    for path in rest:
        _add(whole, path, settings)
    window = whole.window
    assert window is not None
    return {"pieces": [attempt.keep(0 if settings.window == "all" else window.start, whole)]}


def _add(whole: Sketch, path: Path, settings: Settings) -> None:
    """Merge a file into a sketch of other packets of the same window. Their counts of pairs are added."""
    before, whole.entries = whole.entries, []
    whole.merge_file(path, key=settings.key)
    assert whole.window is not None
    whole.entries = _sum_entries(before + whole.entries, whole.window)


def _sum_entries(entries: list[Entry], window: Window) -> list[Entry]:
    """Return one entry for each part, as one scan over all packets would produce."""
    sums: dict[tuple[Any, ...], Entry] = {}
    for entry in entries:
        part = tuple(entry.get(name) for name in ("site", "family", "side", "direction", "counts"))
        pairs = entry["pairs"] + (sums[part]["pairs"] if part in sums else 0)
        sums[part] = {**entry, "start": window.start, "end": window.end, "pairs": pairs}
    return list(sums.values())


def _restore(task: Task, settings: Settings, attempt: _Attempt) -> Result:
    """Find the super hosts in the sketch of a window."""
    (name,) = task.names
    sketch = load(attempt.folder / name, key=settings.key, threads=settings.threads)
    assert sketch.window is not None
    rows = make_rows(sketch.window, WindowBuilder(settings).find(sketch))  # the same query as in a scan
    return {"pieces": [], "window": list(sketch.window), "rows": rows}


_FUNCTIONS = {"fold": _fold, "merge": _merge, "restore": _restore}
