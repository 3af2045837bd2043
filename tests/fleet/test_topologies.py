"""Servers of one's own, leaf nodes and clusters: real nats-servers, configured as docs/guides/fleet/links.md says."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import nats.errors
import pytest
from nats.aio.client import Client
from nats.js.api import DiscardPolicy, RetentionPolicy, StreamConfig

from brokers import MIB, KeepingIntake, as_client, eventually, make_spool, noise, running
from places import ROOT
from processes import free_port, wait_for
from superhosts.fleet.nats import send
from superhosts.fleet.nats.broker import find_server
from superhosts.fleet.nats.credentials import NatsOptions, Timing, public_key
from superhosts.fleet.nats.enrolment import enroll
from superhosts.fleet.nats.messages import CHUNKS, CONSUMER, STREAM
from superhosts.fleet.nats.receive import NatsReceiver
from superhosts.fleet.nats.send import NatsSender
from superhosts.fleet.spool import Spool

pytestmark = pytest.mark.slow

GUIDE = (ROOT / "docs" / "guides" / "fleet" / "links.md").read_text()
TIMING = Timing(first_pause=0.1, last_pause=0.5, look=0.2)
SIZE = 3_000_000  # bytes of a sketch: several pieces
LOST = 5.0  # seconds until what died with a server counts as lost; by default the hub waits 60, the edge 30


def block(start: str) -> str:
    """Return a piece of configuration of the guide, from its first words to the next empty line."""
    begin = GUIDE.index(f"    {start}")
    return GUIDE[begin : GUIDE.index("\n\n", begin)]


class Server:
    """One nats-server that can be killed and restarted."""

    def __init__(self, folder: Path, name: str, config: str, **environment: str) -> None:
        self._environment = {**os.environ, **environment}
        self.config = folder / f"{name}.conf"
        self.config.write_text(f'log_file: "{folder / name}.log"\n{config}\n')
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen([find_server(), "-c", str(self.config)], env=self._environment)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


class Servers:
    """The servers of a test, and the keys of its hub and its site."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.all: dict[str, Server] = {}
        self.seeds = {name: enroll(folder / "keys", name) for name in ("hub", "ams")}

    def accounts(self, name: str) -> str:
        """Return JetStream and accounts of a server."""
        text = block('jetstream { store_dir: "/var/lib/nats"').replace("/var/lib/nats", str(self.folder / name))
        for owner, seed in self.seeds.items():
            text = text.replace(f"{owner.upper()}_PUBLIC_KEY", public_key(seed))
        return text

    def add(self, name: str, config: str, **environment: str) -> None:
        self.all[name] = Server(self.folder, name, config, **environment)

    def link(self, owner: str, *ports: int) -> NatsOptions:
        """Return how hub or site connect with their keys."""
        return NatsOptions(urls(*ports), nkey=self.seeds[owner], timing=TIMING)


def urls(*ports: int) -> str:
    return ",".join(f"nats://127.0.0.1:{port}" for port in ports)


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    made = Servers(tmp_path)
    yield made
    for server in made.all.values():
        server.kill()


def receiver_at(options: NatsOptions, said: list[str]) -> NatsReceiver:
    return NatsReceiver(options, said.append, cap=256 * MIB, ack_wait=LOST)


def fill(spool: Spool, first: int, count: int) -> set[str]:
    return {noise(spool.folder, "ams", number, SIZE).name for number in range(first, first + count)}


def test_a_server_of_ones_own_as_the_guide_describes_it(tmp_path: Path, servers: Servers, intake: KeepingIntake):
    port, said = free_port(), list[str]()
    servers.add("own", f'listen: "127.0.0.1:{port}"\n{servers.accounts("own")}')
    spool = make_spool(tmp_path / "spool", "ams")
    sent = fill(spool, 0, 2)
    receiver = receiver_at(servers.link("hub", port), said)
    sender = NatsSender(servers.link("ams", port), "ams", print, ask_every=0.5)
    with running(receiver.run, intake), running(sender.run, spool):
        eventually(lambda: not spool.waiting())
    assert intake.names() == sent
    receiver.check_no_other_hub()
    assert not any("requires no credentials" in line for line in said)
    assert "Violation" not in (tmp_path / "own.log").read_text()


