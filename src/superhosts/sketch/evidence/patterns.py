"""What the pairs of a host look like, in words: a table of rules, of which the first that holds names the pattern.

A rule holds only if the sample leaves no doubt: `low` and `high` are the bounds of a share, not the share itself. If no
rule holds, the pattern is unknown, which is better than a wrong name. A pattern says what traffic looks like; it is no
proof of anybody's intent.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from superhosts.core.pairs import ICMP, ICMPV6, TCP, UDP, Host, Part, without_port
from superhosts.core.text import counted
from superhosts.sketch.evidence.sample import Evidence
from superhosts.sketch.evidence.summary import Service, Share, Summaries, Summary

LEAST_PAIRS: Final = 8  # sampled pairs from which on something is said
ENOUGH_KINDS: Final = 20  # pairs whose service is known, from which on the number of distinct services says something
MOST: Final = 0.6  # a share whose lower bound reaches this is "most"
FEW: Final = 0.25  # a share whose upper bound is not above this is "few"
FEW_PACKETS: Final = 3.0  # of a peer, in the mean: it does not go on
FEW_PROBES: Final = 5.0  # packets to a port of a peer, in the mean; nmap sends two or four where nothing answers

WEB: Final = frozenset((TCP, port) for port in (80, 443, 8000, 8080, 8443)) | {(UDP, 443), (UDP, 8443)}
MAIL: Final = frozenset((TCP, port) for port in (25, 110, 143, 465, 587, 993, 995))
DNS: Final = frozenset({(UDP, 53), (TCP, 53), (TCP, 853)})
ASKED_BY_UDP: Final = frozenset(each for each in WEB | DNS if each[0] == UDP)
# Services that answer whoever asks, with more than was asked: DNS, NTP, SNMP, SSDP, memcached, CLDAP and others.
REFLECTING: Final = DNS | {
    (UDP, port) for port in (17, 19, 69, 111, 123, 137, 161, 389, 500, 520, 1434, 1900, 3283, 3702, 5353, 11211, 27015)
}
# Services that only take what is sent to them: traps of SNMP, syslog, flow exports, statistics, logs.
COLLECTING: Final = frozenset((UDP, port) for port in (162, 514, 1514, 2055, 4739, 5514, 6343, 8125, 9995, 9996, 12201))
# Ports of TCP services. Nobody listens there on UDP, but attackers like to have answers sent to them.
OF_TCP: Final = frozenset((UDP, port) for port in (21, 22, 23, 25, 80, 110, 143, 445, 465, 587, 993, 995))
# Services whose clients often have the same port, so that one direction does not tell who asks.
SYMMETRIC: Final = frozenset((UDP, port) for port in (123, 137, 138, 500, 520, 4500, 5060, 5353))
TRACED: Final = frozenset((UDP, port) for port in range(33434, 33690))  # probes of traceroute
PING: Final = frozenset({(ICMP, None)})
PINGS: Final = PING | {(ICMPV6, None)}
LEAST_HIGH: Final = 1024  # the first port that a client may use as its own

ONE_DIRECTION: Final = "packets of one direction are seen"
NO_ANSWERS: Final = "its own packets are not seen"


class Pattern(NamedTuple):
    name: str
    holds: Callable[[Summary], bool]
    reason: str | Callable[[Summary], str]  # with words of WORDS in braces


class Verdict(NamedTuple):
    pattern: str | None  # None: too few of its pairs were sampled
    reason: str
    summary: Summary


# Questions that rules ask


def _silent(summary: Summary) -> Share:
    """Return the share of peers that do not answer. If one direction alone comes by, only attempts to connect tell.

    Resolvers and clients would seem to scan if their answers were not seen: there must be some, to requests that were.
    """
    is_certain = not _asks_usual(summary) or (summary.answered.hits > 0 and summary.one_way.high <= FEW)
    if (summary.sees_both and is_certain) or _knocks(summary):
        return Share(summary.pairs - summary.answered.hits, summary.pairs)
    return summary.failed


def _knocks(summary: Summary) -> bool:
    """Return True if the host asks for services of UDP and gives up at once: a scan, wherever the answers go.

    Servers of NTP and the like seem to ask clients that have the same port.
    """
    if summary.main is None or summary.main[0].protocol != UDP or summary.answered.high > FEW:
        return False
    if summary.packets_a_peer > FEW_PROBES * max(summary.ports_a_peer, 1) or summary.at(TRACED, host=False).high > 0.5:
        return False
    is_symmetric = summary.ports_a_peer < 2 and summary.at(SYMMETRIC, host=False).high > 0.5
    return not is_symmetric and not _asks_usual(summary)


def _asks_usual(summary: Summary) -> bool:
    """Return True if peers in many networks are asked for DNS or QUIC, as resolvers and clients do."""
    return summary.densest.low < MOST and summary.at(ASKED_BY_UDP, host=False).high > FEW


def _is_scattered(summary: Summary) -> bool:
    return summary.densest.high <= FEW


def _is_silent(summary: Summary) -> bool:
    """Return True if most peers send and get nothing back. Nobody floods by sending logs, and nobody answers them."""
    return summary.one_way.low >= 0.8 and summary.at(COLLECTING, host=True).low < 0.1


def _has_unseen_answers(summary: Summary) -> bool:
    """Return True if most peers ask for a service that answers everybody, and no answers of the host are seen."""
    asks = summary.at(REFLECTING, host=True).low >= MOST
    return asks and _is_silent(summary) and not _some_are_answered(summary)


def _some_are_answered(summary: Summary) -> bool:
    """Return True if answers of the host's main service are seen, so that it is silent towards the others."""
    return summary.main_answered.hits > 0.02 * summary.main_answered.of


