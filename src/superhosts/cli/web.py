"""`superhosts web`: a folder of saved sketches in the browser."""

from __future__ import annotations

import threading

from superhosts.cli._dashboard import Dashboard, check_installed
from superhosts.cli._folderview import folder_view
from superhosts.cli._options import DashboardOptions
from superhosts.cli._signals import ended_by_signals, set_safely
from superhosts.cli.usage.web import Web


def web(options: Web) -> None:
    """Serve until a signal ends it."""
    asked = DashboardOptions(options.listen, options.web_token_file, options.web_trust_proxy)
    check_installed("superhosts web")
    dashboard = Dashboard(asked, "--listen")
    view = folder_view(
        options.folder,
        options.wanted,
        naming=options.naming,
        alerts=options.alerts,
        key_file=options.key_file,
    )
    stop = threading.Event()
    with ended_by_signals(lambda: set_safely(stop)), dashboard.serving(view, follow=True):
        while not stop.wait(3600.0):
            pass
