"""`superhosts watch`: the super hosts of this machine's own interfaces, live in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace

from superhosts.cli._alerting import for_alerts, policy_of, with_alerts
from superhosts.cli._capturing import use_filter
from superhosts.cli._combined import traffic_settings
from superhosts.cli._console import fail_with, tell
from superhosts.cli._counters import CountersOutput
from superhosts.cli._dashboard import Dashboard
from superhosts.cli._keys import key_for_sketches
from superhosts.cli._liveview import LiveView
from superhosts.cli._monitoring import Monitor
from superhosts.cli._observing import ObservedView, observe_outputs, observe_watch
from superhosts.cli._outputs import output_options
from superhosts.cli._reloading import RELOADED, Reloadable, reload_options
from superhosts.cli._service import Reloads
from superhosts.cli._values import parse_seconds
from superhosts.cli._views import ProgressView, View
from superhosts.cli.scan import Manner, ReportedErrors, run_scan
from superhosts.cli.usage.watch import Watch
from superhosts.output.destination import RunKind
from superhosts.output.registry import open_destinations
from superhosts.output.report import columns_with
from superhosts.pipeline.scan import Scan, scan_options
from superhosts.sources.open import open_inputs


def watch(options: Watch) -> None:
    """Watch until the inputs end or somebody stops it; then exit with the status of the first error."""
    settings = traffic_settings("watch", options)
    counters = CountersOutput(options.counters, options.results)
    monitor, errors, dashboard = Monitor("watch", options.service), ReportedErrors(), Dashboard(options.dashboard)
    sources = open_inputs(options.inputs, errors.add, follow=True, tables=options.traffic.tables.read())
    use_filter(sources, options.traffic.filter)
    if not sources:
        fail_with(errors.found)
    settings = replace(settings, key=key_for_sketches(options.cube.key_file, saves=options.save is not None))
    asked, alerting = output_options(options.results, site=options.site), options.results.alerting
    settings, desk = with_alerts(alerting, options.service.config, settings, asked, quiet=options.quiet)
    view: View = ProgressView(wanted=not options.quiet)
    if asked.format == "table" and not counters.takes_standard_output and sys.stdout.isatty():
        view = LiveView(parse_seconds(options.refresh), options.traffic.varying)
    kind = RunKind(columns_with(settings.evidence), endless=True, varying=options.traffic.varying)
    table = not isinstance(view, LiveView) and not counters.takes_standard_output
    is_live = not all(source.replays for source in sources)  # files can wait for a reader of standard output
    outputs = open_destinations(asked, kind, table=table, say=tell if is_live else None)
    if desk is not None:
        outputs.add(desk)
    dashboard.show_watch(monitor, options, outputs, lambda: settings if observed.run is None else observed.run.settings)
    reloads = Reloads(monitor.manager)
    observed = ObservedView(
        view, monitor, reloads, lambda run: [*observe_watch(monitor, run), *observe_outputs(outputs, desk)]
    )
    reloads.add("--output", outputs.reopen)
    reloads.add(RELOADED, reload_options(options, _taker(Reloadable(outputs, kind, desk), lambda: observed.run)))
    how = scan_options(sources, settings, joins_short=False, grace=parse_seconds(options.grace))
    manner = Manner(options.save, options.quiet, counters=counters, view=observed, run=replace(how, leaves_open=False))
    run_scan(sources, settings, outputs, errors, manner)
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