def _resolves_unseen(summary: Summary) -> bool:
    """Return True if peers of such a service come again, or are of one network. Forged addresses do neither."""
    return _has_unseen_answers(summary) and (summary.packets_a_peer >= FEW_PACKETS or summary.densest.low >= MOST)


def _is_pinged(summary: Summary) -> bool:
    kinds = PINGS if summary.sees_both and summary.one_way.low >= 0.5 else PING
    return _at_host(summary) and summary.at(kinds, host=False).low >= MOST


def _few_services(summary: Summary, *, host: bool) -> bool:
    first = [share for service, share in summary.services[:3] if service.at_host == host]
    return bool(first) and Share(sum(each.hits for each in first), first[0].of).low >= MOST


def _own_port(summary: Summary) -> tuple[Service, Share] | None:
    """Return the one UDP port of the host that its peers use; None if it has several, or none.

    Of two high ports the lower one passes for the service. If the host's is 51820, peers with lower ports seem to offer
    services, but a different one each, and none above 51820.
    """
    high = [(service, share) for service, share in summary.services if service.protocol == UDP]
    own = [(service, share) for service, share in high if service.at_host]
    if not own or own[0][1].low < 0.05 or own[0][1].hits < 0.8 * sum(share.hits for _, share in own):
        return None
    service, share = own[0]
    below = [
        each.hits for other, each in high if not other.at_host and LEAST_HIGH <= (other.port or 0) < (service.port or 0)
    ]
    if below and max(below) > max(2, 0.1 * sum(below)):
        return None  # This is a service of the peers.
    return service, Share(share.hits + sum(below), share.of)


def _has_own_port(summary: Summary) -> bool:
    own = _own_port(summary)
    return own is not None and own[1].low >= MOST


def _at_host(summary: Summary) -> bool:
    return summary.asked.low >= MOST


def _serves(summary: Summary, ports: frozenset[tuple[int, int]]) -> bool:
    return summary.at(ports, host=True).low >= MOST and summary.answered.low >= 0.5


# Reasons: texts with words in braces, which a summary fills in


def _percent(share: Share) -> str:
    value = share.value
    return "0 %" if value is None else f"{100 * value:.0f} %"


def _silence(summary: Summary) -> str:
    return f"{_percent(_silent(summary))} do not answer"


WORDS: Final[dict[str, Callable[[Summary], str]]] = {
    "opened": lambda each: _percent(each.opened),
    "asked": lambda each: _percent(each.asked),
    "answered": lambda each: _percent(each.answered),
    "unsolicited": lambda each: _percent(each.unsolicited),
    "one way": lambda each: _percent(each.one_way),
    "failed in": lambda each: _percent(each.failed_in),
    "densest": lambda each: f"{_percent(each.densest)} of the peers in one /{min(each.nets)}",
    "main": lambda each: f"{_percent(each.main[1])} on {each.main[0].name}" if each.main else "services unknown",
    "silence": _silence,
    "packets": lambda each: f"about {counted(round(each.packets_a_peer, 1), 'packet')} a peer",
    "ports": lambda each: counted(round(each.ports_a_peer), "port"),
    "failed": lambda each: f"{_percent(each.failed)} of attempts fail" if each.failed.of else _silence(each),
    "services": lambda each: f"{counted(each.kinds.hits, 'service')} in {counted(each.kinds.of, 'pair')}",
    "own port": lambda each: f"{_percent(own[1])} of the peers use {own[0].name}" if (own := _own_port(each)) else "",
    "answers": lambda each: f"{_percent(each.answered)} get an answer" if each.sees_both else ONE_DIRECTION,
    "they answer": lambda each: f"{_percent(each.answered)} answer" if each.sees_both else ONE_DIRECTION,
    "were answered": lambda each: f"{_percent(each.answered)} answered" if each.sees_both else ONE_DIRECTION,
}
PROBING: Final = "it asks, {silence}, {main}, {packets}"
ASKED: Final = "{asked} of the peers ask it, {answers}, {main}"
ASKING: Final = "it asks {opened} of its peers, {they answer}, {main}"
BOTH: Final = "it asks {opened} of its peers and {asked} ask it, {services}"


