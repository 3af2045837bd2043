"""The pattern of a host whose behaviour is known, also from a small sample, and what is not judged."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable

import pytest

from evidence.scenes import (
    ACK,
    HOST,
    ICMP,
    ICMPV6,
    SCENES,
    SYN,
    TCP,
    UDP,
    Scene,
    answered_ping_flood,
    browsing,
    dns_reflection,
    horizontal_scan,
    tunnel_server,
    udp_scan,
    web_server,
)
from evidence.test_sampling import SECRET, sampled
from naive_evidence import Packet
from superhosts.evidence.patterns import LEAST_PAIRS, PATTERNS, Verdict
from superhosts.evidence.sample import Evidence
from superhosts.evidence.summary import Service, Share, service_text
from superhosts.evidence.verdicts import Judge
from superhosts.pairs import Part

Act = Callable[[Scene, int], None]
ANY = Part()


def background(seed: int = 2) -> list[Packet]:
    """Return usual connections of other hosts, so that both directions come by."""
    packets: list[Packet] = []
    for number in range(20):
        scene = Scene(seed + number, host=10 << 24 | 1000 + number)
        browsing(scene, 10)
        packets += scene.packets
    return packets


def verdict(packets: list[Packet], size: int = 1 << 16, part: Part = ANY, host: int = HOST) -> Verdict:
    evidence = Evidence(SECRET, size, {4: sampled(packets, 4, size)})
    return Judge(evidence).verdict(ipaddress.IPv4Address(host), part)


@pytest.mark.parametrize("act", SCENES, ids=lambda act: act.__name__)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_each_behaviour_is_known(act: Act, seed: int) -> None:
    scene = Scene(seed)
    act(scene, 400)
    found = verdict(scene.packets + background())
    assert found.pattern == SCENES[act], found.reason
    assert found.summary.pairs == 400
    assert found.reason


@pytest.mark.slow
@pytest.mark.parametrize("act", SCENES, ids=lambda act: act.__name__)
def test_a_small_sample_is_never_wrong(act: Act) -> None:
    """A host of whose 2,000 pairs about 20 are in the sample is judged rightly, or not at all."""
    known = 0
    for seed in range(8):
        scene = Scene(seed)
        act(scene, 300)
        found = verdict(scene.packets + background(seed), size=30)
        assert found.pattern in (SCENES[act], "unknown", None), (found.pattern, found.reason)
        known += found.pattern == SCENES[act]
    assert known >= 2


def test_few_pairs_are_not_judged() -> None:
    scene = Scene()
    horizontal_scan(scene, LEAST_PAIRS - 1)
    found = verdict(scene.packets + background())
    assert found.pattern is None
    assert found.reason == "only 7 pairs of it in the sample"


def test_a_host_that_was_not_sampled() -> None:
    found = verdict(background(), host=1)
    assert (found.pattern, found.summary.pairs, found.summary.peers) == (None, 0, [])


def test_silence_means_nothing_if_one_direction_alone_comes_by() -> None:
    """A client is seen from afar: its own packets take another way. It is a client, and no victim of a flood."""
    packets = []
    for number in range(10):
        scene = Scene(number, host=HOST + number)
        browsing(scene, 50)
        packets += [packet for packet in scene.packets if packet.dst == scene.host]
    assert verdict(packets).pattern == "client, proxy or NAT"


def test_attempts_without_any_other_packet_fail_even_then() -> None:
    scene = Scene()
    horizontal_scan(scene, 200)
    sent = [packet for packet in scene.packets if packet.src == HOST]
    assert verdict(sent).pattern == "horizontal scan"


def test_a_capture_of_openings_alone() -> None:
    """Captures of SYN packets are usual. A server in one is not flooded because nobody seems to go on."""
    scene = Scene()
    web_server(scene, 100)
    openings = [packet for packet in scene.packets if packet.detail >> 40 & SYN]
    assert verdict(openings).pattern == "web server"
    assert verdict(scene.packets).pattern == "web server"


def test_errors_of_a_router_are_no_scan() -> None:
    scene = Scene()
    for peer in scene.peers(100):
        scene.send(peer, ICMP, None, 11)
    found = verdict(scene.packets + background())
    assert (found.pattern, found.summary.opened.hits) == ("unknown", 0)
    assert found.summary.fields()["ports"] == [{"port": "icmp", "at": None, "share": 1.0}]


@pytest.mark.parametrize(
    ("service", "words"),
    [
        (Service(TCP, 22, at_host=False), "tcp/22 at the peer 97 %"),
        (Service(UDP, 53, at_host=True), "udp/53 at the host 97 %"),
        (Service(ICMP, None, at_host=False), "icmp 97 %"),
    ],
)
def test_services_in_words(service: Service, words: str) -> None:
    assert service_text({"port": service.name, "at": service.place, "share": 0.972}) == words


def test_packets_that_were_cut_before_their_ports_have_no_service() -> None:
    scene = Scene()
    for peer in scene.peers(100):
        scene.send(peer, TCP, None)
    found = verdict(scene.packets + background())
    assert (found.pattern, found.summary.services) == ("unknown", [])


def test_packets_without_an_opening_do_not_make_silence_meaningless() -> None:
    scene, other = Scene(), Scene(9, host=HOST + 1)
    udp_scan(scene, 200)
    for peer in other.peers(800):
        other.get(peer, TCP, (40000, 80), ACK)
    packets = scene.packets + other.packets + background()
    assert verdict(packets).pattern == "horizontal scan"
    victim = verdict(packets, host=HOST + 1)
    assert (victim.pattern, victim.summary.fields()["answered"]) == ("DDoS or flash crowd", 0.0)


def test_answers_alone_prove_nothing() -> None:
    """A victim of amplified DNS, and nothing else in the window."""
    scene = Scene()
    for peer in scene.peers(200):
        scene.get(peer, UDP, (53, 4444))
    found = verdict(scene.packets)
    assert (found.pattern, found.summary.fields()["answered"]) == ("unknown", None)


def test_neighbours_of_ipv6_are_no_sweep_and_no_flood() -> None:
    """A router and its neighbours ask for each other's addresses, as anybody pings, and all are answered."""
    asking, asked = Scene(), Scene(5, host=HOST + 1)
    for peer in asking.peers(100, net=0xC0A8):
        asking.send(peer, ICMPV6, None, 135)
        asking.get(peer, ICMPV6, None, 136)
    for peer in asked.peers(100, net=0xC0A8):
        asked.get(peer, ICMPV6, None, 135)
        asked.send(peer, ICMPV6, None, 136)
    packets = asking.packets + asked.packets + background()
    assert [verdict(packets, host=each).pattern for each in (HOST, HOST + 1)] == ["unknown", "unknown"]


