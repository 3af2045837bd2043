"""From a captured frame to two addresses: the part that every capture format shares.

A packet ends in exactly one of five counters, so that none is lost in silence: ipv4, ipv6, not_ip, truncated (the
captured bytes do not reach both addresses) or unsupported_link. Only where the outermost and the innermost header are
both wanted, a packet in a tunnel is two rows, and ipv4 and ipv6 count rows; `packets` counts it once.

Habits that keep the loops fast: each walk has inner loops for runs of usual records (Ethernet and IPv4), which take
half the time of the loop for all records because their few variables stay in registers: one for addresses alone, one
for runs that want more. A function that takes an array and branches costs two atomic operations for the array's
reference count, which is more than all the rest; so what runs for every packet either does not branch or takes numbers
only. `ip_header` and `find_headers`, which do both, are left for unusual frames. They take no other array than the
block and return numbers.

Whoever calls a function here has checked that `start` and `end` lie inside the block; everything read lies between
them.
"""
