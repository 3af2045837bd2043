"""From options to destinations."""

from __future__ import annotations

from superhosts.cli._options import ResultOptions
from superhosts.reports.opening import OutputOptions


def output_options(options: ResultOptions) -> OutputOptions:
    """Return what the options of a command ask for: a format on standard output, and another destination."""
    return OutputOptions(options.json, options.csv, options.output)
