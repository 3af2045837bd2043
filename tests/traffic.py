"""Small captures with known answers, and the content of sketches in a comparable form."""

from __future__ import annotations

import hashlib
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import packets
from packets import SECOND

NOON = 1_700_000_100 * SECOND  # 2023-11-14T22:15:00Z, the start of a window of five minutes
MINUTES = 60 * SECOND
STEP = SECOND // 1000
Frames = list[tuple[int, bytes]]


def packet(time: int, src: str, dst: str) -> tuple[int, bytes]:
    wide = ":" in src
    return time, packets.ethernet(0x86DD if wide else 0x0800, (packets.ipv6 if wide else packets.ipv4)(src, dst))


def talk(
    host: str, peers: int, start: int = NOON, *, step: int = STEP, base: str = "", inbound: bool = False
) -> Frames:
    """Return one packet from `host` to each of its peers, beginning at `start`."""
    first = ip_address(base or ("2a00::" if ":" in host else "172.16.0.0"))
    ends = (host, str(first))
    frame = packet(start, *(ends[::-1] if inbound else ends))[1]
    width = len(first.packed)
    place = 14 + (12 if width == 4 else 8) + (0 if inbound else width)  # of the peer's address in the frame
    before, after, number = frame[:place], frame[place + width :], int(first)
    return [(start + i * step, before + (number + i).to_bytes(width, "big") + after) for i in range(peers)]


def three_windows() -> Frames:
    """Return the frames of an IPv4 scanner in three windows, an IPv6 scanner in two, and many quiet hosts, by time."""
    frames: Frames = []
    for window in range(3):
        start = NOON + window * 5 * MINUTES
        frames += talk("10.0.0.7", 1500, start, step=150 * STEP, base=f"172.{16 + window}.0.0")
        frames += talk("10.0.0.8", 400, start + STEP, step=700 * STEP, base=f"172.{20 + window}.0.0", inbound=True)
        for i in range(60):
            frames += talk(f"10.1.0.{i}", 3, start + i * STEP, step=90 * SECOND)
        if window:
            frames += talk("2001:db8::7", 1300, start + 2 * STEP, step=170 * STEP)
    return sorted(frames, key=lambda frame: frame[0])


def near(row: Any, truth: int) -> bool:
    """Return True if an estimate is within four standard deviations of the truth. Its interval is ±1.96 deviations."""
    row = row if isinstance(row, dict) else row._asdict()
    return abs(row["peers"] - truth) <= 4 * (row["peers_high"] - row["peers_low"]) / 2 / 1.96


def write(path: Path, frames: Frames) -> Path:
    path.write_bytes(packets.pcap(frames))
    return path


def content(sketch: Any) -> dict[Any, dict[str, tuple[Any, str]]]:
    return {
        part: {name: (array.shape, hashlib.sha256(array.tobytes()).hexdigest()) for name, array in d.arrays().items()}
        for part, d in sketch.parts.items()
    }


def everything(scan: Any) -> list[Any]:
    """Return the complete result of a scan in a comparable form: windows, packets, rows, entries, every bit."""
    return [(w.window, w.packets, w.found, w.sketch.entries, content(w.sketch)) for w in scan]
