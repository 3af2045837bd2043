"""The server of the dashboard: its answers, who may ask, and what no client can do."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import hashlib
import hmac
import http.client
import json
import socket
import ssl
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from starlette.types import Message

from cli.test_hosts import NOON
from crowd import together
from dashboards import LENGTH, Shown, report, rows_of, serving
from superhosts.core.results import Selection
from superhosts.errors import UsageError
from superhosts.ui.board import Board
from superhosts.ui.endpoint import Place
from superhosts.ui.view import View
from superhosts.ui.web import app, server
from superhosts.ui.web.access import Access, Certificate, is_loopback
from superhosts.ui.web.answers import LONGEST_WHY
from superhosts.ui.web.server import WebServer
from waiting import wait_for

TOKEN = "a-token-of-more-than-16-characters"
LOOKING = "another-token-of-viewers-who-look"
AUTHORITY = trustme.CA()
JSON = {"Content-Type": "application/json"}


class Answer:
    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status, self.headers, self.body = response.status, response.headers, response.read()
        if self.headers.get("Content-Encoding") == "gzip":
            self.body = gzip.decompress(self.body)

    @property
    def content(self) -> Any:
        return json.loads(self.body)


def ask(web: WebServer, path: str, method: str = "GET", body: Any = None, **headers: str) -> Answer:
    """Ask; underscores in the names of headers stand for hyphens."""
    connection = http.client.HTTPConnection(web.place.host, web.place.port, timeout=120)
    if web.access.certificate is not None:
        trusting = ssl.create_default_context()
        AUTHORITY.configure_trust(trusting)
        connection = http.client.HTTPSConnection(web.place.host, web.place.port, timeout=120, context=trusting)
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if body is not None and not isinstance(body, bytes):
        body, sent = json.dumps(body).encode(), {**JSON, **sent}
    try:
        connection.request(method, path, body, sent)
        return Answer(connection.getresponse())
    finally:
        connection.close()


def empty_view() -> View:
    return View("watch local", Board(), lambda: Selection(1024.0))


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    made = Shown(tmp_path_factory.mktemp("dashboard"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def web(shown: Shown) -> Iterator[WebServer]:
    with serving(shown.view) as served:
        yield served


@pytest.fixture
def locked() -> Iterator[WebServer]:
    with serving(empty_view(), token=TOKEN) as served:
        yield served


def test_the_api_answers_as_the_view_does(web: WebServer, shown: Shown) -> None:
    view = shown.view
    for path, answer in (
        ("windows", view.windows()),
        ("window", view.window()),
        (f"window?start={NOON / 1e9}&end={(NOON + LENGTH) / 1e9}", view.window(NOON / 1e9)),
        ("sites", view.list_sites()),
        ("alerts", view.list_alerts()),
        ("sketch", view.sketch()),
        ("host?host=10.2.7.66", view.host("10.2.7.66")),
    ):
        found = ask(web, f"/api/{path}")
        assert (found.status, found.content) == (200, json.loads(json.dumps(answer))), path
    summary = ask(web, "/api/summary").content
    assert summary | {"now": 0} == view.summary() | {"now": 0}


def test_sketches_are_asked_again(web: WebServer) -> None:
    found = ask(web, "/api/ask?threshold=250").content
    assert [row["host"] for row in found["rows"]] == ["10.0.0.1"]
    assert (found["sketches"], found["sites"]) == (5, ["ams", "frank"])
    found = ask(web, "/api/ask?top=1&sites=frank").content
    assert (len(found["rows"]), found["sites"]) == (1, ["frank"])


def test_questions_without_sense_are_refused(web: WebServer) -> None:
    for path, text in {
        "ask?threshold=many": "threshold 'many': not a number",
        "ask?threshold=nan": "not a number",
        "ask?threshold=-5": "threshold",
        "ask?top=0": "top 0",
        "ask?top=1.5": "whole number",
        "ask?start=20&end=10": "start is not before end",
        "ask?start=1e300": "not a time",
        "ask?sites=lon": "no sketch of lon is here",
        "host": "host is missing",
        "host?host=no%20address": "no address",
        "window?start=5": "not known here",
    }.items():
        found = ask(web, f"/api/{path}")
        assert (found.status, text in found.content["error"]) == (400, True), path


def test_hosts_are_muted_and_unmuted_and_all_viewers_hear_of_it(web: WebServer, shown: Shown) -> None:
    mute, stream = {"host": "10.9.0.0/16", "rule": "", "seconds": 3600, "why": "known"}, Stream(web)
    before = stream.next()["changed"]
    assert ask(web, "/api/mute", "POST", mute).status == 200
    assert [each["host"] for each in shown.view.list_alerts()["muted"]] == ["10.9.0.0/16"]
    muted = stream.next()["changed"]
    gone = ask(web, "/api/unmute", "POST", {"host": "10.9.0.0/16", "rule": ""})
    assert gone.content == {"unmuted": True}
    assert shown.view.list_alerts()["muted"] == []
    assert before < muted < stream.next()["changed"]
    stream.close()
    half = "\ud800"  # of a character
    wrong = {
        "host": (5, "nobody", half),
        "seconds": ("1", 0, 1e300),
        "rule": (half,),
        "why": (half, "x" * (LONGEST_WHY + 1)),
    }
    for name, values in wrong.items():
        for value in values:
            assert ask(web, "/api/mute", "POST", {**mute, name: value}).status == 400, (name, value)
    assert ask(web, "/api/unmute", "POST", {"host": "10.9.0.0/16", "rule": half}).status == 400
    assert shown.view.list_alerts()["muted"] == []


def test_methods_and_paths_that_are_not_there(web: WebServer) -> None:
    assert ask(web, "/api/mute").status == 405
    assert ask(web, "/api/summary", "POST", {}).status == 405
    assert ask(web, "/api/summary", "DELETE").status == 405
    found = ask(web, "/api/nothing")
    assert (found.status, found.content) == (404, {"error": "Not Found"})


def test_every_answer_has_its_headers(web: WebServer) -> None:
    for path in ("/", "/static/app.css", "/api/summary", "/api/nothing", "/api/ask?top=0"):
        headers = ask(web, path).headers
        assert "default-src 'none'; script-src 'self'; style-src 'self';" in headers["Content-Security-Policy"], path
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cache-Control"] == ("no-store" if "/api/" in path else "no-cache")
        assert "server" not in headers


def test_large_answers_are_packed_for_those_who_can_read_that(web: WebServer) -> None:
    packed, plain = ask(web, "/api/windows", Accept_Encoding="gzip"), ask(web, "/api/windows")
    assert packed.headers["Content-Encoding"] == "gzip"
    assert "Content-Encoding" not in plain.headers
    assert packed.content == plain.content


def test_pages_are_not_sent_again_to_those_who_have_them(web: WebServer) -> None:
    found = ask(web, "/static/app.js")
    assert found.headers["Content-Type"].startswith("text/javascript")
    again = ask(web, "/static/app.js", If_None_Match=found.headers["ETag"])
    assert (again.status, again.body) == (304, b"")


def test_the_files_of_the_page_name_nothing_outside() -> None:
    folder = Path(app.__file__).parent / "static"
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    assert sorted(app.read_pages()) == names
    for name in names:
        text = (folder / name).read_text(encoding="utf-8")
        for outside in ("http://", "https://", "//cdn"):
            assert outside not in text.replace("http://www.w3.org/2000/svg", "").replace("https://github.com", ""), name
        if name.endswith(".html"):
            assert "style=" not in text
            assert "onclick" not in text
        if name.endswith(".js") and "vendor" not in name:
            assert "innerHTML" not in text
            assert "insertAdjacentHTML" not in text


def test_only_the_files_of_the_page_are_sent(web: WebServer) -> None:
    outside = (
        "../app.py ..%2fapp.py %2e%2e/%2e%2e/app.py vendor/../../server.py /etc/passwd ..\\app.py vendor/uplot app.py"
    )
    for path in ("", *outside.split()):
        assert ask(web, f"/static/{path}").status == 404, path


def test_a_name_that_is_not_ours_is_refused(web: WebServer) -> None:
    """So a page whose name was pointed to this machine reads nothing (DNS rebinding)."""
    others = ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil.example", "[::1", "")
    for host in ("localhost:9", "127.0.0.1", "[::1]:80", *others):
        for path in ("/api/summary", "/"):
            assert ask(web, path, Host=host).status == (400 if host in others else 200), host


def test_other_pages_change_nothing(web: WebServer) -> None:
    own: dict[str, str] = {"Origin": f"http://{web.place}", "Sec_Fetch_Site": "same-origin"}
    origins = [{"Origin": f"http://{each}"} for each in ("evil.example", "[", "127.0.0.1:1")]
    sites = [{"Sec_Fetch_Site": each} for each in ("cross-site", "same-site")]
    kinds = [{"Content_Type": each} for each in ("text/plain", "application/x-www-form-urlencoded")]
    for wanted, tried in ((200, [{}, own]), (403, [*origins, {"Origin": "null"}, *sites]), (415, kinds)):
        for headers in tried:
            assert ask(web, "/api/unmute", "POST", {"host": "10.0.0.1"}, **headers).status == wanted, headers


def test_pictures_of_other_pages_start_no_questions(web: WebServer) -> None:
    for place in ("cross-site", "same-site"):
        for path in ("summary", "ask?threshold=100", "host?host=10.0.0.1", "events"):
            assert ask(web, f"/api/{path}", Sec_Fetch_Site=place).status == 403
        for page in ("/", "/static/app.css"):
            assert ask(web, page, Sec_Fetch_Site=place).status == 200  # a link of another page
    for place in ("same-origin", "none"):  # its own page, and a typed address
        assert ask(web, "/api/summary", Sec_Fetch_Site=place).status == 200


def test_without_the_token_nothing_is_told(locked: WebServer) -> None:
    for path in ("/api/summary", "/api/events", "/api/nothing", "/api/window"):
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}, {"Cookie": "superhosts=1"}):
            found = ask(locked, path, **headers)
            assert (found.status, list(found.content)) == (401, ["error"])
    assert ask(locked, "/api/unmute", "POST", {"host": "10.0.0.1"}).status == 401
    page = ask(locked, "/")
    assert (page.status, b"Token of this dashboard" in page.body) == (401, True)
    assert ask(locked, "/?token=wrong").status == 401
    assert ask(locked, "/api/summary?token=" + TOKEN).status == 401  # only pages take it there
    assert ask(locked, "/static/app.css").status == 200


def test_the_token_opens_by_header_address_and_form(locked: WebServer) -> None:
    assert ask(locked, "/api/summary", Authorization=f"Bearer {TOKEN}").status == 200
    opened = ask(locked, f"/?token={TOKEN}")
    cookie = opened.headers["Set-Cookie"]
    assert (opened.status, TOKEN in cookie) == (200, False)
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    kept = cookie.partition(";")[0]
    assert ask(locked, "/api/summary", Cookie=kept).status == 200
    assert ask(locked, "/", Cookie=kept).status == 200
    assert ask(locked, "/api/summary", Cookie=kept[:-1]).status == 401
    form = {"Content_Type": "application/x-www-form-urlencoded"}
    entered = ask(locked, "/login", "POST", f"token={TOKEN}".encode(), **form)
    assert (entered.status, entered.headers["Location"]) == (303, "./")
    assert entered.headers["Set-Cookie"].partition(";")[0] == kept
    refused = ask(locked, "/login", "POST", b"token=wrong", **form)
    assert (refused.status, b"This token is wrong." in refused.body) == (401, True)
    assert b"This token is wrong." in ask(locked, "/?token=wrong").body
    assert b"This token is wrong." not in ask(locked, "/").body
    again = ask(locked, "/login")  # the address that a refused form leaves
    assert (again.status, again.headers["Location"]) == (307, "./")
    secure = ask(locked, f"/?token={TOKEN}", X_Forwarded_Proto="https").headers["Set-Cookie"]
    assert "Secure" in secure


def test_cookies_of_others_lock_nobody_out(locked: WebServer) -> None:
    kept = ask(locked, f"/?token={TOKEN}").headers["Set-Cookie"].partition(";")[0]
    name = kept.partition("=")[0]
    for other in ('aaa={"theme":"dark"}', "a b=c", "=", "superhosts_1=x", "no value", 'a="', "a=b=c"):
        for cookies in (f"{other}; {kept}", f"{kept}; {other}", f"{other};{kept};{other}", f"{name}=old; {kept}"):
            assert ask(locked, "/api/summary", Cookie=cookies).status == 200, cookies
        assert ask(locked, "/api/summary", Cookie=f"{other}; {name}=old").status == 401


def test_names_of_a_proxy_are_known() -> None:
    proxied = Access(Place("127.0.0.1", 80), names=frozenset({"hub.example.org"}))
    assert proxied.knows_host("hub.example.org")
    assert proxied.knows_host("HUB.example.org:443")
    assert not proxied.knows_host("other.example.org")
    assert proxied.is_own({"origin": "https://hub.example.org", "host": "127.0.0.1:80"})
    assert not proxied.is_own({"origin": "https://evil.example", "host": "127.0.0.1:80"})
    others = Access(Place("0.0.0.0", 80), TOKEN)
    assert others.knows_host("anything.example")
    assert not Access(Place("127.0.0.1", 80), TOKEN).knows_host("anything.example")


def test_what_is_loopback() -> None:
    assert [is_loopback(host) for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost")] == [True] * 4
    assert [is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.1", "hub.example.org")] == [False] * 4


def test_large_bodies_are_not_read(web: WebServer) -> None:
    long = {"host": "10.0.0.1", "why": "x" * app.LARGEST_BODY}
    found = ask(web, "/api/mute", "POST", long)
    assert (found.status, found.content) == (413, {"error": "more than 8192 bytes"})
    with socket.create_connection(web.place, timeout=60) as client:  # in pieces, without a length
        head = f"POST /api/mute HTTP/1.1\r\nHost: {web.place}\r\nContent-Type: application/json\r\n"
        client.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + b"1000\r\n" + b"x" * 4096 + b"\r\n")
        client.sendall((b"1000\r\n" + b"x" * 4096 + b"\r\n") * 2)
        assert client.recv(100).startswith(b"HTTP/1.1 413")
    for body in (b"", b"{", b"[]", b"\xff", b"[" * 5000):
        assert ask(web, "/api/mute", "POST", body, Content_Type="application/json").status == 400


def test_large_heads_are_refused(web: WebServer) -> None:
    for head in (f"GET /?{'x' * 40_000} HTTP/1.1\r\n", f"GET / HTTP/1.1\r\nX: {'x' * 40_000}\r\n", "garbage\r\n\r\n"):
        with socket.create_connection(web.place, timeout=60) as client:
            client.sendall(head.encode())
            assert client.recv(100).startswith(b"HTTP/1.1 400")
    assert ask(web, "/api/summary").status == 200


def test_large_heads_that_come_at_once_are_refused(web: WebServer) -> None:
    """The parser of HTTP has a limit for heads that are not complete: one read may bring a longer one."""
    fine = f"GET /api/summary HTTP/1.1\r\nHost: {web.place}\r\n"
    large = fine + 60 * f"X: {1000 * 'x'}\r\n" + "\r\n"
    line = f"GET /api/summary?{'x' * app.LARGEST_HEAD} HTTP/1.1\r\nHost: {web.place}\r\n\r\n"
    almost = f"{fine}X: {'x' * (app.LARGEST_HEAD - 200)}\r\nConnection: close\r\n\r\n"
    for sent, status in ((large, 431), (f"{fine}\r\n{large}", 431), (line, 431), (almost, 200)):
        found = _all_of(web, sent.encode())
        assert found.rpartition(b"HTTP/1.1 ")[2][:3] == str(status).encode()
        assert found.count(b"HTTP/1.1 ") == sent.count("HTTP/1.1")


def test_two_lengths_of_a_body_end_the_connection(web: WebServer) -> None:
    """Content-Length beside Transfer-Encoding: what follows may be a request that somebody smuggles (RFC 9112, 6.1)."""
    head = f"POST /api/unmute HTTP/1.1\r\nHost: {web.place}\r\nContent-Type: application/json\r\n"
    body = '{"host": "10.0.0.1"}'
    chunked = f"{len(body):x}\r\n{body}\r\n0\r\n\r\n"
    next_one = f"GET /api/summary HTTP/1.1\r\nHost: {web.place}\r\n\r\n"
    for lengths in (
        f"Content-Length: {len(body)}\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 4",
    ):
        found = _all_of(web, f"{head}{lengths}\r\n\r\n{chunked}{next_one}".encode())
        assert found.startswith(b"HTTP/1.1 400")
        assert b"Transfer-Encoding" in found
        assert found.count(b"HTTP/1.1 ") == 1


def _all_of(web: WebServer, sent: bytes) -> bytes:
    """Send, and return all that comes until the other end closes."""
    with socket.create_connection(web.place, timeout=60) as client:
        client.sendall(sent)
        found = b""
        with contextlib.suppress(ConnectionResetError):  # what it has not read, when it closes
            while piece := client.recv(1 << 16):
                found += piece
        return found


@pytest.mark.slow
def test_slow_clients_are_cut() -> None:
    """Neither an idle connection, nor half a head, nor half a body stays; others are answered meanwhile."""
    beginnings = [
        b"",
        b"GET / HT",
        b"POST /api/mute HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{",
    ]
    with serving(empty_view(), reading=0.3) as web:
        clients = [socket.create_connection(web.place, timeout=120) for _ in beginnings]
        for client, beginning in zip(clients, beginnings, strict=True):
            client.sendall(beginning)
        assert ask(web, "/api/summary").status == 200
        for client in clients:
            with client:
                assert _left(client) == b""


@pytest.mark.slow
def test_a_client_that_does_not_read_is_cut() -> None:
    view = empty_view()
    for number in range(400):
        view.board.write(report(number, rows_of(number % 24, 12)))
    with serving(view, reading=1e6, writing=0.3) as web, socket.create_connection(web.place, timeout=120) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for _ in range(200):
            client.sendall(b"GET /api/windows HTTP/1.1\r\nHost: localhost\r\n\r\n")
        connections = web._server.server_state.connections
        (held,) = wait_for(lambda: list(connections), "the connection is taken")
        wait_for(lambda: held.unsent > 0 or not connections, "answers wait")
        wait_for(lambda: not connections, "the connection is cut")
        assert ask(web, "/api/summary").status == 200


def test_a_piece_of_an_answer_that_is_not_taken_ends_it() -> None:
    """Of an event stream that nobody reads, one piece waits."""

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(_: Message) -> None:
        await asyncio.Event().wait()

    scope: dict[str, Any] = {"type": "http", "method": "GET", "path": "/static/app.css", "query_string": b""}
    scope["headers"] = [(b"host", b"localhost")]

    async def answer(app: Any) -> set[Any]:
        return (await asyncio.wait([asyncio.ensure_future(app(scope, receive, send))], timeout=20))[0]

    with serving(empty_view(), writing=0.05) as web:
        (ended,) = asyncio.run(answer(web._server.config.app))
    assert isinstance(ended.exception(), TimeoutError)


def test_there_is_a_limit_of_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has shown the token keeps a connection; of the others the oldest makes room for the next."""
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 5)
    with serving(empty_view(), token=TOKEN) as web:
        connections = web._server.server_state.connections
        strangers = [socket.create_connection(web.place, timeout=120) for _ in range(5)]
        for client, sent in zip(strangers, (b"GET / HT", b"GET / HTTP/1.1\r\nHost: localhost\r\n"), strict=False):
            client.sendall(sent)
        wait_for(lambda: len(connections) == 5, "all are taken")
        known = [Stream(web, Authorization=f"Bearer {TOKEN}") for _ in range(5)]
        assert [stream.next()["changed"] for stream in known] == [0] * 5
        assert [_left(client) for client in strangers] == [b""] * 5
        with socket.create_connection(web.place, timeout=120) as beyond:
            assert _left(beyond) == b""
        known.pop().close()
        wait_for(lambda: len(connections) == 4, "one has gone")
        assert ask(web, "/api/summary", Authorization=f"Bearer {TOKEN}").status == 200
        for each in (*known, *strangers):
            each.close()


