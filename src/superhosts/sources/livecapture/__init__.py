"""Packets of a network interface, straight from the kernel: `live:eth0`.

The kernel writes the heads of packets into a ring of blocks that this process maps into its memory (AF_PACKET with
TPACKET_V3), and compiled code walks the blocks. Nothing is copied or called for each packet. `source.py` parses names
and makes a source of a ring, `ring.py` opens rings and walks them, `bpf.py` compiles filters.
"""
