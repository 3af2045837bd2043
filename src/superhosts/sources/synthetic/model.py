"""Who is in a synthetic window: how many peers each inner host has, what it does, and its address.

Sizes. The number of hosts with at least x peers follows a bounded Pareto law, S·((x/θ)^−a − q)/(1 − q) with a = 1.05,
θ = 1024, q = (cap/θ)^−a and cap = 200 000, S being the number of super hosts asked for. Sizes are drawn one per stratum
of that law (the i-th largest host from the i-th S-th part), so that exactly S hosts reach θ, whatever the seed. The law
goes on below θ as far as the flows last, and the remaining flows belong to small hosts of 1 to 256 peers with the same
exponent. Where the flows are too few for the whole tail, its cap comes down; where they are too few for S hosts of θ
peers, the request is refused.

Addresses. A host's rank is scattered over 2^m slots, one to one; a slot is a place in a used /24 of a used /16 (IPv6: a
/64 of a /48, where one slot in four shares the /64 of its neighbour). The same rank keeps its address in every window,
so that longer windows mean something; scanners and victims wear another one in each window.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superhosts.core.defaults import THRESHOLD
from superhosts.core.text import counted
from superhosts.errors import UsageError
from superhosts.sources.synthetic.loops import CLIENT, CLIENT_BLOCKS, PROBE, SERVER, SWEEP, VICTIM

EXPONENT = 1.05  # of the Pareto tail
CAP = 200_000  # peers of the largest host
SHOULDER = 256  # the tail goes down to here, flows permitting
SMALL_CAP = 256  # largest of the small hosts
SMALL_MEAN = float((np.arange(1, SMALL_CAP + 1) ** -EXPONENT).sum())

Sizes = NDArray[np.int64]
Words = NDArray[np.uint64]


@dataclass(frozen=True)
class Plan:
    """The inner hosts of one window and family: peers, behaviour and slot of each, largest tail hosts first."""

    sizes: Sizes
    kinds: NDArray[np.uint8]
    slots: Words

    @property
    def offsets(self) -> Sizes:
        """Where each host's flows begin, and the end of the last."""
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(self.sizes)])


def generator(*words: int) -> np.random.Generator:
    """Return the random generator (PCG64) of one purpose: seed, then whatever tells the purpose from others."""
    return np.random.Generator(np.random.PCG64(list(words)))


def parse_inner(text: str, family: int) -> tuple[int, int]:
    """Network address and prefix length of the monitored network, whose size must suit the model."""
    try:
        network: Any = ipaddress.ip_network(text)
    except ValueError as error:
        raise UsageError(f"inner network {text!r}: {error}") from None
    shortest, longest = (4, 24) if family == 4 else (16, 48)
    if network.version != family or not shortest <= network.prefixlen <= longest:
        raise UsageError(f"inner network {text!r}: synthetic IPv{family} traffic needs a /{shortest} to a /{longest}")
    return int(network.network_address), int(network.prefixlen)


def _tail_flows(supers: int, cap: float, low: float) -> float:
    """Flows to be expected of all hosts with `low` to `cap` peers."""
    scale = supers * THRESHOLD * EXPONENT / (EXPONENT - 1) / (1 - (cap / THRESHOLD) ** -EXPONENT)
    return float(scale * ((THRESHOLD / low) ** (EXPONENT - 1) - (cap / THRESHOLD) ** (1 - EXPONENT)))


def tail_bounds(supers: int, flows: int) -> tuple[float, float]:
    """Smallest and largest host of the tail, so that it takes nine tenths of the flows or reaches both its limits."""
    budget = 0.9 * flows
    if supers * THRESHOLD > budget:
        need = int(np.ceil(supers * THRESHOLD / 0.9))
        raise UsageError(
            f"{counted(flows, 'flow')}: too few for {counted(supers, 'super host')}, which need at least {need:,}"
        )
    low = float(SHOULDER) if _tail_flows(supers, 4 * THRESHOLD, SHOULDER) <= budget else float(THRESHOLD)
    if _tail_flows(supers, CAP, low) > budget:
        small, large = 1.05 * THRESHOLD, float(CAP)
        for _ in range(50):
            middle = (small * large) ** 0.5
            small, large = (middle, large) if _tail_flows(supers, middle, low) <= budget else (small, middle)
        return low, small
    small, large = 1.0, low
    for _ in range(50):
        middle = (small * large) ** 0.5
        small, large = (small, middle) if _tail_flows(supers, CAP, middle) <= budget else (middle, large)
    return large, float(CAP)


