"""Where the answers come from: a `View` in this process, or one at a web address (`RemoteFeed`).

Answers may take seconds, so the screen asks in threads. Whoever follows a feed is told of changes from any thread. A
link that breaks is tried again, with longer and longer pauses. Redirects are not followed, so the token goes to the
address that was given and to no other.

Answers are checked when they come from another machine, so that screens need not: by their types (`ui/answers.py`).
"""

from __future__ import annotations

import http.client
import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from superhosts.core.fields import FieldError
from superhosts.core.text import printable
from superhosts.errors import SuperhostsError, UsageError, import_extra
from superhosts.ui.answers import ANSWERS
from superhosts.ui.folder import LONGEST_PAST
from superhosts.ui.view import View

Json = dict[str, Any]
Span = tuple[float, float]  # start and end of a window, in seconds since 1970
TIMEOUT = 10.0  # seconds for an answer
HOST_TIMEOUT = LONGEST_PAST + 15.0  # the same for a host: the other side waits for its turn, and then asks its sketches
QUIET = 45.0  # seconds without an event after which the connection is opened again
PAUSES = (1.0, 2.0, 4.0, 8.0)  # seconds between attempts; the last one is repeated
LARGEST_ANSWER = 256 << 20  # bytes of an answer
LONGEST_LINE = 1 << 16  # bytes of a line of events


class LinkError(SuperhostsError):
    """The other side does not answer. It is asked again."""


class RefusedLinkError(UsageError):
    """The other side answers, but not to us: a wrong token, or no view at this address."""


class RemoteFeed:
    """The view at an address like http://127.0.0.1:8105. Any thread may ask; answers are those of `View`."""

    halted = "link lost"

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
        return dict(self._ask("summary"))

    def windows(self) -> list[Json]:
        return list(self._ask("windows"))

    def window(self, start: float | None = None, end: float | None = None) -> Json:
        return dict(self._ask("window", start=start, end=end))

    def host(self, host: str) -> Json:
        return dict(self._ask("host", host=host, timeout=HOST_TIMEOUT))

    def list_alerts(self) -> Json:
        return dict(self._ask("alerts"))

    def list_sites(self) -> list[Json]:
        return list(self._ask("sites"))

    def mute(self, host: str, rule: str, seconds: float, why: str) -> None:
        self._request("mute", {"host": host, "rule": rule, "seconds": seconds, "why": why})

    def unmute(self, host: str, rule: str) -> bool:
        return bool(self._checked("unmute", self._request("unmute", {"host": host, "rule": rule}))["unmuted"])

    def _ask(self, name: str, *, timeout: float | None = None, **given: Any) -> Any:
        asked = urlencode({name: value for name, value in given.items() if value is not None})
        return self._checked(name, self._request(f"{name}?{asked}" if asked else name, timeout=timeout))

    def _checked(self, name: str, found: Any) -> Any:
        try:
            return check(name, found)
        except FieldError as error:
            what = f"the answer is not what a view of superhosts answers ({printable(error)})"
            raise LinkError(f"{self.address}: {what}") from None

    def _request(self, question: str, content: Json | None = None, timeout: float | None = None) -> Any:
        method, body, headers = "GET", None, self._headers("application/json")
        if content is not None:
            method, body, headers["Content-Type"] = "POST", json.dumps(content).encode(), "application/json"
        with self._connected(TIMEOUT if timeout is None else timeout) as connection:
            connection.request(method, f"{self._base}/api/{question}", body, headers)
            answer = connection.getresponse()
            data = answer.read(LARGEST_ANSWER + 1)
        if len(data) > LARGEST_ANSWER:
            raise LinkError(f"{self.address}: the answer is too long")
        return self._understood(answer.status, data)

    def _understood(self, status: int, data: bytes) -> Any:
        try:
            found = parse(data) if data.strip() else None
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

    def _headers(self, accept: str) -> dict[str, str]:
        return {"Accept": accept} | ({"Authorization": f"Bearer {self._token}"} if self._token else {})

    @contextmanager
    def _connected(self, timeout: float) -> Iterator[http.client.HTTPConnection]:
        kind = http.client.HTTPSConnection if self._is_secure else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=timeout)
        try:
            yield connection
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            why = "no answer" if isinstance(error, TimeoutError) else getattr(error, "strerror", None) or error
            raise LinkError(f"{self.address}: {printable(why or type(error).__name__)}; trying again") from None
        finally:
            with suppress(OSError):
                connection.close()

    # Changes

    def follow(self, listener: Callable[[], None]) -> None:
        threading.Thread(target=self._follow, args=(listener,), name="events", daemon=True).start()

    def close(self) -> None:
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
        with self._connected(TIMEOUT) as connection:
            connection.request("GET", f"{self._base}/api/events", headers=self._headers("text/event-stream"))
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


Feed = View | RemoteFeed


class Snapshot(NamedTuple):
    summary: Json  # empty: there is no answer yet
    windows: Sequence[Json]  # the oldest first, without rows
    shown: Json | None  # the window that is looked at, with rows; None: there is none yet
    alerts: tuple[str, ...] | None  # the hosts of open alerts; None: no alerts are kept
    taken: float = 0.0  # when, by the monotonic clock

    def can(self, question: str) -> bool:
        return bool(self.summary and self.summary["can"].get(question))

    @property
    def newest(self) -> Span | None:
        return span_of(self.summary.get("newest") or {})


NOTHING = Snapshot({}, (), None, None)


def look(feed: Feed, wanted: Span | None, before: Snapshot) -> Snapshot:
    """Return what there is to see now. The list of windows is long, and asked for only if something has changed."""
    summary, taken = feed.summary(), time.monotonic()
    is_same = all(summary.get(name) == before.summary.get(name) for name in ("changed", "newest"))
    windows = before.windows if before.summary and is_same else feed.windows()
    shown = alerts = None
    if summary.get("newest") is not None:
        known = wanted is not None and wanted in map(span_of, windows)
        shown = feed.window(*(wanted if wanted is not None and known else ()))
    if summary["can"].get("alerts"):
        found = feed.list_alerts().get("alerts") or ()
        alerts = tuple(str(alert.get("host")) for alert in found if not alert.get("closed"))
    return Snapshot(summary, windows, shown, alerts, taken)


def span_of(window: Json) -> Span | None:
    """Return when a window begins and ends; None if it has no times."""
    start, end = window.get("start"), window.get("end")
    return None if start is None or end is None else (float(start), float(end))


LARGEST = 10**18  # a larger number cannot be drawn


def parse(data: bytes) -> Any:
    """Parse JSON. Numbers that cannot be drawn become text, which is refused where a number is needed."""
    return json.loads(
        data,
        parse_int=lambda text: int(text) if len(text) <= len(str(LARGEST)) else text,
        parse_float=lambda text: float(text) if abs(float(text)) <= LARGEST else text,
        parse_constant=str,
    )


_MISSING = re.compile(r"Object missing required field `(.+)`")


def check(question: str, found: Any) -> Any:
    """Return an answer without the fields that are not known here. Raise FieldError if it is invalid."""
    msgspec = import_extra("superhosts top", "top", "msgspec")
    try:
        return msgspec.convert(found, ANSWERS[question])
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$")
        place, missing = question + path.rstrip("`"), _MISSING.fullmatch(problem)
        if missing:
            raise FieldError(f"{place}.{missing[1]}", "missing") from None
        raise FieldError(place, problem) from None
