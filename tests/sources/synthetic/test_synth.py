"""Synthetic traffic: as many flows, packets and super hosts as asked, the same for the same seed, in time order."""

from __future__ import annotations

import ipaddress
from typing import Any

import numpy as np
import pytest

from superhosts.core.units import SECOND
from superhosts.errors import UsageError
from superhosts.sources.synthetic import traffic as synth_model
from superhosts.sources.synthetic.source import SyntheticSource
from superhosts.sources.synthetic.traffic import Traffic, packet_blocks, window_flows, window_hosts, window_packets

SMALL = Traffic(flows=30_000, packets=90_000, super_hosts=8, windows=2)
BOTH = Traffic(flows=60_000, packets=400_000, super_hosts=9, windows=2, family="both", seed=5)


def keys(addresses: np.ndarray[Any, Any]) -> list[Any]:
    """Addresses as hashable Python values."""
    return addresses.tolist() if addresses.ndim == 1 else [tuple(row) for row in addresses.tolist()]


def address(key: Any) -> Any:
    return ipaddress.IPv4Address(key) if isinstance(key, int) else ipaddress.IPv6Address(key[0] << 64 | key[1])


@pytest.mark.parametrize("family", [4, 6])
def test_same_seed_same_traffic_other_seed_other_traffic(family: Any) -> None:
    make = [Traffic(flows=20_000, packets=50_000, super_hosts=5, windows=2, family=family, seed=s) for s in (7, 7, 8)]
    arrays = [(*window_flows(t, 1), window_packets(t, 1), window_packets(t, 1, "shuffled")) for t in make]
    for one, same, other in zip(*arrays, strict=True):
        assert np.array_equal(one, same)
        assert not np.array_equal(one, other)


def test_traffic_does_not_depend_on_the_number_of_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = window_flows(SMALL, 0)
    for threads in ("1", "3"):
        monkeypatch.setenv("SUPERHOSTS_THREADS", threads)
        assert all(map(np.array_equal, expected, window_flows(SMALL, 0)))


def test_windows_differ_but_hosts_stay() -> None:
    (first, first_sizes), (second, _) = window_hosts(SMALL, 0), window_hosts(SMALL, 1)
    assert not np.array_equal(window_flows(SMALL, 0)[1], window_flows(SMALL, 1)[1])
    assert len(np.intersect1d(first, second)) > 0.8 * min(len(first), len(second))
    planted = synth_model.kinds_of(first_sizes, 8) >= synth_model.SWEEP
    assert planted.sum() == 2
    assert not np.isin(first[planted], second).any()  # a scanner of this window is not there in the next


@pytest.mark.parametrize(
    "traffic",
    [
        SMALL,
        BOTH,
        Traffic(flows=1, packets=1, super_hosts=0),
        Traffic(flows=2, packets=2, super_hosts=0, family="both"),
        Traffic(flows=7, packets=200, super_hosts=0, family=6),
        Traffic(flows=1200, packets=1200, super_hosts=1),  # one host of 1024 peers hardly fits
        Traffic(flows=40_000, packets=50_000, super_hosts=4, family=6),
    ],
)
def test_counts_are_as_asked_and_pairs_are_distinct(traffic: Traffic) -> None:
    flows = packets = supers = 0
    for family in traffic.families:
        hosts, peers = window_flows(traffic, 0, family)
        pairs = list(zip(keys(hosts), keys(peers), strict=True))
        assert len(set(pairs)) == len(pairs)
        flows += len(pairs)
        trains, shuffled = (np.bincount(window_packets(traffic, 0, o, family)) for o in ("trains", "shuffled"))
        assert np.array_equal(trains, shuffled)
        assert len(trains) == len(pairs)
        assert trains.min() >= 1
        packets += int(trains.sum())
        every, sizes = window_hosts(traffic, 0, family)
        counted: dict[Any, int] = {}
        for host, _ in pairs:
            counted[host] = counted.get(host, 0) + 1
        assert counted == dict(zip(keys(every), sizes.tolist(), strict=True))
        supers += sum(size >= 1024 for size in counted.values())
        inside = synth_model.INNER[family]
        assert all(address(host) in inside for host in counted)
        assert not any(address(peer) in inside for peer in set(keys(peers)))
    assert (flows, packets, supers) == (traffic.flows, traffic.packets, traffic.super_hosts)


