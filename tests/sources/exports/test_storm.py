"""A collector under attack: what should break a real process is sent to it, for SUPERHOSTS_STORM_SECONDS (3).

Templates without end, numbers that change, absurd lengths, datagrams of garbage, and flows of an honest exporter among
them. It passes if the process lives, its memory stays bounded, and every flow of the honest exporter is counted.
Source addresses cannot be forged without privileges: addresses of 127.0.0.0/8 and many domains stand for them.
"""

from __future__ import annotations

import json
import os
import random
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

import exports as e
from processes import free_port
from udp import wait_listening, wait_received
from waiting import wait_for

SECONDS = float(os.environ.get("SUPERHOSTS_STORM_SECONDS", "3"))
MEMORY = 1 << 30  # bytes
HONEST = "127.0.0.1"
LAST = 999  # the template that the honest exporter sends in the end


def hostile(rng: random.Random) -> bytes:
    kind, domain = rng.randrange(6), rng.randrange(1 << 20)
    fields: list[e.Field] = [
        (rng.randrange(400), rng.choice((0, 1, 4, 16, 65535))) for _ in range(rng.randrange(1, 60))
    ]
    if kind == 0:
        return e.version9(*(e.template(rng.randrange(256, 65536), fields) for _ in range(3)), domain=domain)
    if kind == 1:
        return e.ipfix(e.template(rng.randrange(256, 65536), fields, is_ipfix=True), domain=domain % 3)
    if kind == 2:
        return e.version9(e.data(rng.randrange(256, 65536), [rng.randbytes(1200)]), domain=domain)
    if kind == 3:
        return e.ipfix(struct.pack("!HH", rng.choice((2, 3, 256)), rng.randrange(65536)) + rng.randbytes(100))
    if kind == 4:
        return rng.choice((b"\0\5", b"\0\x09", b"\0\x0a", b"")) + rng.randbytes(rng.randrange(1400))
    return e.version5(
        [e.record5("198.51.100.1", "198.51.100.2")], sequence=rng.randrange(1 << 32), engine=domain & 0xFFFF
    )


def resident(process: int) -> int:
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="exports are received on Linux only")
def test_hostile_exporters_do_not_harm_an_honest_one(tmp_path: Path) -> None:
    rng, port = random.Random(1), free_port()
    counters, state = tmp_path / "counters.json", tmp_path / "state.json"
    command = [sys.executable, "-m", "superhosts", "scan", f"netflow://{HONEST}:{port}?templates={state}", "-q"]
    command += ["--counters", str(counters), "--window", "24h", "--key-file", "public"]
    command += ["--output", f"{tmp_path}/rows.jsonl"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        wait_listening(port)
        own = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(50)]
        for number, each in enumerate(own):
            each.bind((f"127.0.{number}.1" if number else HONEST, 0))
            each.connect((HONEST, port))
        own[0].send(e.version9(e.template(256, e.USUAL)))
        wait_for(state.exists, "it reads")
        flow = e.data(256, [e.usual("10.0.0.1", "10.0.0.2")] * 20)
        honest, most = 1, 0
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            for _ in range(20):
                rng.choice(own[1:]).send(hostile(rng))
            sets = [e.template(256, e.USUAL), flow] if honest % 500 == 0 else [flow]
            own[0].send(e.version9(*sets, sequence=honest, seconds=int(time.time())))
            honest += 1
            if honest % 50 == 0:
                wait_received(port)  # the kernel may drop what comes faster, which is another test
                most = max(most, resident(process.pid))
                assert most < MEMORY, f"{most >> 20} MiB"
        # Datagrams are read in order: once a new template is kept, everything before it was read.
        own[0].send(e.version9(e.template(LAST, e.USUAL), sequence=honest))
        wait_for(lambda: f"{LAST:04x}{len(e.USUAL):04x}" in state.read_text(), "everything is read")
        for each in own:
            each.close()
    finally:
        process.terminate()
        process.wait()
    found = json.loads(counters.read_text())
    [status] = found["exports"]
    row = next(each for each in status["exporters"] if each["address"] == HONEST and each["format"] == "NetFlow v9")
    assert row["records"] == 20 * (honest - 1), (row, honest)
    assert row["lost_datagrams"] == 0
    assert state.stat().st_size < 16 << 20
    assert honest > 1
    assert status["given_up"] + status["bad_templates"] > 0
