"""The connection to a NATS server, and readable errors.

nats-py can reconnect by itself; that is switched off. Both ends open a new connection and start from their own state,
which is easier to reason about than a connection that changes behind the scenes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from superhosts.core.text import printable
from superhosts.errors import MissingExtraError, SuperhostsError
from superhosts.fleet.link import LinkStatus, retry_delay
from superhosts.fleet.nats.credentials import DEFAULT_TIMING, NatsOptions, Timing

try:
    import nats.errors
    import nats.js.errors
    from nats.aio.client import Client
except ImportError:
    raise MissingExtraError("the link over NATS", "fleet") from None

POLL = 0.1
NOT_NOW = {9, 10}  # OpenSSL's codes for a certificate that is not yet valid, or has expired
MIN_VERSION = (2, 12)  # of nats-server: JetStream refuses requests with unknown fields from this version on


class LinkDownError(Exception):
    """The link does not work now; the message is for the operator, and the caller retries."""


class UnfitServerError(LinkDownError):
    """A server that cannot isolate sites from each other."""


class GuardedClient(Client):
    """A client that never sends credentials without TLS if TLS was requested, whatever the server offers."""

    tls_only = False

    def _connect_command(self) -> bytes:
        if self.tls_only and not self._server_info.get("tls_required"):
            raise nats.errors.Error("the server offers no TLS, and TLS was requested")
        return super()._connect_command()

    async def _process_headers(self, headers: bytes | None) -> dict[str, str] | None:
        """Parse a message's headers. Some invalid headers, which a site could send, would stop the library."""
        try:
            found: dict[str, str] | None = await super()._process_headers(headers)
        except Exception:
            return {}  # not a piece of a sketch
        return found

    def _build_message(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: Any) -> Any:
        """Build a message; subjects that are not valid text must not end the connection."""
        subject, reply = (name.decode(errors="replace").encode() for name in (subject, reply))
        return super()._build_message(sid, subject, reply, data, headers)

    async def end(self) -> None:
        """Close in any state: the library stops half way if the connection breaks while it closes."""
        with contextlib.suppress(Exception):  # after a failed handshake it would wait forever
            async with asyncio.timeout(1.0):
                await self.close()
        tasks = [self._reading_task, self._ping_interval_task, self._flusher_task]
        tasks += [each._wait_for_msgs_task for each in self._subs.values()]
        for task in tasks:
            if task is not None:
                task.cancel()
        if self._transport is not None:
            self._transport.close()  # type: ignore[no-untyped-call]


class Link:
    def __init__(self, client: GuardedClient, timing: Timing) -> None:
        self.client = client
        self.jetstream = client.jetstream(timeout=timing.reply)
        self._timing = timing

    @property
    def is_open(self) -> bool:
        """Return True if the server requires no credentials."""
        return not self.client._server_info.get("auth_required")

    async def check_strict(self) -> None:
        """Refuse a server that would accept its own confirmations as commands.

        A site chooses the subject to which the server sends the confirmation of a piece. If that subject is a command
        and the server is not strict, a site could empty the queue.
        """
        check_version(str(self.client._server_info.get("version")))
        question = json.dumps({"superhosts": "a field that no request has"}).encode()
        try:
            answer = await self.client.request("$JS.API.STREAM.NAMES", question, timeout=self._timing.reply)
        except nats.errors.NoRespondersError:
            raise nats.js.errors.ServiceUnavailableError from None
        try:
            refused = "error" in json.loads(answer.data)
        except (ValueError, TypeError):
            refused = False
        if not refused:
            raise UnfitServerError(
                "the server accepts requests with unknown fields, so a site could empty the queue: "
                "set `strict: true` in its block jetstream"
            )


def check_version(text: str, name: str = "the server") -> None:
    """Refuse a NATS server whose version does not support strict JetStream."""
    found = re.match(r"v?([0-9]{1,6})\.([0-9]{1,6})", text)
    if found is None or tuple(map(int, found.groups())) < MIN_VERSION:
        least = ".".join(map(str, MIN_VERSION))
        raise UnfitServerError(f"{name} is nats-server {printable(text, 40)}; {least} or a later one is needed")


