"""`superhosts calibrate`: the cube against the exact answer on the user's own traffic."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from superhosts.cli._keys import given_key
from superhosts.cli._progress import ScanProgress
from superhosts.cli._settings import make_settings
from superhosts.cli._summary import summarise, warn_of_wrong_inner
from superhosts.cli.usage.lab import Calibrate
from superhosts.core.hashing import fingerprint, secret_of
from superhosts.core.pairs import Window
from superhosts.core.text import counted
from superhosts.core.times import shown_time
from superhosts.core.units import format_size, parse_share
from superhosts.lab.calibrate import Calibration, Trial, cube_panels, judge
from superhosts.lab.experiment import why_nothing
from superhosts.lab.figures import draw_calibration
from superhosts.lab.scores import percent
from superhosts.lab.sheet import key_words, prepare_file
from superhosts.output.console import ReportedErrors, command_line, fail_with, say
from superhosts.output.table import OutputConsole, print_table
from superhosts.sources.open import open_inputs


def calibrate(options: Calibrate) -> None:
    prepare_file(options.plot)
    errors = ReportedErrors()
    settings = make_settings(options, key=given_key(options.key_file))
    share, panels = parse_share(options.error), cube_panels(settings)
    progress = ScanProgress()
    sources = open_inputs(options.inputs, errors.add, tables=options.tables)
    run = panels.run(sources, on_error=errors.add, on_progress=progress.step)

    def show(window: Window, hosts: int) -> None:
        progress.busy(f"window {shown_time(window.start)}: {counted(hosts, 'host')} …")  # which may take a while

    with progress.of(run):
        result = judge(run, panels, error=share, on_window=show)
    summarise(run.counters)
    warn_of_wrong_inner(run.counters)
    if not result.windows:
        say(f"superhosts: nothing to judge: {why_nothing(run.counters)}")
        fail_with(errors.found)
        return
    if options.json:
        print(json.dumps(result.to_dict()))
    else:
        _print(result)
    if options.plot is not None:
        _draw(result, options.plot, key_words([fingerprint(secret_of(settings.key))]))
    fail_with(errors.found)


def _draw(result: Calibration, path: Path, key: str) -> None:
    if not len(result.asked.all_estimates().true):
        least = counted(result.threshold, "peer")
        say(f"superhosts: no host has {least}, so there is nothing to draw: {path} is not written")
        return
    for drawn in draw_calibration(result, path, key, command_line(sys.argv)):
        say(str(drawn))


def _print(result: Calibration) -> None:
    true = result.asked.scores[result.threshold].true
    windows, hosts = counted(result.windows, "window"), counted(true, "super host")
    title = f"{windows}, {hosts} of {counted(result.threshold, 'peer')}, up to {counted(result.most_flows, 'flow')}"
    names = ("memory", "missed", "false", "FTR %", "predicted", "error %", "held %", "saturated", "fill %")
    print_table(names, (_cells(trial, result) for trial in result.trials), title=title, left=0)
    console = OutputConsole()
    note = (
        "FTR: missed and false, of the super hosts · predicted: the FTR of such a cube, for the hosts of the fullest\n"
        "window with super hosts; exact: all pairs fitted, and nothing is estimated · error: of the estimates, mean ·\n"
        "held: the truth in the interval"
    )
    console.print(note, style="dim", highlight=False)
    console.print(result.advice(), highlight=False)


def _cells(trial: Trial, result: Calibration) -> list[str]:
    facts = trial.to_dict(result.threshold)
    return [
        format_size(trial.memory) + (" *" if trial.memory == result.memory else ""),
        *(f"{facts[name]:,}" for name in ("missed", "false")),
        percent(facts["ftr"]),
        "exact" if facts["exact"] else percent(facts["expected_ftr"]),
        percent(facts["error"]),
        percent(facts["coverage"], 1),
        f"{facts['saturated_hosts']:,}",
        percent(facts["fill"], 1),
    ]
