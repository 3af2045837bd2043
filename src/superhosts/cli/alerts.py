"""`superhosts alerts`: look at the alerts that a run keeps, and mute hosts. It works while the run goes on."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from contextlib import closing
from dataclasses import asdict
from typing import Any

from superhosts.cli._values import parse_seconds
from superhosts.cli.usage.setup import AlertsExport, AlertsList, AlertsMute, AlertsShow
from superhosts.core.text import aligned, printable
from superhosts.core.times import iso_time, shown_time
from superhosts.errors import UsageError
from superhosts.output.alerts.machine import QUIET, Alert
from superhosts.output.alerts.rules import check_name
from superhosts.output.alerts.store import AlertStore
from superhosts.output.console import say


def alerts_list(options: AlertsList) -> None:
    with closing(AlertStore(options.file, must_exist=True)) as store:
        found = store.alerts(is_open=None if options.all else True)
    chosen = [alert for alert in found if options.rule in (None, alert.rule)]
    chosen.sort(key=lambda alert: (bool(alert.closed), -alert.peers))
    if options.json:
        _write_json(chosen)
        return
    if not chosen:
        say("no alerts" if options.all else "no open alerts (--all lists closed ones)")
        return
    rows = [("alert", "rule", "host", "direction", "peers", "peak", "since", "until", "state")]
    for alert in chosen:
        numbers = f"{alert.peers:,}", f"{alert.peak:,}"
        state = "open" if not alert.closed else "closed" if alert.reason == QUIET else f"closed: {alert.reason}"
        times = shown_time(alert.opened), shown_time(alert.last)
        rows.append((alert.id, alert.rule, printable(alert.host), alert.direction, *numbers, *times, state))
    for line in aligned(rows, [title in ("peers", "peak") for title in rows[0]]):
        print(line)


def alerts_show(options: AlertsShow) -> None:
    with closing(AlertStore(options.file, must_exist=True)) as store:
        found = [alert for alert in store.alerts() if options.alert in (alert.id, str(alert.host))]
    if not found:
        raise UsageError(f"{options.alert}: neither a host nor the id of an alert that is kept in {options.file}")
    if options.json:
        _write_json(found)
        return
    for alert in found:
        fields = _fields(alert)
        width = max(map(len, fields))
        sys.stdout.write("".join(f"{name:{width}}  {printable(value)}\n" for name, value in fields.items()) + "\n")


def alerts_mute(options: AlertsMute) -> None:
    rule = check_name(options.rule) if options.rule is not None else ""
    whose = f"{options.host}{f', rule {rule}' if rule else ''}"
    is_new = not options.file.exists()
    with closing(AlertStore(options.file, must_exist=options.off)) as store:
        if options.off:
            was = store.unmute(options.host, rule)
            say(f"{whose}: alerts are wanted again" if was else f"{whose}: was not muted")
            return
        until = time.time() + parse_seconds(options.duration)
        store.mute(options.host, rule, until, options.why)
    new = f"; {options.file} is new, for a run with --alerts {options.file}" if is_new else ""
    say(f"{whose}: muted until {shown_time(int(until) * 10**9)}{new}")


def alerts_export(options: AlertsExport) -> None:
    with closing(AlertStore(options.file, must_exist=True)) as store:
        _write_json(store.alerts())


def _write_json(alerts: Iterable[Alert]) -> None:
    for alert in alerts:
        sys.stdout.write(json.dumps(_fields(alert)) + "\n")


def _fields(alert: Alert) -> dict[str, Any]:
    """Return an alert as a person or program reads it."""
    told = {"alert": alert.id, **asdict(alert)}
    told |= told.pop("known")
    for name in ("opened", "last", "peak_at", "closed"):
        told[name] = iso_time(told[name]) if told[name] else None
    return told