def _flooded(summary: Summary) -> str:
    if _is_pinged(summary):
        return "{asked} of the peers send requests of ICMP to it, {answers}"
    if summary.unsolicited.low >= 0.5:
        return "{unsolicited} of the peers answer what the host never asked, {main}"
    if summary.one_way.low >= 0.5:
        silence = " and get nothing back" if summary.sees_both else f", {{packets}}, {NO_ANSWERS}"
        return f"{{one way}} of the peers send to it{silence}, {{main}}"
    return "{failed in} of the peers that try to connect do not get through, {main}"


def _resolving(summary: Summary) -> str:
    if _resolves_unseen(summary):
        return f"{{asked}} of the peers ask it, {{packets}}, {NO_ANSWERS}, {{main}}"
    return ASKING if summary.opened.hits > summary.asked.hits else ASKED


def _worded(reason: str, summary: Summary) -> str:
    return re.sub(r"\{([a-z ]+)\}", lambda found: WORDS[found[1]](summary), reason)


# The table


def _scans(summary: Summary) -> bool:
    asks_the_same = _few_services(summary, host=False) or summary.kinds.hits <= summary.kinds.of / 10
    probes = summary.opened.low >= MOST and _silent(summary).low >= 0.5
    # Requests of ICMPv6 are also those of neighbours.
    pings = summary.opened.low >= MOST and summary.at(PING, host=False).low >= MOST
    return (probes and asks_the_same) or pings


def _is_flood(summary: Summary) -> bool:
    if summary.unsolicited.low >= 0.5 or _is_pinged(summary):
        return True
    if _has_unseen_answers(summary):
        return False
    if _is_silent(summary) and (_is_amplified(summary) or _is_udp_flood(summary)):
        return True
    # Who does not go on gets nothing back. Others may be answered by packets that take another way.
    failing = summary.failed_in.low >= 0.5 or (
        summary.sees_both
        and _is_silent(summary)
        and (summary.packets_a_peer <= FEW_PACKETS or _some_are_answered(summary))
    )
    return failing and _at_host(summary) and _few_services(summary, host=True)


def _is_amplified(summary: Summary) -> bool:
    """Return True if peers send answers to a silent host from the port of one service of UDP.

    A resolver of which one direction comes by gets answers of DNS, a client those of the web, and who watches devices
    those of its own network.
    """
    if summary.sees_both and summary.at(REFLECTING, host=False).low >= 0.3:
        return True
    is_brief = summary.packets_a_peer <= FEW_PACKETS
    is_answer = summary.at(REFLECTING - DNS, host=False).low >= MOST or (is_brief and _has_main(summary, MOST, False))
    return is_answer and _is_scattered(summary)


def _is_udp_flood(summary: Summary) -> bool:
    """Return True if peers send to one port of UDP of a silent host, where nobody listens, or a packet or two each."""
    if any(share.low >= 0.15 for service, share in summary.services if service.at_host and service[:2] in OF_TCP):
        return True
    if summary.packets_a_peer > FEW_PACKETS:
        return False
    # Where its own packets are not seen, a host of a peer-to-peer network looks similar: peers have lower ports, too.
    return (_has_main(summary, 0.8, True) and _is_scattered(summary)) or (summary.sees_both and _has_own_port(summary))


def _has_main(summary: Summary, least: float, at_host: bool) -> bool:
    """Return True if at least this share uses one service of UDP, which is neither DNS nor QUIC."""
    if summary.main is None:
        return False
    service, share = summary.main
    is_other = service.protocol == UDP and service[:2] not in ASKED_BY_UDP
    return is_other and service.at_host == at_host and share.low >= least


