"""`superhosts web`: a folder of saved sketches in the browser."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from superhosts.cli._declaration import check_no_conflict, declared
from superhosts.cli._keys import given_key, read_token
from superhosts.cli._options import DashboardOptions
from superhosts.cli._settings import naming_of
from superhosts.cli._signals import Interruption, set_safely
from superhosts.cli.usage.sketches import Web
from superhosts.cli.usage.traffic import Top
from superhosts.core.files import exposure_warning, os_errors, write_private
from superhosts.core.notices import Notice
from superhosts.core.results import Selection
from superhosts.core.units import parse_place
from superhosts.detectors.arguments import check_threshold
from superhosts.errors import InputError, SuperhostsError, UsageError, import_extra
from superhosts.fleet.sites import is_wrong
from superhosts.output.alerts.store import AlertStore
from superhosts.output.console import tell
from superhosts.output.destination import Destinations
from superhosts.output.names import Annotator
from superhosts.pipeline.settings import Settings
from superhosts.ui.board import Board
from superhosts.ui.folder import SketchFolder
from superhosts.ui.service import STATUS, Reloads, read_status
from superhosts.ui.view import Json, View
from superhosts.ui.web.access import LEAST_TOKEN, Access, Certificate, is_loopback, new_token

if TYPE_CHECKING:
    from superhosts.cli.usage.fleet import Hub as HubOptions
    from superhosts.cli.usage.traffic import Watch as WatchOptions
    from superhosts.fleet.hub import HubSettings
    from superhosts.fleet.sites import Roster
    from superhosts.ui.monitor import Monitor


# The view of a folder of saved sketches, the same for `web` and `top`


ALERT_FILES = ("alerts.db", "alerts.sqlite")
REST = 0.2  # of the time that a question took: nobody counts packets in this process
WAKE = 0.5  # seconds: a signal that comes just before the main thread begins to wait does not wake it


def folder_view(path: Path, options: Web | Top, memory: str | None = None) -> View:
    """Return the view of a folder of sketches, or of a hub's folder, which also tells about its sites.

    Alerts are those of a file, or of one in the folder that has a usual name. Whoever shows the view closes them.
    """
    if not path.is_dir():
        raise InputError("no folder of sketches is here", file=str(path))
    selection = Selection.of_scan(options.threshold, options.top)
    if selection.threshold is not None:
        check_threshold(selection.threshold, "--threshold")
    names, board, is_hub = naming_of(options), Board(), (path / STATUS).is_file()
    return View(
        f"hub {path}" if is_hub else f"folder {path}",
        board,
        lambda: selection,
        is_live=is_hub,
        folder=SketchFolder(path, given_key(options.key_file), memory=memory),
        sites=(lambda: site_list(_read_sites(path / STATUS), board)) if is_hub else None,
        annotate=Annotator(names).annotated if names else lambda rows: rows,
        alerts=_open_alerts(path, options.alerts),  # last: what can fail comes before, and leaves no file open
    )


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
    sites = read_status(path).get("sites")
    return {name: facts for name, facts in sites.items() if isinstance(facts, dict)} if isinstance(sites, dict) else {}


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


# The dashboard of `hub`, `watch` and `web`: what it shows, where it listens, and the token that it asks for


TOKEN = "web-token"  # the file of the token, in a hub's folder


class Dashboard:
    """What `--web` asks for. Raises UsageError or MissingExtraError before anything is started."""

    def __init__(self, options: DashboardOptions) -> None:
        self._options = options
        self._place = None if options.web is None else parse_place(options.web)
        if self._place is None:
            check_no_conflict(options, sorted(declared(DashboardOptions).keys() - {"web"}), "only with --web")
        else:
            check_installed("--web")
        for option, path in (("web-token-file", options.web_token_file), (VIEWERS, options.web_viewer_token_file)):
            if path is not None and path.exists():
                _read_token(path, option)
        if options.web_cert is None:
            check_no_conflict(options, ["web_key"], "only with --web-cert")
            self.certificate = None
        else:
            self.certificate = Certificate(options.web_cert, options.web_key)
            if warning := exposure_warning(options.web_key or options.web_cert):
                tell(warning)

    def show(
        self,
        monitor: Monitor,
        options: HubOptions | WatchOptions,
        title: str,
        outputs: Destinations,
        settings: Callable[[], Settings | HubSettings],
        folder: Path | None,
        roster: Roster | None = None,
    ) -> None:
        """Show a hub, which has a roster of its sites, or a watch while it is monitored."""
        if self._place is None:
            return

        def view() -> View:
            return View(
                title,
                board,
                lambda: settings().selection,
                is_live=True,
                folder=None if folder is None else SketchFolder(folder, settings().key),
                # Viewers have a connection of their own: the one that takes windows waits for nobody.
                alerts=None if options.alerts is None else AlertStore(options.alerts),
                sites=None if roster is None else lambda: site_list(roster.status(), board),
                parts=lambda: monitor.last.parts,
                annotate=outputs.annotated,
            )

        board = Board()
        outputs.add(board)  # behind the destination of alerts: viewers hear of a window when its alerts are there
        monitor.showing = lambda: self.serving(view(), state=getattr(options, "state", None))

    def add_to(self, reloads: Reloads) -> None:
        """Let a reload read the certificate again."""
        if self.certificate is not None:
            reloads.add("certificate of the dashboard", self.certificate.load)

    @contextmanager
    def serving(self, view: View, *, state: Path | None = None, follow: bool = False) -> Iterator[None]:
        """Serve a view while the context is open; `follow`: sketches that come into its folder are shown, too."""
        from superhosts.ui.web.server import WebServer

        assert self._place is not None
        token, where = self._token(state)
        names, viewer = frozenset(name.lower() for name in self._options.web_trust_proxy), None
        if (path := self._options.web_viewer_token_file) is not None:
            viewer = _kept_token(path, VIEWERS)
            where += f"; viewers have the token in {path}"
            if viewer == token:
                raise UsageError(f"--{VIEWERS} {path}: has the token that may change things; viewers need another")
        access = Access(self._place, token, names, viewer, self.certificate)
        server = WebServer(view, access, tell)
        try:
            tell(Notice(f"dashboard at {server.url}{where}", "dashboard", url=server.url))
            view.start_filling(tell, follow=follow, **({"rest": REST} if follow else {}))
            yield
        finally:
            server.close()
            view.close()

    def _token(self, state: Path | None) -> tuple[str | None, str]:
        """Return the token, if one is asked for, and what is told of it."""
        assert self._place is not None
        file = self._options.web_token_file
        is_asked = self._options.web_viewer_token_file is not None
        if file is None and not is_asked and (self._options.web_trust_proxy or is_loopback(self._place.host)):
            return None, ""
        if file is None and state is None:
            token = new_token()
            return token, f"?token={token} (a new token at each start; web-token-file keeps one)"
        path = file or (state or Path()) / TOKEN
        return _kept_token(path, "web-token-file"), f"; it asks for the token in {path}"


def check_installed(name: str) -> None:
    import_extra(name, "web", "starlette", "uvicorn")


VIEWERS = "web-viewer-token-file"


def _kept_token(path: Path, option: str) -> str:
    """Return the token in a file, which is made if it is not there."""
    if not path.exists():
        with os_errors(f"{path}: the token cannot be kept"):
            write_private(path, new_token())
    if warning := exposure_warning(path):
        tell(warning)
    return _read_token(path, option)


def _read_token(path: Path, option: str) -> str:
    return read_token(path, f"--{option}", least=LEAST_TOKEN, advice="; without the file, one is made")


def web(options: Web) -> None:
    check_installed("superhosts web")
    dashboard = Dashboard(options)
    view = folder_view(options.folder, options)
    stop, reloads = threading.Event(), Reloads()
    dashboard.add_to(reloads)
    reload = None if dashboard.certificate is None else reloads.ask
    with Interruption(lambda: set_safely(stop), reload), dashboard.serving(view, follow=True):
        while not stop.wait(WAKE):
            reloads.run_if_asked()
