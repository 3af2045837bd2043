"""Answers of a view as JSON, made in threads, and once for all viewers where all ask the same.

A hundred viewers that ask for the newest window get the same bytes. So what a window costs does not grow with their
number, and the global lock of the interpreter stays with whoever counts packets.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import math
import queue
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from superhosts.core.results import Selection
from superhosts.core.units import SECOND
from superhosts.detectors.arguments import check_threshold
from superhosts.errors import UsageError
from superhosts.ui.folder import BusyError, Question
from superhosts.ui.view import View

Found = TypeVar("Found")


class _Job(NamedTuple):
    ask: Callable[[], Any]
    future: asyncio.Future[Any]


class Workers:
    """Some threads with one queue. Only `close` may be called by other threads than that of the event loop.

    They are daemons, so that a question that runs keeps no program from ending: the threads of a ThreadPoolExecutor
    are joined when Python exits, whether anybody still wants their answers or not.
    """

    def __init__(self, threads: int, name: str) -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._work, name=name, daemon=True) for _ in range(threads)]
        self._unanswered: set[asyncio.Future[Any]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False
        for thread in self._threads:
            thread.start()

    async def run(self, ask: Callable[[], Found]) -> Found:
        """Return what `ask` returns, or raise what it raises. Raise BusyError if these threads are closed."""
        self._loop = asyncio.get_running_loop()
        future: asyncio.Future[Found] = self._loop.create_future()
        self._unanswered.add(future)
        self._jobs.put(_Job(ask, future))
        if self._is_closed:
            self._abandon()
        try:
            return await future
        finally:
            self._unanswered.discard(future)

    def close(self) -> None:
        """End the threads that have nothing to do, and abandon all questions: whoever waits is told so at once."""
        self._is_closed = True
        for _ in self._threads:
            self._jobs.put(None)
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._abandon)

    def _abandon(self) -> None:
        for future in self._unanswered:
            if not future.done():
                future.set_exception(BusyError("the program ends"))

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            if job.future.done():
                continue  # nobody waits any more
            try:
                found, error = job.ask(), None
            except Exception as caught:
                found, error = None, caught
            with contextlib.suppress(RuntimeError):  # the loop has ended
                job.future.get_loop().call_soon_threadsafe(_settle, job.future, found, error)


def _settle(future: asyncio.Future[Any], found: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(found)
    else:
        future.set_exception(error)


THREADS = 2  # that answer quick questions; as many others ask sketches
MOST_WAITING = 16  # questions to sketches that wait
MOST_KEPT = 16  # answers that are kept until something changes
LEAST_PACKED = 1024  # bytes
LARGEST_TIME = 4e9  # seconds since 1970
LONGEST_MUTE = 10 * 366 * 86400.0
LONGEST_WHY = 500  # characters of a note; the page has the same limit

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
        """Answer no more; questions that wait or run are abandoned. Any thread may call it."""
        self._quick.close()
        self._slow.close()

    async def summary(self, _: Parameters) -> Content:
        return await self._answer(self._quick, self.view.summary)

    async def windows(self, _: Parameters) -> Content:
        return await self._shared(("windows",), self.view.windows)

    async def window(self, asked: Parameters) -> Content:
        span = _time(asked, "start"), _time(asked, "end")
        return await self._shared(("window", *span), lambda: self.view.window(*span))

    async def host(self, asked: Parameters) -> Content:
        host, span = asked.get("host", ""), (_time(asked, "start"), _time(asked, "end"))
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
        question = Question(Selection.of(threshold, None if top is None else int(top)), start, end, sites)
        return await self._question(lambda: self.view.ask(question))

    async def sites(self, _: Parameters) -> Content:
        return await self._answer(self._quick, self.view.list_sites)

    async def alerts(self, _: Parameters) -> Content:
        return await self._answer(self._quick, self.view.list_alerts)

    async def sketch(self, _: Parameters) -> Content:
        return await self._answer(self._quick, self.view.sketch)

    async def mute(self, content: Any) -> Content:
        host, rule, why = (_text(content, name) for name in ("host", "rule", "why"))
        seconds = content.get("seconds")
        if type(seconds) not in (int, float) or not 0 < seconds <= LONGEST_MUTE:
            raise UsageError("seconds: a number above 0, of at most ten years")
        if len(why) > LONGEST_WHY:
            raise UsageError(f"why: at most {LONGEST_WHY} characters")
        return await self._change(lambda: self.view.mute(host, rule, seconds, why))

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
        """Ask sketches, which may take long, while few others wait for that."""
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


def _time(asked: Parameters, name: str) -> float | None:
    seconds = _number(asked, name)
    if seconds is not None and not 0 <= seconds <= LARGEST_TIME:
        raise UsageError(f"{name} {seconds:g}: not a time, in seconds since 1970")
    return seconds


def _span(asked: Parameters) -> tuple[float | None, float | None]:
    start, end = _time(asked, "start"), _time(asked, "end")
    if start is not None and end is not None and start >= end:
        raise UsageError("start is not before end")
    return start, end


def _text(content: Any, name: str) -> str:
    text = content.get(name, "") if isinstance(content, dict) else None
    if not isinstance(text, str) or any("\ud800" <= each <= "\udfff" for each in text):
        raise UsageError(f"{name}: not text")  # JSON can write halves of characters, which nothing can keep
    return text
