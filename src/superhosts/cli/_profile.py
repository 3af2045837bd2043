"""The table that says where the time of a run went, by stage and thread."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from superhosts.cli._console import say
from superhosts.stopwatch import STAGES, Profile, Spent, process_age, timing
from superhosts.text import counted

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
    """Return the lines of the table and one that names the stage that took most time."""
    threads = counted(len(profile.threads), "thread")
    yield f"where the time went: {profile.seconds:.3f} s, {threads}"
    columns, stages = _columns(profile), profile.stages()
    rows = [["stage", *map(_shortened, columns), "total", "share", "CPU", "rate"]]
    for name, spent in stages.items():
        rows.append([name, *[f"{seconds[name]:.3f}" for seconds in columns.values()], *_total(profile, name, spent)])
    rest = profile.seconds * len(profile.threads) - sum(spent.seconds for spent in stages.values())
    rows.append(["other", *[""] * len(columns), f"{rest:.3f}", f"{profile.share(rest):.0%}", "", ""])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        yield "  ".join([first.ljust(widths[0]), *map(str.rjust, others, widths[1:])]).rstrip()
    most = profile.bottleneck()
    if most is not None:
        yield f"most time: {most} ({profile.share(stages[most].seconds):.0%} of {threads})"


def _columns(profile: Profile) -> dict[str, dict[str, float]]:
    """Return the seconds of each stage for each column: a thread, or how many threads of one role compare."""
    seconds = {
        thread: {name: stages[name].seconds if name in stages else 0.0 for name in STAGES}
        for thread, stages in profile.threads.items()
    }
    if len(seconds) <= MOST_COLUMNS:
        return seconds
    roles: dict[str, list[dict[str, float]]] = {}
    for thread, stages in seconds.items():
        roles.setdefault(_role(thread), []).append(stages)
    columns = {}
    for role, members in roles.items():
        of_stage = {stage: [member[stage] for member in members] for stage in STAGES}
        several = len(members) > 1
        columns[f"{len(members)} {role}" if several else role] = {stage: sum(of_stage[stage]) for stage in STAGES}
        if several:
            columns[f"least {role}"] = {stage: min(of_stage[stage]) for stage in STAGES}
            columns[f"most {role}"] = {stage: max(of_stage[stage]) for stage in STAGES}
    return columns


def _role(thread: str) -> str:
    """Return the name of a thread without its number: superhosts_3 and superhosts_4 do the same."""
    return re.sub(r"[_-]?\d+( \(.*\))?$", "", thread) or thread


def _total(profile: Profile, name: str, spent: Spent) -> list[str]:
    """Return the cells after the columns of the threads."""
    cpu = f"{spent.cpu:.3f}" if spent.cpu else ""
    rate = _rate(spent.amount / spent.seconds, STAGES[name]) if spent.amount and spent.seconds else ""
    return [f"{spent.seconds:.3f}", f"{profile.share(spent.seconds):.0%}", cpu, rate]


def _rate(each_second: float, unit: str) -> str:
    for prefix in ("", "k ", "M "):
        if each_second < 999.5:
            return f"{each_second:.3g} {prefix}{unit}/s"
        each_second /= 1000
    return f"{each_second:.3g} G {unit}/s"


def _shortened(thread: str) -> str:
    """Return the name of a thread with its middle left out: the name of a reader contains a path."""
    return thread if len(thread) <= LONGEST_NAME else f"{thread[:5]}…{thread[6 - LONGEST_NAME :]}"
