"""The counters of a run as JSON, in a file or on standard output (--counters)."""

from __future__ import annotations

import json

from superhosts.cli._options import ResultOptions
from superhosts.cli._summary import RunTotals
from superhosts.core.files import output_errors, replaceable, replacing
from superhosts.errors import OutputError, UsageError

STANDARD_OUTPUT = "-"


class CountersOutput:
    """Where the counters of a run go; nowhere if there is no target."""

    def __init__(self, target: str | None, results: ResultOptions | None = None) -> None:
        """Check the target before the run, so that a long one does not end without its counters."""
        self._target = target
        if target == STANDARD_OUTPUT:
            rows = (
                results is None
                or results.json
                or results.csv
                or not [each for each in results.output if each != STANDARD_OUTPUT]
            )
            if rows:
                way = "give --counters FILE, or --output FILE for the rows"
                raise UsageError(f"--counters -: standard output has the rows; {way}")
        elif target is not None:
            path = replaceable(target)
            if not path.parent.is_dir():
                raise OutputError(f"{target}: cannot be written: its folder does not exist")

    @property
    def takes_standard_output(self) -> bool:
        """True if counters go to standard output, which then has nothing else."""
        return self._target == STANDARD_OUTPUT

    def write(self, totals: RunTotals) -> None:
        """Write the counters, the whole of them or nothing (OutputError)."""
        if self._target is None:
            return
        text = json.dumps(totals.as_json())
        if self.takes_standard_output:
            print(text)
            return
        with output_errors(self._target), replacing(replaceable(self._target)) as temporary:
            temporary.write_text(f"{text}\n")
