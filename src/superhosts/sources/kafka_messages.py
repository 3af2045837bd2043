"""Flow records in the messages of a Kafka topic: protobuf of goflow2 and Akvorado, JSON of goflow2 and pmacct.

Only two addresses and a time of a record are wanted, and a few numbers where a run wants details. So protobuf is walked
by a compiled loop over its fields, which skips what it does not want, in place of generated code that would make an
object of every record. What the fields mean is their numbers: those of goflow2 are known, those of Akvorado depend on
its configuration, and its outlet serves them as a .proto file, which `read_proto` reads.

goflow2 writes the length of a record before it; Akvorado does not. A message that is no such record is a bad row.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core.columns.addresses import AddressColumn, Bytes, parse_text
from superhosts.core.pairs import Details, Times
from superhosts.errors import InputError
from superhosts.jit.cache import compiled
from superhosts.sources.tables.base import NO_TIME
from superhosts.sources.tables.claims import ICMP_NOWHERE, RECORD
from superhosts.sources.tables.detailcolumns import combine_columns, details_of_columns, of_integers, of_texts
from superhosts.sources.tables.detailfields import DetailFields, details_of
from superhosts.sources.tables.detailvalues import DPORT, FLAGS, ICMP_TYPE, PROTO, SPORT, VALUES, make_codes
from superhosts.sources.tables.mapping import Column, resolve, usual_details
from superhosts.sources.tables.options import TableOptions
from superhosts.sources.tables.rowbinary_loops import BIG, MISSING, Places, read_addresses
from superhosts.sources.tables.times import factor_of, parse_time, scale_integers

ICMP_TYPES = ("icmp_type", "icmptype", "icmpv4type")  # names of a field, in lower case
_VARINT, _EIGHT, _LENGTH, _FOUR = 0, 1, 2, 5  # how a field is written
_MOST_SHOWN = 60  # bytes of a message in warnings


class Fields(NamedTuple):
    """Numbers of the fields of a protobuf record."""

    src: int
    dst: int
    time: int
    other_time: int  # counts where the first is missing or 0; 0: none
    delimited: bool  # the length of a record is before it
    # Details; 0: the record has no such field
    proto: int = 0
    sport: int = 0
    dport: int = 0
    flags: int = 0
    icmp_type: int = 0


GOFLOW2 = Fields(6, 7, 111, 110, delimited=True, proto=20, sport=21, dport=22, flags=26, icmp_type=31)
_RECORDS = make_codes({}, {}, claim=RECORD, icmp_place=ICMP_NOWHERE, has_hex_flags=False)


class Records(NamedTuple):
    """The ends and times of messages, in order; kind 0 and NO_TIME mark what is missing."""

    src: AddressColumn
    dst: AddressColumn
    time: Times
    details: Details | None = None  # None: not wanted


@compiled
def _varint(data: Bytes, at: int, end: int) -> tuple[np.uint64, int]:
    """Return a number and the place behind it; -1 for the place if it has no end."""
    value, shift = np.uint64(0), np.uint64(0)
    while at < end and shift < np.uint64(70):
        byte = np.uint64(data[at])
        at += 1
        value |= (byte & np.uint64(127)) << (shift & np.uint64(63))
        if byte < np.uint64(128):
            return value, at
        shift += np.uint64(7)
    return value, -1


@compiled
def _note_number(values: NDArray[np.int64], row: int, fields: Fields, number: int, value: np.uint64) -> None:
    """Note the value of a field of details."""
    what = -1
    if number == fields.proto:
        what = PROTO
    elif number == fields.sport:
        what = SPORT
    elif number == fields.dport:
        what = DPORT
    elif number == fields.flags:
        what = FLAGS
    elif number == fields.icmp_type:
        what = ICMP_TYPE
    if what >= 0:
        values[what, row] = np.int64(value)


@compiled
def _walk_one(
    data: Bytes, at: int, end: int, fields: Fields, places: NDArray[np.int64], row: int, values: NDArray[np.int64]
) -> int:
    """Note where the source (places[0]) and destination of a record are; return its time, or -1 if it is damaged.

    If `values` has room for the row, its details are noted there.
    """
    time, other = np.int64(0), np.int64(0)
    while at < end:
        tag, at = _varint(data, at, end)
        if at < 0:
            return -1
        number, kind = np.int64(tag >> np.uint64(3)), np.int64(tag & np.uint64(7))
        if kind == _VARINT:
            value, at = _varint(data, at, end)
            if at < 0:
                return -1
            if number == fields.time:
                time = np.int64(value)
            elif number == fields.other_time:
                other = np.int64(value)
            elif row < values.shape[1]:
                _note_number(values, row, fields, number, value)
        elif kind == _LENGTH:
            length, at = _varint(data, at, end)
            if at < 0 or length > np.uint64(end - at):
                return -1
            size = np.int64(length)
            if size == 4 or size == 16:
                if number == fields.src:
                    places[0, row, 0], places[0, row, 1] = at, at + size
                elif number == fields.dst:
                    places[1, row, 0], places[1, row, 1] = at, at + size
            at += size
        elif kind in (_EIGHT, _FOUR):
            at += 8 if kind == _EIGHT else 4
            if at > end:
                return -1
        else:
            return -1
    return time if time > 0 else other


@compiled
def walk_protobuf(
    data: Bytes,
    offsets: NDArray[np.int64],
    fields: Fields,
    places: NDArray[np.int64],
    times: NDArray[np.int64],
    values: NDArray[np.int64],
) -> None:
    """Note where the ends of records are, and their times; message i is data[offsets[i]:offsets[i + 1]].

    `values` has a row for each value of details, and columns for no message if they are not wanted.
    """
    for i in range(len(times)):
        at, end = np.int64(offsets[i]), np.int64(offsets[i + 1])
        places[0, i, 0] = places[1, i, 0] = MISSING
        whole = True
        if fields.delimited:
            length, at = _varint(data, at, end)
            whole = at >= 0 and length == np.uint64(end - at)
        times[i] = _walk_one(data, at, end, fields, places, i, values) if whole else -1
        if times[i] < 0:
            places[0, i, 0] = places[1, i, 0] = MISSING


def read_protobuf(messages: Sequence[bytes], fields: Fields, *, details: bool = False) -> Records:
    """Return the records of protobuf messages, with details if they are wanted."""
    count = len(messages)
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum([len(message) for message in messages], out=offsets[1:])
    data = np.frombuffer(bytearray(b"".join(messages)), np.uint8)
    places, times = np.zeros((2, count, 2), np.int64), np.empty(count, np.int64)
    values = np.full((VALUES, count if details else 0), -1, np.int64)
    if details:
        # Fields that are zero are not written. A protocol of zero is none that was seen.
        known = ((SPORT, fields.sport), (DPORT, fields.dport), (FLAGS, fields.flags), (ICMP_TYPE, fields.icmp_type))
        values[[what for what, number in known if number]] = 0
    walk_protobuf(data, offsets, fields, places, times, values)
    times[times == 0] = -1  # the record has no time
    ends = _addresses(data, places[0]), _addresses(data, places[1])
    return Records(*ends, scale_integers(times, 0), _combined(values) if details else None)


def _combined(values: NDArray[np.int64]) -> Details:
    for what in (PROTO, SPORT, DPORT, FLAGS, ICMP_TYPE):
        values[what] = of_integers(values[what], what)
    values[PROTO][values[PROTO] == 0] = -1
    found = np.empty(values.shape[1], np.uint64)
    combine_columns(values, _RECORDS, found)
    return found


def _addresses(data: Bytes, places: Places) -> AddressColumn:
    column = AddressColumn(np.empty(len(places), np.uint8), np.empty((len(places), 2), np.uint64))
    read_addresses(data, places, BIG, False, column.kinds, column.words)
    return column


class JsonRecords:
    """Reads JSON messages, one object each. The fields are those of the first object that has two ends."""

    def __init__(self, name: str, *, details: bool = False) -> None:
        self._name = name
        self._options = TableOptions(details=details)
        self._details: DetailFields | None = None  # None: not wanted, or not known yet
        self._ends: tuple[Column, Column] | None = None
        self._time: Column | None = None

    def read(self, messages: Sequence[bytes]) -> Records:
        """Return the records of messages."""
        ends: list[bytes] = []
        records: list[dict[str, object]] = []
        times = np.full(len(messages), NO_TIME, np.int64)
        for number, message in enumerate(messages):
            try:
                record = json.loads(message)
            except (ValueError, RecursionError):
                record = None
            found = self._fields(record) if isinstance(record, dict) else None
            records.append({} if found is None else record)
            if found is None:
                ends += [b"", b""]
                continue
            src, dst, time = found
            ends += [str(src).encode("utf-8", "replace"), str(dst).encode("utf-8", "replace")]
            if time is not None and self._time is not None:
                times[number] = parse_time(str(time), factor_of(self._time.unit))
        offsets = np.zeros(len(ends) + 1, np.int64)
        np.cumsum([len(text) for text in ends], out=offsets[1:])
        kinds, words = parse_text(np.frombuffer(bytearray(b"".join(ends)), np.uint8), offsets)
        src_column = AddressColumn(kinds[::2].copy(), words[::2].copy())
        details = self._read_details(records) if self._options.details else None
        return Records(src_column, AddressColumn(kinds[1::2].copy(), words[1::2].copy()), times, details)

    def _read_details(self, records: Sequence[dict[str, object]]) -> Details:
        fields = self._details
        if fields is None:  # No message has ends.
            return np.zeros(len(records), np.uint64)

        def read(name: str, what: int) -> NDArray[np.int64]:
            found = [record.get(name) for record in records]
            texts = [None if value is None else str(value).encode("utf-8", "replace") for value in found]
            return of_texts(texts, what, fields.codes)

        return details_of_columns(fields, len(records), read)

    def _fields(self, record: dict[str, object]) -> tuple[object, object, object] | None:
        """Return the ends and the time of a record; None if it has no ends."""
        if self._ends is None:
            try:
                mapping = resolve(None, list(record), self._name)
            except InputError:
                return None
            assert mapping.src is not None
            assert mapping.dst is not None
            self._ends, self._time = (mapping.src, mapping.dst), mapping.time or mapping.time_end
            used = [column.name for column in (*self._ends, self._time) if column is not None]
            self._details = details_of(None, list(record), self._options, used, self._name)
        src, dst = (record.get(column.name) for column in self._ends)
        return src, dst, None if self._time is None else record.get(self._time.name)


def read_proto(path: str) -> Fields:
    """Return the fields of the record that a .proto file describes, by their usual names; InputError if it has none."""
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError(f"cannot be opened: {error.strerror or error}", file=path) from error
    numbers = {name: int(number) for name, number in re.findall(r"\w+\s+(\w+)\s*=\s*(\d+)\s*;", text)}
    mapping = resolve(None, list(numbers), path)
    time = mapping.time or mapping.time_end
    if time is None:
        raise InputError("no field of the record is a time", file=path)
    assert mapping.src is not None
    assert mapping.dst is not None
    usual = usual_details(list(numbers))
    columns = usual.proto, usual.sport, usual.dport, usual.flags
    proto, sport, dport, flags = (0 if column is None else numbers[column.name] for column in columns)
    icmp_type = next((numbers[name] for name in numbers if name.lower() in ICMP_TYPES), 0)
    ends = numbers[mapping.src.name], numbers[mapping.dst.name]
    return Fields(ends[0], ends[1], numbers[time.name], 0, False, proto, sport, dport, flags, icmp_type)


def is_delimited(message: bytes) -> bool:
    """Return True if a message begins with the length of the rest."""
    length = shift = 0
    for at, byte in enumerate(message[:5], start=1):
        length |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return length == len(message) - at
    return False


def shown(message: bytes) -> str:
    """Return a message as warnings show it."""
    if message[:1] in (b"{", b"["):
        return message[: 2 * _MOST_SHOWN].decode("utf-8", "replace")
    return f"0x{message[:_MOST_SHOWN].hex()}"
