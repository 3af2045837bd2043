"""The file of alerts: who may read it, and what a damaged one, or one of a later version, says."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import sqlite3
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commands import Run
from first_hour.office import FOLDER
from output.alerts.test_alerts import RESOLVER, SCANNER, row, window
from superhosts import __version__
from superhosts.cli.alerts import alerts_export, alerts_list, alerts_mute, alerts_show
from superhosts.cli.usage.setup import AlertsExport, AlertsList, AlertsMute, AlertsShow
from superhosts.core.results import Selection
from superhosts.errors import InputError, OutputError, UsageError
from superhosts.output.alerts.machine import Policy
from superhosts.output.alerts.rules import Rule
from superhosts.output.alerts.store import AlertDesk, AlertStore
from superhosts.output.report import Report
from superhosts.ui.board import Board
from superhosts.ui.view import View

POLICY = Policy((Rule(threshold=1000, times_usual=1),))
WAY = "move it away to begin with a new one"
LATER = "99.1"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file with open and closed alerts, events that wait, mutes and the past of hosts, as SQLite leaves it."""
    path = tmp_path_factory.mktemp("whole") / "alerts.sqlite"
    store = AlertStore(path)
    machine = store.machine(POLICY)
    for number in range(12):
        store.take(machine, window(number), [row(f"10.9.9.{number}")] + [row()] * (number > 8))
    store.mute(RESOLVER, "", time.time() + 10**6, "known")
    assert {bool(alert.closed) for alert in store.alerts()} == {True, False}
    store.close()
    return path


def changed(whole: Path, path: Path, sql: str, *values: Any) -> Path:
    """Return a copy in which another program has changed something."""
    shutil.copy(whole, path)
    database = sqlite3.connect(path, isolation_level=None)
    database.execute(sql, values)
    database.close()
    return path


def use(path: Path) -> list[str]:
    """Use a file in every way there is; return what was said about it. Any other exception fails the test."""
    said: list[str] = []

    def attempt(action: Callable[[], object]) -> None:
        try:
            action()
        except (InputError, OutputError) as error:
            said.append(str(error))

    attempt(lambda: alerts_list(AlertsList(file=path, all=True)))
    attempt(lambda: alerts_export(AlertsExport(file=path)))
    with contextlib.suppress(UsageError):  # the host may be damaged
        attempt(lambda: alerts_show(AlertsShow(file=path, alert=SCANNER)))
    attempt(lambda: alerts_mute(AlertsMute(file=path, host="10.0.0.1")))
    try:
        store = AlertStore(path)
    except (InputError, OutputError) as error:
        return [*said, str(error)]
    view = View("hub", Board(), lambda: Selection(1000.0), alerts=store)
    attempt(view.list_alerts)
    attempt(lambda: view.host(SCANNER))
    attempt(lambda: _report(store, said))
    store.close()
    return said


def _report(store: AlertStore, said: list[str]) -> None:
    """Report a window, as a run does: what is wrong in the file is said, and ends nothing."""
    desk = AlertDesk(store, POLICY, [], said.append)  # InputError: a run that begins does not go on without its alerts
    desk.write(Report(rows=[row(), row("10.9.9.9")], window=window(12)))
    desk.status()


def test_content_that_is_wrong_is_named(whole: Path, tmp_path: Path) -> None:
    with sqlite3.connect(whole) as database:
        (content,) = database.execute("SELECT content FROM alerts WHERE closed = 0").fetchone()
        names = list(json.loads(content))
    cases: list[tuple[str, Any]] = [
        *(("UPDATE alerts SET content = json_remove(content, ?)", f"$.{name}") for name in ("rule", "host", "opened")),
        *((f"UPDATE alerts SET content = json_set(content, '$.{name}', json(?))", "[1]") for name in names),
        *(("UPDATE alerts SET content = ?", text) for text in ("no JSON", "[]", "{", "[" * 5000, "{}")),
        *((f"UPDATE {each} SET content = CAST(? AS TEXT)", b"\xff\xfe\x80") for each in ("alerts", "events", "past")),
        *((f"UPDATE {each} SET content = ?", "7") for each in ("events", "past")),
        ("UPDATE alerts SET content = json_set(content, '$.threshold', ?)", 0),
        ("UPDATE mutes SET network = ?", "nobody"),
        ("UPDATE mutes SET until = ?", "never"),
        ("UPDATE mutes SET rule = CAST(? AS TEXT)", b"\xff"),
        ("UPDATE state SET value = ?", "many"),
        ("UPDATE state SET value = ?", 1.5),
        ("ALTER TABLE alerts RENAME COLUMN content TO contents", None),
        ("ALTER TABLE state RENAME COLUMN value TO values_", None),
    ]
    for number, (sql, value) in enumerate(cases):
        path = changed(whole, tmp_path / f"{number}.sqlite", sql, *([] if value is None else [value]))
        said = use(path)
        assert any("damaged" in line and WAY in line and str(path) in line for line in said), (sql, value, said)
        assert not any("cannot be kept" in line for line in said), (sql, said)


