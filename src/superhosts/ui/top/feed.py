"""Where the answers come from: a `View` in this process (`LocalFeed`), or one at a web address (`RemoteFeed`).

Answers may take seconds, so the screen asks in threads. Whoever follows a feed is told of changes from any thread. A
link that breaks is tried again, with longer and longer pauses. Redirects are not followed, so the token goes to the
address that was given and to no other.

Answers are checked when they come from another machine, so that screens need not (`check_answer`). Checked is what a
screen relies on: lists and objects that it goes through, and numbers that it calculates with. Every other value is
shown as text. Fields that an earlier or later release does not have may be missing, and others may come.
"""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote, urlencode, urlsplit

from superhosts.core.text import printable
from superhosts.errors import SuperhostsError, UsageError
from superhosts.ui.folder import LONGEST_PAST
from superhosts.ui.view import View

Json = dict[str, Any]
Span = tuple[float, float]  # start and end of a window, in seconds since 1970
AGAIN = 15.0  # seconds after which the list of windows is asked for again, even if no window was added
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


class Feed(Protocol):
    """What the screen asks. Methods may wait and raise SuperhostsError."""

    halted: str  # two words for the case that nothing new comes
    is_near: bool  # long answers cost nothing

    @property
    def lost(self) -> str:
        """Why nothing new comes at the moment; empty: it does."""

    def follow(self, listener: Callable[[], None]) -> None:
        """Call `listener` after each change, from any thread. It does not wait."""

    def close(self) -> None:
        """End what runs in the background."""

    def summary(self) -> Json:
        """Return what it is, and its newest window without rows."""

    def windows(self) -> list[Json]:
        """Return the windows, the oldest first, without rows."""

    def window(self, start: float | None = None, end: float | None = None) -> Json:
        """Return one window with its rows."""

    def host(self, host: str) -> Json:
        """Return one host: its newest row, its past, its alerts."""

    def list_alerts(self) -> Json:
        """Return open and closed alerts, and what is muted."""

    def list_sites(self) -> list[Json]:
        """Return what a hub knows of each site."""

    def mute(self, host: str, rule: str, seconds: float, why: str) -> None:
        """Want no alerts of a host for some time."""

    def unmute(self, host: str, rule: str) -> bool:
        """Want alerts again; False if none were muted."""


class LocalFeed:
    halted, is_near = "not counting", True

    def __init__(
        self, view: View, *, start: Callable[[], None] = lambda: None, close: Callable[[], None] = lambda: None
    ) -> None:
        """Show a view; `start` begins to fill its board when somebody follows, `close` ends that."""
        self._view, self._start, self._close = view, start, close
        self.summary, self.windows, self.window = view.summary, view.windows, view.window
        self.list_alerts, self.list_sites = view.list_alerts, view.list_sites
        self.mute, self.unmute = view.mute, view.unmute

    @property
    def lost(self) -> str:
        return ""

    def follow(self, listener: Callable[[], None]) -> None:
        self._view.board.listeners.append(listener)
        self._start()

    def close(self) -> None:
        self._view.board.listeners.clear()
        self._close()

    def host(self, host: str) -> Json:
        return self._view.host(host)


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
        return self._object("summary")

    def windows(self) -> list[Json]:
        return self._list("windows")

    def window(self, start: float | None = None, end: float | None = None) -> Json:
        return self._object("window", start=start, end=end)

    def host(self, host: str) -> Json:
        return self._object("host", HOST_TIMEOUT, host=host)

    def list_alerts(self) -> Json:
        return self._object("alerts")

    def list_sites(self) -> list[Json]:
        return self._list("sites")

    def mute(self, host: str, rule: str, seconds: float, why: str) -> None:
        self._send("mute", {"host": host, "rule": rule, "seconds": seconds, "why": why})

    def unmute(self, host: str, rule: str) -> bool:
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
            data = answer.read(LARGEST_ANSWER + 1)
        if len(data) > LARGEST_ANSWER:
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


class Snapshot(NamedTuple):
    summary: Json
    windows: list[Json]  # the oldest first, without rows
    shown: Json | None  # the window that is looked at, with rows; None: there is none yet
    alerts: tuple[str, ...] | None  # the hosts of open alerts; None: no alerts are kept
    taken: float = 0.0  # when, by the clock of `Looker`


class Looker:
    """Takes snapshots. The list of windows is long, and asked for only if a window was added."""

    def __init__(self, feed: Feed, clock: Callable[[], float] = time.monotonic) -> None:
        self.feed = feed
        self._clock = clock
        self._windows: list[Json] = []
        self._asked = float("-inf")
        self._has_skipped = False

    @property
    def is_due(self) -> bool:
        """Return True if the list of windows may have changed since it was asked for, and that is a while ago."""
        return self._has_skipped and self._clock() - self._asked >= AGAIN

    def look(self, wanted: Span | None = None) -> Snapshot:
        """Return what there is now; `wanted`: another window than the newest."""
        summary = self.feed.summary()
        taken = self._clock()
        newest: Json | None = summary.get("newest")
        now = self._clock()
        last = self._windows[-1] if self._windows else None
        is_same = newest is not None and last is not None and span_of(newest) == span_of(last)
        if newest is not None and is_same and not self.feed.is_near and now - self._asked < AGAIN:
            self._windows[-1], self._has_skipped = newest, True
        else:
            self._windows, self._asked, self._has_skipped = self.feed.windows(), now, False
        known = any(span_of(each) == wanted for each in self._windows)
        shown = None
        if newest is not None:
            shown = self.feed.window(*wanted) if wanted is not None and known else self.feed.window()
        alerts = None
        if summary.get("can", {}).get("alerts"):
            found = self.feed.list_alerts().get("alerts") or ()
            alerts = tuple(str(alert.get("host")) for alert in found if not alert.get("closed"))
        return Snapshot(summary, list(self._windows), shown, alerts, taken)


