"""Real captures with answers that an independent reader has counted. They run where the folder is present."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pytest

from frames import rows
from places import DATA

REASON = f"no captures in {DATA} (set SUPERHOSTS_DATA)"
EXPECTED: dict[str, Any] = json.loads((DATA / "expected.json").read_text()) if (DATA / "expected.json").exists() else {}
CAPTURES = [name for name, entry in EXPECTED.items() if str(entry.get("fmt", "")).startswith("pcap")]


@pytest.mark.skipif(not CAPTURES, reason=REASON)
@pytest.mark.parametrize("name", CAPTURES)
def test_a_real_capture(name: str) -> None:
    entry = EXPECTED[name]
    found, counters = rows(DATA / name)
    assert counters.packets == entry["packets"]
    assert counters.ipv4 == entry["ipv4"]
    assert counters.ipv6 == entry["ipv6"]
    assert counters.not_ip + counters.truncated == entry["other"]
    assert any("ends inside" in text or "ends early" in text for text in counters.warnings) == entry["truncated"]
    for family in (4, 6):
        pairs = {(src, dst) for kind, src, dst, _ in found if kind == family and src != dst}
        peers: defaultdict[str, set[str]] = defaultdict(set)
        for src, dst in pairs:
            peers[src].add(dst)
            peers[dst].add(src)
        assert len(pairs) == entry[f"pairs{family}"]
        assert len(peers) == entry[f"hosts{family}"]
        top = entry[f"top{family}"]
        assert [len(peers[host]) for host, _ in top] == [count for _, count in top]
        assert sorted(map(len, peers.values()), reverse=True)[: len(top)] == [count for _, count in top]
