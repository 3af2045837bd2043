"""From a captured frame to two addresses: the part that every capture format shares.

`find_headers` (finding.py) finds the IP headers of a frame that count; `put_ipv4` and `put_ipv6` (rows.py) write their
addresses into columns. They are scalar functions, compiled into the walk of each format (pcap.py, pcapng_walk.py).

A packet ends in exactly one of five counters, so that none is lost in silence: ipv4, ipv6, not_ip, truncated (the
captured bytes do not reach both addresses) or unsupported_link. Only where the outermost and the innermost header are
both wanted, a packet in a tunnel is two rows, and ipv4 and ipv6 count rows; `packets` counts it once.

| file | what it knows |
|---|---|
| `linktypes.py` | the numbers of link types, and how their frames start |
| `links.py` | headers of links, up to the outermost IP header |
| `wireless.py` | IEEE 802.11, with what radios put before it; aggregates of several packets |
| `ethertypes.py` | what may stand before IP on any link, in any stacking: VLAN and switch tags, MPLS, PPP, LLC |
| `headers.py` | what is inside an IP header: protocol, ports, flags |
| `tunnels.py` | from an IP header to the one inside |
| `finding.py` | all of that about one frame; a glance at usual ones |

Why an own parser: a Python object for each packet costs microseconds (dpkt 0.06 to 0.3 million packets/s, scapy
0.004), a compiled walk over the bytes costs nanoseconds.

Habits that keep the loops fast: each walk has inner loops for runs of usual records (Ethernet and IPv4), which take
half the time of the loop for all records because their few variables stay in registers: one for addresses alone, one
for runs that want more. A function that takes an array and branches costs two atomic operations for the array's
reference count, which is more than all the rest; so what runs for every packet either does not branch or takes numbers
only. `ip_header` and `find_headers`, which do both, are left for unusual frames. They take no other array than the
block and return numbers.

Whoever calls a function here has checked that `start` and `end` lie inside the block; everything read lies between
them.
"""

from __future__ import annotations

from superhosts.sources.frames.finding import (
    QUICK_BYTES,
    find_headers,
    glance,
    is_usual,
    is_whole,
    peek,
    type_end,
)
from superhosts.sources.frames.links import ip_header, is_wrapped
from superhosts.sources.frames.linktypes import ETHERNET, RAW, UNSUPPORTED, link_of, unsupported
from superhosts.sources.frames.reading import Bytes, big, byte, half, little, swapped
from superhosts.sources.frames.rows import (
    Columns,
    block_of,
    copied,
    first_rows,
    is_ipv4,
    new_columns,
    put_ipv4,
    put_ipv6,
    take,
    written,
)
from superhosts.sources.frames.sampled import is_sampled, sampled_of, use_sampling
from superhosts.sources.frames.tally import (
    BOTH,
    DETAILS,
    EARLIEST4,
    EARLIEST6,
    INNER,
    IPV4,
    IPV6,
    LATEST4,
    LATEST6,
    LIMIT,
    NOT_IP,
    PACKETS,
    POSITION,
    SAMPLED,
    SIMPLE,
    STOP,
    TALLY_SLOTS,
    TIME,
    TRUNCATED,
    UNSUPPORTED_LINK,
    WANTS,
    Tally,
    start_walk,
    wants_of,
)
from superhosts.sources.frames.wireless import MOST_SUBFRAMES

__all__ = [
    "BOTH",
    "DETAILS",
    "EARLIEST4",
    "EARLIEST6",
    "ETHERNET",
    "INNER",
    "IPV4",
    "IPV6",
    "LATEST4",
    "LATEST6",
    "LIMIT",
    "MOST_SUBFRAMES",
    "NOT_IP",
    "PACKETS",
    "POSITION",
    "QUICK_BYTES",
    "RAW",
    "SAMPLED",
    "SIMPLE",
    "STOP",
    "TALLY_SLOTS",
    "TIME",
    "TRUNCATED",
    "UNSUPPORTED",
    "UNSUPPORTED_LINK",
    "WANTS",
    "Bytes",
    "Columns",
    "Tally",
    "big",
    "block_of",
    "byte",
    "copied",
    "find_headers",
    "first_rows",
    "glance",
    "half",
    "ip_header",
    "is_ipv4",
    "is_sampled",
    "is_usual",
    "is_whole",
    "is_wrapped",
    "link_of",
    "little",
    "new_columns",
    "peek",
    "put_ipv4",
    "put_ipv6",
    "sampled_of",
    "start_walk",
    "swapped",
    "take",
    "type_end",
    "unsupported",
    "use_sampling",
    "wants_of",
    "written",
]
