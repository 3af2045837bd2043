"""The endpoint answers small, quick requests, and survives all others."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

from scraping import ask
from superhosts.errors import OutputError
from superhosts.ui.endpoint import LARGEST, THREADS, Answer, Place, Server
from waiting import DEADLINE, wait_for

ANYWHERE = Place("127.0.0.1", 0)
LONG = b"x" * (8 << 20)  # more than the system keeps for a reader


def fail() -> Answer:
    raise RuntimeError("dictionary changed size")


ROUTES = {"/ok": lambda: Answer(200, b"fine\n"), "/long": lambda: Answer(200, LONG), "/broken": fail}


@pytest.fixture
def server() -> Iterator[Server]:
    """A server with much patience: whatever a busy machine does, requests are not too slow for it."""
    made = Server(ANYWHERE, ROUTES, reading=DEADLINE)
    yield made
    made.close()


@pytest.fixture
def hasty() -> Iterator[Server]:
    made = Server(ANYWHERE, ROUTES, reading=0.2, writing=0.2)
    yield made
    made.close()


def connect(server: Server) -> socket.socket:
    return socket.create_connection(server.place, timeout=DEADLINE)


def send(server: Server, request: bytes) -> bytes:
    with connect(server) as client, contextlib.suppress(ConnectionError):
        client.sendall(request)
        answer = b""
        while piece := client.recv(1 << 16):
            answer += piece
        return answer
    return b""


def is_fine(server: Server) -> bool:
    return bool(wait_for(lambda: ask(f"http://{server.place}/ok").text == "fine\n", "an answer"))


def test_each_request_gets_its_status(server: Server) -> None:
    for request, status in {
        b"GET /ok HTTP/1.1\r\nHost: x\r\n\r\n": b"200",
        b"GET /ok?x=1 HTTP/1.0\r\n\r\n": b"200",
        b"GET /other HTTP/1.1\r\n\r\n": b"404",
        b"GET /../../etc/passwd HTTP/1.1\r\n\r\n": b"404",
        b"POST /ok HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello": b"405",
        b"GET /broken HTTP/1.1\r\n\r\n": b"500",
        b"GET /ok\r\n\r\n": b"400",
        b"\r\n\r\n": b"400",
        b"\x16\x03\x01\x02\x00\x01\xff\xfe\r\n\r\n": b"400",
        b"GET /ok HTTP/2.0\r\n\r\n": b"400",
        b"GET /" + b"a" * (LARGEST + 1): b"431",
    }.items():
        assert send(server, request).split(b" ")[1] == status
        assert is_fine(server)


def test_a_request_that_does_not_come_in_time_is_not_waited_for(hasty: Server) -> None:
    for request in (b"", b"G", b"GET /ok HTTP/1.1\r\nHost: x\r\n"):
        assert send(hasty, request).startswith(b"HTTP/1.1 408")


def test_the_time_is_that_of_the_whole_request(hasty: Server) -> None:
    with connect(hasty) as client:
        client.setblocking(False)
        answer = b""

        def trickle() -> bytes:
            nonlocal answer
            with contextlib.suppress(BlockingIOError):
                answer = client.recv(100)
            with contextlib.suppress(ConnectionError):
                client.send(b"x")
            return answer

        wait_for(trickle, "an answer")
    assert answer.startswith(b"HTTP/1.1 408")


def test_a_head_has_no_content_and_may_come_byte_by_byte(server: Server) -> None:
    with connect(server) as client:
        for byte in b"HEAD /ok HTTP/1.1\r\n\r\n":
            client.send(bytes([byte]))
        answer = client.recv(1000)
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"Content-Length: 5\r\n" in answer
    assert answer.endswith(b"\r\n\r\n")


@pytest.mark.slow
def test_more_slow_clients_than_threads_are_turned_away_and_others_get_their_answer(hasty: Server) -> None:
    with contextlib.ExitStack() as clients:
        slow = [clients.enter_context(connect(hasty)) for _ in range(3 * THREADS)]
        for client in slow:
            client.send(b"GET /ok HT")
        assert is_fine(hasty)
        assert all(client.recv(100).startswith(b"HTTP/1.1 408") for client in slow[:THREADS])


def test_a_client_that_does_not_read_is_left(hasty: Server) -> None:
    with contextlib.ExitStack() as clients:
        for _ in range(2 * THREADS):
            client = clients.enter_context(connect(hasty))
            client.send(b"GET /long HTTP/1.1\r\n\r\n")
        assert is_fine(hasty)


def test_clients_that_go_away_do_no_harm(server: Server) -> None:
    for request in (b"", b"GET", b"GET /long HTTP/1.1\r\n\r\n"):
        for _ in range(3 * THREADS):
            with connect(server) as client:
                client.sendall(request)
    assert is_fine(server)


def test_a_place_that_is_taken_is_named(server: Server) -> None:
    with pytest.raises(OutputError, match=f"--metrics {server.place}: cannot listen there: Address already in use"):
        Server(server.place, ROUTES)


def test_a_server_that_was_closed_answers_nobody() -> None:
    made = Server(ANYWHERE, ROUTES)
    assert is_fine(made)
    made.close()
    with pytest.raises(ConnectionRefusedError):
        connect(made)
    for thread in made._threads:
        thread.join(DEADLINE)
        assert not thread.is_alive()


def test_it_listens_on_ipv6(server: Server) -> None:
    try:
        made = Server(Place("::1", 0), ROUTES)
    except OutputError:
        pytest.skip("this machine has no IPv6")
    assert ask(f"http://{made.place}/ok").status == 200
    made.close()
