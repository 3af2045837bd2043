"""`superhosts watch`: the super hosts of this machine's own interfaces, live in the terminal."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace

from superhosts.cli._alerts import RELOADED, exchange, for_alerts, policy_of, reload_options, with_alerts
from superhosts.cli._declaration import check_no_conflict
from superhosts.cli._keys import key_for_sketches
from superhosts.cli._progress import ScanProgress, View
from superhosts.cli._settings import output_options, tell_detector, traffic_settings
from superhosts.cli._summary import CountersOutput
from superhosts.cli._values import parse_seconds
from superhosts.cli.scan import ScanRun, run_scan, use_filter
from superhosts.cli.usage.traffic import Watch
from superhosts.cli.web import Dashboard
from superhosts.fleet.archive import SavedFolder
from superhosts.output.console import ReportedErrors, fail_with, tell
from superhosts.output.destination import ENDLESS, RunKind
from superhosts.output.registry import open_destinations
from superhosts.output.report import columns_with
from superhosts.pipeline.scan import Scan, scan_options
from superhosts.sources.open import open_inputs
from superhosts.ui.live import LiveView
from superhosts.ui.monitor import Monitor, observe_outputs, observe_watch
from superhosts.ui.service import Reloads, in_background


def watch(options: Watch) -> None:
    settings = traffic_settings(options)
    counters, asked = CountersOutput(options.counters, options), output_options(options, ENDLESS, site=options.site)
    monitor, errors = Monitor("watch", options.metrics), ReportedErrors()
    dashboard = Dashboard(options)
    if options.save is None:
        check_no_conflict(options, ["keep"], "only with --save")
    sources = open_inputs(options.inputs, errors.add, follow=True, tables=options.tables)
    use_filter(sources, options.filter)
    if not sources:
        fail_with(errors.found)
    settings = replace(settings, key=key_for_sketches(options.key_file, saves=options.save is not None))
    settings, desk = with_alerts(options, options.config, settings, asked, quiet=options.quiet)
    view: View = ScanProgress(wanted=not options.quiet)
    if asked.format == "table" and not counters.takes_standard_output and sys.stdout.isatty():
        view = LiveView(parse_seconds(options.refresh), options.varying, alerts=desk.open_events if desk else list)
    kind = RunKind(columns_with(settings.evidence, settings.group_by), endless=True, varying=options.varying)
    table = not isinstance(view, LiveView) and not counters.takes_standard_output
    is_live = not all(source.replays for source in sources)  # files can wait for a reader of standard output
    outputs = open_destinations(asked, kind, table=table, say=tell if is_live else None, desk=desk)
    run: Scan | None = None
    title = f"watch {options.site}"
    dashboard.show(monitor, options, title, outputs, lambda: settings if run is None else run.settings, options.save)
    reloads = Reloads(monitor.manager)
    reloads.add("--output", outputs.reopen)
    dashboard.add_to(reloads)

    def take(now: Watch) -> None:
        assert run is not None  # it takes a step of the run to come here
        selected = replace(run.settings, threshold=now.threshold, top=now.top)
        policy = policy_of(now, now.config, selected.inner, threshold=selected.threshold, site=now.site)
        if desk is not None:
            selected = for_alerts(selected, policy)
        exchange(outputs, kind, desk, output_options(now, ENDLESS, site=now.site), now.alert_to, policy)
        run.select(selected.threshold, selected.top)

    reloads.add(RELOADED, reload_options(options, take))

    @contextmanager
    def observed(scan: Scan) -> Iterator[None]:
        nonlocal run
        run = scan
        readings = [*observe_watch(monitor, scan), *observe_outputs(outputs, desk)]
        with removing(options), monitor.serving(readings, reloads):
            yield
            monitor.manager.stopping()

    def on_step() -> None:
        reloads.run_if_asked()
        monitor.beat()

    timing = scan_options(sources, settings, joins_short=False, grace=parse_seconds(options.grace))
    how = ScanRun(options.save, options.quiet, counters=counters, view=view, around=observed, on_step=on_step)
    how = replace(how, run=timing._replace(leaves_open=False), prepares=True, reload=reloads.ask)
    tell_detector(options, settings)
    run_scan(sources, settings, outputs, errors, how)
    fail_with(errors.found)


def removing(options: Watch) -> AbstractContextManager[None]:
    """Remove sketches that are older than --keep, in the background, while the context is open."""
    if options.save is None or options.keep is None:
        return nullcontext()
    stop = threading.Event()
    folder = SavedFolder(options.save, options.site, parse_seconds(options.keep), tell)
    return in_background("keep", lambda: folder.run(stop), stop)
