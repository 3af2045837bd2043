"""What `edge` and `hub` share: the link's options, ending on a signal, and a file that tells how it goes."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from superhosts.cli._outputs import say
from superhosts.cli._signals import Wishes, end_at_once
from superhosts.errors import OutputError, SuperhostsError, UsageError

if TYPE_CHECKING:
    from superhosts.fleet.link import Sender
    from superhosts.fleet.nats.connect import NatsOptions
    from superhosts.fleet.spool import Spool

Creds = Annotated[Path | None, typer.Option(metavar="FILE", help="Credentials file (.creds) for the NATS server.")]
Nkey = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="File with this site's nkey seed, as `superhosts hub --enroll` made it."),
]
TlsCa = Annotated[Path | None, typer.Option(metavar="FILE", help="Certificate of the authority that the link trusts.")]
TlsCert = Annotated[Path | None, typer.Option(metavar="FILE", help="Own certificate, for (mutual) TLS.")]
TlsKey = Annotated[Path | None, typer.Option(metavar="FILE", help="Key of the own certificate.")]
SpoolCap = Annotated[
    str, typer.Option(help="Most disk for sketches that wait for the hub; then the oldest is dropped.")
]

STATUS = 5.0  # seconds between two writings of the status file
_held: list[int] = []  # a SIGHUP that came before anybody could act on it


def tell(text: str) -> None:
    """Speak to the operator: one line on standard error, which the journal or the container's log keeps.

    A log on a full disk, or whose reader has gone, ends nothing.
    """
    with contextlib.suppress(OSError):
        say(f"superhosts: {text}")


def make_sender(to: Path | None, options: NatsOptions | None, site: str) -> Sender:
    """Return the edge's side of the link that was asked for."""
    if to is not None:
        from superhosts.fleet.files import FileSender

        return FileSender(to, site, tell)
    from superhosts.fleet.nats.send import NatsSender

    assert options is not None
    return NatsSender(options, site, tell)


def refuse_given(options: Mapping[str, object], why: str) -> None:
    """Refuse options that were given and would do nothing."""
    given = [option for option, value in options.items() if value is not None]
    if given:
        raise UsageError(f"{', '.join(given)}: {why}")


def nats_options(
    url: str,
    creds: Path | None,
    nkey: Path | None,
    tls: tuple[Path | None, Path | None, Path | None],
    *,
    up: bool = False,
) -> NatsOptions:
    """Return checked options of a NATS connection."""
    from superhosts.durable import exposure
    from superhosts.fleet.nats.connect import NatsOptions

    logging.getLogger("asyncio").setLevel(logging.ERROR)  # it warns of every TLS connection that the other side ends
    options = NatsOptions(url, creds, nkey, *tls, up=up)
    options.check()
    for secret in options.secrets:
        if warning := exposure(secret):
            tell(warning)
    return options


@contextmanager
def sighup_held() -> Iterator[None]:
    """Keep a SIGHUP that comes while a service starts for `ended_by_signals`; by default it would end the service."""
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_DFL or _has_terminal():
        yield
        return
    signal.signal(signal.SIGHUP, lambda number, _frame: _held.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        _held.clear()


@contextmanager
def ended_by_signals(
    stop: Callable[[], None],
    reload: Callable[[], None] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[None]:
    """Let the first SIGTERM, SIGINT or SIGHUP end the work in good order; the second ends it at once.

    With `reload`, SIGHUP calls that instead, unless the terminal has closed, which sends SIGHUP, too. Where SIGHUP is
    ignored (nohup) it stays so.
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    if before[signal.SIGHUP] is signal.SIG_IGN:
        del before[signal.SIGHUP]
    had_terminal = _has_terminal()
    wishes = Wishes(clock)

    def handle(number: int, _frame: Any) -> None:
        if number == signal.SIGHUP and reload is not None and not (had_terminal and not _has_terminal()):
            reload()
            return
        wish = wishes.note()
        if wish == 2:
            end_at_once(number)
        if wish == 1:
            stop()

    for number in before:
        signal.signal(number, handle)
    if _held:
        _held.clear()
        signal.raise_signal(signal.SIGHUP)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _has_terminal() -> bool:
    """Return True if this process has a controlling terminal that is still there."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


@contextmanager
def sending(sender: Sender, spool: Spool) -> Iterator[None]:
    """Run a sender in a thread of its own, and stop it in the end."""
    stop = threading.Event()
    with beside("send", lambda: sender.run(spool, stop), stop):
        yield


@contextmanager
def beside(name: str, work: Callable[[], None], stop: threading.Event) -> Iterator[None]:
    """Do work in a thread that `stop` ends. An error there that nobody foresaw ends the whole program, and is shown."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)
            for line in traceback.format_exc().splitlines():
                say(line)
            signal.raise_signal(signal.SIGTERM)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(10)
    if failed:
        raise SuperhostsError(f"ended: the thread {name!r} failed ({failed[0]!r}): please report this")


class Status:
    """A small file with all counters, replaced every few seconds: for people, scripts and monitoring."""

    def __init__(self, path: Path, **parts: Any) -> None:
        self._path = path
        self._parts = parts
        self._last = 0.0
        self._failed = ""  # why it could not be written

    def write(self, *, now: bool = False) -> None:
        """Write the counters if it is time."""
        from superhosts.durable import put_aside, write_json

        if not now and time.monotonic() - self._last < STATUS:
            return
        self._last = time.monotonic()
        content = {name: asdict(part) if not callable(part) else part() for name, part in self._parts.items()}
        failed = ""
        try:
            if self._path.is_dir():
                put_aside(self._path, "a folder in place of the status", tell)
            write_json(self._path, {"written": time.time(), **content}, durable=False)
        except (OSError, OutputError) as error:
            failed = getattr(error, "strerror", None) or str(error)
        if failed and not self._failed:
            tell(f"{self._path}: NOT WRITTEN: {failed}; trying again until it works")
        elif self._failed and not failed:
            tell(f"{self._path}: is written again")
        self._failed = failed


def seconds(option: str, text: str) -> float:
    """Read a duration in seconds; zero is allowed."""
    from superhosts.units import SECOND, parse_duration

    try:
        return 0.0 if text.strip().rstrip("smhd") == "0" else parse_duration(text) / SECOND
    except UsageError as error:
        raise UsageError(f"--{option}: {error}") from None