def _tail_length(supers: int, low: float, cap: float) -> int:
    q = (cap / THRESHOLD) ** -EXPONENT
    return int(np.ceil(supers * ((low / THRESHOLD) ** -EXPONENT - q) / (1 - q)))


def tail_sizes(random: np.random.Generator, supers: int, flows: int) -> Sizes:
    """Sizes of the tail, largest strata first: exactly `supers` of them are at least THRESHOLD."""
    if supers == 0:
        return np.zeros(0, np.int64)
    low, cap = tail_bounds(supers, flows)
    q = (cap / THRESHOLD) ** -EXPONENT
    hosts = max(supers, _tail_length(supers, low, cap))
    part = (np.arange(hosts) + random.random(hosts)) / supers
    sizes: Sizes = (THRESHOLD * (part * (1 - q) + q) ** (-1 / EXPONENT)).astype(np.int64)
    sizes[:supers] = np.maximum(sizes[:supers], THRESHOLD)
    sizes[supers:] = np.clip(sizes[supers:], 1, THRESHOLD - 1)
    # One draw of the largest host can outweigh the plan: keep a twentieth of the flows for small hosts all the same.
    room = flows - flows // 20
    sizes = sizes[: max(supers, int(np.searchsorted(np.cumsum(sizes), room, side="right")))]
    if sizes.sum() > room:
        above = sizes - THRESHOLD
        sizes = THRESHOLD + (above * ((room - supers * THRESHOLD) / above.sum())).astype(np.int64)
    return sizes


