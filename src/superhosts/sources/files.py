"""The files that a folder or a pattern ("day/**/*.pcap", quoted) stands for, on this machine's disks or behind URLs.

Natural sort order: dump.pcap2 comes before dump.pcap10. A folder stands for all files below it; names that begin with a
dot or end in .tmp or .part are unfinished and left out. A file that is not a capture is not left out: an error that
names it is better than skipping it silently.

URLs (s3://, gs://, https://, file://, …) are opened by fsspec. Which of them can be read depends on the packages that
are installed: fsspec itself knows file://, others need one more package each, and a missing one is named with its pip
command.
"""

from __future__ import annotations

import glob
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from superhosts.errors import InputError, SuperhostsError, UsageError, import_extra

BLOCK_BYTES = 4 << 20  # of one request: a capture is read from its beginning to its end
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://.")


def is_url(name: str | Path) -> bool:
    return isinstance(name, str) and _URL.match(name) is not None


def file_system(url: str, **options: Any) -> tuple[Any, str]:
    """Return fsspec's file system for a URL, made with `options`, and the name that the file has there."""
    fsspec = import_extra(f"{url}: a URL", "batch", "fsspec.core")
    try:
        found: tuple[Any, str] = fsspec.url_to_fs(url, **options)
    except ImportError as error:
        raise UsageError(f"{url}: needs a package that is not installed: pip install {_package(url)}") from error
    except Exception as error:  # every file system has errors of its own
        raise _unopened(url, error) from error
    return found


def _package(url: str) -> str:
    from fsspec.registry import known_implementations

    scheme = url.split(":", 1)[0].lower()
    home = str(known_implementations.get(scheme, {}).get("class", "fsspec")).split(".")[0]
    return f"'fsspec[{scheme.removesuffix('s') if scheme == 'https' else scheme}]'" if home == "fsspec" else home


def url_size(url: str) -> int | None:
    system, path = file_system(url)
    with _opening(url):
        found = system.info(path)
    if found["type"] == "directory":
        raise InputError("is a folder, not a capture", file=url)
    return None if found["size"] is None else int(found["size"])


class UrlFile:
    def __init__(self, url: str) -> None:
        system, path = file_system(url)
        with _opening(url):
            self._file = system.open(path, "rb", block_size=BLOCK_BYTES)

    def readinto(self, view: memoryview) -> int:
        """Fill some of `view` and return how much; 0 at the end."""
        try:
            data = self._file.read(min(len(view), BLOCK_BYTES))  # it returns a copy
        except OSError:
            raise
        except Exception as error:  # of the network's own library
            raise OSError(str(error) or type(error).__name__) from error
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._file.close()


_UNFINISHED = (".tmp", ".part")
_STAMPS = ("ETag", "etag", "mtime", "LastModified", "last_modified", "updated", "created")

OnError = Callable[[SuperhostsError], None]


class FoundFile(NamedTuple):
    """A file by the name under which it can be opened, and what tells one state of it from another."""

    name: str  # a path or a URL
    size: int
    stamp: str  # changes with the content: the time of the last write, or a digest that the server gives


def find_files(name: str, on_error: OnError) -> list[FoundFile] | None:
    """Return the files that a folder or a pattern stands for; None for a name that stands for itself.

    A folder or file below that cannot be read goes to `on_error`.
    """
    found = _behind_url(name) if is_url(name) else _on_disk(name, on_error)
    if found is not None and not found:
        is_folder = not glob.has_magic(name) or (not is_url(name) and Path(name).is_dir())
        raise InputError("the folder has no files" if is_folder else "matches no file", file=name)
    return None if found is None else sorted(found, key=lambda file: natural_order(file.name))


def match_pattern(name: str) -> list[Path] | None:
    if not glob.has_magic(name) or Path(name).exists():
        return None
    return [Path(match) for match in glob.glob(name, recursive=True)]  # noqa: PTH207  Path.glob takes no absolute ones


def describe_file(name: str) -> FoundFile:
    """Return a file by its name, with its size and state. Pipes and devices are an InputError."""
    if is_url(name):
        system, path = file_system(name)
        with _opening(name, "listed"):
            return _url_file(system, path, system.info(path))
    with _opening(name):
        return _file(Path(name))


def is_finished(name: str) -> bool:
    return not name.startswith(".") and not name.endswith(_UNFINISHED)


def natural_order(name: str) -> list[Any]:
    return [int(text) if i % 2 else text for i, text in enumerate(re.split(r"([0-9]+)", name))]


def _on_disk(name: str, on_error: OnError) -> list[FoundFile] | None:
    path = Path(name)
    with _opening(name):
        if path.is_dir():
            return list(_below(path, on_error))
        matches = match_pattern(name)
        return None if matches is None else [_file(match) for match in matches if match.is_file()]


def _below(folder: Path, on_error: OnError) -> Iterator[FoundFile]:
    """Yield all files below a folder; a folder or file that cannot be read goes to `on_error`."""
    unreadable: list[OSError] = []
    for place, folders, names in os.walk(folder, onerror=unreadable.append):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for path in (Path(place, name) for name in names if is_finished(name)):
            try:
                if path.is_file():
                    yield _file(path)
            except OSError as error:
                on_error(_unopened(str(path), error))
    for failure in unreadable:
        on_error(_unopened(str(failure.filename or folder), failure))


def _file(path: Path) -> FoundFile:
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise InputError("is not a file; pipes and devices are for scan", file=str(path))
    return FoundFile(str(path), status.st_size, str(status.st_mtime_ns))


def _behind_url(url: str) -> list[FoundFile] | None:
    system, path = file_system(url)
    try:
        about = system.info(path)
    except Exception:  # every file system has errors of its own
        if not glob.has_magic(path):
            return None  # whoever opens it says what is wrong
        about = None
    with _opening(url, "listed"):
        if about is None:
            found = system.glob(path, detail=True)
        elif about["type"] == "directory" or (path.endswith("/") and system.isdir(path)):
            found = _finished_below(path, system.find(path, detail=True))
        else:  # also a file whose name looks like a pattern, as with a query (?token=…)
            return None
    return [_url_file(system, name, about) for name, about in found.items() if about["type"] == "file"]


def _finished_below(folder: str, files: dict[str, Any]) -> dict[str, Any]:
    start = len(PurePosixPath(folder).parts)
    return {name: about for name, about in files.items() if all(map(is_finished, PurePosixPath(name).parts[start:]))}


def _url_file(system: Any, name: str, about: dict[str, Any]) -> FoundFile:
    stamp = next((str(about[key]) for key in _STAMPS if about.get(key)), "")
    return FoundFile(system.unstrip_protocol(name), int(about["size"] or 0), stamp)


@contextmanager
def _opening(name: str, done: str = "opened") -> Iterator[None]:
    """Turn errors into an InputError that names the file. Every file system has errors of its own."""
    try:
        yield
    except SuperhostsError:
        raise
    except Exception as error:
        raise _unopened(name, error, done) from error


def _unopened(name: str, error: Exception, done: str = "opened") -> InputError:
    if is_url(name) and isinstance(error, FileNotFoundError):
        return InputError("cannot be opened: no such file", file=name)
    reason = error.strerror if isinstance(error, OSError) and not is_url(name) else None
    return InputError(f"cannot be {done}: {reason or error or type(error).__name__}", file=name)
