"""`superhosts explain`: what sketches say about one host."""

from __future__ import annotations

import json as json_module
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

from superhosts.cli._keys import given_key
from superhosts.cli._progress import Progress
from superhosts.cli._settings import output_options
from superhosts.cli._sketches import SketchFacts, find_sketches, say_each
from superhosts.cli.usage.sketches import Explain
from superhosts.core.pairs import Window
from superhosts.core.results import SuperHost, SuperHosts
from superhosts.core.text import counted, printable
from superhosts.errors import HalfMergedError, InputError, MergeError, UsageError
from superhosts.lab.hostfigures import Columns, draw_columns, draw_history, draw_hosts
from superhosts.lab.sheet import prepare_file
from superhosts.output.console import ReportedErrors, fail_with, say
from superhosts.output.destination import Destinations, RunKind
from superhosts.output.registry import open_destinations
from superhosts.output.report import COLUMNS, Report, Row, columns_with, make_rows
from superhosts.output.stdout import Format
from superhosts.output.table import OutputConsole, print_table, print_timeline
from superhosts.sketch.evidence.summary import service_text
from superhosts.sketch.files import find_in_file, joined_sites, merge_named, saved_sketch
from superhosts.sketch.sketch import Sketch, load


def explain(options: Explain) -> None:
    wanted = output_options(options)
    # JSON Lines on standard output say more than rows do (columns, sites, the union), so they are printed here.
    rows_only = replace(wanted, json=False, outputs=[each for each in wanted.outputs if each != "-"])
    key = given_key(options.key_file)
    prepare_file(options.plot)
    errors = ReportedErrors()
    paths = find_sketches(options.files, errors.add, options)
    if len(paths) == 1:
        kind = RunKind(columns_with(saved_sketch(paths[0]).has_evidence), many_windows=False)
        with open_destinations(rows_only, kind, table=wanted.format == "table") as outputs:
            _explain_one(paths[0], options, key, outputs, wanted.format)
    elif paths:
        with open_destinations(rows_only, table=False) as outputs:
            _explain_many(paths, options, key, outputs, errors, wanted.format)
    fail_with(errors.found)


def _explain_one(path: Path, options: Explain, key: bytes | None, outputs: Destinations, format: Format) -> None:
    host = options.host
    sketch = load(path, key=key, max_memory=options.memory_total)
    found = sketch.estimate(host)
    if not found:
        families = " and IPv".join(sorted({str(part.family) for part in sketch.parts}))
        raise UsageError(f"{host}: {path} holds no hosts of that family (it has IPv{families})")
    rows = make_rows(sketch.window, found, judge=sketch.judge())
    columns = [sketch.parts[item.part].columns_of(host) for item in found]  # how full each is, and its array's mean
    if format == "json":
        for row, some in zip(rows, columns, strict=True):
            print(json_module.dumps({**row, "columns": some}))
    outputs.write(Report(rows=rows, window=sketch.window, title=f"{printable(host)} in {printable(path)}"))
    if format == "table":
        for some in columns:
            _print_columns(some)
        for row in rows:
            _print_evidence(row)
    if options.plot is not None:
        facts = SketchFacts()
        facts.add(sketch)
        note = facts.note(printable(host))
        if all(columns):
            drawn = draw_columns([Columns(*each) for each in zip(rows, columns, strict=True)], options.plot, note)
        else:  # pairs were counted
            drawn = draw_hosts(rows, options.plot, note)
        say_each(drawn)


def _explain_many(
    paths: list[Path],
    options: Explain,
    key: bytes | None,
    outputs: Destinations,
    errors: ReportedErrors,
    format: Format,
) -> None:
    """Show a host in every window and site, and in the union of all."""
    groups: dict[tuple[Window | None, str], list[Path]] = defaultdict(list)
    for path in paths:
        groups[saved_sketch(path).window, saved_sketch(path).site].append(path)
    good: list[Path] = []  # files that could be read
    rows: list[Row] = []
    with Progress("windows and sites") as progress:
        for window, site in progress.over(sorted(groups, key=lambda group: (group[0] or (0, 0), group[1]))):
            found = _ask(groups[window, site], options, key, good, errors)
            rows += [{**row, "site": site} for row in make_rows(window, _by_part(found))]
    if good and not rows:
        named = counted(len(good), "sketch", "sketches")
        raise UsageError(f"{options.host}: none of {named} holds hosts of that family")
    plain = [{name: row[name] for name in COLUMNS} for row in rows]
    outputs.write(Report(rows=plain))
    if options.plot is not None and rows:
        facts = SketchFacts()
        facts.add(load(good[0], key=key, max_memory=options.memory_total))  # those of a fleet have one memory and key
        windows = len({row["window_start"] for row in rows})
        say_each(draw_history(rows, options.plot, facts.note(printable(options.host), windows=windows)))
    if format not in ("json", "table"):
        return
    unions = _ask_union(good, options, key) if good else []
    if format == "json":
        for row in [*rows, *({**row, "union": True} for row in unions)]:
            print(json_module.dumps(row))
    elif rows:
        print_timeline(OutputConsole(), rows, unions)


def _ask(
    paths: list[Path], options: Explain, key: bytes | None, good: list[Path], errors: ReportedErrors
) -> SuperHosts:
    """Return the estimates of a host from the files of one window and site; readable files are added to `good`."""
    found = SuperHosts.none()
    whole = Sketch()
    for path in paths:
        try:
            if len(paths) == 1:
                found = find_in_file(path, options.host, key=key, max_memory=options.memory_total)
            else:  # a site that was restarted within the window
                merge_named(whole, path, key, options.memory_total)
        except HalfMergedError:
            raise
        except InputError as error:
            errors.add(error)
        else:
            good.append(path)
    return found if len(paths) == 1 else whole.estimate(options.host)


def _ask_union(paths: list[Path], options: Explain, key: bytes | None) -> list[Row]:
    """Return the rows of the union of all files; none, with a message, if they cannot be merged."""
    whole = Sketch()
    try:
        with Progress("sketches in the union") as progress:
            for path in progress.over(paths):
                merge_named(whole, path, key, options.memory_total)
    except MergeError as error:
        say(f"superhosts: no union of these files: {error}")
        return []
    sites = joined_sites(whole.sites)
    found, judge = _by_part(whole.estimate(options.host)), whole.judge()
    return [{**row, "site": sites} for row in make_rows(whole.window, found, judge=judge)]


def _by_part(found: SuperHosts) -> list[SuperHost]:
    return sorted(found, key=lambda row: row.part)


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


def _print_columns(columns: list[dict[str, Any]]) -> None:
    if not columns:
        return
    shares = [(each, "" if each["mean_fill"] is None else f"{each['mean_fill']:.1%}") for each in columns]
    cells = [(str(each["array"]), f"{each['fill']:.1%}", mean) for each, mean in shares]
    print_table(("column", "fill", "mean fill of its array"), cells)
