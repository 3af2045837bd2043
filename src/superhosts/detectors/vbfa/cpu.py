"""VBFA on CPU threads: CBAA's engine, with its arrays dealt out to the threads, since there is a single slice."""

from __future__ import annotations

from superhosts.detectors.cbaa.cpu import CpuCbaa, fill
from superhosts.engines.bins import Task


class CpuVbfa(CpuCbaa):
    """A VBFA sketch in the machine's memory."""

    def write(self, task: Task) -> None:
        """Write all pairs that wait."""
        self._write_by_array(fill, task, self.store)