@pytest.mark.slow
def test_super_hosts_are_as_many_as_asked() -> None:
    for flows, supers in ((100_000, 20), (30_000, 20), (1_000_000, 20), (5_000_000, 600), (5_000_000, 360)):
        for seed in (1, 2):
            _, sizes = window_hosts(Traffic(flows=flows, packets=flows, super_hosts=supers, seed=seed), 0)
            assert (sizes.sum(), (sizes >= 1024).sum()) == (flows, supers)
            assert sizes.min() >= 1
            assert np.mean(sizes == 1) > 0.1  # many hosts are as small as can be: the addresses last for all of them


@pytest.mark.slow
def test_host_sizes_have_the_tail_of_the_model() -> None:
    _, sizes = window_hosts(Traffic(flows=50_000_000, packets=50_000_000, super_hosts=3700), 0)
    q = (200_000 / 1024) ** -1.05
    assert sizes.max() <= 200_000
    for size in (300, 512, 1024, 2048, 8192, 32768):
        expected = 3700 * ((size / 1024) ** -1.05 - q) / (1 - q)
        assert (sizes >= size).sum() == pytest.approx(expected, rel=0.02, abs=2)


def test_packets_of_flows_are_heavy_tailed() -> None:
    counts = np.bincount(window_packets(Traffic(), 0))
    assert np.mean(counts == 1) > 0.3
    assert np.median(counts) <= 3
    assert np.sort(counts)[-1000:].sum() > 0.35 * counts.sum()  # one flow in a hundred carries a third of the packets


@pytest.mark.slow
def test_some_outer_hosts_are_popular_and_addresses_have_structure() -> None:
    traffic = Traffic(flows=1_000_000, packets=1_000_000, super_hosts=60)
    hosts, peers = window_flows(traffic, 0)
    _, counts = np.unique(peers, return_counts=True)
    assert counts.max() > 2000
    assert np.median(counts) == 1
    inner: np.ndarray[Any, Any] = np.unique(hosts)
    assert 8 <= len(np.unique(inner >> 16)) <= 256
    assert len(np.unique(inner >> 8)) < len(inner) / 4  # a uniform choice from 10.0.0.0/8 would hardly share a /24


@pytest.mark.slow
def test_ipv6_hosts_live_in_many_subnets_and_some_share_one() -> None:
    hosts, _ = window_hosts(Traffic(flows=1_000_000, packets=1_000_000, super_hosts=60, family=6), 0)
    subnets: np.ndarray[Any, Any] = np.unique(hosts[:, 0])
    assert 0.75 * len(hosts) < len(subnets) < 0.99 * len(hosts)
    assert len(np.unique(subnets >> np.uint64(16))) > 100  # /48 networks


def test_scanners_and_victims_do_what_they_are_planted_for() -> None:
    traffic = Traffic(flows=100_000, packets=400_000, super_hosts=20)
    hosts, peers = window_flows(traffic, 0)
    every, sizes = window_hosts(traffic, 0)
    kinds = synth_model.kinds_of(sizes, 20)
    counts = np.bincount(window_packets(traffic, 0))
    sent = {int(host): [0, 0] for host in every}
    for block in packet_blocks(traffic):
        for host, place in ((block[0].src, 0), (block[0].dst, 1)):
            for address, count in zip(*np.unique(host, return_counts=True), strict=True):
                if int(address) in sent:
                    sent[int(address)][place] += int(count)
    share = {}
    for kind in (synth_model.SWEEP, synth_model.PROBE, synth_model.VICTIM):
        planted = every[kinds == kind]
        assert len(planted) >= 1
        for host in planted:
            assert (counts[hosts == host] == 1).all()
            share[kind] = sent[int(host)][0] / sum(sent[int(host)])
        steps = np.diff(np.sort(peers[hosts == planted[0]]).astype(np.int64))
        assert (np.mean(steps == 1) > 0.99) == (kind == synth_model.SWEEP)
    assert 0.85 < share[synth_model.SWEEP] < 1
    assert 0.85 < share[synth_model.PROBE] < 1
    assert 0 < share[synth_model.VICTIM] < 0.15


