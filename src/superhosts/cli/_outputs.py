"""From options to destinations."""

from __future__ import annotations

from pathlib import Path

from superhosts.cli._console import tell
from superhosts.cli._options import NamesOptions, OutputQueueOptions, ResultOptions, ScanResultOptions
from superhosts.cli._values import parse_seconds
from superhosts.core.units import parse_size
from superhosts.output.delivery import DeliveryOptions
from superhosts.output.names import NO_NAMES, NamingOptions
from superhosts.output.registry import OutputOptions


def output_options(options: ResultOptions, *, site: str = "", state: Path | None = None) -> OutputOptions:
    """Return what the options of a command ask for: a format on standard output, and other destinations.

    `site`: the name of this installation in what is sent. `state`: the folder of a service, which has its queues.
    """
    delivery = delivery_options(options.queue, site, state)
    naming = naming_of(options.naming) if isinstance(options, ScanResultOptions) else NO_NAMES
    return OutputOptions(options.json, options.csv, options.output, delivery, naming)


def naming_of(options: NamesOptions) -> NamingOptions:
    """Return where names of hosts come from."""
    return NamingOptions(options.labels, [Path(text) for text in options.geo], options.names)


def delivery_options(options: OutputQueueOptions, site: str, state: Path | None) -> DeliveryOptions:
    """Return how reports wait for destinations that send."""
    own = None if state is None else state / "outputs"
    return DeliveryOptions(
        queue=options.output_queue or own,
        cap=parse_size(options.output_queue_cap),
        wait=parse_seconds(options.output_wait),
        site=site,
        say=tell,
        once=state is not None,  # the folder of a service that was killed hands in its last report again
    )
