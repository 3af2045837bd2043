"""The bodies of webhooks: what Slack, Teams and PagerDuty expect, and the batch itself for programs.

A template returns the bodies of the requests of one batch, as dictionaries. Chats get one message per batch that lists
at most `SHOWN` hosts; PagerDuty takes one event per request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from superhosts.output.batches import ALERT, CLOSED, Batch, Record, describe

SHOWN = 20  # hosts in a message for people
Body = dict[str, Any]


def as_json(batch: Batch, _key: str) -> Iterator[Body]:
    """Yield the batch with its records."""
    yield batch.as_json()


def as_slack(batch: Batch, _key: str) -> Iterator[Body]:
    """Yield a message for an incoming webhook of Slack (Mattermost and Rocket.Chat take it, too)."""
    lines = [*shown_lines(batch)]
    text = "\n".join([f"*{_slack(heading(batch))}*", *(f"• {_slack(line)}" for line in lines)])
    yield {"text": text}


def as_teams(batch: Batch, _key: str) -> Iterator[Body]:
    """Yield an adaptive card for a workflow of Teams ("When a Teams webhook request is received")."""
    title = {"type": "TextBlock", "text": heading(batch), "weight": "Bolder", "wrap": True}
    lines = [{"type": "TextBlock", "text": line, "wrap": True, "spacing": "None"} for line in shown_lines(batch)]
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [title, *lines],
    }
    content = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
    yield {"type": "message", "attachments": [content]}


def as_pagerduty(batch: Batch, key: str) -> Iterator[Body]:
    """Yield an event of PagerDuty's Events API v2 for each record.

    Events of one alert share a key, so that it is one incident, which is resolved when the alert is closed. Rows of one
    host share a key, so that a host that stays over the threshold is one incident; nothing resolves it.
    """
    for record in batch.records:
        yield {
            "routing_key": key,
            "event_action": "resolve" if record.get("event") == CLOSED else "trigger",
            "dedup_key": identity(record),
            "payload": {
                "summary": (describe(record) if "text" in record else f"Super host {describe(record)}")[:1024],
                "source": str(record.get("host") or record["id"]),
                "severity": record.get("severity", "warning"),
                "timestamp": record.get("closed")
                or record.get("until")
                or record.get("window_end")
                or batch.window_end,
                "group": record["site"] or "superhosts",
                "class": record["kind"],
                "custom_details": record,
            },
        }


TEMPLATES: dict[str, Callable[[Batch, str], Iterator[Body]]] = {
    "json": as_json,
    "slack": as_slack,
    "teams": as_teams,
    "pagerduty": as_pagerduty,
}


def heading(batch: Batch) -> str:
    """Return the line for people about a batch, with its site."""
    where = f" ({batch.site})" if batch.site else ""
    part = f", part {batch.part} of {batch.parts}" if batch.parts > 1 else ""
    return (
        f"Alerts{where}: {batch.heading}{part}" if batch.kind == ALERT else f"Super hosts{where} {batch.heading}{part}"
    )


def identity(record: Record) -> str:
    """Return what records of the same alert, or rows of the same host in other windows, share."""
    names = ("kind", "site", "alert") if record.get("alert") else ("kind", "site", "host", "side", "direction")
    parts = (record.get(name) for name in names)
    return "/".join(str(part) for part in ("superhosts", *parts) if part)[:255]


def shown_lines(batch: Batch) -> Iterator[str]:
    """Yield a line for people for each record, up to a limit."""
    yield from (describe(record) for record in batch.records[:SHOWN])
    if len(batch.records) > SHOWN:
        yield f"and {len(batch.records) - SHOWN:,} more"


def _slack(text: str) -> str:
    """Return text without what Slack takes for markup."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
