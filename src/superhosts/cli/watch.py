"""`superhosts watch`: the super hosts of this machine's own interfaces, live in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from superhosts.cli._alerts import RELOADED, Reloadable, for_alerts, policy_of, reload_options, with_alerts
from superhosts.cli._combined import traffic_settings
from superhosts.cli._keys import key_for_sketches
from superhosts.cli._progress import ScanProgress, View
from superhosts.cli._settings import output_options
from superhosts.cli._signals import reloaded_by_sighup
from superhosts.cli._summary import CountersOutput
from superhosts.cli._values import parse_seconds
from superhosts.cli.scan import ReportedErrors, ScanRun, run_scan, use_filter
from superhosts.cli.usage.traffic import Watch
from superhosts.cli.web import Dashboard
from superhosts.output.console import fail_with, show_tracebacks, tell
from superhosts.output.destination import RunKind
from superhosts.output.registry import open_destinations
from superhosts.output.report import columns_with
from superhosts.pipeline.scan import Scan, scan_options
from superhosts.sources.open import open_inputs
from superhosts.ui.live import LiveView
from superhosts.ui.monitor import Monitor, observe_outputs, observe_watch
from superhosts.ui.service import Reloads


def watch(options: Watch) -> None:
    """Watch until the inputs end or somebody stops it; then exit with the status of the first error."""
    settings = traffic_settings("watch", options)
    counters = CountersOutput(options.counters, options.results)
    show_tracebacks(options.service.verbose)
    monitor, errors = Monitor("watch", options.service.metrics), ReportedErrors()
    dashboard = Dashboard(options.dashboard)
    sources = open_inputs(options.inputs, errors.add, follow=True, tables=options.traffic.tables.read())
    use_filter(sources, options.traffic.filter)
    if not sources:
        fail_with(errors.found)
    settings = replace(settings, key=key_for_sketches(options.cube.key_file, saves=options.save is not None))
    asked, alerting = output_options(options.results, site=options.site), options.results.alerting
    settings, desk = with_alerts(alerting, options.service.config, settings, asked, quiet=options.quiet)
    view: View = ScanProgress(wanted=not options.quiet)
    if asked.format == "table" and not counters.takes_standard_output and sys.stdout.isatty():
        view = LiveView(parse_seconds(options.refresh), options.traffic.varying)
    kind = RunKind(columns_with(settings.evidence), endless=True, varying=options.traffic.varying)
    table = not isinstance(view, LiveView) and not counters.takes_standard_output
    is_live = not all(source.replays for source in sources)  # files can wait for a reader of standard output
    outputs = open_destinations(asked, kind, table=table, say=tell if is_live else None)
    if desk is not None:
        outputs.add(desk)
    run: Scan | None = None
    dashboard.show_watch(monitor, options, outputs, lambda: settings if run is None else run.settings)
    reloads = Reloads(monitor.manager)
    reloads.add("--output", outputs.reopen)
    reloads.add(RELOADED, reload_options(options, _taker(Reloadable(outputs, kind, desk), lambda: run)))

    @contextmanager
    def observed(scan: Scan) -> Iterator[None]:
        nonlocal run
        run = scan
        serving = monitor.serving([*observe_watch(monitor, scan), *observe_outputs(outputs, desk)], reloads)
        with reloaded_by_sighup(reloads.ask), serving:
            yield
            monitor.manager.stopping()

    def on_step() -> None:
        reloads.run_if_asked()
        monitor.beat()

    timing = scan_options(sources, settings, joins_short=False, grace=parse_seconds(options.grace))
    how = ScanRun(options.save, options.quiet, counters=counters, view=view, around=observed, on_step=on_step)
    run_scan(sources, settings, outputs, errors, replace(how, run=replace(timing, leaves_open=False)))
    fail_with(errors.found)


def _taker(parts: Reloadable, run: Callable[[], Scan | None]) -> Callable[[Watch], None]:
    """Return the function that takes over what has changed in the options."""

    def take(options: Watch) -> None:
        alerting, scan = options.results.alerting, run()
        assert scan is not None  # it takes a step of the run to come here
        settings = replace(scan.settings, threshold=options.wanted.threshold, top=options.wanted.top)
        policy = policy_of(alerting, options.service.config, settings.inner, threshold=settings.threshold)
        if parts.desk is not None:
            settings = for_alerts(settings, policy)
        parts.exchange(output_options(options.results, site=options.site), alerting.alert_to, policy)
        scan.select(settings.threshold, settings.top)

    return take
