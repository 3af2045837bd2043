"""What `superhosts watch` shows on a terminal: one screen that is written anew in place.

The thread that counts also asks for the hosts of the open window, between two blocks of packets, so that no lock is
needed. Meanwhile packets wait in the ring. Asking takes a twentieth of the time at most: what takes long is asked less
often.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.cells import cell_len
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from superhosts.core.pairs import Window
from superhosts.core.text import counted, printable, short_rate
from superhosts.core.units import SECOND, format_size
from superhosts.jit.memory import memory_used
from superhosts.output.report import Report, Row
from superhosts.output.table import OutputConsole, Terminal, table_lines, width_of
from superhosts.pipeline.builder import report_of
from superhosts.pipeline.scan import Scan

REDRAWN = 0.5  # seconds between two drawings
SHARE = 20  # of the time, one part is spent on questions at most
CLOSED = 3  # windows that are shown after they have closed
HOSTS = 5  # of each of these, and of the open window at least
ALERTS = 3  # open ones that are shown, those with the most peers
Line = tuple[str, str]  # text and style


class OpenWindow:
    """The report of a run's open window, asked for from time to time. Only for the thread that counts."""

    def __init__(self, refresh: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.report: Report | None = None  # None: no window is open, or it has just begun
        self._refresh, self._clock = refresh, clock
        self._asked = -1e9  # when
        self._took = 0.0  # seconds that the last question took

    def ask_if_due(self, run: Scan) -> bool:
        now = self._clock()
        if now - self._asked < max(self._refresh, SHARE * self._took):
            return False
        result = run.peek()
        self.report = None if result is None else report_of(result)
        self._asked = self._clock()
        self._took = self._asked - now
        return True


class LiveView:
    def __init__(
        self,
        refresh: float,
        varying: frozenset[str] = frozenset(),
        *,
        alerts: Callable[[], Sequence[Mapping[str, Any]]] = list,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], int] = time.time_ns,
    ) -> None:
        self._varying = varying
        self._alerts = alerts  # what is told of those that are open
        self._console = OutputConsole() if console is None else console
        self._clock, self._wall = clock, wall
        self._run: Scan | None = None
        self._live: Live | None = None
        self._open = OpenWindow(refresh, clock)
        self._closed: deque[Report] = deque(maxlen=CLOSED)
        self._drawn = -1e9  # when
        self._packets, self._rate = 0, 0.0

    @contextmanager
    def of(self, run: Scan) -> Iterator[None]:
        self._run = run
        with Live(console=self._console, auto_refresh=False, transient=True, redirect_stdout=False) as self._live:
            self._draw()
            yield
        self._live = None
        last = Terminal(self._console)
        for report in reversed(self._closed):  # They stay on the terminal.
            last.write(report)
        last.close()
        self._console.print(*(Text(text) for text, _ in self._alert_lines()), sep="\n")

    def step(self, _position: int, _packets: int) -> None:
        assert self._run is not None
        now = self._clock()
        self._open.ask_if_due(self._run)
        if now - self._drawn >= REDRAWN:
            self._draw()

    @contextmanager
    def reporting(self, report: Report) -> Iterator[None]:
        yield  # No window is printed on this terminal.
        self._closed.appendleft(report)
        self._open.report = None
        self._draw()

    def _draw(self) -> None:
        now = self._clock()
        run, live = self._run, self._live
        if run is None or live is None:
            return
        packets = sum(source.counters.packets for source in run.sources)
        if now - self._drawn >= REDRAWN:
            self._rate = (packets - self._packets) / (now - self._drawn) if self._drawn > 0 else 0.0
            self._packets, self._drawn = packets, now
        live.update(Group(*(Text.assemble(line) for line in self._lines(run, packets))), refresh=True)

    def _lines(self, run: Scan, packets: int) -> Iterator[Line]:
        """Yield what fits the screen: alerts, the open window, and as many closed ones as there is room for."""
        names = ", ".join(dict.fromkeys(printable(source.name) for source in run.sources))
        head = [(f"{names}   {short_rate(self._rate)} packets/s   {_state(run, packets)}", "reverse")]
        head += [*self._alert_lines(), ("", "")]
        window, now = run.open_window(), self._open.report
        if now is not None:
            head.append((f"{now.heading}{_left(now.window, self._wall())}", "bold"))
        else:
            began = f"{counted(run.pending(), 'packet')} so far" if window is None else "the window has just begun"
            head.append((began, "bold"))
        yield from head
        room = self._console.height - 1 - self._height(head)
        rows = () if now is None else now.rows
        room -= self._height([*self._table(rows, HOSTS)])
        closed: list[Line] = []
        for report in self._closed:
            block = [("", ""), (report.heading, "bold"), *self._table(report.rows, HOSTS)]
            if self._height([*closed, *block]) > room:
                break
            closed += block
        yield from self._table(rows, HOSTS + max(room - self._height(closed), 0))
        yield from closed

    def _height(self, lines: Sequence[Line]) -> int:
        """Return how many lines of the screen they take: what is too wide goes on in the next one."""
        return sum(-(-max(cell_len(text), 1) // self._console.width) for text, _ in lines)

    def _alert_lines(self) -> Iterator[Line]:
        events = sorted(self._alerts(), key=lambda event: -(event.get("peers") or 0))
        if events:
            yield f"{counted(len(events), 'alert')} open", "bold red"
        for event in events[:ALERTS]:
            peers = counted(event.get("peers") or 0, "peer")
            words = (str(event.get("host")), peers, str(event.get("rule")), f"since {event.get('since')}")
            yield "  " + "   ".join(map(printable, words)), ""
        if len(events) > ALERTS:
            yield f"  … and {len(events) - ALERTS:,} more", "dim"

    def _table(self, rows: Sequence[Row], most: int) -> Iterator[tuple[str, str]]:
        shown = rows[:most]
        if not shown:
            return
        header, lines = table_lines(shown, self._varying, width_of(self._console))
        yield header, "dim"
        yield from ((line, "") for line in lines)
        if len(rows) > most:
            yield f"… and {len(rows) - most:,} more", "dim"


def _state(run: Scan, packets: int) -> str:
    words = [counted(packets, "packet")]
    if any(source.loses for source in run.sources):
        words.append(f"dropped {sum(source.counters.drops for source in run.sources):,}")
        full = [share for source in run.sources if (share := source.fullness()) is not None]
        words += [f"ring {max(full):.0%} full".replace("%", " %")] if full else []
    return "   ".join([*words, f"memory {format_size(memory_used())}"])


def _left(window: Window | None, now: int) -> str:
    if window is None or not window.start <= now < window.end:
        return ""
    minutes, seconds = divmod((window.end - now) // SECOND, 60)
    return f", {minutes}:{seconds:02} left"
