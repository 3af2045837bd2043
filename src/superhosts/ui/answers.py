"""The types of a view's answers (`view.py`), by the names of the questions.

They are the schema: docs/reference/schemas is made from them, and `superhosts top` checks answers from elsewhere by
them. Required are the fields on which a screen relies; another release may lack the others or have more. Times are
seconds since 1970.
"""

from __future__ import annotations

from typing import Any, Required, TypedDict

from superhosts.output.alerts.machine import Facts
from superhosts.output.alerts.store import State
from superhosts.output.schema import RowMarks


class Largest(TypedDict, total=False):
    """The host with the most peers of a window."""

    host: str
    name: str
    side: str
    direction: str
    peers: int | None
    low: int
    high: int | None


class Heading(TypedDict, total=False):
    """A window without its rows."""

    start: float | None
    end: float | None
    hosts: int
    super_hosts: int | None
    title: str
    revision: int
    notes: list[str]
    sites: list[str]
    missing: list[str]
    largest: Largest | None
    patterns: dict[str, int]


class ShownRow(RowMarks, total=False):
    """A row. Those of older windows have fewer fields."""

    host: Required[str | int]
    peers: Required[int | None]
    peers_low: Required[int]
    peers_high: Required[int | None]
    window_start: str | None
    window_end: str | None
    family: int | None
    side: str
    direction: str
    exact: bool
    saturated: bool
    detector: str


class Recent(TypedDict, total=False):
    """The peers of each row in the windows before, the oldest first; null: it is not among the hosts kept."""

    whole: list[bool]  # whether all super hosts of such a window are kept
    peers: list[list[int | None] | None]


class ShownWindow(Heading, total=False):
    rows: Required[list[ShownRow]]
    whole: bool
    recent: Recent
    alerts: list[str]


class Point(TypedDict, total=False):
    """What is known of a host in one window."""

    start: Required[float]
    end: Required[float]
    low: Required[int]
    high: Required[int | None]
    peers: int | None
    side: str
    direction: str
    reported: bool | None


class Trend(TypedDict, total=False):
    """One of the largest hosts, and its peers in all windows in which they are kept."""

    host: str
    side: str
    direction: str
    name: str
    points: list[Point]


class ShownAlert(Facts, total=False):
    id: str
    rule: str
    host: str | int
    family: int | None
    side: str
    direction: str
    counts: str
    threshold: float
    opened: float
    last: float
    level: int
    peers: int
    peak: int
    peak_at: float
    windows: int
    closed: float
    reason: str
    act: bool
    known: dict[str, Any]
    state: State
    text: str
    duration: float
    first_seen: float
    acknowledged: float


class AlertEntry(TypedDict):
    """What happened to an alert, and who did it if a person has."""

    at: float
    event: str
    text: str
    by: str


class AlertWithHistory(ShownAlert, total=False):
    history: list[AlertEntry]


class Acknowledged(TypedDict):
    acknowledged: int


class Mute(TypedDict, total=False):
    host: str
    rule: str
    until: float
    why: str


class ShownHost(TypedDict, total=False):
    points: Required[list[Point]]
    host: str
    threshold: float | None
    name: str
    rows: list[ShownRow]
    asked: bool
    notes: list[str]
    alerts: list[ShownAlert]


class ViewState(TypedDict, total=False):
    """What all viewers hear after each change."""

    changed: int
    live_until: float
    reading: list[str]


class Summary(ViewState, total=False):
    can: Required[dict[str, bool]]
    may_change: bool
    title: str
    version: str
    live: bool
    now: float
    threshold: float | None
    top: int | None
    askable: list[str]
    newest: Heading | None


class Found(TypedDict, total=False):
    """The hosts of a time, from saved sketches."""

    start: Required[float | None]
    end: Required[float | None]
    rows: Required[list[ShownRow]]
    title: str
    notes: list[str]
    hosts: int
    sketches: int
    sites: list[str]
    seconds: float


class Alerts(TypedDict, total=False):
    alerts: list[ShownAlert]
    muted: list[Mute]


class Site(TypedDict, total=False):
    """What a hub knows of a site; null: nothing."""

    site: Required[str]
    in_window: bool | None
    seen: float | None
    version: str | None
    window_end: float | None
    spool_sketches: int | None
    spool_bytes: int | None
    accepted: int
    refused: int
    slowed: int
    clock: float | None
    clock_wrong: bool
    mismatch: str | None


class PartFill(TypedDict, total=False):
    """How full one part of the sketch is; null: it is not known of its kind or state."""

    family: int | str
    side: str
    direction: str
    exact: bool | None
    pairs: int | None
    capacity: float | None
    fill: float | None
    saturated: int | None


class Accuracy(TypedDict):
    peers: int
    share: float


class SketchState(TypedDict):
    parts: list[PartFill]
    accuracy: Accuracy | None


class Unmuted(TypedDict):
    unmuted: bool


ANSWERS: dict[str, Any] = {
    "summary": Summary,
    "windows": list[Heading],
    "window": ShownWindow,
    "trends": list[Trend],
    "host": ShownHost,
    "ask": Found,
    "alerts": Alerts,
    "alert": AlertWithHistory,
    "sites": list[Site],
    "sketch": SketchState,
    "events": ViewState,
    "mute": None,
    "unmute": Unmuted,
    "acknowledge": Acknowledged,
    "note": None,
}
