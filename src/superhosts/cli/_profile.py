"""The table that says where the time of a run went, by stage and thread."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from superhosts.cli._console import say
from superhosts.core.profile import STAGES, WAITING, Profile, Spent, process_age, timing
from superhosts.core.text import counted

MOST_COLUMNS = 8  # threads with a column of their own
LONGEST_NAME = 20  # characters of a thread's name


@contextmanager
def profiled(wanted: bool) -> Iterator[None]:
    """Say in the end where the time of this process went, if `wanted`."""
    if not wanted:
        yield
        return
    with timing() as watch:
        watch.add_start(process_age())
        try:
            yield
        finally:
            for line in profile_lines(watch.profile()):
                say(line)


def profile_lines(profile: Profile) -> Iterator[str]:
    """Return the lines of the table, what threads of one role share, and the stage that was most of the work."""
    yield f"where the time went: {profile.seconds:.3f} s, {counted(len(profile.threads), 'thread')}"
    roles = _roles(profile)
    rows = [["stage", *map(_shortened, roles), "total", "CPU", "share", "rate"]]
    for name, spent in profile.stages().items():
        cells = [f"{sum(each.get(name, Spent()).seconds for each in members):.3f}" for members in roles.values()]
        rows.append([name, *cells, *_total(profile, name, spent)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        yield "  ".join([first.ljust(widths[0]), *map(str.rjust, others, widths[1:])]).rstrip()
    for role, members in roles.items():
        if len(members) > 1:
            busy = [sum(spent.seconds for name, spent in each.items() if name != WAITING) for each in members]
            yield f"{role}: {min(busy):.3f} to {max(busy):.3f} s each"
    most = profile.bottleneck()
    if most is not None:
        yield f"most work: {most} ({profile.share(most):.0%})"


def _roles(profile: Profile) -> dict[str, list[dict[str, Spent]]]:
    """Return what threads spent, by the name of the column: that of the thread, or of all with the same role."""
    if len(profile.threads) <= MOST_COLUMNS:
        return {thread: [stages] for thread, stages in profile.threads.items()}
    roles: dict[str, list[dict[str, Spent]]] = {}
    for thread, stages in profile.threads.items():
        roles.setdefault(_role(thread), []).append(stages)
    return {f"{len(found)} {role}" if len(found) > 1 else role: found for role, found in roles.items()}


def _role(thread: str) -> str:
    """Return the name of a thread without its number or file: superhosts_3 and superhosts_4 do the same."""
    return re.sub(r"[_-]?\d+( \(.*\))?$|(?<=\w) .*$", "", thread) or thread


def _total(profile: Profile, name: str, spent: Spent) -> list[str]:
    """Return the cells after the columns of the threads."""
    cpu = f"{spent.cpu:.3f}" if spent.cpu else ""
    rate = _rate(spent.amount / spent.seconds, STAGES[name]) if spent.amount and spent.seconds else ""
    share = "" if name == WAITING else f"{profile.share(name):.0%}"
    return [f"{spent.seconds:.3f}", cpu, share, rate]  # the share is that of the processor time


def _rate(each_second: float, unit: str) -> str:
    for prefix in ("", "k ", "M "):
        if each_second < 999.5:
            return f"{each_second:.3g} {prefix}{unit}/s"
        each_second /= 1000
    return f"{each_second:.3g} G {unit}/s"


def _shortened(thread: str) -> str:
    """Return the name of a thread with its middle left out: the name of a reader contains a path."""
    return thread if len(thread) <= LONGEST_NAME else f"{thread[:5]}…{thread[6 - LONGEST_NAME :]}"
