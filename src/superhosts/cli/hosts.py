"""`superhosts hosts`: restore super hosts from saved sketches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import typer

from superhosts.cli._console import fail_with, say
from superhosts.cli._filtering import HostFilter
from superhosts.cli._grouping import Group, group_sketches, of_sites
from superhosts.cli._keys import given_key
from superhosts.cli._outputs import output_options
from superhosts.cli._plotting import SketchFacts, selected
from superhosts.cli._progress import Progress
from superhosts.cli._sketches import find_sketches
from superhosts.cli.usage.hosts import Hosts
from superhosts.core.results import Selection
from superhosts.detectors.arguments import check_threshold
from superhosts.errors import HalfMergedError, InputError
from superhosts.lab.drawing import Note, prepare_file
from superhosts.lab.hostfigures import draw_hosts
from superhosts.output.destination import RunKind
from superhosts.output.registry import open_destinations
from superhosts.output.report import COLUMNS, EVIDENCE_COLUMNS, Report, Row
from superhosts.sketch.files import SavedSketch, joined_sites, merge_named, saved_sketch
from superhosts.sketch.sketch import Sketch, load
from superhosts.ui.folder import answer


def hosts(options: Hosts) -> None:
    """Write the super hosts of every sketch, of every longer window, or of the union of all."""
    selection = Selection.of(options.wanted.threshold, options.wanted.top)
    if selection.threshold is not None:
        check_threshold(selection.threshold, "--threshold")
    wanted = HostFilter(options.only.prefix, options.only.side, options.only.direction)
    wanted.check()
    errors: list[InputError] = []
    sketches = [saved_sketch(path) for path in find_sketches(options.sketches.files, errors, options.span)]
    sketches = of_sites(sketches, options.only.site)
    wanted.check_parts({part for sketch in sketches for part in sketch.parts})
    groups = group_sketches(sketches, options.window, union=options.union)
    prepare_file(options.plot)
    found: list[Row] = []
    facts = SketchFacts()
    kind = _run_kind(groups, sketches, wanted)
    progress = Progress("sketches", len(sketches))
    with open_destinations(output_options(options.results), kind) as outputs, progress:
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
    fail_with(errors)
    if options.fail_on_find and found:
        raise typer.Exit(1)


def _draw(rows: list[Row], path: Path, note: Note) -> None:
    if not rows:
        say(f"superhosts: no host was found, so there is nothing to draw: {path} is not written")
        return
    for drawn in draw_hosts(rows, path, note):
        say(str(drawn))


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


def _unite(group: Group, options: Hosts, progress: Progress, errors: list[InputError]) -> Sketch | None:
    """Return the union of a group's files; None if none could be read. Such files are reported, added to `errors`."""
    key, memory = given_key(options.sketches.key_file), options.sketches.memory_total
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
            errors.append(error)
            say(f"superhosts: {error}")
    return whole
