"""Run the command line with a clock that is off by SUPERHOSTS_TEST_CLOCK seconds. File times stay correct.

SUPERHOSTS_TEST_CLOCK=86400 python tests/wrong_clock.py hub --state …
"""

from __future__ import annotations

import os
import time

_OFFSET = float(os.environ["SUPERHOSTS_TEST_CLOCK"])
_right, _right_ns = time.time, time.time_ns
time.time = lambda: _right() + _OFFSET
time.time_ns = lambda: _right_ns() + int(_OFFSET * 1e9)

if __name__ == "__main__":
    from superhosts.cli import main

    main()
