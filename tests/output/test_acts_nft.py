"""nftables: real sets in the network namespace of a test, and the packets of a real scan, which stop."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from acting import ActingRun, held
from needs import needed
from netns import Namespace, namespace
from waiting import wait_for

pytestmark = pytest.mark.slow

PLACE = "nft:inet/superhosts/blocked"
SCANNER, OTHER, SIX, PREFIX = "203.0.113.9", "203.0.113.10", "2001:db8:5::9", "2001:db8:7::/64"


@pytest.fixture
def net(tmp_path: Path) -> Iterator[Namespace]:
    needed("nft", "SUPERHOSTS_NEED_NFT")
    with namespace(tmp_path) as made:
        yield made


def started(net: Namespace, query: str = "act=true") -> ActingRun:
    run = ActingRun(net.folder / "alerts.acts.sqlite", f"{PLACE}?{query}", prefix=net.inside)
    run.wait("ready")
    return run


def ruleset(net: Namespace) -> list[dict[str, Any]]:
    found = json.loads(net.run("nft", "-j", "list", "ruleset"))["nftables"]
    assert isinstance(found, list)
    return found


def elements(net: Namespace) -> dict[str, list[tuple[str, int]]]:
    """Return the elements of all sets that have some, with their timeouts."""
    found: dict[str, list[tuple[str, int]]] = {}
    for each in ruleset(net):
        for made in each.get("set", {}).get("elem", ()):
            value = made["elem"]["val"]
            text = value if isinstance(value, str) else f"{value['prefix']['addr']}/{value['prefix']['len']}"
            found.setdefault(each["set"]["name"], []).append((text, made["elem"]["timeout"]))
    return found


def test_hosts_are_in_the_sets_of_a_table_of_its_own(net: Namespace) -> None:
    net.run("nft", "add", "table", "inet", "filter")
    run = started(net, "act=true&expires=10m")
    assert [next(iter(each)) for each in ruleset(net)] == ["metainfo", "table"]  # nothing is made before it is needed
    run.open(SCANNER, SIX, PREFIX, "10.0.0.1")
    wait_for(lambda: len(elements(net)) == 3, lambda: f"they are blocked: {elements(net)}, {run.said}")
    sets = elements(net)
    assert {name: [host for host, _ in found] for name, found in sets.items()} == {
        "blocked4": [SCANNER],
        "blocked6": [SIX],
        "blocked6net": [PREFIX],
    }
    assert all(590 < timeout <= 600 for found in sets.values() for _, timeout in found)
    (chain,) = (each["chain"] for each in ruleset(net) if "chain" in each)
    assert (chain["table"], chain["hook"], chain["policy"]) == ("superhosts", "prerouting", "accept")
    net.run("nft", "flush", "ruleset")  # as a firewall that is loaded again
    run.open(SCANNER, SIX)
    wait_for(lambda: set(elements(net)) == {"blocked4", "blocked6"}, "they are blocked again")
    run.open()
    wait_for(lambda: not elements(net), "they are free")
    run.open(SIX)
    wait_for(lambda: elements(net), "it is blocked")
    run.end()
    assert not elements(net)


def test_the_kernel_forgets_what_nobody_withdraws(net: Namespace) -> None:
    run = started(net, "act=true&expires=3s")
    run.open(SCANNER, PREFIX)
    wait_for(lambda: len(elements(net)) == 2, "they are blocked")
    run.kill()
    wait_for(lambda: not elements(net), "they are free")


def test_a_table_that_is_there_keeps_its_rules_and_must_have_the_sets(net: Namespace) -> None:
    net.run("nft", "add", "table", "inet", "superhosts")
    run = started(net)
    run.open(SCANNER)
    run.wait("NOT ACTED: 203.0.113.9: the table inet superhosts has no set blocked4; add it with flags timeout")
    net.run("nft", "add set inet superhosts blocked4 { type ipv4_addr; flags timeout; }")
    run.open(SCANNER)
    wait_for(lambda: elements(net), "it is blocked")
    assert not [each for each in ruleset(net) if "rule" in each or "chain" in each]
    net.run("nft", "delete", "table", "inet", "superhosts")
    run.open()
    run.wait(f"WITHDRAWN: {SCANNER}")  # Without the table nothing is in force.
    run.end()


def test_killed_runs_leave_nothing_behind(net: Namespace) -> None:
    random.seed(5)
    hosts = [f"198.51.100.{number}" for number in range(1, 40)]
    for _ in range(4):
        run = started(net)
        run.open(*random.sample(hosts, 20))
        time.sleep(random.uniform(0, 0.2))
        run.open(*random.sample(hosts, 20))
        time.sleep(random.uniform(0, 0.2))
        run.kill()
    run = started(net)
    run.open(SCANNER)
    wait_for(lambda: [*map(len, elements(net).values())] == [1], "one is left")
    run.open()
    wait_for(lambda: not elements(net), "nothing is left")
    wait_for(lambda: held(run.ledger) == set(), "the ledger is empty")
    run.end()


SCAN = """
import itertools, socket, sys, time
own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
own.bind((sys.argv[1], 0))
for number in itertools.cycle(range(1, int(sys.argv[2]) + 1)):
    own.sendto(b"x", (f"198.51.100.{number}", 7))
    time.sleep(float(sys.argv[3]))
