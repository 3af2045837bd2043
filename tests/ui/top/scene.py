"""A view with everything that the screen shows. Run this file to write the snapshots and docs/images/top.svg anew."""

from __future__ import annotations

import asyncio
import functools
import html
import itertools
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dashboards import EVIDENCE
from places import ROOT
from superhosts.cli.web import site_list
from superhosts.core.pairs import Window
from superhosts.core.results import Selection
from superhosts.output.alerts.machine import Alert, Policy
from superhosts.output.alerts.store import AlertStore
from superhosts.output.report import Report
from superhosts.ui.board import Board, Shown, shown_of
from superhosts.ui.top.app import TopApp
from superhosts.ui.view import View
from waiting import DEADLINE

NOON = 1_794_657_600 * 10**9  # 2026-11-14T12:00:00Z
LENGTH = 300 * 10**9
WINDOWS = 36
REASON = "it asks, 98 % do not answer, 95 % on tcp/445, about 1.1 packets a peer"
HOSTS: list[tuple[str, str, str, int, float, tuple[str, ...]]] = [
    ("10.20.4.17", "reception-pc", "horizontal scan", 18_402, 0.031, ("fra", "ams")),
    ("10.20.0.53", "resolver", "reflector or resolver", 9_377, 0.034, ("ams", "fra", "vie")),
    ("203.0.113.66", "www.example.org", "web server", 6_120, 0.036, ("vie",)),
    ("10.20.8.201", "build 7", "client, proxy or NAT", 3_984, 0.041, ("fra",)),
    ("2001:db8:20::25", "mail.example.org", "mail server", 2_210, 0.047, ("ams", "vie")),
    ("10.20.1.12", "backup", "", 1_840, 0.049, ("ams",)),
    ("198.51.100.9", "", "DDoS or flash crowd", 1_431, 0.053, ("vie", "ams")),
    ("10.20.4.99", "", "peer-to-peer", 1_207, 0.056, ("fra",)),
    ("10.20.16.4", "printer [3rd floor]", "", 1_064, 0.058, ("ams",)),
]


def row(host: str, name: str, pattern: str, peers: int, error: float, sites: tuple[str, ...]) -> dict[str, Any]:
    low, high = round(peers * (1 - error)), round(peers * (1 + error))
    return {
        "host": host,
        "side": "inner",
        "direction": "any",
        "peers": peers,
        "peers_low": low,
        "peers_high": high,
        "exact": False,
        "label": name or None,
        "pattern": pattern or None,
        "reason": REASON if "scan" in pattern else None,
        "evidence": EVIDENCE if "scan" in pattern else None,
        "sites": [
            {"site": site, "peers": peers // (place + 1), "peers_low": low // (place + 1), "peers_high": high}
            for place, site in enumerate(sites)
        ],
    }


def growth(number: int) -> float:
    """How much of its peers the scanner has in a window: it comes in waves, and has grown of late."""
    wave = (0.45, 0.5, 0.62, 0.58, 0.4, 0.33, 0.36, 0.41, 0.55)[number % 9]
    return wave * (0.5 + 0.5 * number / WINDOWS) if number < WINDOWS - 3 else 0.55 + 0.15 * (number - WINDOWS + 4)


def shown(number: int, hosts: list[Any] = HOSTS) -> Shown:
    rows = [
        row(*each[:3], round(each[3] * (growth(number) if place == 0 else 0.97)), *each[4:])
        for place, each in enumerate(hosts)
    ]
    rows.sort(key=lambda each: -each["peers"])
    window = Window(NOON + number * LENGTH, NOON + (number + 1) * LENGTH)
    title = f"{len(rows)} hosts with at least 1,024 peers"
    found = shown_of(Report(rows=rows, window=window, title=title, threshold=1024.0))
    return found._replace(sites=("ams", "fra", "vie"), missing=("lon",) if number == WINDOWS - 1 else ())


@functools.cache
def folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="superhosts-scene-")


