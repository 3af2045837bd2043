"""Files of tests that together use most hot loops: a parallel run compiles these before its workers start.

`tests/jit/test_second_run.py` proves that a second process compiles none of them again.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from places import TESTS

SHARES = {  # what each process compiles
    "captures": [
        "sources/test_capture.py",
        "sources/test_capture_pieces.py",
        "sources/exports/test_files.py",
        "pipeline/test_contacts.py",
    ],
    "tables": [
        "sources/tables/test_binary_tables.py",
        "sources/tables/test_details.py",
        "sources/tables/test_logs.py",
        "cli/test_rows.py",
    ],
    "detectors": [
        "detectors/test_laws.py",
        "detectors/test_generic_keys.py",
        "detectors/test_host_rows.py",
        "detectors/test_cube_stages.py",
        "sketch/test_golden.py",
        "cli/test_sketch_commands.py",
    ],
    "rivals": ["lab/test_rivals.py"],
}


def start(share: str, **options: Any) -> subprocess.Popen[str]:
    """Run the quick tests of a share in a process of its own."""
    files = [str(TESTS / each) for each in SHARES[share]]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *files]
    quick = [] if share == "rivals" else ["-m", "not slow"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **options.pop("environment", {})}
    return subprocess.Popen([*command, *quick], env=environment, text=True, **options)


def warm_up(*, rivals: bool) -> None:
    """Compile in one process per share, unless an earlier run has; loops of rivals only for the tests that use them."""
    from superhosts.detectors.cbaa import join
    from superhosts.jit.cache import is_cold
    from superhosts.lab.rivals.rgs import write
    from superhosts.sources.tables.jsonlines import walk_json
    from superhosts.sources.walk import walk_pcap

    probes = {"captures": walk_pcap, "tables": walk_json, "detectors": join, **({"rivals": write} if rivals else {})}
    shares = [share for share, probe in probes.items() if is_cold(probe)]
    for process in [start(share, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for share in shares]:
        process.wait()  # Tests that fail will fail again, and be seen.