"""
HEAR = """
import socket
own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
own.bind(("0.0.0.0", 7))
while True:
    print(own.recvfrom(9)[1][0], flush=True)
"""
RULES = """
[[rule]]
name = "scan-in"
side = "outer"
threshold = 100
"""


def test_the_packets_of_a_scan_stop(net: Namespace, tmp_path: Path) -> None:
    """A scanner sends to a network; its alert blocks it in the kernel, and it is free when the alert is closed."""
    outside = Namespace(tmp_path)
    try:
        net.run("ip", "link", "set", "far0", "netns", str(outside.inside[2]))
        net.run("ip", "address", "add", "203.0.113.1/24", "dev", "near0")
        net.run("ip", "route", "add", "local", "198.51.100.0/24", "dev", "lo")
        for each in (SCANNER, OTHER):
            outside.run("ip", "address", "add", f"{each}/24", "dev", "far0")
        outside.run("ip", "link", "set", "far0", "up")
        outside.run("ip", "route", "add", "198.51.100.0/24", "via", "203.0.113.1")
        config, alerts, out = tmp_path / "superhosts.toml", tmp_path / "alerts.sqlite", tmp_path / "heard"
        config.write_text(RULES)
        given = ("--inner", "198.51.100.0/24", "--watch", "outer", "--window", "1s", "--config", str(config))
        to = ("--alerts", str(alerts), "--alert-to", f"{PLACE}?act=true&most=5")
        capture = net.start("scan", "live:near0", *given, "--grace", "0s", *to).ready()
        send = (*outside.inside, sys.executable, "-c", SCAN)
        with out.open("wb") as file:
            started = [subprocess.Popen([*net.inside, sys.executable, "-c", HEAR], stdout=file)]
        started.append(subprocess.Popen([*send, OTHER, "1", "0.05"]))  # Windows close by the packets of others.
        scanning = subprocess.Popen([*send, SCANNER, "250", "0.002"])

        def heard(host: str = SCANNER) -> int:
            return out.read_text().split().count(host)

        try:
            wait_for(lambda: elements(net).get("blocked4"), lambda: f"it is blocked: {capture.err}")
            before = heard()
            assert before
            wait_for(lambda: _dropped(net) > 100, "the kernel drops what it sends on")
            last, others, dropped = heard(), heard(OTHER), _dropped(net)
            wait_for(lambda: _dropped(net) > dropped + 100 and heard(OTHER) > others, "the scan goes on")
            assert heard() == last
            assert last < before + 100
        finally:
            scanning.kill()
            scanning.wait()
        wait_for(lambda: not elements(net), lambda: f"it is free: {capture.err}")
        wait_for(lambda: f"WITHDRAWN: {SCANNER}: its alert is closed" in capture.err, lambda: capture.err)
        started.append(subprocess.Popen([*send, SCANNER, "1", "0.05"]))
        wait_for(lambda: heard() > last, "it is heard again")
        capture.end()
        for process in started:
            process.kill()
            process.wait()
        assert held(alerts.with_suffix(".acts.sqlite")) == set()
    finally:
        outside.close()


def _dropped(net: Namespace) -> int:
    rules = (each["rule"]["expr"] for each in ruleset(net) if "rule" in each)
    return sum(part["counter"]["packets"] for rule in rules for part in rule if "counter" in part)
