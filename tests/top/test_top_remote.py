"""The view at a web address: questions over HTTP, a token, events, and links that break."""

from __future__ import annotations

import asyncio
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from superhosts.alerts.store import AlertStore
from superhosts.errors import InputError, UsageError
from superhosts.top import remote
from superhosts.top.app import TopApp
from superhosts.top.feed import LinkError
from superhosts.top.remote import RefusedLinkError, RemoteFeed, read_token
from top import scene
from top.scene import make_view, ready, shown
from top.webview import served
from waiting import wait_for

QUICK = (0.01,)


def test_answers_are_those_of_the_view(tmp_path: Path) -> None:
    view = make_view()
    view.alerts = AlertStore(tmp_path / "alerts.db")
    with served(view) as web:
        feed = RemoteFeed(f"{web.address}/")
        assert feed.summary()["title"] == "hub fra"
        assert feed.windows() == _plain(view.windows())
        span = view.windows()[3]
        assert feed.window(span["start"], span["end"]) == _plain(view.window(span["start"]))
        assert feed.window()["rows"][0]["host"] == "10.20.4.17"
        assert feed.host("2001:db8:20::25") == _plain(view.host("2001:db8:20::25"))
        assert [site["site"] for site in feed.list_sites()] == ["ams", "fra", "lon", "vie"]
        feed.mute("10.0.0.0/24", "scan-out", 3600.0, "known & trusted")
        (muted,) = feed.list_alerts()["muted"]
        assert (muted["host"], muted["rule"], muted["why"]) == ("10.0.0.0/24", "scan-out", "known & trusted")
        feed.unmute("10.0.0.0/24", "scan-out")
        assert feed.list_alerts()["muted"] == []
        with pytest.raises(UsageError, match="this window is not known here"):
            feed.window(1.0, 2.0)
        with pytest.raises(UsageError, match="mute"):
            feed.mute("no address", "", 1.0, "")


def _plain(found: Any) -> Any:
    import json

    return json.loads(json.dumps(found))


def test_a_token_opens_and_a_wrong_one_does_not(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret-42\n")
    with served(make_view(), token="secret-42") as web:
        assert RemoteFeed(web.address, read_token(tmp_path / "token")).summary()["title"] == "hub fra"
        for token in ("", "wrong"):
            with pytest.raises(RefusedLinkError, match="a token is needed; give the token with --token-file FILE"):
                RemoteFeed(web.address, token).summary()


@pytest.mark.parametrize("content", [b"", b"\n", b"two words", b"\xff\xfe", b"x" * 9000, b"a\x1bb"])
def test_files_without_a_token(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "token").write_bytes(content)
    with pytest.raises(InputError, match="holds no token"):
        read_token(tmp_path / "token")


def test_a_token_file_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_token(tmp_path / "none")


@pytest.mark.parametrize(
    "address", ["ftp://hub", "http://", "http://hub:port", "http://hub/?a=b", "http://me:pw@hub", "http://hub:99999"]
)
def test_addresses_that_are_wrong(address: str) -> None:
    with pytest.raises(UsageError):
        RemoteFeed(address)


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with pytest.raises(LinkError, match=r"Connection refused; trying again"):
        RemoteFeed(f"http://127.0.0.1:{port}").summary()


def answering(status: int, body: bytes, location: str = "") -> tuple[ThreadingHTTPServer, str]:
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
    return server, f"http://127.0.0.1:{server.server_address[1]}"


@pytest.mark.parametrize(
    ("status", "body", "kind", "words"),
    [
        (200, b"<html>", RefusedLinkError, "no view of superhosts answers there"),
        (200, b"[1]", LinkError, "not what a view"),
        (404, b"<html>", RefusedLinkError, "HTTP status 404"),
        (500, b"", LinkError, "HTTP status 500"),
        (400, b'{"error": "so\\u001bso"}', UsageError, r"so\\x1bso"),
    ],
)
def test_other_answers(status: int, body: bytes, kind: type[Exception], words: str) -> None:
    server, address = answering(status, body)
    try:
        with pytest.raises(kind, match=words):
            RemoteFeed(address).summary()
    finally:
        server.shutdown()
        server.server_close()


def test_redirects_are_not_followed() -> None:
    """The token is for the address that was given."""
    with served(make_view()) as web:
        server, address = answering(302, b"", f"{web.address}/api/summary")
        try:
            with pytest.raises(UsageError, match="302"):
                RemoteFeed(address, "secret").summary()
        finally:
            server.shutdown()
            server.server_close()
        assert web.asked == []


def test_an_answer_that_does_not_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "LARGEST", 1000)
    with served(make_view()) as web, pytest.raises(LinkError, match="too long"):
        RemoteFeed(web.address).windows()


def test_changes_come_as_events_and_a_broken_link_is_opened_again() -> None:
    view, heard = make_view(), []
    with served(view) as web:
        feed = RemoteFeed(web.address, pauses=QUICK)
        feed.follow(lambda: heard.append((view.board.version, feed.lost)))
        wait_for(lambda: heard and web.streams == 1, "the first look")
        view.board.put(shown(scene.WINDOWS))
        wait_for(lambda: heard[-1] == (view.board.version, ""), lambda: heard)
        web.stop()
        wait_for(lambda: feed.lost, "the link is lost")
        view.board.put(shown(scene.WINDOWS + 1))
        web.start()
        wait_for(lambda: not feed.lost and heard[-1] == (view.board.version, ""), lambda: heard)
        feed.close()


def test_a_quiet_link_is_not_a_lost_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "QUIET", 0.05)
    lost: list[str] = []
    with served(make_view()) as web:
        feed = RemoteFeed(web.address, pauses=QUICK)
        feed.follow(lambda: lost.append(feed.lost))
        wait_for(lambda: web.asked.count("/api/events") >= 3, "the connection is opened again")
        assert set(lost) == {""}
        feed.close()


def test_the_screen_over_a_link_that_breaks() -> None:
    view = make_view(3)

    async def run(web: Any) -> None:
        feed = RemoteFeed(web.address, pauses=QUICK)
        app = TopApp(feed)
        async with app.run_test(size=(80, 24)) as pilot:

            def text() -> str:
                return "\n".join(scene.text_of(app.export_screenshot()))

            await ready(pilot, lambda: "10.20.4.17" in text() and "● live" in text())
            web.stop()
            await ready(pilot, lambda: "link lost" in text() and "trying again" in text())
            assert "10.20.4.17" in text()
            view.board.put(shown(scene.WINDOWS, [("192.0.2.1", "", "", 50_000, 0.02, ())]))
            web.start()
            await ready(pilot, lambda: "192.0.2.1" in text() and "● live" in text())
            await pilot.press("enter")
            await ready(pilot, lambda: "Past" in text())
        feed.close()

    with served(view) as web:
        asyncio.run(run(web))
