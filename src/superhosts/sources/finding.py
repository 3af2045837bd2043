"""Captures by name, pattern ("day/**/*.pcap", quoted) or folder, on this machine's disks or behind URLs.

The order is that of people: dump.pcap2 comes before dump.pcap10. A folder stands for all files below it; what begins
with a dot or ends in .tmp or .part is somebody's unfinished work and is left out. What is no capture is not left out:
that a file was passed over in silence would be worse than an error that names it.
"""

from __future__ import annotations

import glob
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from superhosts.errors import InputError, SuperhostsError
from superhosts.sources.urls import file_system, is_url

_UNFINISHED = (".tmp", ".part")
_STAMPS = ("ETag", "etag", "mtime", "LastModified", "last_modified", "updated", "created")


class Capture(NamedTuple):
    """A file that can be opened by name from any directory, and what tells one state of it from another."""

    name: str  # an absolute path or a URL
    size: int
    stamp: str  # when it was last written, or another mark of its content, as its place tells


def find_captures(inputs: Iterable[str], on_error: Callable[[SuperhostsError], None]) -> list[Capture]:
    """Return the files that names, patterns and folders stand for, each once; what cannot be goes to `on_error`."""
    found: dict[str, Capture] = {}
    for name in inputs:
        try:
            captures = list(_behind_url(name) if is_url(name) else _on_disk(name, on_error))
            if not captures:
                raise InputError("no file is there", file=name)
            found.update((capture.name, capture) for capture in captures)
        except SuperhostsError as error:
            on_error(error)
    return sorted(found.values(), key=lambda capture: _order(capture.name))


def _order(name: str) -> list[Any]:
    """Return what sorts names as people do: numbers by value."""
    return [int(text) if i % 2 else text for i, text in enumerate(re.split(r"([0-9]+)", name))]


def _on_disk(name: str, on_error: Callable[[SuperhostsError], None]) -> Iterator[Capture]:
    path = Path(name)
    try:
        if path.is_dir():
            yield from _below(path, on_error)
        elif path.exists() or not glob.has_magic(name):
            yield _file(path)
        else:
            matches = glob.glob(name, recursive=True)  # noqa: PTH207  Path.glob takes no absolute patterns
            yield from (_file(Path(match)) for match in matches if Path(match).is_file())
    except OSError as error:
        raise _unopened(name, error) from None


def _below(folder: Path, on_error: Callable[[SuperhostsError], None]) -> Iterator[Capture]:
    """Yield all files below a folder; a folder or file that cannot be looked at goes to `on_error`."""
    unreadable: list[OSError] = []
    for place, folders, names in os.walk(folder, onerror=unreadable.append):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for path in (Path(place, name) for name in names if _is_finished(name)):
            try:
                if path.is_file():
                    yield _file(path)
            except OSError as error:
                on_error(_unopened(str(path), error))
    for failure in unreadable:
        on_error(_unopened(str(failure.filename or folder), failure))


def _unopened(name: str, error: OSError) -> InputError:
    return InputError(f"cannot be opened: {error.strerror or error}", file=name)


def _is_finished(name: str) -> bool:
    return not name.startswith(".") and not name.endswith(_UNFINISHED)


def _file(path: Path) -> Capture:
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise InputError("is not a file; pipes and devices are for scan", file=str(path))
    return Capture(str(path.absolute()), status.st_size, str(status.st_mtime_ns))


def _behind_url(url: str) -> Iterator[Capture]:
    system, path = file_system(url)
    try:
        if glob.has_magic(path):
            found = system.glob(path, detail=True)
        elif system.isdir(path):
            below = system.find(path, detail=True)
            start = len(PurePosixPath(path).parts)
            found = {
                name: about
                for name, about in below.items()
                if all(map(_is_finished, PurePosixPath(name).parts[start:]))
            }
        else:
            found = {path: system.info(path)}
    except FileNotFoundError:
        raise InputError("cannot be opened: no such file", file=url) from None
    except Exception as error:  # every file system has errors of its own
        raise InputError(f"cannot be listed: {error or type(error).__name__}", file=url) from error
    for name, about in found.items():
        if about["type"] == "file":
            stamp = next((str(about[key]) for key in _STAMPS if about.get(key)), "")
            yield Capture(system.unstrip_protocol(name), int(about["size"] or 0), stamp)