def small_sizes(random: np.random.Generator, flows: int, most: int) -> Sizes:
    """Sizes of at most `most` small hosts that have `flows` flows together."""
    drawn: list[Sizes] = []
    left = flows
    while left > 0:
        uniform = 1.0 - random.random(int(left / SMALL_MEAN * 1.05) + 64)
        sizes = np.minimum(uniform ** (-1 / EXPONENT), SMALL_CAP).astype(np.int64)
        reached = np.cumsum(sizes)
        end = int(np.searchsorted(reached, left))
        if end < len(sizes):
            sizes = sizes[: end + 1]
            sizes[end] -= reached[end] - left
        drawn.append(sizes)
        left -= int(sizes.sum())
    small = np.concatenate([np.zeros(0, np.int64), *drawn])
    if len(small) > most:  # a narrow inner network: fewer hosts, with more peers each
        if most < 1 or flows > most * (THRESHOLD // 2):
            raise UsageError(
                f"the inner network is too small for {counted(flows, 'flow')} of small hosts; take a wider one"
            )
        small = np.full(most, flows // most)
        small[: flows % most] += 1
    return small


def slot_bits(supers: int, flows: int, host_bits: int) -> int:
    """Bits of the slots that addresses are taken from, the same for all windows of a traffic; many stay free."""
    hosts, rest = 0, float(flows)
    if supers:
        low, cap = tail_bounds(supers, flows)
        hosts = _tail_length(supers, low, cap)
        # What the tail really takes varies with its few largest hosts: leave room for more small ones.
        rest = max(0.25 * flows, flows - 0.7 * _tail_flows(supers, cap, low))
    hosts += int(rest / SMALL_MEAN)
    return min(host_bits, (hosts + hosts // 2 + 2 * supers + 64).bit_length())


def kinds_of(sizes: Sizes, supers: int) -> NDArray[np.uint8]:
    """What hosts do: among super hosts 1 in 16 sweeps, 1 in 16 probes at random, 1 in 16 is a victim of floods."""
    rank = np.arange(len(sizes))
    kinds = np.where((sizes >= SHOULDER) & (rank % 3 != 0), SERVER, CLIENT).astype(np.uint8)
    for kind, place in ((SWEEP, 2), (VICTIM, 6), (PROBE, 10)):
        kinds[place:supers:16] = kind
    return kinds


def scatter(numbers: Words, bits: int, key: int) -> Words:
    """Permute the numbers below 2^bits."""
    mask, shift = np.uint64((1 << bits) - 1), np.uint64(max(1, bits // 2))
    for turn in range(3):
        word = (key * (2 * turn + 3) * 0x9E3779B97F4A7C15) % (1 << 64)
        numbers = (numbers * np.uint64(word | 1) + np.uint64(word >> 7)) & mask
        numbers = numbers ^ (numbers >> shift)
    return numbers


def inner_addresses_4(slots: Words, bits: int, network: tuple[int, int], key: int) -> NDArray[np.uint32]:
    """IPv4 addresses of slots: at first 128 hosts in each of sixteen /24 of some /16, denser where that is too few."""
    host_bits = 32 - network[1]
    most_sites, most_subnets = max(0, host_bits - 16), min(8, host_bits - 8)
    low = min(7, bits)
    middle = min(4, bits - low, most_subnets)
    sites = min(bits - low - middle, most_sites)
    middle = min(most_subnets, bits - low - sites)
    low = bits - sites - middle
    last = (slots & np.uint64((1 << low) - 1)) + np.uint64(low < 8)
    site = scatter(slots >> np.uint64(low + middle), most_sites, key)
    subnet = (slots >> np.uint64(low)) & np.uint64((1 << middle) - 1)
    subnet = (subnet + site * np.uint64(37)) & np.uint64((1 << most_subnets) - 1)
    address: Words = np.uint64(network[0]) | (site << np.uint64(16)) | (subnet << np.uint64(8)) | last
    return address.astype(np.uint32)


def inner_addresses_6(slots: Words, bits: int, network: tuple[int, int], key: int) -> Words:
    """IPv6 addresses of slots: 64 subnets in each used /48, random interface identifiers."""
    subnet_bits = 64 - network[1]
    shares = (slots & np.uint64(3)) == np.uint64(3)
    place = slots - shares.astype(np.uint64)
    if 6 < bits <= subnet_bits - 10:
        place = (scatter(place >> np.uint64(6), subnet_bits - 16, key) << np.uint64(16)) | (place & np.uint64(63))
    low = (_mix(slots + np.uint64(key)) & np.uint64(2**64 - 4)) | (slots & np.uint64(3))
    return np.stack([np.uint64(network[0] >> 64) | place, low], axis=1)


def outer_addresses_6(peers: NDArray[np.uint32], network: tuple[int, int]) -> Words:
    """IPv6 addresses of outer hosts that were drawn as 32-bit numbers, one to one and outside the inner network."""
    number = peers.astype(np.uint64)
    top = 0x2A if network[0] >> 120 != 0x2A else 0x26
    high = (
        np.uint64(top << 56)
        | ((number >> np.uint64(16)) << np.uint64(40))
        | ((number >> np.uint64(8)) & np.uint64(255))
    )
    return np.stack([high, _mix(number)], axis=1)


def outer_blocks(random: np.random.Generator, network: tuple[int, int] | None) -> NDArray[np.uint32]:
    """Choose /16 networks in which outer hosts live, most popular first; none of them touches the inner network."""
    blocks = np.arange(1 << 8, 224 << 8, dtype=np.uint32)
    free = ((blocks >> 8) != 127) & ((blocks >> 8) != 10)
    if network is not None:
        shift = max(0, 16 - network[1])
        free &= (blocks >> shift) != (network[0] >> 16 >> shift)
    return random.permutation(blocks[free])[:CLIENT_BLOCKS]


def _mix(numbers: Words) -> Words:
    """Scramble 64-bit numbers, one to one (the array form of `loops.mix`)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
