"""Columns of traffic: the packets that sources yield and the pairs that detectors consume.

A source yields `PacketBatch` objects: source address, destination address and time of packets (or flow records) of one
address family. `Network` knows which addresses are monitored and turns packets into pairs (host, peer).

Addresses are integers: IPv4 as uint32 (n,), an IPv6 prefix of up to 64 bits as uint64 (n,), a full IPv6 address as
uint64 (n, 2), high word first. Times are int64 nanoseconds since the epoch, UTC.

Hosts need not be addresses. Generic keys have the family 0 (`KEYS`): `keys="int64"` are integers, inside as their two's
complement in uint64 (n,); `keys="text"` are names, inside as keyed hashes in uint64 (n, 2) (`textkeys.py`).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.errors import GeometryError, UsageError

# What a packet says besides its addresses and its time, in 64 bits: protocol, TCP flags, ports, and who opened.
#
# Sources write it only where somebody asks (`sources.base.Wants`). A packet says what its own header says. A record of
# a flow says what all its packets said together, and often more: which end opened it, and whether the other one
# answered.
#
# | bits | content |
# |---|---|
# | 0 to 15 | destination port |
# | 16 to 31 | source port |
# | 32 to 39 | protocol of the IP header: 6 is TCP, 17 UDP |
# | 40 to 47 | TCP flags, for ICMP the type; of a record the flags of all its packets |
# | 48 | the protocol is known |
# | 49 | the ports are known: not of protocols without ports, nor behind the first fragment |
# | 50 | the flags (or the type) are known |
# | 51 | it is a record of packets in one direction, not a packet |
# | 52 | it is a record of a whole conversation, which the source opened; both directions are in it |
# | 53 | only with bit 52: the destination answered |
# | 56 to 58 | found out by a run (`contacts.py`): the source opened, the source answers, the destination answered |
# | 59 | nothing else is known, because the packet's pair is in no sample and nobody needs to know (`sources/base.py`) |


Details = NDArray[np.uint64]

SRC_PORT_SHIFT: Final = 16
PROTOCOL_SHIFT: Final = 32
FLAGS_SHIFT: Final = 40
HAS_PROTOCOL: Final = 1 << 48
HAS_PORTS: Final = 1 << 49
HAS_FLAGS: Final = 1 << 50
IS_RECORD: Final = 1 << 51
IS_CONVERSATION: Final = 1 << 52
IS_ANSWERED: Final = 1 << 53
OPENED: Final = 1 << 56
ANSWERS: Final = 1 << 57
ANSWERED: Final = 1 << 58
SKIPPED: Final = 1 << 59

TCP, UDP, ICMP, ICMPV6, SCTP, UDP_LITE, DCCP = 6, 17, 1, 58, 132, 136, 33
FIN, SYN, RST, ACK = 0x01, 0x02, 0x04, 0x10


def pack(
    protocol: int | None = None, ports: tuple[int, int] | None = None, flags: int | None = None, *, marks: int = 0
) -> int:
    """Return the details of one packet; `ports` are source and destination, `marks` are of the constants IS_…."""
    value = marks
    if protocol is not None:
        value |= protocol << PROTOCOL_SHIFT | HAS_PROTOCOL
    if ports is not None:
        value |= ports[0] << SRC_PORT_SHIFT | ports[1] | HAS_PORTS
    if flags is not None:
        value |= flags << FLAGS_SHIFT | HAS_FLAGS
    return value


Addresses = NDArray[np.uint32] | NDArray[np.uint64]
Times = NDArray[np.int64]
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address | Network
Host = Address | int | str  # integers and text are generic keys
KEYS = 0  # the family of hosts that are not addresses
MASK64 = (1 << 64) - 1
MAPPED = 0xFFFF  # the bits above the last 32 of an IPv6 address to which an IPv4 address is mapped
PORT_BITS = 16
MOST_PORTS = (1 << PORT_BITS) - 1
SIDES = ("inner", "outer")
DIRECTIONS = ("any", "out", "in")
CONTACTS = ("opened", "answered", "unanswered")  # peers to whom the host opened, and of these who answered or not
COUNTS = ("hosts", "ports", "host-ports")  # what peers are: addresses, ports, or both together
MOST_FILTER = 200  # characters of the words of a filter
MOST_GROUPS = 64  # of packets, in a window of a run
MOST_GROUP = 64  # characters of the name of a group
LATER_FIELDS = ("counts", "filter", "group")  # of parts; files have them where they are not the defaults
# What the direction of a part may be. Without an ending a contact is one that the host opened, with it the peer.
CONTACT_DIRECTIONS = tuple(f"{contact}{ending}" for ending in ("", "-in") for contact in CONTACTS)


@dataclass(frozen=True, slots=True)
class PacketBatch:
    """Packets of one address family, in the order in which they were read."""

    family: int  # 4 or 6
    src: Addresses
    dst: Addresses
    time: Times
    known_span: InitVar[tuple[int, int] | None] = None
    details: Details | None = None  # protocol, ports and flags, as laid out above; None: not asked for, or unknown
    group: str = ""  # what kept these packets apart from others, like "vlan 12"; empty: nobody has asked for that
    span: tuple[int, int] = field(init=False)  # earliest and latest time; (0, 0) without packets

    def __post_init__(self, known_span: tuple[int, int] | None) -> None:
        """Find the span unless the caller knows it: once, in the thread that reads, because several stages need it."""
        times = self.time
        found = known_span or ((int(times.min()), int(times.max())) if len(times) else (0, 0))
        object.__setattr__(self, "span", found)

    def __len__(self) -> int:
        return len(self.time)

    def take(self, rows: slice | NDArray[Any], known_span: tuple[int, int] | None = None) -> PacketBatch:
        """Return some of the packets: a slice, indexes, or a mask."""
        details = None if self.details is None else self.details[rows]
        return PacketBatch(
            self.family, self.src[rows], self.dst[rows], self.time[rows], known_span, details, self.group
        )


# Packets of one span of time: at most one batch per address family, and per group where packets have groups. A block
# holds both families so that no window closes between them.
PacketBlock = tuple[PacketBatch, ...]


@dataclass(frozen=True, slots=True)
class PairBatch:
    """Pairs of a monitored host and its peer."""

    hosts: Addresses
    peers: Addresses

    def __len__(self) -> int:
        return len(self.hosts)


Batches = Sequence[tuple[Addresses, Addresses]]  # hosts and peers of several batches of pairs


class HostKeys(NamedTuple):
    """Hosts as the integers that represent them in a sketch, whatever they stand for."""

    column: Addresses


class Window(NamedTuple):
    """A half-open span of time [start, end) in nanoseconds since the epoch; (0, 0) if the rows in it have no times."""

    start: int
    end: int

    @property
    def is_timed(self) -> bool:
        """Whether it has a beginning and an end: rows of a table without times have none."""
        return self != (0, 0)


class Part(NamedTuple):
    """A subset of the traffic's pairs: an address family, the watched side and a direction, and what peers are."""

    family: int = 4  # 4, 6 or KEYS
    side: str = "inner"  # one of SIDES
    # One of DIRECTIONS ("out": the host sent the packet, "in": the peer sent it) or of CONTACT_DIRECTIONS
    direction: str = "any"
    counts: str = "hosts"  # one of COUNTS
    filter: str = ""  # which packets count by protocol, port and tunnel, in words; empty: all, by their outer addresses
    group: str = ""  # of packets (PacketBatch); parts of different groups are never united

    @property
    def columns(self) -> tuple[int | None, str, str]:
        """The part as rows have it, in which the family of generic keys is None."""
        return self.family or None, self.side, self.direction

    @property
    def contact(self) -> str:
        """One of CONTACTS; empty if all packets count."""
        return self.direction.removesuffix("-in") if self.direction not in DIRECTIONS else ""

    @property
    def way(self) -> str:
        """One of DIRECTIONS. Of a contact, "out" if the host opened it and "in" if the peer did."""
        return self.direction if not self.contact else "in" if self.direction.endswith("-in") else "out"

    def with_contact(self, contact: str) -> Part:
        return self._replace(direction=contact + ("-in" if self.way == "in" else ""))

    @property
    def fields(self) -> dict[str, Any]:
        """The part as files have it: later fields only where they differ from what older releases know."""
        usual = Part._field_defaults
        return {
            name: value for name, value in self._asdict().items() if name not in LATER_FIELDS or value != usual[name]
        }

    @property
    def marks(self) -> dict[str, str]:
        """What rows say of the part besides their columns, where it is not the default."""
        return {name: value for name, value in self.fields.items() if name in LATER_FIELDS}

    def may_hold(self, host: object) -> bool:
        """Return True if a host is of this part's address family. Generic keys may look like anything."""
        return self.family == KEYS or self.family == (6 if ":" in str(host).rpartition(":")[0] else 4)

    @property
    def words(self) -> str:
        """The part as messages call it: IPv4 inner any."""
        counts = f" {self.counts}" if self.counts != "hosts" else ""
        own = f" ({self.filter})" if self.filter else ""
        own += f" of {self.group}" if self.group else ""
        return f"{f'IPv{self.family}' if self.family else 'generic keys'} {self.side} {self.direction}{counts}{own}"