def _is_scanned(summary: Summary) -> bool:
    silent = summary.failed_in.low >= 0.3 or (summary.sees_both and summary.one_way.low >= 0.3)
    return (
        _at_host(summary)
        and silent
        and summary.kinds.hits >= summary.kinds.of / 10
        and summary.kinds.of >= ENOUGH_KINDS
    )


def _is_peer_to_peer(summary: Summary) -> bool:
    """Return True if hosts ask each other for services that have no common port.

    The host must have come first to many different ports: clients of a server have different ports, too.
    """
    known, main, reached = summary.kinds, summary.main, summary.begun_kinds
    if main is None or known.of < ENOUGH_KINDS:
        return False
    usual = summary.at(WEB | MAIL | DNS, host=False)
    comes_first = summary.answered.hits > 0 and summary.begun.low >= 0.1 and reached.hits >= max(reached.of / 3, 3)
    return known.hits >= known.of / 3 and main[1].high <= 0.6 and usual.high <= 0.6 and comes_first


PATTERNS: Final = (
    Pattern(
        "vertical scan",
        lambda each: each.opened.low >= MOST and each.ports_a_peer >= 15 and (each.failed.low >= 0.3 or _knocks(each)),
        "it asks for about {ports} of a peer, {failed}",
    ),
    Pattern("prefix sweep", lambda each: _scans(each) and each.densest.low >= 0.6, f"{PROBING}, {{densest}}"),
    Pattern("horizontal scan", _scans, PROBING),
    Pattern(
        "server",
        lambda each: each.at(COLLECTING, host=True).low >= MOST,
        "{asked} of the peers send to it what needs no answer, {main}",
    ),
    Pattern("DDoS or flash crowd", _is_flood, _flooded),
    Pattern("scanned by many", _is_scanned, "{asked} of the peers ask it, for {services}, {answers}"),
    Pattern("mail server", lambda each: _serves(each, MAIL), ASKED),
    Pattern("web server", lambda each: _serves(each, WEB), ASKED),
    Pattern(
        "reflector or resolver",
        lambda each: (
            _serves(each, REFLECTING)
            or _resolves_unseen(each)
            or (each.at(DNS, host=False).low >= MOST and each.answered.low >= 0.5 and each.opened.low >= MOST)
        ),
        _resolving,
    ),
    Pattern(  # The host hardly ever comes first.
        "server",
        lambda each: _has_own_port(each) and each.answered.low >= 0.5 and each.begun.high <= 0.2,
        "{own port} of it, {answered} get an answer",
    ),
    Pattern("peer-to-peer", _is_peer_to_peer, BOTH),
    Pattern(
        "client, proxy or NAT",
        lambda each: (
            each.opened.low >= MOST and each.answered.low >= 0.5 and each.at(WEB | MAIL | DNS, host=False).low >= 0.4
        ),
        ASKING,
    ),
    Pattern(
        "server", lambda each: _at_host(each) and each.answered.low >= 0.5 and _few_services(each, host=True), ASKED
    ),
)
UNKNOWN: Final = "unknown"
NAMES: Final = (*dict.fromkeys(pattern.name for pattern in PATTERNS), UNKNOWN)


def judge(summary: Summary) -> Verdict:
    if summary.pairs < LEAST_PAIRS:
        return Verdict(None, f"only {counted(summary.pairs, 'pair')} of it in the sample", summary)
    for pattern in PATTERNS:
        if pattern.holds(summary):
            reason = pattern.reason if isinstance(pattern.reason, str) else pattern.reason(summary)
            return Verdict(pattern.name, _worded(reason, summary), summary)
    unseen = f"{NO_ANSWERS}: a server or a flood of requests, {{main}}"
    answered = unseen if _has_unseen_answers(summary) else "{were answered}"
    return Verdict(UNKNOWN, _worded(f"{BOTH}, {answered}", summary), summary)


class Judge:
    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._summaries: dict[int, Summaries] = evidence.summaries

    def verdict(self, host: Host, part: Part) -> Verdict:
        address = without_port(str(host))
        network = ipaddress.ip_network(address)
        if network.version not in self._summaries:
            self._summaries[network.version] = Summaries(self._evidence, network.version)
        summary = self._summaries[network.version].of(network, part)
        if address != str(host) or part.counts != "hosts":
            return Verdict(None, "evidence is about whole addresses and their peers", summary)
        return judge(summary)

    def fields(self, host: Host, part: Part) -> dict[str, Any]:
        verdict = self.verdict(host, part)
        return {"pattern": verdict.pattern, "reason": verdict.reason, "evidence": verdict.summary.fields()}
