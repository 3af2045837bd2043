"""Every format of tables, in the order in which they are tried.

The formats of text are every log that is known (`knownlogs.py`), JSON Lines and delimited text. A log is recognised by
names of its header or by keys of its first objects, some also without a header: the first description that fits is
taken. One name stands for a log as delimited text and as JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import takewhile

from superhosts.core.files import SKETCH
from superhosts.core.filetypes import PCAP, PCAPNG
from superhosts.core.text import setting
from superhosts.errors import InputError, UsageError
from superhosts.sources.input import Opens
from superhosts.sources.tables.arrow import ARROW
from superhosts.sources.tables.azure import AZURE
from superhosts.sources.tables.delimited import (
    BANNER_LINES,
    BLANK,
    DelimitedGrammar,
    is_address,
    is_fields,
    sniff,
    split,
)
from superhosts.sources.tables.jsonlines import begin_json, names_of, objects
from superhosts.sources.tables.knownlogs import AWS, CSV, JSON_LINES, LOGS, ZEEK, Log
from superhosts.sources.tables.mapping import has_usual_names
from superhosts.sources.tables.options import EXPORT_FORMATS, TableOptions
from superhosts.sources.tables.parquet import PARQUET
from superhosts.sources.tables.source import TableFormat, TableReader
from superhosts.sources.tables.textreader import Layout, open_text
from superhosts.sources.tables.textrow import MARK

_NO_TEXT = (b"PAR1", b"ARROW1", PCAPNG, SKETCH, *PCAP)  # how files begin that are given with a wrong --format
RESULT = frozenset({"host", "peers"})  # columns of what this program writes: no traffic


def begin_text(name: str, log: Log, options: TableOptions, head: bytes, ended: bool) -> tuple[int, Layout] | None:
    """Begin a text that may be delimited or JSON (see `textreader.Begin`): the first character says which."""
    text = head.removeprefix(MARK).lstrip()
    if not text and not ended:
        return None
    if head.startswith(_NO_TEXT):
        way = f"without {setting('format', log.name)} the content decides"
        raise InputError(f"expected text ({log.title}), found binary data; {way}", file=name)
    if text[:1] in (b"{", b"["):
        return begin_json(name, log, options, head, ended)
    return DelimitedGrammar(name, log, options).begin(head, ended)


def _open(log: Log, source: Opens, options: TableOptions) -> TableReader:
    return open_text(source, partial(begin_text, source.name, log, options), options.threads)


def _format(log: Log, recognises: Callable[[bytes], bool]) -> TableFormat:
    return TableFormat(log.name, recognises, partial(_open, log), one_thread=False)


def _is_log(log: Log, head: bytes) -> bool:
    if _is_json(head):
        return any(log.is_marked(list(names_of(each))) for each in objects(head, ended=True))
    return any(log.is_marked(split(line, log.delimiter or sniff(line))) for line in _first_lines(head))


def _is_zeek(head: bytes) -> bool:
    """Return True for a Zeek log with its header, or for lines of a conn.log without one, as `tail` shows them."""
    lines = [line.lstrip(b" \t") for line in head.removeprefix(MARK).split(b"\n")]
    comments = takewhile(lambda line: not line.strip() or line.startswith(b"#"), lines)
    if any(line.startswith(b"#separator") or is_fields(line) for line in comments):
        return True
    fields = lines[0].decode("latin-1").split("\t")
    if len(fields) < 9 or not fields[1].startswith("C") or not (fields[3] + fields[5]).isdigit():
        return _is_json(head) and _is_log(ZEEK, head)
    return is_address(fields[2]) and is_address(fields[4]) and fields[0].replace(".", "").isdigit()


def _is_aws(head: bytes) -> bool:
    """Return True for flow logs of the default fields without a header, too."""
    fields = next(iter(_first_lines(head)), "").split()
    return _is_log(AWS, head) or (len(fields) in (14, 15) and fields[-1] in ("OK", "NODATA", "SKIPDATA"))


def _is_json(head: bytes) -> bool:
    return any(not RESULT.issubset(each) for each in objects(head, ended=True))


def _is_table(head: bytes) -> bool:
    """Return True for text with a header of usual names, or with addresses in its first lines: no other is a table."""
    lines = _first_lines(head)
    # A control character behind the first line is damage of its row. Besides, of a pipe no more lines need be there.
    if not lines or not is_text(lines[0].encode()) or lines[0].lstrip().startswith(("{", "[")):
        return False
    delimiter = sniff(lines[0])
    rows = [split(line, delimiter) for line in lines]
    if has_usual_names(rows[0]) or RESULT.issubset(rows[0]):
        return not RESULT.issubset(rows[0])
    wanted = 2 if delimiter == BLANK else 1  # Words of other texts are apart by blanks, too.
    return any(len(fields) > 1 and sum(map(is_address, fields)) >= wanted for fields in rows)


def is_text(head: bytes) -> bool:
    return b"\0" not in head and 50 * sum(byte < 32 and byte not in b"\t\r\n" for byte in head) <= len(head)


def _first_lines(head: bytes) -> list[str]:
    lines = (line.strip(b"\r") for line in head.removeprefix(MARK).split(b"\n"))
    found = [line.decode("utf-8", "replace") for line in lines if line.strip() and not line.startswith(b"#")]
    return found[: 1 + BANNER_LINES]


_OWN = {"zeek": _is_zeek, "aws": _is_aws}
TEXT_FORMATS = [
    *(_format(log, _OWN.get(log.name, partial(_is_log, log))) for log in LOGS),
    _format(JSON_LINES, _is_json),
    _format(CSV, _is_table),
    _format(CSV._replace(name="tsv"), lambda _head: False),  # for those who say so: any separator is found
]


FORMATS: list[TableFormat] = [PARQUET, ARROW, AZURE, *TEXT_FORMATS]


def table_format(name: str | None, head: bytes) -> TableFormat | None:
    """Return the format by its name (--format), or else the first that recognises the first bytes; None if none does.

    UsageError for a name that no format has.
    """
    if name is None:
        return next((format for format in FORMATS if format.recognises(head)), None)
    check_format(name)
    return next(format for format in FORMATS if format.name == name)


def check_format(name: str) -> None:
    names = [format.name for format in FORMATS]
    if name not in names:
        raise UsageError(f"{setting('format', name)}: no such format; use {', '.join([*names, *EXPORT_FORMATS])}")
