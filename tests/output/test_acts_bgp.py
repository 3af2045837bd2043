"""BGP: one ExaBGP announces what a run asks for, another one, its neighbour on loopback, hears it."""

from __future__ import annotations

import json
import os
import pwd
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from acting import ActingRun, held
from processes import free_port
from waiting import DEADLINE, wait_for

pytestmark = pytest.mark.slow

SCANNER, OTHER, SIX, PREFIX = "203.0.113.9", "198.51.100.7", "2001:db8:5::9", "2001:db8:7::/64"
HOPS = "next-hop=192.0.2.1&next-hop6=2001:db8::1"
FAMILIES = "family { ipv4 unicast; ipv6 unicast; ipv4 flow; ipv6 flow; }"
SPEAKER = """
neighbor 127.0.0.2 {
  router-id 127.0.0.1; local-address 127.0.0.1; local-as 65001; peer-as 65002; connect PORT;
  FAMILIES
}
"""
LISTENER = """
process log { run FILE; encoder json; }
neighbor 127.0.0.1 {
  router-id 127.0.0.2; local-address 127.0.0.2; local-as 65002; peer-as 65001; passive; listen PORT;
  FAMILIES
  api { processes [ log ]; receive { parsed; update; } neighbor-changes; }
}
"""

LOG = """
import os, select
while select.select([0], [], []) and (found := os.read(0, 65536)):
    file.write(found)
"""


def exabgp() -> str:
    """Return the program of the package exabgp. Skip the test without it, unless SUPERHOSTS_NEED_EXABGP requires it."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    found = shutil.which("exabgp", path=path)
    if found is None:
        assert not os.environ.get("SUPERHOSTS_NEED_EXABGP"), "exabgp is not installed"
        pytest.skip("exabgp is not installed")
    return found


class Speakers:
    """Two ExaBGP processes: one announces what comes by `run/exabgp.in`, and the other one writes what it hears."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.pipe, self.heard = folder, folder / "run" / "exabgp.in", folder / "heard"
        (folder / "run").mkdir()
        for name in ("exabgp.in", "exabgp.out"):
            os.mkfifo(folder / "run" / name)
        log = folder / "log"
        log.write_text(f"#!{sys.executable}\nfile = open({str(self.heard)!r}, 'ab', 0)\n{LOG}")
        log.chmod(0o755)
        self._port = str(free_port())
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.start("listener", LISTENER, exabgp_tcp_bind="127.0.0.2", exabgp_api_cli="false")

    def start(self, name: str = "speaker", text: str = SPEAKER, **options: str) -> None:
        words = {"PORT": self._port, "FAMILIES": FAMILIES, "FILE": str(self.folder / "log")}
        for word, value in words.items():
            text = text.replace(word, value)
        file = self.folder / f"{name}.conf"
        file.write_text(text)
        # It looks for its pipes in /run: this is the way from there.
        own = {"exabgp_tcp_port": self._port, "exabgp_api_pipename": f"..{self.folder}/run/exabgp"}
        own |= {"exabgp_daemon_user": pwd.getpwuid(os.geteuid()).pw_name, **options}
        with (self.folder / f"{name}.log").open("ab") as out:
            command = [exabgp(), "server", str(file)]
            self._processes[name] = subprocess.Popen(
                command, env={**os.environ, **own}, stdout=out, stderr=out, stdin=subprocess.DEVNULL
            )

    def connected(self) -> None:
        wait_for(lambda: self.heard.exists() and self._states().count("up") > self._states().count("down"), self.log)

    def _states(self) -> list[str]:
        return [each["neighbor"].get("state", "") for each in self._lines()]

    def _lines(self) -> list[dict[str, Any]]:
        whole = self.heard.read_text().rpartition("\n")[0] if self.heard.exists() else ""
        return [json.loads(line) for line in whole.splitlines()]

    def log(self) -> str:
        return "\n".join(path.read_text()[-3000:] for path in self.folder.glob("*.log"))

    def routes(self) -> dict[str, Any]:
        """Return the prefixes, or the sources of rules, that the listener has, with what it heard of them."""
        found: dict[str, Any] = {}
        for line in self._lines():
            if line["neighbor"].get("state") == "down":
                found.clear()
            update = line["neighbor"].get("message", {}).get("update", {})
            for routes in update.get("withdraw", {}).values():
                for each in routes:
                    found.pop(_prefix(each), None)
            for hops in update.get("announce", {}).values():
                for hop, routes in hops.items():
                    found |= {_prefix(each): (hop, update["attribute"]) for each in routes}
        return found

    def wait(self, *prefixes: str) -> dict[str, Any]:
        wait_for(lambda: set(self.routes()) == set(prefixes), lambda: f"{prefixes}: {self.routes()} {self.log()}")
        return self.routes()

    def kill(self, name: str = "speaker") -> None:
        process = self._processes.pop(name)
        process.kill()
        process.wait(DEADLINE)

    def close(self) -> None:
        for process in self._processes.values():
            process.terminate()
        for name in list(self._processes):
            try:
                self._processes[name].wait(10)
            except subprocess.TimeoutExpired:
                self.kill(name)


