"""The sampled pairs of one host in a few numbers: what its peers and its packets look like."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import Any, NamedTuple, TypedDict

import numpy as np
from numpy.typing import NDArray

from superhosts.core.lens import protocol_name
from superhosts.core.pairs import MASK64, SYN, TCP, UDP, Network, Part
from superhosts.sketch.evidence.observations import (
    ACCEPTS,
    ATTEMPT,
    CLASS_AT,
    CONNECTED,
    ERROR,
    FLAGS_AT,
    HIGH_END,
    KNOWN,
    NO_SERVICE,
    PORT_AT,
    PORTLESS,
    PROTOCOL_AT,
    REFUSES,
    REPLY,
    REQUEST,
    SENT_OTHER,
    SENT_UDP,
    distinct,
    unique,
)
from superhosts.sketch.evidence.sample import (
    DEEDS,
    HIGHER_PORTS,
    LOWER_PORTS,
    PACKETS,
    SERVICE,
    Evidence,
    Rows,
    ends_of,
)

SAMPLE_PEERS = 10
MAIN_PORTS = 5
MAIN_NETS = 5
CELLS = 256  # of a map: the next eight bits
MOST_IN_CELL = 35  # that a character tells
MAPPED = 0.9  # share of the peers that the prefix of a map has to hold
DIGITS = np.frombuffer(b"0123456789abcdefghijklmnopqrstuvwxyz", np.uint8)
CONFIDENCE = 1.96  # of a share's bounds
LEAST_TWO_WAY = 0.5  # if fewer connections (or pairs) show both directions, the other one takes another way
NETS = {4: (16, 24), 6: (32, 48)}  # prefixes over which peers are spread
PLACES = {"host": " at the host", "peer": " at the peer"}

Bools = NDArray[np.bool_]
Words = NDArray[np.uint64]


class Share(NamedTuple):
    """How many of some sampled pairs have a property. With few of them the bounds (Wilson's) are far apart."""

    hits: int
    of: int

    @property
    def value(self) -> float | None:
        return self.hits / self.of if self.of else None

    @property
    def low(self) -> float:
        """The share is not lower than this, with 97.5 % confidence; 0 if nothing is known."""
        return self._bound(-1) if self.of else 0.0

    @property
    def high(self) -> float:
        """The share is not higher than this; 1 if nothing is known."""
        return self._bound(1) if self.of else 1.0

    def _bound(self, sign: int) -> float:
        share, z2 = self.hits / self.of, CONFIDENCE**2 / self.of
        width = CONFIDENCE * sqrt(share * (1 - share) / self.of + z2 / (4 * self.of))
        return min(max((share + z2 / 2 + sign * width) / (1 + z2), 0.0), 1.0)


class Service(NamedTuple):
    """A protocol and a port, or for ICMP and others the protocol alone, at the host or at its peers."""

    protocol: int
    port: int | None
    at_host: bool

    @property
    def place(self) -> str | None:
        """Whose it is, host or peer; None for protocols without ports, which are nobody's service."""
        return None if self.port is None else "host" if self.at_host else "peer"

    @property
    def name(self) -> str:
        return protocol_name(self.protocol) + (f"/{self.port}" if self.port is not None else "")


class PortFields(TypedDict):
    """A service in a row; `at` is the end of the pair that has the port."""

    port: str
    at: str | None
    share: float


class NetFields(TypedDict):
    """A prefix of the sampled peers in a row, with the share of them that is in it."""

    network: str
    share: float


class MapFields(TypedDict):
    """Where the sampled peers lie within a prefix: a character for each of its 256 parts.

    It is the number of peers there in base 36, z for more than 34.
    """

    within: str
    cells: str


class EvidenceFields(TypedDict, total=False):
    """The field `evidence` of a row. Shares are null if the traffic does not tell them."""

    pairs: int
    complete: bool
    answered: float | None
    attempts: int
    failed: float | None
    opened: float | None
    ports: list[PortFields]
    ports_per_peer: float
    packets_per_peer: float
    nets: dict[str, int]
    networks: list[NetFields]
    map: MapFields
    peers: list[str]


class View(NamedTuple):
    sees_both: bool  # those that it sends, and those that it gets
    one_way_only: bool  # those of one direction alone: what was answered is concluded from them


@dataclass(frozen=True)
class Summary:
    pairs: int  # sampled pairs of the host
    is_whole: bool  # all of its pairs are in the sample
    sees_both: bool  # packets of both directions come by, so that silence means something
    main_answered: Share  # of the pairs that use the most frequent service: both ends have sent
    opened: Share  # the host asked the peer: it opened the connection, or the service is the peer's
    asked: Share  # the peer asked the host
    begun: Share  # the host certainly came first: it tried to connect, or it alone has sent
    begun_kinds: Share  # distinct services of peers, of such pairs that have one
    answered: Share  # both ends have sent; TCP: connections that came about
    one_way: Share  # only the peer has sent
    failed: Share  # of pairs in which the host tried to connect: no connection came about
    failed_in: Share  # of pairs in which the peer tried to connect
    unsolicited: Share  # the peer answers what the host has never asked for, and then says no more
    services: list[tuple[Service, Share]]  # the most frequent first
    kinds: Share  # distinct services, of the pairs whose service is known
    ports_a_peer: float  # distinct ports of a peer that the host used, in the mean
    packets_a_peer: float
    nets: dict[int, int]  # prefix length: distinct prefixes of the sampled peers
    networks: list[tuple[Network, Share]]  # the shorter prefixes with most of the peers, the most frequent first
    map: MapFields
    peers: list[str]  # some of them, by their address

    @property
    def densest(self) -> Share:
        """The peers in the most frequent of the shorter prefixes."""
        return self.networks[0][1] if self.networks else Share(0, 0)

    @cached_property
    def main(self) -> tuple[Service, Share] | None:
        return self.services[0] if self.services else None

    def at(self, ports: frozenset[tuple[int, int | None]], *, host: bool) -> Share:
        of = self.services[0][1].of if self.services else 0
        hits = sum(
            share.hits
            for service, share in self.services
            if service.at_host == host and (service.protocol, service.port) in ports
        )
        return Share(hits, of)

    def fields(self) -> EvidenceFields:
        return {
            "pairs": self.pairs,
            "complete": self.is_whole,
            "answered": _rounded(self.answered.value) if self.sees_both else None,
            "attempts": self.failed.of,
            "failed": _rounded(self.failed.value),
            "opened": _rounded(self.opened.value),
            "ports": [
                {"port": each.name, "at": each.place, "share": round(share.hits / share.of, 3)}
                for each, share in self.services[:MAIN_PORTS]
            ],
            "ports_per_peer": round(self.ports_a_peer, 1),
            "packets_per_peer": round(self.packets_a_peer, 1),
            "nets": {f"/{length}": count for length, count in self.nets.items()},
            "networks": [{"network": str(net), "share": round(each.hits / each.of, 3)} for net, each in self.networks],
            "map": self.map,
            "peers": self.peers,
        }


class Pairs(NamedTuple):
    """The sampled pairs of one host as columns, seen from its end."""

    numbers: NDArray[np.int64]  # of the sample's rows
    at_higher: Bools  # the host is the higher end
    peers: Words
    mine: Words  # what the host has sent
    theirs: Words
    services: Words  # protocol and port
    at_host: Bools  # the service is the host's. A protocol without ports is nobody's service
    known: Bools  # the service is known. TCP and UDP without ports are of truncated packets
    ported: Bools  # it is known, and has a port
    sends: Bools
    gets: Bools
    opened: Bools  # the host asked the peer
    asked: Bools  # the peer asked the host


class Summaries:
    def __init__(self, evidence: Evidence, family: int) -> None:
        self._rows: Rows = evidence.rows.get(family, np.zeros((0, 10), np.uint64))
        self._family = family
        self._is_whole = evidence.is_whole(family)
        lower, higher = ends_of(self._rows, family, evidence.secret)
        count = len(self._rows)
        ends = np.concatenate([lower, higher])
        words = ends[:, 1] if family == 4 else ends[:, 0]
        self._order = np.argsort(words, kind="stable")
        self._words, self._ends = words[self._order], ends
        self._count = count
        # A capture of openings alone shows nobody who goes on.
        self._openings_only = not _has(self._rows[:, DEEDS], CONNECTED | CONNECTED << HIGH_END).any()
        low, high = _halves(self._rows[:, DEEDS], np.zeros(count, bool))
        self._two_way = (low != 0) & (high != 0)
        # Connections that were opened within the window: in these both ends have sent.
        self._connections = _has(low | high, CONNECTED) & _has(low | high, SYN << FLAGS_AT)

    def of(self, host: Network, part: Part) -> Summary:
        numbers, at_higher = self._numbers_of(host)
        view = self._view(numbers)
        pairs = self._pairs(numbers, at_higher, view)
        if part.way != "any" and len(numbers):  # of a direction: pairs with packets in it
            seen = (pairs.mine if part.way == "out" else pairs.theirs) != 0
            if (
                part.contact
            ):  # Answered or not, all that were opened are judged: one without the other is not a pattern.
                opened, asked = pairs.opened, pairs.asked
                seen &= ~asked | opened if part.way == "out" else ~opened | asked
            pairs = Pairs(*(column[seen] for column in pairs))
        return self._summary(pairs, view)

    def _numbers_of(self, host: Network) -> tuple[NDArray[np.int64], Bools]:
        """Return the rows of a host's pairs, and in which of them it is the higher end."""
        first, last = int(host.network_address), int(host.broadcast_address)
        shift = 0 if self._family == 4 else 64  # of IPv6 the high word is sorted
        begin = np.searchsorted(self._words, np.uint64(first >> shift), "left")
        end = np.searchsorted(self._words, np.uint64(last >> shift), "right")
        found = self._order[begin:end]
        if self._family == 6 and host.prefixlen > 64:
            low = self._ends[found, 1]
            found = found[(low >= np.uint64(first & MASK64)) & (low <= np.uint64(last & MASK64))]
        return found % max(self._count, 1), found >= self._count

    def _view(self, numbers: NDArray[np.int64]) -> View:
        """Return whether both directions come by of a host, which has these rows.

        Its own connections tell, or a peer that sends and gets. A host without any is taken to be seen as the others of
        the window are: by their connections, or by all of their pairs if none has a connection.
        """
        own = _share(self._two_way[numbers[self._connections[numbers]]])
        if own.of:
            return _view_of(own)
        if self._two_way[numbers].any():
            return View(sees_both=True, one_way_only=False)
        two_way, connections = np.delete(self._two_way, numbers), np.delete(self._connections, numbers)
        if connections.any():
            return _view_of(_share(two_way[connections]))
        return View(len(two_way) > 0 and float(two_way.mean()) >= LEAST_TWO_WAY, one_way_only=False)

    def _pairs(self, numbers: NDArray[np.int64], at_higher: Bools, view: View) -> Pairs:
        peers = self._ends[np.where(at_higher, numbers, numbers + self._count)]
        mine, theirs = _halves(self._rows[numbers, DEEDS], at_higher)
        words = self._rows[numbers, SERVICE]
        portless = (words >> np.uint64(CLASS_AT)) == PORTLESS
        services = words & np.uint64((1 << 25) - 2)
        services = np.where(portless, services | np.uint64(1), services)  # the last bit: it has no port
        at_host = ((words & np.uint64(1) == 1) == at_higher) & ~portless
        protocols = words >> np.uint64(PROTOCOL_AT) & np.uint64(0xFF)
        known = (words != np.uint64(NO_SERVICE)) & ~(portless & ((protocols == TCP) | (protocols == UDP)))
        ported = known & ~portless
        sends, gets = mine != 0, theirs != 0
        if view.one_way_only:  # In one direction alone, who sends from a service's port answers somebody.
            sends, gets = sends | (ported & ~at_host), gets | (ported & at_host)
        tried, tried_in = _has(mine, ATTEMPT), _has(theirs, ATTEMPT)
        opened = tried | _has(mine, REQUEST) | (ported & ~at_host & ~tried_in & sends)
        asked = tried_in | _has(theirs, REQUEST) | (ported & at_host & ~tried & gets)
        columns = services, at_host, known, ported, sends, gets, opened, asked
        return Pairs(numbers, at_higher, peers, mine, theirs, *columns)

    def _summary(self, pairs: Pairs, view: View) -> Summary:
        numbers, at_higher, peers, mine, theirs, services, at_host, known, ported, sends, gets, opened, asked = pairs
        tried, tried_in = _has(mine, ATTEMPT), _has(theirs, ATTEMPT)
        # Who goes on was accepted, even if that took another way. Who never goes on has not meant it, though accepted.
        joined = tried & (_has(theirs, ACCEPTS) | _has(mine, CONNECTED))
        joined |= tried_in & (_has(theirs, CONNECTED) | (self._openings_only & _has(mine, ACCEPTS)))
        joined |= tried_in & _has(mine, CONNECTED)  # it has more to say than that it accepts
        joined |= _has(mine, CONNECTED) & _has(theirs, CONNECTED)
        if view.one_way_only:  # One direction has to tell: who goes on was accepted.
            joined |= _has(mine | theirs, CONNECTED)
        tcp = _has(mine | theirs, ATTEMPT | ACCEPTS | REFUSES | CONNECTED)
        both = np.where(tcp, joined, sends & gets & ~_is_only(theirs, ERROR) & ~_is_only(mine, ERROR))
        is_told = self._rows[numbers, SERVICE] >> np.uint64(CLASS_AT) == KNOWN
        begun = tried | (is_told & ~at_host) | (view.sees_both & ported & (mine != 0) & (theirs == 0))
        reached = begun & ported & ~at_host
        # Refusals and replies may be answers to a scan whose own packets do not come by; acceptances rarely are.
        answers = ACCEPTS | REFUSES | REPLY if view.sees_both else ACCEPTS
        answers_only = _has(theirs, answers) & ~_has(theirs, CONNECTED | REQUEST) & (mine == 0)
        counts = Counter(zip(services[known].tolist(), at_host[known].tolist(), strict=True))
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        main = (services == ranked[0][0][0]) & (at_host == ranked[0][0][1]) if ranked else known
        nets, networks = self._spread(peers)
        ports = self._rows[numbers][:, [LOWER_PORTS, HIGHER_PORTS]]
        of_peer = np.where(at_higher, ports[:, 0], ports[:, 1])
        return Summary(
            pairs=len(numbers),
            is_whole=self._is_whole,
            sees_both=view.sees_both,
            main_answered=_share(both[known & main]),
            opened=_share(opened),
            asked=_share(asked),
            begun=_share(begun),
            begun_kinds=Share(len(unique(services[reached])[0]), int(reached.sum())),
            answered=_share(both),
            one_way=_share((mine == 0) & (theirs != 0)),
            failed=_share(~joined[tried]),
            failed_in=_share(~joined[tried_in]),
            unsolicited=_share(answers_only),
            services=[(_service(*key), Share(count, int(known.sum()))) for key, count in ranked],
            kinds=Share(len(counts), int(known.sum())),
            ports_a_peer=_mean(distinct(of_peer[of_peer != 0])),
            packets_a_peer=_mean(distinct(self._rows[numbers, PACKETS])),
            nets=nets,
            networks=networks,
            map=self._map(peers),
            peers=self._some(numbers, peers),
        )

    def _spread(self, peers: Words) -> tuple[dict[int, int], list[tuple[Network, Share]]]:
        """Return how many distinct prefixes the peers are in, by length, and the shorter ones with most of them."""
        words, bits = (peers[:, 1], 32) if self._family == 4 else (peers[:, 0], 64)
        make, whole = (ipaddress.IPv4Network, 32) if self._family == 4 else (ipaddress.IPv6Network, 128)
        nets: dict[int, int] = {}
        networks: list[tuple[Network, Share]] = []
        for length in NETS[self._family]:
            prefixes, _, counts = unique(words >> np.uint64(bits - length))
            nets[length] = len(counts)
            if not networks:
                first = np.argsort(-counts, kind="stable")[:MAIN_NETS]
                ranked = zip(prefixes[first].tolist(), counts[first].tolist(), strict=True)
                networks = [(make((net << whole - length, length)), Share(hits, len(peers))) for net, hits in ranked]
        return nets, networks

    def _map(self, peers: Words) -> MapFields:
        """Map the longest prefix, of whole bytes and of at most /16 or /48, that holds almost all peers."""
        words, bits = (peers[:, 1], 32) if self._family == 4 else (peers[:, 0], 64)
        make = ipaddress.IPv4Network if self._family == 4 else ipaddress.IPv6Network
        first, length, inside = 0, 0, words
        while length < bits - 16:
            nets, _, counts = unique(inside >> np.uint64(bits - length - 8))
            if len(nets) == 0 or counts.max() < MAPPED * len(words):
                break
            first, length = int(nets[counts.argmax()]), length + 8
            inside = inside[inside >> np.uint64(bits - length) == np.uint64(first)]
        parts = (inside >> np.uint64(bits - length - 8) & np.uint64(CELLS - 1)).astype(np.int64)
        cells = DIGITS[np.minimum(np.bincount(parts, minlength=CELLS), MOST_IN_CELL)]
        total = 32 if self._family == 4 else 128
        return {"within": str(make((first << (total - length), length))), "cells": cells.tobytes().decode()}

    def _some(self, numbers: NDArray[np.int64], peers: Words) -> list[str]:
        chosen = peers[np.argsort(numbers)[:SAMPLE_PEERS]].tolist()
        make = ipaddress.IPv4Address if self._family == 4 else ipaddress.IPv6Address
        return [str(make(number)) for number in sorted(high << 64 | low for high, low in chosen)]


def service_text(field: Mapping[str, Any]) -> str:
    return f"{field['port']}{PLACES.get(field['at'], '')} {100 * field['share']:.0f} %"


def _service(word: int, at_host: bool) -> Service:
    protocol, port = word >> PROTOCOL_AT & 0xFF, word >> PORT_AT & 0xFFFF
    return Service(protocol, None if word & 1 else port, at_host)


def _halves(deeds: Words, at_higher: Bools) -> tuple[Words, Words]:
    low, high = deeds & np.uint64((1 << HIGH_END) - 1), deeds >> np.uint64(HIGH_END)
    return np.where(at_higher, high, low), np.where(at_higher, low, high)


def _has(deeds: Words, bits: int) -> Bools:
    return np.asarray(deeds & np.uint64(bits) != 0)


def _is_only(deeds: Words, bit: int) -> Bools:
    """Return True where nothing but ICMP of one kind was sent."""
    others = ATTEMPT | ACCEPTS | REFUSES | CONNECTED | REQUEST | REPLY | ERROR | SENT_UDP | SENT_OTHER
    return _has(deeds, bit) & ~_has(deeds, others & ~bit)


def _view_of(two_way: Share) -> View:
    is_seen = two_way.hits >= LEAST_TWO_WAY * two_way.of
    return View(sees_both=is_seen, one_way_only=not is_seen)


def _share(flags: Bools) -> Share:
    return Share(int(flags.sum()), len(flags))


def _mean(values: NDArray[np.float64]) -> float:
    return float(values.mean()) if len(values) else 0.0


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