class HostFormat(NamedTuple):
    """How integers represent hosts: family and prefix; generic keys have family 0 and their bits, 64 or 128."""

    family: int = 4
    prefix: int = 32
    port: bool = False  # a host is an address or prefix with a port, which are the last 16 bits of its integer

    @property
    def key_bits(self) -> int:
        """Bits of the integer that represents a host: 32, 64 or 128."""
        if self.port:
            return 64 if self.family == 4 else 128
        return 32 if self.family == 4 else 64 if self.prefix <= 64 else 128

    @property
    def fields(self) -> list[int]:
        return [self.family, self.prefix, PORT_BITS] if self.port else [self.family, self.prefix]

    @property
    def keys(self) -> str | None:
        """The kind of generic keys, as the argument `keys` calls it; None if hosts are addresses."""
        return None if self.family != KEYS else "int64" if self.prefix == 64 else "text"

    @property
    def words(self) -> str:
        """The hosts as messages call them: IPv6 /64 hosts, int64 keys."""
        return f"{self.keys} keys" if self.keys else f"IPv{self.family} /{self.prefix} hosts{' with ports' * self.port}"

    def knows(self, number: int) -> bool:
        """Return True if `to_host` returns the host itself, not what stands for a name that is not known."""
        return self.keys != "text"

    def united(self, others: Sequence[HostFormat]) -> HostFormat:
        """Return this format with the names that equal ones know."""
        return self

    def to_host(self, number: int) -> Host:
        """Convert an integer to an address, to a prefix if hosts are prefixes, or to a generic key."""
        if self.family == KEYS:
            return number - (number >> 63 << 64) if self.prefix == 64 else shown_hash(number)
        if self.port:
            host, port = self.without_port.to_host(self.address(number)), number & MOST_PORTS
            return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"
        if self.family == 4:
            full = self.prefix == 32
            return ipaddress.IPv4Address(number) if full else ipaddress.IPv4Network((number, self.prefix), strict=False)
        if self.key_bits == 64:
            number <<= 64
        if self.prefix == 128:
            return ipaddress.IPv6Address(number)
        # A label from a file may have bits beyond the prefix, which strict=True would reject.
        return ipaddress.IPv6Network((number, self.prefix), strict=False)

    def to_number(self, host: str | int | np.integer[Any] | Host) -> int:
        """Convert an address, a prefix, an integer or a generic key to the integer that represents the host.

        Raise UsageError if it is not a single host of this format.
        """
        if self.family == KEYS:
            return _whole_key(host)
        if self.port and not isinstance(host, int | np.integer):
            text, port = _split_port(str(host))
            number = self.without_port.to_number(text)
            return (number << PORT_BITS if self.family == 4 else number << (64 if self.prefix <= 64 else 0)) | port
        if isinstance(host, int | np.integer):
            if self == IPV4 and host >> 32 == MAPPED:  # an IPv6 address to which IPv4 is mapped
                host &= (1 << 32) - 1
            if not 0 <= host < 1 << self.key_bits:
                raise UsageError(f"host {host} does not fit in {self.key_bits} bits")
            return int(host)
        text = str(host)
        try:
            network = ipaddress.ip_network(text, strict=False)
        except ValueError as error:
            raise UsageError(f"{text!r} is not an address: {error}") from None
        network = _unmapped(network)
        if network.version != self.family:
            raise UsageError(f"{text} is IPv{network.version}, but hosts here are IPv{self.family}")
        if network.prefixlen < self.prefix:
            raise UsageError(f"{text} contains many hosts; a host here is a /{self.prefix}")
        number = int(network.network_address)
        if self.family == 4:
            return number & -(1 << (32 - self.prefix))
        return (number & -(1 << (128 - self.prefix))) >> (64 if self.key_bits == 64 else 0)

    @property
    def without_port(self) -> HostFormat:
        return HostFormat(self.family, self.prefix)

    def address(self, number: int) -> int:
        """Return the integer of the address or prefix alone, as the format without ports has it."""
        if not self.port:
            return number
        if self.family == 4:
            return number >> PORT_BITS
        return number >> 64 if self.prefix <= 64 else number & ~MOST_PORTS


