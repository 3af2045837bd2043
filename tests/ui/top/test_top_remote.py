"""The view of a real dashboard: questions over HTTP, a token, events, links that break, and answers of others."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from dashboards import serving
from superhosts.errors import UsageError
from superhosts.output.alerts.store import AlertStore
from superhosts.ui.folder import LONGEST_PAST, SketchFolder
from superhosts.ui.top.app import TopApp
from superhosts.ui.top.feed import HOST_TIMEOUT, LinkError, RefusedLinkError, RemoteFeed
from ui.top import scene
from ui.top.scene import make_view, ready, shown
from waiting import wait_for

QUICK = (0.01,)
TOKEN = "secret-42"


def test_answers_are_those_of_the_view(tmp_path: Path) -> None:
    view = make_view()
    view.alerts = AlertStore(tmp_path / "alerts.db")
    with serving(view) as web:
        feed = RemoteFeed(web.url)
        assert feed.summary()["title"] == "hub fra"
        assert feed.windows() == _plain(view.windows())
        span = view.windows()[3]
        assert feed.window(span["start"], span["end"]) == _plain(view.window(span["start"]))
        assert feed.window()["rows"][0]["host"] == "10.20.4.17"
        assert feed.host("2001:db8:20::25") == _plain(view.host("2001:db8:20::25"))
        assert feed.list_sites() == _plain(view.list_sites())
        feed.mute("10.0.0.0/24", "scan-out", 3600.0, "known & trusted")
        (muted,) = feed.list_alerts()["muted"]
        assert (muted["host"], muted["rule"], muted["why"]) == ("10.0.0.0/24", "scan-out", "known & trusted")
        assert feed.unmute("10.0.0.0/24", "scan-out")
        assert feed.list_alerts()["muted"] == []
        assert not feed.unmute("10.0.0.0/24", "scan-out")
        with pytest.raises(UsageError, match="this window is not known here"):
            feed.window(1.0, 2.0)
        with pytest.raises(UsageError, match="mute"):
            feed.mute("no address", "", 1.0, "")


def _plain(found: Any) -> Any:
    return json.loads(json.dumps(found))


def test_a_token_opens_and_a_wrong_one_does_not() -> None:
    with serving(make_view(), token=TOKEN) as web:
        assert RemoteFeed(web.url, TOKEN).summary()["title"] == "hub fra"
        for token in ("", "wrong"):
            with pytest.raises(RefusedLinkError, match=r"a token is needed.*; give the token with --token-file FILE"):
                RemoteFeed(web.url, token).summary()


def test_addresses_that_are_wrong() -> None:
    wrong = "ftp://hub http:// http://hub:port http://hub/?a=b http://me:pw@hub http://hub:99999 http://a..b:8105"
    for address in (*wrong.split(), f"http://{'long' * 20}:8105"):
        with pytest.raises(UsageError):
            RemoteFeed(address)


def test_a_name_that_cannot_be_looked_up_is_a_lost_link(monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(*_: Any, **__: Any) -> Any:
        raise UnicodeError("label empty or too long")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with pytest.raises(LinkError, match="label empty or too long; trying again"):
        RemoteFeed("http://hub.example:8105").summary()


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with pytest.raises(LinkError, match=r"Connection refused; trying again"):
        RemoteFeed(f"http://127.0.0.1:{port}").summary()


@contextlib.contextmanager
def answering(status: int, body: bytes, location: str = "") -> Iterator[str]:
    """Give another server's address, which answers everything with the same."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            if location:
                self.send_header("Location", location)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def test_other_answers() -> None:
    cases: list[tuple[int, bytes, type[Exception], str]] = [
        (200, b"<html>", RefusedLinkError, "no view of superhosts answers there"),
        (200, b"[" * 100_000, RefusedLinkError, "no view of superhosts answers there"),
        (200, b"[1]", LinkError, r"not what a view of superhosts answers \(field summary: "),
        (200, b'{"can": []}', LinkError, r"not what a view of superhosts answers \(field summary.can: "),
        (404, b"<html>", RefusedLinkError, "HTTP status 404"),
        (500, b"", LinkError, "HTTP status 500"),
        (503, b'{"error": "other questions"}', LinkError, "other questions"),
        (400, b'{"error": "so\\u001bso"}', UsageError, r"so\\x1bso"),
    ]
    for status, body, kind, words in cases:
        with answering(status, body) as address, pytest.raises(kind, match=words):
            RemoteFeed(address).summary()


def test_redirects_are_not_followed() -> None:
    """The token is for the address that was given."""
    view, asked = make_view(), []
    view.summary = lambda: asked.append(1)
    with serving(view) as web, answering(302, b"", f"{web.url}api/summary") as address:
        with pytest.raises(UsageError, match="302"):
            RemoteFeed(address, "secret").summary()
        assert asked == []


def test_an_answer_that_does_not_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("superhosts.ui.top.feed.LARGEST_ANSWER", 1000)
    with serving(make_view()) as web, pytest.raises(LinkError, match="too long"):
        RemoteFeed(web.url).windows()


@pytest.mark.slow
def test_the_past_of_a_host_may_take_as_long_as_the_other_side_lets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    patience = inspect.signature(SketchFolder.past).parameters["patience"].default
    assert LONGEST_PAST + patience < HOST_TIMEOUT
    monkeypatch.setattr("superhosts.ui.top.feed.TIMEOUT", 0.2)
    view = make_view(3)
    host, windows = view.host, view.windows()
    view.host = lambda *asked: time.sleep(0.6) or host(*asked)
    view.windows = lambda: time.sleep(0.6) or windows
    with serving(view) as web:
        feed = RemoteFeed(web.url)
        assert len(feed.host("10.20.4.17")["points"]) == 3
        with pytest.raises(LinkError, match="no answer"):
            feed.windows()


def test_a_quiet_link_is_not_a_lost_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("superhosts.ui.top.feed.QUIET", 0.05)
    lost: list[str] = []
    with serving(make_view()) as web:
        feed = RemoteFeed(web.url, pauses=QUICK)
        feed.follow(lambda: lost.append(feed.lost))
        wait_for(lambda: len(lost) >= 5, "the connection is opened again")  # It tells once or twice what there is.
        assert set(lost) == {""}
        feed.close()


@pytest.mark.slow
def test_the_screen_over_a_link_that_breaks() -> None:
    view = make_view(3)

    async def run(first: contextlib.ExitStack, second: contextlib.ExitStack) -> None:
        web = first.enter_context(serving(view))
        feed = RemoteFeed(web.url, pauses=QUICK)
        app = TopApp(feed)
        async with app.run_test(size=(80, 24)) as pilot:
            await ready(pilot, lambda: "10.20.4.17" in text(app) and "● live" in text(app))
            await asyncio.to_thread(first.close)
            await ready(pilot, lambda: "link lost" in text(app) and "trying again" in text(app))
            assert "10.20.4.17" in text(app)
            view.board.put(shown(scene.WINDOWS, [("192.0.2.1", "", "", 50_000, 0.02, ())]))
            await asyncio.to_thread(second.enter_context, serving(view, port=web.place.port))
            await ready(pilot, lambda: "192.0.2.1" in text(app) and "● live" in text(app))
            await pilot.press("enter")
            await ready(pilot, lambda: "Past" in text(app))
        feed.close()

    with contextlib.ExitStack() as first, contextlib.ExitStack() as second:
        asyncio.run(run(first, second))


def text(app: TopApp) -> str:
    return "\n".join(scene.text_of(app.export_screenshot()))