@pytest.mark.slow
def test_bytes_that_are_wrong_are_named(whole: Path, tmp_path: Path) -> None:
    data, chance = whole.read_bytes(), random.Random(32)
    cases = [data.replace(b"state", b"st\x80te"), data[:100], data[:5000], data[: len(data) // 2]]
    assert cases[0] != data
    for _ in range(60):
        wrong = bytearray(data)
        for _ in range(chance.choice((1, 4, 30))):
            wrong[chance.randrange(len(wrong))] = chance.randrange(256)
        cases.append(bytes(wrong))
    named = 0
    for number, wrong in enumerate(cases):
        path = tmp_path / f"{number}.sqlite"
        path.write_bytes(wrong)
        said = use(path)
        named += any("damaged" in line for line in said)
        if number < 4:
            assert any("damaged" in line and WAY in line for line in said), said
    assert named > 10


def test_commands_refuse_a_damaged_file(whole: Path, run: Run, tmp_path: Path) -> None:
    path = changed(whole, tmp_path / "alerts.sqlite", "UPDATE alerts SET content = '[]'")
    for words in (["scan", FOLDER / "services.pcap.gz", "--quiet", "--alerts", path], ["alerts", "list", path]):
        ended = run(*words)
        assert ended.status == 3
        assert f"{path}: not a file of alerts, or damaged: an alert is not an object" in ended.err


def test_a_file_that_is_damaged_while_a_run_goes_on_ends_nothing(tmp_path: Path) -> None:
    path, said = tmp_path / "alerts.sqlite", list[str]()
    desk = AlertDesk(AlertStore(path), POLICY, [], said.append)
    desk.write(Report(rows=[row()], window=window(0)))
    with sqlite3.connect(path) as database:
        database.execute("DROP TABLE mutes")
        database.execute("DROP TABLE alerts")
    desk.write(Report(rows=[row(peers=9000)], window=window(1)))
    assert desk.states()["open"] in (0, 1)
    assert any(line.startswith("ALERTS WAIT:") and "damaged" in line for line in said)
    with pytest.raises(OutputError, match=r"alerts of the last windows were not handed on: .*damaged"):
        desk.close()


def test_fields_of_a_later_version_are_ignored_and_another_format_is_refused(whole: Path, tmp_path: Path) -> None:
    path = changed(whole, tmp_path / "added.sqlite", "UPDATE alerts SET content = json_set(content, '$.colour', 'red')")
    changed(path, tmp_path / "both.sqlite", "CREATE TABLE more (name TEXT)")
    assert use(tmp_path / "both.sqlite") == []
    wrote = "INSERT OR REPLACE INTO state VALUES ('written_by', ?)"
    path = changed(path, tmp_path / "damaged.sqlite", wrote, LATER)
    path = changed(path, tmp_path / "again.sqlite", "UPDATE alerts SET content = json_remove(content, '$.rule')")
    assert f"rule of an alert is missing; superhosts {LATER} wrote it last" in use(path)[0]
    path = changed(whole, tmp_path / "other.sqlite", wrote, LATER)
    path = changed(path, tmp_path / "format.sqlite", "PRAGMA user_version=7")
    said = use(path)
    assert len(said) == 5
    assert all(f"a later version of superhosts {LATER} wrote it (format 7; this one reads 1)" in line for line in said)
    with sqlite3.connect(whole) as database:
        assert database.execute("SELECT value FROM state WHERE name = 'written_by'").fetchone() == (__version__,)


def test_only_its_owner_may_read_the_file(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        store = AlertStore(tmp_path / "alerts.sqlite")
        store.take(store.machine(POLICY), window(0), [row()])
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
        store.close()
    finally:
        os.umask(before)
    assert modes == dict.fromkeys(("alerts.sqlite", "alerts.sqlite-wal", "alerts.sqlite-shm"), 0o600)
    with pytest.raises(OutputError, match=r"missing/alerts\.sqlite: alerts cannot be kept: No such file"):
        AlertStore(tmp_path / "missing" / "alerts.sqlite")
