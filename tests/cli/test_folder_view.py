"""The view of a folder of sketches, which `web` and `top` show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli.test_hosts import NOON, save
from superhosts.cli.usage.sketches import Web
from superhosts.cli.web import ALERT_FILES, folder_view, site_list
from superhosts.core.defaults import THRESHOLD, TOP
from superhosts.core.pairs import Window
from superhosts.core.results import Selection
from superhosts.errors import InputError
from superhosts.output.alerts.store import AlertStore
from superhosts.ui.board import Board, Shown
from superhosts.ui.view import View
from traffic import MINUTES

PUBLIC = Path("public")


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    for number in range(2):
        save(tmp_path / "archive" / f"{number}.cube", "ams", NOON + number * 5 * MINUTES)
    return tmp_path / "archive"


def view_of(path: Path, threshold: float | None = None, **more: Any) -> View:
    return folder_view(path, Web(folder=path, threshold=threshold, **{"key_file": PUBLIC, **more}))


def test_without_options_the_largest_hosts_are_shown(archive: Path) -> None:
    assert view_of(archive).selection() == Selection(float(THRESHOLD), TOP, either=True)
    assert view_of(archive, 100.0).selection() == Selection(100.0)


@pytest.mark.parametrize("name", ALERT_FILES)
def test_alerts_in_the_folder_are_shown(archive: Path, name: str) -> None:
    assert not view_of(archive).can["alerts"]
    AlertStore(archive / name).close()
    view = view_of(archive)
    assert view.alerts.path == archive / name
    view.alerts.close()


def test_alerts_that_are_named_come_first_and_must_exist(archive: Path, tmp_path: Path) -> None:
    for path in (archive / "alerts.db", tmp_path / "others"):
        AlertStore(path).close()
    view = view_of(archive, alerts=tmp_path / "others")
    assert view.alerts.path == tmp_path / "others"
    view.alerts.close()
    with pytest.raises(InputError, match="no alerts are kept here"):
        view_of(archive, alerts=archive / "none")
    (archive / "empty").touch()
    with pytest.raises(InputError, match="no alerts are kept here"):
        view_of(archive, alerts=archive / "empty")
    assert (archive / "empty").stat().st_size == 0  # whoever looks writes nothing


def test_alerts_that_cannot_be_read_are_left_out(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (archive / "alerts.db").write_bytes(b"no database, but long enough to be taken for one" * 30)
    assert not view_of(archive).can["alerts"]
    assert "no alerts are shown" in capsys.readouterr().err


def test_a_hubs_folder_is_live_and_has_sites(archive: Path) -> None:
    view = view_of(archive)
    assert (view.title, view.is_live, view.can["sites"]) == (f"folder {archive}", False, False)
    (archive / "status.json").write_text('{"sites": {"ams": {"seen": 5.0}, "wrong": 3}}')
    view = view_of(archive)
    assert (view.title, view.is_live, view.can["sites"]) == (f"hub {archive}", True, True)
    assert view.list_sites() == [{"site": "ams", "in_window": None, "seen": 5.0, "clock_wrong": False}]


@pytest.mark.parametrize("text", ["", "[]", '{"sites": [1]}', '{"sites": {"a": 1}}', "[" * 100_000])
def test_a_status_file_that_is_damaged_shows_no_sites(tmp_path: Path, text: str) -> None:
    (tmp_path / "status.json").write_text(text)
    view = view_of(tmp_path)
    assert view.list_sites() == []
    (tmp_path / "status.json").unlink()
    assert view.list_sites() == []


def test_sites_that_are_in_the_newest_window_and_those_that_are_missing() -> None:
    board = Board()
    board.put(Shown(window=Window(NOON, NOON + MINUTES), hosts=0, points=(), sites=("ams",), missing=("lon",)))
    sites = site_list({"fra": {"seen": 1.0}}, board)
    assert [(each["site"], each["in_window"], each.get("seen")) for each in sites] == [
        ("ams", True, None),
        ("fra", None, 1.0),
        ("lon", False, None),
    ]
