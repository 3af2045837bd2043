"""`superhosts acts`: look at what is in force against hosts, and withdraw it, whether the run goes on or not."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from superhosts.cli.usage.setup import ActsList, ActsWithdraw
from superhosts.core.text import aligned, counted, printable
from superhosts.core.times import shown_row_time
from superhosts.errors import OutputError, UsageError
from superhosts.output.acts import BY_PERSON, ENDING, HELD, OVER, Act, Change, Ledger, ledger_beside
from superhosts.output.alerts.rules import as_network, contains
from superhosts.output.console import say
from superhosts.output.registry import open_actor
from superhosts.output.senders import PermanentError, TemporaryError, reason_of

PATIENCE = 15.0  # seconds that the run has to withdraw what it was asked to


def acts_list(options: ActsList) -> None:
    with closing(Ledger(ledger_beside(options.file), must_exist=True)) as ledger:
        found: Sequence[Any] = ledger.audit() if options.audit else [act.listed() for act in ledger.acts()]
    if not options.all and not options.audit:
        found = [act for act in found if act["state"] in HELD]
    if options.json:
        for each in found:
            print(json.dumps(each))
        return
    if not found:
        say("no acts" if options.all or options.audit else "no acts in force (--all lists others)")
        return
    titles: tuple[str, ...] = ("since", "until", "destination", "host", "rule", "alert", "state")
    if options.audit:
        titles = ("at", "destination", "host", "alert", "what", "why")
    rows = [titles, *(_cells(each) for each in found)]
    for line in aligned(rows, [False] * len(titles)):
        print(line)


def _cells(found: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the cells of an act, or of a line of the audit."""
    if "what" in found:
        return shown_row_time(found["at"]), *(
            printable(found[name]) for name in ("place", "host", "alert", "what", "why")
        )
    state = f"{found['state']}{', dry run' if found['dry'] else ''}{': ' if found['why'] else ''}{found['why']}"
    times = shown_row_time(found["since"]), shown_row_time(found["expires"])
    return *times, *(printable(found[name]) for name in ("place", "host", "rule", "alert")), printable(state)


def acts_withdraw(options: ActsWithdraw) -> None:
    if (options.host is None) != options.all:
        raise UsageError("name a HOST, or give --all" if options.host is None else "HOST or --all: choose one")
    network = None if options.host is None else as_network(options.host, "HOST")
    with closing(Ledger(ledger_beside(options.file), must_exist=True)) as ledger:
        held = [act for act in ledger.acts() if act.state in HELD]
        found = [act for act in held if network is None or contains(network, act.network)]
        if not found:
            say("nothing is in force" if options.all else f"{options.host}: nothing is in force")
            return
        ledger.change([Change(act, replace(act, state=ENDING, why=BY_PERSON)) for act in found])
        asked = {(act.place, act.host) for act in found}
        troubles = _withdraw(ledger, asked) if ledger.hold() else _await(ledger, asked)
    done = len(found) - len(troubles)
    if done:
        say(f"{counted(done, 'act')} withdrawn")
    if troubles:
        raise OutputError(f"{counted(len(troubles), 'act')} NOT WITHDRAWN: {'; '.join(troubles[:3])}")


def _withdraw(ledger: Ledger, asked: set[tuple[str, str]]) -> list[str]:
    """Withdraw acts of a ledger that no run holds; return what is wrong."""
    troubles = []
    for act in _left(ledger, asked):
        actor = open_actor(act.address)
        try:
            if not act.dry:
                actor.withdraw(act)
        except (TemporaryError, PermanentError, OSError) as error:
            troubles.append(f"{act.host}: {printable(reason_of(error))}")
            continue
        finally:
            actor.close()
        what = "would withdraw" if act.dry else "withdrawn"
        ledger.change([Change(act, replace(act, state=OVER), what, BY_PERSON)])
    return troubles


def _await(ledger: Ledger, asked: set[tuple[str, str]]) -> list[str]:
    """Wait for the run that holds the ledger; return what it has not withdrawn yet."""
    until = time.monotonic() + PATIENCE
    while (left := _left(ledger, asked)) and time.monotonic() < until:
        time.sleep(0.1)
    return [f"{act.host}: the run has not done it yet, and tries on" for act in left]


def _left(ledger: Ledger, asked: set[tuple[str, str]]) -> list[Act]:
    return [act for act in ledger.acts() if act.state in HELD and (act.place, act.host) in asked]
