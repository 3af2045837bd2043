"""Packets of hosts whose behaviour is known: scans, floods, servers, clients."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from naive_evidence import Packet
from superhosts.core import pairs as said

HOST = 10 << 24 | 1
SYN, ACK, RST = said.SYN, said.ACK, said.RST
TCP, UDP, ICMP, ICMPV6 = 6, 17, 1, 58


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
        return self.draw.randrange(32768, 61000)

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


def horizontal_scan(scene: Scene, peers: int) -> None:
    for number, peer in enumerate(scene.peers(peers)):
        mine = scene.any_port()
        scene.send(peer, TCP, (mine, 22), SYN)
        if number % 10 == 0:
            scene.get(peer, TCP, (22, mine), RST | ACK)
        if number % 25 == 0:
            scene.connect(peer, 22, 1)


def udp_scan(scene: Scene, peers: int) -> None:
    for number, peer in enumerate(scene.peers(peers)):
        scene.send(peer, UDP, (scene.any_port(), 5060))
        if number % 20 == 0:
            scene.get(peer, UDP, (5060, 40000))
        if number % 7 == 0:
            scene.get(peer, ICMP, None, 3)


def sweep(scene: Scene, peers: int) -> None:
    for number, peer in enumerate(scene.peers(peers, net=0xC0A8)):
        scene.send(peer, ICMP, None, 8)
        if number % 8 == 0:
            scene.get(peer, ICMP, None, 0)


def vertical_scan(scene: Scene, peers: int) -> None:
    for peer in scene.peers(peers):
        for port in scene.draw.sample(range(1, 10_000), 60):
            mine = scene.any_port()
            scene.send(peer, TCP, (mine, port), SYN)
            scene.get(peer, TCP, (port, mine), RST | ACK)


def syn_flood(scene: Scene, peers: int) -> None:
    for peer in scene.peers(peers):
        theirs = scene.any_port()
        scene.get(peer, TCP, (theirs, 443), SYN)
        scene.send(peer, TCP, (443, theirs), SYN | ACK)


def refused_flood(scene: Scene, peers: int) -> None:
    for peer in scene.peers(peers):
        scene.get(peer, TCP, (scene.any_port(), 80), SYN)


def reflection(scene: Scene, peers: int) -> None:
    for peer in scene.peers(peers):
        scene.get(peer, UDP, (123, 4444))
        scene.get(peer, UDP, (123, 4444))


def dns_reflection(scene: Scene, peers: int) -> None:
    for peer in scene.peers(peers):
        scene.get(peer, UDP, (53, scene.any_port()))
        scene.get(peer, UDP, None)  # the rest of a long answer, in a fragment


def game_reflection(scene: Scene, peers: int) -> None:
    """Game servers answer at ports of the victim that are often lower than theirs."""
    for peer in scene.peers(peers):
        scene.get(peer, UDP, (27015, scene.draw.randrange(1024, 65536)))


def ping_flood(scene: Scene, peers: int) -> None:
    for peer in scene.peers(peers):
        for _ in range(3):
            scene.get(peer, ICMP, None, 8)


def answered_ping_flood(scene: Scene, peers: int) -> None:
    for peer in scene.peers(peers):
        scene.get(peer, ICMP, None, 8)
        scene.send(peer, ICMP, None, 0)


def smurf(scene: Scene, peers: int) -> None:
    for peer in scene.peers(peers):
        scene.get(peer, ICMP, None, 0)


def high_udp_flood(scene: Scene, peers: int) -> None:
    for peer in scene.peers(peers):
        scene.get(peer, UDP, (scene.draw.randrange(1024, 65536), 30120))


def answered_sweep(scene: Scene, peers: int) -> None:
    for number, peer in enumerate(scene.peers(peers, net=0xC0A8)):
        scene.send(peer, ICMP, None, 8)
        if number % 8:
            scene.get(peer, ICMP, None, 0)


def ping_scan(scene: Scene, peers: int) -> None:
    for number, peer in enumerate(scene.peers(peers)):
        scene.send(peer, ICMP, None, 8)
        if number % 2:
            scene.get(peer, ICMP, None, 0)


def udp_server(scene: Scene, peers: int, port: int, lowest: int) -> None:
    for number, peer in enumerate(scene.peers(peers)):
        theirs = scene.draw.randrange(lowest, 65536)
        for _ in range(10):
            scene.get(peer, UDP, (theirs, port))
            if number % 20:
                scene.send(peer, UDP, (port, theirs))


def tunnel_server(scene: Scene, peers: int) -> None:
    """WireGuard: most of its clients have lower ports."""
    udp_server(scene, peers, 51820, 1024)


def game_server(scene: Scene, peers: int) -> None:
    udp_server(scene, peers, 30120, 1024)


def quic_server(scene: Scene, peers: int) -> None:
    udp_server(scene, peers, 8443, 32768)


def log_server(scene: Scene, peers: int) -> None:
    for peer in scene.peers(peers):
        scene.get(peer, UDP, (scene.draw.randrange(1024, 65536), 5514))


def hash_table_node(scene: Scene, peers: int) -> None:
    """All of UDP, at one port of its own: it asks others, of which many have gone."""
    for number, peer in enumerate(scene.peers(peers)):
        port = scene.draw.randrange(1024, 65535)
        scene.send(peer, UDP, (51413, port))
        if number % 5 >= 2:
            scene.get(peer, UDP, (port, 51413))


def web_server(scene: Scene, peers: int) -> None:
    for number, peer in enumerate(scene.peers(peers)):
        scene.serve(peer, 443 if number % 4 else 80)


def mail_server(scene: Scene, peers: int) -> None:
    for number, peer in enumerate(scene.peers(peers)):
        if number % 5:
            scene.serve(peer, 25)
        else:
            scene.connect(peer, 25)


def open_resolver(scene: Scene, peers: int) -> None:
    for peer in scene.peers(peers):
        theirs = scene.any_port()
        scene.get(peer, UDP, (theirs, 53))
        scene.send(peer, UDP, (53, theirs))


def recursive_resolver(scene: Scene, peers: int) -> None:
    for peer in scene.peers(peers):
        mine = scene.any_port()
        scene.send(peer, UDP, (mine, 53))
        scene.get(peer, UDP, (53, mine))


def peer_to_peer(scene: Scene, peers: int) -> None:
    for number, peer in enumerate(scene.peers(peers)):
        port = scene.draw.randrange(1024, 65535)
        if number % 3 == 0:
            scene.send(peer, UDP, (51413, port))
            scene.get(peer, UDP, (port, 51413))
        elif number % 3 == 1:
            scene.send(peer, TCP, (scene.any_port(), port), SYN)
        else:
            scene.connect(peer, port)


def browsing(scene: Scene, peers: int) -> None:
    for number, peer in enumerate(scene.peers(peers)):
        scene.connect(peer, 443 if number % 6 else scene.draw.choice([80, 22, 993, 8883]))


def file_server(scene: Scene, peers: int) -> None:
    for peer in scene.peers(peers):
        scene.serve(peer, 445)


def noise(scene: Scene, peers: int) -> None:
    """Everybody knocks, at all kinds of ports."""
    for number, peer in enumerate(scene.peers(peers)):
        port = scene.draw.choice([22, 23, 445, *scene.draw.sample(range(1, 20000), 6)])
        if number % 9 == 0:
            scene.serve(peer, 22, 2)
        else:
            scene.get(peer, TCP, (scene.any_port(), port), SYN)
            scene.send(peer, TCP, (port, 40000), RST | ACK)


SCENES: dict[Callable[[Scene, int], None], str] = {
    horizontal_scan: "horizontal scan",
    udp_scan: "horizontal scan",
    sweep: "prefix sweep",
    vertical_scan: "vertical scan",
    syn_flood: "DDoS or flash crowd",
    refused_flood: "DDoS or flash crowd",
    reflection: "DDoS or flash crowd",
    dns_reflection: "DDoS or flash crowd",
    game_reflection: "DDoS or flash crowd",
    ping_flood: "DDoS or flash crowd",
    answered_ping_flood: "DDoS or flash crowd",
    smurf: "DDoS or flash crowd",
    high_udp_flood: "DDoS or flash crowd",
    answered_sweep: "prefix sweep",
    ping_scan: "horizontal scan",
    tunnel_server: "server",
    game_server: "server",
    quic_server: "web server",
    log_server: "server",
    hash_table_node: "peer-to-peer",
    web_server: "web server",
    mail_server: "mail server",
    open_resolver: "reflector or resolver",
    recursive_resolver: "reflector or resolver",
    peer_to_peer: "peer-to-peer",
    browsing: "client, proxy or NAT",
    file_server: "server",
    noise: "scanned by many",
}