IPV4 = HostFormat(4, 32)
INT64 = HostFormat(KEYS, 64)
TEXT = HostFormat(KEYS, 128)
KEY_FORMATS = {"int64": INT64, "text": TEXT}
INT64_RULE = 'keys="int64" takes integers from -2^63 to 2^63 - 1'


def shown_hash(number: int) -> str:
    """Return what stands for a text key whose name is not known: # and 32 hexadecimal digits."""
    return f"#{number:032x}"


def _whole_key(host: Any) -> int:
    if isinstance(host, str) and re.fullmatch("[+-]?[0-9]{1,20}", host, re.ASCII):
        host = int(host)
    if isinstance(host, bool) or not isinstance(host, int | np.integer):
        raise UsageError(f"{host!r} is not an integer: {INT64_RULE}")
    if not -(1 << 63) <= host < 1 << 63:
        raise UsageError(f"{host} does not fit: {INT64_RULE}")
    return int(host) & MASK64


def _unmapped(network: Network) -> Network:
    mapped = network.network_address.ipv4_mapped if isinstance(network, ipaddress.IPv6Network) else None
    return (
        network if mapped is None or network.prefixlen < 96 else ipaddress.IPv4Network((mapped, network.prefixlen - 96))
    )


def _split_port(text: str) -> tuple[str, int]:
    """Return the address or prefix and the port of a host such as 10.1.2.3:443 or [2001:db8::/64]:443."""
    address, _, port = text.rpartition(":")
    if not re.fullmatch("[0-9]{1,5}", port, re.ASCII) or int(port) > MOST_PORTS or not address:
        raise UsageError(f"{text!r} is not an address with a port; write it like 10.1.2.3:443 or [2001:db8::/64]:443")
    return address.removeprefix("[").removesuffix("]"), int(port)


