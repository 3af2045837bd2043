"""Answers of a view as JSON, made in threads, and once for all viewers where all ask the same.

A hundred viewers that ask for the newest window get the same bytes. So what a window costs does not grow with their
number, and the global lock of the interpreter stays with whoever counts packets.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from superhosts.core.results import Selection
from superhosts.core.units import SECOND
from superhosts.detectors.arguments import check_threshold
from superhosts.errors import UsageError
from superhosts.ui.folder import BusyError, Question
from superhosts.ui.threads import Workers
from superhosts.ui.view import View

THREADS = 2  # that answer quick questions; as many others ask sketches
MOST_WAITING = 16  # questions to sketches that wait
MOST_KEPT = 16  # answers that are kept until something changes
LEAST_PACKED = 1024  # bytes
LARGEST_TIME = 4e9  # seconds since 1970
LONGEST_MUTE = 10 * 366 * 86400.0
LONGEST_WHY = 500  # characters of a note or a name; the page has the same limit
MOST_ALERTS = 300  # that are acknowledged at once

Parameters = Mapping[str, str]


class Content(NamedTuple):
    plain: bytes
    packed: bytes | None


class Answers:
    """All that a view answers. The methods are coroutines of the server's event loop."""

    def __init__(self, view: View) -> None:
        self.view = view
        self._quick = Workers(THREADS, "web answers")
        self._slow = Workers(THREADS, "web questions")
        self._waiting = 0
        self._kept: OrderedDict[tuple[Any, ...], asyncio.Future[Content]] = OrderedDict()
        self._version = -1

    def close(self) -> None:
        self._quick.close()
        self._slow.close()

    async def answer(self, name: str, asked: Any, *, may_change: bool = True) -> Content:
        """Answer the question of this name; `asked` are its parameters, or the object that was posted."""
        view = self.view
        if name == "summary":
            return await self._answer(self._quick, lambda: view.summary(may_change=may_change))
        plain = {"sites": view.list_sites, "alerts": view.list_alerts, "sketch": view.sketch}
        if name in plain:
            return await self._answer(self._quick, plain[name])
        found: Content = await getattr(self, name)(asked)
        return found

    async def windows(self, _: Parameters) -> Content:
        return await self._shared(("windows",), self.view.windows)

    async def window(self, asked: Parameters) -> Content:
        span = _span(asked)
        return await self._shared(("window", *span), lambda: self.view.window(*span))

    async def trends(self, asked: Parameters) -> Content:
        span = _span(asked)
        return await self._shared(("trends", *span), lambda: self.view.trends(*span))

    async def host(self, asked: Parameters) -> Content:
        host, span = asked.get("host", ""), _span(asked)
        if not host:
            raise UsageError("host is missing: an address or prefix, like host=10.0.0.1")
        return await self._question(lambda: self.view.host(host, *span))

    async def ask(self, asked: Parameters) -> Content:
        threshold, top = _number(asked, "threshold"), _number(asked, "top")
        if threshold is not None:
            check_threshold(threshold, "threshold")
        if top is not None and not (top >= 1 and top == int(top)):
            raise UsageError(f"top {top:g}: a whole number, 1 or more")
        sites = frozenset(site for site in asked.get("sites", "").split(",") if site)
        start, end = (None if each is None else round(each * SECOND) for each in _span(asked))
        if start is not None and end is not None and start >= end:
            raise UsageError("start is not before end")
        question = Question(Selection.of(threshold, None if top is None else int(top)), start, end, sites)
        return await self._question(lambda: self.view.ask(question))

    async def alert(self, asked: Parameters) -> Content:
        id = asked.get("id", "")
        return await self._answer(self._quick, lambda: self.view.alert(id))

    async def acknowledge(self, content: Any) -> Content:
        ids, off = content.get("alerts"), content.get("off", False)
        if not (isinstance(ids, list) and 0 < len(ids) <= MOST_ALERTS and all(isinstance(each, str) for each in ids)):
            raise UsageError(f"alerts: a list of 1 to {MOST_ALERTS} ids")
        if not isinstance(off, bool):
            raise UsageError("off: true or false")
        by, note = _note(content, "by"), _note(content, "note")
        return await self._change(lambda: {"acknowledged": self.view.acknowledge(ids, by, note, off=off)})

    async def note(self, content: Any) -> Content:
        id, by = _text(content, "alert"), _note(content, "by")
        owner, note = (_note(content, name) if name in content else None for name in ("owner", "note"))
        return await self._change(lambda: self.view.note(id, owner, note, by))

    async def mute(self, content: Any) -> Content:
        host, rule = (_text(content, name) for name in ("host", "rule"))
        why, by = _note(content, "why"), _note(content, "by")
        seconds = content.get("seconds")
        if type(seconds) not in (int, float) or not 0 < seconds <= LONGEST_MUTE:
            raise UsageError("seconds: a number above 0, of at most ten years")
        return await self._change(lambda: self.view.mute(host, rule, seconds, why, by))

    async def unmute(self, content: Any) -> Content:
        host, rule = _text(content, "host"), _text(content, "rule")
        return await self._change(lambda: {"unmuted": self.view.unmute(host, rule)})

    async def _change(self, change: Callable[[], Any]) -> Content:
        def changed() -> Any:
            answer = change()
            self.view.board.touch()
            return answer

        return await self._answer(self._quick, changed)

    async def _question(self, ask: Callable[[], Any]) -> Content:
        if self._waiting >= MOST_WAITING:
            raise BusyError("many questions are being answered; ask again in a few seconds")
        self._waiting += 1
        try:
            return await self._answer(self._slow, ask)
        finally:
            self._waiting -= 1

    async def _shared(self, name: tuple[Any, ...], ask: Callable[[], Any]) -> Content:
        """Return one answer to all who ask the same while nothing changes."""
        version = self.view.board.version
        if version != self._version:
            self._version = version
            self._kept.clear()
        if name not in self._kept:
            self._kept[name] = asyncio.ensure_future(self._answer(self._quick, ask))
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        future = self._kept[name]
        try:
            return await asyncio.shield(future)
        except Exception:
            if self._kept.get(name) is future:
                del self._kept[name]
            raise

    async def _answer(self, workers: Workers, ask: Callable[[], Any]) -> Content:
        return await workers.run(lambda: _content(ask()))


def _content(answer: Any) -> Content:
    plain = json.dumps(answer, separators=(",", ":"), ensure_ascii=False, default=str).encode("utf-8", "replace")
    return Content(plain, gzip.compress(plain, 1, mtime=0) if len(plain) >= LEAST_PACKED else None)


def _number(asked: Parameters, name: str) -> float | None:
    text = asked.get(name, "")
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UsageError(f"{name} {text[:40]!r}: not a number")
    return number


def _span(asked: Parameters) -> tuple[float | None, float | None]:
    start, end = _number(asked, "start"), _number(asked, "end")
    for name, seconds in (("start", start), ("end", end)):
        if seconds is not None and not 0 <= seconds <= LARGEST_TIME:
            raise UsageError(f"{name} {seconds:g}: not a time, in seconds since 1970")
    return start, end


def _text(content: Any, name: str) -> str:
    text = content.get(name, "") if isinstance(content, dict) else None
    if not isinstance(text, str) or any("\ud800" <= each <= "\udfff" for each in text):
        raise UsageError(f"{name}: not text")  # JSON can write halves of characters, which nothing can keep
    return text


def _note(content: Any, name: str) -> str:
    text = _text(content, name)
    if len(text) > LONGEST_WHY:
        raise UsageError(f"{name}: at most {LONGEST_WHY} characters")
    return text
