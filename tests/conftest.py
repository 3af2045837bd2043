"""Settings for all tests, and the command line to run."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from commands import Run


def _guard_shared_arrays() -> None:
    """Let the threads of a simulated block agree on their shared arrays.

    numba's simulator makes an array when a thread first asks for it, without a lock: two threads that ask at once get
    one each, and what one of them adds is lost.
    """
    from numba import types
    from numba.cuda.np import numpy_support
    from numba.cuda.simulator.kernelapi import FakeCUDAShared

    lock = threading.Lock()

    def array(self: Any, shape: Any, dtype: Any) -> Any:
        kind = numpy_support.as_dtype(dtype) if isinstance(dtype, types.Type) else dtype
        caller = sys._getframe(1)
        with lock:
            return self._allocations.setdefault((caller.f_code.co_filename, caller.f_lineno), np.empty(shape, kind))

    FakeCUDAShared.array = array


# A shell that runs tests in the background (`nohup`, `&`) ignores these, and so would every process that a test starts.
for _number, _usual in ((signal.SIGHUP, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _usual)

# Kernels for GPUs run under numba's simulator, on a machine with a GPU too; `make test-gpu` takes the real one. numba
# reads this when it is first imported.
if "SUPERHOSTS_TEST_GPU" not in os.environ:
    os.environ["NUMBA_ENABLE_CUDASIM"] = "1"
    sys.setswitchinterval(5e-5)  # simulated threads wait for each other by polling: ten times faster than with 5 ms
    _guard_shared_arrays()

# The first call of a compiled function may compile for seconds: no test is held to a deadline.
settings.register_profile("superhosts", deadline=None, derandomize=True)
settings.load_profile("superhosts")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command line in this process, as `superhosts ARGUMENTS` would."""
    from commands import Ended
    from superhosts import cli

    def call(*arguments: object) -> Ended:
        monkeypatch.setattr(sys, "argv", ["superhosts", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        code = ended.value.code
        return Ended(code if isinstance(code, int) else 0, *capsys.readouterr())

    return call
