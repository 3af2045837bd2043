"""The dashboard of a program: what it shows, where it listens, and the token that it asks for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from superhosts.cli._console import tell
from superhosts.cli._folderview import follow_folder, site_list
from superhosts.cli._options import AlertOptions, DashboardOptions, check_no_conflict
from superhosts.cli._token import read_token
from superhosts.core.files import exposure_warning, write_private
from superhosts.core.notices import Notice
from superhosts.errors import MissingExtraError, OutputError
from superhosts.output.alerts.store import AlertStore
from superhosts.output.destination import Destinations
from superhosts.pipeline.settings import Settings
from superhosts.ui.board import Board
from superhosts.ui.endpoint import parse_place
from superhosts.ui.folder import SketchFolder
from superhosts.ui.view import View
from superhosts.ui.web.access import LEAST_TOKEN, Access, is_loopback, new_token

if TYPE_CHECKING:
    from superhosts.cli._monitoring import Monitor
    from superhosts.cli.usage.hub import Hub as HubOptions
    from superhosts.cli.usage.watch import Watch as WatchOptions
    from superhosts.fleet.hub import Hub
    from superhosts.fleet.sites import Roster

TOKEN = "web-token"  # the file of the token, in a hub's folder


class Dashboard:
    """What `--web` asks for. Raises UsageError or MissingExtraError before anything is started."""

    def __init__(self, options: DashboardOptions, name: str = "--web") -> None:
        self._options, self._name = options, name
        self._place = None if options.web is None else parse_place(options.web)
        if self._place is None:
            others = {"--web-token-file": options.web_token_file, "--web-trust-proxy": options.web_trust_proxy or None}
            check_no_conflict(others, "only with --web")
        else:
            check_installed(name)
        if options.web_token_file is not None and options.web_token_file.exists():
            _read_token(options.web_token_file)

    def show_hub(
        self, monitor: Monitor, options: HubOptions, outputs: Destinations, merging: Hub, roster: Roster
    ) -> None:
        """Show a hub while it is monitored."""
        if self._place is None:
            return
        archive = options.archive.archive

        def view() -> View:
            return View(
                "hub" if options.site == "hub" else f"hub {options.site}",
                board,
                lambda: merging.settings.selection,
                is_live=True,
                folder=None if archive is None else SketchFolder(archive, merging.settings.key),
                alerts=_alerts(options.results.alerting),
                sites=lambda: site_list(roster.status(), board),
                parts=lambda: monitor.last.parts,
                annotate=outputs.annotated,
            )

        board = Board()
        outputs.add(board)  # behind the destination of alerts: viewers hear of a window when its alerts are there
        monitor.showing = lambda: self.serving(view(), state=options.state)

    def show_watch(
        self, monitor: Monitor, options: WatchOptions, outputs: Destinations, settings: Callable[[], Settings]
    ) -> None:
        """Show a watch while it is monitored."""
        if self._place is None:
            return

        def view() -> View:
            return View(
                f"watch {options.site}",
                board,
                lambda: settings().selection,
                is_live=True,
                folder=None if options.save is None else SketchFolder(options.save, settings().key),
                alerts=_alerts(options.results.alerting),
                parts=lambda: monitor.last.parts,
                annotate=outputs.annotated,
            )

        board = Board()
        outputs.add(board)
        monitor.showing = lambda: self.serving(view())

    @contextmanager
    def serving(self, view: View, *, state: Path | None = None, follow: bool = False) -> Iterator[None]:
        """Serve a view while the context is open; `follow`: sketches that come into its folder are shown, too."""
        from superhosts.ui.web.server import WebServer

        assert self._place is not None
        token, where = self._token(state)
        access = Access(self._place, token, frozenset(name.lower() for name in self._options.web_trust_proxy))
        server = WebServer(view, access, tell, option=self._name)
        stop = threading.Event()
        try:
            tell(Notice(f"dashboard at {server.url}{where}", "dashboard", url=server.url))
            if follow:
                follow_folder(view, stop, tell)
            else:
                view.start_filling(stop, tell, follow=False)
            yield
        finally:
            stop.set()
            server.close()
            if view.alerts is not None:
                view.alerts.close()

    def _token(self, state: Path | None) -> tuple[str | None, str]:
        """Return the token, if one is asked for, and what is told of it."""
        assert self._place is not None
        file = self._options.web_token_file
        if file is None and (self._options.web_trust_proxy or is_loopback(self._place.host)):
            return None, ""
        if file is None and state is None:
            token = new_token()
            return token, f"?token={token} (a new token at each start; --web-token-file keeps one)"
        path = file or (state or Path()) / TOKEN
        if not path.exists():
            try:
                write_private(path, new_token())
            except OSError as error:
                raise OutputError(f"{path}: the token cannot be kept: {error.strerror}") from None
        if warning := exposure_warning(path):
            tell(warning)
        return _read_token(path), f"; it asks for the token in {path}"


def check_installed(name: str) -> None:
    """Raise MissingExtraError if pages cannot be served."""
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(name, "web") from error


def _read_token(path: Path) -> str:
    return read_token(path, "--web-token-file", least=LEAST_TOKEN, advice="; without the file, one is made")


def _alerts(options: AlertOptions) -> AlertStore | None:
    """Return the alerts over a connection of the viewers' own: the one that takes windows waits for nobody."""
    return None if options.alerts is None else AlertStore(options.alerts)
