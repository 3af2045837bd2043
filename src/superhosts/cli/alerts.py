"""`superhosts alerts`: look at the alerts that a run keeps, acknowledge them, mute hosts. The run may go on."""

from __future__ import annotations

import getpass
import json
import math
import os
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import asdict
from typing import Any

from superhosts.cli._keys import given_key
from superhosts.cli._progress import Progress
from superhosts.cli._values import parse_seconds
from superhosts.cli.usage import setup as usage
from superhosts.core.pairs import Window
from superhosts.core.results import Selection
from superhosts.core.text import aligned, counted, printable
from superhosts.core.times import iso_time, shown_row_time, shown_time, window_span
from superhosts.core.units import SECOND
from superhosts.detectors.arguments import check_threshold
from superhosts.errors import InputError, UsageError
from superhosts.output.alerts.machine import QUIET, Alert, Policy
from superhosts.output.alerts.rules import as_network, check_name
from superhosts.output.alerts.store import STATES, AlertStore, Mute, mute_of, state_of
from superhosts.output.console import ReportedErrors, fail_with, say
from superhosts.ui.folder import Question, SketchFolder


def alerts_list(options: usage.AlertsList) -> None:
    with closing(AlertStore(options.file, must_exist=True)) as store:
        found, muted = store.alerts(is_open=None if options.all else True), store.muted()
    states = {alert.id: state_of(alert, muted) for alert in found}
    chosen = [alert for alert in found if options.rule in (None, alert.rule)]
    chosen.sort(key=lambda alert: (STATES.index(states[alert.id]), -alert.peers))
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
    lines = [_line(alert, states[alert.id], muted) for alert in chosen]
    titles = [name for name in lines[0] if name not in OFTEN_EMPTY or any(line[name] for line in lines)]
    cells = [titles, *([line[name] for name in titles] for line in lines)]
    for text in aligned(cells, [title in NUMBERS for title in titles]):
        print(text)


NUMBERS = ("peers", "change", "peak", "windows")
OFTEN_EMPTY = ("change", "windows", "first seen", "owner")  # columns that are left out if no alert has them


def _line(alert: Alert, state: str, muted: Sequence[Mute]) -> dict[str, str]:
    """Return the cells of a list by their titles."""
    mute, first = mute_of(alert, muted) if state == "muted" else None, alert.known.get("first_seen", "")
    if alert.closed:
        state = "closed" if alert.reason == QUIET else f"closed: {alert.reason}"
    elif mute is not None:
        state = f"muted until {_shown_end(mute)}{_note(mute)}"
    elif state == "acknowledged":
        state += f" by {printable(alert.known.get('acknowledged_by', ''))}"
    return {
        "alert": alert.id,
        "rule": alert.rule,
        "host": printable(alert.host),
        "direction": alert.direction,
        "peers": f"{alert.peers:,}",
        "change": alert.change.rpartition("(")[2].rstrip(")"),
        "peak": f"{alert.peak:,}",
        "windows": alert.persistence,
        "first seen": "" if first in ("", iso_time(alert.opened)) else printable(shown_row_time(first)),
        "since": shown_time(alert.opened),
        "until": shown_time(alert.last),
        "owner": printable(alert.known.get("owner", "")),
        "state": state,
    }


def alerts_show(options: usage.AlertsShow) -> None:
    with closing(AlertStore(options.file, must_exist=True)) as store:
        found = store.alerts(id=options.alert) or store.alerts(host=options.alert)
        muted, histories = store.muted(), {alert.id: store.history(alert) for alert in found}
    if not found:
        raise UsageError(f"{options.alert}: neither a host nor the id of an alert that is kept in {options.file}")
    if options.json:
        _write_json(found, muted)
        return
    for alert in found:
        fields = _fields(alert, muted)
        print(printable(fields.pop("text"), most=LONGEST))
        if "persistence" in fields:
            fields["persistence"] = alert.persistence
        width = max(map(len, fields))
        lines = [f"{name:{width}}  {_word(value)}\n" for name, value in fields.items()]
        lines += [f"{'history':{width}}  {_event(each)}\n" for each in histories[alert.id]]
        sys.stdout.write("".join(lines) + "\n")


LONGEST = 5000  # characters of a sentence


def _event(event: dict[str, Any]) -> str:
    """Return a line of a history. The sentence of an event begins with its name."""
    text, by = printable(event["text"].partition("; ")[0], LONGEST), printable(event["by"])
    is_sentence = not by and text
    said = text if is_sentence else f"{event['event']}{f' by {by}' if by else ''}{f': {text}' if text else ''}"
    return f"{shown_time(int(event['at']) * SECOND)}  {said}"


