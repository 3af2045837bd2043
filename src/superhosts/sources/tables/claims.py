"""What a record of a log claims about a conversation: nothing, one direction, or both and whether there was an answer.

A log's description (`log.py`) says what its records are and which of its words say otherwise; `detailvalues.py` draws
the conclusion for each record.
"""

from __future__ import annotations

from typing import Final

NO_CLAIM: Final = 0  # it is like a single packet: its protocol and flags say what it does
RECORD: Final = 1  # packets in one direction
CONVERSATION: Final = 2  # both directions, and the source opened; whether there was an answer, other fields say
ANSWERED: Final = 3  # a conversation that was answered
UNANSWERED: Final = 4  # a conversation without an answer; a refusal is none

# Where a log without a field for it has the type of ICMP messages
ICMP_NOWHERE: Final = 0
ICMP_IS_SPORT: Final = 1  # the source port
ICMP_IN_SPORT: Final = 2  # the low byte of the source port, below the code
ICMP_IN_DPORT: Final = 3  # the high byte of the destination port, above the code, or before a point: 3.1
