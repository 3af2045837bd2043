"""Faults of the system that tests make without root: real ones, and calls of the system that fail or are watched."""

from __future__ import annotations

import errno
import fnmatch
import io
import os
import resource
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from superhosts.core.database import Database


@contextmanager
def full_disk(room: int = 0) -> Iterator[None]:
    """Let no file grow beyond `room` bytes in this process: each write there fails with "File too large" (EFBIG)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class FakeStdin:
    def __init__(self, data: bytes | io.BufferedIOBase) -> None:
        self.buffer: Any = io.BytesIO(data) if isinstance(data, bytes) else data


class DeadError(BaseException):
    """The process is killed."""


def die(*_: Any, **__: Any) -> None:
    raise DeadError


def fill_disk(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@contextmanager
def system_call(name: str, before: Callable[..., object], owner: Any = os) -> Iterator[None]:
    """Call `before` with the arguments of each call of a function of `os`; if it raises, so does the call."""
    real = getattr(owner, name)

    def call(*arguments: Any, **options: Any) -> Any:
        before(*arguments, **options)
        return real(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, call)
        yield


@contextmanager
def at_rename(pattern: str, fail: Callable[[], object], *, after: int = 0) -> Iterator[None]:
    """Call `fail` before a file gets a name that matches `pattern`; the first `after` files get theirs."""
    seen = 0

    def before(_source: Any, target: Any) -> None:
        nonlocal seen
        if fnmatch.fnmatch(Path(target).name, pattern):
            seen += 1
            if seen > after:
                fail()

    with system_call("replace", before):
        yield


def fill_database(*_: Any, **__: Any) -> None:
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    raise error


@contextmanager
def at_commit(fail: Callable[[], object], *, after: int = 0) -> Iterator[None]:
    """Call `fail` before a database commits changes; the first `after` times it may."""
    real, seen = Database.transaction, 0

    @contextmanager
    def transaction(database: Database) -> Iterator[sqlite3.Connection]:
        nonlocal seen
        with real(database) as connection:
            before = connection.total_changes
            yield connection
            seen += connection.total_changes > before
            if connection.total_changes > before and seen > after:
                fail()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Database, "transaction", transaction)
        yield


@contextmanager
def at_sync(before: Callable[[int], object]) -> Iterator[None]:
    """Call `before` with the handle of each file or folder that is flushed to disk."""
    with system_call("fsync", before):
        yield