def without_port(host: str) -> str:
    has_port = host.startswith("[") or (host.count(":") == 1)
    return _split_port(host)[0] if has_port else host


def format_for(key_bits: int) -> HostFormat:
    check_width(key_bits)
    return HostFormat(4, 32) if key_bits == 32 else HostFormat(6, key_bits)


def check_width(key_bits: int, name: str = "key_bits=") -> None:
    if key_bits not in (32, 64, 128):
        raise GeometryError(f"{name}{key_bits}: must be 32, 64 or 128")


def numbers_to_array(numbers: list[int], key_bits: int) -> Addresses:
    if key_bits == 128:
        halves = [(number >> 64, number & MASK64) for number in numbers]
        return np.array(halves, np.uint64).reshape(len(numbers), 2)
    return np.array(numbers, np.uint32) if key_bits == 32 else np.array(numbers, np.uint64)


def words_to_column(words: NDArray[np.uint64], key_bits: int) -> Addresses:
    if key_bits == 128:
        return words
    return words[:, 1].astype(np.uint32) if key_bits == 32 else words[:, 1].copy()


def as_words(column: NDArray[Any]) -> NDArray[np.uint64]:
    if column.ndim == 2:
        return column
    words = np.zeros((len(column), 2), np.uint64)
    words[:, 1] = column
    return words


def array_to_numbers(column: Addresses) -> list[int]:
    if column.ndim == 2:
        return [int(high) << 64 | int(low) for high, low in column]
    return [int(number) for number in column]
