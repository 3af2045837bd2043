"""`superhosts hosts`: restore super hosts from saved sketches."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import click

from superhosts.cli._keys import given_key
from superhosts.cli._progress import Progress
from superhosts.cli._settings import output_options
from superhosts.cli._sketches import SketchFacts, find_sketches, say_each, selected
from superhosts.cli.usage.sketches import Hosts
from superhosts.core.lens import Lens
from superhosts.core.pairs import CONTACT_DIRECTIONS, DIRECTIONS, SIDES, Part, Window
from superhosts.core.prefixes import parse_networks
from superhosts.core.results import Searchable, Selection, SuperHosts
from superhosts.core.text import counted, printable
from superhosts.core.times import window_span
from superhosts.core.units import parse_duration
from superhosts.detectors.arguments import check_threshold
from superhosts.detectors.detector import Detector
from superhosts.errors import HalfMergedError, InputError, UsageError
from superhosts.lab.hostfigures import draw_hosts
from superhosts.lab.sheet import Note, prepare_file
from superhosts.output.console import ReportedErrors, fail_with, say
from superhosts.output.destination import RunKind
from superhosts.output.registry import open_destinations
from superhosts.output.report import COLUMNS, EVIDENCE_COLUMNS, Report, Row
from superhosts.pipeline.network import Network
from superhosts.sketch.files import SavedSketch, joined_sites, merge_named, saved_sketch
from superhosts.sketch.sketch import Sketch, load
from superhosts.sketch.unanswered import Unanswered, with_unanswered
from superhosts.ui.folder import answer

# Which hosts of a sketch are wanted


MORE = 4  # times as many hosts are asked for, when too few of the largest are wanted


class HostFilter(NamedTuple):
    """Prefixes, sides and directions; an empty list stands for all."""

    prefixes: Sequence[str] = ()
    sides: Sequence[str] = ()
    directions: Sequence[str] = ()

    def check(self) -> None:
        if self.prefixes and not parse_networks(self.prefixes, "prefix"):
            raise UsageError(f"--prefix {' '.join(self.prefixes)}: contains no prefix")
        directions = (*DIRECTIONS, *CONTACT_DIRECTIONS)
        for option, values, known in (("side", self.sides, SIDES), ("direction", self.directions, directions)):
            for value in values:
                if value not in known:
                    raise UsageError(f"--{option} {value}: one of {', '.join(known)}")

    def check_parts(self, parts: Set[Part]) -> None:
        """Raise UsageError if the sketches hold no such side and direction: "none" would be no answer."""
        if parts and not any(map(self.takes, parts)):
            given = [f"--side {side}" for side in self.sides] + [f"--direction {each}" for each in self.directions]
            held = ", ".join(sorted({f"--side {part.side} --direction {part.direction}" for part in parts}))
            raise UsageError(f"{' '.join(given)}: the sketches hold only {held}")

    def takes(self, part: Part) -> bool:
        wants_side = not self.sides or part.side in self.sides
        return wants_side and (not self.directions or part.direction in self.directions)

    def of(self, sketch: Sketch) -> Searchable:
        return _Wanted(sketch, [part for part in with_unanswered(sketch.parts) if self.takes(part)], self.prefixes)


class _Wanted(NamedTuple):
    sketch: Sketch
    parts: Sequence[Part]
    prefixes: Sequence[str]

    def super_hosts(self, threshold: float) -> SuperHosts:
        return self.sketch.collect(
            lambda part, detector: self._inside(part, detector, detector.super_hosts(threshold)), self.parts
        )

    def top(self, count: int) -> SuperHosts:
        return self.sketch.collect(lambda part, detector: self._top(part, detector, count), self.parts)[:count]

    def _top(self, part: Part, detector: Detector | Unanswered, count: int) -> SuperHosts:
        """Return the largest hosts of a part: more of all hosts are asked for until enough of them are inside."""
        asked = count
        while True:
            found = detector.top(asked)
            inside = self._inside(part, detector, found)
            if len(inside) >= count or len(found) < asked:
                return inside.select(slice(count))
            asked *= MORE

    def _inside(self, part: Part, detector: Detector | Unanswered, found: SuperHosts) -> SuperHosts:
        if not self.prefixes:
            return found
        if detector.format.keys:
            raise UsageError(f"--prefix selects addresses, but hosts here are {detector.format.words}; leave it out")
        bits = detector.format.prefix
        narrow, wide = (bits, 64) if part.family == 4 else (32, bits)
        lens = Lens(hosts_have_ports=detector.format.port)
        network = Network(self.prefixes, special="keep", ipv4_prefix=narrow, ipv6_prefix=wide, lens=lens)
        return found.select(network.monitors(found.hosts, part._replace(side="inner")))


# Which sketches are asked together: each alone, those of a longer window, or all of them


class Group(NamedTuple):
    """Files whose union gives one answer."""

    window: Window | None  # of the answer; None: that of the sketches
    site: str
    paths: list[Path]


def of_sites(sketches: Sequence[SavedSketch], sites: Sequence[str]) -> list[SavedSketch]:
    """Return the sketches of these sites alone. Files whose header cannot be read stay: reading them is an error."""
    if not sites:
        return list(sketches)
    chosen = [sketch for sketch in sketches if not sketch.is_readable or (sketch.sites and sketch.sites <= set(sites))]
    if sketches and not chosen:
        known = ", ".join(sorted({site for sketch in sketches for site in sketch.sites})) or "no site"
        named = counted(len(sketches), "sketch is", "sketches are")
        raise UsageError(f"--site {printable(','.join(sites))}: {named} of {printable(known)}")
    return chosen


def group_sketches(sketches: Sequence[SavedSketch], window: str | None, *, union: bool) -> list[Group]:
    """Return the groups in the order of their windows and sites.

    With `union` sites are united; without a window, everything is.
    """
    if union and window is None:
        return [Group(None, "", [sketch.path for sketch in sketches])] if sketches else []
    in_order = sorted(sketches, key=lambda sketch: (sketch.window or (0, 0), sketch.site))
    if window is None:
        return [Group(sketch.window, sketch.site, [sketch.path]) for sketch in in_order]
    groups: dict[tuple[Window, str], Group] = {}
    unreadable = [Group(None, "", [sketch.path]) for sketch in in_order if not sketch.is_readable]
    for sketch in in_order:
        if sketch.is_readable:
            longer, site = _longer_window(sketch, window), "" if union else sketch.site
            groups.setdefault((longer, site), Group(longer, site, [])).paths.append(sketch.path)
    return [*unreadable, *(groups[key] for key in sorted(groups))]


def _longer_window(sketch: SavedSketch, text: str) -> Window:
    """Return the window of this length in which that of a sketch lies."""
    length, window = parse_duration(text), sketch.window
    if window is None:
        raise UsageError(f"--window {text}: {sketch.path} has no window")
    start = window.start - window.start % length
    if window.end > start + length:
        longer = f"its window, {window_span(window)}, does not lie within one of {text}"
        raise UsageError(f"--window {text}: {sketch.path}: {longer}")
    return Window(start, start + length)


def hosts(options: Hosts) -> None:
    selection = Selection.of(options.threshold, options.top)
    if selection.threshold is not None:
        check_threshold(selection.threshold, "--threshold")
    wanted, asked = HostFilter(options.prefix, options.side, options.direction), output_options(options)
    wanted.check()
    errors = ReportedErrors()
    sketches = [saved_sketch(path) for path in find_sketches(options.files, errors.add, options)]
    sketches = of_sites(sketches, options.site)
    wanted.check_parts({part for sketch in sketches for part in sketch.parts})
    groups = group_sketches(sketches, options.window, union=options.union)
    prepare_file(options.plot)
    found: list[Row] = []
    facts = SketchFacts()
    kind = _run_kind(groups, sketches, wanted)
    progress = Progress("sketches", len(sketches))
    with open_destinations(asked, kind) as outputs, progress:
        for group in groups:
            sketch = _unite(group, options, progress, errors)
            report = _ask(group, sketch, selection, wanted)
            if sketch is not None and options.plot is not None:
                facts.add(sketch)
            if report is not None:
                named = replace(report, title=f"{group.site or 'no site'}: {report.title}")
                with progress.paused():
                    outputs.write(named if "site" in kind.varying else report)
                found += report.rows if options.plot is not None else report.rows[:1]
    if options.plot is not None:
        _draw(found, options.plot, facts.note(selected(selection)))
    fail_with(errors.found)
    if options.fail_on_find and found:
        raise click.exceptions.Exit(1)


def _draw(rows: list[Row], path: Path, note: Note) -> None:
    if not rows:
        say(f"superhosts: no host was found, so there is nothing to draw: {path} is not written")
        return
    say_each(draw_hosts(rows, path, note))


def _ask(group: Group, sketch: Sketch | None, selection: Selection, wanted: HostFilter) -> Report | None:
    """Return the hosts of a group's sketch; None if it has none."""
    if sketch is None:
        return None
    report = answer(sketch, selection, group.window, wanted.of(sketch))
    site = joined_sites(sketch.sites)
    return replace(report, rows=[{**row, "site": site} for row in report.rows])


