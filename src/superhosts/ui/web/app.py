"""The routes of the dashboard, and what all answers have: checks before them, headers on them, errors as JSON."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs
from weakref import WeakSet

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from superhosts.core.notices import Notice
from superhosts.core.text import printable
from superhosts.errors import SuperhostsError
from superhosts.ui.folder import BusyError
from superhosts.ui.web.access import ANYBODY, VIEWER, Access
from superhosts.ui.web.answers import Answers, Content

MOST_VIEWERS = 256  # event streams at the same time
HEARTBEAT = 15.0  # seconds after which a quiet stream says that it lives
LEAST_PAUSE = 0.5  # seconds between two events of a stream


class Changes:
    """Tells viewers the state of what they see. `wake` may be called by any thread, and never waits."""

    def __init__(self, state: Callable[[], dict[str, Any]]) -> None:
        self._state = state
        self._loop: asyncio.AbstractEventLoop | None = None
        self._viewers: WeakSet[asyncio.Event] = WeakSet()  # one dropped unread is forgotten with its stream
        self._is_waking = False
        self.closing = False

    @property
    def viewers(self) -> int:
        return len(self._viewers)

    def attach(self) -> None:
        self._loop = asyncio.get_running_loop()

    def wake(self) -> None:
        if self._loop is not None and not self._is_waking:
            self._is_waking = True
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._wake_all)

    def close(self) -> None:
        self.closing, self._is_waking = True, False
        self.wake()

    def _wake_all(self) -> None:
        self._is_waking = False
        for event in self._viewers:
            event.set()

    def stream(self, heartbeat: float = HEARTBEAT) -> AsyncIterator[bytes]:
        """Count a viewer from now on, and return its events: the state at once, and after each change."""
        event = asyncio.Event()
        self._viewers.add(event)
        return self._events(event, heartbeat)

    async def _events(self, event: asyncio.Event, heartbeat: float) -> AsyncIterator[bytes]:
        try:
            event.set()
            while True:
                try:
                    await asyncio.wait_for(event.wait(), heartbeat)
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                if self.closing:
                    return
                event.clear()
                yield f"event: changed\ndata: {json.dumps(self._state())}\n\n".encode()
                await asyncio.sleep(LEAST_PAUSE)  # Changes meanwhile become one event.
        finally:
            self._viewers.discard(event)


KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    "LICENSE": "text/plain; charset=utf-8",
}

PROBLEM = b'<p class="problem" role="alert">'


class Page(NamedTuple):
    kind: str
    content: Content
    tag: str

    @classmethod
    def of(cls, kind: str, plain: bytes) -> Page:
        tag = hashlib.blake2b(plain, digest_size=12).hexdigest()
        return cls(kind, Content(plain, gzip.compress(plain, 6, mtime=0)), f'"{tag}"')

    def saying(self, text: str) -> Page:
        """Return the page with a text, which is not markup, in its place for problems."""
        before, place, after = self.content.plain.partition(PROBLEM)
        return Page.of(self.kind, before + place + text.encode() + after)


def read_pages() -> dict[str, Page]:
    """Return the files of the page by their names, read once: no path of a request ever becomes a path of a file."""
    folder = Path(__file__).with_name("static")
    found = {path: KINDS.get(path.suffix or path.name) for path in folder.rglob("*") if path.is_file()}
    return {
        path.relative_to(folder).as_posix(): Page.of(kind, path.read_bytes()) for path, kind in found.items() if kind
    }


LARGEST_HEAD = 16 << 10  # bytes of a request's line and headers
LARGEST_BODY = 8 << 10
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
CLOSE = {"Connection": "close"}
GET_ROUTES = ("summary", "windows", "window", "trends", "host", "ask", "sites", "alerts", "alert", "sketch")
POST_ROUTES = ("mute", "unmute", "acknowledge", "note")
Endpoint = Callable[[Request], Awaitable[Response]]


def make_app(
    answers: Answers, changes: Changes, access: Access, say: Callable[[str], None], *, writing: float
) -> ASGIApp:
    """Return the application. `writing`: seconds for each piece sent.

    `say` is told of errors that nobody expects, and of every change.
    """
    pages = read_pages()
    login = pages["login.html"]
    wrong = login.saying("This token is wrong.")

    def api(name: str, *, posts: bool) -> Endpoint:
        async def answer(request: Request) -> Response:
            asked = await _json_of(request) if posts else request.query_params
            holder = access.holder(request.headers) or ""
            content = await answers.answer(name, asked, may_change=holder != VIEWER)
            if posts:
                say(_change(name, asked, holder, request, access))
            return _sent(request, content, "application/json")

        return _told(answer, say)

    async def events(_: Request) -> Response:
        if changes.viewers >= MOST_VIEWERS:
            return _error(503, f"{MOST_VIEWERS} viewers are here already")
        return StreamingResponse(changes.stream(), media_type="text/event-stream")

    async def index(request: Request) -> Response:
        token = request.query_params.get("token", "")
        if holder := access.holder_of(token):
            # No redirect: after a link of another site, a browser would not send this cookie with it. The page removes
            # the token from its address, which histories would keep.
            return _logged_in(_page(request, pages["index.html"]), access, holder, request)
        if access.holder(request.headers) is None:
            return _page(request, wrong if token else login, 401)
        return _page(request, pages["index.html"])

    async def log_in(request: Request) -> Response:
        if request.method != "POST":
            return RedirectResponse("./")  # the address of a refused form, entered again
        fields = parse_qs((await _body_of(request)).decode("utf-8", "replace"))
        holder = access.holder_of(fields.get("token", [""])[0].strip())
        if holder is None:
            return _page(request, wrong, 401)
        return _logged_in(RedirectResponse("./", 303), access, holder, request)

    async def static(request: Request) -> Response:
        page = pages.get(request.path_params["name"])
        return _error(404, "no such file") if page is None else _page(request, page)

    routes = [Route("/", _told(index, say)), Route("/login", _told(log_in, say), methods=["GET", "POST"])]
    routes += [Route(f"/api/{name}", api(name, posts=False)) for name in GET_ROUTES]
    routes += [Route(f"/api/{name}", api(name, posts=True), methods=["POST"]) for name in POST_ROUTES]
    routes += [Route("/api/events", _told(events, say)), Route("/static/{name:path}", _told(static, say))]
    return Guard(Starlette(routes=routes, exception_handlers={HTTPException: _http_error}), access, say, writing)


class Guard:
    def __init__(self, app: ASGIApp, access: Access, say: Callable[[str], None], writing: float) -> None:
        self._app, self._access, self._say, self._writing = app, access, say, writing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            async with asyncio.timeout(self._writing):
                await send(message)

        try:
            refusal = self._refusal(scope)
        except Exception as error:
            refusal = _failure(scope["path"], error, self._say)
        await (self._app if refusal is None else refusal)(scope, receive, guarded)

    def has_token(self, scope: Scope) -> bool:
        return self._access.holder(Headers(scope=scope)) is not None

    def _refusal(self, scope: Scope) -> Response | None:
        """Return the answer to a request that must not go on; None if it may."""
        headers, access = Headers(scope=scope), self._access
        if len(headers.getlist("host")) != 1 or not access.knows_host(headers["host"]):
            return _error(400, "this Host is not known here: open the dashboard by the address that it listens at")
        if _head_size(scope) > LARGEST_HEAD:
            return _error(431, f"more than {LARGEST_HEAD} bytes of headers", CLOSE)
        if "content-length" in headers and "transfer-encoding" in headers:  # RFC 9112, 6.1: perhaps smuggled
            return _error(400, "Content-Length beside Transfer-Encoding", CLOSE)
        is_api = scope["path"].startswith("/api/")
        # Pages may be opened by a link of any page. A form without a referrer does not say where it comes from, and
        # whoever has the token may log anybody in.
        if is_api and not access.is_own(headers):
            return _error(403, "a request of another page")
        holder = access.holder(headers) if is_api else ANYBODY
        if holder is None:
            return _error(401, "a token is needed: Authorization: Bearer TOKEN", {"WWW-Authenticate": "Bearer"})
        if holder == VIEWER and scope["method"] not in ("GET", "HEAD"):
            return _error(403, "with the token of viewers you may look, and change nothing")
        return None


def _head_size(scope: Scope) -> int:
    """Return the bytes of a request's line and headers. The parser limits only heads that come in pieces."""
    line = len(scope["method"]) + len(scope.get("raw_path") or b"") + len(scope["query_string"]) + len("  HTTP/1.1\r\n")
    return line + sum(len(name) + len(value) + len(": \r\n") for name, value in scope["headers"])