def alerts_acknowledge(options: usage.AlertsAcknowledge) -> None:
    with closing(AlertStore(options.file, must_exist=True)) as store:
        found = store.acknowledge(options.alert, _name(options.by), options.note, off=options.off)
    for alert in found:
        say(f"{alert.id} ({printable(alert.host)}, {alert.rule}): {'not ' if options.off else ''}acknowledged")


def alerts_note(options: usage.AlertsNote) -> None:
    if options.owner is None and options.note is None:
        raise UsageError("say --owner NAME, --note TEXT, or both")
    with closing(AlertStore(options.file, must_exist=True)) as store:
        found = store.note([options.alert], _name(options.by), options.owner, options.note)
    for alert in found:
        say(f"{alert.id} ({printable(alert.host)}, {alert.rule}): noted")


def _name(given: str | None) -> str:
    """Return who calls the command."""
    if given is not None:
        return given
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user without a name
        return str(os.getuid())


def alerts_learn(options: usage.AlertsLearn) -> None:
    check_threshold(options.threshold, "--threshold")
    if not options.folder.is_dir():
        raise InputError("no folder of sketches is here", file=str(options.folder))
    folder = SketchFolder(options.folder, given_key(options.key_file))
    windows, learned, errors = sorted(folder.contents()), 0, ReportedErrors()
    for path in folder.damaged:
        errors.add(InputError("cannot be read: not a sketch, or damaged", file=str(path)))
    with closing(AlertStore(options.file)) as store, Progress("windows", len(windows)) as progress:
        machine = store.machine(Policy())
        before = [window for window in windows if window.end <= (machine.week.began or window.end)]
        # The newest of the older ones first: a call that is interrupted has learned one time without gaps.
        for window in (*reversed(before), *windows[len(before) :]):
            progress.step()
            if not machine.week.takes(window):
                continue
            try:
                question = Question(Selection(options.threshold), *window, exactly=True)
                rows = folder.ask(question, longest=math.inf).report.rows
                learned += store.learn(machine, window, rows)
            except InputError as error:
                errors.add(error)
        span = window_span(Window(machine.week.began, machine.week.ended))
    new = counted(learned, "new window")
    say(f"{options.file}: {new} of {len(windows):,} learned; {span if machine.week.ended else 'nothing'} is known now")
    fail_with(errors.found)


def alerts_mute(options: usage.AlertsMute) -> None:
    rule = check_name(options.rule, "--rule") if options.rule is not None else ""
    whose = f"{options.host}{f', rule {rule}' if rule else ''}"
    is_new = not options.file.exists()
    with closing(AlertStore(options.file, must_exist=options.off)) as store:
        if options.off:
            was = store.unmute(options.host, rule)
            say(f"{whose}: alerts are wanted again" if was else f"{whose}: was not muted")
            return
        until = time.time() + parse_seconds(options.duration)
        store.mute(options.host, rule, until, options.why, _name(options.by))
        known = {"", *(alert.rule for alert in store.alerts())}
    if rule not in known and not is_new:
        say(f"warning: rule {rule}: no rule of this name is known in {options.file}")
    new = f"; {options.file} is new, for a run with --alerts {options.file}" if is_new else ""
    say(f"{whose}: muted until {shown_time(int(until) * SECOND)}{new}")


def alerts_export(options: usage.AlertsExport) -> None:
    with closing(AlertStore(options.file, must_exist=True)) as store:
        _write_json(store.alerts(), store.muted())


def _write_json(alerts: Iterable[Alert], muted: Sequence[Mute]) -> None:
    for alert in alerts:
        sys.stdout.write(json.dumps(_fields(alert, muted)) + "\n")


def _shown_end(mute: Mute) -> str:
    return shown_time(int(mute["until"]) * SECOND)


def _note(mute: Mute) -> str:
    return f" ({printable(mute['why'])})" if mute["why"] else ""


def _word(value: object) -> str:
    if isinstance(value, dict):  # what it is, and its share
        return " ".join(f"{100 * each:.0f} %" if isinstance(each, float) else _word(each) for each in value.values())
    if isinstance(value, list):
        return ", ".join(map(_word, value))
    return "-" if value is None else str(value).lower() if isinstance(value, bool) else printable(value, LONGEST)


def _fields(alert: Alert, muted: Sequence[Mute]) -> dict[str, Any]:
    """Return an alert as a person or program reads it."""
    names = {"opened": "since", "last": "until"}  # as records have them
    told = {"alert": alert.id, **{names.get(name, name): value for name, value in asdict(alert).items()}}
    told |= told.pop("known") | {
        "duration": alert.duration / SECOND,
        "state": state_of(alert, muted),
        "text": alert.text,
    }
    del told["level"]
    for name in ("since", "until", "peak_at", "closed"):
        told[name] = iso_time(told[name]) if told[name] else None
    mute = mute_of(alert, muted)
    told["muted_until"] = None if mute is None else iso_time(int(mute["until"]) * SECOND)
    told["muted_why"] = None if mute is None else mute["why"]
    return told
