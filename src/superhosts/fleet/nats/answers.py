"""A hub's answers to edges that ask for missing receipts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from superhosts.fleet.link import Acceptor
from superhosts.fleet.receipts import RESEND, Receipt

NOTES = 2_000  # unknown names of one site to remember; more must be invented


class Answers:
    """Remembers sketches that edges ask for and the hub does not have: they may still be in the queue."""

    def __init__(
        self, intake: Acceptor, arriving: Callable[[str], bool], queued: Callable[[], Awaitable[bool]], patience: float
    ) -> None:
        """Request a sketch again if it is neither `arriving` nor `queued`, or has not come for `patience` seconds."""
        self._intake, self._arriving, self._queued, self._patience = intake, arriving, queued, patience
        self._missing: dict[str, dict[str, float]] = {}  # by site: names, and when each was first asked for

    async def receipts(self, site: str, names: list[str]) -> list[Receipt]:
        """Return what became of sketches; those that are neither here nor on their way are asked for again."""
        arriving = set(filter(self._arriving, names))
        known = await asyncio.to_thread(lambda: {name: self._intake.known(name) for name in names})
        answer = [receipt for receipt in known.values() if receipt is not None]
        unknown = [name for name in names if known[name] is None and name not in arriving]
        if unknown:
            queued, now = await self._queued(), time.monotonic()
            asked = self._missing.setdefault(site, {})
            for name in unknown:
                if self._arriving(name):  # it has begun to arrive meanwhile
                    continue
                since = asked.setdefault(name, now)
                if not queued or now - since > self._patience:
                    asked.pop(name)
                    answer.append(Receipt(name, RESEND, "not here"))
            while len(asked) > NOTES:
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
