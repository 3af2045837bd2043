"""Writes packets to capture files: .pcap, .pcap.zst and .parquet, whole or not at all.

A .pcap is the classic format with nanosecond times, little-endian, link type Ethernet. A packet is an Ethernet header
(locally administered addresses), an IPv4 or IPv6 header and an empty UDP datagram to the discard port; lengths and
checksums are right. A .pcap.zst is the same bytes in one Zstandard frame. A .parquet has three columns: `time`
(timestamp in nanoseconds, UTC), `src` and `dst` (addresses as text).

A block's families are merged by time. Everything goes to a temporary file in the same folder first, which takes the
wanted name when it is complete: nobody ever sees half a capture, and a failure leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core import defaults
from superhosts.core.files import output_errors, replaceable, replacing
from superhosts.core.pairs import PacketBatch, PacketBlock
from superhosts.core.units import SECOND, parse_count
from superhosts.errors import OutputError, UsageError, import_extra
from superhosts.jit.cache import compiled
from superhosts.sources.synthetic.source import make_traffic
from superhosts.sources.synthetic.traffic import Family, packet_blocks
from superhosts.sources.synthetic.truth import Row, Truth, is_truth, write_rows

KINDS = (".pcap.zst", ".pcap", ".parquet")
ZSTD_LEVEL = 1

Bytes = NDArray[np.uint8]

_FILE_HEADER = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262_144, 1)  # nanoseconds; link type 1 is Ethernet
_ETHERNET = bytes.fromhex("020000000001020000000002")
_UDP = struct.pack(">HHHH", 9, 9, 8, 0)  # discard to discard, no payload
_FRAMES = {
    4: _ETHERNET + struct.pack(">HBBHHHBBHII", 0x0800, 0x45, 0, 28, 0, 0x4000, 64, 17, 0, 0, 0) + _UDP,
    6: _ETHERNET + struct.pack(">HIHBB", 0x86DD, 6 << 28, 8, 17, 64) + bytes(32) + _UDP,
}
# Where the source address and the checksum stand in a record (16 bytes of record header, then the frame), and the sum
# of the 16-bit words under the checksum other than the addresses.
_PLACES = {4: (16 + 26, 16 + 24, 0x4500 + 28 + 0x4000 + 0x4011), 6: (16 + 22, 16 + 60, 17 + 8 + 9 + 9 + 8)}


def capture_kind(path: Path) -> str:
    for kind in KINDS:
        if path.name.endswith(kind) and path.name != kind:
            return kind
    raise UsageError(f"{path}: the name of a capture ends in .pcap, .pcap.zst or .parquet")


def write_capture(path: Path, blocks: Iterable[PacketBlock]) -> tuple[int, int]:
    """Write all packets of `blocks` to `path`, in the format that its name says; return how many, and the bytes."""
    kind = capture_kind(path)
    packets = 0
    with output_errors(path), replacing(replaceable(path), durable=False) as part:
        with _opened(part, kind) as write:
            for block in blocks:
                if any(len(batch) for batch in block):
                    write(block)
                    packets += sum(len(batch) for batch in block)
        size = part.stat().st_size
    return packets, size


def is_written_here(path: Path) -> bool:
    """Return True if a capture looks like one that `write_capture` wrote: by its header and the first packet.

    The Ethernet addresses of synthetic packets are not a vendor's, so a real capture does not have them.
    """
    import zstandard

    kind = capture_kind(path)
    if kind == ".parquet":
        pa, pq = (import_extra("writing .parquet", "tables", name) for name in ("pyarrow", "pyarrow.parquet"))
        with contextlib.suppress(OSError, pa.ArrowException):
            return list(pq.read_schema(path).names) == ["time", "src", "dst"]
        return False
    start, head = len(_FILE_HEADER) + 16, b""
    with contextlib.suppress(OSError, zstandard.ZstdError), path.open("rb") as file:
        stream = zstandard.ZstdDecompressor().stream_reader(file) if kind == ".pcap.zst" else file
        head = stream.read(start + len(_ETHERNET))
    return head[: len(_FILE_HEADER)] == _FILE_HEADER and head[start:] in (b"", _ETHERNET)


@contextmanager
def _opened(part: Path, kind: str) -> Iterator[Callable[[PacketBlock], None]]:
    """Yield a function that writes a block to a new capture of a kind."""
    import zstandard

    if kind == ".parquet":
        pa, pq = (import_extra("writing .parquet", "tables", name) for name in ("pyarrow", "pyarrow.parquet"))
        schema = pa.schema([("time", pa.timestamp("ns", "UTC")), ("src", pa.string()), ("dst", pa.string())])
        with pq.ParquetWriter(part, schema, compression="zstd") as writer:
            yield lambda block: writer.write_table(pa.table(_columns(block, pa), schema=schema))
    elif kind == ".pcap":
        with part.open("wb", buffering=0) as file:
            file.write(_FILE_HEADER)
            yield lambda block: _write_all(file, pack_block(block).data)
    else:
        compressor = zstandard.ZstdCompressor(level=ZSTD_LEVEL, write_checksum=True)
        with part.open("wb") as packed, compressor.stream_writer(packed) as stream:
            stream.write(_FILE_HEADER)
            yield lambda block: _write_all(stream, pack_block(block).data)


def _write_all(file: Any, data: memoryview) -> None:
    """Write every byte; an unbuffered file may take less than it is given."""
    while data:
        data = data[file.write(data) :]


def _columns(block: PacketBlock, pa: Any) -> dict[str, Any]:
    time = np.concatenate([batch.time for batch in block])
    order = np.argsort(time, kind="stable")
    columns: dict[str, Any] = {"time": pa.array(time[order]).cast(pa.timestamp("ns", "UTC"))}
    for name in ("src", "dst"):
        parts = [_texts(batch.family, getattr(batch, name), pa) for batch in block]
        columns[name] = pa.concat_arrays(parts).take(pa.array(order))
    return columns


def _texts(family: int, addresses: NDArray[Any], pa: Any) -> Any:
    """Addresses as text; each distinct one is formatted once, because a block repeats it about ten times."""
    kind, width = (socket.AF_INET, 4) if family == 4 else (socket.AF_INET6, 16)
    distinct, places = np.unique(_octets(family, addresses).view(f"V{width}").ravel(), return_inverse=True)
    return pa.array([socket.inet_ntop(kind, octets.tobytes()) for octets in distinct], pa.string()).take(
        pa.array(places)
    )


def _octets(family: int, addresses: NDArray[Any]) -> Bytes:
    swapped = np.ascontiguousarray(addresses.astype(">u4" if family == 4 else ">u8"))
    return swapped.view(np.uint8).reshape(len(addresses), 4 if family == 4 else 16)


def pack_block(block: PacketBlock) -> Bytes:
    """Lay out the records of a block, in time order, as the bytes of a capture."""
    time = np.concatenate([batch.time for batch in block])
    if time.min() < 0 or time.max() >= SECOND << 32:
        raise OutputError("a .pcap holds times from 1970 to 2106 only; write a .parquet instead")
    sizes = np.concatenate([np.full(len(batch), 16 + len(_FRAMES[batch.family])) for batch in block])
    order = np.argsort(time, kind="stable")
    starts = np.empty(len(time), np.int64)
    starts[order] = np.cumsum(sizes[order]) - sizes[order]
    records = np.empty(int(sizes.sum()), np.uint8)
    first = 0
    for batch in block:
        _pack(batch, starts[first : first + len(batch)], records)
        first += len(batch)
    return records


def _pack(batch: PacketBatch, starts: NDArray[np.int64], records: Bytes) -> None:
    frame = _FRAMES[batch.family]
    template = np.frombuffer(struct.pack("<IIII", 0, 0, len(frame), len(frame)) + frame, np.uint8).copy()
    addresses = np.concatenate([_octets(batch.family, batch.src), _octets(batch.family, batch.dst)], axis=1)
    pack_records(batch.time, addresses, template, np.array(_PLACES[batch.family]), starts, records)


@compiled
def pack_records(
    time: NDArray[np.int64],
    addresses: Bytes,
    template: Bytes,
    places: NDArray[np.int64],
    starts: NDArray[np.int64],
    records: Bytes,
) -> None:
    """Write one record per packet: the template, with its time, both addresses and the checksum over them."""
    address_at, checksum_at, constant = places
    for i in range(len(time)):
        start = starts[i]
        for place in range(len(template)):
            records[start + place] = template[place]
        seconds, nanoseconds = time[i] // SECOND, time[i] % SECOND
        for place in range(4):
            records[start + place] = (seconds >> (8 * place)) & 255
            records[start + 4 + place] = (nanoseconds >> (8 * place)) & 255
        total = constant
        for place in range(addresses.shape[1]):
            octet = addresses[i, place]
            records[start + address_at + place] = octet
            total += np.int64(octet) << (8 if place % 2 == 0 else 0)
        total = (total & 0xFFFF) + (total >> 16)
        total = (total & 0xFFFF) + (total >> 16)
        checksum = total ^ 0xFFFF
        if checksum == 0 and constant < 0x4000:  # UDP writes a checksum of zero as all ones
            checksum = 0xFFFF
        records[start + checksum_at] = checksum >> 8
        records[start + checksum_at + 1] = checksum & 255


def truth_path(capture: Path) -> Path:
    """Return the file with the answer to a capture: day.truth.jsonl for day.pcap.zst."""
    return capture.with_name(capture.name.removesuffix(capture_kind(capture)) + ".truth.jsonl")


class Synthetic(NamedTuple):
    """A capture that was made: its file, that of the answer, and what they hold."""

    path: Path
    truth_path: Path
    packets: int
    flows: int
    super_hosts: int  # hosts with at least 1024 peers
    bytes: int
    truth: list[Row]  # the answer: rows like those of a result, exact


def synth(
    out: str | Path,
    *,
    flows: str | int = "100k",
    packets: str | int = "1M",
    windows: str | int = 1,
    super_hosts: str | int = 20,
    seed: int = 1,
    family: Family = 4,
    window: str = defaults.WINDOW,
    truth_min: str | int = 100,
    ipv4_prefix: int = defaults.IPV4_PREFIX,
    ipv6_prefix: int = defaults.IPV6_PREFIX,
    force: bool = False,
) -> Synthetic:
    """Write synthetic traffic to a capture (.pcap, .pcap.zst, .parquet) and its exact answer beside it (.truth.jsonl).

    Flows, packets and super hosts are those of each of the `windows`. The answer has hosts of at least `truth_min`
    peers. The same arguments give the same traffic. The inner network is 10.0.0.0/8, for IPv6 (`family` 6 or "both")
    2001:db8::/32. Files that this did not write are overwritten only with `force`.

    >>> made = synth("day.pcap", super_hosts=50)
    >>> made.truth[0]["host"], made.truth[0]["peers"]
    """
    path = Path(out)
    traffic = make_traffic(
        flows=flows, packets=packets, windows=windows, super_hosts=super_hosts, seed=seed, family=family, window=window
    )
    truth = Truth(traffic, parse_count(truth_min), ipv6_prefix, ipv4_prefix)
    for each in () if force else foreign_files(path):
        raise UsageError(f"{each}: is there, and synth did not write it; force=True overwrites it")
    return write_traffic(path, packet_blocks(traffic), truth)


def foreign_files(capture: Path) -> Iterator[Path]:
    """Yield the files that would be overwritten although something else wrote them."""
    for path, is_ours in ((capture, is_written_here), (truth_path(capture), is_truth)):
        if path.is_file() and not is_ours(path):
            yield path


def write_traffic(capture: Path, blocks: Iterable[PacketBlock], truth: Truth) -> Synthetic:
    """Write packets to a capture and the answer beside it."""
    beside = truth_path(capture)
    # The truth's file is opened first: if that fails, no capture without its truth is left behind.
    with output_errors(beside), replacing(replaceable(beside), durable=False) as part:
        packets, size = write_capture(capture, blocks)
        rows, supers = truth.rows()
        write_rows(part, rows)
    flows = truth.traffic.flows * truth.traffic.windows
    return Synthetic(capture, beside, packets, flows, supers, size, rows)
