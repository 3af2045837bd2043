"""What every rival must do besides the laws of detectors (`detectors/test_laws.py`): refuse, tell hosts apart, scan."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

import superhosts as sh
from detectors.test_laws import SMALL, content, fed, make
from shapes import zipf
from superhosts import GeometryError, UsageError
from superhosts.cli import app
from superhosts.core.units import parse_size
from superhosts.lab.rivals import RIVALS, dcds, filter, gse, pairsample, rgs, spreadsketch, vbfa

SYNTH = "synth:flows=200k,packets=300k,super_hosts=20,windows=1,seed=1"


@pytest.mark.parametrize("name", RIVALS)
def test_wide_peers(name):
    """Peers of one and of two words; those below 2^32 are the same in every width."""
    shape = zipf()
    wide = shape.peers.astype(np.uint64)
    assert content(fed(name, shape.hosts, wide)) == content(fed(name, shape.hosts, shape.peers))
    two = np.stack([np.zeros_like(wide), wide], axis=1)
    assert content(fed(name, shape.hosts, two)) == content(fed(name, shape.hosts, shape.peers))
    for other in (wide << np.uint64(20), np.stack([wide, wide], axis=1)):
        assert content(fed(name, shape.hosts, other)) != content(fed(name, shape.hosts, shape.peers))


@pytest.mark.parametrize("name", RIVALS)
def test_wrong_arguments_are_refused(name):
    kind = RIVALS[name]
    with pytest.raises(UsageError, match="32-bit hosts"):
        make(name).update(np.zeros((1, 2), np.uint64), np.zeros(1, np.uint64))
    with pytest.raises(UsageError, match="cannot be combined with a geometry"):
        kind("16MiB", **SMALL[name])
    if not kind.runs_on_gpu:
        with pytest.raises(UsageError, match=f"{name} runs on the CPU only; use cpu or auto"):
            kind("1MiB", device="cuda")
    for wrong, words in (({"device": "tpu"}, "unknown device"), ({"threads": 0}, "threads=0")):
        with pytest.raises(UsageError, match=words):
            make(name, **wrong)


# Of DCDS, primes are larger than 2^16; GSE has a table of recent pairs, too.
MEMORIES = {"dcds": (384 << 20) + 11 * 2048, "vbfa": 20 << 20, "gse": 136 << 20, "rgs": (128 << 20) - 1}
SIZED = "dcds", "vbfa", "gse", "filter", "spreadsketch"
DCDS, VBFA, GSE, FILTER, SPREAD = (SMALL[name]["geometry"] for name in SIZED)
WRONG_SIZES = [
    (DCDS._replace(moduli=(65537, 65539, 65539)), "65539 and 65539 are not coprime"),
    (DCDS._replace(moduli=(65535, 65536, 65537)), r"2\^32 or more"),  # 65535·65536 is just below
    (DCDS._replace(moduli=(65537,)), "one for each of the 2 reversible arrays"),
    (DCDS._replace(moduli=(65537, 65539, 1.5)), "whole numbers from 2"),
    (dcds.Geometry(4, (1048573, 1048571, 1048559, 1048549)), r"less than 2\^62"),
    (DCDS._replace(column_bits=5), "column_bits=5"),
    (VBFA._replace(index_bits=7), "index_bits=7: must be a whole number from 8 to 16"),
    (VBFA._replace(validating_bits=21), "validating_bits=21"),
    (GSE._replace(vector_bits=19), "vector_bits=19: must be at most array_bits=18"),
    (FILTER._replace(words=1 << 27), "words=134217728: must be a whole number"),
    (SPREAD._replace(rows=0), "rows=0"),
    (pairsample.Geometry(3), "pairs=3"),
    (rgs.Geometry(1, 5), "groups=1"),
]


def test_sizes_are_those_of_the_papers_and_are_checked():
    for name, kind in RIVALS.items():
        assert kind(device="cpu").geometry == kind.geometry_type()
        assert kind.geometry_type().memory == MEMORIES.get(name, 128 << 20)
        with pytest.raises(GeometryError, match=f"too small for {name}"):
            kind(100)
    for geometry, rule in WRONG_SIZES:
        kind = next(each for each in RIVALS.values() if each.geometry_type is type(geometry))
        with pytest.raises(GeometryError, match=rule):
            kind(geometry=geometry)
    assert [vbfa.Geometry.reading(name).memory >> 20 for name in ("published", "long", "wide")] == [20, 160, 160]
    with pytest.raises(UsageError, match="one of"):
        vbfa.Vbfa(reading="short")
    with pytest.raises(UsageError, match="reading=wide cannot be combined with a memory"):
        vbfa.Vbfa("20MiB", reading="wide")


FOR_MEMORY = [  # sizes for a memory and a threshold
    ("16MiB", 1024, dcds.Geometry(2, dcds.MORE_PRIMES, 9)),  # 512·ln 512 = 3194
    ("383MiB", 1024, dcds.Geometry(2, dcds.MORE_PRIMES, 13)),
    ("2MiB", 80, dcds.Geometry(2, dcds.MORE_PRIMES, 6)),
    ("1MiB", 1024, vbfa.Geometry(11, 13, 9)),
    ("40MiB", 1024, vbfa.Geometry(15, 17, 10)),
    ("1MiB", 100, vbfa.Geometry(13, 15, 7)),
    ("1MiB", 1024, gse.Geometry(23, 12, 13)),
    ("1MiB", 1025, gse.Geometry(23, 13, 13)),
    ("1MiB", 10, gse.Geometry(23, 6, 13)),
    ("1MiB", 300.5, filter.Geometry(65536, 4, 32768, 300)),
    ("1MiB", 1024, spreadsketch.Geometry(4, 4096, 3, 79)),  # 4·290·ln 290 = 6577
    ("1MiB", 2193, spreadsketch.Geometry(4, 4096, 4, 89)),
    ("1MiB", 20_000, spreadsketch.Geometry(4, 4096, 8, 49)),
    ("1MiB", 1e9, spreadsketch.Geometry(4, 4096, 16, 26)),
    (100 * 1024, 1024, rgs.Geometry(groups=13312, buckets=560)),
    ("1MiB", 1024, pairsample.Geometry(1 << 17)),
]


@pytest.mark.parametrize(("memory", "threshold", "geometry"), FOR_MEMORY)
def test_sizes_follow_from_the_memory_and_the_threshold(memory, threshold, geometry):
    kind = next(each for each in RIVALS.values() if each.geometry_type is type(geometry))
    rival = kind.for_scan(threshold, memory=memory, device="cpu")
    assert rival.geometry == geometry
    assert geometry.memory <= 17 / 16 * parse_size(memory) + 4 * 15 * geometry.memory / 4 / 65536  # a table; primes
    assert kind.geometry_type.for_memory(memory, threshold) == geometry
    assert rival.estimate("192.0.2.1").peers == 0


def test_a_memory_too_small_for_the_threshold_is_refused_before_a_scan():
    with pytest.raises(GeometryError, match="memory 8 MiB is too small for dcds: use 16 MiB or more"):
        list(sh.scan(SYNTH, detector="dcds", memory="8MiB", threshold=1024))
    assert len(list(sh.scan(SYNTH, detector="dcds", memory="8MiB", threshold=300))) == 1


def test_a_filter_knows_its_threshold_beforehand():
    rival = filter.Filter("1MiB", threshold=500.5)
    with pytest.raises(UsageError, match="threshold 400: this filter lists only hosts with at least 500 peers"):
        rival.super_hosts(400)
    assert len(rival.super_hosts(500)) == 0
    for threshold in (0, float("nan"), float("inf")):
        with pytest.raises(UsageError, match="threshold"):
            filter.Filter("1MiB", threshold=threshold)


CROWDED = {
    "gse": gse.Geometry(array_bits=17, vector_bits=9, table_bits=8),
    "filter": filter.Geometry(words=4096, rows=4, counters=64, threshold=1),
    "spreadsketch": spreadsketch.Geometry(rows=4, buckets=64),
    "pairsample": pairsample.Geometry(4000),
    "rgs": rgs.Geometry(groups=1300, buckets=56),
}


@pytest.mark.parametrize("name", CROWDED)
def test_intervals_hold_in_crowded_sketches(name):
    """As published, DCDS ignores the noise of other hosts and VBFA removes that of two arrays: theirs do not hold."""
    for peers, hosts in ((10, 3000), (150, 200)):
        rng = np.random.default_rng(peers)
        known = np.unique(rng.integers(0, 1 << 32, hosts, dtype=np.uint32))
        rival = RIVALS[name](geometry=CROWDED[name], device="cpu")
        pairs = rng.permutation(np.repeat(known, peers))
        rival.update(pairs, rng.integers(0, 1 << 32, len(pairs), dtype=np.uint32))
        rows = rival.estimate_many(known)
        held = (rows.peers_low <= peers) & ((peers <= rows.peers_high) | rows.saturated)
        assert held.mean() > 0.9
        assert (rows.peers != peers).any()


@pytest.mark.parametrize("name", RIVALS)
def test_a_scan_may_name_a_rival(name):
    (window,) = sh.scan(SYNTH, detector=name, memory="16MiB", threshold=1024, device="cpu", keep_sketch=True)
    (exact,) = sh.scan(SYNTH, detector="exact", threshold=1024, families=[4])
    found, true = ({str(row.host) for row in rows} for rows in (window, exact))
    assert {row.detector for row in window} == {name}
    assert len(found & true) >= 0.8 * len(true) >= 10
    with pytest.raises(
        UsageError, match=f"{name} has no files: only cube, cbaa, cbaa-paper, exact, stream can be saved"
    ):
        window.sketch.to_bytes()


@pytest.mark.slow
def test_a_scan_with_a_rival_has_the_windows_of_others(tmp_path):
    sh.synth(tmp_path / "a.pcap", flows="20k", packets="40k", super_hosts=3, windows=2, seed=2)
    slid = {"window": "5m", "slide": "150s", "threshold": 1024, "ipv4_prefix": 24}
    ours, theirs = (
        [
            (window.window, [(str(row.host), row.peers) for row in window])
            for window in sh.scan(tmp_path / "a.pcap", detector=name, families=[4], **slid)
        ]
        for name in ("pairsample", "exact")
    )
    assert ours == theirs
    assert len(ours) >= 3
    with pytest.raises(UsageError, match="windows that overlap are merged from panes, which rgs cannot do"):
        sh.scan(tmp_path / "a.pcap", detector="rgs", **slid)
    with pytest.raises(UsageError, match="one of auto, cube, cbaa, cbaa-paper, exact, stream, dcds, vbfa"):
        sh.scan(tmp_path / "a.pcap", detector="nobody")
    with pytest.raises(UsageError, match="rgs runs on the CPU only"):
        sh.scan(tmp_path / "a.pcap", detector="rgs", device="cuda")


def test_commands_that_need_files_refuse_rivals(tmp_path):
    cases = {
        "--save: not with --detector gse: it has no files; only cube, cbaa, cbaa-paper, exact, stream can be saved": [
            *("scan", "--save", str(tmp_path / "saved"), "synth:")
        ],
        "--detector gse: a hub merges cube, cbaa, cbaa-paper": ["hub", "--from", str(tmp_path)],
        "--detector gse: workers merge cube, cbaa, cbaa-paper, exact": [
            *("batch", "--local-cluster", "--site", "ams", "--save", str(tmp_path), str(tmp_path))
        ],
    }
    for words, command in cases.items():
        ended = CliRunner().invoke(app, [*command, "--detector", "gse"])
        assert words in f"{ended.exception} {ended.output}", words
