"""What a hub answers an edge that asks what became of its sketches."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from superhosts.fleet.link import Acceptor
from superhosts.fleet.receipts import RESEND, Receipt

NOTES = 2_000  # names of one site that were asked for and are not here; more are made up


class Answers:
    """Knows what was asked for and is not here. That may still be in the queue, so it is not asked for at once."""

    def __init__(
        self, intake: Acceptor, arriving: Callable[[str], bool], queued: Callable[[], Awaitable[bool]], patience: float
    ) -> None:
        """Prepare; what is neither arriving nor `queued`, or has not come for `patience` seconds, is sent again."""
        self._intake, self._arriving, self._queued, self._patience = intake, arriving, queued, patience
        self._missing: dict[str, dict[str, float]] = {}  # by site: names, and when they were first asked for

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
                if self._arriving(name):  # since we looked
                    continue
                since = asked.setdefault(name, now)
                if not queued or now - since > self._patience:
                    asked.pop(name)
                    answer.append(Receipt(name, RESEND, "not here"))
            while len(asked) > NOTES:
                del asked[next(iter(asked))]
        return answer

    def found(self, site: str, name: str) -> None:
        """Learn that a sketch has begun to arrive."""
        self._missing.get(site, {}).pop(name, None)

    def forget(self, old: float) -> None:
        """Forget what was asked for before a time."""
        for site, names in list(self._missing.items()):
            self._missing[site] = {name: at for name, at in names.items() if at > old}
            if not self._missing[site]:
                del self._missing[site]