def _told(answer: Endpoint, say: Callable[[str], None]) -> Endpoint:
    async def told(request: Request) -> Response:
        try:
            return await answer(request)
        except HTTPException:
            raise
        except BusyError as error:
            return _error(503, str(error), {"Retry-After": "5"})
        except SuperhostsError as error:
            return _error(400, str(error))
        except ClientDisconnect:
            return _error(400, "gone")
        except Exception as error:
            return _failure(request.url.path, error, say)

    return told


def _failure(path: str, error: Exception, say: Callable[[str], None]) -> Response:
    say(f"dashboard: {printable(path)} failed: {error!r}: please report this")
    return _error(500, f"{type(error).__name__}; the log says more")


async def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _error(error.status_code, error.detail, dict(error.headers or {}))


def _error(status: int, text: str, headers: dict[str, str] | None = None) -> Response:
    return Response(json.dumps({"error": text}), status, headers, "application/json")


def _sent(request: Request, content: Content, kind: str, status: int = 200, **headers: str) -> Response:
    """Return an answer, compressed for those who can read that."""
    headers |= {"Content-Type": kind, "Vary": "Accept-Encoding"}
    if content.packed is None or "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(content.plain, status, headers)
    return Response(content.packed, status, headers | {"Content-Encoding": "gzip"})


