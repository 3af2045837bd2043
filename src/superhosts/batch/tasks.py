"""What a worker of a batch does: captures into sketches, sketches into one, one into super hosts.

Tasks talk through files in the work folder, which all workers see; only names and small numbers travel over the
cluster. A result is named by a digest of all that decides it, is written apart and renamed, and its record (a small
.json) comes last. So a task may be killed, repeated, or run twice at once, and whoever finds a record finds a whole
result. A record carries its own checksum: one that somebody has changed is none, and its task is done again.

Folding is exact. A worker sees a part of the captures, and a window's packets lie in many: it keeps what it has of
each window, and the union of the parts is the sketch of the whole, since merging is. A packet that comes after its
window has closed opens it again here, so that every packet which one scan over all captures would count is in the
union; such a scan drops what is too late, so a batch may count more than that, never less. One thing is judged task
by task: which times are strays, years away from all else. A scan over everything knows more captures by which to judge.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from superhosts._version import __version__
from superhosts.cubefile.container import DIGEST, is_whole
from superhosts.durable import is_plain, read_json, set_aside, write_json
from superhosts.errors import OutputError, SuperhostsError, UsageError
from superhosts.pairs import Window
from superhosts.pipeline.building import WindowBuilder
from superhosts.pipeline.scan import RunOptions, Scan
from superhosts.pipeline.settings import Settings
from superhosts.replacing import place
from superhosts.reports.rows import make_rows
from superhosts.sketches.bundle import Sketch, load
from superhosts.sketches.header import Entry
from superhosts.sources.opening import open_inputs

Result = dict[str, Any]  # the result of a task, as its record holds it
NAME_DIGITS = 16  # of a file's checksum in its name


@dataclass(frozen=True)
class Order:
    """One task: what to do with which files, and the digest that names the result."""

    kind: str  # "fold", "merge" or "restore"
    digest: str
    names: Sequence[str]  # captures, or sketches in the folder
    folder: str
    settings: Settings = field(repr=False)  # holds the key, which no log should show
    version: str = __version__


def carry_out(order: Order, threads: Mapping[str, int]) -> Result:
    """Do a task on a worker, unless its result exists. `threads`: for each worker, how many its cubes may use.

    An error that a user can act on comes back as {"failed": its words, "status": its exit status}.
    """
    from distributed import get_worker

    folder = Path(order.folder)
    try:
        if order.version != __version__:
            raise UsageError(f"a worker has superhosts {__version__}, the client {order.version}: install the same")
        known = recorded(folder, order.digest)
        if known is not None:
            return known
        settings = replace(order.settings, threads=threads.get(get_worker().address, 1))
        with _attempt(folder, order.digest) as attempt:
            result = _WORK[order.kind](order, settings, attempt)
            attempt.record(result)
        return result
    except SuperhostsError as error:
        return {"failed": str(error), "status": error.exit_status}


def recorded(folder: Path, digest: str) -> Result | None:
    """Return a result if its record and all files are whole, by their checksums: disks rot, and mounts lose blocks.

    One with failed inputs does not count: they may be readable now.
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


def make_way(path: Path) -> None:
    """Set aside anything that is not a file and has the name of one to be written."""
    if os.path.lexists(path) and not is_plain(path):
        set_aside(path)


class _Attempt:
    """A private folder for the files of one attempt at a task, and how they are published."""

    def __init__(self, folder: Path, digest: str) -> None:
        self.folder = folder
        self._digest = digest
        # The process id tells an operator whose it was, but repeats between machines.
        self.private = folder / f".{digest}.{os.getpid()}.{uuid.uuid4().hex}"

    def keep(self, key: int, sketch: Sketch) -> dict[str, Any]:
        """Publish a sketch under a name that its content decides."""
        path = self.private / "sketch.cube"
        sketch.save(path)
        with path.open("rb") as file:
            file.seek(-DIGEST, 2)
            content = file.read(DIGEST).hex()[:NAME_DIGITS]
        name = f"{self._digest}-{content}.cube"
        make_way(self.folder / name)
        place(path, self.folder / name)
        return {"key": key, "file": name}

    def record(self, result: Result) -> None:
        """Publish the record, which makes the result complete."""
        path, target = self.private / "record.json", self.folder / f"{self._digest}.json"
        write_json(path, {"result": result, "check": _checksum(result)}, shared=True)
        make_way(target)
        place(path, target)


@contextmanager
def _attempt(folder: Path, digest: str) -> Iterator[_Attempt]:
    attempt = _Attempt(folder, digest)
    try:
        attempt.private.mkdir()
        yield attempt
    except OSError as error:
        raise OutputError(f"--work {folder}: cannot be written on a worker: {error.strerror or error}") from None
    finally:
        shutil.rmtree(attempt.private, ignore_errors=True)


def _fold(order: Order, settings: Settings, attempt: _Attempt) -> Result:
    """Scan captures into one sketch for each window."""
    errors: list[tuple[str, int]] = []

    def on_error(error: SuperhostsError) -> None:
        errors.append((str(error), error.exit_status))

    run = Scan(open_inputs(order.names, on_error), settings, RunOptions(find=False, reopens=True), on_error=on_error)
    pieces: dict[int, dict[str, Any]] = {}
    for result in run:
        key = 0 if settings.window == "all" else result.window.start  # all parts belong to that one window
        if key in pieces:
            _add(result.sketch, attempt.folder / pieces[key]["file"], settings)
        pieces[key] = attempt.keep(key, result.sketch)
        del result  # its cubes: the next window's are made while this loop waits
    return {"pieces": list(pieces.values()), "counters": asdict(run.counters), "errors": errors}


def _merge(order: Order, settings: Settings, attempt: _Attempt) -> Result:
    """Merge sketches of one window."""
    first, *rest = (attempt.folder / name for name in order.names)
    whole = load(first, key=settings.key, threads=settings.threads)
    for path in rest:
        _add(whole, path, settings)
    window = whole.window
    assert window is not None
    return {"pieces": [attempt.keep(0 if settings.window == "all" else window.start, whole)]}


def _add(whole: Sketch, path: Path, settings: Settings) -> None:
    """Merge a file into a sketch of other packets of the same window: counts of pairs add up."""
    before, whole.entries = whole.entries, []
    whole.merge_file(path, key=settings.key)
    assert whole.window is not None
    whole.entries = _sum_entries(before + whole.entries, whole.window)


def _sum_entries(entries: list[Entry], window: Window) -> list[Entry]:
    """Return one entry for each part, as one scan over all packets would have it."""
    sums: dict[tuple[Any, ...], Entry] = {}
    for entry in entries:
        part = tuple(entry[name] for name in ("site", "family", "side", "direction"))
        pairs = entry["pairs"] + (sums[part]["pairs"] if part in sums else 0)
        sums[part] = {**entry, "start": window.start, "end": window.end, "pairs": pairs}
    return list(sums.values())


def _restore(order: Order, settings: Settings, attempt: _Attempt) -> Result:
    """Return the super hosts of a window's sketch."""
    (name,) = order.names
    sketch = load(attempt.folder / name, key=settings.key, threads=settings.threads)
    assert sketch.window is not None
    rows = make_rows(sketch.window, WindowBuilder(settings).find(sketch))  # the same search as in a scan
    return {"pieces": [], "window": list(sketch.window), "rows": rows}


_WORK = {"fold": _fold, "merge": _merge, "restore": _restore}
