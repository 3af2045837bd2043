"""What a file looks like that is not what a command reads: a log given to `scan`, a capture given to `merge`.

The first bytes are compared with the kinds of `KINDS`, from the top. This never fails: bytes of no known kind are
described as text or as binary data. The result is a guess that error messages show; nothing else depends on it.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from typing import NamedTuple

from superhosts.core.files import SKETCH

PCAPNG = b"\x0a\x0d\x0d\x0a"
PCAP = (  # with microseconds, with nanoseconds, and modified; each in both byte orders
    b"\xa1\xb2\xc3\xd4",
    b"\xd4\xc3\xb2\xa1",
    b"\xa1\xb2\x3c\x4d",
    b"\x4d\x3c\xb2\xa1",
    b"\xa1\xb2\xcd\x34",
    b"\x34\xcd\xb2\xa1",
)

# What to do with a file of a kind if a capture is wanted; {file} is its name as a shell takes it.
_NO_FLOWS = "no command reads it: export it as text (nfdump -o csv, rwcut), which scan reads"
_EXPORTS = "superhosts scan {{file}} --format {format} reads it, if its first datagram is whole"
_NETFLOW, _SFLOW = _EXPORTS.format(format="netflow"), _EXPORTS.format(format="sflow")
_SCAN = "superhosts scan reads it"
_MAPPED = "name its columns: superhosts scan {file} --format csv --map src=COLUMN,dst=COLUMN,time=COLUMN"
_NO_TABLES = "no command reads it: export it as Parquet or CSV"
_NO_PACKETS = "it has no packets"
_TSHARK = "convert it: tshark -r {file} -w - | superhosts scan -"
_UNPACK = "unpack it first"
TEXTS = "scan reads text as CSV, TSV, JSON Lines or a log that --format names, with --map for its columns"

_COLUMNS_SHOWN = 4
_MOST_QUOTED = 60  # characters of the names of columns
_ERF_HEADER = 16  # bytes
_EARLIEST = 631_152_000  # seconds: 1990
_FEWEST_FIELDS = 3  # of a line that looks like a table

Recognises = Callable[[bytes], bool]


class Kind(NamedTuple):
    name: str
    starts: tuple[bytes, ...] | Recognises
    way: str = ""


def not_a_capture(head: bytes, file: str = "", compression: str = "") -> str:
    """Say what a file is instead of a capture, by its (decompressed) first bytes, and what to do with it.

    Commands have the name of the file, or FILE without one (standard input).
    """
    return f"not a capture: {_looks(_kind_of(head), file, compression)}"


def not_exports(head: bytes, wanted: str, format: str, file: str = "", compression: str = "") -> str:
    """Say what a file is instead of the datagrams of --format, which people call `wanted`; as `not_a_capture` does."""
    kind = _kind_of(head)
    if kind.way == _SCAN:
        kind = kind._replace(way=f"{_SCAN} without --format")
    elif kind.way == (_SFLOW if format == "sflow" else _NETFLOW):  # The beginning of a datagram, and no more.
        kind = kind._replace(way="")
    return f"it does not begin with a whole datagram of {wanted}: {_looks(kind, file, compression)}"


def _looks(kind: Kind, file: str, compression: str) -> str:
    name, way = kind.name, kind.way
    if kind in COMPRESSED and compression:
        name = f"{name} inside {compression}"
        way = f"decompress it once: {compression} -dc {{file}} | superhosts scan -"
    elif compression:
        name = f"{name}, compressed ({compression})"
    text = f"it looks like {name}" + (f"; {way}" if way else "")
    return text.replace("{file}", shlex.quote(file) if file else "FILE")


def not_a_sketch(head: bytes) -> str:
    kind, text = _kind_of(head), "not a .cube file: "
    if not head:
        return f"{text}it is empty"
    if kind in CAPTURES:
        return f"{text}it looks like {kind.name}; {kind.way}"
    if kind in COMPRESSED:
        return f"{text}it looks like {kind.name}; if it is a capture, superhosts scan reads it"
    return f"{text}it looks like {kind.name}"


def _kind_of(head: bytes) -> Kind:
    kind = next(
        (
            kind
            for kind in KINDS
            if (head.startswith(kind.starts) if isinstance(kind.starts, tuple) else kind.starts(head))
        ),
        None,
    )
    if kind is None:
        return Kind("text", (), TEXTS) if _text(head) is not None else Kind(_unknown(head), ())
    return kind._replace(name=f"{kind.name}: {_columns(head)}") if kind.name in TABLES else kind


def _number(head: bytes, at: int, size: int) -> int:
    return int.from_bytes(head[at : at + size], "big")


def _is_export(version: int, time_at: int, least: int, most: int = 0xFFFF) -> Recognises:
    """Return a test for exports of a version: records or bytes from `least` to `most`, then a plausible time."""
    return lambda head: (
        _number(head, 0, 2) == version
        and least <= _number(head, 2, 2) <= most
        and _number(head, time_at, 4) > _EARLIEST
    )


def _is_erf(head: bytes) -> bool:
    """Return True if two records follow each other: time, type and length of a record are plausible in both."""
    length = _number(head, 10, 2)
    return length >= _ERF_HEADER and _is_erf_record(head) and _is_erf_record(head[length:])


def _is_erf_record(record: bytes) -> bool:
    seconds = int.from_bytes(record[4:8], "little")
    return (
        len(record) >= _ERF_HEADER
        and seconds > _EARLIEST
        and 1 <= record[8] & 0x7F <= 48
        and _number(record, 10, 2) >= _ERF_HEADER
    )


def _has_fields(*names: bytes) -> Recognises:
    """Return a test for a JSON object with these fields near its beginning."""
    return lambda head: head.lstrip()[:1] == b"{" and all(b'"%b"' % name in head for name in names)


def _is_json_lines(head: bytes) -> bool:
    first, newline, _ = head.partition(b"\n")
    try:
        return bool(newline) and isinstance(json.loads(first), dict)
    except (ValueError, RecursionError):
        return False


def _begins(pattern: bytes) -> Recognises:
    return lambda head: re.match(pattern, head) is not None and _text(head) is not None


def _is_table(head: bytes, separator: str) -> bool:
    """Return True if the first two lines have the same number of fields; one line is enough where there is no other.

    Two fields are a list of pairs, or a sentence: that has one line, or a blank behind its comma.
    """
    lines = (_text(head) or "").splitlines()[:2]
    fields = {line.count(separator) + 1 for line in lines}
    if len(fields) != 1:
        return False
    are_pairs = fields == {2} and len(lines) == 2 and not any(f"{separator} " in line for line in lines)
    return are_pairs or fields.pop() >= _FEWEST_FIELDS


def _text(head: bytes) -> str | None:
    """Return the first bytes as text, None if they are none. A character that is cut at the end is left out."""
    try:
        text = head.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 3:
            return None
        text = head[: error.start].decode("utf-8-sig")
    return text if all(letter.isprintable() or letter in "\t\r\n\f" for letter in text) else None


def _columns(head: bytes) -> str:
    first = (_text(head) or "").split("\n", 1)[0].strip()
    names = [name.strip().strip('"') for name in re.split("[,;\t]", first)]
    shown = ", ".join(names[:_COLUMNS_SHOWN])[:_MOST_QUOTED]
    return shown + (", …" if len(names) > _COLUMNS_SHOWN else "")


def _unknown(head: bytes) -> str:
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "text in UTF-16; convert it: iconv -f UTF-16 -t UTF-8"
    if not any(head):
        return "zeros, and nothing else at its beginning"
    return f"binary data of no known kind (it starts with the bytes {head[:8].hex(' ')})"


CAPTURES = [Kind("a capture (pcap)", PCAP, _SCAN), Kind("a capture (pcapng)", (PCAPNG,), _SCAN)]
COMPRESSED = [  # those that commands decompress
    Kind("gzip data", (b"\x1f\x8b",)),
    Kind("zstd data", (b"\x28\xb5\x2f\xfd",)),
    Kind("xz data", (b"\xfd7zXZ\0",)),
]
TABLES = ("CSV", "a tab-separated table")  # the names of their columns are shown
KINDS = [
    Kind(
        "the beginning of a capture that was cut",
        lambda head: 1 < len(head) < 4 and any(magic.startswith(head) for magic in (*PCAP, PCAPNG)),
        _NO_PACKETS,
    ),
    Kind("a sketch (.cube)", (SKETCH,), "superhosts hosts asks it, superhosts merge merges it"),
    *CAPTURES,
    *COMPRESSED,
    Kind("bzip2 data", (b"BZh",), "decompress it: bzip2 -dc {file} | superhosts scan -"),
    Kind("lz4 data", (b"\x04\x22\x4d\x18",), "decompress it: lz4 -dc {file} | superhosts scan -"),
    Kind("compressed data (.Z)", (b"\x1f\x9d",), "decompress it: gzip -dc {file} | superhosts scan -"),
    Kind("a zip archive", (b"PK\3\4", b"PK\5\6"), f"{_UNPACK}: unzip {{file}}"),
    Kind("a 7z archive", (b"7z\xbc\xaf\x27\x1c",), f"{_UNPACK}: 7z x {{file}}"),
    Kind("a rar archive", (b"Rar!\x1a\x07",), f"{_UNPACK}: unrar x {{file}}"),
    Kind("a tar archive", lambda head: head[257:262] == b"ustar", f"{_UNPACK}: tar -xf {{file}}"),
    Kind("a capture in the snoop format", (b"snoop\0\0\0",), _TSHARK),
    Kind("a capture of Bluetooth (btsnoop)", (b"btsnoop\0",), "it has no IP packets"),
    Kind("a capture of Microsoft Network Monitor", (b"GMBU", b"RTSS"), _TSHARK),
    Kind("a capture of a Sniffer", (b"TRSNIFF data    \x1a", b"XCP\0"), _TSHARK),
    Kind("a capture of iptrace", (b"iptrace 1.0", b"iptrace 2.0"), _TSHARK),
    Kind("a capture in the ERF format", _is_erf, "convert it: traceconvert erf:{file} pcapfile:out.pcap (libtrace)"),
    Kind("a file of nfcapd (nfdump)", (b"\x0c\xa5", b"\xa5\x0c"), _NO_FLOWS),
    Kind("a SiLK file", (b"\xde\xad\xbe\xef",), _NO_FLOWS),
    Kind("NetFlow v5 datagrams", _is_export(5, 8, 1, 30), _NETFLOW),
    Kind("NetFlow v9 datagrams", _is_export(9, 8, 1), _NETFLOW),
    Kind("IPFIX messages", _is_export(10, 4, 16), _NETFLOW),
    Kind(
        "sFlow datagrams", lambda head: head[:8] in (b"\0\0\0\5\0\0\0\1", b"\0\0\0\5\0\0\0\2") and len(head) > 8, _SFLOW
    ),
    Kind("a Parquet file", (b"PAR1",), _SCAN),
    Kind("an Arrow file", (b"ARROW1", b"\xff\xff\xff\xff"), _SCAN),
    Kind("an Avro file", (b"Obj\1",), _NO_TABLES),
    Kind("a SQLite database", (b"SQLite format 3\0",), _NO_TABLES),
    Kind("a NumPy array", (b"\x93NUMPY",), _NO_TABLES),
    Kind("an ELF program", (b"\x7fELF",), _NO_PACKETS),
    Kind("a PDF document", (b"%PDF-",), _NO_PACKETS),
    Kind("an image", (b"\x89PNG", b"\xff\xd8\xff", b"GIF8"), _NO_PACKETS),
    Kind("a private key or certificate", (b"-----BEGIN ",), _NO_PACKETS),
    Kind("a Zeek log (tab-separated)", (b"#separator ",), _SCAN),
    Kind("a Zeek log (JSON)", _has_fields(b"id.orig_h"), _SCAN),
    Kind("a Zeek log (JSON)", _has_fields(b"id.resp_h"), _SCAN),
    Kind("a Suricata log (EVE)", _has_fields(b"event_type"), _SCAN),
    Kind(
        "rows of superhosts (JSON Lines)",
        _has_fields(b"host", b"peers", b"side", b"window_start"),
        "they are results, not traffic",
    ),
    Kind("JSON Lines", _is_json_lines, _SCAN),
    Kind("a JSON array", _begins(rb"\s*\[\s*\{"), "make lines of its objects: jq -c '.[]' {file} | superhosts scan -"),
    Kind("JSON", _begins(rb'\s*(\{\s*["}]|\[\s*["\[{\d\]-])'), _NO_PACKETS),
    Kind("an HTML page", lambda head: re.match(rb"(?i)\s*<(!doctype html|html)", head) is not None, _NO_PACKETS),
    Kind("XML", (b"<?xml",), _NO_PACKETS),
    Kind("a script", (b"#!",), _NO_PACKETS),
    Kind(
        "packets as tcpdump prints them",
        lambda head: re.match(rb"(\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d\.\d+ (IP6?|ARP)\b", head) is not None,
        "let tcpdump write them: tcpdump -w - | superhosts scan -",
    ),
    Kind("CSV", lambda head: _is_table(head, ","), _MAPPED),
    Kind("CSV", lambda head: _is_table(head, ";"), _MAPPED),
    Kind("a tab-separated table", lambda head: _is_table(head, "\t"), _MAPPED),
]