def test_an_edge_at_a_leaf_delivers_and_waits_while_the_leaf_is_cut_off(tmp_path, servers, intake):
    port, leaves, near = free_port(), free_port(), free_port()
    top = f'listen: "127.0.0.1:{port}"\n' + block("leafnodes { listen:").replace("0.0.0.0:7422", f"127.0.0.1:{leaves}")
    servers.add("top", top + "\n" + servers.accounts("top"))
    leaf = block('listen: "127.0.0.1:4222"').replace("127.0.0.1:4222", f"127.0.0.1:{near}")
    leaf = leaf.replace("nats.example:7422", f"127.0.0.1:{leaves}")
    servers.add("leaf", leaf, AMS_SEED=servers.seeds["ams"].read_text().strip())
    spool = make_spool(tmp_path / "spool", "ams")
    sent, said, heard = fill(spool, 0, 2), [], []
    receiver = receiver_at(servers.link("hub", port), said)
    sender = NatsSender(NatsOptions(urls(near), timing=TIMING), "ams", heard.append)  # the leaf has the key
    with running(receiver.run, intake), running(sender.run, spool):
        eventually(lambda: not spool.waiting())
        servers.all["top"].kill()
        eventually(lambda: receiver.counters.down)
        sent |= fill(spool, 2, 2)
        eventually(lambda: sender.counters.down)
        servers.all["top"].start()
        eventually(lambda: not spool.waiting())
    assert intake.names() == sent
    assert "Violation" not in (tmp_path / "top.log").read_text()


def test_a_cluster_of_three_loses_one_server_and_no_sketch(tmp_path, servers, intake, monkeypatch):
    monkeypatch.setattr(send, "CONFIRMED", LOST)
    names = ("n1", "n2", "n3")
    ports, routes = ({name: free_port() for name in names} for _ in range(2))
    for name in names:
        text = block("server_name: n1").replace("server_name: n1", f"server_name: {name}")
        text = text.replace("0.0.0.0:4222", f"127.0.0.1:{ports[name]}")
        text = text.replace("0.0.0.0:6222", f"127.0.0.1:{routes[name]}")
        text = re.sub(r"(n[123])\.example:6222", lambda found: f"127.0.0.1:{routes[found[1]]}", text)
        servers.add(name, f"{text}\n{servers.accounts(name)}")
    as_client_of_cluster(servers.link("hub", ports["n1"]), make_queue)
    spool = make_spool(tmp_path / "spool", "ams")
    sent, said = fill(spool, 0, 1), []
    receiver = receiver_at(servers.link("hub", *ports.values()), said)
    sender = NatsSender(servers.link("ams", *ports.values()), "ams", said.append, ask_every=1.0)
    with running(receiver.run, intake), running(sender.run, spool):
        eventually(lambda: not spool.waiting())
        leader = str(as_client_of_cluster(servers.link("hub", ports["n1"]), find_leader))
        intake.gate.clear()  # the next sketches stay in the queue until their server is dead
        sent |= fill(spool, 1, 6)
        eventually(lambda: receiver.counters.chunks > 20)
        servers.all[leader].kill()
        intake.gate.set()
        sent |= fill(spool, 7, 2)
        eventually(lambda: not spool.waiting())
    assert intake.names() == sent


def as_client_of_cluster(options: NatsOptions, work: Callable[[Client, list[str]], Awaitable[object]]) -> object:
    """Run `work` over a connection as the hub; a cluster that elects a leader refuses for a while."""

    def attempt() -> object:
        try:
            return as_client(options, work, "_HUBBOX")
        except (nats.errors.Error, OSError):
            return None

    return wait_for(attempt, "the cluster answers")


async def make_queue(client: Client, errors: list[str]) -> bool:
    """Make the queue with three replicas, before the hub: to add two to one takes the servers half a minute."""
    config = StreamConfig(
        name=STREAM, subjects=[CHUNKS], retention=RetentionPolicy.WORK_QUEUE, discard=DiscardPolicy.NEW, num_replicas=3
    )
    await client.jetstream(timeout=30).add_stream(config)
    return True


async def find_leader(client: Client, errors: list[str]) -> str:
    """Return the name of the server that leads the queue, when all three have it."""
    stream: Any = client.jetstream(timeout=30)
    while True:
        queue, reader = await stream.stream_info(STREAM), await stream.consumer_info(STREAM, CONSUMER)
        if all(followers(each.cluster) == 2 for each in (queue, reader)):
            return str(queue.cluster.leader)
        await asyncio.sleep(0.2)


def followers(cluster: Any) -> int:
    """How many servers have all that the leader has; servers that elect a leader tell of no cluster."""
    return sum(each.current for each in cluster.replicas or []) if cluster is not None else 0
