"""Programs and libraries that some tests need, where they are installed."""

from __future__ import annotations

import os
import shutil

import pytest

from superhosts.sources.livecapture import load_libpcap


def needed(program: str, variable: str) -> str:
    """Return the path of a program. Skip the test without it, unless the variable requires it."""
    found = shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin")
    if found is None:
        assert not os.environ.get(variable), f"{program} is not installed"
        pytest.skip(f"{program} is not installed")
    return found


def need_libpcap() -> None:
    """Skip a test without libpcap, which compiles filters, unless SUPERHOSTS_NEED_LIBPCAP requires it."""
    if load_libpcap() is None:
        assert not os.environ.get("SUPERHOSTS_NEED_LIBPCAP"), "libpcap is not installed"
        pytest.skip("libpcap is not installed")
