"""Which addresses are hosts, as options of the command line say it: --special, --inner private, --ipv4-prefix."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import superhosts as sh
from commands import Run
from superhosts.pipeline.settings import Settings
from traffic import NOON, packet, talk, write

COMMON = ["--memory", "1MiB", "--device", "cpu", "--threshold", "20"]


@pytest.fixture(scope="module")
def lan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a capture of 30 hosts that send to a multicast group, to everybody, and to one server."""
    frames = [
        frame
        for group in ("224.0.0.251", "255.255.255.255", "198.51.100.9")
        for frame in talk(group, 30, base="10.3.0.1", inbound=True)
    ]
    frames += talk("ff02::fb", 30, base="fd00::1", inbound=True)
    return write(tmp_path_factory.mktemp("lan") / "lan.pcap", frames)


def hosts_of(run: Run, *arguments: object) -> dict[str, int]:
    return {row["host"]: row["peers"] for row in run(*arguments, *COMMON, "--json").rows}


def test_special_addresses_are_no_hosts_and_the_summary_says_how_many_ends_that_were(run: Run, lan: Path) -> None:
    ended = run("scan", lan, *COMMON, "--json")
    assert [row["host"] for row in ended.rows] == ["198.51.100.9"]
    assert "90 multicast, broadcast or unspecified" in ended.err
    assert '(unless special = "keep")' in ended.err
    kept = run("scan", lan, *COMMON, "--json", "--special", "keep")
    assert len(kept.rows) == 4
    assert "multicast" not in kept.err
    for special, hosts, ends in (("drop", 1, 90), ("keep", 4, 0)):
        scan = sh.scan(lan, special=special, threshold=20, memory="1MiB", window="all")
        assert (sum(len(window.found) for window in scan), scan.counters.special_ends) == (hosts, ends)


@pytest.fixture(scope="module")
def carpet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a capture of one attack that is spread over a /24: each address has five peers."""
    frames = [
        frame for last in range(200) for frame in talk(f"10.1.2.{last}", 5, base=f"198.51.{last}.1", inbound=True)
    ]
    frames += [packet(NOON, "10.1.3.1", "192.0.2.1")]
    return write(tmp_path_factory.mktemp("carpet") / "carpet.pcap", frames)


def test_ipv4_hosts_may_be_prefixes_in_rows_files_and_questions(run: Run, carpet: Path, tmp_path: Path) -> None:
    inner = ["--inner", "10.0.0.0/8"]
    assert hosts_of(run, "scan", carpet, *inner) == {}
    by_prefix = [*inner, "--ipv4-prefix", "24"]
    assert hosts_of(run, "scan", carpet, *by_prefix) == {"10.1.2.0/24": 1000}
    assert "10.1.2.0/24" in run("scan", carpet, *by_prefix, *COMMON).out
    run("scan", carpet, *by_prefix, *COMMON, "--save", tmp_path / "saved")
    (file,) = (tmp_path / "saved").glob("*.cube")
    (row,) = run("hosts", file, "--threshold", 100, "--json").rows
    assert row["host"] == "10.1.2.0/24"
    assert abs(row["peers"] - 1000) < 50
    for host in ("10.1.2.77", "10.1.2.0/24", "10.1.2.64/26"):
        (row,) = run("explain", file, host, "--json").rows
        assert (row["host"], row["family"]) == ("10.1.2.0/24", 4)
        assert abs(row["peers"] - 1000) < 50
    refused = run("explain", file, "10.1.0.0/16")
    assert (refused.status, "a host here is a /24" in refused.err) == (2, True)


def test_synthetic_traffic_has_the_truth_of_ipv4_prefixes(run: Run, tmp_path: Path) -> None:
    made = ["--flows", "6k", "--packets", "9k", "--super-hosts", 2, "--truth-min", 40, "--ipv4-prefix", 16]
    assert run("synth", tmp_path / "a.pcap", *made).status == 0
    truth = [json.loads(line) for line in (tmp_path / "a.truth.jsonl").read_text().splitlines()]
    found = run(
        "scan", tmp_path / "a.pcap", "--inner", "10.0.0.0/8", "--watch", "inner,outer", "--threshold", 40,
        "--ipv4-prefix", 16, "--json", "--memory", "1MiB",
    ).rows  # fmt: skip
    assert {row["host"].rpartition("/")[2] for row in truth} == {"16"}
    keys = ("host", "side", "peers")
    assert {tuple(row[key] for key in keys) for row in truth} == {tuple(row[key] for key in keys) for row in found}


def test_an_edge_starts_anew_where_these_options_change_and_only_then() -> None:
    """Settings of earlier releases have the same fingerprint as the defaults, so that an edge goes on after them."""
    usual = Settings().fingerprint
    assert not {"special", "ipv4_prefix"} & set(usual)
    assert Settings(special="keep").fingerprint == {**usual, "special": "keep"}
    assert Settings(ipv4_prefix=24).fingerprint == {**usual, "ipv4_prefix": 24}


# A wrong --inner


def test_a_wrong_inner_is_a_warning_with_the_prefixes_seen_most(run: Run, tmp_path: Path, lan: Path) -> None:
    public = write(tmp_path / "a.pcap", talk("203.0.113.9", 95) + talk("192.0.2.1", 5, base="198.51.100.1"))
    for options in ([], ["--quiet"]):
        ended = run("scan", public, *COMMON, "--inner", "192.0.2.0/24", *options)
        assert "warning: 95 of 100 packets (95.0%) have neither address inside --inner and are not counted" in ended.err
        assert "; prefixes seen most: 172.16.0.0/16, 203.0.0.0/16; if the first is yours: --inner private" in ended.err
    ended = run("scan", lan, *COMMON, "--inner", "203.0.113.0/24")
    assert "120 of 120 packets (100.0%)" in ended.err
    assert "prefixes seen most: 10.3.0.0/16, 198.51.0.0/16, fd00::/48; if" in ended.err  # no special addresses
    one = write(tmp_path / "one.pcap", [packet(NOON, "192.0.2.1", "203.0.113.1")])
    ended = run("scan", one, *COMMON, "--inner", "10.0.0.0/8")
    assert "1 of 1 packet (100.0%) has neither address inside --inner and is not counted" in ended.err
    assert "if the first is yours: --inner 192.0.0.0/16" in ended.err
    most = write(tmp_path / "b.pcap", talk("203.0.113.9", 90) + talk("192.0.2.1", 10, base="198.51.100.1"))
    for inner in (["--inner", "192.0.2.0/24"], []):  # nine of ten packets are not a warning
        assert "warning" not in run("scan", most, *COMMON, *inner).err


def test_calibrate_and_compare_warn_of_a_wrong_inner(run: Run, lan: Path) -> None:
    for command in (["calibrate"], ["compare", "--detector", "cube"]):
        ended = run(command[0], lan, *command[1:], "--inner", "203.0.113.0/24")
        assert "have neither address inside --inner" in ended.err
