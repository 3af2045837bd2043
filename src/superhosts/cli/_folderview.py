"""The view of a folder of saved sketches, which `superhosts web` and `superhosts top` show: the same in both."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from superhosts.cli._console import tell
from superhosts.cli._keys import given_key
from superhosts.cli._options import NamesOptions, WantedOptions
from superhosts.cli._outputs import naming_of
from superhosts.cli._service import STATUS
from superhosts.core.files import read_json
from superhosts.core.results import Selection
from superhosts.detectors.arguments import check_threshold
from superhosts.errors import InputError, SuperhostsError
from superhosts.fleet.sites import is_wrong
from superhosts.output.alerts.store import AlertStore
from superhosts.output.names import Annotator
from superhosts.ui.board import Board
from superhosts.ui.folder import SketchFolder
from superhosts.ui.view import Json, View

ALERT_FILES = ("alerts.db", "alerts.sqlite")
REST = 0.2  # of the time that a question took: nobody counts packets in this process


def folder_view(
    path: Path,
    wanted: WantedOptions,
    *,
    naming: NamesOptions,
    alerts: Path | None = None,
    key_file: Path | None = None,
    memory: str | None = None,
) -> View:
    """Return the view of a folder of sketches, or of a hub's folder, which also tells about its sites.

    Alerts are those of a file, or of one in the folder that has a usual name. Whoever shows the view closes them.
    """
    if not path.is_dir():
        raise InputError("no folder of sketches is here", file=str(path))
    selection = Selection.of_scan(wanted.threshold, wanted.top)
    if selection.threshold is not None:
        check_threshold(selection.threshold, "--threshold")
    names, board, is_hub = naming_of(naming), Board(), (path / STATUS).is_file()
    return View(
        f"hub {path}" if is_hub else f"folder {path}",
        board,
        lambda: selection,
        is_live=is_hub,
        folder=SketchFolder(path, given_key(key_file), memory=memory),
        sites=(lambda: site_list(_read_sites(path / STATUS), board)) if is_hub else None,
        annotate=Annotator(names).annotated if names else lambda rows: rows,
        alerts=_open_alerts(path, alerts),  # last: what can fail comes before, and leaves no file open
    )


def follow_folder(view: View, stop: threading.Event, say: Callable[[str], None]) -> None:
    """Show the windows of a view's folder until `stop`, with those that come; say what cannot be shown."""
    view.start_filling(stop, say, follow=True, rest=REST)


def site_list(sites: dict[str, Json], board: Board) -> list[Json]:
    """Return what is known of each site, and whether it is in the newest window; None: nobody waited for it."""
    newest = board.newest
    there, missing = (set(), set()) if newest is None else (set(newest.sites), set(newest.missing))
    names = sorted({*sites, *there, *missing})
    return [
        {
            "site": name,
            "in_window": True if name in there else False if name in missing else None,
            **sites.get(name, {}),
            "clock_wrong": is_wrong(sites.get(name, {}).get("clock")),
        }
        for name in names
    ]


def _read_sites(path: Path) -> dict[str, Json]:
    """Return what a hub has written about its sites; nothing if its file is damaged."""
    status: Any = None
    with contextlib.suppress(OSError):
        status = read_json(path)
    sites = status.get("sites") if isinstance(status, dict) else None
    known = sites.items() if isinstance(sites, dict) else ()
    return {name: facts for name, facts in known if isinstance(facts, dict)}


def _open_alerts(folder: Path, named: Path | None) -> AlertStore | None:
    if named is not None:
        return AlertStore(named, must_exist=True)
    for path in (folder / name for name in ALERT_FILES):
        if path.is_file():
            try:
                return AlertStore(path)
            except SuperhostsError as error:  # Nobody has asked for them.
                tell(f"no alerts are shown: {error}")
    return None