def alerts() -> AlertStore:
    """Return a file with an open alert and a closed one."""
    store = AlertStore(Path(tempfile.mkdtemp(dir=folder().name)) / "alerts.sqlite")
    machine = store.machine(Policy())
    for rule, host, opened, last, peers, peak, closed in (
        ("scan-out", "10.20.4.17", WINDOWS - 3, WINDOWS, 18_402, 18_402, 0),
        ("many-peers", "10.20.8.201", 0, 4, 900, 5_120, NOON + 6 * LENGTH),
    ):
        times = NOON + opened * LENGTH, NOON + last * LENGTH
        alert = Alert(rule, host, 4, "inner", "any", "hosts", 1024.0, *times, peers=peers, peak=peak, closed=closed)
        alert.reason = "quiet" if closed else ""
        machine.changed[alert.id] = alert
    store.take(machine, Window(NOON, NOON + LENGTH), [])
    return store


def sites() -> dict[str, dict[str, Any]]:
    end = (NOON + WINDOWS * LENGTH) / 1e9
    known = {"version": "1.0", "window_end": end, "spool_sketches": 0, "spool_bytes": 0, "refused": 0, "clock": 0.1}
    return {
        "ams": {"seen": end + 20, **known},
        "fra": {"seen": end + 21, **known},
        "lon": {"seen": end - 1210, **known, "window_end": end - 1200, "clock": -7.25},
        "vie": {"seen": end + 19, **known},
    }


def make_view(windows: int = WINDOWS) -> View:
    board = Board()
    for number in range(WINDOWS - windows, WINDOWS):
        board.put(shown(number))
    return View(
        "hub fra",
        board,
        lambda: Selection(1024.0),
        is_live=True,
        alerts=alerts(),
        sites=lambda: site_list(sites(), board),
        clock=lambda: (NOON + WINDOWS * LENGTH) / 1e9 + 30,  # a time that does not pass
    )


def text_of(svg: str) -> list[str]:
    """Return the lines of a screenshot as text, from what Textual exports."""
    found: dict[int, list[tuple[float, str]]] = {}
    for x, line, text in re.findall(
        r'<text[^>]*? x="([\d.]+)"[^>]*?clip-path="url\(#[^)]*?-line-(\d+)\)">(.*?)</text>', svg
    ):
        found.setdefault(int(line), []).append((float(x), html.unescape(text).replace("\N{NO-BREAK SPACE}", " ")))
    lines = []
    for number in range(max(found, default=-1) + 1):
        cells = ""
        for x, text in sorted(found.get(number, [])):
            cells = cells.ljust(round(x / 12.2)) + text
        lines.append(cells.rstrip())
    return lines


def without_fonts(svg: str) -> str:
    """Return a picture that loads nothing from other places."""
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL).replace(
        "Fira Code", "ui-monospace, Menlo, Consolas, DejaVu Sans Mono"
    )


async def ready(pilot: Any, condition: Callable[[], Any], what: str = "") -> None:
    """Wait until a condition holds and everything that follows from it was drawn."""
    until = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < until, what or "did not happen"
        await pilot.pause(0.01)
    await pilot.app.workers.wait_for_complete()
    await pilot.pause()


async def picture(*keys: str, size: tuple[int, int]) -> str:
    app = TopApp(make_view())
    async with app.run_test(size=size) as pilot:
        await ready(pilot, lambda: app.snapshot.summary)
        for key in keys:
            await pilot.press(key)
            await pilot.app.workers.wait_for_complete()
            await pilot.pause()
        return app.export_screenshot(title="superhosts top")


SIZES = {"80x24": (80, 24), "120x40": (120, 40), "160x50": (160, 50)}
PICTURES: dict[str, tuple[str, ...]] = {
    "hosts": (),
    "host": ("enter",),
    "alerts": ("a",),
    "sites": ("h",),
    "help": ("question_mark",),
    "mute": ("m",),
    "older": ("left", "left", "left", "left"),
    "filtered": ("slash", *"server", "enter"),
    "by_name": ("s", "s"),
}
SNAPSHOTS = Path(__file__).with_name("snapshots")
IMAGE = ROOT / "docs" / "images" / "top.svg"


def snapshot(name: str, size: str) -> str:
    lines = text_of(asyncio.run(picture(*PICTURES[name], size=SIZES[size])))
    return "\n".join(lines) + "\n"


def image() -> str:
    return without_fonts(asyncio.run(picture(size=(116, 15))))


if __name__ == "__main__":
    IMAGE.write_text(image(), encoding="utf-8")
    SNAPSHOTS.mkdir(exist_ok=True)
    for name, size in itertools.product(PICTURES, SIZES):
        (SNAPSHOTS / f"{name}-{size}.txt").write_text(snapshot(name, size), encoding="utf-8")
