"""The exact answer: equal to a count with plain Python sets, and the command that writes it beside the capture."""

from __future__ import annotations

import ipaddress
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from faults import full_disk
from superhosts.cli import COMMANDS
from superhosts.cli._program import Command
from superhosts.core.pairs import PacketBlock
from superhosts.errors import OutputError, UsageError
from superhosts.sources.synthetic.capture import truth_path
from superhosts.sources.synthetic.traffic import Traffic, packet_blocks
from superhosts.sources.synthetic.truth import Truth

BOTH = Traffic(flows=9000, packets=15_000, super_hosts=3, windows=2, family="both", seed=3)
APP = Command("synth", COMMANDS["synth"])


def plain_truth(traffic: Traffic, blocks: list[PacketBlock], minimum: int, prefix: int) -> list[tuple[Any, ...]]:
    """Count with sets of ipaddress objects, straight from the words of the design."""
    inner = [ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("2001:db8::/32")]
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


@pytest.mark.parametrize(
    ("prefix", "minimum"),
    [(64, 1), pytest.param(48, 30, marks=pytest.mark.slow), pytest.param(128, 30, marks=pytest.mark.slow)],
)
def test_truth_equals_a_count_with_sets(prefix: int, minimum: int) -> None:
    """Of the packets themselves."""
    rows, supers = Truth(BOTH, minimum, prefix).rows()
    found = simplified(rows)
    assert found == plain_truth(BOTH, list(packet_blocks(BOTH)), minimum, prefix)
    assert {row[2:4] for row in found} == {(4, "inner"), (4, "outer"), (6, "inner"), (6, "outer")}
    assert supers == sum(row[3] == "inner" and row[4] >= 1024 for row in found) == BOTH.super_hosts * BOTH.windows


def test_the_file_of_the_answer_and_answers_that_cannot_be() -> None:
    for prefix, minimum in ((0, 1), (129, 1), (64, 0)):
        with pytest.raises(UsageError):
            Truth(BOTH, minimum, prefix)
    for name in ("day.pcap", "day.pcap.zst", "day.parquet"):
        assert truth_path(Path("/data") / name) == Path("/data/day.truth.jsonl")


def test_command_writes_capture_and_truth(tmp_path: Path) -> None:
    out = tmp_path / "x.pcap.zst"
    options = "--flows 6k --packets 9k --windows 2 --super-hosts 3 --seed 4 --family both --truth-min 40 --window 5m"
    result = CliRunner().invoke(APP, [str(out), *options.split(), "--ipv6-prefix", "128"])
    assert result.exit_code == 0, result.output
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    for part in ("18,000 packets", "12,000 flows", "6 hosts", str(out)):
        assert part in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.pcap.zst", "x.truth.jsonl"]
    traffic = Traffic(flows=6000, packets=9000, windows=2, super_hosts=3, seed=4, family="both")
    rows = [json.loads(line) for line in (tmp_path / "x.truth.jsonl").read_text().splitlines()]
    assert rows == Truth(traffic, 40, 128).rows()[0]
    names = "window_start window_end host family side direction peers peers_low peers_high exact saturated detector"
    assert " ".join(rows[0]) == names


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
