"""The dashboard of real commands: `hub --web`, `watch --web` and `superhosts web`."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import ssl
import stat
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cli.test_hosts import NOON as FIRST
from cli.test_hosts import save
from commands import Run
from processes import Node, ending, make_edge, make_hub_on_files, sites_traffic, write_captures
from superhosts.cli._options import DashboardOptions
from superhosts.cli.web import Dashboard, site_list
from superhosts.core.results import Selection
from superhosts.errors import UsageError
from superhosts.output.alerts.store import AlertStore
from superhosts.ui.board import Board
from superhosts.ui.view import View
from traffic import MINUTES, three_windows, write
from ui.web.test_web_server import AUTHORITY, certificate
from waiting import wait_for

WINDOWS = 3


def dashboard(node: Node) -> str:
    """Return where a dashboard is, once it is told."""
    told = r'dashboard at (http://[^ ;"]+/)'
    wait_for(lambda: re.search(told, node.words) or not node.running, lambda: node.words)
    found = re.findall(told, node.words)
    assert found, node.words
    return str(found[-1])


def get(node: Node, name: str, **headers: str) -> Any:
    request = urllib.request.Request(f"{dashboard(node)}api/{name}", headers=headers)
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Node, Path]]:
    """A hub that has reported all closed windows of a site, with labels and alerts."""
    folder = tmp_path_factory.mktemp("hub")
    write_captures(folder / "captures", sites_traffic(WINDOWS)["ams"], 1000)
    (folder / "conf.toml").write_text('[[rule]]\nname = "many"\nthreshold = 100\n')
    (folder / "labels.csv").write_text("0.0.0.0/0,somewhere\n")
    options = ["--web", ":0", "--alerts", str(folder / "alerts.sqlite"), "--config", str(folder / "conf.toml")]
    options += ["--labels", str(folder / "labels.csv"), "--grace", "1s"]
    node, link = make_hub_on_files(folder, *options, sites=("ams", "fra"))
    edge = make_edge(folder, "ams", link, str(folder / "captures"), "--window", "60s")
    with ending(node, edge):
        node.start()
        edge.start()
        wait_for(lambda: len(get(node, "windows")) == WINDOWS - 1, lambda: node.words + edge.words)
        yield node, folder
        assert (edge.end(), node.end()) == (0, 0)


@pytest.mark.slow
def test_a_hub_shows_everything(hub: tuple[Node, Path]) -> None:
    node, folder = hub
    summary = get(node, "summary")
    assert summary["title"] == "hub"
    assert not summary["live"]  # its windows are of another time
    assert summary["can"] == {"ask": True, "sites": True, "alerts": True, "parts": True}
    window = get(node, "window")
    written = [json.loads(line) for line in (folder / "found.jsonl").read_text().splitlines()]
    end = max(row["window_end"] for row in written)
    assert window["rows"] == [row for row in written if row["window_end"] == end]
    assert {row["label"] for row in window["rows"]} == {"somewhere"}
    assert (window["sites"], window["missing"], window["notes"]) == (["ams"], ["fra"], [])
    assert window["super_hosts"] == window["hosts"] == len(window["rows"])
    sites = {each["site"]: each for each in get(node, "sites")}
    assert sites["ams"]["in_window"] is True
    assert sites["ams"]["accepted"] >= WINDOWS - 1
    assert sites["fra"]["in_window"] is False
    assert get(node, "alerts")["alerts"]
    assert get(node, "sketch")["parts"][0]["exact"] is not None


def test_a_hubs_archive_is_asked(hub: tuple[Node, Path]) -> None:
    node, _ = hub
    found = get(node, "ask?threshold=50")
    assert found["sketches"] == WINDOWS - 1
    assert found["rows"][0]["label"] == "somewhere"
    host = found["rows"][0]["host"]
    assert len(get(node, f"host?host={host}")["points"]) == WINDOWS - 1


@pytest.mark.slow
def test_a_reload_of_a_hub_leaves_the_dashboard(hub: tuple[Node, Path]) -> None:
    node, _ = hub
    before = node.words.count("reloaded: ")
    node.process.send_signal(signal.SIGHUP)
    wait_for(lambda: node.words.count("reloaded: ") > before, lambda: node.words)
    assert len(get(node, "windows")) == WINDOWS - 1


def test_a_watch_shows_its_windows_and_asks_its_sketches(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    write(tmp_path / "in" / "three.pcap", three_windows())
    options = ["--inner", "10.0.0.0/8", "--memory", "1MiB", "--threshold", "5", "--save", str(tmp_path / "saved")]
    node = Node(tmp_path / "watch.log", "watch", str(tmp_path / "in"), *options, "--web", ":0")
    with ending(node):
        node.start()
        wait_for(lambda: len(get(node, "windows")) == 2, lambda: node.words)  # the third is open
        assert get(node, "summary")["can"] == {"ask": True, "sites": False, "alerts": False, "parts": True}
        assert get(node, "window")["rows"]
        assert get(node, "sketch")["parts"][0]["exact"] is True
        wait_for(lambda: len(list((tmp_path / "saved").rglob("*.cube"))) == 2, lambda: node.words)
        assert get(node, "ask?top=3")["sketches"] == 2
        assert node.end() == 128 + signal.SIGTERM


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    for number in range(2):
        save(tmp_path / "archive" / f"{number}-ams.cube", "ams", FIRST + number * 5 * MINUTES)
    return tmp_path / "archive"


@pytest.mark.slow
def test_a_folder_is_shown_and_new_sketches_appear(archive: Path, tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in archive.rglob("*")}
    (tmp_path / "labels.csv").write_text("10.0.0.0/24,office\n")
    status = {"sites": {"ams": {"seen": 5.0, "accepted": 2}, "wrong": 3}}
    (archive / "status.json").write_text(json.dumps(status))
    AlertStore(archive / "alerts.db").close()
    options = ["--threshold", "100", "--web", ":0", "--labels", str(tmp_path / "labels.csv")]
    node = Node(tmp_path / "web.log", "web", str(archive), *options)
    with ending(node):
        node.start()
        wait_for(lambda: len(get(node, "windows")) == 2, lambda: node.words)
        rows = get(node, "window")["rows"]
        assert [(row["host"], row["label"]) for row in rows] == [("10.0.0.1", "office"), ("10.1.0.3", None)]
        assert get(node, "summary")["can"] == {"ask": True, "sites": True, "alerts": True, "parts": True}
        assert get(node, "sites") == [
            {"site": "ams", "in_window": True, "seen": 5.0, "accepted": 2, "clock_wrong": False}
        ]
        save(archive / "2-ams.cube", "ams", FIRST + 10 * MINUTES)
        wait_for(lambda: len(get(node, "windows")) == 3, lambda: node.words)
        assert node.end() == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before


@contextmanager
def served(capsys: pytest.CaptureFixture[str], **options: Any) -> Iterator[tuple[str, str]]:
    """Serve an empty view to others, as `--web` does; yield what is told, and the URL of the summary."""
    view = View("sketches", Board(), lambda: Selection(1024.0))
    with Dashboard(DashboardOptions(web="0.0.0.0:0", **options)).serving(view):
        told = capsys.readouterr().err
        yield told, "http://127.0.0.1:{}/api/summary".format(*re.findall(r"http://0\.0\.0\.0:(\d+)/", told))


def status_of(url: str, **headers: str) -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=120) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_a_token_is_made_and_kept_for_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    token = tmp_path / "token"
    with served(capsys, web_token_file=token) as (told, url):
        word = token.read_text().strip()
        assert (stat.S_IMODE(token.stat().st_mode), len(word) >= 32, word in told) == (0o600, True, False)
        assert (status_of(url), status_of(url, Authorization=f"Bearer {word}")) == (401, 200)
    with served(capsys, web_token_file=token):
        assert token.read_text().strip() == word


def test_without_a_file_a_token_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    with served(capsys) as (told, url):
        (word,) = re.findall(r"/\?token=([\w-]{32}) ", told)
        assert status_of(url, Authorization=f"Bearer {word}") == 200


def test_behind_a_proxy_no_token_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    with served(capsys, web_trust_proxy=["Hub.example.org"]) as (_, url):
        assert [status_of(url, Host=host) for host in ("hub.example.org", "evil.example")] == [200, 400]


def test_options_that_cannot_be_are_refused(run: Run, archive: Path, tmp_path: Path) -> None:
    (tmp_path / "short").write_text("short\n")
    assert "--web-token-file: only with --web" in run("watch", "x.pcap", "--web-token-file", "token").err
    assert "at least 16 characters" in run("web", archive, "--web-token-file", tmp_path / "short").err
    assert "is not an address to listen at" in run("web", archive, "--web", "8105").err
    assert "no folder of sketches is here" in run("web", tmp_path / "nowhere").err
    assert "no alerts are kept here" in run("web", archive, "--alerts", tmp_path / "none.sqlite").err
    assert "cannot listen there" in run("web", archive, "--web", "203.0.113.1:80").err
    assert not list(tmp_path.glob("*.sqlite"))


@pytest.mark.parametrize("package", ["starlette", "uvicorn"])
def test_missing_packages_are_named(run: Run, archive: Path, monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    ended = run("web", archive)
    assert (ended.status, "superhosts web needs packages" in ended.err) == (2, True)
    assert "pip install 'superhosts[web]'" in ended.err


def test_clocks_are_judged_as_the_hub_judges_them() -> None:
    clocks = {"a": 5.1, "b": -5.1, "c": 4.9, "d": None, "e": "late"}
    sites = site_list({name: {"clock": clock} for name, clock in clocks.items()}, Board())
    assert [each["clock_wrong"] for each in sites] == [True, True, False, False, False]


def test_a_hub_keeps_its_token_in_its_folder(tmp_path: Path) -> None:
    for options, asked in (
        (DashboardOptions(web="0.0.0.0:0"), True),
        (DashboardOptions(web="[::]:0"), True),
        (DashboardOptions(web="127.0.0.1:0"), False),
        (DashboardOptions(web="0.0.0.0:0", web_trust_proxy=["hub.example.org"]), False),
    ):
        token, told = Dashboard(options)._token(tmp_path)
        assert (token is not None) == asked
        if token is not None:
            kept = tmp_path / "web-token"
            assert stat.S_IMODE(kept.stat().st_mode) == 0o600
            assert kept.read_text() == f"{token}\n"
            assert token not in told
    assert len(list(tmp_path.iterdir())) == 1


# HTTPS and viewers


def test_a_token_of_viewers_is_made_and_may_only_look(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    both = {"web_token_file": tmp_path / "token", "web_viewer_token_file": tmp_path / "viewers"}
    with served(capsys, **both) as (told, url):
        words = [path.read_text().strip() for path in both.values()]
        assert f"viewers have the token in {tmp_path / 'viewers'}" in told
        assert not any(word in told for word in words)
        assert stat.S_IMODE((tmp_path / "viewers").stat().st_mode) == 0o600
        seen = [json.load(opened(url, word))["may_change"] for word in words]
        assert (seen, status_of(url)) == ([True, False], 401)
    (tmp_path / "viewers").write_text(f"{words[0]}\n")
    with pytest.raises(UsageError, match="has the token that may change things"), served(capsys, **both):
        pass


def opened(url: str, token: str) -> Any:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    return urllib.request.urlopen(request, timeout=120)


def test_with_viewers_this_machine_shows_a_token_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    view = View("sketches", Board(), lambda: Selection(1024.0))
    options = DashboardOptions(web=":0", web_viewer_token_file=tmp_path / "viewers")
    with Dashboard(options).serving(view):
        url = re.findall(r"http://[^/]+/", capsys.readouterr().err)[0]
        assert status_of(f"{url}api/summary") == 401


def test_settings_of_https_that_cannot_be_are_refused(run: Run, archive: Path, tmp_path: Path) -> None:
    certificate(tmp_path)
    (tmp_path / "short").write_text("short\n")
    for options, why in (
        (["--web-key", tmp_path / "web.key"], "--web-key: only with --web-cert"),
        (["--web-cert", tmp_path / "none"], f"{tmp_path / 'none'} cannot be read: No such file or directory"),
        (["--web-cert", tmp_path / "web.crt"], "the private key that belongs to it"),
        (["--web-viewer-token-file", tmp_path / "short"], "--web-viewer-token-file"),
    ):
        ended = run("web", archive, "--web", ":0", *options)
        assert (ended.status, why in ended.err) == (2, True), ended.err
    for option in ("--web-cert", "--web-key", "--web-viewer-token-file"):
        assert f"{option}: only with --web" in run("watch", "x.pcap", option, tmp_path / "web.crt").err


@pytest.mark.slow
def test_commands_show_the_dashboard_over_https_and_reload_its_certificate(archive: Path, tmp_path: Path) -> None:
    """`web` and `watch`; a hub takes both from the same class."""
    (tmp_path / "in").mkdir()
    write(tmp_path / "in" / "three.pcap", three_windows())
    certificate(tmp_path)
    environment = {**os.environ, "SUPERHOSTS_WATCH_WEB_CERT": str(tmp_path / "web.crt")}
    environment |= {"SUPERHOSTS_WATCH_WEB_KEY": str(tmp_path / "web.key")}
    options = ["--web-cert", str(tmp_path / "web.crt"), "--web-key", str(tmp_path / "web.key")]
    web = Node(tmp_path / "web.log", "web", str(archive), "--web", ":0", *options)
    watch = Node(tmp_path / "watch.log", "watch", str(tmp_path / "in"), "--json", "--web", ":0")
    trusting = ssl.create_default_context()
    AUTHORITY.configure_trust(trusting)

    def serial(node: Node) -> str:
        place = re.findall(r"dashboard at https://([^ ;\"]+):([0-9]+)/", node.words)[-1]
        client = socket.create_connection(place, timeout=60)
        with trusting.wrap_socket(client, server_hostname="127.0.0.1") as secured:
            found: Any = secured.getpeercert()
            return str(found["serialNumber"])

    for node, status in ((web, 0), (watch, 128 + signal.SIGTERM)):
        with ending(node):
            node.start(env=environment if node is watch else None)
            wait_for(lambda node=node: "dashboard at https://" in node.words, lambda node=node: node.words)
            before = serial(node)
            certificate(tmp_path)
            node.process.send_signal(signal.SIGHUP)
            wait_for(lambda node=node: "certificate of the dashboard" in node.words, lambda node=node: node.words)
            assert serial(node) != before
            (tmp_path / "web.key").write_text("junk")
            node.process.send_signal(signal.SIGHUP)
            wait_for(lambda node=node: "NOT RELOADED: certificate" in node.words, lambda node=node: node.words)
            serial(node)
            certificate(tmp_path)
            assert node.end() == status