def _left(client: socket.socket) -> bytes:
    """Return what still comes until the other end closes."""
    try:
        return client.recv(100)
    except ConnectionResetError:
        return b""


class Stream:
    def __init__(self, web: WebServer, **headers: str) -> None:
        self.connection = http.client.HTTPConnection(web.place.host, web.place.port, timeout=120)
        self.connection.request("GET", "/api/events", headers=headers)
        self.response = self.connection.getresponse()

    def next(self) -> Any:
        """Return the data of the next event, or the text of a comment."""
        lines = []
        while line := self.response.readline().decode().strip():
            lines.append(line)
        if lines[:1] == ["event: changed"]:
            return json.loads(lines[1].removeprefix("data: "))
        return lines

    def close(self) -> None:
        self.response.close()
        self.connection.close()


@pytest.mark.slow
def test_a_hundred_viewers_hear_of_a_window() -> None:
    view = empty_view()
    with serving(view) as web:
        streams = [Stream(web) for _ in range(100)]
        assert {stream.response.getheader("Content-Type") for stream in streams} == {"text/event-stream; charset=utf-8"}
        assert [stream.next() for stream in streams] == [{"changed": 0, "live_until": 0.0, "reading": []}] * 100
        view.board.write(report(1, rows_of(1)))
        assert [stream.next() for stream in streams] == [{"changed": 1, "live_until": 0.0, "reading": []}] * 100
        for stream in streams:
            stream.close()
        wait_for(lambda: web._changes.viewers == 0, "all viewers have gone")


