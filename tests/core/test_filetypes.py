from __future__ import annotations

import bz2
import gzip
import io
import lzma
import struct
import tarfile
import zipfile
from pathlib import Path

import pytest

import packets as p
from commands import Run
from superhosts.core import filetypes
from superhosts.cubefile.container import MAGIC
from superhosts.sources.capture import format_of

FLOWS = "no command reads it: export it as text (nfdump -o csv, rwcut), which scan reads"
NETFLOW = "superhosts scan FILE --format netflow reads it, if its first datagram is whole"
LOGS = "superhosts scan reads it"
TABLES = "name its columns: superhosts scan FILE --format csv --map src=COLUMN,dst=COLUMN,time=COLUMN"
TSHARK = "convert it: tshark -r FILE -w - | superhosts scan -"
EMPTY = "it has no packets"
NOW = 1_700_000_000


def erf_record(size: int = 60) -> bytes:
    return struct.pack("<IIBB", 0, NOW, 2, 4) + struct.pack(">HHH", 18 + size, 0, size) + bytes(2 + size)


def tar() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("a.pcap"))
    return file.getvalue()


def zipped() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.pcap", b"packets")
    return file.getvalue()


BZIP2, ZEEK = bz2.compress(b"x"), b"#separator \\x09\n#set_separator\t,\n"
LOOKS = [  # what a file is called, and its beginning
    ("a sketch (.cube); superhosts hosts asks it, superhosts merge merges it", MAGIC + bytes(20)),
    (f"the beginning of a capture that was cut; {EMPTY}", b"\xd4\xc3\xb2"),
    ("bzip2 data; decompress it: bzip2 -dc FILE | superhosts scan -", BZIP2),
    ("a zip archive; unpack it first: unzip FILE", zipped()),
    ("a tar archive; unpack it first: tar -xf FILE", tar()),
    (
        "a capture in the ERF format; convert it: traceconvert erf:FILE pcapfile:out.pcap (libtrace)",
        erf_record() + erf_record(),
    ),
    (f"a file of nfcapd (nfdump); {FLOWS}", struct.pack("<HH", 0xA50C, 1) + bytes(272)),
    (f"NetFlow v5 datagrams; {NETFLOW}", struct.pack(">HHIII", 5, 30, 1, NOW, 0)),
    (f"NetFlow v9 datagrams; {NETFLOW}", struct.pack(">HHIII", 9, 2, 1, NOW, 0)),
    (f"IPFIX messages; {NETFLOW}", struct.pack(">HHIII", 10, 100, NOW, 1, 0)),
    (f"sFlow datagrams; {NETFLOW.replace('netflow', 'sflow')}", struct.pack(">IIIIII", 5, 1, 1, 1, 1, 1)),
    (f"a Zeek log (tab-separated); {LOGS}", ZEEK),
    (f"a Zeek log (JSON); {LOGS}", b'{"ts":1.5,"uid":"C","id.orig_h":"10.0.0.1"}\n'),
    (f"a Suricata log (EVE); {LOGS}", b'{"timestamp":"2020","event_type":"flow","src_ip":"10.0.0.1"'),
    (f"JSON Lines; {LOGS}", b'{"a": 1}\n{"a": 2}\n'),
    ("a JSON array; make lines of its objects: jq -c '.[]' FILE | superhosts scan -", b'[{"src": "10.0.0.1"}, {"src"'),
    ("text in UTF-16; convert it: iconv -f UTF-16 -t UTF-8", "src,dst\n".encode("utf-16-le").join([b"\xff\xfe", b""])),
    (f"JSON; {EMPTY}", b'{\n "a": [1, 2'),
    (f"an HTML page; {EMPTY}", b"<!DOCTYPE html>\n<html>"),
    (
        "packets as tcpdump prints them; let tcpdump write them: tcpdump -w - | superhosts scan -",
        b"12:00:00.000001 IP 10.0.0.1.53 > 10.0.0.2.99: UDP\n",
    ),
    (
        f"CSV: StartTime, Dur, Proto, SrcAddr, …; {TABLES}",
        b"StartTime,Dur,Proto,SrcAddr,Sport\n2011,1,tcp,10.0.0.1,80\n",
    ),
    (f"CSV: a, b, c; {TABLES}", b"\xef\xbb\xbfa;b;c\n1;2;3\n"),
    (f"a tab-separated table: src, dst, port; {TABLES}", b"src\tdst\tport\n1\t2\t3\n"),
    (f"text; {filetypes.TEXTS}", b"this is not a capture"),
    (f"text; {filetypes.TEXTS}", "ü".encode()[:1].join([b"plain ", b""])),
    ("zeros, and nothing else at its beginning", bytes(4096)),
    ("binary data of no known kind (it starts with the bytes a1 b2 c3 d5 61 62 63)", b"\xa1\xb2\xc3\xd5abc"),
    ("binary data of no known kind (it starts with the bytes 1b 5b 32 4a 68 65 6c 6c)", b"\x1b[2Jhello"),
]


