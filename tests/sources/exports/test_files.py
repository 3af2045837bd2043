"""Exports in files: files of datagrams, captures of exports, real ones with their exact answers."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import exports as e
import packets as p
import superhosts as sh
from commands import Run
from frames import rows_of
from places import DATA
from superhosts.sources.open import open_inputs
from superhosts.sources.tables.options import TableOptions
from tunnels import udp

FLOW = e.data(256, [e.usual("10.0.0.1", "10.0.0.2"), e.usual("10.0.0.1", "10.0.0.3")])
KNOWN = e.template(256, e.USUAL)
WIDE = e.data(300, [e.wide("2001:db8::1", "2001:db8::2")])
NOON = e.NOON * e.SECOND

Pairs = dict[int, set[tuple[int, int]]]


def datagram(payload: bytes, src: str = "192.0.2.1", port: int = 2055) -> bytes:
    """Return an IPv4 or IPv6 packet with a UDP payload."""
    make, dst = (p.ipv6, "2001:db8::99") if ":" in src else (p.ipv4, "192.0.2.99")
    return make(src, dst, udp(port, payload, 5000))


def capture(*payloads: bytes, src: str = "192.0.2.1") -> list[tuple[int, bytes]]:
    kind = 0x86DD if ":" in src else 0x0800
    return [(NOON + number, p.ethernet(kind, datagram(each, src))) for number, each in enumerate(payloads)]


def read(files: list[Path], format: str | None = None) -> tuple[Pairs, list[Any]]:
    """Return the pairs of files, without those of an address with itself, and the sources."""
    pairs: Pairs = {4: set(), 6: set()}
    sources = open_inputs(files, tables=TableOptions(format))
    for source in sources:
        source.first_time()
    for source in sources:
        for block in source.blocks():
            for batch in block:
                pairs[batch.family] |= {(src, dst) for src, dst, *_ in rows_of(batch) if src != dst}
    return pairs, sources


def counts(files: list[Path], format: str | None = None) -> tuple[int, int]:
    pairs, _ = read(files, format)
    return len(pairs[4]), len(pairs[6])


DATAGRAMS = {
    "v5": [e.version5([e.record5("10.0.0.1", "10.0.0.2")], sequence=each) for each in range(3)],
    "v9": [e.version9(KNOWN, FLOW), e.version9(FLOW, sequence=1)],
    "ipfix": [e.ipfix(e.template(300, e.WIDE, is_ipfix=True), WIDE), e.ipfix(WIDE, sequence=1)],
    "sflow": [e.sflow(e.flow_sample(e.sampled("10.0.0.1", "10.0.0.2")), sequence=each) for each in range(3)],
}


@pytest.mark.parametrize("name", DATAGRAMS)
def test_files_of_datagrams_are_recognised_by_content(tmp_path: Path, name: str) -> None:
    (tmp_path / "plain").write_bytes(b"".join(DATAGRAMS[name]))
    (tmp_path / "packed").write_bytes(gzip.compress(b"".join(DATAGRAMS[name])))
    for file in ("plain", "packed"):
        pairs, [source] = read([tmp_path / file])
        assert len(pairs[4] | pairs[6]) == {"v9": 2}.get(name, 1)
        assert source.counters.exports[0]["datagrams"] == len(DATAGRAMS[name])
        assert source.counters.warnings == []


@pytest.mark.parametrize("name", DATAGRAMS)
@pytest.mark.parametrize("src", ["192.0.2.1", "2001:db8::5"])
def test_captures_of_exports(tmp_path: Path, name: str, src: str) -> None:
    frames = capture(*DATAGRAMS[name], src=src)
    ng = p.section() + p.interface() + b"".join(p.enhanced(time // 1000, frame) for time, frame in frames)
    for content in (p.pcap(frames), p.pcap(frames, magic=p.NANO, order=">"), ng):
        path = tmp_path / "capture"
        path.write_bytes(content)
        pairs, [source] = read([path], "sflow" if name == "sflow" else "netflow")
        assert len(pairs[4] | pairs[6]) == {"v9": 2}.get(name, 1)
        if name != "sflow":
            assert source.counters.exports[0]["exporters"][0]["address"] == src


def test_a_capture_of_exports_that_is_read_as_traffic_says_so(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "capture.pcap"
    path.write_bytes(p.pcap(capture(*DATAGRAMS["v5"] * 3, b"other")))
    ended = run("scan", path, "--json", "--top", 1)
    assert [row["host"] for row in ended.rows] == ["192.0.2.1"]
    assert ended.err.count("--format netflow") == 1
    ended = run("scan", path, "--format", "netflow", "--json", "--top", 1)
    assert [(row["host"], row["sampling"]) for row in ended.rows] == [("10.0.0.1", None)]
    assert "exports" not in ended.err
    path.write_bytes(p.pcap(capture(*DATAGRAMS["v5"], *[b"other"] * 9)))
    assert "--format" not in run("scan", path, "--json").err


def test_a_file_with_templates_serves_the_files_behind_it(tmp_path: Path) -> None:
    (tmp_path / "templates.dat").write_bytes(e.version9(KNOWN))
    (tmp_path / "data.dat").write_bytes(e.version9(FLOW, sequence=1))
    assert counts([tmp_path / "templates.dat", tmp_path / "data.dat"]) == (2, 0)
    for sets, said in ((1, "1 set of records without its"), (2, "2 sets of records without their")):
        (tmp_path / "data.dat").write_bytes(b"".join(e.version9(FLOW, sequence=each) for each in range(sets)))
        pairs, [source] = read([tmp_path / "data.dat"])
        assert not pairs[4]
        [warning] = source.counters.warnings
        assert f"data.dat: {said} template " in warning


@pytest.mark.slow
@pytest.mark.parametrize("name", DATAGRAMS)
def test_a_file_that_is_cut_anywhere_is_read_up_to_there(tmp_path: Path, name: str) -> None:
    content, path = b"".join(DATAGRAMS[name]), tmp_path / "file"
    ends = {sum(map(len, DATAGRAMS[name][:count])) for count in range(len(DATAGRAMS[name]) + 1)}
    for at in sorted({*range(40, len(content) + 1, 3), *(end for end in ends if end > 40)}):
        path.write_bytes(content[:at])
        pairs, [source] = read([path], "sflow" if name == "sflow" else "netflow")
        assert len(pairs[4] | pairs[6]) <= 2
        said = any("ends inside" in warning for warning in source.counters.warnings)
        between_sets = name == "v9" and at not in ends  # such a datagram ends where no set follows
        assert said == (at not in ends) or between_sets, at
        assert source.counters.truncated_files == said


NOISE = bytes(each * 37 % 251 + 1 for each in range(1000))
NAMES = {"netflow": "NetFlow v5, v9 or IPFIX", "ipfix": "NetFlow v5, v9 or IPFIX", "sflow": "sFlow v5"}


@pytest.mark.parametrize("format", NAMES)
def test_a_file_without_an_export_is_an_error(tmp_path: Path, run: Run, format: str) -> None:
    path = tmp_path / "noise.dat"
    for content in (NOISE, NOISE[:5], gzip.compress(NOISE)):
        path.write_bytes(content)
        ended = run("scan", path, "--format", format)
        assert ended.status == 3
        assert f"{path}: it does not begin with a whole datagram of {NAMES[format]}: it looks like binary" in ended.err
        assert "warning" not in ended.err


def test_the_error_says_what_to_do_with_the_file_and_the_others_are_read(tmp_path: Path, run: Run) -> None:
    path, good = tmp_path / "file", tmp_path / "flows.dat"
    good.write_bytes(DATAGRAMS["v5"][0])
    other = f"superhosts scan {path} --format sflow reads it, if its first datagram is whole"
    for content, said in (
        (b"a,b,c\n1,2,3\n", f"it looks like CSV: a, b, c; name its columns: superhosts scan {path} --format csv"),
        (b'{"a": 1}\n', "it looks like JSON Lines; superhosts scan reads it without --format\n"),
        (DATAGRAMS["sflow"][0], f"it looks like sFlow datagrams; {other}\n"),
        (DATAGRAMS["v9"][0][:15], "it looks like NetFlow v9 datagrams\n"),
    ):
        path.write_bytes(content)
        ended = run("scan", path, good, "--format", "netflow", "--json", "--top", 1)
        assert (ended.status, [row["host"] for row in ended.rows]) == (3, ["10.0.0.1"])
        assert said in ended.err


@pytest.mark.parametrize("format", ["netflow", "sflow"])
def test_no_file_is_taken_for_one_endless_datagram(tmp_path: Path, format: str) -> None:
    """What has no end that is known is cut into pieces, as room for the records of a datagram is bounded."""
    path = tmp_path / "noise.dat"
    path.write_bytes(NOISE * 3000)
    with pytest.raises(sh.InputError, match="does not begin with"):
        read([path], format)
    many = e.version9(*[e.data(256, [bytes(60_000)])] * 3)
    path.write_bytes(many if format == "netflow" else e.sflow(e.tagged(1, bytes(2_000_000))))
    pairs, [source] = read([path], format)
    assert not pairs[4]
    assert source.counters.exports[0]["damaged"]


@pytest.mark.parametrize("format", NAMES)
def test_a_capture_without_an_export_is_an_error(tmp_path: Path, run: Run, format: str) -> None:
    path = tmp_path / "capture.pcap"
    plain = p.ethernet(0x0800, p.ipv4("10.0.0.1", "10.0.0.2"))  # not UDP
    for frames, said in (
        ([(NOON, plain)] * 3, "none of its 3 packets is an"),
        ([(NOON, plain), *capture(b"other")], "none of its 2 packets is an"),
        (capture(b"other"), "its only packet is not an"),
    ):
        for content in (p.pcap(frames), p.section() + p.interface() + b"".join(p.enhanced(*each) for each in frames)):
            path.write_bytes(content)
            ended = run("scan", path, "--format", format)
            assert ended.status == 3
            assert f"{path}: {said} export of {NAMES[format]}; without --format {format} " in ended.err
    path.write_bytes(p.pcap(capture(*DATAGRAMS["v9" if format == "sflow" else "sflow"])))
    ended = run("scan", path, "--format", format)
    assert f"; --format {'netflow' if format == 'sflow' else 'sflow'} reads its exports" in ended.err
    with pytest.raises(sh.InputError, match=r'; format="(netflow|sflow)" reads its exports'):
        list(sh.scan(path, format=format))


def test_nothing_is_no_error(tmp_path: Path, run: Run) -> None:
    """An empty input, and a capture without packets, are what they are in every format."""
    path = tmp_path / "file"
    for content in (b"", p.pcap([]), p.section() + p.interface()):
        path.write_bytes(content)
        for options in (["--format", "netflow"], []):
            ended = run("scan", path, *options)
            assert (ended.status, "it is empty" in ended.err) == (0, not content)


@pytest.mark.parametrize("time", ["record", "start", "end", "export", "received"])
def test_the_times_of_records(tmp_path: Path, time: str) -> None:
    path = tmp_path / "capture.pcap"
    path.write_bytes(p.pcap([(frame[0] + 2 * e.SECOND, frame[1]) for frame in capture(*DATAGRAMS["v5"][:1])]))
    [source] = open_inputs([path], tables=TableOptions("netflow", time=time))
    [block] = source.blocks()
    expected = {"record": -4, "start": -4, "end": -3, "export": 0, "received": 2}[time]
    assert block[0].time.tolist() == [NOON + expected * e.SECOND]


# Real exports

EXPECTED = json.loads((DATA / "expected.json").read_text()) if (DATA / "expected.json").exists() else {}
REAL = [name for name, entry in EXPECTED.items() if entry.get("fmt") == "flowexport"]
# Entries whose reader dropped data that came before its template, or counted records in place of pairs.
BETTER = {
    "exports-data_templates.pcap": (21, 0),
    "example_flows.ipfix": (3269, 19),
    "exports-sflow-data-1140.pcap": (2, 1),
}


def format_of(name: str) -> str | None:
    return ("sflow" if "sflow" in name else "netflow") if name.endswith((".pcap", ".pcapng")) else None


@pytest.mark.skipif(not REAL, reason="the real exports are not here")
@pytest.mark.parametrize("name", REAL)
def test_real_exports(name: str) -> None:
    entry = EXPECTED[name]
    assert counts([DATA / name], format_of(name)) == BETTER.get(name, (entry["pairs4"], entry["pairs6"]))
