from __future__ import annotations

from pathlib import Path

import pytest

import packets as p
from frames import FRAMES, V4, Row, T, mixed, mixed_pcapng, rows, write
from superhosts.errors import InputError
from superhosts.sources.base import SourceCounters
from superhosts.sources.capture import open_capture


def expected(family: int, time: int = T) -> list[Row]:
    if family == 4:
        return [(4, p.A4, p.B4, time)]
    return [(6, p.A6, p.B6, time)] if family == 6 else []


def test_every_way_to_an_ip_header(tmp_path: Path) -> None:
    """By answers that were written by hand. Of each frame all parts: those without whole addresses are truncated."""
    for link, frame, family, needed in FRAMES.values():
        parts = [frame[:length] for length in range(len(frame) + 1)]
        modern = p.section() + p.interface(link) + b"".join(p.enhanced(T // 1000, part) for part in parts)
        for data in (p.pcap([(T, part) for part in parts], link), modern):
            found, counters = rows(write(tmp_path, data))
            whole = len(parts) - needed
            assert found == expected(family) * whole
            counts = counters.packets, counters.not_ip, counters.truncated
            assert counts == (len(parts), whole * (family == 0), needed)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("magic", [p.MICRO, p.NANO, p.MODIFIED])
def test_byte_orders_and_units(magic: int, order: str, tmp_path: Path) -> None:
    unit = 1 if magic == p.NANO else 1000
    times = [0, 999_999 * unit, T, T + 7 * unit, 4_294_967_295 * p.SECOND + 1000]
    frames = [(time, p.ethernet(0x0800, p.ipv4(f"10.0.0.{i}"))) for i, time in enumerate(times)]
    found, counters = rows(write(tmp_path, p.pcap(frames, 1, magic, order)))
    assert found == [(4, f"10.0.0.{i}", p.B4, time) for i, time in enumerate(times)]
    assert counters.warnings == []


def test_bits_above_the_link_type_are_not_part_of_it(tmp_path: Path) -> None:
    found, _ = rows(write(tmp_path, p.pcap_header(0x2400_0001) + p.record(T, FRAMES["vlan"][1])))
    assert found == expected(4)


@pytest.mark.parametrize("data", [p.pcap(mixed()), p.pcap(mixed(), 1, p.MODIFIED, ">"), mixed_pcapng()])
def test_the_output_does_not_depend_on_where_blocks_are_cut(data: bytes, tmp_path: Path) -> None:
    path = write(tmp_path, data)
    whole = rows(path)
    assert len(whole[0]) > 20
    assert all((whole[1].not_ip, whole[1].truncated, whole[1].ipv4, whole[1].ipv6))
    for size in [*range(1, 130), 1000, 1500, len(data) - 1, len(data)]:
        assert rows(path, block_bytes=size) == whole, size


def test_many_packets_come_in_several_blocks_that_stay_as_they_are(tmp_path: Path) -> None:
    count = 150_000
    frames = b"".join(p.record(i * 1000, p.ethernet(0x0800, V4)) for i in range(1000)) * (count // 1000)
    source = open_capture(write(tmp_path, p.pcap_header() + frames))
    blocks = list(source.blocks())
    assert len(blocks) > 2
    times = [time for (batch,) in blocks for time in batch.time.tolist()]
    assert times == [i * 1000 for i in range(1000)] * (count // 1000)
    assert source.counters.ipv4 == count


@pytest.mark.parametrize(("link", "name"), [(7, "ARCNET"), (195, "802.15.4"), (189, "USB"), (250, "")])
def test_a_link_type_that_cannot_be_read_is_named(link: int, name: str, tmp_path: Path) -> None:
    path = write(tmp_path, p.pcap([(T, V4)], link))
    with pytest.raises(InputError, match=rf"capture: byte 24: link type {link}\b.*{name}.* not supported"):
        rows(path)
    with pytest.raises(InputError, match=f"link type {link}"):
        open_capture(path).first_time()
    assert rows(write(tmp_path, p.pcap_header(link)))[1].packets == 0


def test_first_time_is_of_any_packet_and_takes_nothing_away(tmp_path: Path) -> None:
    frames = [(T, p.ethernet(0x0806, p.arp())), (T + 1000, FRAMES["vlan"][1])]
    for data in (p.pcap(frames), p.section() + p.interface() + b"".join(p.enhanced(t // 1000, f) for t, f in frames)):
        source = open_capture(write(tmp_path, data))
        assert source.first_time() == source.first_time() == T
        assert source.counters == SourceCounters()
        assert sum(len(batch) for block in source.blocks() for batch in block) == 1
        assert source.counters.packets == 2
        assert source.first_time() == T
    assert open_capture(write(tmp_path, p.pcap([]))).first_time() is None
