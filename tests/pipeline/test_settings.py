"""Settings: what is refused, which parts and how much memory they mean, and filters in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from superhosts.core.lens import parse_ports, parse_protocols
from superhosts.errors import UsageError
from superhosts.pipeline.settings import MOST_PANES, Settings

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"peers": ("all",)}, "one of any, opened, answered, unanswered"),
    ({"count": "peers"}, "one of hosts, ports, host-ports"),
    ({"by": "port"}, "one of address, address-port"),
    ({"tunnels": "all"}, "one of outer, inner, both"),
    ({"threshold": float("nan")}, "threshold nan: must be a number of peers, at least 1"),
    ({"memory": "1MiB", "memory_total": "1MiB", "threads": 1}, 'memory_total="1MiB": this scan may reach 11 MiB'),
    ({"memory": "lots", "memory_total": "1MiB"}, "memory: 'lots' is not a size"),
    ({"memory_total": "lots"}, "memory_total: 'lots' is not a size"),
    ({"window": "5x"}, "window: '5x' is not a duration; write it like 90s, 5m, 1h or 30d, or all"),
    ({"watch": "inner,sideways"}, 'watch="sideways": one of inner, outer'),
    (
        {"by": "address-port", "ipv6_prefix": 128},
        'by="address-port" and ipv6_prefix=128: a sketch has 128 bits for a host, and the port takes 16 of them; '
        "take ipv6_prefix=112 or less",
    ),
    ({"by": "address-port", "detector": "cbaa"}, ", not with cbaa"),
    ({"evidence": True, "evidence_pairs": 5}, "evidence_pairs=5: take from 1,024 to 4,194,304"),
    ({"evidence_pairs": 2048}, "evidence_pairs=2048: only with evidence"),
    ({"window": "5m", "slide": "2m"}, 'slide="2m": the window (5m) has to be a multiple of it'),
    ({"window": "5m", "slide": "10m"}, 'slide="10m": the window (5m) has to be a multiple of it'),
    ({"window": "all", "slide": "1m"}, 'slide="1m": not with window="all"'),
    ({"window": "5m", "slide": "soon"}, "slide: 'soon' is not a duration"),
    ({"window": "30d", "slide": "1s"}, f"a window has at most {MOST_PANES:,} panes, and 30d would have 2,592,000"),
    ({"window": "5m", "slide": "30s", "memory_total": "1GiB"}, "in 16 sketches of panes and unions"),
]


@pytest.mark.parametrize(("settings", "words"), REFUSED)
def test_bad_settings_name_the_option(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as raised:
        Settings(**settings)
    assert words in str(raised.value)


def test_words_may_stand_in_one_text_as_in_a_command() -> None:
    settings = Settings(inner="10.0.0.0/8", watch="inner,outer", direction="in, out", peers="opened,unanswered")
    words = settings.watch, settings.direction, settings.peers
    assert words == (("inner", "outer"), ("in", "out"), ("opened", "unanswered"))


def test_memory_total_counts_every_part_once() -> None:
    common: dict[str, Any] = {"memory": "4MiB", "inner": ["10.0.0.0/8"], "threads": 1}
    both = 2 * (4 + 2 + 4) << 20  # two families: cube, waiting pairs, a thread's caches
    assert Settings(**common).most_memory == both
    assert Settings(**common, watch=["inner", "inner"]).most_memory == both
    assert Settings(**common, watch=["inner", "outer"], direction=["out", "in"]).most_memory == 4 * both
    Settings(**common, memory_total="20MiB")


def test_memory_and_panes() -> None:
    plain, sliding = Settings(window="5m"), Settings(window="5m", slide="30s")
    assert (plain.panes, plain.slides, plain.most_sketches) == (1, False, 1)
    assert (sliding.panes, sliding.slides, sliding.most_sketches) == (10, True, 16)
    # Panes have, or had, pairs that wait for half as much memory again.
    assert sliding.most_memory - plain.most_memory == (10 * 3 // 2 + 5) * len(plain.parts) * plain.cube_memory
    assert not Settings(window="4m", slide="4m").slides  # such windows lie side by side
    assert "slide" not in plain.fingerprint
    assert sliding.fingerprint["slide"] == "30s"


def test_the_usual_threshold() -> None:
    peers = [Settings(**options).selection.threshold for options in ({}, {"top": 5}, {"top": 5, "threshold": 10})]
    assert peers == [1024, None, 10]


def test_filters_in_words() -> None:
    for options, words in (
        ({}, ""),
        ({"proto": ("17", "TCP")}, "tcp,udp"),
        ({"port": ("443", "80-82", "82-90")}, "port 80-90,443"),
        ({"proto": ("99",), "port": ("0",), "tunnels": "both"}, "99 port 0 tunnels both"),
        ({"tunnels": "outer"}, ""),
    ):
        assert {part.filter for part in Settings(**options).parts} == {words}
    long = {Settings(port=tuple(map(str, range(start, 65536, 2)))).filter for start in (0, 1, 3)}
    assert [len(words) for words in long] == [17, 17, 17]  # short, and different


@pytest.mark.skipif(not Path("/etc/services").exists(), reason="no /etc/services, which has the names of ports")
def test_a_port_may_be_named() -> None:
    assert {part.filter for part in Settings(port=("https", "80")).parts} == {"port 80,443"}


def test_protocols_and_ports_are_read() -> None:
    assert parse_protocols(["TCP", "47", "icmp6"]) == {6, 47, 58}
    assert parse_ports(["80", "8000-8002", "0"]) == {0, 80, 8000, 8001, 8002}
    for wrong in ("x", "256", "-1", "", "６"):
        with pytest.raises(UsageError, match="proto"):
            parse_protocols([wrong])
    for wrong in ("65536", "9-8", "-", "8-", "", "no-such-service"):
        with pytest.raises(UsageError, match="port"):
            parse_ports([wrong])
