"""Captures written, read back by a reader of a few lines; nothing left behind when writing fails."""

from __future__ import annotations

import io
import ipaddress
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import zstandard

from faults import full_disk
from superhosts.core.pairs import PacketBatch, PacketBlock
from superhosts.errors import OutputError, UsageError
from superhosts.sources.synthetic.capture import write_capture
from superhosts.sources.synthetic.traffic import Traffic, packet_blocks

TRAFFIC = Traffic(flows=3000, packets=9000, super_hosts=1, windows=2, family="both")
Packet = tuple[int, str, str]


def ones_sum(data: bytes) -> int:
    """The Internet checksum's sum: 0xFFFF over data that contain their checksum."""
    total: int = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def read_pcap(data: bytes) -> list[Packet]:
    stream, packets = io.BytesIO(data), []
    magic, major, minor, _, _, snaplen, link = struct.unpack("<IHHiIII", stream.read(24))
    assert (magic, major, minor, link) == (0xA1B23C4D, 2, 4, 1)
    while header := stream.read(16):
        seconds, nanoseconds, kept, original = struct.unpack("<IIII", header)
        frame = stream.read(kept)
        assert kept == original == len(frame) <= snaplen
        assert nanoseconds < 10**9
        kind, packet = struct.unpack(">H", frame[12:14])[0], frame[14:]
        if kind == 0x0800:
            assert packet[0] == 0x45
            assert struct.unpack(">H", packet[2:4])[0] == len(packet)
            assert ones_sum(packet[:20]) == 0xFFFF
            assert packet[9] == 17
            src, dst, udp = packet[12:16], packet[16:20], packet[20:]
        else:
            assert kind == 0x86DD
            assert packet[0] >> 4 == 6
            assert struct.unpack(">H", packet[4:6])[0] == len(packet) - 40
            assert packet[6] == 17
            src, dst, udp = packet[8:24], packet[24:40], packet[40:]
            assert udp[6:8] != b"\0\0"
            assert ones_sum(src + dst + struct.pack(">II", len(udp), 17) + udp) == 0xFFFF
        assert struct.unpack(">H", udp[4:6])[0] == len(udp) == 8
        packets.append((seconds * 10**9 + nanoseconds, str(ipaddress.ip_address(src)), str(ipaddress.ip_address(dst))))
    return packets


def expected(blocks: list[PacketBlock]) -> list[Packet]:
    packets: list[Packet] = []
    for block in blocks:
        merged: list[Packet] = []
        for batch in block:
            for time, src, dst in zip(batch.time.tolist(), batch.src.tolist(), batch.dst.tolist(), strict=True):
                if batch.family == 4:
                    merged.append((time, str(ipaddress.IPv4Address(src)), str(ipaddress.IPv4Address(dst))))
                else:
                    ends = [str(ipaddress.IPv6Address(end[0] << 64 | end[1])) for end in (src, dst)]
                    merged.append((time, *ends))
        packets += sorted(merged, key=lambda packet: packet[0])
    return packets


@pytest.fixture(scope="module")
def blocks() -> list[PacketBlock]:
    return list(packet_blocks(TRAFFIC))


@pytest.fixture(scope="module")
def packets(blocks: list[PacketBlock]) -> list[Packet]:
    found = expected(blocks)
    assert {len(block) for block in blocks} == {2}
    return found


def read(path: Path) -> list[Packet]:
    if path.suffix == ".parquet":
        table = pq.read_table(path)
        assert [str(field.type) for field in table.schema] == ["timestamp[ns, tz=UTC]", "string", "string"]
        times = table["time"].cast("int64").to_pylist()
        return list(zip(times, table["src"].to_pylist(), table["dst"].to_pylist(), strict=True))
    data = path.read_bytes()
    return read_pcap(zstandard.ZstdDecompressor().stream_reader(data).read() if path.suffix == ".zst" else data)


NAMES = ["a.pcap", "a.pcap.zst", "a.b.parquet"]


@pytest.mark.parametrize("name", NAMES)
def test_capture_reads_back(name: str, tmp_path: Path, blocks: list[PacketBlock], packets: list[Packet]) -> None:
    path = tmp_path / name
    path.write_bytes(b"an older capture")
    written = write_capture(path, iter(blocks))
    assert written == (18_000, path.stat().st_size)
    found = read(path)
    assert found == packets
    assert [packet[0] for packet in found] == sorted(packet[0] for packet in found)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", NAMES)
def test_no_packets_make_a_valid_empty_capture(name: str, tmp_path: Path) -> None:
    nothing = PacketBatch(4, np.zeros(0, np.uint32), np.zeros(0, np.uint32), np.zeros(0, np.int64))
    for empty in ([], [()], [(nothing,)]):
        assert write_capture(tmp_path / name, empty)[0] == 0
        assert read(tmp_path / name) == []


def test_extreme_addresses_and_times(tmp_path: Path) -> None:
    """All bits, no bits; sums that carry twice, or whose checksum comes out as zero, which UDP over IPv6 forbids."""
    v4 = np.array([0, 2**32 - 1, 0x01020304, 0], np.uint32)
    # Words under the checksum: 17 + 8 + 9 + 9 + 8 = 51 and an address of one word 0xFFFF - 51;
    # one more word of all ones carries twice.
    v6 = np.array([[0, 0], [2**64 - 1, 2**64 - 1], [0, 0xFFFF - 51], [0, 0xFFFF_FFFF - 50]], np.uint64)
    time = np.array([0, 5, 2**32 * 10**9 - 1, 7])
    block = (PacketBatch(4, v4, v4[::-1], time), PacketBatch(6, v6, np.zeros_like(v6), time))
    write_capture(tmp_path / "a.pcap", [block])
    assert read(tmp_path / "a.pcap") == expected([block])


def test_what_cannot_be_written_is_refused(tmp_path: Path) -> None:
    address = np.array([1], np.uint32)
    for time in (-1, 2**32 * 10**9):
        with pytest.raises(OutputError, match="1970 to 2106"):
            write_capture(tmp_path / "a.pcap", [(PacketBatch(4, address, address, np.array([time])),)])
    for name in ("a.pcapng", "a.zst", "a", ".pcap"):
        with pytest.raises(UsageError, match=r"\.pcap, \.pcap\.zst or \.parquet"):
            write_capture(tmp_path / name, [])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_failure_leaves_the_old_file_and_nothing_else(name: str, tmp_path: Path, blocks: list[PacketBlock]) -> None:
    def failing() -> Iterator[PacketBlock]:
        yield blocks[0]
        raise KeyboardInterrupt

    for room in (0, 100):
        with full_disk(room), pytest.raises(OutputError, match="cannot be written"):
            write_capture(tmp_path / name, blocks)
        assert list(tmp_path.iterdir()) == []
    with pytest.raises(KeyboardInterrupt):
        write_capture(tmp_path / name, failing())
    assert list(tmp_path.iterdir()) == []
    (tmp_path / name).write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt):
        write_capture(tmp_path / name, failing())
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"old"]
    (tmp_path / name).unlink()
    with pytest.raises(OutputError, match="cannot be written") as caught:
        write_capture(tmp_path / "missing" / name, blocks)
    assert str(tmp_path / "missing" / name) in str(caught.value)
    (tmp_path / name).mkdir()
    with pytest.raises(OutputError, match="cannot be written"):
        write_capture(tmp_path / name, blocks)
    assert list(tmp_path.iterdir()) == [tmp_path / name]
