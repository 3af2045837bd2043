"""The kernel's numbers: options of packet sockets and the layout of a TPACKET_V3 ring (linux/if_packet.h)."""

from __future__ import annotations

ETH_P_ALL = 3
SOL_PACKET = 263
PACKET_ADD_MEMBERSHIP, PACKET_RX_RING, PACKET_STATISTICS, PACKET_VERSION, PACKET_FANOUT = 1, 5, 6, 10, 18
PACKET_MR_PROMISC = 1
TPACKET_V3 = 2
FANOUT_HASH, FANOUT_UNIQUE_ID = 0, 0x2000
SO_ATTACH_FILTER = 26
SIOCGIFFLAGS, SIOCGIFHWADDR = 0x8913, 0x8927
IFF_UP = 1

# A block: its header, then packets. These are offsets from its first byte.
BLOCK_STATUS, BLOCK_PACKETS, BLOCK_FIRST = 8, 12, 16
TO_KERNEL, TO_USER = 0, 1  # the lowest bit of the status: who may use the block

# A packet: struct tpacket3_hdr, struct sockaddr_ll, room for alignment, the frame. Offsets from its first byte.
NEXT, SECONDS, NANOSECONDS, CAPTURED, MAC, NET = 0, 4, 8, 12, 24, 26
PROTOCOL, HARDWARE, DIRECTION = 48 + 2, 48 + 8, 48 + 10  # fields of the address
PACKET_HEADER = 48 + 20

OUTGOING = 4  # a direction: sent by this machine
ARPHRD_ETHER, ARPHRD_LOOPBACK = 1, 772
ARPHRD_IEEE80211, ARPHRD_IEEE80211_RADIOTAP = 801, 803
