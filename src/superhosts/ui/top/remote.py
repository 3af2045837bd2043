"""A view at a web address: the questions of `feed.py` over HTTP, and server-sent events that tell of changes.

A link that breaks is tried again, with longer and longer pauses. Redirects are not followed, so the token goes to the
address that was given and to no other.
"""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from superhosts.core.text import printable
from superhosts.errors import UsageError
from superhosts.ui.top.answers import check_answer
from superhosts.ui.top.feed import Json, LinkError
from superhosts.ui.views.folder import LONGEST_PAST

TIMEOUT = 10.0  # seconds for an answer
HOST_TIMEOUT = LONGEST_PAST + 15.0  # the same for a host: the other side waits for its turn, and then asks its sketches
QUIET = 45.0  # seconds without an event after which the connection is opened again
PAUSES = (1.0, 2.0, 4.0, 8.0)  # seconds between attempts; the last one is repeated
LARGEST = 256 << 20  # bytes of an answer
LONGEST_LINE = 1 << 16  # bytes of a line of events


class RefusedLinkError(UsageError):
    """The other side answers, but not to us: a wrong token, or no view at this address."""


class RemoteFeed:
    """The view at an address like http://127.0.0.1:8105. Any thread may ask."""

    halted, is_near = "link lost", False

    def __init__(self, address: str, token: str = "", *, pauses: tuple[float, ...] = PAUSES) -> None:
        parts = urlsplit(address)
        try:
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise UsageError(f"{printable(address)}: {error}") from None
        if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment or parts.username:
            raise UsageError(f"{printable(address)}: write it like http://127.0.0.1:8105")
        try:
            host.encode("idna")  # as looking it up does
        except UnicodeError:
            raise UsageError(f"{printable(address)}: {printable(host)} is not the name of a machine") from None
        self.address = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self.lost = ""
        self._host, self._port, self._base = host, port, quote(parts.path.rstrip("/"), safe="/%")
        self._is_secure = parts.scheme == "https"
        self._token, self._pauses = token, pauses
        self._stop = threading.Event()

    # Questions

    def summary(self) -> Json:
        """Return what it is, and its newest window without rows."""
        return self._object("summary")

    def windows(self) -> list[Json]:
        """Return the windows, the oldest first."""
        return self._list("windows")

    def window(self, start: float | None = None, end: float | None = None) -> Json:
        """Return one window with its rows."""
        return self._object("window", start=start, end=end)

    def host(self, host: str) -> Json:
        """Return one host."""
        return self._object("host", HOST_TIMEOUT, host=host)

    def list_alerts(self) -> Json:
        """Return alerts and what is muted."""
        return self._object("alerts")

    def list_sites(self) -> list[Json]:
        """Return what a hub knows of each site."""
        return self._list("sites")

    def mute(self, host: str, rule: str, seconds: float, why: str) -> None:
        """Want no alerts of a host for some time."""
        self._send("mute", {"host": host, "rule": rule, "seconds": seconds, "why": why})

    def unmute(self, host: str, rule: str) -> bool:
        """Want alerts again; False if none were muted."""
        found = self._send("unmute", {"host": host, "rule": rule})
        return bool(self._checked("unmute", found)["unmuted"])

    def _object(self, name: str, timeout: float | None = None, **values: Any) -> Json:
        found: Json = self._ask(name, timeout, **values)
        return found

    def _list(self, name: str) -> list[Json]:
        found: list[Json] = self._ask(name)
        return found

    def _ask(self, name: str, timeout: float | None = None, **values: Any) -> Any:
        given = urlencode({key: value for key, value in values.items() if value is not None})
        found = self._request("GET", f"/api/{name}{f'?{given}' if given else ''}", timeout=timeout)
        return self._checked(name, found)

    def _checked(self, name: str, found: Any) -> Any:
        try:
            check_answer(name, found)
        except ValueError as error:
            what = f"the answer is not what a view of superhosts answers ({printable(error)})"
            raise LinkError(f"{self.address}: {what}") from None
        return found

    def _send(self, name: str, content: Json) -> Any:
        return self._request("POST", f"/api/{name}", json.dumps(content).encode())

    def _request(self, method: str, path: str, body: bytes | None = None, timeout: float | None = None) -> Any:
        with self._errors(), self._connected(timeout) as connection:
            connection.request(method, self._base + path, body, self._headers(body))
            answer = connection.getresponse()
            data = answer.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise LinkError(f"{self.address}: the answer is too long")
        return self._understood(answer.status, data)

    def _understood(self, status: int, data: bytes) -> Any:
        try:
            found = json.loads(data) if data.strip() else None
        except (ValueError, RecursionError):
            found = None
            if status == 200:
                raise RefusedLinkError(f"{self.address}: no view of superhosts answers there") from None
        if 200 <= status < 300:
            return found
        told = printable(found["error"]) if isinstance(found, dict) and "error" in found else f"HTTP status {status}"
        if status in (401, 403):
            raise RefusedLinkError(f"{self.address}: {told}; give the token with --token-file FILE")
        if isinstance(found, dict) and "error" in found and status < 500:
            raise UsageError(told)
        if status < 500:
            raise RefusedLinkError(f"{self.address}: no view of superhosts answers there ({told})")
        raise LinkError(f"{self.address}: {told}")

    def _headers(self, body: bytes | None = None, accept: str = "application/json") -> dict[str, str]:
        found = {"Accept": accept}
        if self._token:
            found["Authorization"] = f"Bearer {self._token}"
        return found | ({} if body is None else {"Content-Type": "application/json"})

    @contextmanager
    def _connected(self, timeout: float | None = None) -> Iterator[http.client.HTTPConnection]:
        timeout = TIMEOUT if timeout is None else timeout
        if self._is_secure:
            context = ssl.create_default_context()
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                self._host, self._port, timeout=timeout, context=context
            )
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=timeout)
        try:
            yield connection
        finally:
            with suppress(OSError):
                connection.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            why = "no answer" if isinstance(error, TimeoutError) else getattr(error, "strerror", None) or error
            raise LinkError(f"{self.address}: {printable(why or type(error).__name__)}; trying again") from None

    # Changes

    def follow(self, listener: Callable[[], None]) -> None:
        """Call `listener` after each change, in a thread, until the feed is closed."""
        threading.Thread(target=self._follow, args=(listener,), name="events", daemon=True).start()

    def close(self) -> None:
        """End the thread that waits for changes."""
        self._stop.set()

    def _follow(self, listener: Callable[[], None]) -> None:
        failures = 0
        while not self._stop.is_set():
            try:
                for _ in self._events():
                    failures, self.lost = 0, ""
                    listener()
                    if self._stop.is_set():
                        return
            except (LinkError, UsageError) as error:
                self.lost = str(error)
                failures += 1
                listener()
                self._stop.wait(self._pauses[min(failures, len(self._pauses)) - 1])

    def _events(self) -> Iterator[None]:
        """Yield once when the connection is open, and after each event; end when it is to be opened again."""
        with self._errors(), self._connected() as connection:
            connection.request("GET", f"{self._base}/api/events", headers=self._headers(accept="text/event-stream"))
            socket = connection.sock
            answer = connection.getresponse()
            if answer.status != 200:
                self._understood(answer.status, answer.read(LONGEST_LINE))
            socket.settimeout(QUIET)
            yield
            try:
                while line := answer.readline(LONGEST_LINE):
                    if line.startswith(b"data:"):
                        yield
            except TimeoutError:  # Nothing has changed for a while, or the other side is gone: the next attempt tells.
                return
        raise LinkError(f"{self.address}: the connection was closed; trying again")
