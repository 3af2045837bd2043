"""Default values. Every command, setting and detector takes them from here."""

from __future__ import annotations

THRESHOLD = 1024  # peers from which a host is a super host
TOP = 10  # hosts with the most peers that a scan always reports
WINDOW = "5m"
GRACE = "10s"  # for which a window of live input stays open after its end, by the clock
MEMORY = "128MiB"  # of one sketch
STREAM_MEMORY = "4MiB"  # up to which "auto" takes the streaming detector: with so little it is better than a cube
NAMES_SHARE = 8  # one in this many bytes of a sketch of text keys is for the names of its hosts
FLOWS = 5_000_000  # distinct pairs of a window for which errors are predicted if nobody says how many
IPV4_PREFIX = 32  # leading bits of an IPv4 address that identify a host
IPV6_PREFIX = 64  # leading bits of an IPv6 address that identify a host
SPECIAL = "drop"  # multicast, broadcast and unspecified addresses are not hosts
EVIDENCE_PAIRS = 1 << 16  # of each address family, in a sample of who talked to whom
