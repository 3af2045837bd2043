"""`superhosts explain`: what sketches say about one host."""

from __future__ import annotations

import json as json_module
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from rich.table import Table

from superhosts.cli._keys import given_key
from superhosts.cli._progress import Progress
from superhosts.cli._settings import output_options
from superhosts.cli._sketches import SketchFacts, find_sketches
from superhosts.cli.usage.sketches import Explain
from superhosts.core.pairs import Window
from superhosts.core.results import SuperHost, SuperHosts
from superhosts.core.text import counted, printable
from superhosts.detectors.detector import Detector
from superhosts.errors import HalfMergedError, InputError, MergeError, UsageError
from superhosts.lab.hostfigures import Columns, draw_columns, draw_history, draw_hosts
from superhosts.lab.sheet import prepare_file
from superhosts.output.console import fail_with, say
from superhosts.output.destination import Destinations, RunKind
from superhosts.output.registry import open_destinations
from superhosts.output.report import COLUMNS, Report, Row, columns_with, make_rows
from superhosts.output.stdout import Format
from superhosts.output.table import OutputConsole, print_timeline
from superhosts.sketch.evidence.patterns import judge_of
from superhosts.sketch.evidence.summary import service_text
from superhosts.sketch.files import find_in_file, joined_sites, merge_named, saved_sketch
from superhosts.sketch.sketch import Sketch, load


class Question(NamedTuple):
    """What is asked of every file."""

    host: str
    key: bytes | None
    memory: str | None


