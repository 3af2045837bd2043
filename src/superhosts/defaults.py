"""Values that apply when nobody gives others. Every command, setting and detector takes them from here."""

from __future__ import annotations

THRESHOLD = 1024  # peers of a super host
WINDOW = "5m"
MEMORY = "128MiB"  # of one sketch
FLOWS = 5_000_000  # distinct pairs of a window, where a plan is made without a number
IPV6_PREFIX = 64  # bits of an IPv6 address that make a host
