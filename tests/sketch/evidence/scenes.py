"""Packets of hosts whose behaviour is known: scans, floods, servers, clients."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial, wraps

from naive_evidence import Packet
from superhosts.core import pairs as said

HOST = 10 << 24 | 1
SYN, ACK, RST = said.SYN, said.ACK, said.RST
TCP, UDP, ICMP, ICMPV6 = 6, 17, 1, 58
OWN, HIGH = range(32768, 61000), range(1024, 65536)  # ports that clients take, and any above the known ones
PRIVATE_NET = 0xC0A8
SCAN, FLOOD, DNS = "horizontal scan", "DDoS or flash crowd", "reflector or resolver"


class Scene:
    """Writes packets between one host and its peers, a millisecond apart."""

    def __init__(self, seed: int = 1, host: int = HOST) -> None:
        self.draw = random.Random(seed)
        self.host = host
        self.packets: list[Packet] = []

    def send(self, peer: int, protocol: int, ports: tuple[int, int] | None, flags: int | None = None) -> None:
        """Send a packet from the host."""
        self._add(self.host, peer, said.pack(protocol, ports, flags))

    def get(self, peer: int, protocol: int, ports: tuple[int, int] | None, flags: int | None = None) -> None:
        """Receive a packet from a peer."""
        self._add(peer, self.host, said.pack(protocol, ports, flags))

    def _add(self, src: int, dst: int, detail: int) -> None:
        self.packets.append(Packet(src, dst, 1_000_000 * len(self.packets), detail))

    def peers(self, count: int, net: int | None = None) -> Iterator[int]:
        """Yield distinct peers: anywhere, or in one /16."""
        for number in self.draw.sample(range(1 << 16), count):
            yield (
                (self.draw.randrange(20, 220) << 24 | number << 8 | self.draw.randrange(256))
                if net is None
                else (net << 16 | number)
            )

    def any_port(self) -> int:
        return self.draw.choice(OWN)

    def connect(self, peer: int, port: int, packets: int = 6) -> None:
        """Open a connection to a peer, and exchange some packets."""
        mine = self.any_port()
        self.send(peer, TCP, (mine, port), SYN)
        self.get(peer, TCP, (port, mine), SYN | ACK)
        for _ in range(packets):
            self.send(peer, TCP, (mine, port), ACK)
            self.get(peer, TCP, (port, mine), ACK)

    def serve(self, peer: int, port: int, packets: int = 6) -> None:
        """Be asked by a peer."""
        theirs = self.any_port()
        self.get(peer, TCP, (theirs, port), SYN)
        self.send(peer, TCP, (port, theirs), SYN | ACK)
        for _ in range(packets):
            self.get(peer, TCP, (theirs, port), ACK)
            self.send(peer, TCP, (port, theirs), ACK)


Act = Callable[[Scene, int], None]
Happens = Callable[[Scene, int, int], None]
SCENES: dict[Act, str] = {}  # what a host does with so many peers, and the pattern of that


def looks_like(pattern: str, net: int | None = None) -> Callable[[Happens], Act]:
    """Make a scene of what happens between the host and one peer, which has a number."""

    def register(happens: Happens) -> Act:
        @wraps(happens)
        def act(scene: Scene, peers: int) -> None:
            for number, peer in enumerate(scene.peers(peers, net)):
                happens(scene, peer, number)

        SCENES[act] = pattern
        return act

    return register


@looks_like(SCAN)
def horizontal_scan(scene: Scene, peer: int, number: int) -> None:
    mine = scene.any_port()
    scene.send(peer, TCP, (mine, 22), SYN)
    if number % 10 == 0:
        scene.get(peer, TCP, (22, mine), RST | ACK)
    if number % 25 == 0:
        scene.connect(peer, 22, 1)


@looks_like(SCAN)
def udp_scan(scene: Scene, peer: int, number: int) -> None:
    scene.send(peer, UDP, (scene.any_port(), 5060))
    if number % 20 == 0:
        scene.get(peer, UDP, (5060, 40000))
    if number % 7 == 0:
        scene.get(peer, ICMP, None, 3)


@looks_like("prefix sweep", PRIVATE_NET)
def sweep(scene: Scene, peer: int, number: int) -> None:
    scene.send(peer, ICMP, None, 8)
    if number % 8 == 0:
        scene.get(peer, ICMP, None, 0)


@looks_like("prefix sweep", PRIVATE_NET)
def answered_sweep(scene: Scene, peer: int, number: int) -> None:
    scene.send(peer, ICMP, None, 8)
    if number % 8:
        scene.get(peer, ICMP, None, 0)


@looks_like(SCAN)
def ping_scan(scene: Scene, peer: int, number: int) -> None:
    scene.send(peer, ICMP, None, 8)
    if number % 2:
        scene.get(peer, ICMP, None, 0)


@looks_like("vertical scan")
def vertical_scan(scene: Scene, peer: int, number: int) -> None:
    for port in scene.draw.sample(range(1, 10_000), 60):
        mine = scene.any_port()
        scene.send(peer, TCP, (mine, port), SYN)
        scene.get(peer, TCP, (port, mine), RST | ACK)


@looks_like("peer-to-peer")
def hash_table_node(scene: Scene, peer: int, number: int) -> None:
    """All of UDP, at one port of its own: it asks others, of which many have gone."""
    port = scene.draw.choice(HIGH)
    scene.send(peer, UDP, (51413, port))
    if number % 5 >= 2:
        scene.get(peer, UDP, (port, 51413))


@looks_like("peer-to-peer")
def peer_to_peer(scene: Scene, peer: int, number: int) -> None:
    port = scene.draw.choice(HIGH)
    if number % 3 == 0:
        scene.send(peer, UDP, (51413, port))
        scene.get(peer, UDP, (port, 51413))
    elif number % 3 == 1:
        scene.send(peer, TCP, (scene.any_port(), port), SYN)
    else:
        scene.connect(peer, port)


@looks_like("web server")
def web_server(scene: Scene, peer: int, number: int) -> None:
    scene.serve(peer, 443 if number % 4 else 80)


@looks_like("mail server")
def mail_server(scene: Scene, peer: int, number: int) -> None:
    (scene.serve if number % 5 else scene.connect)(peer, 25)


@looks_like("client, proxy or NAT")
def browsing(scene: Scene, peer: int, number: int) -> None:
    scene.connect(peer, 443 if number % 6 else scene.draw.choice([80, 22, 993, 8883]))


@looks_like("server")
def file_server(scene: Scene, peer: int, number: int) -> None:
    scene.serve(peer, 445)


@looks_like("scanned by many")
def noise(scene: Scene, peer: int, number: int) -> None:
    """Everybody knocks, at all kinds of ports."""
    port = scene.draw.choice([22, 23, 445, *scene.draw.sample(range(1, 20000), 6)])
    if number % 9 == 0:
        scene.serve(peer, 22, 2)
    else:
        scene.get(peer, TCP, (scene.any_port(), port), SYN)
        scene.send(peer, TCP, (port, 40000), RST | ACK)


# Behaviours in which the same packets go between the host and each peer. A port that is a range is drawn for the peer.
Ports = tuple[int | range, int | range] | None
EXCHANGES: dict[str, tuple[str, list[tuple[str, int, Ports, int | None]]]] = {
    "syn_flood": (FLOOD, [("get", TCP, (OWN, 443), SYN), ("send", TCP, (443, OWN), SYN | ACK)]),
    "refused_flood": (FLOOD, [("get", TCP, (OWN, 80), SYN)]),
    "reflection": (FLOOD, 2 * [("get", UDP, (123, 4444), None)]),
    # The second packet is the rest of a long answer, in a fragment.
    "dns_reflection": (FLOOD, [("get", UDP, (53, OWN), None), ("get", UDP, None, None)]),
    # Game servers answer at ports of the victim that are often lower than theirs.
    "game_reflection": (FLOOD, [("get", UDP, (27015, HIGH), None)]),
    "ping_flood": (FLOOD, 3 * [("get", ICMP, None, 8)]),
    "answered_ping_flood": (FLOOD, [("get", ICMP, None, 8), ("send", ICMP, None, 0)]),
    "smurf": (FLOOD, [("get", ICMP, None, 0)]),
    "high_udp_flood": (FLOOD, [("get", UDP, (HIGH, 30120), None)]),
    "log_server": ("server", [("get", UDP, (HIGH, 5514), None)]),
    "open_resolver": (DNS, [("get", UDP, (OWN, 53), None), ("send", UDP, (53, OWN), None)]),
    "recursive_resolver": (DNS, [("send", UDP, (OWN, 53), None), ("get", UDP, (53, OWN), None)]),
}
# Servers of UDP that answer most of their clients: their port, and those of clients. Most clients of WireGuard, and of
# games, have lower ports.
UDP_SERVERS = {
    "tunnel_server": ("server", 51820, HIGH),
    "game_server": ("server", 30120, HIGH),
    "quic_server": ("web server", 8443, OWN),
}


def exchange(name: str, scene: Scene, peer: int, number: int) -> None:
    drawn = {ports: scene.draw.choice(ports) for ports in (OWN, HIGH)}
    for way, protocol, ports, flags in EXCHANGES[name][1]:
        chosen = ports and tuple(drawn[port] if isinstance(port, range) else port for port in ports)
        getattr(scene, way)(peer, protocol, chosen, flags)


def answer(name: str, scene: Scene, peer: int, number: int) -> None:
    _, port, clients = UDP_SERVERS[name]
    theirs = scene.draw.choice(clients)
    for _ in range(10):
        scene.get(peer, UDP, (theirs, port))
        if number % 20:
            scene.send(peer, UDP, (port, theirs))


for table, happens in ((EXCHANGES, exchange), (UDP_SERVERS, answer)):
    for name, (pattern, *_) in table.items():
        play = partial(happens, name)
        play.__name__ = name
        looks_like(pattern)(play)
ACTS = {act.__name__: act for act in SCENES}
