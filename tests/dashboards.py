"""A dashboard with everything on it, for tests, pictures and measurements: windows, sketches, alerts, sites."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cli.test_hosts import NOON, save
from superhosts.cli.web import site_list
from superhosts.core.pairs import Part, Window
from superhosts.core.results import Selection
from superhosts.fleet.report import HubReport
from superhosts.output.alerts.machine import Policy
from superhosts.output.alerts.rules import Rule
from superhosts.output.alerts.store import AlertDesk, AlertStore
from superhosts.ui.board import Board
from superhosts.ui.endpoint import Place
from superhosts.ui.folder import PartState, SketchFolder
from superhosts.ui.view import View
from superhosts.ui.web.access import Access
from superhosts.ui.web.server import WebServer
from traffic import MINUTES

LENGTH = 5 * MINUTES
SITES = ["ams", "fra", "nyc"]
SHARES = (0.71, 0.46, 0.18)  # of a host's peers, which each of its sites has seen
KNOWN = {  # what is known of some hosts: label, pattern and its reason
    "10.0.0.1": ("resolver-1", "reflector or resolver", "it asks 99 % of its peers, 98 % answer, 96 % on udp/53"),
    "10.1.4.20": ("mail gateway", "mail server", "99 % of the peers ask it, 97 % get an answer, 95 % on tcp/25"),
    "10.2.7.66": ("", "horizontal scan", "it asks, 97 % do not answer, 97 % on tcp/445, about 2.1 packets a peer"),
    "10.3.0.9": ("build farm, node 9", "", ""),
    "10.1.9.140": ("web cache", "web server", "99 % of the peers ask it, 98 % get an answer, 96 % on tcp/443"),
}
EVIDENCE = {
    "pairs": 412,
    "complete": False,
    "answered": 0.014,
    "attempts": 405,
    "failed": 0.983,
    "opened": 1.0,
    "ports": [
        {"port": "tcp/445", "at": "peer", "share": 0.951},
        {"port": "icmp", "at": None, "share": 0.03},
        {"port": "tcp/8080", "at": "host", "share": 0.019},
    ],
    "ports_per_peer": 1.0,
    "packets_per_peer": 1.1,
    "nets": {"/16": 409, "/24": 412},
    "map": {
        "within": "0.0.0.0/0",
        "cells": "".join("0" if at % 5 == 0 else "2" if at % 7 else "9" for at in range(256)),
    },
    "peers": ["1.9.77.203", "23.201.4.18", "77.12.191.6", "102.65.33.240", "151.80.9.9", "203.0.113.77"],
}


PORTS = {
    "reflector or resolver": [{"port": "udp/53", "at": "peer", "share": 0.96}],
    "mail server": [{"port": "tcp/25", "at": "host", "share": 0.95}],
    "web server": [{"port": "tcp/443", "at": "host", "share": 0.96}],
}


def row(host: str, peers: int | None, window: int, **more: Any) -> dict[str, Any]:
    """Return a row as a hub has it, with an interval of about 3 percent on either side."""
    label, pattern, reason = KNOWN.get(host, ("", "", ""))
    known = 65_000 if peers is None else peers
    found = {
        "host": host,
        "family": 4,
        "side": "inner",
        "direction": "any",
        "peers": peers,
        "peers_low": known if peers is None else round(known * 0.97),
        "peers_high": None if peers is None else round(known * 1.03),
        "exact": False,
        "saturated": peers is None,
        "detector": "cube",
        "label": label or None,
        "sites": seen_at(SITES[: 1 + window % 3] if host == "10.2.7.66" else SITES[:2], known),
    }
    if pattern:
        evidence = EVIDENCE | ({"ports": PORTS[pattern]} if pattern in PORTS else {})
        found |= {"pattern": pattern, "reason": reason, "evidence": evidence}
    return found | more


def seen_at(sites: list[str], peers: int) -> list[dict[str, Any]]:
    """Return the sites that saw a host with so many peers, as a hub has them in its rows."""
    found = []
    for name, share in zip(sites, SHARES, strict=False):
        part = round(peers * share)
        found.append({"site": name, "peers": part, "peers_low": round(part * 0.96), "peers_high": round(part * 1.04)})
    return found


def rows_of(window: int, count: int = 36) -> list[dict[str, Any]]:
    dice = random.Random(window)
    found = [
        row("10.0.0.1", 24_000 + dice.randrange(-900, 900), window),
        row("10.1.9.140", 9_800 + dice.randrange(-500, 500), window),
        row("10.1.4.20", 5_200 + dice.randrange(-300, 300), window),
        row("10.3.0.9", 2_300 + dice.randrange(-250, 250), window),
    ]
    if window >= 14:
        found.append(row("10.2.7.66", 1_100 + 1_450 * (window - 14), window))
    for number in range(count - len(found) - dice.randrange(0, 9)):
        host = f"10.{4 + number % 3}.{number % 17}.{20 + number % 200}"
        found.append(row(host, round(min(1024 * (1 + dice.paretovariate(1.6)) / 1.9, 8000)), window))
    found = [each for each in found if each["peers"] >= 1024]
    return sorted(found, key=lambda each: -each["peers"])


def report(window: int, rows: list[dict[str, Any]] | None = None, **more: Any) -> HubReport:
    found = rows_of(window) if rows is None else rows
    start = NOON + window * LENGTH
    title = f"{len(found)} hosts with at least 1,024 peers"
    settings: dict[str, Any] = {"sites": SITES, "missing": [], "refused": {}, "title": title, **more}
    settings = {"revision": 1, "threshold": 1024.0, **settings}
    rows = [{**each, "missing": settings["missing"], "revision": settings["revision"]} for each in found]
    return HubReport(rows=rows, window=Window(start, start + LENGTH), **settings)


def site(**more: Any) -> dict[str, Any]:
    usual = {"seen": NOON / 1e9 + 24 * 300 + 12, "version": "0.1.0", "window_end": NOON / 1e9 + 24 * 300, "clock": 0.02}
    counts = dict.fromkeys(("spool_sketches", "spool_bytes", "refused", "slowed"), 0)
    return {**usual, **counts, "accepted": 288, "mismatch": "", **more}


class Shown:
    """A view with all that it can have; `add` shows one more window, as a hub does."""

    def __init__(self, folder: Path, windows: int = 24) -> None:
        self.board = Board()
        archive = folder / "archive"
        for number in range(4):
            save(archive / f"{number}-ams.cube", "ams", NOON + (windows - 4 + number) * LENGTH)
        save(archive / "0-frank.cube", "frank", NOON + (windows - 4) * LENGTH)
        policy = Policy([Rule(name="many-peers", threshold=5000.0)])
        self.desk = AlertDesk(AlertStore(folder / "alerts.sqlite"), policy, [], print)
        self.alerts = AlertStore(folder / "alerts.sqlite")
        self.sites = {"ams": site(), "fra": site(clock=-7.4), "nyc": site(spool_sketches=12, spool_bytes=31 << 20)}
        self.sites["nyc"] |= {"refused": 3, "seen": NOON / 1e9 + 23 * 300}
        self.view = View(
            "hub fra",
            self.board,
            lambda: Selection(1024.0),
            is_live=True,
            folder=SketchFolder(archive),
            alerts=self.alerts,
            sites=self.list_sites,
            parts=lambda: {
                Part(4): PartState(exact=False, pairs=2_400_000, fill=0.31, saturated=0),
                Part(6): PartState(exact=True, pairs=48_000, capacity=0.04),
            },
            clock=lambda: NOON / 1e9 + self.next * LENGTH / 1e9 + 30.0,
        )
        self.next = 0
        for _ in range(windows):
            self.add()

    def add(self, rows: list[dict[str, Any]] | None = None, **more: Any) -> None:
        made = report(self.next, rows, **more)
        self.desk.write(made)
        self.board.write(made)
        self.next += 1

    def list_sites(self) -> list[dict[str, Any]]:
        """Return the sites as a hub does, of which one is missing in the newest window."""
        return [{**each, "in_window": each["site"] != "nyc"} for each in site_list(self.sites, self.board)]

    def close(self) -> None:
        self.desk.close()
        self.alerts.close()


@contextlib.contextmanager
def serving(
    view: View, *, token: str | None = None, port: int = 0, access: dict[str, Any] | None = None, **limits: float
) -> Iterator[WebServer]:
    """Serve a view at a port of its own, or at a given one. Errors that nobody expects fail the test.

    Changes are told to `told` of the server.
    """
    told: list[Any] = []
    server = WebServer(view, Access(Place("127.0.0.1", port), token, **access or {}), told.append, **limits)
    server.told = told  # type: ignore[attr-defined]
    try:
        yield server
    finally:
        server.close()
    assert [each for each in told if getattr(each, "event", "") != "changed"] == []
