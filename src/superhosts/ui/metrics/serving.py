"""The endpoint of a program: its paths, and what they answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from superhosts.errors import MissingExtraError
from superhosts.ui.metrics.address import Place
from superhosts.ui.metrics.health import Health
from superhosts.ui.metrics.readings import HISTOGRAM, Metric, Reading
from superhosts.ui.metrics.server import Answer, Server

PREFIX = "superhosts_"
KIND = "text/plain; version=0.0.4; charset=utf-8"  # that all versions of Prometheus read


def check_installed() -> None:
    """Raise MissingExtraError if metrics cannot be written."""
    try:
        import prometheus_client  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("--metrics", "metrics") from error


def open_endpoint(place: Place, health: Health, readings: Sequence[Reading]) -> Server:
    """Listen, and answer from then on. Raise OutputError or MissingExtraError if that is not possible."""
    check_installed()
    render = _renderer(readings)

    def alive() -> Answer:
        return _judged([why] if (why := health.why_dead()) else [])

    def ready() -> Answer:
        return _judged(health.why_not_ready())

    return Server(place, {"/metrics": lambda: Answer(200, render(), KIND), "/healthz": alive, "/readyz": ready})


def _judged(problems: Sequence[str]) -> Answer:
    """Return the answer to a question about health."""
    return Answer(503 if problems else 200, "".join(f"{each}\n" for each in problems or ["ok"]).encode())


def _renderer(readings: Sequence[Reading]) -> Callable[[], bytes]:
    """Return a function that writes all metrics as text, with those of the process (process_…)."""
    from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    def family(metric: Metric) -> Any:
        name = PREFIX + metric.name
        if metric.kind == HISTOGRAM:
            assert metric.durations is not None
            buckets, seconds = metric.durations.cumulated(), metric.durations.seconds
            return HistogramMetricFamily(name, metric.help, buckets=buckets, sum_value=seconds)
        kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
        made = kind(name, metric.help, labels=metric.labels)
        for labels, value in metric.values:
            made.add_metric(labels, value)
        return made

    class Collector:
        def collect(self) -> Iterator[Any]:
            for read in readings:
                yield from map(family, read())

    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    registry.register(Collector())
    return lambda: generate_latest(registry)
