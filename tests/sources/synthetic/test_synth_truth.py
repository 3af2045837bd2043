"""The exact answer: equal to a count with plain Python sets, and the command that writes it beside the capture."""

from __future__ import annotations

import ipaddress
import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from faults import full_disk
from superhosts.cli._declaration import as_function
from superhosts.cli.synth import synth
from superhosts.cli.usage.lab import Synth
from superhosts.core.pairs import PacketBatch, PacketBlock
from superhosts.errors import OutputError, UsageError
from superhosts.sources.synthetic.capture import truth_path
from superhosts.sources.synthetic.traffic import Traffic, packet_blocks
from superhosts.sources.synthetic.truth import DistinctRows, Row, Tally

BOTH = Traffic(flows=9000, packets=15_000, super_hosts=3, windows=2, family="both", seed=3)
APP = typer.Typer()
APP.command()(as_function(Synth, synth))


def plain_truth(traffic: Traffic, blocks: list[PacketBlock], minimum: int, prefix: int) -> list[tuple[Any, ...]]:
    """Count with sets of ipaddress objects, straight from the words of the design."""
    inner = [ipaddress.ip_network(traffic.inner), ipaddress.ip_network(traffic.inner6)]
    peers: dict[tuple[Any, ...], set[Any]] = defaultdict(set)

    def address(family: int, value: Any) -> Any:
        return ipaddress.IPv4Address(value) if family == 4 else ipaddress.IPv6Address(value[0] << 64 | value[1])

    def shown(host: Any) -> str:
        if host.version == 4 or prefix == 128:
            return str(host)
        return str(ipaddress.ip_network((host, prefix), strict=False))

    for block in blocks:
        for batch in block:
            for time, *ends in zip(batch.time.tolist(), batch.src.tolist(), batch.dst.tolist(), strict=True):
                window = time // 10**9 // traffic.window_seconds * traffic.window_seconds
                a, b = (address(batch.family, end) for end in ends)
                if a == b:
                    continue
                inside = [any(end in network for network in inner if network.version == end.version) for end in (a, b)]
                for host, peer, mine, other in ((a, b, *inside), (b, a, *inside[::-1])):
                    if mine:
                        peers[window, shown(host), batch.family, "inner"].add(peer)
                    elif other:
                        peers[window, shown(host), batch.family, "outer"].add(peer)
    found = [(*key, len(members)) for key, members in peers.items() if len(members) >= minimum]
    return sorted(found, key=lambda row: (row[0], -row[4], row))


