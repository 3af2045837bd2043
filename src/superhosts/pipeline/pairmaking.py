"""From packets to pairs, in compiled loops: which end of a packet is a host, and what its peer is.

Nearly every run counts addresses of all packets (`make_pairs`). Where protocols, ports or contacts matter, packets are
chosen first (`choose`), and `make_port_pairs` puts ports into peers or hosts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core.lens import Allowed
from superhosts.core.pairs import (
    ANSWERED,
    ANSWERS,
    HAS_PORTS,
    HAS_PROTOCOL,
    OPENED,
    PROTOCOL_SHIFT,
    SRC_PORT_SHIFT,
    Addresses,
    Details,
)
from superhosts.core.prefixes import Flags, PrefixTable, mark_inside, mark_special
from superhosts.jit.cache import compiled

BLOCK = 1024  # packets whose flags are in a core's cache together
Ports = NDArray[np.uint16]

_ZERO = np.uint64(0)
_PORT = np.uint64(0xFFFF)
_SRC_PORT = np.uint64(SRC_PORT_SHIFT)
_PROTOCOL = np.uint64(PROTOCOL_SHIFT)
_HAS_PROTOCOL, _HAS_PORTS, _ANSWERS = np.uint64(HAS_PROTOCOL), np.uint64(HAS_PORTS), np.uint64(ANSWERS)
_CONTACTS = np.uint64(OPENED | ANSWERS | ANSWERED)
_SPREAD = np.uint64(0x9E3779B97F4A7C15)  # 2^64 divided by the golden ratio: ports end up in all bits


class Rule(NamedTuple):
    """Which end of a packet becomes a host. Flags are integers for the compiler."""

    outer: int  # 1: the outer end is the host
    sent: int  # 1: include hosts that sent the packet
    received: int  # 1: include hosts that received the packet
    all_inner: int  # 1: there are no inner prefixes
    exclusions: int  # 1: some hosts are excluded
    drops_special: int  # 1: multicast, broadcast and unspecified addresses are no hosts
    mask_high: int  # mask of an IPv6 host, high word; or of an IPv4 host
    mask_low: int  # mask of an IPv6 host, low word


@compiled
def find_hosts(
    src: Addresses, dst: Addresses, inner: PrefixTable, excluded: PrefixTable, rule: Rule
) -> tuple[Flags, Flags, int, int, int]:
    """Return for every packet 1 if its source is a host, and 1 if its destination is.

    Return also the number of packets without an inner end, the number with equal ends, and the number of special ends
    that would be hosts otherwise.
    """
    n = len(src)
    sources, targets = np.empty(n, np.uint8), np.empty(n, np.uint8)
    inner_src, inner_dst = np.ones(BLOCK, np.uint8), np.ones(BLOCK, np.uint8)
    counts, marked = np.empty(BLOCK, np.uint8), np.empty(BLOCK, np.uint8)
    left_out = 0
    outer, sent, received = np.uint8(rule.outer), np.uint8(rule.sent), np.uint8(rule.received)
    differing, counted = np.uint32(0), np.uint32(0)
    for start in range(0, n, BLOCK):  # in loops so simple that they run in vector registers
        left, right = src[start : start + BLOCK], dst[start : start + BLOCK]
        size = len(left)
        if rule.all_inner == 0:
            mark_inside(left, inner, inner_src)
            mark_inside(right, inner, inner_dst)
        for i in range(size):
            if src.ndim == 1:
                counts[i] = left[i] != right[i]
            else:
                counts[i] = (left[i, 0] != right[i, 0]) | (left[i, 1] != right[i, 1])
        for i in range(size):
            differing = np.uint32(differing + np.uint32(counts[i]))
        for i in range(size):
            counts[i] &= inner_src[i] | inner_dst[i]
        for i in range(size):
            counted = np.uint32(counted + np.uint32(counts[i]))
        from_here, to_here = sources[start : start + size], targets[start : start + size]
        for i in range(size):
            from_here[i] = counts[i] & (inner_src[i] ^ outer) & sent
        for i in range(size):
            to_here[i] = counts[i] & (inner_dst[i] ^ outer) & received
        if rule.exclusions == 1:  # first: an excluded end is no host, special or not
            mark_inside(left, excluded, marked)
            _leave_out(from_here, marked)
            mark_inside(right, excluded, marked)
            _leave_out(to_here, marked)
        if rule.drops_special == 1:
            if mark_special(left, marked):
                left_out += _leave_out(from_here, marked)
            if mark_special(right, marked):
                left_out += _leave_out(to_here, marked)
    return sources, targets, int(differing) - int(counted), n - int(differing), left_out


@compiled
def _leave_out(hosts: Flags, marked: Flags) -> int:
    """Clear the flags of hosts whose addresses are marked; return how many these are."""
    count = np.uint32(0)
    for i in range(len(hosts)):
        count = np.uint32(count + np.uint32(hosts[i] & marked[i]))
    for i in range(len(hosts)):
        hosts[i] &= marked[i] ^ np.uint8(1)
    return int(count)


@compiled
def make_pairs(
    src: Addresses, dst: Addresses, inner: PrefixTable, excluded: PrefixTable, rule: Rule, pairs: tuple[Any, Any]
) -> tuple[int, int, int, int]:
    """Write the hosts and peers of packets into the columns of `pairs`; return their number and those of `find_hosts`.

    The columns have room for two pairs of each packet, and one more. Which end of a packet is a host is as good as
    random, so a branch would be mispredicted. Every packet is written twice instead, and the next one overwrites what
    does not count.
    """
    hosts, peers = pairs
    sources, targets, ignored, same, left_out = find_hosts(src, dst, inner, excluded, rule)
    count = np.uint64(0)  # Unsigned: a signed index is tested for negative values.
    if src.ndim == 1:
        mask = np.uint32(rule.mask_high)
        for i in range(len(src)):
            hosts[count], peers[count] = src[i] & mask, dst[i]
            count += np.uint64(sources[i])
            hosts[count], peers[count] = dst[i] & mask, src[i]
            count += np.uint64(targets[i])
    else:
        for i in range(len(src)):
            hosts[count, 0], hosts[count, 1] = src[i, 0] & rule.mask_high, src[i, 1] & rule.mask_low
            peers[count, 0], peers[count, 1] = dst[i, 0], dst[i, 1]
            count += np.uint64(sources[i])
            hosts[count, 0], hosts[count, 1] = dst[i, 0] & rule.mask_high, dst[i, 1] & rule.mask_low
            peers[count, 0], peers[count, 1] = src[i, 0], src[i, 1]
            count += np.uint64(targets[i])
    return int(count), ignored, same, left_out


class Choice(NamedTuple):
    """Which packets of a part count."""

    marks: np.uint64  # one of these bits of the details must be set; 0: all packets count
    needs_ports: int  # 1: packets without ports do not count
    by_protocol: int  # 1: only the protocols of the filter count
    by_port: int  # 1: only packets with one of its ports count


@compiled
def choose(
    src: Addresses,
    dst: Addresses,
    details: Details,
    choice: Choice,
    allowed: Allowed,
    out: tuple[Addresses, Addresses, Ports],
) -> tuple[int, int, int, int]:
    """Write the ends and the port of the packets that count; return their number, and of three kinds that do not.

    These are packets that lack what is needed to know, packets that the filter stops, and, where contacts matter,
    packets that neither open nor answer. An answer is written with its ends turned round, so that its source is who
    opened, and its port the one that was asked.
    """
    new_src, new_dst, ports = out
    marks, protocols, open_ports = choice.marks, allowed.protocols, allowed.ports
    count, unknown, stopped, idle = np.uint64(0), 0, 0, 0
    for i in range(len(details)):
        detail = details[i]
        if choice.by_protocol == 1:
            if detail & _HAS_PROTOCOL == _ZERO:
                unknown += 1
                continue
            if protocols[(detail >> _PROTOCOL) & np.uint64(0xFF)] == 0:
                stopped += 1
                continue
        to, from_ = detail & _PORT, (detail >> _SRC_PORT) & _PORT
        if detail & _HAS_PORTS == _ZERO:
            if choice.by_port == 1 or choice.needs_ports == 1:
                unknown += 1
                continue
        elif choice.by_port == 1 and open_ports[to] == 0 and open_ports[from_] == 0:
            stopped += 1
            continue
        chosen = marks == _ZERO or detail & marks != _ZERO
        turned = detail & marks & _ANSWERS != _ZERO
        if src.ndim == 1:
            new_src[count], new_dst[count] = (dst[i], src[i]) if turned else (src[i], dst[i])
        else:
            for word in range(2):
                new_src[count, word] = dst[i, word] if turned else src[i, word]
                new_dst[count, word] = src[i, word] if turned else dst[i, word]
        ports[count] = from_ if turned else to
        count += np.uint64(chosen)
        idle += detail & _CONTACTS == _ZERO
    return int(count), unknown, stopped, idle if marks != _ZERO else 0


class PortUse(NamedTuple):
    """Where ports go."""

    of_hosts: int  # 1: a host is an address with a port
    of_peers: int  # 1: a peer is an address with a port
    alone: int  # 1: a peer is a port


@compiled
def make_port_pairs(
    src: Addresses,
    dst: Addresses,
    ports: Ports,
    tables: tuple[PrefixTable, PrefixTable],
    rule: Rule,
    use: PortUse,
    pairs: tuple[Any, Any],
) -> tuple[int, int, int, int]:
    """Do what `make_pairs` does, with ports in the peers or the hosts.

    A peer of IPv6 with a port would have 144 bits: the port is spread over the low word, where nobody meets another
    peer by chance.
    """
    hosts, peers = pairs
    sources, targets, ignored, same, left_out = find_hosts(src, dst, tables[0], tables[1], rule)
    count = np.uint64(0)
    for i in range(len(src)):
        port = np.uint64(ports[i])
        for end in range(2):
            if src.ndim == 1:
                host = np.uint64((dst[i] if end else src[i]) & np.uint32(rule.mask_high))
                peer = np.uint64(src[i] if end else dst[i])
                if use.of_hosts == 1:
                    host = host << np.uint64(16) | port
                if use.of_peers == 1:
                    peer = peer << np.uint64(16) | port
                hosts[count], peers[count] = host, port if use.alone == 1 else peer
            else:
                high, low = (dst[i, 0], dst[i, 1]) if end else (src[i, 0], src[i, 1])
                hosts[count, 0], hosts[count, 1] = high & rule.mask_high, low & rule.mask_low
                if use.of_hosts == 1:
                    hosts[count, 1] |= port
                high, low = (src[i, 0], src[i, 1]) if end else (dst[i, 0], dst[i, 1])
                if use.of_peers == 1:
                    low += (port + np.uint64(1)) * _SPREAD
                if use.alone == 1:
                    high, low = _ZERO, port
                peers[count, 0], peers[count, 1] = high, low
            count += np.uint64(targets[i] if end else sources[i])
    return int(count), ignored, same, left_out