@pytest.mark.slow
def test_many_changes_become_few_events() -> None:
    view = empty_view()
    with serving(view) as web:
        stream = Stream(web)
        assert stream.next()["changed"] == 0
        for number in range(200):
            view.board.write(report(number, []))
            woken = threading.Event()  # the loop has had its turn: without a pause it would have sent an event
            web._changes._loop.call_soon_threadsafe(web._changes._loop.call_soon, woken.set)
            assert woken.wait(60)
        heard = [stream.next()["changed"]]
        while heard[-1] < 200:
            heard.append(stream.next()["changed"])
        assert len(heard) < 100
        stream.close()


@pytest.mark.slow
def test_quiet_streams_have_a_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app.Changes.stream, "__defaults__", (0.01,))
    with serving(empty_view()) as web:
        stream = Stream(web)
        assert stream.next()["changed"] == 0
        assert stream.next() == [": still here"]
        stream.close()


def test_there_is_a_limit_of_viewers_also_if_they_come_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "MOST_VIEWERS", 10)
    with contextlib.ExitStack() as held, serving(empty_view()) as web:
        clients = [held.enter_context(socket.create_connection(web.place, timeout=120)) for _ in range(40)]
        sent, taken = threading.Event(), threading.Event()
        web._changes._loop.call_soon_threadsafe(lambda: [taken.set(), sent.wait(60)])  # meanwhile all requests come
        assert taken.wait(60)
        for client in clients:
            client.sendall(f"GET /api/events HTTP/1.1\r\nHost: {web.place}\r\n\r\n".encode())
        sent.set()
        statuses = [client.recv(12) for client in clients]
        assert Counter(statuses) == {b"HTTP/1.1 200": 10, b"HTTP/1.1 503": 30}


