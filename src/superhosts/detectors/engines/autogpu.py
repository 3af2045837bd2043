"""The GPU of device "auto": started in the background, and used when it is ready.

A GPU takes a quarter of a second to start, and kernels that are not on disk take seconds to compile, during which
Python does little else. A scan is often over by then. So with "auto", work begins on the CPU. What is large asks for
the GPU, which is then started in a thread, and moves there when it is ready. If kernels would have to be compiled, the
work stays on the CPU, and a warning says how to compile them. The bits are the same on either device.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from superhosts.core.device import choose_device, gpus_of
from superhosts.detectors.engines.base import Engine, MakeOnGpu, Plan, sample_batches
from superhosts.errors import DeviceWarning, GpuMemoryError

NOT_COMPILED = (
    "its kernels are not compiled yet. `superhosts doctor` compiles those of default cubes, "
    "and any command with --device cuda those that it needs; they are kept on disk"
)
said: set[str] = set()  # warnings of this process


def say_once(text: str) -> None:
    """Warn, but never twice with the same words, even if the warning is an error."""
    if text not in said:
        said.add(text)
        warnings.warn(text, DeviceWarning, stacklevel=2)


def find_gpu() -> int | None:
    """Return the GPU that "auto" selects. This asks the driver, which takes a tenth of a second."""
    return next(iter(gpus_of(choose_device("auto"))), None)


class AutoGpu:
    """Makes engines on the GPU that "auto" selects, once it is ready for engines of that geometry."""

    def __init__(self, make: MakeOnGpu, find: Callable[[], int | None] = find_gpu) -> None:
        self._make, self._find = make, find
        self._start_anew()
        os.register_at_fork(after_in_child=self._start_anew)  # CUDA does not survive a fork.

    def _start_anew(self) -> None:
        self._trials: dict[object, Future[int | None]] = {}  # the GPU that can be used, by geometry
        self._lock = threading.Lock()
        # The process does not end before this thread: to end inside the driver would not be safe.
        self._thread = ThreadPoolExecutor(1, "superhosts-gpu")

    def engine(self, plan: Plan) -> tuple[Engine, str] | None:
        """Return an empty engine on the GPU, and the device; None if the GPU is not ready. The first call starts it."""
        with self._lock:
            if plan.geometry not in self._trials:
                self._trials[plan.geometry] = self._thread.submit(self._try, plan)
            trial = self._trials[plan.geometry]
        if not trial.done():
            return None
        try:
            gpu = trial.result()
            return None if gpu is None else (self._make(plan, gpu), f"cuda:{gpu}")
        except Exception as error:
            self.give_up(plan, error)
            return None

    def give_up(self, plan: Plan, error: Exception) -> None:
        """Stay on the CPU from now on, because the GPU failed; say so."""
        failed: Future[int | None] = Future()
        failed.set_result(None)
        with self._lock:
            self._trials[plan.geometry] = failed
        say_once(f"the GPU is not used: {error}")

    def wait(self) -> None:
        """Wait until all that was started in the background has ended."""
        for trial in list(self._trials.values()):
            trial.exception()

    def _try(self, plan: Plan) -> int | None:
        """Start the GPU and send pairs to an engine there, which is discarded: what takes long is done then."""
        gpu = self._find()
        if gpu is None:
            return None
        try:
            engine = self._make(plan, gpu)
            if not engine.is_compiled():
                raise RuntimeError(NOT_COMPILED)
            engine.update_batches(sample_batches(plan.geometry.key_bits))
            engine.flush()
        except GpuMemoryError:
            return None
        return gpu