@pytest.mark.parametrize(("words", "data"), LOOKS)
def test_a_file_that_is_no_capture_is_called_by_its_kind(words: str, data: bytes) -> None:
    assert filetypes.not_a_capture(data) == f"not a capture: it looks like {words}"
    assert filetypes.not_a_capture(data[:3]).startswith("not a capture: it looks like ")  # a pipe with few bytes


def test_what_is_compressed_is_said_and_the_name_is_quoted() -> None:
    text = filetypes.not_a_capture(BZIP2, "day 1.bz2")
    assert text.endswith("bzip2 -dc 'day 1.bz2' | superhosts scan -")
    zeek = filetypes.not_a_capture(ZEEK, "conn.log.gz", "gzip")
    assert zeek == f"not a capture: it looks like a Zeek log (tab-separated), compressed (gzip); {LOGS}"
    twice = filetypes.not_a_capture(lzma.compress(b"x"), "x.pcap.xz.gz", "gzip")
    way = "decompress it once: gzip -dc x.pcap.xz.gz | superhosts scan -"
    assert twice == f"not a capture: it looks like xz data inside gzip; {way}"


def test_a_file_that_is_no_sketch_has_a_name(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for data, words in (
        (b"", "it is empty"),
        (p.pcap([]), "it looks like a capture (pcap); superhosts scan reads it"),
        (p.section(), "it looks like a capture (pcapng); superhosts scan reads it"),
        (gzip.compress(p.pcap([])), "it looks like gzip data; if it is a capture, superhosts scan reads it"),
        (ZEEK, "it looks like a Zeek log (tab-separated)"),
        (b"hello", "it looks like text"),
    ):
        assert filetypes.not_a_sketch(data) == f"not a .cube file: {words}"
    Path("x").write_bytes(data)
    for arguments in (("hosts", "x"), ("explain", "x", "10.0.0.1"), ("merge", "x", "-o", "all.cube")):
        ended = run(*arguments)
        assert (ended.status, ended.err.splitlines()[0]) == (3, f"superhosts: x: not a .cube file: {words}")


def test_the_magic_numbers_are_those_of_the_readers() -> None:
    for magic in (*filetypes.PCAP, filetypes.PCAPNG):
        assert format_of(magic + bytes(20)) is not None
        assert filetypes.not_a_sketch(magic).endswith("superhosts scan reads it")


def test_a_list_of_pairs_is_a_table_and_sentences_are_not() -> None:
    assert "it looks like CSV: a, b; name its columns: superhosts scan pairs.csv" in filetypes.not_a_capture(
        b"a,b\nx,y\n", "pairs.csv"
    )
    assert "it looks like a tab-separated table" in filetypes.not_a_capture(b"a\tb\nx\ty\n")
    for text in (b"hello, world\ngood, bye\n", b"one,two\n", b"hello\nworld\n", b"a,b\nx\n"):
        assert filetypes.not_a_capture(text).startswith("not a capture: it looks like text; ")