def test_a_viewer_that_never_reads_its_stream_is_forgotten() -> None:
    seen = app.Changes(dict)
    streams = [seen.stream() for _ in range(3)]
    assert seen.viewers == 3
    del streams
    assert seen.viewers == 0


def test_one_window_is_made_once_for_all_viewers(monkeypatch: pytest.MonkeyPatch) -> None:
    view, made = empty_view(), []
    view.board.write(report(1, rows_of(1)))
    window = view.window
    monkeypatch.setattr(view, "window", lambda *span: [made.append(span), window(*span)][1], raising=False)
    with serving(view) as web:
        together(*[lambda: ask(web, "/api/window")] * 20)
        assert len(made) == 1
        view.board.write(report(2, rows_of(2)))
        assert ask(web, "/api/window").content["start"] == (NOON + 2 * LENGTH) / 1e9
        assert len(made) == 2


def test_a_question_that_fails_is_not_kept() -> None:
    view = empty_view()
    view.board.write(report(1, rows_of(1)))
    answers = [view.windows(), UsageError("not now")]

    def windows() -> Any:
        answer = answers.pop()
        if isinstance(answer, Exception):
            raise answer
        return answer

    view.windows = windows
    with serving(view) as web:
        assert ask(web, "/api/windows").status == 400
        assert ask(web, "/api/windows").status == 200


