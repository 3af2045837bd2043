"""A hub's answers to edges that ask for missing receipts."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable

from nats.aio.msg import Msg

from superhosts.core.text import printable
from superhosts.errors import UsageError
from superhosts.fleet.link import Acceptor
from superhosts.fleet.nats.arrivals import Arrivals
from superhosts.fleet.nats.reception import Reception
from superhosts.fleet.nats.telling import Telling, edge_mismatch, own
from superhosts.fleet.nats.wire import CONSUMER, STREAM, decode_names, encode_receipts, site_of
from superhosts.fleet.receipts import MAX_REASON, RESEND, Receipt

MAX_MISSING = 2_000  # unknown names of one site to remember; more must be invented
QUESTIONS_AT_ONCE = 16  # questions of one site that may wait; an edge asks one at a time
ANSWERS_AT_ONCE = 2  # for all sites; Python has few threads for disk access


class Answers:
    """Remembers sketches that edges ask for and the hub does not have: they may still be in the queue."""

    def __init__(
        self,
        intake: Acceptor,
        arriving: Callable[[str], bool],
        queued: Callable[[], Awaitable[bool]],
        patience: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Request a sketch again if it is neither `arriving` nor `queued`, or has not come for `patience` seconds."""
        self._intake, self._arriving, self._queued, self._patience = intake, arriving, queued, patience
        self._clock = clock
        self._missing: dict[str, dict[str, float]] = {}  # by site: names, and when each was first asked for

    async def receipts(self, site: str, names: list[str]) -> list[Receipt]:
        """Return what became of sketches; those that are neither here nor on their way are asked for again."""
        arriving = set(filter(self._arriving, names))
        known = await asyncio.to_thread(lambda: {name: self._intake.known(name) for name in names})
        answer = [receipt for receipt in known.values() if receipt is not None]
        unknown = [name for name in names if known[name] is None and name not in arriving]
        if unknown:
            queued, now = await self._queued(), self._clock()
            asked = self._missing.setdefault(site, {})
            for name in unknown:
                if self._arriving(name):  # it has begun to arrive meanwhile
                    continue
                since = asked.setdefault(name, now)
                if not queued or now - since > self._patience:
                    asked.pop(name)
                    answer.append(Receipt(name, RESEND, "not here"))
            while len(asked) > MAX_MISSING:
                del asked[next(iter(asked))]
        return answer

    def found(self, site: str, name: str) -> None:
        """Note that a sketch has begun to arrive."""
        self._missing.get(site, {}).pop(name, None)

    def forget(self, old: float) -> None:
        """Forget names that were first asked for before a given time."""
        for site, names in list(self._missing.items()):
            self._missing[site] = {name: at for name, at in names.items() if at > old}
            if not self._missing[site]:
                del self._missing[site]


class Questions:
    """Answers the questions of all sites."""

    def __init__(self, reception: Reception, arrivals: Arrivals, intake: Acceptor, patience: float) -> None:
        self._reception, self._arrivals = reception, arrivals
        self._answers = Answers(intake, self._is_arriving, self._queued, patience, reception.clock)
        self._answering = asyncio.Semaphore(ANSWERS_AT_ONCE)
        self._asking: Counter[str] = Counter()  # questions being answered, by site
        self.found = self._answers.found
        self.forget = self._answers.forget

    async def take(self, message: Msg) -> None:
        """Answer a question in the background, unless its site asks too fast."""
        try:
            site = site_of(message.subject)
        except UsageError:
            return
        # The hub has all permissions, so a site must not be able to choose where it publishes. A server that isolates
        # sites in accounts replaces the address by one of its own (_R_), which no client can use.
        if not message.reply.startswith((f"_INBOX.{site}.", "_R_.")) or not self._reception.is_admitted(site):
            return
        told = Telling.parse(message.headers)
        self._reception.roster.told(site, told.version, told.sent, told.spool)
        self._reception.roster.mismatched(site, edge_mismatch(told.wire, site))
        if self._asking[site] >= QUESTIONS_AT_ONCE:
            self._reception.counters.unanswered += 1
            return
        self._asking[site] += 1
        self._reception.jobs.start(self._answer(site, message))

    async def _answer(self, site: str, message: Msg) -> None:
        try:
            async with self._reception.jobs.turn("ask", site), self._answering:
                self._reception.counters.questions += 1
                receipts = await self._answers.receipts(site, decode_names(message.data, site))
                self._reception.counters.lost += sum(receipt.verdict == RESEND for receipt in receipts)
                telling = own(notice=self._reception.quotas.notice(site))
                await self._reception.replies.publish(message.reply, encode_receipts(receipts), telling.headers())
        except Exception as error:  # the edge will ask again
            self._reception.counters.failures += 1
            said = printable(f"{type(error).__name__}: {error}", MAX_REASON)
            self._reception.complain(site, "questions that could not be answered", f"a question of {site}: {said}")
        finally:
            self._asking[site] -= 1
            if not self._asking[site]:
                del self._asking[site]

    def _is_arriving(self, name: str) -> bool:
        return self._arrivals.is_arriving(name, self._reception.clock())

    async def _queued(self) -> bool:
        """Return True if the server has pieces that this hub has not processed."""
        link = self._reception.replies.link
        if link is None:
            return True
        info = await link.jetstream.consumer_info(STREAM, CONSUMER)
        held = sum(len(assembly.held) for assembly in self._arrivals.assemblies.values())
        return (info.num_pending or 0) + (info.num_ack_pending or 0) > held
