"""Files behind a URL (s3://, gs://, https://, file://, …), through fsspec.

Which places can be read depends on the packages that are installed: fsspec itself knows file://, others need one more
package each, and a missing one is named with its pip command.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from superhosts.errors import InputError, MissingExtraError, UsageError

BLOCK_BYTES = 4 << 20  # of one request: a capture is read from its beginning to its end
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://.")


def is_url(name: str | Path) -> bool:
    """Return True if a name is a URL and not a path."""
    return isinstance(name, str) and _URL.match(name) is not None


def file_system(url: str, **options: Any) -> tuple[Any, str]:
    """Return fsspec's file system for a URL, made with `options`, and the name that the file has there."""
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise MissingExtraError(f"{url}: a URL", "batch") from error
    try:
        found: tuple[Any, str] = url_to_fs(url, **options)
    except ImportError as error:
        raise UsageError(f"{url}: needs a package that is not installed: pip install {_package(url)}") from error
    except Exception as error:  # every file system has errors of its own
        raise _unopened(url, error) from error
    return found


def _package(url: str) -> str:
    """Return what pip must install for a URL."""
    from fsspec.registry import known_implementations

    scheme = url.split(":", 1)[0].lower()
    home = str(known_implementations.get(scheme, {}).get("class", "fsspec")).split(".")[0]
    return f"'fsspec[{scheme.removesuffix('s') if scheme == 'https' else scheme}]'" if home == "fsspec" else home


def url_size(url: str) -> int | None:
    """Return the bytes of a file behind a URL, None if the server does not tell."""
    system, path = file_system(url)
    try:
        found = system.info(path)
    except Exception as error:
        raise _unopened(url, error) from error
    if found["type"] == "directory":
        raise InputError("is a folder, not a capture", file=url)
    return None if found["size"] is None else int(found["size"])


class UrlFile:
    """An open file behind a URL, for reading from its beginning to its end."""

    def __init__(self, url: str) -> None:
        system, path = file_system(url)
        try:
            self._file = system.open(path, "rb", block_size=BLOCK_BYTES)
        except Exception as error:
            raise _unopened(url, error) from error

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
        """Close the file."""
        self._file.close()


def _unopened(url: str, error: Exception) -> InputError:
    if isinstance(error, FileNotFoundError):
        return InputError("cannot be opened: no such file", file=url)
    return InputError(f"cannot be opened: {error or type(error).__name__}", file=url)
