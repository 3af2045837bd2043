"""What others learn about a service while it runs: a monitoring system (--metrics) and a service manager (systemd)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from superhosts import __version__
from superhosts.cli._console import log_status, show_tracebacks, tell
from superhosts.cli._options import ServiceOptions
from superhosts.cli._service import Reloads
from superhosts.cli._systemd import ServiceManager
from superhosts.core.notices import Notice
from superhosts.core.text import counted
from superhosts.ui.endpoint import Health, check_installed, open_endpoint, parse_place
from superhosts.ui.metrics import LastWindow, Reading, of_log, of_program, of_reloads, of_windows


class Monitor:
    """Takes the beats of the main loop, and answers questions about the service."""

    def __init__(self, command: str, options: ServiceOptions, manager: ServiceManager | None = None) -> None:
        """Check the options. MissingExtraError: the package that writes metrics is not installed."""
        show_tracebacks(options.verbose)
        self.health, self.last = Health(), LastWindow()
        self.manager = ServiceManager() if manager is None else manager
        self.status: Callable[[], str] = lambda: f"{counted(self.last.closed, 'window')} closed"
        self.why_closed: Callable[[], str] = lambda: ""  # why no traffic can come yet
        self.on_beat: list[Callable[[], None]] = []  # called at each beat; they must cost nothing
        self.showing: Callable[[], AbstractContextManager[object]] | None = None  # the dashboard, while it runs
        self._is_open = False
        self._command = command
        self._place = None if options.metrics is None else parse_place(options.metrics)
        if self._place is not None:
            check_installed()

    @property
    def is_asked(self) -> bool:
        """True if metrics or a dashboard are asked for: what only they need is measured."""
        return self._place is not None or self.showing is not None

    def beat(self) -> None:
        """Take note that the main loop moves. The loop calls this, and no other thread."""
        self.health.beat()
        for each in self.on_beat:
            each()
        self._is_open = self._is_open or not self.why_closed()
        if self._is_open:  # the first of these beats tells a service manager that the service is ready
            self.manager.beat(self.status)

    def stopping(self, stop: Callable[[], None]) -> Callable[[], None]:
        """Return what a signal calls to stop the service."""

        def act() -> None:
            self.manager.stopping()
            stop()

        return act

    @contextmanager
    def serving(self, readings: Sequence[Reading], reloads: Reloads | None = None) -> Iterator[None]:
        """Answer with these readings, and those that all services have, while the context is open."""
        with nullcontext() if self.showing is None else self.showing(), self._answering(readings, reloads):
            yield

    @contextmanager
    def _answering(self, readings: Sequence[Reading], reloads: Reloads | None) -> Iterator[None]:
        if self._place is None:
            yield
            return
        own = [of_program(self._command, __version__, self.health), of_log(log_status), of_windows(self.last)]
        if reloads is not None:
            own.append(of_reloads(lambda: len(reloads.failed)))
        server = open_endpoint(self._place, self.health, [*own, *readings])
        url = f"http://{server.place}/metrics"
        tell(Notice(f"metrics at {url}", "metrics", url=url))
        try:
            yield
        finally:
            server.close()