def span_of(window: Json) -> Span | None:
    """Return when a window begins and ends; None if it has no times."""
    start, end = window.get("start"), window.get("end")
    return None if start is None or end is None else (float(start), float(end))


Check = Callable[[Any, str], None]  # raises ValueError with the place, if something else is there
LARGEST = 1e18  # a number; what is larger, or is none, cannot be drawn


def _number(found: Any, place: str) -> None:
    if type(found) not in (int, float) or not -LARGEST <= found <= LARGEST:
        raise ValueError(place)


def _count(found: Any, place: str) -> None:
    _number(found, place)
    if found < 0:
        raise ValueError(place)


def _text(found: Any, place: str) -> None:
    """Take anything that is shown as it is."""
    if isinstance(found, list | dict):
        raise ValueError(place)


def _perhaps(check: Check) -> Check:
    return lambda found, place: None if found is None else check(found, place)


def _many(check: Check) -> Check:
    def checked(found: Any, place: str) -> None:
        if not isinstance(found, list):
            raise ValueError(place)
        for number, each in enumerate(found):
            check(each, f"{place}[{number}]")

    return checked


def _object(needed: Mapping[str, Check], others: Mapping[str, Check] | None = None) -> Check:
    """Take an object that has the needed fields. Of other fields, those that are there are checked."""

    def checked(found: Any, place: str) -> None:
        if not isinstance(found, dict):
            raise ValueError(place)
        for name, check in needed.items():
            if name not in found:
                raise ValueError(f"{place}.{name}")
            check(found[name], f"{place}.{name}")
        for name, check in (others or {}).items():
            if name in found:
                check(found[name], f"{place}.{name}")

    return checked


def _values(check: Check) -> Check:
    """Take an object with any names."""

    def checked(found: Any, place: str) -> None:
        if not isinstance(found, dict):
            raise ValueError(place)
        for name, each in found.items():
            check(each, f"{place}.{name}")

    return checked


def _all(check: Check, *names: str) -> dict[str, Check]:
    return dict.fromkeys(names, check)


_texts = _perhaps(_many(_text))
_window = {
    **_all(_perhaps(_number), "start", "end"),
    **_all(_perhaps(_count), "hosts", "super_hosts", "revision"),
    "largest": _perhaps(_object({}, _all(_perhaps(_count), "peers", "low"))),
    "title": _text,
    **_all(_texts, "notes", "sites", "missing"),
}
_evidence = _object(
    {},
    {
        **_all(_perhaps(_count), "pairs", "attempts"),
        **_all(_text, "complete", "answered", "failed", "opened", "ports_per_peer", "packets_per_peer"),
        "ports": _perhaps(_many(_object({"port": _text, "at": _text, "share": _count}))),
        "nets": _perhaps(_values(_count)),
        "peers": _texts,
    },
)
_seen_by = _object({"site": _text}, _all(_perhaps(_count), "peers", "peers_low"))
_row = _object(
    {"host": _text, "peers": _perhaps(_count), "peers_low": _count, "peers_high": _perhaps(_count)},
    {
        **_all(_text, "side", "direction", "counts", "label", "name", "pattern", "reason", "exact"),
        **_all(_text, "asn", "as_name", "country"),
        "sites": _perhaps(_many(_seen_by)),
        "evidence": _perhaps(_evidence),
    },
)
_point = _object(
    {**_all(_number, "start", "end"), "low": _count, "high": _perhaps(_count)},
    _all(_text, "side", "direction", "reported"),
)
_times = _all(_perhaps(_number), "opened", "last", "closed", "until", "peers", "peak")
_alert = _object({}, {**_times, **_all(_text, "id", "host", "rule", "reason", "why")})
_site_numbers = _all(_perhaps(_number), "seen", "window_end", "spool_sketches", "spool_bytes", "refused", "clock")
_site = _object({"site": _text}, {**_site_numbers, **_all(_text, "in_window", "version", "mismatch")})

ANSWERS: dict[str, Check] = {  # by the name of the question
    "summary": _object(
        {"can": _object({})},
        {
            "title": _text,
            **_all(_perhaps(_number), "now", "live_until"),
            "reading": _texts,
            "newest": _perhaps(_object({}, _window)),
        },
    ),
    "windows": _many(_object({}, _window)),
    "window": _object({"rows": _many(_row)}, _window),
    "host": _object(
        {"points": _many(_point)},
        {"rows": _perhaps(_many(_row)), "notes": _texts, "alerts": _perhaps(_many(_alert))},
    ),
    "alerts": _object({}, _all(_perhaps(_many(_alert)), "alerts", "muted")),
    "sites": _many(_site),
    "unmute": _object({"unmuted": _text}),
}


def check_answer(question: str, found: Any) -> None:
    """Raise ValueError, with the place in the answer, if it is not what a view answers to a question."""
    ANSWERS[question](found, question)