@asynccontextmanager
async def connect(options: NatsOptions, inbox: str, on_error: Callable[[str], None]) -> AsyncIterator[Link]:
    """Open a connection, and close it at the end. Raises LinkDownError if it cannot be opened, or breaks."""
    client = GuardedClient()
    client.tls_only = options.wants_tls
    seen: list[Exception] = []
    met = False

    async def error_seen(error: Exception) -> None:
        seen.append(error)
        if met and not isinstance(
            error, (OSError, nats.errors.UnexpectedEOF)
        ):  # the end of the connection is noticed elsewhere, too
            on_error(_words(error))

    try:
        if options.refresh is not None:
            options = options.refresh()
        options.check()  # files may have changed since the last connection
        await client.connect(
            options.urls,
            error_cb=error_seen,
            allow_reconnect=False,
            connect_timeout=options.timing.reply,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            ping_interval=10,
            inbox_prefix=inbox,
            tls=options.context(),
            user_credentials=str(options.creds) if options.creds else None,
            nkeys_seed=str(options.nkey) if options.nkey else None,
            nkeys_seed_str=options.seed,
        )
        if not client.is_connected:  # the library does not check
            raise ConnectionResetError
        met = True
        yield Link(client, options.timing)
    except (nats.errors.Error, SuperhostsError, OSError) as error:
        first = seen[0] if isinstance(error, nats.errors.NoServersError) and seen else error
        if not met and options.wants_tls and isinstance(first, (ConnectionResetError, BrokenPipeError)):
            first = LinkDownError(
                "it closes the connection: does it require a certificate (--tls-cert, --tls-key), or another one?"
            )
        raise LinkDownError(_words(first, options)) from None
    finally:
        await client.end()


async def keep_connected(
    session: Callable[[], Coroutine[Any, Any, None]],
    stop: threading.Event,
    status: LinkStatus,
    waiting: Callable[[], str] = lambda: "",
    timing: Timing = DEFAULT_TIMING,
) -> None:
    """Run one session after the other until told to stop, with growing pauses while the link is down."""
    attempts, loop = 0, asyncio.get_running_loop()
    while not stop.is_set():
        began = loop.time()
        try:
            await session()
        except (LinkDownError, SuperhostsError, OSError, nats.errors.Error) as error:
            status.down(_words(error), waiting())
        attempts = 1 if loop.time() - began > timing.last_pause else attempts + 1
        until = loop.time() + retry_delay(attempts, timing.first_pause, timing.last_pause)
        while loop.time() < until and not stop.is_set():
            await asyncio.sleep(POLL)


async def race(stop: threading.Event, link: Link, *work: Coroutine[Any, Any, None]) -> None:
    """Run tasks together until one fails, the connection ends or `stop` is set; then cancel all of them."""

    async def until_stopped() -> None:
        while not stop.is_set():
            await asyncio.sleep(POLL)

    async def until_closed() -> None:
        while link.client.is_connected:  # the library's callback is not always called
            await asyncio.sleep(POLL)
        raise LinkDownError("the connection has ended")

    tasks = [asyncio.ensure_future(each) for each in (until_stopped(), until_closed(), *work)]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            if (error := task.exception()) is not None:
                while isinstance(error, BaseExceptionGroup):
                    error = error.exceptions[0]
                raise error
    finally:
        while left := [
            task for task in tasks if not task.done()
        ]:  # repeatedly: the library swallows some cancellations
            for task in left:
                task.cancel()
            await asyncio.wait(left, timeout=POLL)
        await asyncio.gather(*tasks, return_exceptions=True)


def _words(error: BaseException, options: NatsOptions | None = None) -> str:
    """Return a readable message for an error of the library, of TLS or of the system."""
    text = printable(str(error).removeprefix("nats: ").strip().strip("'"), 500)
    if isinstance(error, ssl.SSLCertVerificationError):
        if options is not None and options.pinned:  # our own certificate
            return f"the broker's certificate {options.tls_ca} does not do: {error.verify_message}"
        if error.verify_code in NOT_NOW:
            return f"its {error.verify_message}: the server needs another one, unless this machine's clock is wrong"
        return f"its certificate is not trusted ({error.verify_message}): see --tls-ca"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({error.reason}): does the server require a certificate (--tls-cert, --tls-key)?"
    if isinstance(error, nats.errors.AuthorizationError) or "authorization violation" in text.lower():
        why = "the site is not enrolled there, or its key was revoked or replaced (superhosts site list, at the hub)"
        return f"the server does not accept these credentials (--join, --nkey, --creds, or user:password): {why}"
    if isinstance(error, nats.js.errors.ServiceUnavailableError):
        return error.description or "the server has no JetStream, or its cluster no leader"
    if isinstance(error, nats.js.errors.APIError):
        return f"the server refuses: {error.description}"
    if isinstance(error, TimeoutError):
        return "it does not answer"
    if isinstance(error, nats.errors.UnexpectedEOF):
        return "the connection has ended"
    if isinstance(error, OSError):
        return os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or text
    return text or type(error).__name__