def simplified(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    from datetime import datetime

    found = []
    last: tuple[Any, ...] = ()
    for row in rows:
        start, end = (datetime.fromisoformat(row[name]).timestamp() for name in ("window_start", "window_end"))
        assert end - start == 300
        assert row["peers"] == row["peers_low"] == row["peers_high"]
        assert (row["direction"], row["saturated"], row["exact"], row["detector"]) == ("any", False, True, "exact")
        assert (start, -row["peers"]) >= last
        last = (start, -row["peers"])
        found.append((int(start), row["host"], row["family"], row["side"], row["peers"]))
    return sorted(found, key=lambda row: (row[0], -row[4], row))


def exact_truth(traffic: Traffic, blocks: Iterable[PacketBlock], minimum: int = 100, prefix: int = 64) -> list[Row]:
    """Rows of all hosts with at least `minimum` peers in the packets given, window by window."""
    tally = Tally(traffic, minimum, prefix)
    for block in blocks:
        tally.add(block)
    return tally.rows()


@pytest.fixture(scope="module")
def blocks() -> list[PacketBlock]:
    return list(packet_blocks(BOTH))


@pytest.mark.slow
@pytest.mark.parametrize(("prefix", "minimum"), [(64, 1), (48, 30), (128, 30)])
def test_truth_equals_a_count_with_sets(prefix: int, minimum: int, blocks: list[PacketBlock]) -> None:
    rows = exact_truth(BOTH, blocks, minimum, prefix)
    found = simplified(rows)
    assert found == plain_truth(BOTH, blocks, minimum, prefix)
    assert {row[2] for row in found} == {4, 6}
    assert {row[3] for row in found} == {"inner", "outer"}


def test_truth_follows_the_rules_for_ends_of_a_packet() -> None:
    """Both ends inner, none inner, source = destination, a packet in a later window inside the same block."""
    inner, outer = [0x0A000001, 0x0A000002], [0x08080808, 0x09090909]
    ends = [(inner[0], inner[1]), (outer[0], outer[1]), (inner[0], inner[0]), (outer[0], inner[0])]
    ends += [(inner[0], outer[0]), (inner[1], outer[1])]
    src, dst = (np.array(column, np.uint32) for column in zip(*ends, strict=True))
    time = np.array([0, 1, 2, 3, 4, 600 * 10**9])
    block = (PacketBatch(4, src, dst, time),)
    traffic = Traffic()
    rows = exact_truth(traffic, [block], minimum=1)
    assert simplified(rows) == plain_truth(traffic, [block], 1, 64)
    assert [(row["host"], row["side"], row["peers"]) for row in rows] == [
        ("10.0.0.1", "inner", 2),
        ("10.0.0.2", "inner", 1),
        ("8.8.8.8", "outer", 1),
        ("10.0.0.2", "inner", 1),
        ("9.9.9.9", "outer", 1),
    ]


def test_tally_counts_flows_and_super_hosts(blocks: list[PacketBlock]) -> None:
    tally = Tally(BOTH, minimum=1024, ipv6_prefix=128)
    for block in blocks:
        tally.add(block)
    rows = tally.rows()
    assert tally.flows == BOTH.flows * BOTH.windows
    assert tally.super_hosts == sum(row["side"] == "inner" for row in rows) == BOTH.super_hosts * BOTH.windows
    assert tally.rows() == rows
    for prefix, minimum in ((0, 1), (129, 1), (64, 0)):
        with pytest.raises(UsageError):
            Tally(BOTH, minimum, prefix)
    for name in ("day.pcap", "day.pcap.zst", "day.parquet"):
        assert truth_path(Path("/data") / name) == Path("/data/day.truth.jsonl")


def test_distinct_rows_grow_and_keep_their_numbers() -> None:
    random = np.random.default_rng(1)
    rows = random.integers(0, 120, (50_000, 3), dtype=np.uint64)
    distinct = DistinctRows(3)
    seen: dict[tuple[int, ...], int] = {}
    for part in np.array_split(rows, 7):
        expected = [seen.setdefault(tuple(row), len(seen)) for row in part.tolist()]
        assert distinct.add(part).tolist() == expected
    assert [tuple(row) for row in distinct.rows.tolist()] == list(seen)


def test_command_writes_capture_and_truth(tmp_path: Path) -> None:
    out = tmp_path / "x.pcap.zst"
    options = (
        "--flows 6k --packets 9k --windows 2 --super-hosts 3 --seed 4 --family both --truth-min 40 --ipv6-prefix 128"
    )
    result = CliRunner().invoke(APP, [str(out), *options.split(), "--window", "5m"])
    assert result.exit_code == 0, result.output
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    for part in ("18,000 packets", "12,000 flows", "6 hosts", str(out)):
        assert part in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.pcap.zst", "x.truth.jsonl"]
    traffic = Traffic(flows=6000, packets=9000, windows=2, super_hosts=3, seed=4, family="both")
    rows = [json.loads(line) for line in (tmp_path / "x.truth.jsonl").read_text().splitlines()]
    assert rows == exact_truth(traffic, packet_blocks(traffic), 40, 128)
    names = "window_start window_end host family side direction peers peers_low peers_high exact saturated detector"
    assert " ".join(rows[0]) == names


def test_command_refuses_with_errors_for_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments, error in (
        ("x.pcap --family 5", UsageError),
        ("x.pcap --flows many", SystemExit),  # the option itself refuses it
        ("x.pcap --flows 2M", UsageError),  # more flows than packets
        ("x.pcap --window 1.5s", UsageError),
        ("x.pcap --ipv6-prefix 200", UsageError),
        ("x.txt", UsageError),
        ("no/such/folder/x.pcap", OutputError),
    ):
        result = CliRunner().invoke(APP, arguments.split())
        assert isinstance(result.exception, error), result.output
        assert result.exit_code != 0
        assert list(tmp_path.iterdir()) == []


def test_command_leaves_no_half_truth(tmp_path: Path) -> None:
    common = ["--flows", "3k", "--packets", "3k", "--super-hosts", "1", "--truth-min", "1"]
    capture, truth = tmp_path / "x.pcap.zst", tmp_path / "x.truth.jsonl"
    assert CliRunner().invoke(APP, [str(capture), *common]).exception is None
    room = capture.stat().st_size
    assert truth.stat().st_size > room
    capture.unlink()
    truth.unlink()
    with full_disk(room):
        result = CliRunner().invoke(APP, [str(capture), *common])
    assert isinstance(result.exception, OutputError)
    assert "x.truth.jsonl: cannot be written: File too large" in str(result.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["x.pcap.zst"]
    (tmp_path / "y.pcap").mkdir()
    assert isinstance(CliRunner().invoke(APP, [str(tmp_path / "y.pcap"), *common]).exception, OutputError)
    assert not (tmp_path / "y.truth.jsonl").exists()
