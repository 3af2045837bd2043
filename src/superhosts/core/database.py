"""One SQLite file of state: private, durable, and changed in transactions, each of which happens whole or not at all.

A database has a table `state` of names and values, beside the tables of its own format. Every error names the file:
OutputError if the disk or another program is in the way, so that the caller may try again; DamagedError if what is
there cannot be read, so that the caller may set the file aside; InputError for the file of a later version.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from superhosts import __version__
from superhosts.core.fields import Check
from superhosts.core.files import is_plain, output_errors, read_state, remove_durably
from superhosts.core.text import printable
from superhosts.errors import InputError, OutputError, SuperhostsError

BUSY = 10.0  # seconds to wait for another reader or writer
# Errors that come from the disk or from other programs. All others mean that the file is damaged.
_OUTSIDE = {
    *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY),
    *(sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_INTERRUPT),
    *(sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_NOLFS, sqlite3.SQLITE_AUTH, sqlite3.SQLITE_TOOBIG),
}
_STATE = "CREATE TABLE IF NOT EXISTS state (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;"
# A row of `state`, for messages. It is written only if it changes.
_WRITTEN_BY = (
    "INSERT INTO state VALUES ('written_by', ?)"
    " ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE value <> excluded.value"
)


class DamagedError(InputError):
    """A database that cannot be read, or one of another program. `why` is the reason alone."""

    def __init__(self, text: str, file: str, why: str) -> None:
        super().__init__(text, file=file)
        self.why = why


class Format(NamedTuple):
    """What is in a database, and the words of the messages about it.

    A later superhosts that only adds something (a table, a name in `state`) keeps the `version`, and this one ignores
    what it does not know. A change of what is here already raises the version, and this one refuses the file.
    """

    what: str  # "a file of alerts"
    version: int
    table: str = "state"  # by which a file is recognised
    schema: str = ""  # CREATE … IF NOT EXISTS of all tables but `state`
    added: str = ""  # the same, of tables that later releases have added: they are made where they are missing
    trouble: str = "cannot be written"
    way_out: str = "move it away to begin with a new one, or restore a backup"  # of damage


class Database:
    """An open database. Any thread may use it; `lock` is held while one does.

    If the disk is full, a new database is empty, and each write tries again to make its tables.
    `is_new`: nothing was ever written to it. There was no file, or one that was emptied or lacks its -wal.
    """

    def __init__(self, path: Path, form: Format, read: Callable[[Database], object] = lambda _: None) -> None:
        """Open the database of a path, and `read` what is in it."""
        self.path = path
        self.lock = threading.RLock()
        self._form = form
        self._empty: sqlite3.Connection | None = None  # is read as long as the disk has no room for a new database
        try:
            self._open("NORMAL", read)
        except OutputError as error:
            if getattr(error.__cause__, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_IOERR:
                raise
            # A full disk has no room for the file that processes share. A database of this process alone needs none.
            self._open("EXCLUSIVE", read)

    def _open(self, locking: str, read: Callable[[Database], object]) -> None:
        with self._errors():
            if not self.path.exists():  # Only its owner may read it. SQLite's other files get the same mode.
                os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
            self._connection = sqlite3.connect(self.path, timeout=BUSY, isolation_level=None, check_same_thread=False)
        try:
            with self._errors():
                self._connection.execute(f"PRAGMA locking_mode={locking}")
                self._prepare()
            read(self)
        except BaseException:
            self._connection.close()
            raise

    @classmethod
    def opened(
        cls,
        path: Path,
        form: Format,
        put_aside: Callable[[Path, str], object],
        read: Callable[[Database], object] = lambda _: None,
    ) -> Database:
        """Open a database. One that is damaged is put aside, with the reason, and a new one begins."""
        for file in (path, *(path.with_name(path.name + ending) for ending in ("-wal", "-shm"))):
            if os.path.lexists(file) and not is_plain(file):
                put_aside(file, "not a plain file")
        try:
            if why := _why_it_refuses_writes(path):
                raise DamagedError(why, str(path), why)
            return cls(path, form, read)
        except DamagedError as error:
            put_aside(path, f"not {form.what}, or damaged ({error.why})")
            return cls(path, form, read)

    def _prepare(self) -> None:
        form = self._form
        version = self._connection.execute("PRAGMA user_version").fetchone()[0]
        tables = {name for (name,) in self._connection.execute("SELECT name FROM sqlite_master")}
        if tables and (version == 0 or not {"state", form.table} <= tables):
            why = "a database of another program"
            raise DamagedError(f"{why}, not {form.what}; name another", str(self.path), why)
        if version > form.version:
            text = f"a later version of superhosts{self._writer()} wrote it (format {version}; this one reads"
            raise InputError(f"{text} {form.version}); use that version, or another file", file=str(self.path))
        if (found := self._connection.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
            raise self._damaged(found.removeprefix("*** in database main ***\n"))
        if version == form.version and not _columns_of(_STATE + form.schema) <= _columns(self._connection):
            raise self._damaged("columns of its tables are missing")
        # Names and values that cannot be read are damage.
        self.is_new = not tables or not self._connection.execute("SELECT name, value FROM state").fetchall()
        try:
            self._make_tables(version)
        except sqlite3.OperationalError as error:
            if not self.is_new or error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
                raise
            self._empty = sqlite3.connect(":memory:", check_same_thread=False)
            self._empty.executescript(_STATE + form.schema + form.added)

    def _make_tables(self, version: int) -> None:
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")
        added = self._form.added
        # Whoever only looks writes nothing, but for the tables that a file of an earlier release lacks.
        if version < self._form.version or (added and not _columns_of(added) <= _columns(self._connection)):
            schema = f"{_STATE}{self._form.schema}{added}PRAGMA user_version={self._form.version}"
            try:
                self._connection.executescript(f"BEGIN IMMEDIATE;{schema};COMMIT;")
            except sqlite3.Error:
                self._roll_back()
                raise

    def _roll_back(self) -> None:
        with contextlib.suppress(sqlite3.Error, UnicodeDecodeError):  # SQLite may have done it already.
            self._connection.execute("ROLLBACK")

    def close(self) -> None:
        self._connection.close()
        if self._empty is not None:
            self._empty.close()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Write: everything that the block does is on disk when it ends, or nothing of it."""
        with self._errors():
            if self._empty is not None:
                self._make_tables(0)
                self._empty.close()
                self._empty = None
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                self._connection.execute(_WRITTEN_BY, (__version__,))
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                self._roll_back()
                raise

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Read: content that the block cannot make sense of (ValueError, LookupError, …) is damage, too."""
        with self._errors():
            try:
                yield self._empty or self._connection
            except SuperhostsError as error:
                if isinstance(error, ValueError):  # a host that is none
                    raise self._damaged(error) from error
                raise
            except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError) as error:
                raise self._damaged(error) from error

    def state(self) -> dict[str, Any]:
        with self.reading() as connection:
            return dict(connection.execute("SELECT name, value FROM state"))

    def save(self, **values: Any) -> None:
        with self.transaction() as connection:
            connection.executemany("INSERT OR REPLACE INTO state VALUES (?, ?)", values.items())

    def adopt(self, name: str, file: Path, check: Check, say: Callable[[str], None]) -> None:
        """Move what an earlier version has kept in a JSON file into the state, as JSON."""
        if (content := read_state(file, check, say)) is not None:
            self.save(**{name: json.dumps(content)})
            with output_errors(file):
                remove_durably(file)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        with self.lock:
            try:
                yield
            except OSError as error:
                raise OutputError(f"{self.path}: {self._form.trouble}: {error.strerror or error}") from error
            except sqlite3.Error as error:
                if getattr(error, "sqlite_errorcode", -1) & 0xFF in _OUTSIDE:
                    raise OutputError(f"{self.path}: {self._form.trouble}: {error}") from error
                raise self._damaged(error) from error
            except UnicodeDecodeError as error:  # Damaged names are in the message of SQLite's error.
                raise self._damaged("text that is no UTF-8") from error

    def _damaged(self, why: object) -> DamagedError:
        reason = f"{printable(why)}{self._writer('; superhosts', ' wrote it last')}"
        text = f"not {self._form.what}, or damaged: {reason}; {self._form.way_out}"
        return DamagedError(text, str(self.path), reason)

    def _writer(self, before: str = "", behind: str = "") -> str:
        """Return which version of superhosts has written the file last, between two texts; empty: not known."""
        with contextlib.suppress(sqlite3.Error, UnicodeDecodeError, AttributeError):
            found = self._connection.execute("SELECT value FROM state WHERE name = 'written_by'").fetchone()
            return f"{before} {printable(found[0], 40)}{behind}" if found else ""
        return ""


def _columns(connection: sqlite3.Connection) -> set[tuple[str, str]]:
    """Return the names of all columns, each with its table."""
    tables = "sqlite_master AS made JOIN pragma_table_info(made.name) AS its"
    return set(connection.execute(f"SELECT made.name, its.name FROM {tables} WHERE made.type = 'table'"))


@cache
def _columns_of(schema: str) -> set[tuple[str, str]]:
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(schema)
        return _columns(connection)


def _why_it_refuses_writes(path: Path) -> str:
    """Return what is wrong with a header of which SQLite says nothing: it would open the file for reading alone.

    Nobody may have the file open in this process: a file that is closed takes the locks of all along.
    """
    with contextlib.suppress(OSError), path.open("rb") as file:
        header = file.read(19)
        if header.startswith(b"SQLite format 3") and header[18:] > b"\2":
            return "the version in its header is unknown"
    return ""
