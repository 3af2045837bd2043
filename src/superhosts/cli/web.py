"""`superhosts web`: a folder of saved sketches in the browser."""

from __future__ import annotations

import threading

from superhosts.alerts.store import AlertStore
from superhosts.annotating.annotator import Annotator
from superhosts.cli._dashboard import Dashboard, sites_in
from superhosts.cli._keys import given_key
from superhosts.cli._options import DashboardOptions
from superhosts.cli._outputs import naming_of
from superhosts.cli._signals import ended_by_signals, set_safely
from superhosts.cli.usage.web import Web
from superhosts.detectors.arguments import check_threshold
from superhosts.errors import InputError
from superhosts.selection import Selection
from superhosts.views.board import Board
from superhosts.views.folder import SketchFolder
from superhosts.views.naming import unchanged
from superhosts.views.view import View


def web(options: Web) -> None:
    """Serve until a signal ends it."""
    selection = Selection.of(options.wanted.threshold, options.wanted.top)
    if selection.threshold is not None:
        check_threshold(selection.threshold, "--threshold")
    asked = DashboardOptions(options.listen, options.web_token_file, options.web_trust_proxy)
    dashboard = Dashboard(asked, "--listen")
    if not options.folder.is_dir():
        raise InputError("no folder of sketches is here", file=str(options.folder))
    naming = naming_of(options.naming)
    board, read_sites = Board(), sites_in(options.folder)
    view = View(
        f"sketches in {options.folder}",
        board,
        lambda: selection,
        is_live=True,
        folder=SketchFolder(options.folder, given_key(options.key_file)),
        alerts=None if options.alerts is None else AlertStore(options.alerts, must_exist=True),
        sites=None if read_sites is None else lambda: read_sites(board),
        annotate=Annotator(naming).annotated if naming else unchanged,
    )
    stop = threading.Event()
    with ended_by_signals(lambda: set_safely(stop)), dashboard.serving(view, follow=True):
        while not stop.wait(3600.0):
            pass
