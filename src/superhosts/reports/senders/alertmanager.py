"""Alertmanager of Prometheus: `alertmanager+http://host:9093`, one alert for each record.

An alert of a host keeps its labels from window to window, so that Alertmanager groups, silences and repeats it as one.
It ends by itself if the host is not reported again: after `resolve-after`, by default three windows and at least five
minutes. `severity` is a label (warning). Addresses are labels of alerts only, never of metrics.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from superhosts.reports.addresses import Address
from superhosts.reports.batches import Batch, Record, describe
from superhosts.reports.senders.base import Sender
from superhosts.reports.senders.http import OPTIONS, HttpClient

LABELS = ("host", "side", "direction", "site", "counts", "filter")
LEAST = 300.0  # seconds that an alert lasts
DEFAULT_WINDOW = 300.0  # seconds of a window whose length is not known


class Alertmanager(Sender):
    """Posts alerts to the API of Alertmanager, version 2."""

    options: ClassVar[tuple[str, ...]] = ("severity", "resolve-after", *OPTIONS)

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._client = HttpClient(address, "/api/v2/alerts")
        self._severity = address.options.get("severity", "warning")
        self._lasts = address.seconds("resolve-after", "1s") if "resolve-after" in address.options else None

    def deliver(self, batch: Batch) -> None:
        """Post the alerts of a batch in one request."""
        now = datetime.now(UTC)
        lasts = self._lasts or max(3 * (batch.seconds or DEFAULT_WINDOW), LEAST)
        alerts = [self._alert(record, now, timedelta(seconds=lasts)) for record in batch.records]
        if alerts:
            self._client.post(json.dumps(alerts).encode(), {})

    def _alert(self, record: Record, now: datetime, lasts: timedelta) -> dict[str, Any]:
        labels = {"alertname": "SuperHost", "severity": str(record.get("severity") or self._severity)}
        labels |= {name: str(record[name]) for name in LABELS if record.get(name)}
        notes = {name: str(value) for name, value in record.items() if name not in labels and value is not None}
        ends = now if record.get("action") == "resolve" else now + lasts
        return {
            "labels": labels,
            "annotations": {"summary": f"Super host {describe(record)}", **notes},
            "startsAt": now.isoformat(),
            "endsAt": ends.isoformat(),
        }
