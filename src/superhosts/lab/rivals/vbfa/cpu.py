"""VBFA on CPU threads: CBAA's engine, with the arrays distributed over the threads, because there is a single slice."""

from __future__ import annotations

from superhosts.detectors.cbaa import CpuCbaa, fill
from superhosts.detectors.engines.bins import Task


class CpuVbfa(CpuCbaa):
    """A VBFA sketch in main memory."""

    def write(self, task: Task) -> None:
        """Write all pending pairs."""
        self._write_by_array(fill, task, self.store)