def test_reasons_of_floods_and_of_a_high_port() -> None:
    reasons = []
    for act in (answered_ping_flood, dns_reflection, tunnel_server):
        scene = Scene()
        act(scene, 100)
        reasons.append(verdict(scene.packets + background()).reason)
    assert reasons == [
        "100 % of the peers send requests of ICMP to it, 100 % get an answer",
        "100 % of the peers send to it and get nothing back, 100 % on udp/53",
        "100 % of the peers use udp/51820 of it, 95 % get an answer",
    ]


def test_a_common_port_of_the_peers_is_their_service() -> None:
    """A host asks servers at 5060 from one port of its own, and some strangers use that port."""
    scene = Scene()
    for number, peer in enumerate(scene.peers(200)):
        theirs = 5060 if number % 4 else 60000
        scene.send(peer, UDP, (41000, theirs))
        scene.get(peer, UDP, (theirs, 41000))
    assert verdict(scene.packets + background()).pattern == "unknown"


def test_a_server_that_answers_some_is_not_peer_to_peer() -> None:
    scene = Scene()
    for number, peer in enumerate(scene.peers(300)):
        theirs = scene.draw.randrange(1024, 65536)
        scene.get(peer, UDP, (theirs, 51820))
        if number % 3 == 0:
            scene.send(peer, UDP, (51820, theirs))
    assert verdict(scene.packets + background()).pattern == "unknown"


def test_each_pair_keeps_a_service_of_its_own() -> None:
    scene = Scene()
    for peer in scene.peers(300):
        scene.serve(peer, 80, 1)
        scene.serve(peer, 443, 1)
    shares = [share.value for _, share in verdict(scene.packets + background()).summary.services]
    assert len(shares) == 2
    assert all(0.4 < share < 0.6 for share in shares)