def _page(request: Request, page: Page, status: int = 200) -> Response:
    headers = {"ETag": page.tag, "Cache-Control": "no-cache"}
    if status == 200 and request.headers.get("if-none-match") == page.tag:
        return Response(status_code=304, headers={**headers, "Vary": "Accept-Encoding"})
    return _sent(request, page.content, page.kind, status, **headers)


def _change(name: str, content: Mapping[str, Any], holder: str, request: Request, access: Access) -> Notice:
    """Return the line of the log about a change: who has made it, from where, and what it is."""
    who = {"by": holder, "address": request.client.host if request.client else ""}
    if access.names:  # the proxy that is trusted says for whom it asks
        told = {"user": "x-forwarded-user", "for": "x-forwarded-for"}
        who |= {field: printable(value) for field, header in told.items() if (value := request.headers.get(header))}
    what = ", ".join(f"{key} {value}" for key, value in content.items() if value not in ("", None))
    words = ", ".join(f"{key} {value}" for key, value in who.items())
    return Notice(f"dashboard: {name}: {printable(what, 1000)} ({words})", "changed", change=name, **who)


def _logged_in(response: Response, access: Access, holder: str, request: Request) -> Response:
    is_secure = "https" in (request.url.scheme, request.headers.get("x-forwarded-proto"))
    value = access.cookie_value(holder)
    response.set_cookie(access.cookie, value, httponly=True, samesite="strict", secure=is_secure, path="/")
    return response


async def _body_of(request: Request) -> bytes:
    """Return the body, of which no more than the limit is ever read."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > LARGEST_BODY:
            raise HTTPException(413, f"more than {LARGEST_BODY} bytes")
    return body


async def _json_of(request: Request) -> dict[str, Any]:
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise HTTPException(415, "send JSON, as application/json")
    try:
        content = json.loads(await _body_of(request))
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise HTTPException(400, "not a JSON object")
    return content