def test_busy_sketches_are_told(web: WebServer, shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(shown.view.folder).ask, "__defaults__", (0.01, 60.0))
    with shown.view.folder._turn(60.0):
        found = ask(web, "/api/ask?threshold=100")
    assert (found.status, found.headers["Retry-After"]) == (503, "5")
    assert ask(web, "/api/ask?threshold=100").status == 200


def test_an_error_that_nobody_expects_is_told_and_nothing_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    view, told = empty_view(), []
    view.list_sites = lambda: 1 / 0
    web = WebServer(view, Access(Place("127.0.0.1", 0)), told.append)
    try:
        assert ask(web, "/api/sites").status == 500
        assert ask(web, "/api/summary").status == 200
        monkeypatch.setattr(Access, "knows_host", lambda *_: 1 / 0)  # of the checks before each answer
        found = ask(web, "/api/summary")
    finally:
        web.close()
    assert (found.status, found.content) == (500, {"error": "ZeroDivisionError; the log says more"})
    assert "default-src 'none'" in found.headers["Content-Security-Policy"]
    assert [each.partition(" failed: ZeroDivisionError")[0] for each in told] == [
        "dashboard: /api/sites",
        "dashboard: /api/summary",
    ]


def test_it_closes_while_a_question_runs() -> None:
    """The question is abandoned, and whoever has asked is told. It does not keep the program from ending."""
    view, asked, free, found, daemons = empty_view(), threading.Event(), threading.Event(), [], []
    view.host = lambda *_: (daemons.append(threading.current_thread().daemon), asked.set(), free.wait(600))
    with serving(view) as web:
        viewer = threading.Thread(target=lambda: found.append(ask(web, "/api/host?host=10.0.0.1")))
        viewer.start()
        assert asked.wait(60)
    assert not web._thread.is_alive()
    viewer.join(60)
    free.set()
    assert [(each.status, each.content) for each in found] == [(503, {"error": "the program ends"})]
    assert daemons == [True]


