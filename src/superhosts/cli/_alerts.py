"""From options and the configuration file to alerts and destinations, at the start and when SIGHUP reloads them.

For a reload the command line is read again, with the configuration file and the environment as they are now. What can
be changed while the service runs is taken over, as a whole: if anything is wrong, all of it stays as it was. No window
is lost, as the main loop does this between two rounds. What cannot be changed is named.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from superhosts.cli._config import Config, read_config
from superhosts.cli._declaration import declared, option_name
from superhosts.cli._options import AlertOptions
from superhosts.cli._program import options_now
from superhosts.core.notices import WARNING, Notice
from superhosts.core.prefixes import parse_networks
from superhosts.core.results import Selection
from superhosts.core.text import counted
from superhosts.errors import OutputError, UsageError
from superhosts.output.acts import ledger_beside
from superhosts.output.alerts.machine import ALERT_COLUMNS, LOCAL, Policy
from superhosts.output.alerts.rules import LAST, WEEK, AllowList, Rule, never_act, rules_of
from superhosts.output.alerts.store import AlertDesk, AlertStore
from superhosts.output.console import tell
from superhosts.output.delivery import DeliveryOptions
from superhosts.output.destination import Destination, Destinations, RunKind
from superhosts.output.registry import ALERT_TO, OutputOptions, open_each, tell_left_behind, withdraw_left_behind
from superhosts.pipeline.settings import Settings

TIMES_USUAL = 3.0  # of --baseline week, without a rule
ALERTS = RunKind(ALERT_COLUMNS, endless=True)


def policy_of(
    options: AlertOptions,
    config: Path | Config | None,
    own: Iterable[str] = (),
    *,
    threshold: float | None = None,
    site: str = LOCAL,
) -> Policy:
    """Read rules and lists, as they are now. Without rules there is one, which has the threshold that was asked for.

    `site`: which saw the hosts, if rows do not say it.
    """
    file = read_config(config) if isinstance(config, Path) else config
    rules = [] if file is None else rules_of(file.rules, str(file.path), options.baseline or LAST)
    if not rules:
        rule = Rule() if threshold is None else Rule(threshold=max(threshold, 1.0))
        rules = [replace(rule, times_usual=TIMES_USUAL, baseline=WEEK) if options.baseline == WEEK else rule]
    if options.baseline == WEEK and not any(rule.baseline == WEEK for rule in rules):
        raise UsageError("--baseline week: no rule has times-usual")
    allow, spared = AllowList(), AllowList()
    for text in options.allow:
        allow |= _read_list(text, "--allow") if text.startswith("@") else AllowList.of([text], "--allow")
    hosts = [str(each) for each in parse_networks(list(own), "inner")]
    for text in options.never_act:
        if text.startswith("@"):
            spared |= _read_list(text, "--never-act")
        elif text != "private":  # which is spared in any case
            hosts.append(text)
    web_url = (options.web_url or "").rstrip("/")
    return Policy(rules, allow, never_act(hosts) | spared, options.alert_cap, web_url, site)


def _read_list(text: str, option: str) -> AllowList:
    return AllowList.read(Path(text[1:]), f"{option} {text}")


def for_alerts(settings: Settings, policy: Policy) -> Settings:
    """Return settings that find the hosts which the rules need. Raise UsageError if they are not looked for."""
    held = {(part.side, part.direction, part.counts) for part in settings.reported_parts}
    for rule in policy.rules:
        if (rule.side, rule.direction, rule.counts) not in held:
            what = f"{rule.side} {rule.direction} {rule.counts}"
            others = ", ".join(sorted(" ".join(each) for each in held))
            way = "see --watch, --direction, --peers and --count"
            raise UsageError(f"rule {rule.name}: {what} is not counted, only {others}; {way}")
        if rule.patterns and not settings.evidence:
            raise UsageError(f"rule {rule.name}: patterns need --evidence")
    if settings.threshold is None and settings.top is None:
        return replace(settings, threshold=max(1.0, math.floor(policy.least)))
    check_threshold(policy, settings.selection)
    return settings


class NeededEvidence:
    """Tells once that rules have patterns while the sketches that arrive carry no evidence."""

    def __init__(self, policy: Callable[[], Policy], say: Callable[[str], None]) -> None:
        self._policy, self._say = policy, say
        self.waiting: list[str] = []  # rules that cannot open an alert, because evidence is missing

    def note(self, has_evidence: bool) -> None:
        rules = [] if has_evidence else [rule.name for rule in self._policy().rules if rule.patterns]
        if rules and rules != self.waiting:
            named = ", ".join(rules)
            self._say(
                Notice(
                    f"NO EVIDENCE: rules with patterns open no alerts ({named}): start all edges with --evidence",
                    "no-evidence",
                    WARNING,
                )
            )
        self.waiting = rules


def check_threshold(policy: Policy, selection: Selection) -> None:
    """Raise UsageError if hosts that break a rule would not be found."""
    least = policy.least_threshold
    if selection.threshold is not None and selection.threshold > least:
        way = f"use --threshold {math.floor(policy.least)} or less, or leave it out"
        starts = f"an alert rule starts at {counted(least, 'peer')}"
        raise UsageError(f"--threshold {selection.threshold:g}: {starts}; {way}")


def _receivers(addresses: Sequence[str], delivery: DeliveryOptions, alerts: Path) -> OutputOptions:
    delivery = replace(delivery, ledger=ledger_beside(alerts))
    return OutputOptions(outputs=addresses, delivery=delivery, option=ALERT_TO)


def open_desk(
    options: AlertOptions, policy: Policy, delivery: DeliveryOptions, *, ends: bool = False, quiet: bool = False
) -> AlertDesk | None:
    """Return the destination that makes alerts of rows; None if nobody wants any. `ends`: the run does."""
    if options.alerts is None:
        if options.alert_to:
            raise UsageError("--alert-to needs --alerts FILE, which keeps the alerts")
        return None
    asked = _receivers(options.alert_to, delivery, options.alerts)
    receivers = open_each(asked, ALERTS._replace(waits=ends))
    receivers += withdraw_left_behind(asked.delivery, receivers)
    if not quiet:
        tell_rules(policy)
    desk = AlertDesk(AlertStore(options.alerts), policy, receivers, tell)
    if policy.asks_week and not desk.knows_week and not quiet:
        tell('rules with baseline = "week" open no alerts in their first week: superhosts alerts learn shortens it')
    return desk


def tell_rules(policy: Policy) -> None:
    """Tell which rules open alerts, and from how many peers on."""
    tell(f"alerts are opened by {'; '.join(rule.words for rule in policy.rules)}")


def wants_alerts(options: AlertOptions) -> bool:
    return options.alerts is not None or bool(options.alert_to)


def with_alerts(
    options: AlertOptions,
    config: Path | None,
    settings: Settings,
    outputs: OutputOptions,
    *,
    ends: bool = False,
    quiet: bool = False,
) -> tuple[Settings, AlertDesk | None]:
    """Return settings that find what the rules need, and the destination that makes alerts; None without --alerts."""
    if not wants_alerts(options):
        return settings, None
    policy = policy_of(
        options, config, settings.inner, threshold=settings.threshold, site=outputs.delivery.site or LOCAL
    )
    return for_alerts(settings, policy), open_desk(options, policy, outputs.delivery, ends=ends, quiet=quiet)


RELOADED = "rules, thresholds and destinations"
CHANGEABLE = {"threshold", "top", "allow", "never_act", "alert_cap", "alert_to", "output", "config"}
CHANGEABLE |= {"baseline", "web_url"}


def exchange(
    outputs: Destinations,
    kind: RunKind,
    desk: AlertDesk | None,
    asked: OutputOptions,
    alert_to: Sequence[str],
    policy: Policy,
) -> None:
    """Give a service other destinations, of rows and of alerts, and other rules and lists.

    Nothing changes if one of them is wrong (UsageError, OutputError).
    """
    with contextlib.ExitStack() as undo:
        rows = _opened(undo, asked, kind, outputs.each())
        receivers: list[Destination] = []
        if desk is not None:
            receivers = _opened(undo, _receivers(alert_to, asked.delivery, desk.path), ALERTS, desk.receivers())
        undo.pop_all()
    tell_left_behind(asked.delivery, [*rows, *receivers])
    left = outputs.exchange(rows)
    if desk is not None:
        left += desk.exchange(receivers)
        if policy.rules != desk.policy.rules:
            tell_rules(policy)
        desk.reload(policy)
    _close_later(left)


def _opened(
    undo: contextlib.ExitStack, asked: OutputOptions, kind: RunKind, before: Sequence[Destination]
) -> list[Destination]:
    """Open what is new; `undo` gives it up again."""
    found = open_each(asked, kind, before)
    for each in found:
        if each not in before:
            undo.callback(each.abandon)
    return found


def _close_later(left: Sequence[Destination]) -> None:
    """Close destinations in a thread of its own: one that sends may first wait for its receiver."""

    def close() -> None:
        for each in left:
            try:
                each.close()
            except (OSError, OutputError) as error:
                tell(str(error))

    if left:
        threading.Thread(target=close, name="close", daemon=True).start()


def reload_options(options: Any, take: Callable[[Any], None]) -> Callable[[], None]:
    """Return what a reload calls: `take` gets the options of now. What needs a restart is told, once."""
    told: set[str] = set()

    def reload() -> None:
        now = options_now()
        take(now)
        differs = {name for name in declared(type(now)) if getattr(options, name) != getattr(now, name)}
        fixed = differs - CHANGEABLE
        if fixed - told:
            names = ", ".join(option_name(name, declared(type(options))[name]) for name in sorted(fixed))
            tell(f"changed, but only a restart takes it: {names}")
        told.clear()
        told.update(fixed)

    return reload
