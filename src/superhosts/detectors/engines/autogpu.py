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
from concurrent.futures import Future
from typing import NamedTuple

from superhosts.core.device import choose_device, gpus_of
from superhosts.detectors.engines.base import Engine, Plan, sample_batches
from superhosts.errors import GpuMemoryError

NOT_USED = "the GPU is not used: {}"
NOT_COMPILED = (
    "the GPU is not used: its kernels are not compiled yet. `superhosts doctor` compiles those of default cubes, "
    "and any command with --device cuda those that it needs; they are kept on disk"
)


class DeviceWarning(UserWarning):
    """The work goes on on another device, or not on the one that could be expected."""


class SayOnce:
    """Warns, but never twice with the same words."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def __call__(self, text: str) -> None:
        """Warn unless that was done. This counts as done even if the warning is an error."""
        if text not in self._said:
            self._said.add(text)
            warnings.warn(text, DeviceWarning, stacklevel=2)


say_once = SayOnce()  # of this process


class Trial(NamedTuple):
    """Outcome of the start of a GPU: its number if it can be used, and what to tell the user if it cannot."""

    gpu: int | None
    problem: str = ""


def find_gpu() -> int | None:
    """Return the GPU that "auto" selects. This asks the driver, which takes a tenth of a second."""
    return next(iter(gpus_of(choose_device("auto"))), None)


class AutoGpu:
    """Makes engines on the GPU that "auto" selects, once it is ready for engines of that geometry."""

    def __init__(
        self, make: Callable[[Plan, int], Engine], find: Callable[[], int | None] = find_gpu, say: SayOnce = say_once
    ) -> None:
        self._make, self._find, self.say = make, find, say
        self._start_anew()
        os.register_at_fork(after_in_child=self._start_anew)  # CUDA does not survive a fork.

    def _start_anew(self) -> None:
        self._trials: dict[object, Future[Trial]] = {}
        self._lock = threading.Lock()

    def engine(self, plan: Plan) -> tuple[Engine, str] | None:
        trial = self._trial(plan)
        if not trial.done():
            return None
        gpu, problem = trial.result()
        if problem:
            self.say(problem)
        if gpu is None:
            return None
        try:
            return self._make(plan, gpu), f"cuda:{gpu}"
        except Exception as error:
            self.give_up(plan, error)
            return None

    def give_up(self, plan: Plan, error: Exception) -> None:
        """Stay on the CPU from now on, because the GPU failed although its trial went well; say so."""
        failed: Future[Trial] = Future()
        failed.set_result(Trial(None, NOT_USED.format(error)))
        with self._lock:
            self._trials[plan.geometry] = failed
        self.say(NOT_USED.format(error))

    def wait(self) -> None:
        for trial in list(self._trials.values()):
            trial.result()

    def _trial(self, plan: Plan) -> Future[Trial]:
        with self._lock:
            if plan.geometry not in self._trials:
                trial: Future[Trial] = Future()
                self._trials[plan.geometry] = trial
                # The process does not end before this thread: to end inside the driver would not be safe.
                threading.Thread(target=self._try, args=(plan, trial), name="superhosts-gpu").start()
            return self._trials[plan.geometry]

    def _try(self, plan: Plan, trial: Future[Trial]) -> None:
        """Start the GPU and send pairs to an engine there, which is discarded: what takes long is done then."""
        try:
            trial.set_result(self._outcome(plan))
        except GpuMemoryError:
            trial.set_result(Trial(None))
        except Exception as error:
            trial.set_result(Trial(None, NOT_USED.format(error)))

    def _outcome(self, plan: Plan) -> Trial:
        gpu = self._find()
        if gpu is None:
            return Trial(None)
        engine = self._make(plan, gpu)
        if not engine.is_compiled():
            return Trial(None, NOT_COMPILED)
        engine.update_batches(sample_batches(plan.geometry.key_bits))
        engine.flush()
        return Trial(gpu)
