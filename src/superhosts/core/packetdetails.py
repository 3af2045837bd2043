"""What a packet says besides its addresses and its time, in 64 bits: protocol, TCP flags, ports, and who opened.

Sources write it only where somebody asks (`sources.base.Wants`). A packet says what its own header says. A record of a
flow says what all its packets said together, and often more: which end opened it, and whether the other one answered.

| bits | content |
|---|---|
| 0 to 15 | destination port |
| 16 to 31 | source port |
| 32 to 39 | protocol of the IP header: 6 is TCP, 17 UDP |
| 40 to 47 | TCP flags, for ICMP the type; of a record the flags of all its packets |
| 48 | the protocol is known |
| 49 | the ports are known: not of protocols without ports, nor behind the first fragment |
| 50 | the flags (or the type) are known |
| 51 | it is a record of packets in one direction, not a packet |
| 52 | it is a record of a whole conversation, which the source opened; both directions are in it |
| 53 | only with bit 52: the destination answered |
| 56 to 58 | what a run has found out (`contacts.py`): the source opened, the source answers, the destination answered |
| 59 | nothing else is known, because the packet's pair is in no sample and nobody needs to know (`sources/base.py`) |
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

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
    protocol: int | None = None,
    ports: tuple[int, int] | None = None,
    flags: int | None = None,
    *,
    marks: int = 0,
) -> int:
    """Return the details of one packet, for tests and for sources that are in no hurry.

    `ports` are source and destination, `marks` are of the constants IS_….
    """
    value = marks
    if protocol is not None:
        value |= protocol << PROTOCOL_SHIFT | HAS_PROTOCOL
    if ports is not None:
        value |= ports[0] << SRC_PORT_SHIFT | ports[1] | HAS_PORTS
    if flags is not None:
        value |= flags << FLAGS_SHIFT | HAS_FLAGS
    return value
