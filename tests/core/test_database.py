"""A database of state: what is refused, what is set aside, and what a write that fails leaves."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from faults import full_disk
from superhosts import __version__
from superhosts.core.database import DamagedError, Database, Format
from superhosts.core.files import set_aside_and_report
from superhosts.errors import InputError, OutputError

FORM = Format("the state of a test", 2, "things", "CREATE TABLE IF NOT EXISTS things (name TEXT);")


def aside(said: list[str]) -> Callable[[Path, str], object]:
    return partial(set_aside_and_report, say=said.append)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a database with a name in its state."""
    path = tmp_path / "things.sqlite"
    database = Database(path, FORM)
    database.save(colour="red")
    database.close()
    return path


def test_a_transaction_happens_whole_or_not_at_all(path: Path) -> None:
    database = Database(path, FORM)
    with pytest.raises(InputError), database.transaction() as connection:
        connection.executemany("INSERT INTO things VALUES (?)", [("one",), (object(),)])
    assert database.state() == {"colour": "red", "written_by": __version__}
    with database.reading() as connection:
        assert connection.execute("SELECT * FROM things").fetchall() == []


def test_a_damaged_database_is_set_aside(path: Path) -> None:
    other = Database(path, FORM)  # is open, so SQLite's other files stay
    path.write_bytes(b"\xff" * 5000)
    with pytest.raises(DamagedError, match=r"not the state of a test, or damaged: .*; move it away to begin"):
        Database(path, FORM)
    said: list[str] = []
    fresh = Database.opened(path, FORM, aside(said))
    assert fresh.state() == {}
    assert "things.sqlite: not the state of a test, or damaged (file is not a database); SET ASIDE as" in said[0]
    other.close()


@pytest.mark.parametrize("column", ["name", "value"])
def test_state_that_cannot_be_decoded_is_set_aside(path: Path, column: str) -> None:
    with sqlite3.connect(path) as raw:
        raw.execute(f"UPDATE state SET {column} = CAST(x'72e96564' AS TEXT) WHERE name = 'colour'")
    raw.close()
    said: list[str] = []
    assert Database.opened(path, FORM, aside(said)).state() == {}
    assert f"Could not decode to UTF-8 column '{column}'" in said[0]


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (b"format 3\0\x10\0\2", b"format 3\0\x10\0\3", "the version in its header is unknown"),
        (b"things (name TEXT)", b"things (nome TEXT)", "columns of its tables are missing"),
    ],
    ids=["read-only", "column"],
)
def test_a_database_that_could_not_be_written_is_set_aside(path: Path, before: bytes, after: bytes, why: str) -> None:
    data = path.read_bytes()
    assert before in data
    path.write_bytes(data.replace(before, after))
    said: list[str] = []
    Database.opened(path, FORM, aside(said)).save(colour="blue")
    assert f"or damaged ({why}" in said[0]


def test_a_full_disk_keeps_no_database_from_being_opened(path: Path) -> None:
    with full_disk():
        database = Database(path, FORM)
        assert database.state()["colour"] == "red"
        with pytest.raises(OutputError, match=r"things\.sqlite: cannot be written: disk I/O error"):
            database.save(colour="blue")
    database.save(colour="green")
    database.close()
    assert Database(path, FORM).state()["colour"] == "green"


def test_a_new_database_waits_for_a_full_disk(tmp_path: Path) -> None:
    path = tmp_path / "things.sqlite"
    with full_disk():
        database = Database(path, FORM)
        assert database.state() == {}
        with database.reading() as connection:
            assert connection.execute("SELECT * FROM things").fetchall() == []
        for _ in range(2):
            with pytest.raises(OutputError, match=r"things\.sqlite: cannot be written"):
                database.save(colour="red")
    database.save(colour="red")
    database.close()
    assert Database(path, FORM).state()["colour"] == "red"


def test_what_is_no_plain_file_is_set_aside(tmp_path: Path) -> None:
    said: list[str] = []
    os.mkfifo(tmp_path / "fifo")
    Database.opened(tmp_path / "fifo", FORM, aside(said)).close()
    assert "not a plain file; SET ASIDE" in said[0]


def test_what_its_reader_cannot_read_is_set_aside(path: Path) -> None:
    said: list[str] = []
    read: list[dict[str, Any]] = []

    def load(database: Database) -> None:
        with database.reading():
            read.append(database.state())
            int(read[-1].get("colour", 1))

    Database.opened(path, FORM, aside(said), load).close()
    assert "invalid literal for int()" in said[0]
    assert read[-1] == {}


def test_an_earlier_format_gets_what_it_lacks(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version=1")
    later = Format(FORM.what, 2, FORM.table, FORM.schema + "CREATE TABLE IF NOT EXISTS more (name TEXT);")
    database = Database(path, later)
    with database.transaction() as connection:
        connection.execute("INSERT INTO more VALUES ('one')")
    assert database.state()["colour"] == "red"
