"""Flow exports: how fast they are decoded, and how many records a command receives over UDP without loss.

    python benchmarks/exports.py                  about 10 minutes on two cores
    python benchmarks/exports.py --quick          shorter, to check that the benchmark works

Decoding is measured in this process, with datagrams in memory, on one core. Receiving is measured as a user does it:
`superhosts scan netflow://…` in a process of its own, exact counters at its end, and a sender on the same machine that
paces itself. The rate is raised until records are lost. nfcapd, where it is installed, receives the same datagrams in
turns; it writes records to files and counts no peers.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from harness import HERE, PUBLIC_KEY, Report, superhosts_command
from superhosts.sources.base import SourceCounters, Wants
from superhosts.sources.exports.collector import Batch, Collector, Settings, as_block

NOW = 1_700_000_000
DATAGRAMS = 4000
PER_DATAGRAM = 24  # records of NetFlow v9 and IPFIX
FIELDS = {
    9: [
        (8, 4),
        (12, 4),
        (15, 4),
        (10, 4),
        (14, 4),
        (2, 4),
        (1, 4),
        (22, 4),
        (21, 4),
        (7, 2),
        (11, 2),
        (6, 1),
        (4, 1),
        (5, 1),
    ],
    10: [
        (8, 4),
        (12, 4),
        (10, 4),
        (14, 4),
        (2, 8),
        (1, 8),
        (152, 8),
        (153, 8),
        (7, 2),
        (11, 2),
        (6, 1),
        (4, 1),
        (5, 1),
    ],
}


def records(version: int, count: int, rng: np.random.Generator) -> list[bytes]:
    """Return records with random addresses and plausible times."""
    length = 48 if version == 5 else sum(length for _, length in FIELDS[version])
    rows = rng.integers(0, 256, (count, length), np.uint8)
    rows[:, 0] = rows[:, 4] = 10
    if version == 5:
        rows[:, 24:32] = np.frombuffer(struct.pack("!II", 1000, 2000), np.uint8)
        rows[:, 38] = 6
    else:
        at = 0
        for element, width in FIELDS[version]:
            value = {21: 2000, 22: 1000, 152: NOW * 1000, 153: NOW * 1000 + 9, 4: 6}.get(element)
            if value is not None:
                rows[:, at : at + width] = np.frombuffer(value.to_bytes(width, "big"), np.uint8)
            at += width
    return [row.tobytes() for row in rows]


def template(version: int) -> bytes:
    fields = FIELDS[version]
    content = struct.pack("!HH", 256, len(fields)) + b"".join(struct.pack("!HH", *field) for field in fields)
    return struct.pack("!HH", 0 if version == 9 else 2, 4 + len(content)) + content


def datagram(version: int, number: int, flows: list[bytes], seconds: int = NOW) -> bytes:
    """Return a datagram; one of NetFlow v9 and IPFIX in 20 has the template, too."""
    content = b"".join(flows)
    if version == 5:
        return struct.pack("!HHIIIIHH", 5, len(flows), 5000, seconds, 0, number * len(flows), 0, 0) + content
    sets = template(version) if number % 20 == 0 else b""
    sets += struct.pack("!HH", 256, 4 + len(content)) + content
    if version == 9:
        return struct.pack("!HHIIII", 9, len(flows), 5000, seconds, number, 7) + sets
    return struct.pack("!HHIII", 10, 16 + len(sets), seconds, number * len(flows), 7) + sets


def sflow(number: int, rng: np.random.Generator) -> bytes:
    """Return a datagram of seven samples of packet headers."""
    samples = b""
    for _ in range(7):
        frame = rng.bytes(12) + b"\x08\x00\x45" + rng.bytes(8) + b"\x06" + rng.bytes(104)
        record = struct.pack("!IIIIII", 1, 16 + len(frame), 1, 1500, 4, len(frame)) + frame
        sample = struct.pack("!IIIIIIII", 1, 2, 1000, 1, 0, 3, 4, 1) + record
        samples += struct.pack("!II", 1, len(sample)) + sample
    return struct.pack("!IIIIIII", 5, 1, 0xC0000201, 0, number, 1000, 7) + samples


def batches(datagrams: list[bytes], size: int = 700) -> list[Batch]:
    """Return datagrams in batches of about 1 MiB, as they are received."""
    made = []
    for start in range(0, len(datagrams), size):
        some = datagrams[start : start + size]
        rows = np.zeros((len(some), 4), np.int64)
        rows[:, 1] = np.cumsum([len(each) for each in some])
        rows[:, 0] = rows[:, 1] - [len(each) for each in some]
        rows[:, 2] = NOW * 10**9
        made.append(Batch(as_block(b"".join(some)), rows, np.ones((len(some), 2), np.uint64)))
    return made


def decode(name: str, made: list[Batch], settings: Settings, rounds: int, report: Report) -> None:
    """Report the records that are decoded in a second."""
    rates = []
    for turn in range(rounds + 1):  # The first one compiles.
        collector, count = Collector(SourceCounters(), settings), 0
        start = time.perf_counter()
        for batch in made:
            count += sum(sum(map(len, block)) for block in collector.feed(batch))
        count += sum(map(len, collector.take()))
        if turn:
            rates.append(count / (time.perf_counter() - start) / 1e6)
    report.add("exports", name, max(rates), "M/s", note=f"{count:,} records", runs=rates)


def decoders(report: Report, rounds: int) -> None:
    rng = np.random.default_rng(1)
    for version, per in ((5, 30), (9, PER_DATAGRAM), (10, PER_DATAGRAM)):
        flows = records(version, per * DATAGRAMS, rng)
        datagrams = [datagram(version, each, flows[each * per : (each + 1) * per]) for each in range(DATAGRAMS)]
        shown = {5: "NetFlow v5", 9: "NetFlow v9", 10: "IPFIX"}[version]
        made = batches(datagrams)
        decode(f"{shown}: records decoded on one core", made, Settings(), rounds, report)
        decode(f"{shown}: the same, with details", made, Settings(wants=Wants(details=True)), rounds, report)
    samples = batches([sflow(each, rng) for each in range(DATAGRAMS)])
    decode("sFlow v5: samples decoded on one core", samples, Settings(is_sflow=True), rounds, report)


# Over UDP


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listens(port: int) -> bool:
    lines = Path("/proc/net/udp").read_text().splitlines()[1:]
    return any(int(line.split()[1].rpartition(":")[2], 16) == port for line in lines)


def send(port: int, rate: float, seconds: float) -> int:
    """Send records of NetFlow v9 at a rate, in steps of a millisecond; return how many."""
    rng, count = np.random.default_rng(2), 2000
    flows = records(9, PER_DATAGRAM * count, rng)
    own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    own.connect(("127.0.0.1", port))
    now = int(time.time())
    made = [datagram(9, each, flows[each * PER_DATAGRAM : (each + 1) * PER_DATAGRAM], now) for each in range(count)]
    heads = struct.Struct("!I")
    buffers = [bytearray(each) for each in made]
    sent, start = 0, time.perf_counter()
    while (passed := time.perf_counter() - start) < seconds:
        due = int(passed * rate / PER_DATAGRAM)
        for number in range(sent, due):
            buffer = buffers[number % count]
            heads.pack_into(buffer, 12, number)
            own.send(buffer)
        sent = max(sent, due)
        time.sleep(0.0005)
    return sent * PER_DATAGRAM


def receive_own(rate: float, seconds: float, folder: Path) -> dict[str, Any]:
    """Let a scan receive; return records sent and received."""
    port, counters = free_port(), folder / "counters.json"
    command = [*superhosts_command(), "scan", f"netflow://127.0.0.1:{port}?templates=none", "--json", "-q"]
    command += ["--counters", str(counters), "--window", "5m", "--threshold", "1024"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, **PUBLIC_KEY})
    try:
        while not listens(port):
            time.sleep(0.05)
        time.sleep(3)  # Compiled code is loaded; whoever receives exports does so for months.
        sender = subprocess.run(
            [sys.executable, __file__, "--send", str(port), "--rate", str(rate), "--seconds", str(seconds)],
            capture_output=True,
            text=True,
            check=True,
        )
        time.sleep(1)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()
    found = json.loads(counters.read_text())
    status = found["exports"][0]
    lost = {name: status[name] for name in ("kernel_drops", "lost_datagrams")}
    return {"sent": int(sender.stdout), "received": found["packets"], **lost}


def receive_nfcapd(rate: float, seconds: float, folder: Path) -> dict[str, Any]:
    """Let nfcapd receive; return records sent and received."""
    port, files = free_port(), folder / "nfcapd"
    shutil.rmtree(files, ignore_errors=True)
    files.mkdir()
    place = ["-p", str(port), "-b", "127.0.0.1", "-l" if _is_old() else "-w", str(files), "-B", str(64 << 20)]
    process = subprocess.Popen(["nfcapd", *place])
    try:
        while not listens(port):
            time.sleep(0.05)
        command = [sys.executable, __file__, "--send", str(port), "--rate", str(rate), "--seconds", str(seconds)]
        sender = subprocess.run(command, capture_output=True, text=True, check=True)
        time.sleep(1)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()
    told = subprocess.run(["nfdump", "-R", str(files), "-I"], capture_output=True, text=True).stdout
    flows = [int(line.split()[-1]) for line in told.splitlines() if line.startswith("Flows:")]
    return {"sent": int(sender.stdout), "received": sum(flows)}


def _is_old() -> bool:
    told = subprocess.run(["nfcapd", "-V"], capture_output=True, text=True)
    return "1.6" in told.stdout + told.stderr


def loopback(report: Report, seconds: float, rates: list[float]) -> None:
    """Raise the rate until records are lost, with each program in turn."""
    programs: dict[str, Callable[[float, float, Path], dict[str, Any]]] = {"superhosts scan": receive_own}
    if shutil.which("nfcapd") and shutil.which("nfdump"):
        programs["nfcapd"] = receive_nfcapd
    best: dict[str, tuple[float, str]] = dict.fromkeys(programs, (0.0, "lost records at the lowest rate"))
    with tempfile.TemporaryDirectory() as made:
        receive_own(rates[0], 1.0, Path(made))  # compiles
        for rate in rates:
            for name, program in programs.items():
                found = program(rate, seconds, Path(made))
                share = found["received"] / max(found["sent"], 1)
                print(f"    {name}: {rate / 1e6:.2f} M records/s asked for: {found} ({share:.2%})", flush=True)
                if found["received"] >= found["sent"]:
                    reached = found["sent"] / seconds / 1e6
                    best[name] = max(best[name], (reached, f"{found['sent']:,} records, none lost"))
    for name, (rate, note) in best.items():
        report.add("exports", f"NetFlow v9 over UDP without loss: {name}", rate, "M records/s", note=note)


def main() -> None:
    """Measure, and write the results."""
    parser = argparse.ArgumentParser(description="Flow exports: decoding and receiving")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=("decoders", "loopback"))
    parser.add_argument("--send", type=int, metavar="PORT", help="only send to this port")
    parser.add_argument("--rate", type=float, default=1e6, help="records a second to send")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--results", type=Path, default=HERE / "results")
    options = parser.parse_args()
    if options.send:
        print(send(options.send, options.rate, options.seconds))
        return
    report = Report(quick=options.quick)
    if options.only != "loopback":
        decoders(report, options.rounds)
    if options.only != "decoders":
        rates = [2e5] if options.quick else [5e5, 1e6, 1.5e6, 2e6, 2.5e6]
        loopback(report, 2.0 if options.quick else options.seconds, rates)
    if not options.quick:
        for path in report.write(options.results, f"exports-{report.place}", "Exports"):
            print(path)


if __name__ == "__main__":
    main()