def test_it_closes_with_viewers_at_it() -> None:
    with serving(empty_view()) as web:
        stream = Stream(web)
        stream.next()
    assert stream.next() == []
    assert not web._thread.is_alive()
    stream.close()


def test_a_port_that_is_taken_is_named() -> None:
    with serving(empty_view()) as web, pytest.raises(Exception, match=rf"--web {web.place}: cannot listen there: "):
        WebServer(empty_view(), Access(web.place), print)


def test_the_work_never_waits_for_a_viewer_that_does_not_read() -> None:
    """Listeners only wake the event loop, even when that is stuck."""
    view = empty_view()
    with serving(view) as web:
        stuck, free = threading.Event(), threading.Event()
        web._changes._loop.call_soon_threadsafe(lambda: (stuck.set(), free.wait(60)))
        assert stuck.wait(60)
        for number in range(100):
            view.board.write(report(number, []))
        free.set()
        assert ask(web, "/api/summary").content["changed"] == 100


# A token of viewers, and what is told of changes


@pytest.fixture
def two(shown: Shown) -> Iterator[WebServer]:
    with serving(shown.view, token=TOKEN, access={"viewer": LOOKING}) as served:
        yield served


MUTE = {"host": "10.9.0.0/16", "rule": "", "seconds": 3600, "why": "known"}


