"""Scans that ask for more than addresses, against plain ones: `python benchmarks/contacts.py [--quick] [--rounds N]`.

One capture of Ethernet is scanned as a user does it, from the start of a process to its exit, with the file in the page
cache: plain, with --peers opened, with --tunnels inner, with --count ports, with filters and with --evidence. All ways
take turns. The figure is the rate of each as a share of the plain rate, from the fastest runs and from processor
seconds, which other load affects less.

The capture has TCP and UDP conversations of a crowd of hosts whose numbers of peers have a heavy tail: a SYN, an answer
for most, and some packets in the middle, all of them interleaved.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

from harness import HERE, Report, superhosts_command
from tables import Spent, spend

WAYS = {
    "plain": (),
    "--peers opened": ("--peers", "opened"),
    "--peers opened,answered,unanswered": ("--peers", "opened,answered,unanswered"),
    "--tunnels inner": ("--tunnels", "inner"),
    "--count ports": ("--count", "ports"),
    "--proto tcp --port 443": ("--proto", "tcp", "--port", "443"),
    "--evidence": ("--evidence",),
}
RECORD = np.dtype(
    [
        ("seconds", "<u4"),
        ("micros", "<u4"),
        ("captured", "<u4"),
        ("length", "<u4"),
        ("ethernet", "V12"),
        ("type", ">u2"),
        ("version", "u1"),
        ("service", "u1"),
        ("total", ">u2"),
        ("identity", ">u2"),
        ("fragment", ">u2"),
        ("hops", "u1"),
        ("protocol", "u1"),
        ("checksum", ">u2"),
        ("src", ">u4"),
        ("dst", ">u4"),
        ("sport", ">u2"),
        ("dport", ">u2"),
        ("sequence", ">u4"),
        ("acknowledged", ">u4"),
        ("offset", "u1"),
        ("flags", "u1"),
        ("rest", "V6"),
    ]
)
PACKETS = 10  # of a conversation that is answered
SYN, SYN_ACK, ACK = 2, 18, 16
TCP, UDP = 6, 17


def conversations(count: int, random: np.random.Generator) -> np.ndarray:
    """Return the packets of conversations, in the order of time."""
    hosts = (random.pareto(1.05, count) * 50).astype(np.int64) % (1 << 20)
    peers = random.integers(0, 1 << 24, count)
    is_udp, is_answered = random.random(count) < 0.2, random.random(count) < 0.7
    ports = random.choice(np.array([80, 443, 443, 443, 22, 25, 53]), count)
    own = random.integers(1024, 65536, count)
    begins = random.random(count) * 250
    which = np.repeat(np.arange(count), PACKETS)
    step = np.tile(np.arange(PACKETS), count)
    kept = is_answered[which] | (step == 0)
    which, step = which[kept], step[kept]
    back = step % 2 == 1
    rows = np.zeros(len(which), RECORD)
    ends = (0x0A000000 + hosts[which], 0xC0000000 + peers[which]), (own[which], ports[which])
    rows["src"], rows["dst"] = np.where(back, ends[0][1], ends[0][0]), np.where(back, ends[0][0], ends[0][1])
    rows["sport"], rows["dport"] = np.where(back, ends[1][1], ends[1][0]), np.where(back, ends[1][0], ends[1][1])
    rows["protocol"] = np.where(is_udp[which], UDP, TCP)
    flags = np.select([step == 0, step == 1], [SYN, SYN_ACK], ACK)
    rows["flags"] = np.where(is_udp[which], 0, flags)
    times = begins[which] + step * random.random(count)[which]
    rows["seconds"], rows["micros"] = 1_700_000_100 + times.astype(np.int64), (times % 1 * 1e6).astype(np.int64)
    rows["captured"] = rows["length"] = RECORD.itemsize - 16
    rows["type"], rows["version"], rows["total"], rows["hops"], rows["offset"] = 0x0800, 0x45, 40, 64, 0x50
    return rows[np.argsort(times, kind="stable")]


def write_capture(path: Path, count: int) -> int:
    """Write a capture of so many conversations; return its packets."""
    packets = 0
    with path.open("wb") as file:
        file.write(np.array([0xA1B2C3D4, 0x00040002, 0, 0, 65535, 1], "<u4").tobytes())
        for part in range(0, count, 1 << 20):  # all of them in the same window
            rows = conversations(min(1 << 20, count - part), np.random.default_rng(part))
            rows.tofile(file)
            packets += len(rows)
    return packets


def scan(path: Path, options: tuple[str, ...]) -> Spent:
    command = [*superhosts_command(), "scan", str(path), "--window", "all", "--top", "10", "--json", "-q", *options]
    return spend(command, lambda output: len(output.splitlines()))


def main() -> None:
    """Make the capture, measure, write the results."""
    parser = argparse.ArgumentParser(description="Scans that ask for more than addresses")
    parser.add_argument("--quick", action="store_true", help="ten times fewer conversations")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=[way for way in WAYS if way != "plain"], help="this way and plain scans")
    parser.add_argument("--results", type=Path, default=HERE / "results", help="folder of the Markdown file")
    options = parser.parse_args()
    report = Report(quick=options.quick)
    ways = {way: each for way, each in WAYS.items() if options.only is None or way in ("plain", options.only)}
    with tempfile.TemporaryDirectory() as made:
        path = Path(made, "conversations.pcap")
        packets = write_capture(path, 400_000 if options.quick else 8_000_000)
        spent: dict[str, list[Spent]] = {way: [] for way in ways}
        for turn in range(options.rounds + 1):  # The first round compiles, and reads the file into the page cache.
            for way, arguments in ways.items():
                found = scan(path, arguments)
                if turn:
                    spent[way].append(found)
    plain = spent["plain"]
    for way, each in spent.items():
        rates = [packets / one.wall / 1e6 for one in each]
        least = min(one.processor for one in each)
        report.add("contacts", f"scan, {way}", max(rates), "M packets/s", note=f"{least:.2f} processor s", runs=rates)
        if way != "plain":
            share = min(one.wall for one in plain) / min(one.wall for one in each)
            processor = min(one.processor for one in plain) / least
            note = f"of processor seconds {processor:.0%}"
            report.add("contacts", f"scan, {way}: share of plain", 100 * share, "%", note=note)
    if not options.quick:
        name = f"contacts-{report.place}"
        for made_file in report.write(options.results, name, "Contacts, ports and tunnels"):
            print(made_file)


if __name__ == "__main__":
    main()