class Plot:
    """The figure of --plot, if one is wanted."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def draw_one(self, sketch: Sketch, host: str, found: list[tuple[SuperHost, Row]]) -> None:
        """Draw the columns of a host in one sketch; where it has none, because pairs were counted, its number."""
        if self._path is None:
            return
        facts = SketchFacts()
        facts.add(sketch)
        note = facts.note(printable(host))
        columns = [Columns(row, _columns(sketch.parts[item.part], host)) for item, row in found]
        if all(each.columns for each in columns):
            self._say(draw_columns(columns, self._path, note))
        else:
            self._say(draw_hosts([row for _, row in found], self._path, note))

    def draw_many(self, rows: list[Row], paths: list[Path], question: Question) -> None:
        """Draw a host over windows and sites. Sketches of a fleet are alike, so the first one tells memory and key."""
        if self._path is None or not rows:
            return
        facts = SketchFacts()
        facts.add(load(paths[0], key=question.key, max_memory=question.memory))
        windows = len({row["window_start"] for row in rows})
        self._say(draw_history(rows, self._path, facts.note(printable(question.host), windows=windows)))

    @staticmethod
    def _say(paths: list[Path]) -> None:
        for path in paths:
            say(str(path))


def explain(options: Explain) -> None:
    """Show a host in one sketch with its columns, or in many over time."""
    wanted = output_options(options.results)
    # JSON Lines on standard output say more than rows do (columns, sites, the union), so they are printed here.
    rows_only = replace(wanted, json=False, outputs=wanted.addresses)
    question = Question(options.host, given_key(options.sketches.key_file), options.sketches.memory_total)
    prepare_file(options.plot)
    plot = Plot(options.plot)
    errors: list[InputError] = []
    paths = find_sketches(options.sketches.files, errors, options.span)
    if len(paths) == 1:
        kind = RunKind(columns_with(saved_sketch(paths[0]).has_evidence), many_windows=False)
        with open_destinations(rows_only, kind, table=wanted.format == "table") as outputs:
            _explain_one(paths[0], question, outputs, wanted.format, plot)
    elif paths:
        with open_destinations(rows_only, table=False) as outputs:
            _explain_many(paths, question, outputs, errors, wanted.format, plot)
    fail_with(errors)


def _explain_one(path: Path, question: Question, outputs: Destinations, format: Format, plot: Plot) -> None:
    """Show a host in one sketch, with its columns."""
    host = question.host
    sketch = load(path, key=question.key, max_memory=question.memory)
    found = sketch.estimate(host)
    if not found:
        raise _not_there(host, str(path), {part.family for part in sketch.parts})
    rows = make_rows(sketch.window, found, judge=judge_of(sketch.evidence))
    if format == "json":
        for item, row in zip(found, rows, strict=True):
            print(json_module.dumps({**row, "columns": _columns(sketch.parts[item.part], host)}))
    outputs.write(Report(rows=rows, window=sketch.window, title=f"{printable(host)} in {printable(path)}"))
    if format == "table":
        for item in found:
            _print_columns(sketch.parts[item.part], host)
        for row in rows:
            _print_evidence(row)
    plot.draw_one(sketch, question.host, list(zip(found, rows, strict=True)))


def _explain_many(
    paths: list[Path],
    question: Question,
    outputs: Destinations,
    errors: list[InputError],
    format: Format,
    plot: Plot,
) -> None:
    """Show a host in every window and site, and in the union of all."""
    groups: dict[tuple[Window | None, str], list[Path]] = defaultdict(list)
    for path in paths:
        groups[saved_sketch(path).window, saved_sketch(path).site].append(path)
    good: list[Path] = []  # files that could be read
    rows: list[Row] = []
    with Progress("windows and sites") as progress:
        for window, site in progress.over(sorted(groups, key=lambda group: (group[0] or (0, 0), group[1]))):
            found = _ask(groups[window, site], question, good, errors)
            rows += [{**row, "site": site} for row in make_rows(window, _by_part(found))]
    if good and not rows:
        raise _not_there(question.host, f"none of {counted(len(good), 'sketch', 'sketches')}", set())
    plain = [{name: row[name] for name in COLUMNS} for row in rows]
    outputs.write(Report(rows=plain))
    plot.draw_many(rows, good, question)
    if format == "csv":
        return
    unions = _ask_union(good, question) if good else []
    if format == "json":
        for row in [*rows, *({**row, "union": True} for row in unions)]:
            print(json_module.dumps(row))
    elif rows:
        print_timeline(OutputConsole(), rows, unions)


def _ask(paths: list[Path], question: Question, good: list[Path], errors: list[InputError]) -> SuperHosts:
    """Return the estimates of a host from the files of one window and site; readable files are added to `good`."""
    found = SuperHosts.none()
    whole = Sketch()
    for path in paths:
        try:
            if len(paths) == 1:
                found = find_in_file(path, question.host, key=question.key, max_memory=question.memory)
            else:  # a site that was restarted within the window
                merge_named(whole, path, question.key, question.memory)
        except HalfMergedError:
            raise
        except InputError as error:
            errors.append(error)
            say(f"superhosts: {error}")
        else:
            good.append(path)
    return found if len(paths) == 1 else whole.estimate(question.host)


def _ask_union(paths: list[Path], question: Question) -> list[Row]:
    """Return the rows of the union of all files; none, with a message, if they cannot be merged."""
    whole = Sketch()
    try:
        with Progress("sketches in the union") as progress:
            for path in progress.over(paths):
                merge_named(whole, path, question.key, question.memory)
    except MergeError as error:
        say(f"superhosts: no union of these files: {error}")
        return []
    sites = joined_sites(whole.sites)
    found, judge = _by_part(whole.estimate(question.host)), judge_of(whole.evidence)
    return [{**row, "site": sites} for row in make_rows(whole.window, found, judge=judge)]


def _by_part(found: SuperHosts) -> list[SuperHost]:
    return sorted(found, key=lambda row: row.part)


def _not_there(host: str, where: str, families: set[int]) -> UsageError:
    if not families:
        return UsageError(f"{host}: {where} holds hosts of that family")
    return UsageError(
        f"{host}: {where} holds no hosts of that family (it has IPv{' and IPv'.join(map(str, sorted(families)))})"
    )


def _columns(detector: Detector, host: str) -> list[dict[str, Any]]:
    """Return the columns of a host: how full each is, and the mean of its array."""
    return detector.columns_of(host)


def _print_evidence(row: Row) -> None:
    """Print what the peers of a row's host look like, if there is evidence."""
    if "evidence" not in row:
        return
    facts, console = row["evidence"], OutputConsole()
    ports = ", ".join(map(service_text, facts["ports"]))
    nets = ", ".join(f"{count:,} {net}" for net, count in facts["nets"].items())
    of_all = "all of its pairs" if facts["complete"] else "a sample of its pairs"
    lines = [
        f"{row['pattern'] or 'not judged'}: {row['reason']}",
        f"from {counted(facts['pairs'], 'pair')}, {of_all}; peers in {nets or 'no network'}",
        f"{counted(facts['packets_per_peer'], 'packet')} and {counted(facts['ports_per_peer'], 'port')} a peer",
        *([f"services: {ports}"] if ports else []),
        *([f"some peers: {', '.join(facts['peers'])}"] if facts["peers"] else []),
    ]
    for line in lines:
        console.print(line, markup=False, highlight=False)


def _print_columns(detector: Detector, host: str) -> None:
    columns = _columns(detector, host)
    if not columns:
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("column", "fill", "mean fill of its array"):
        table.add_column(title, justify="left" if title == "column" else "right")
    for column in columns:
        mean = "" if column["mean_fill"] is None else f"{column['mean_fill']:.1%}"
        table.add_row(str(column["array"]), f"{column['fill']:.1%}", mean)
    OutputConsole().print(table)
