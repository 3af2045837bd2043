"""Settings for all tests."""

import os
import sys

from hypothesis import settings

# Kernels for GPUs run under numba's simulator, on a machine with a GPU too; `make test-gpu` takes the real one. numba
# reads this when it is first imported.
if "SUPERHOSTS_TEST_GPU" not in os.environ:
    os.environ["NUMBA_ENABLE_CUDASIM"] = "1"
    sys.setswitchinterval(5e-5)  # simulated threads wait for each other by polling: ten times faster than with 5 ms

# The first call of a compiled function may compile for seconds: no test is held to a deadline.
settings.register_profile("superhosts", deadline=None, derandomize=True)
settings.load_profile("superhosts")