def test_hosts_with_ports_are_not_judged_by_their_address() -> None:
    scene = Scene()
    horizontal_scan(scene, 100)
    evidence = Evidence(SECRET, 1 << 16, {4: sampled(scene.packets, 4, 1 << 16)})
    found = Judge(evidence).verdict("10.0.0.1:443", Part())
    assert (found.pattern, found.reason) == (None, "evidence is about whole addresses and their peers")
    assert Judge(evidence).verdict("10.0.0.1", Part(counts="ports")).pattern is None


def test_the_direction_of_a_part_chooses_the_pairs() -> None:
    scene = Scene()
    web_server(scene, 100)
    for peer in scene.peers(50, net=0x0808):
        scene.send(peer, TCP, (80, 40000), ACK)
    packets = scene.packets + background()
    assert verdict(packets).summary.pairs == 150
    assert verdict(packets, part=Part(direction="out")).summary.pairs == 150
    assert verdict(packets, part=Part(direction="in")).summary.pairs == 100


@pytest.mark.parametrize("contact", ["opened", "answered", "unanswered"])
def test_contacts_choose_the_pairs_that_their_end_opened(contact: str) -> None:
    """A host that scans and serves is a scanner by those that it opened to, and a server by those that opened to it."""
    scene = Scene()
    horizontal_scan(scene, 200)
    web_server(scene, 300)
    packets = scene.packets + background()
    out, into = (verdict(packets, part=Part(direction=contact + suffix)) for suffix in ("", "-in"))
    assert (out.pattern, out.summary.pairs, out.summary.opened.value) == ("horizontal scan", 200, 1.0)
    assert (into.pattern, into.summary.pairs, into.summary.asked.value) == ("web server", 300, 1.0)


def test_who_sends_unasked_has_opened() -> None:
    scene, sender = Scene(), Scene(7, host=HOST + 1)
    dns_reflection(scene, 100)
    for peer in sender.peers(100):
        sender.send(peer, UDP, (53, sender.any_port()))
    packets = scene.packets + sender.packets + background()
    found = verdict(packets, part=Part(direction="opened-in"))
    assert (found.pattern, found.summary.pairs) == ("DDoS or flash crowd", 100)
    assert verdict(packets, part=Part(direction="opened"), host=HOST + 1).summary.pairs == 100


def test_the_summary_is_right() -> None:
    scene = Scene()
    horizontal_scan(scene, 100)
    summary = verdict(scene.packets + background()).summary
    fields = summary.fields()
    assert fields["pairs"] == fields["attempts"] == 100
    assert (fields["complete"], fields["failed"], fields["answered"], fields["opened"]) == (True, 0.96, 0.04, 1.0)
    assert fields["ports"] == [{"port": "tcp/22", "at": "peer", "share": 1.0}]
    assert fields["ports_per_peer"] == 1.0
    assert len(fields["peers"]) == 10
    sent_to = {str(ipaddress.IPv4Address(packet.dst)) for packet in scene.packets if packet.src == HOST}
    assert set(fields["peers"]) <= sent_to
    assert fields["nets"]["/24"] == len({packet.dst >> 8 for packet in scene.packets if packet.src == HOST})
    assert fields["nets"]["/16"] == len({packet.dst >> 16 for packet in scene.packets if packet.src == HOST})


def test_a_prefix_is_a_host() -> None:
    packets = background()
    for last in range(4):
        scene = Scene(last, host=HOST - 1 + last)
        horizontal_scan(scene, 30)
        packets += scene.packets
    evidence = Evidence(SECRET, 1 << 16, {4: sampled(packets, 4, 1 << 16)})
    found = Judge(evidence).verdict(ipaddress.IPv4Network("10.0.0.0/29"), Part())
    assert (found.pattern, found.summary.pairs) == ("horizontal scan", 120)


def test_bounds_of_shares() -> None:
    assert (Share(0, 0).value, Share(0, 0).low, Share(0, 0).high) == (None, 0.0, 1.0)
    assert Share(10, 10).low == pytest.approx(0.722, abs=0.001)
    assert Share(5, 10).low == pytest.approx(0.237, abs=0.001)
    assert Share(5, 10).high == pytest.approx(0.763, abs=0.001)


def test_every_pattern_of_the_table_is_tested() -> None:
    assert {pattern.name for pattern in PATTERNS} == set(SCENES.values())