def test_trains_keep_packets_of_a_flow_together() -> None:
    traffic = Traffic(flows=50_000, packets=500_000, super_hosts=5)

    def span(order: Any) -> float:
        """Median distance from first to last packet, over flows of 10 to 60 packets."""
        index = window_packets(traffic, 0, order)
        place = np.arange(len(index))
        first, last = np.full(traffic.flows, len(index)), np.zeros(traffic.flows, np.int64)
        np.minimum.at(first, index, place)
        np.maximum.at(last, index, place)
        counts = np.bincount(index)
        return float(np.median((last - first)[(counts >= 10) & (counts <= 60)]))

    assert span("trains") < 0.1 * traffic.packets
    assert span("shuffled") > 0.7 * traffic.packets
    index = window_packets(traffic, 0)
    assert 0.2 < np.mean(index[1:] == index[:-1]) < 0.8  # bursts, but interleaved


@pytest.mark.parametrize("traffic", [SMALL, BOTH, Traffic(flows=500, packets=1000, super_hosts=0, window_seconds=11)])
def test_source_streams_all_packets_in_time_order(traffic: Traffic) -> None:
    source = SyntheticSource("synth:", traffic)
    length = traffic.window_seconds * SECOND
    assert traffic.first_window % length == 0  # although no multiple of 11 seconds is a start of the year
    assert source.first_time() == traffic.first_window
    latest, packets = -1, [0] * traffic.windows
    first = None
    for block in source.blocks():
        assert 0 < sum(map(len, block)) <= (1 << 17) + 1
        assert len({batch.family for batch in block}) == len(block)
        windows = {int(time // length) for batch in block for time in (batch.time[0], batch.time[-1])}
        assert len(windows) == 1
        packets[windows.pop() - traffic.first_window // length] += sum(map(len, block))
        earliest = min(int(batch.time[0]) for batch in block)
        first = earliest if first is None else first
        assert earliest >= latest
        for batch in block:
            assert batch.time.dtype == np.int64
            assert (np.diff(batch.time) >= 0).all()
            latest = max(latest, int(batch.time[-1]))
    assert first == source.first_time()
    assert packets == [traffic.packets] * traffic.windows
    assert source.position() == source.size() == source.counters.packets
    assert source.counters.ipv4 + source.counters.ipv6 == source.counters.packets
    assert source.counters.ipv6 == (traffic.share(6).packets * traffic.windows if 6 in traffic.families else 0)
    assert latest > traffic.first_window + (traffic.windows - 0.01) * length  # packets fill the window


@pytest.mark.parametrize("family", [4, 6])
def test_source_emits_the_flows_of_the_arrays(family: Any) -> None:
    traffic = Traffic(flows=5000, packets=20_000, super_hosts=2, family=family)
    hosts, peers = window_flows(traffic, 0)
    index = window_packets(traffic, 0)
    emitted = []
    for (batch,) in packet_blocks(traffic):
        emitted += [frozenset(pair) for pair in zip(keys(batch.src), keys(batch.dst), strict=True)]
    assert emitted == [frozenset(pair) for pair in zip(keys(hosts[index]), keys(peers[index]), strict=True)]


def test_impossible_traffic_is_refused() -> None:
    faults: list[tuple[dict[str, Any], str]] = [
        ({"flows": 0}, "flows 0"),
        ({"packets": 99_999}, "too few"),
        ({"windows": 0}, "windows 0"),
        ({"super_hosts": 90}, "90 super hosts need at least 102,400 flows; raise it"),
        ({"super_hosts": -1}, "super_hosts -1"),
        ({"seed": -1}, "seed"),
        ({"family": 5}, "family 5"),
        ({"window_seconds": 0}, "window_seconds"),
        ({"packets": 1 << 31}, "more windows"),
    ]
    for options, message in faults:
        with pytest.raises(UsageError, match=message):
            Traffic(**options)
    with pytest.raises(UsageError, match="window 2"):
        window_flows(SMALL, 2)
    with pytest.raises(UsageError, match="no IPv6"):
        window_flows(SMALL, 0, 6)
    with pytest.raises(UsageError, match="family=4"):
        window_flows(BOTH, 0)
    with pytest.raises(UsageError, match="order"):
        window_packets(SMALL, 0, "sorted")  # type: ignore[arg-type]
