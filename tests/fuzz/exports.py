"""Exports: the records that the naive reader finds, bounded memory, and no datagram that harms another one."""

from __future__ import annotations

import struct
from random import Random

from hypothesis import strategies as st

import exports as e
from fuzz.mutations import Edit, apply, edits
from fuzz.targets import target
from naive_exports import Naive

ELEMENTS = (8, 12, 27, 28, 4, 7, 11, 6, 60, 160, 21, 22, *range(150, 160), 323, 34, 305, 82, 1)
USUAL_LENGTHS = {8: 4, 12: 4, 27: 16, 28: 16, 4: 1, 7: 2, 11: 2, 60: 1, 152: 8, 153: 8, 154: 8, 155: 8, 160: 8, 323: 8}
TIMES = ("start", "end", "export", "received")


def _fields(rng: Random) -> list[e.Field]:
    narrow: list[e.Field] = [(8, 4), (12, 4)]
    wide: list[e.Field] = [(27, 16), (28, 16)]
    fields = rng.choice((narrow, narrow, narrow, wide, wide, narrow + wide)).copy()
    for _ in range(rng.randrange(6)):
        element = rng.choice(ELEMENTS)
        length = USUAL_LENGTHS.get(element, 4) if rng.random() < 0.8 else rng.choice((0, 1, 2, 3, 4, 8, 9, 65535))
        fields.append((element, length, 29305) if rng.random() < 0.1 else (element, length))
    rng.shuffle(fields)
    return fields


def _record(fields: list[e.Field], rng: Random) -> bytes:
    content = b""
    for element, length, *_ in fields:
        if length == 65535:
            content += e.variable(rng.randbytes(rng.choice((0, 1, 5, 254, 255, 300))), long=rng.random() < 0.3)
        elif element in (150, 151, 152, 153) and length in (4, 8) and rng.random() < 0.8:
            content += (e.NOON * (1 if element < 152 else 1000)).to_bytes(8, "big")[-length:]
        elif element in (154, 155) and length == 8 and rng.random() < 0.8:
            content += struct.pack("!II", e.NOON + 2_208_988_800, rng.randrange(2**32))
        else:  # IPv4 addresses of zero stand in records of IPv6 that have room for both
            content += bytes(length) if element in (8, 12) and rng.random() < 0.5 else rng.randbytes(length)
    return content


def netflow_of(seed: int) -> list[bytes]:
    """Return datagrams of an exporter that means well, most of the time."""
    rng = Random(seed)
    is_ipfix = rng.random() < 0.5
    known = {256 + number: _fields(rng) for number in range(rng.randrange(1, 4))}
    datagrams = []
    for sequence in range(rng.randrange(1, 6)):
        sets = []
        for _ in range(rng.randrange(1, 5)):
            number = rng.choice(list(known))
            if rng.random() < 0.1:
                known[number] = _fields(rng)
            if rng.random() < 0.4:
                sets.append(e.template(number, known[number], is_ipfix=is_ipfix))
            elif rng.random() < 0.1:
                sets.append(e.options_template(number, [(1, 4)], [(34, 4), (160, 8)], is_ipfix=is_ipfix))
            elif rng.random() < 0.1 and is_ipfix:
                sets.append(e.a_set(2, struct.pack("!HH", rng.choice((number, 2)), 0)))
            else:
                records = [_record(known[number], rng) for _ in range(rng.randrange(4))]
                sets.append(e.data(number, records, padding=rng.randrange(4)))
        make = e.ipfix if is_ipfix else e.version9
        datagrams.append(make(*sets, sequence=sequence, domain=rng.randrange(2)))
    if rng.random() < 0.3:
        times = [(rng.randrange(5000), rng.randrange(5000)) for _ in range(rng.randrange(1, 31))]
        datagrams.append(e.version5([e.record5("10.0.0.1", "10.0.0.2", first=a, last=b) for a, b in times]))
    return datagrams


_cases = st.tuples(st.integers(0, 2**32), edits, st.sampled_from(TIMES), st.booleans())


@target(_cases)
def netflow(case: tuple[int, list[Edit], str, bool]) -> None:
    """What the naive reader finds is found, in the same order, and every record is counted."""
    seed, changes, time, arrives = case
    datagrams = netflow_of(seed)
    for number, change in enumerate(changes):
        at = number % len(datagrams)
        datagrams[at] = apply(datagrams[at], [change])[:65535]
    received = (e.NOON + 5) * e.SECOND if arrives else 0
    reading, naive = e.Reading(time=time, details=True), Naive(time)
    reading.feed(*datagrams, received=received)
    for datagram in datagrams:
        naive.netflow(datagram, "192.0.2.1", received)
    assert [row[:3] for row in reading.ipv4] == naive.ipv4
    assert [row[:3] for row in reading.ipv6] == naive.ipv6
    assert reading.counters.not_ip >= naive.not_ip
    assert reading.counters.packets >= len(naive.ipv4) + len(naive.ipv6) + naive.not_ip


@target(st.tuples(st.integers(0, 2**32), edits))
def sflow(case: tuple[int, list[Edit]]) -> None:
    """A datagram that is damaged harms no other one, and has no more packets than it has room for."""
    seed, changes = case
    rng = Random(seed)
    samples = [
        rng.choice((e.flow_sample, e.expanded_sample, e.discarded_sample))(
            *(
                rng.choice(
                    (
                        e.sampled("10.0.0.1", "10.0.0.2"),
                        e.sampled("2001:db8::1", "2001:db8::2"),
                        e.raw_header(rng.randbytes(rng.randrange(60)), rng.randrange(14)),
                        e.tagged(1001, bytes(rng.randrange(20))),
                    )
                )
                for _ in range(rng.randrange(4))
            )
        )
        for _ in range(rng.randrange(5))
    ]
    datagram = apply(e.sflow(*samples, agent=rng.choice(("192.0.2.1", "2001:db8::1"))), changes)[:65535]
    whole = e.sflow(e.flow_sample(e.sampled("10.0.0.1", "10.0.0.2")), agent="192.0.2.200")
    reading = e.Reading(is_sflow=True, details=True).feed(datagram, whole, received=1)
    assert reading.ipv4[-1][:2] == (0x0A000001, 0x0A000002)
    assert len(reading.ipv4) + len(reading.ipv6) <= 1 + len(datagram) // 8