def _prefix(route: dict[str, Any]) -> str:
    """Return the prefix of a route, or the source of a rule, which IPv6 has with an offset: 2001:db8::1/128/0."""
    text = route.get("nlri") or route.get("source-ipv4", route.get("source-ipv6"))[0]
    return "/".join(text.split("/")[:2])


@pytest.fixture
def speakers(tmp_path: Path) -> Iterator[Speakers]:
    exabgp()
    made = Speakers(tmp_path)
    try:
        yield made
    finally:
        made.close()


def started(speakers: Speakers, query: str) -> ActingRun:
    run = ActingRun(speakers.folder / "alerts.acts.sqlite", f"bgp:{speakers.pipe}?act=true&{query}")
    run.wait("ready")
    return run


def test_blackholes_are_announced_and_withdrawn(speakers: Speakers) -> None:
    speakers.start()
    speakers.connected()
    run = started(speakers, f"{HOPS}&community=65535:666,65535:65281")
    run.open(SCANNER, SIX, PREFIX)
    routes = speakers.wait(f"{SCANNER}/32", f"{SIX}/128", PREFIX)
    assert routes[f"{SCANNER}/32"][0] == "192.0.2.1"
    assert routes[PREFIX][0] == "2001:db8::1"
    assert {str(attributes["community"]) for _, attributes in routes.values()} == {"[[65535, 666], [65535, 65281]]"}
    run.open(SIX)
    speakers.wait(f"{SIX}/128")
    run.end()
    speakers.wait()


def test_rules_of_flowspec_are_announced_and_withdrawn(speakers: Speakers) -> None:
    speakers.start()
    speakers.connected()
    run = started(speakers, "kind=flowspec")
    run.open(SCANNER, SIX, PREFIX)
    routes = speakers.wait(f"{SCANNER}/32", f"{SIX}/128", PREFIX)
    communities = {each["string"] for _, attributes in routes.values() for each in attributes["extended-community"]}
    assert communities == {"rate-limit:0"}
    run.open(SIX)
    speakers.wait(f"{SIX}/128")
    run.end()
    speakers.wait()


def test_killed_runs_leave_nothing_behind(speakers: Speakers) -> None:
    speakers.start()
    speakers.connected()
    random.seed(3)
    hosts = [f"198.51.100.{number}" for number in range(1, 40)]
    for _ in range(3):
        run = started(speakers, HOPS)
        run.open(*random.sample(hosts, 20))
        time.sleep(random.uniform(0, 0.3))
        run.open(*random.sample(hosts, 20))
        time.sleep(random.uniform(0, 0.3))
        run.kill()
    assert speakers.routes()
    run = started(speakers, HOPS)
    run.open(SCANNER)
    speakers.wait(f"{SCANNER}/32")
    run.kill()
    run = ActingRun(run.ledger)  # A run that does not name it any more withdraws it, too.
    speakers.wait()
    run.end()
    assert held(run.ledger) == set()


def test_an_exabgp_that_is_down_and_one_that_has_forgotten(speakers: Speakers) -> None:
    run = started(speakers, f"{HOPS}&timeout=1s")
    run.open(SCANNER)
    run.wait(f"NOT ACTED: {SCANNER}: {speakers.pipe}: ExaBGP does not read; retrying")
    speakers.start()
    speakers.wait(f"{SCANNER}/32")
    speakers.kill()
    wait_for(lambda: not speakers.routes(), "its neighbour forgets all routes")
    speakers.start()
    speakers.connected()
    run.open(SCANNER, OTHER)
    speakers.wait(f"{SCANNER}/32", f"{OTHER}/32")
    run.end()
    speakers.wait()


def test_what_exabgp_refuses_and_addresses_without_a_next_hop(speakers: Speakers) -> None:
    speakers.start()
    speakers.connected()
    run = started(speakers, "next-hop=192.0.2.1&neighbor=127.0.0.9")
    run.open(SCANNER, SIX)
    run.wait(f"NOT ACTED: {SCANNER}: ExaBGP answers error: its log says why; retrying")
    run.wait(f"NOT ACTED against {SIX}: next-hop6 is not given")
    run.kill()