def test_viewers_see_everything_and_change_nothing(two: WebServer, shown: Shown) -> None:
    viewer, owner = ({"Authorization": f"Bearer {token}"} for token in (LOOKING, TOKEN))
    for path in ("summary", "windows", "window", "alerts", "sites", "sketch", "host?host=10.2.7.66", "ask?top=1"):
        assert ask(two, f"/api/{path}", **viewer).status == 200, path
    assert ask(two, "/api/summary", **viewer).content["may_change"] is False
    assert ask(two, "/api/summary", **owner).content["may_change"] is True
    for name in (*app.POST_ROUTES, "anything"):
        for method in ("POST", "PUT", "DELETE"):
            found = ask(two, f"/api/{name}", method, MUTE, **viewer)
            assert (found.status, "you may look" in found.content["error"]) == (403, True), (method, name)
    assert shown.view.list_alerts()["muted"] == []
    assert ask(two, "/api/mute", "POST", MUTE, **owner).status == 200
    assert ask(two, "/api/unmute", "POST", {"host": "10.9.0.0/16"}, **owner).status == 200


def test_the_cookie_of_a_viewer_is_another_and_is_no_more_than_the_token(two: WebServer) -> None:
    cookies = {}
    for token in (TOKEN, LOOKING):
        by_link = ask(two, f"/?token={token}").headers["Set-Cookie"]
        form = {"Content_Type": "application/x-www-form-urlencoded"}
        by_form = ask(two, "/login", "POST", f"token={token}".encode(), **form).headers["Set-Cookie"]
        assert by_link == by_form
        cookies[token] = by_link.partition(";")[0]
    assert cookies[TOKEN] != cookies[LOOKING]
    assert ask(two, "/api/mute", "POST", {}, Cookie=cookies[LOOKING]).status == 403
    assert ask(two, "/api/mute", "POST", {}, Cookie=cookies[TOKEN]).status == 400  # it may, and says nothing of sense
    assert ask(two, "/api/summary", Cookie=cookies[LOOKING]).content["may_change"] is False
    both = f"{cookies[LOOKING]}; {cookies[TOKEN]}"  # of two tabs of different times
    assert ask(two, "/api/summary", Cookie=both).content["may_change"] is True
    for wrong in ("", "wrong", TOKEN[:-1], LOOKING + "x"):
        assert ask(two, "/api/summary", Authorization=f"Bearer {wrong}").status == 401
        assert ask(two, f"/?token={wrong}").status == 401


def test_tokens_that_are_not_there_open_nothing(locked: WebServer) -> None:
    """An empty token is not that of viewers, whom this dashboard does not have."""
    empty = hmac.new(b"", b"superhosts cookie", hashlib.sha256).hexdigest()
    assert ask(locked, "/api/summary", Cookie=f"{locked.access.cookie}={empty}").status == 401
    assert ask(locked, "/api/summary", Authorization="Bearer ").status == 401


def test_every_change_is_told_and_nothing_else(two: WebServer, shown: Shown) -> None:
    told: list[Any] = two.told  # type: ignore[attr-defined]
    owner = {"Authorization": f"Bearer {TOKEN}"}
    ask(two, "/api/summary", **owner)
    ask(two, "/api/mute", "POST", {**MUTE, "seconds": -1}, **owner)
    ask(two, "/api/mute", "POST", MUTE, Authorization=f"Bearer {LOOKING}")
    assert told == []
    forged = {**MUTE, "why": "known\nsuperhosts: dashboard: mute: everything", "other": ["x"] * 400}
    ask(two, "/api/mute", "POST", forged, **owner)
    ask(two, "/api/unmute", "POST", {"host": "10.9.0.0/16"}, X_Forwarded_For="192.0.2.7", **owner)
    mute, unmute = told
    assert mute.startswith("dashboard: mute: host 10.9.0.0/16, seconds 3600, why known\\nsuperhosts")
    assert mute.endswith("(by token, address 127.0.0.1)")
    assert ("\n" in mute, len(mute) < 1200) == (False, True)
    assert (mute.event, mute.fields) == ("changed", {"change": "mute", "by": "token", "address": "127.0.0.1"})
    assert unmute == "dashboard: unmute: host 10.9.0.0/16 (by token, address 127.0.0.1)"  # no proxy is trusted
    assert all(TOKEN not in str(each) for each in told)


def test_a_trusted_proxy_says_for_whom_a_change_is(shown: Shown) -> None:
    with serving(shown.view, access={"names": frozenset({"hub.example.org"})}) as web:
        headers = {"Host": "hub.example.org", "X_Forwarded_For": "192.0.2.7", "X_Forwarded_User": "ann\x1b[31m"}
        assert ask(web, "/api/unmute", "POST", {"host": "10.9.0.0/16"}, **headers).status == 200
        (told,) = web.told  # type: ignore[attr-defined]
    assert "(by anybody, address 127.0.0.1, user ann\\x1b[31m, for 192.0.2.7)" in told


# HTTPS