def _run_kind(groups: list[Group], sketches: list[SavedSketch], wanted: HostFilter) -> RunKind:
    """Say what the rows will tell apart, as far as the headers of the files know it."""
    parts = {part for sketch in sketches for part in sketch.parts if wanted.takes(part)}
    values = {
        "site": {group.site for group in groups},
        "side": {part.side for part in parts},
        "direction": {part.direction for part in parts},
    }
    varying = frozenset(name for name, several in values.items() if len(several) > 1)
    added = EVIDENCE_COLUMNS if any(sketch.has_evidence for sketch in sketches) else ()
    return RunKind((*COLUMNS, "site", *added), many_windows=len(groups) > 1, varying=varying)


def _unite(group: Group, options: Hosts, progress: Progress, errors: ReportedErrors) -> Sketch | None:
    """Return the union of a group's files; None if none could be read. Such files are reported, added to `errors`."""
    key, memory = given_key(options.key_file), options.memory_total
    whole: Sketch | None = None
    for path in group.paths:
        progress.step()
        try:
            if len(group.paths) == 1:
                return load(path, key=key, max_memory=memory)
            united = Sketch() if whole is None else whole
            merge_named(united, path, key, memory)
            whole = united
        except HalfMergedError:
            raise  # the union holds part of this file
        except InputError as error:
            errors.add(error)
    return whole
