"""The time zone of times that people read: UTC, or this machine's with `--local`.

It is one switch for the whole process, because every table and message follows it. Rows for programs, files and their
names do not: they are always in UTC.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_local = False


def shows_local() -> bool:
    """Return True if times are shown in this machine's time zone."""
    return _local


@contextmanager
def local_times(wanted: bool) -> Iterator[None]:
    """Show times in this machine's time zone, if `wanted`."""
    global _local
    before, _local = _local, wanted
    try:
        yield
    finally:
        _local = before
