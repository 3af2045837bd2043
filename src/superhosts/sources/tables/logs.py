"""The logs and tables of text that are known, as data: how each is recognised and which of its fields mean what."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from superhosts.sources.inputs import Input
from superhosts.sources.tables.base import Opens, TableFormat, TableReader
from superhosts.sources.tables.delimited import MARK, DelimitedGrammar, is_address, sniff, split
from superhosts.sources.tables.jsonlines import JsonGrammar, names_of, objects
from superhosts.sources.tables.log import Log
from superhosts.sources.tables.options import TableOptions
from superhosts.sources.tables.textpieces import open_text
from superhosts.sources.tables.textreader import Grammar, TextReader

ZEEK_COLUMNS = "ts uid id.orig_h id.orig_p id.resp_h id.resp_p proto service duration"

DELIMITED: tuple[Log, ...] = (
    Log(
        "zeek",
        "a Zeek log",
        src=("id.orig_h",),
        dst=("id.resp_h",),
        start=("ts",),
        duration=("duration:s",),
        quote="",
        columns=ZEEK_COLUMNS,
    ),
)
JSON: tuple[Log, ...] = (
    Log(
        "zeek-json",
        "a Zeek log in JSON",
        marks=("id.orig_h id.resp_h",),
        src=("id.orig_h",),
        dst=("id.resp_h",),
        start=("ts",),
        duration=("duration:s",),
    ),
    Log(
        "eve",
        "Suricata's EVE log",
        marks=("event_type timestamp",),
        src=("src_ip",),
        dst=("dest_ip",),
        start=("flow.start", "netflow.start", "timestamp"),
        end=("flow.end", "netflow.end", "timestamp"),
        kind="event_type",
        kinds=("flow", "netflow", "alert"),
    ),
)
CSV = Log("csv", "a table of delimited text")
JSON_LINES = Log("jsonl", "JSON Lines")


def _open(
    make: Callable[[str, Log, TableOptions], Grammar], log: Log, source: Opens, options: TableOptions
) -> TableReader:
    return TextReader(source, make(source.name, log, options))


def _open_file(
    make: Callable[[str, Log, TableOptions], Grammar], log: Log, source: Input, options: TableOptions
) -> TableReader:
    return open_text(source, make(source.name, log, options), options.threads)


def _format(
    make: Callable[[str, Log, TableOptions], Grammar], log: Log, recognises: Callable[[bytes], bool]
) -> TableFormat:
    return TableFormat(log.name, log.title, recognises, partial(_open, make, log), partial(_open_file, make, log))


def _is_zeek(head: bytes) -> bool:
    """Return True for a Zeek log with its header, or for lines of a conn.log without one, as `tail` shows them."""
    head = head.removeprefix(MARK)
    if head.startswith((b"#separator", b"#fields\t")):
        return True
    fields = head.split(b"\n")[0].decode("latin-1").split("\t")
    if len(fields) < 9 or not fields[1].startswith("C") or not (fields[3] + fields[5]).isdigit():
        return False
    return is_address(fields[2]) and is_address(fields[4]) and fields[0].replace(".", "").isdigit()


def _first_line(head: bytes) -> str:
    lines = (line.strip(b"\r") for line in head.removeprefix(MARK).split(b"\n"))
    found = next((line for line in lines if line.strip() and not line.startswith(b"#")), b"")
    return found.decode("utf-8", "replace")


def _has_header(log: Log, head: bytes) -> bool:
    line = _first_line(head)
    return log.is_marked(split(line, log.delimiter or sniff(line)))


def _has_keys(log: Log, head: bytes) -> bool:
    return any(log.is_marked(list(names_of(each))) for each in objects(head, ended=True))


def is_text(head: bytes) -> bool:
    """Return True if the first bytes can be those of a text."""
    if not head or b"\0" in head:
        return False
    return sum(byte < 32 and byte not in b"\t\r\n" for byte in head) * 50 < len(head)


def _is_json(head: bytes) -> bool:
    return any(True for _ in objects(head, ended=True))


def _is_table(head: bytes) -> bool:
    """Return True for text whose first lines have the same number of fields, at least two."""
    lines = [line for line in head.removeprefix(MARK).split(b"\n")[:-1] or [head] if line.strip()]
    line = _first_line(head)
    count = len(split(line, sniff(line)))
    return is_text(head) and count >= 2 and bool(lines)


TEXT_FORMATS = [
    _format(DelimitedGrammar, DELIMITED[0], _is_zeek),
    *(_format(DelimitedGrammar, log, partial(_has_header, log)) for log in DELIMITED[1:]),
    *(_format(JsonGrammar, log, partial(_has_keys, log)) for log in JSON),
    _format(JsonGrammar, JSON_LINES, _is_json),
    _format(DelimitedGrammar, CSV, _is_table),
]
