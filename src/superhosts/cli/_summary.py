"""What a run says at its end: how many packets were read, how fast, and which of them did not count.

Summaries are for people who watch, and --quiet hides them. Warnings about data that is lost are never hidden.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from superhosts.cli._options import ResultOptions
from superhosts.core.files import output_errors, replaceable, replacing
from superhosts.core.notices import WARNING, Notice, as_warning
from superhosts.core.prefixes import PRIVATE, SHOWN_PREFIXES, is_private
from superhosts.core.profile import STAGES, WAITING, Profile, Spent, process_age, timing
from superhosts.core.text import aligned, counted, short_rate
from superhosts.errors import OutputError, UsageError
from superhosts.output.console import say, tell
from superhosts.pipeline.network import REASONS, Counters
from superhosts.pipeline.settings import Settings

# Where the time of a run went, by stage and thread (--verbose)


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
    yield from aligned(rows, [False, *[True] * (len(rows[0]) - 1)])
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
        # Without its number or file: superhosts_3 and superhosts_4 do the same.
        role = re.sub(r"[_-]?\d+( \(.*\))?$|(?<=\w) .*$", "", thread) or thread
        roles.setdefault(role, []).append(stages)
    return {f"{len(found)} {role}" if len(found) > 1 else role: found for role, found in roles.items()}


def _total(profile: Profile, name: str, spent: Spent) -> list[str]:
    cpu = f"{spent.cpu:.3f}" if spent.cpu else ""
    known = spent.amount and spent.seconds
    rate = f"{short_rate(spent.amount / spent.seconds)} {STAGES[name]}/s" if known else ""
    share = "" if name == WAITING else f"{profile.share(name):.0%}"
    return [f"{spent.seconds:.3f}", cpu, share, rate]  # the share is that of the processor time


def _shortened(thread: str) -> str:
    """Return the name of a thread with its middle left out: the name of a reader contains a path."""
    return thread if len(thread) <= LONGEST_NAME else f"{thread[:5]}…{thread[6 - LONGEST_NAME :]}"


LEAST_COMPILING = 0.5  # seconds that are told
WRONG_INNER = 0.9  # share of packets without an inner end from which on --inner is probably not what was meant
# Packets that should have counted
LOSSES = (
    "truncated",
    "unsupported_link",
    "bad_rows",
    "unknown_details",
    "late",
    "stray",
    "ungrouped",
    "skipped_family",
)
# What flow exports lack, by the name of the counter in their status: one of them, and several.
EXPORT_LOSSES = {
    "lost_records": ("record LOST before it arrived", "records LOST before they arrived"),
    "lost_datagrams": ("datagram LOST before it arrived", "datagrams LOST before they arrived"),
    "other_datagrams": ("datagram that is not an export of this kind", "datagrams that are not exports of this kind"),
    "damaged": ("damaged datagram", "damaged datagrams"),
    "sets_waiting": ("set of records that waits for its template", "sets of records that wait for their templates"),
    "sets_without_template": ("set of records without its template", "sets of records without their templates"),
    "wrong_times": ("implausible time, ignored", "implausible times, ignored"),
}


class RunTotals(NamedTuple):
    counters: Counters
    seconds: float  # without those in which loops were compiled
    windows: int
    window_text: str  # the windows for people: "3 windows of 5m"
    compiling: float = 0.0  # seconds

    def as_json(self) -> dict[str, Any]:
        counters = self.counters
        return {
            **_named(counters, "packets", "ipv4", "ipv6", "rows", "pairs"),
            "windows": self.windows,
            "windows_revised": counters.revised,
            "windows_incomplete": counters.unrevised,
            "not_counted": _named(counters, *REASONS),
            **_named(counters, "skipped_records", "special_ends", "truncated_files", "drops", "repeats"),
            **({"exports": counters.exports} if counters.exports else {}),
            "warnings": counters.warnings,
            "seconds": round(self.seconds, 3),
            "seconds_compiling": round(self.compiling, 3),
        }


def _named(counters: Counters, *names: str) -> dict[str, Any]:
    return {name: getattr(counters, name) for name in names}


def windows_text(windows: int, settings: Settings, *, skipped: int = 0, is_short: bool = False) -> str:
    """Return how many windows of which length there were; if `is_short`, one means that the input was not longer."""
    if is_short and windows == 1:
        return f"1 window (the input is shorter than {settings.window})"
    every = f", one every {settings.slide}" if settings.slides else ""
    same = f" ({skipped:,} others with the packets of the window before skipped)" if skipped else ""
    return counted(windows, "window") + ("" if settings.window == "all" else f" of {settings.window}{every}{same}")


def tell_end(totals: RunTotals, *, quiet: bool) -> None:
    """Write what is lost, and in the last line what was read, unless `quiet`."""
    counters = totals.counters
    for warning in counters.warnings:
        say(as_warning(warning))
    warn_of_late(counters)
    warn_of_wrong_inner(counters)
    if quiet:
        warn_of_uncounted(counters)
    else:
        seconds = f"{totals.seconds:.2f}" if totals.seconds < 10 else f"{totals.seconds:,.0f}"
        speed = f"{short_rate(counters.packets / max(totals.seconds, 1e-9))} {noun_of(counters)}s/s"
        before = f"compiled for {totals.compiling:.0f} s; " if totals.compiling >= LEAST_COMPILING else ""
        text = f"{before}{_packets(counters)} in {seconds} s ({speed}), {totals.window_text}{_not_counted(counters)}"
        _say_summary(counters, text)


def warn_of_uncounted(counters: Counters) -> None:
    """Write how many packets should have counted and did not, for those who do not see the summary."""
    said = {"late"} if _is_late_said(counters) else set()
    lost = {name: getattr(counters, name) for name in LOSSES if name not in said and getattr(counters, name)}
    if lost:
        noun = noun_of(counters)
        packets = counted(sum(lost.values()), f"{noun} was", f"{noun}s were")
        reasons = ", ".join(f"{count:,} {REASONS[name]}" for name, count in lost.items())
        tell(as_warning(f"{packets} not counted: {reasons}"))


def summarise(counters: Counters) -> None:
    """Write warnings, how many packets were read, and how many did not become pairs, by reason."""
    for warning in counters.warnings:
        say(as_warning(warning))
    _say_summary(counters, _packets(counters) + _not_counted(counters))


def _say_summary(counters: Counters, text: str) -> None:
    say(Notice(text, "summary", packets=counters.packets, pairs=counters.pairs, drops=counters.drops))


def noun_of(counters: Counters) -> str:
    """Return what was read: packets, or rows of tables; records if they are of flow exports, or if it was both."""
    if not counters.rows and not counters.records:
        return "packet"
    return "row" if counters.rows == counters.packets else "record"


def _packets(counters: Counters) -> str:
    skipped, repeats = counters.skipped_records, counters.repeats
    others = f" ({counted(skipped, 'other record')} skipped)" if skipped else ""
    others += f" ({counted(repeats, 'repeat')} stopped in the kernel)" if repeats else ""
    return counted(counters.packets, noun_of(counters)) + others


def _not_counted(counters: Counters) -> str:
    reasons = [f"{getattr(counters, name):,} {words}" for name, words in REASONS.items() if getattr(counters, name)]
    text = f"; not counted: {', '.join(reasons)}" if reasons else ""
    if counters.special_ends:
        ends = counted(counters.special_ends, "multicast, broadcast or unspecified end")
        text += f'; no hosts: {ends} (unless special = "keep")'
    text += "".join(f"; {words}" for words in _export_losses(counters.exports))
    if counters.drops:
        text += f"; DROPPED before they could be read: {counted(counters.drops, noun_of(counters))}"
    return text


def _export_losses(exports: Sequence[Mapping[str, Any]]) -> list[str]:
    sums = {name: sum(each.get(name) or 0 for each in exports) for name in EXPORT_LOSSES}
    return [counted(count, *EXPORT_LOSSES[name]) for name, count in sums.items() if count]


def warn_of_late(counters: Counters) -> None:
    """Write what makes results incomplete or repeated because packets came out of order."""
    if counters.revised:
        windows = counted(counters.revised, "window was", "windows were")
        again = f"{windows} reported a second time, as revision 2: keep the later rows"
        tell(as_warning(f"packets far out of order: {again}"))
    if counters.unrevised:
        windows = counted(counters.unrevised, "window was", "windows were")
        late = counted(counters.late, "packet that was", "packets that were")
        lacking = f"without {late} far out of order; scan the files again"
        tell(as_warning(Notice(f"INCOMPLETE: {windows} reported and saved {lacking}", "incomplete", WARNING)))
    elif _is_late_said(counters):
        share = _share(counters.late, counters.packets, counters)
        way = "a file may be in any order, a pipe may not"
        tell(as_warning(f"{share} came too late for their window and are not counted; {way}"))


def _is_late_said(counters: Counters) -> bool:
    """Return True if late packets have a warning of their own, because they are many."""
    return bool(counters.unrevised) or counters.late * 100 > counters.packets


def _share(some: int, of_all: int, counters: Counters) -> str:
    share = f" ({some / of_all:.1%})" if of_all > 0 else ""
    return f"{some:,} of {counted(of_all, noun_of(counters))}{share}"


def warn_of_wrong_inner(counters: Counters) -> bool:
    """Warn, even with --quiet, if hardly any packet has an end within --inner, and name the prefixes that were seen.

    Return True if there was a warning.
    """
    packets = counters.ipv4 + counters.ipv6 - counters.skipped_family - counters.repeated - counters.unused
    packets -= counters.filtered + counters.unknown_details + counters.no_contact  # whose ends nobody has looked at
    if counters.no_inner_end <= WRONG_INNER * packets:
        return False
    share = _share(counters.no_inner_end, packets, counters)
    has, is_ = ("has", "is") if counters.no_inner_end == 1 else ("have", "are")
    said = f"{share} {has} neither address inside --inner and {is_} not counted"
    seen = [prefix for prefix, _ in Counter(counters.outside).most_common(SHOWN_PREFIXES)]
    if seen:
        hint = PRIVATE if is_private(seen[0]) else seen[0]
        said += f"; prefixes seen most: {', '.join(seen)}; if the first is yours: --inner {hint}"
    tell(as_warning(said))
    return True


STANDARD_OUTPUT = "-"


class CountersOutput:
    """Where the counters of a run go; nowhere if there is no target."""

    def __init__(self, target: str | None, results: ResultOptions | None = None) -> None:
        """Check the target before the run, so that a long one does not end without its counters."""
        self._target = target
        if target == STANDARD_OUTPUT:
            if results is None or results.json or results.csv or not {*results.output} - {STANDARD_OUTPUT}:
                way = "give --counters FILE, or --output FILE for the rows"
                raise UsageError(f"--counters -: standard output has the rows; {way}")
        elif target is not None:
            path = replaceable(target)
            if not path.parent.is_dir():
                raise OutputError(f"{target}: cannot be written: its folder does not exist")

    @property
    def takes_standard_output(self) -> bool:
        return self._target == STANDARD_OUTPUT

    def write(self, totals: RunTotals) -> None:
        """Write the counters, the whole of them or nothing (OutputError)."""
        if self._target is None:
            return
        text = json.dumps(totals.as_json())
        if self.takes_standard_output:
            print(text)
            return
        with output_errors(self._target), replacing(replaceable(self._target)) as temporary:
            temporary.write_text(f"{text}\n")
