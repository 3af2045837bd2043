"""Write the pcap and pcapng captures of the scan benchmark, with frames of 60 bytes (64 on the wire, with the FCS)."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np

from superhosts.sources.synthetic.capture import write_capture
from superhosts.sources.synthetic.traffic import Traffic, packet_blocks

SHORT = 42  # bytes of a frame of `write_capture`: Ethernet, IPv4 and UDP headers
FRAME = 60  # bytes of the shortest Ethernet frame, without the frame check sequence
PIECE = 1 << 20  # packets converted together
PCAP_HEADER = 24

_SHORT_RECORD = np.dtype([("s", "<u4"), ("ns", "<u4"), ("captured", "<u4"), ("length", "<u4"), ("frame", f"V{SHORT}")])
_FRAME_FIELDS: list[Any] = [("frame", f"V{SHORT}"), ("padding", f"V{FRAME - SHORT}")]
_RECORD = np.dtype([("s", "<u4"), ("ns", "<u4"), ("captured", "<u4"), ("length", "<u4"), *_FRAME_FIELDS])
_ENHANCED = np.dtype(
    [
        *((name, "<u4") for name in ("type", "size", "interface", "high", "low", "captured", "length")),
        *_FRAME_FIELDS,
        ("again", "<u4"),
    ]
)
_SECTION = struct.pack("<IIIHHqI", 0x0A0D0D0A, 28, 0x1A2B3C4D, 1, 0, -1, 28)
# Interface block: Ethernet, no snapshot length, option 9 (time resolution) 10^-9 seconds, end of options.
_INTERFACE = struct.pack("<IIHHIHHB3xHHI", 1, 32, 1, 0, 0, 9, 1, 9, 0, 0, 32)


def write_captures(traffic: Traffic, folder: Path) -> tuple[Path, Path]:
    """Write the traffic as small.pcap and small.pcapng."""
    short, pcap, pcapng = folder / "short.pcap", folder / "small.pcap", folder / "small.pcapng"
    write_capture(short, packet_blocks(traffic))
    with short.open("rb") as file:
        header = file.read(PCAP_HEADER)
    records = np.memmap(short, _SHORT_RECORD, "r", offset=PCAP_HEADER)
    with pcap.open("wb") as narrow, pcapng.open("wb") as wide:
        narrow.write(header)
        wide.write(_SECTION + _INTERFACE)
        for start in range(0, len(records), PIECE):
            piece = records[start : start + PIECE]
            if not (piece["captured"] == SHORT).all():
                raise RuntimeError(f"{short}: frames of other than {SHORT} bytes")
            record = np.zeros(len(piece), _RECORD)
            for name in ("s", "ns", "frame"):
                record[name] = piece[name]
            record["captured"] = record["length"] = FRAME
            narrow.write(record.data)
            block = np.zeros(len(piece), _ENHANCED)
            time = piece["s"].astype(np.uint64) * np.uint64(10**9) + piece["ns"]
            block["type"], block["size"], block["again"] = 6, _ENHANCED.itemsize, _ENHANCED.itemsize
            block["high"], block["low"] = time >> np.uint64(32), time & np.uint64(0xFFFFFFFF)
            block["captured"] = block["length"] = FRAME
            block["frame"] = piece["frame"]
            wide.write(block.data)
    del records
    short.unlink()
    return pcap, pcapng


def split_capture(path: Path, count: int, folder: Path) -> list[Path]:
    """Cut a pcap that `write_captures` wrote into files that follow each other in time."""
    records = np.memmap(path, _RECORD, "r", offset=PCAP_HEADER)
    parts = []
    for number, part in enumerate(np.array_split(records, count)):
        parts.append(folder / f"part{number:03}.pcap")
        with path.open("rb") as whole, parts[-1].open("wb") as out:
            out.write(whole.read(PCAP_HEADER))
            out.write(part.tobytes())
    return parts


def first_packets(path: Path, packets: int, out: Path) -> Path:
    """Copy the first packets of a capture that `write_captures` wrote."""
    if path.suffix == ".pcap":
        size = PCAP_HEADER + packets * _RECORD.itemsize
    else:
        size = len(_SECTION + _INTERFACE) + packets * _ENHANCED.itemsize
    with path.open("rb") as file:
        out.write_bytes(file.read(size))
    return out