def certificate(folder: Path, name: str = "127.0.0.1", authority: trustme.CA = AUTHORITY) -> Certificate:
    made = authority.issue_cert(name)
    cert, key = folder / "web.crt", folder / "web.key"
    cert.write_bytes(b"".join(each.bytes() for each in made.cert_chain_pems))
    made.private_key_pem.write_to_path(str(key))
    return Certificate(cert, key)


def test_https_shows_all_that_http_shows(shown: Shown, tmp_path: Path) -> None:
    access = {"certificate": certificate(tmp_path)}
    with serving(shown.view, token=TOKEN, access=access) as web:
        assert web.url == f"https://{web.place}/"
        opened = ask(web, f"/?token={TOKEN}")
        cookie = opened.headers["Set-Cookie"]
        assert (opened.status, "; Secure" in cookie, "HttpOnly" in cookie) == (200, True, True)
        kept = {"Cookie": cookie.partition(";")[0]}
        assert ask(web, "/api/windows", **kept).content == json.loads(json.dumps(shown.view.windows()))
        own = {"Origin": web.url.rstrip("/"), "Sec_Fetch_Site": "same-origin"}
        assert ask(web, "/api/unmute", "POST", {"host": "10.0.0.1"}, **own, **kept).status == 200
        assert (
            ask(web, "/api/unmute", "POST", {"host": "10.0.0.1"}, Origin="https://evil.example", **kept).status == 403
        )
        with socket.create_connection(web.place, timeout=60) as client:
            client.sendall(f"GET / HTTP/1.1\r\nHost: {web.place}\r\n\r\n".encode())
            assert b"HTTP" not in _left(client)


def serial(web: WebServer) -> int:
    trusting = ssl.create_default_context()
    AUTHORITY.configure_trust(trusting)
    client = socket.create_connection(web.place, timeout=60)
    with trusting.wrap_socket(client, server_hostname="127.0.0.1") as secured:
        found: Any = secured.getpeercert()
        return int(found["serialNumber"], 16)


def test_a_renewed_certificate_is_loaded_and_a_wrong_one_is_not(tmp_path: Path) -> None:
    mine = certificate(tmp_path)
    with serving(empty_view(), access={"certificate": mine}) as web:
        first = serial(web)
        certificate(tmp_path)  # The files are new, and nobody has said so.
        assert serial(web) == first
        mine.load()
        second = serial(web)
        assert second != first
        certificate(tmp_path)
        other = trustme.CA().issue_cert("127.0.0.1")
        (tmp_path / "web.key").write_bytes(other.private_key_pem.bytes())
        with pytest.raises(UsageError, match="KEY_VALUES_MISMATCH"):
            mine.load()
        assert serial(web) == second  # not a new certificate with an old key
        assert ask(web, "/api/summary").status == 200


def test_clients_that_do_not_finish_their_handshake_shut_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 5)
    with serving(empty_view(), access={"certificate": certificate(tmp_path)}) as web:
        trusting = ssl.create_default_context()
        AUTHORITY.configure_trust(trusting)
        known = http.client.HTTPSConnection(*web.place, timeout=20, context=trusting)
        known.request("GET", "/api/summary")
        assert Answer(known.getresponse()).status == 200
        silent = [socket.create_connection(web.place, timeout=20) for _ in range(12)]
        for client in silent[:7]:
            assert client.recv(1) == b""
        known.request("GET", "/api/summary")  # one that has finished it is not cut
        assert Answer(known.getresponse()).status == 200
        known.close()
        assert ask(web, "/api/summary").status == 200
        for client in silent:
            client.close()


def test_files_that_are_no_certificate_are_refused(tmp_path: Path) -> None:
    certificate(tmp_path)
    cert, key, junk = tmp_path / "web.crt", tmp_path / "web.key", tmp_path / "junk"
    junk.write_text("junk")
    locked = tmp_path / "locked.key"
    made = subprocess.run(
        ["openssl", "rsa", "-aes128", "-passout", "pass:geheim", "-in", key, "-out", locked], capture_output=True
    )
    both = tmp_path / "both.pem"
    both.write_bytes(cert.read_bytes() + key.read_bytes())
    Certificate(both)
    cases: list[tuple[Path, Path | None, str]] = [
        (tmp_path / "none", key, f"{tmp_path / 'none'} cannot be read: No such file"),
        (cert, tmp_path / "none", f"{tmp_path / 'none'} cannot be read: No such file"),
        (cert, tmp_path, f"{tmp_path} cannot be read: Is a directory"),
        (junk, key, "give a certificate in PEM"),
        (cert, junk, "give a certificate in PEM"),
        (cert, None, "the private key that belongs to it"),
        *([(cert, locked, "without a passphrase")] if made.returncode == 0 else []),
    ]
    for first, second, why in cases:
        with pytest.raises(UsageError) as refused:
            Certificate(first, second)
        assert str(refused.value).startswith(f"--web-cert {first}")
        assert why in str(refused.value), (first, second)
