"""Alertmanager of Prometheus: `alertmanager+http://host:9093`, one alert for each record.

Labels say which alert it is, so they are the same in its whole life; everything that changes is an annotation. A record
of `--alert-to` begins when its alert was opened and ends when it was closed. Alertmanager forgets alerts that it does
not hear of again, so open ones are sent every minute, and end by themselves `resolve-after` the last time. A row of
`--output` ends like that if the host is not reported again: by default after three windows and at least five minutes.
`severity` is a label (warning). Addresses are labels of alerts only, never of metrics.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from superhosts.output.records import CLOSED, Batch, Record, describe
from superhosts.output.senders import Address, Sender
from superhosts.output.senders.webhook import OPTIONS, HttpClient

LABELS = ("rule", "host", "side", "direction", "site", "counts", "filter", "group")
LEAST = 300.0  # seconds that an alert lasts
DEFAULT_WINDOW = 300.0  # seconds of a window whose length is not known
REPEAT = 60.0  # seconds after which open alerts are sent again, at the latest


class Alertmanager(Sender):
    options: ClassVar[tuple[str, ...]] = ("severity", "resolve-after", *OPTIONS)

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._client = HttpClient(address, "/api/v2/alerts")
        self._severity = address.options.get("severity", "warning")
        self._lasts = address.seconds("resolve-after", "1s") if "resolve-after" in address.options else None
        self.repeat_after = min(REPEAT, (self._lasts or LEAST) / 3)

    def deliver(self, batch: Batch) -> None:
        now = datetime.now(UTC)
        lasts = timedelta(seconds=self._lasts or max(3 * (batch.seconds or DEFAULT_WINDOW), LEAST))
        if batch.records:
            self._client.post(json.dumps([self._alert(record, now, lasts) for record in batch.records]).encode(), {})

    def _alert(self, record: Record, now: datetime, lasts: timedelta) -> dict[str, Any]:
        name = "SuperHostStorm" if "held_back" in record else "SuperHost"
        labels = {"alertname": name, "severity": str(record.get("severity") or self._severity)}
        labels |= {name: str(record[name]) for name in LABELS if record.get(name)}
        notes = {
            name: value if isinstance(value, str) else json.dumps(value)
            for name, value in record.items()
            if name not in (*labels, "text") and value is not None
        }
        begins, ends = _moment(record.get("since"), now), now + lasts
        if record.get("event") == CLOSED:
            ends = _moment(record.get("closed"), now)
        return {
            "labels": labels,
            "annotations": {
                "summary": describe(record) if "text" in record else f"Super host {describe(record)}",
                **notes,
            },
            "startsAt": min(begins, ends).isoformat(),
            "endsAt": ends.isoformat(),
            **({"generatorURL": record["url"]} if record.get("url") else {}),
        }


def _moment(text: str | None, now: datetime) -> datetime:
    """Return a time of a record, which may come from a wrong clock: now, at the latest."""
    try:
        return min(datetime.fromisoformat(text or ""), now)
    except ValueError:
        return now
