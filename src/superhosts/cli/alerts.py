"""`superhosts alerts`: look at the alerts that a run keeps, and mute hosts. It works while the run goes on."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import asdict
from typing import Any

from superhosts.cli._values import parse_seconds
from superhosts.cli.usage.setup import AlertsExport, AlertsList, AlertsMute, AlertsShow
from superhosts.core.text import aligned, printable
from superhosts.core.times import iso_time, shown_time
from superhosts.core.units import SECOND
from superhosts.errors import UsageError
from superhosts.output.alerts.machine import QUIET, Alert
from superhosts.output.alerts.rules import AllowList, Entry, as_network, check_name
from superhosts.output.alerts.store import AlertStore
from superhosts.output.console import say
from superhosts.output.names import network_of

Mute = dict[str, Any]  # of `AlertStore.muted`


def alerts_list(options: AlertsList) -> None:
    with closing(AlertStore(options.file, must_exist=True)) as store:
        found, muted = store.alerts(is_open=None if options.all else True), store.muted()
    chosen = [alert for alert in found if options.rule in (None, alert.rule)]
    chosen.sort(key=lambda alert: (bool(alert.closed), -alert.peers))
    if options.json:
        _write_json(chosen, muted)
        return
    for each in muted:
        network = as_network(each["host"], "muted")
        whose = network.network_address if network.num_addresses == 1 else network
        say(f"muted until {_shown_end(each)}: {whose}, {each['rule'] or 'all rules'}{_note(each)}")
    if not chosen:
        say("no alerts" if options.all else "no open alerts (--all lists closed ones)")
        return
    rows = [("alert", "rule", "host", "direction", "peers", "peak", "since", "until", "state")]
    for alert in chosen:
        numbers = f"{alert.peers:,}", f"{alert.peak:,}"
        state = "open" if not alert.closed else "closed" if alert.reason == QUIET else f"closed: {alert.reason}"
        if not alert.closed and _mute_of(alert, muted) is not None:
            state += ", muted"
        times = shown_time(alert.opened), shown_time(alert.last)
        rows.append((alert.id, alert.rule, printable(alert.host), alert.direction, *numbers, *times, state))
    for line in aligned(rows, [title in ("peers", "peak") for title in rows[0]]):
        print(line)


def alerts_show(options: AlertsShow) -> None:
    with closing(AlertStore(options.file, must_exist=True)) as store:
        found = [alert for alert in store.alerts() if options.alert in (alert.id, str(alert.host))]
        muted = store.muted()
    if not found:
        raise UsageError(f"{options.alert}: neither a host nor the id of an alert that is kept in {options.file}")
    if options.json:
        _write_json(found, muted)
        return
    for alert in found:
        fields = _fields(alert, muted)
        width = max(map(len, fields))
        sys.stdout.write("".join(f"{name:{width}}  {_word(value)}\n" for name, value in fields.items()) + "\n")


def alerts_mute(options: AlertsMute) -> None:
    rule = check_name(options.rule, "--rule") if options.rule is not None else ""
    whose = f"{options.host}{f', rule {rule}' if rule else ''}"
    is_new = not options.file.exists()
    with closing(AlertStore(options.file, must_exist=options.off)) as store:
        if options.off:
            was = store.unmute(options.host, rule)
            say(f"{whose}: alerts are wanted again" if was else f"{whose}: was not muted")
            return
        until = time.time() + parse_seconds(options.duration)
        store.mute(options.host, rule, until, options.why)
        known = {"", *(alert.rule for alert in store.alerts())}
    if rule not in known and not is_new:
        say(f"warning: rule {rule}: no rule of this name is known in {options.file}")
    new = f"; {options.file} is new, for a run with --alerts {options.file}" if is_new else ""
    say(f"{whose}: muted until {shown_time(int(until) * SECOND)}{new}")


def alerts_export(options: AlertsExport) -> None:
    with closing(AlertStore(options.file, must_exist=True)) as store:
        _write_json(store.alerts(), store.muted())


def _write_json(alerts: Iterable[Alert], muted: Sequence[Mute]) -> None:
    for alert in alerts:
        sys.stdout.write(json.dumps(_fields(alert, muted)) + "\n")


def _mute_of(alert: Alert, muted: Sequence[Mute]) -> Mute | None:
    """Return the mute that ends last of those for this alert; `muted` has the first to end first."""
    for each in reversed(muted):
        if AllowList([Entry(as_network(each["host"], "mute"), each["rule"])]).entry_for(
            network_of(alert.host), alert.rule
        ):
            return each
    return None


def _shown_end(mute: Mute) -> str:
    return shown_time(int(mute["until"]) * SECOND)


def _note(mute: Mute) -> str:
    return f" ({printable(mute['why'])})" if mute["why"] else ""


def _word(value: object) -> str:
    return "-" if value is None else str(value).lower() if isinstance(value, bool) else printable(value)


def _fields(alert: Alert, muted: Sequence[Mute]) -> dict[str, Any]:
    """Return an alert as a person or program reads it."""
    names = {"opened": "since", "last": "until"}  # as records have them
    told = {"alert": alert.id, **{names.get(name, name): value for name, value in asdict(alert).items()}}
    told |= told.pop("known")
    del told["level"]
    for name in ("since", "until", "peak_at", "closed"):
        told[name] = iso_time(told[name]) if told[name] else None
    mute = _mute_of(alert, muted)
    told["muted_until"] = None if mute is None else iso_time(int(mute["until"]) * SECOND)
    told["muted_why"] = None if mute is None else mute["why"]
    return told
