"""Azure's flow logs of network security groups and virtual networks: JSON documents with flows as text inside.

Such a file is one document of an hour, not a line for each flow, so it is read whole by Python's own parser. Its flows
("1663146003599,10.0.0.6,192.0.2.180,…") are lines of delimited text, which the compiled loop reads. Flows of a record
lie at `properties.flows[].flows[].flowTuples[]` or at `flowRecords.flows[].flowGroups[].flowTuples[]`.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from superhosts.errors import InputError
from superhosts.sources.input import Opens
from superhosts.sources.stream import PlainStream, Stream
from superhosts.sources.tables.delimited import DelimitedGrammar
from superhosts.sources.tables.knownlogs import Log
from superhosts.sources.tables.options import TableOptions
from superhosts.sources.tables.source import TableFormat
from superhosts.sources.tables.textreader import TextReader
from superhosts.sources.tables.textrow import MARK

MOST_BYTES = 512 << 20  # of a file, decompressed
_STEP = 1 << 20
_TUPLES = "flowTuples"
_FLOWS = Log(
    "azure",
    "an Azure flow log",
    src=("src",),
    dst=("dst",),
    start=("time",),
    delimiter=",",
    quote="",
    # Version 1 ends behind the decision. Those marked with a letter differ between the two kinds of logs.
    columns=("time src dst sport dport proto direction a b packets bytes replies reply_bytes",),
    proto=("proto",),
    sport=("sport",),
    dport=("dport",),
    replies=("replies",),
)


class _Lines(NamedTuple):
    """The flows of a document as a text that can be opened, once."""

    name: str
    text: bytes

    def open(self) -> Stream:
        return PlainStream(self.name, io.BytesIO(self.text), live=False)


class AzureReader(TextReader):
    """One pass over a document, or over several one after the other."""

    def __init__(self, source: Opens, options: TableOptions) -> None:
        stream = source.open()
        try:
            text = _read_all(source.name, stream)
            self._taken = stream.position()
        finally:
            stream.close()
        lines = b"".join(line.encode("utf-8", "replace") + b"\n" for line in _flows(source.name, text))
        grammar = DelimitedGrammar(source.name, _FLOWS, options)
        empty = 0, grammar.layout(["time", "src", "dst"], b"")
        super().__init__(_Lines(source.name, lines), grammar.begin if lines else lambda _head, _ended: empty)

    def position(self) -> int:
        return self._taken


def _read_all(name: str, stream: Any) -> bytes:
    data = bytearray()
    step = memoryview(bytearray(_STEP))
    while got := stream.readinto(step):
        data += step[:got]
        if len(data) > MOST_BYTES:
            raise InputError(f"a document of more than {MOST_BYTES >> 20} MiB; is it an Azure flow log?", file=name)
    return bytes(data)


def _flows(name: str, data: bytes) -> Iterator[str]:
    text = data.removeprefix(MARK).decode("utf-8", "replace")
    decoder, at = json.JSONDecoder(), 0
    while (at := _skip(text, at)) < len(text):
        try:
            document, at = decoder.raw_decode(text, at)
            found = list(_tuples(document))
        except (ValueError, RecursionError) as error:
            raise InputError(f"not an Azure flow log: {error}", file=name, offset=at) from None
        yield from found


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n,":
        at += 1
    return at


def _tuples(value: Any) -> Iterator[str]:
    """Yield the texts of all lists named flowTuples, however deep records are."""
    if isinstance(value, list):
        for each in value:
            yield from _tuples(each)
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key == _TUPLES and isinstance(inner, list):
                yield from (each.replace("\n", " ") for each in inner if isinstance(each, str))
            elif isinstance(inner, dict | list):
                yield from _tuples(inner)


def _is_azure(head: bytes) -> bool:
    start = head.removeprefix(MARK).lstrip()[:1]
    return start in (b"{", b"[") and (b'"flowTuples"' in head or (b'"records"' in head and b"FlowEvent" in head))


AZURE = TableFormat(_FLOWS.name, _is_azure, AzureReader)
