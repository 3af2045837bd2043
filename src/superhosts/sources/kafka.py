"""Flow records of a Kafka topic: kafka://broker[:port][,broker…]/topic[?word=value&…].

docs/guides/kafka.md explains the words, and what becomes of a run that is killed. Offsets are committed once all
windows are safe that the messages before them belong to: in the spool of an edge, or reported by a scan (`release`).

Messages are protobuf of goflow2 and Akvorado, or JSON of goflow2 and pmacct. Only two addresses and a time of a record
are wanted, and a few numbers where a run wants details. So protobuf is walked by a compiled loop over its fields, which
skips what it does not want, in place of generated code that would make an object of every record. What the fields mean
is their numbers: those of goflow2 are known, those of Akvorado depend on its configuration, and its outlet serves them
as a .proto file, which `read_proto` reads.

goflow2 writes the length of a record before it; Akvorado does not. A message that is no such record is a bad row.
"""

from __future__ import annotations

import json
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from superhosts.core.columns.addresses import AddressColumn, Bytes
from superhosts.core.columns.column import Column as TableColumn
from superhosts.core.columns.column import Text, from_packed, text_of
from superhosts.core.kafkaclient import import_client, read_properties, reason_of, with_ports
from superhosts.core.notices import WARNING, Notice
from superhosts.core.pairs import Details, PacketBlock
from superhosts.core.text import printable
from superhosts.errors import InputError, UsageError
from superhosts.jit.cache import compiled
from superhosts.sources.base import Notes, Source, words_of
from superhosts.sources.tables.details import (
    DPORT,
    FLAGS,
    ICMP_TYPE,
    PROTO,
    SPORT,
    VALUES,
    DetailFields,
    combine_columns,
    details_of_columns,
    make_codes,
    of_integers,
)
from superhosts.sources.tables.knownlogs import CSV, RECORD
from superhosts.sources.tables.mapping import Column, resolve, usual_details
from superhosts.sources.tables.options import TableOptions
from superhosts.sources.tables.source import RowBlock, packets_of_rows
from superhosts.sources.tables.times import NO_TIME, parse_times, scale_integers
from superhosts.sources.tables.wanted import details_of

# The slots of values, besides those of details: times, where the ends begin, and their sizes two slots behind.
TIME, OTHER_TIME, SRC, DST = range(VALUES, VALUES + 4)
ICMP_TYPES = ("icmp_type", "icmptype", "icmpv4type")  # names of a field, in lower case
_VARINT, _EIGHT, _LENGTH, _FOUR = 0, 1, 2, 5  # how a field is written
MISSING = -1  # the place of a value that is not there
_MOST_SHOWN = 60  # bytes of a message in warnings


class Fields(NamedTuple):
    """The numbers of the wanted fields of a record; 0: it has no such field."""

    src: int
    dst: int
    time: int
    other_time: int  # counts where the first is missing or 0
    delimited: bool  # the length of a record is before it
    proto: int = 0
    sport: int = 0
    dport: int = 0
    flags: int = 0
    icmp_type: int = 0


GOFLOW2 = Fields(6, 7, 111, 110, delimited=True, proto=20, sport=21, dport=22, flags=26, icmp_type=31)
_RECORDS = make_codes(CSV, RECORD)


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
def _walk_one(data: Bytes, at: int, end: int, slots: Bytes, values: NDArray[np.int64], row: int) -> bool:
    """Note the values of the fields of a record that are wanted; return False if it is damaged."""
    while at < end:
        tag, at = _varint(data, at, end)
        if at < 0:
            return False
        number, kind = tag >> np.uint64(3), np.int64(tag & np.uint64(7))
        slot = np.int64(slots[number]) - 1 if number < np.uint64(len(slots)) else -1
        if kind == _VARINT:
            value, at = _varint(data, at, end)
            if at < 0:
                return False
            if 0 <= slot < SRC:
                values[slot, row] = np.int64(value)
        elif kind == _LENGTH:
            length, at = _varint(data, at, end)
            if at < 0 or length > np.uint64(end - at):
                return False
            size = np.int64(length)
            if slot >= SRC and (size == 4 or size == 16):
                values[slot, row], values[slot + 2, row] = at, size
            at += size
        elif kind in (_EIGHT, _FOUR):
            at += 8 if kind == _EIGHT else 4
            if at > end:
                return False
        else:
            return False
    return True


@partial(compiled, counts=False)  # with counts it would take three times as long
def walk_protobuf(
    data: Bytes, offsets: NDArray[np.int64], delimited: bool, slots: Bytes, values: NDArray[np.int64]
) -> None:
    """Note the wanted values of records; message i is data[offsets[i]:offsets[i + 1]]. One that is damaged has none.

    `slots` has one more than the slot of each number of a field; 0: it is not wanted.
    """
    for i in range(len(offsets) - 1):
        at, end, whole = np.int64(offsets[i]), np.int64(offsets[i + 1]), True
        if delimited:
            length, at = _varint(data, at, end)
            whole = at >= 0 and length == np.uint64(end - at)
        if not whole or not _walk_one(data, at, end, slots, values, i):
            values[TIME, i] = values[OTHER_TIME, i] = 0
            values[SRC, i] = values[DST, i] = MISSING


def read_protobuf(messages: Sequence[bytes], fields: Fields, *, details: bool = False) -> RowBlock:
    offsets = np.zeros(len(messages) + 1, np.int64)
    np.cumsum([len(message) for message in messages], out=offsets[1:])
    data = np.frombuffer(bytearray(b"".join(messages)), np.uint8)
    wanted = np.full(DST + 1, -1, np.int64)
    wanted[[PROTO, SPORT, DPORT, FLAGS, ICMP_TYPE]] = fields[5:]
    wanted[[TIME, OTHER_TIME, SRC, DST]] = fields.time, fields.other_time, fields.src, fields.dst
    # Fields that are zero are not written. A protocol of zero is none that was seen.
    values = np.zeros((DST + 3, len(messages)), np.int64)
    values[[PROTO, *np.flatnonzero(wanted <= 0), SRC, DST]] = MISSING
    slots = np.zeros(wanted.max() + 1, np.uint8)  # memory that is never written costs nothing
    slots[wanted[wanted > 0]] = np.flatnonzero(wanted > 0) + 1
    walk_protobuf(data, offsets, fields.delimited, slots, values)
    times = np.where(values[TIME] > 0, values[TIME], values[OTHER_TIME])
    times[times <= 0] = -1  # the record has no time
    ends = _addresses(data, values[SRC::2]), _addresses(data, values[DST::2])
    return RowBlock(*ends, scale_integers(times, 0), details=_combined(values[:VALUES]) if details else None)


def _combined(values: NDArray[np.int64]) -> Details:
    for what in (PROTO, SPORT, DPORT, FLAGS, ICMP_TYPE):
        values[what] = of_integers(values[what], what)
    values[PROTO][values[PROTO] == 0] = -1
    found = np.empty(values.shape[1], np.uint64)
    combine_columns(values, _RECORDS, found)
    return found


def _addresses(data: Bytes, places: NDArray[np.int64]) -> AddressColumn:
    """Return the addresses that begin at places[0] and have places[1] bytes."""
    starts, sizes = places
    column = AddressColumn(np.zeros(len(starts), np.uint8), np.zeros((len(starts), 2), np.uint64))
    for size in (4, 16):
        rows = np.flatnonzero((starts >= 0) & (sizes == size))
        column.kinds[rows], column.words[rows] = from_packed(data[starts[rows, None] + np.arange(size)])
    return column


class JsonRecords:
    """Reads JSON messages, one object each. The fields are those of the first object that has two ends."""

    def __init__(self, name: str, *, details: bool = False) -> None:
        self._name = name
        self._options = TableOptions(details=details)
        self._details: DetailFields | None = None  # None: not wanted, or not known yet
        self._ends: tuple[str, str] | None = None  # None: not known yet
        self._time: Column | None = None

    def read(self, messages: Sequence[bytes]) -> RowBlock:
        records = [self._object(message) for message in messages]

        def texts(name: str) -> Text:
            values = (record.get(name) for record in records)
            return text_of([b"" if value is None else str(value).encode("utf-8", "replace") for value in values])

        src, dst = (texts(name).addresses() for name in self._ends or ("", ""))
        times = (
            parse_times(texts(""), "") if self._time is None else parse_times(texts(self._time.name), self._time.unit)
        )
        if not self._options.details:
            return RowBlock(src, dst, times)
        fields = self._details
        if fields is None:  # No message has ends.
            return RowBlock(src, dst, times, details=np.zeros(len(records), np.uint64))
        found = details_of_columns(fields, len(records), lambda name: TableColumn(texts(name), name))
        return RowBlock(src, dst, times, details=found)

    def _object(self, message: bytes) -> dict[str, object]:
        """Return the object of a message; an empty one if it has none, or before the fields are known."""
        try:
            record = json.loads(message)
        except (ValueError, RecursionError):
            return {}
        if not isinstance(record, dict):
            return {}
        if self._ends is None:
            try:
                mapping = resolve(None, list(record), self._name)
            except InputError:
                return {}
            assert mapping.src is not None
            assert mapping.dst is not None
            self._ends, self._time = (mapping.src.name, mapping.dst.name), mapping.time or mapping.time_end
            used = [*self._ends, *(() if self._time is None else (self._time.name,))]
            self._details = details_of(CSV, list(record), self._options, dict.fromkeys(used, "another"), self._name)
        return record


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
    length, at = _varint(np.frombuffer(bytearray(message), np.uint8), 0, len(message))
    return at >= 0 and int(length) == len(message) - at


def shown(message: bytes) -> str:
    if message[:1] in (b"{", b"["):
        return message[: 2 * _MOST_SHOWN].decode("utf-8", "replace")
    return f"0x{message[:_MOST_SHOWN].hex()}"


# The words of a name, and their values; none are listed where any will do.
WORDS: dict[str, tuple[str, ...]] = {
    "group": (),
    "from": ("earliest", "latest"),
    "until": ("end",),
    "format": ("goflow2", "json", "proto"),
    "proto": (),
    "config": (),
}
MESSAGES = 20_000  # of a block, at most
POLL = 0.2  # seconds of waiting for messages after which a reader looks whether it should stop
REACHED_WITHIN = 30.0  # seconds in which a broker must answer
SHOWN = 3  # bad messages
MOST_NOTED = 10_000  # offsets of a partition that wait to be committed
AHEAD = 86400 * 10**9  # nanoseconds; a time further ahead of this machine's clock is wrong, and holds no offset back
EXAMPLE = "kafka://broker:9092/flows?group=superhosts"


@dataclass(frozen=True)
class Topic:
    brokers: str
    name: str
    words: dict[str, str]


def parse_topic(text: str) -> Topic:
    try:
        url = urlsplit(text)
    except ValueError:  # of brackets without their partner, or without an IPv6 address between them
        raise UsageError(f"{text}: this is not an address of a broker; write it like {EXAMPLE}") from None
    topic = url.path.strip("/")
    if not url.netloc or not topic or "/" in topic:
        raise UsageError(f"{text}: write it like {EXAMPLE}")
    words = words_of(text, url.query, tuple(WORDS))
    for word, value in words.items():
        allowed = WORDS[word]
        if not value or (allowed and value not in allowed):
            raise UsageError(f"{text}: {word}={value}: " + (f"use {' or '.join(allowed)}" if allowed else "a name"))
    if words.get("format") == "proto" and "proto" not in words:
        raise UsageError(f"{text}: format=proto: name the file of its fields: proto=schema.proto")
    return Topic(with_ports(url.netloc), topic, words)


def forget(notes: dict[int, Notes], _consumer: Any, partitions: Sequence[Any]) -> None:
    """Forget partitions that another member of the group reads from now on: it commits their offsets."""
    for each in partitions:
        notes.pop(each.partition, None)


class KafkaSource(Source):
    live = True
    replays = True  # from the offsets that were committed

    def __init__(self, name: str, topic: Topic) -> None:
        super().__init__(name)
        self._topic = topic
        self._fields = read_proto(topic.words["proto"]) if "proto" in topic.words else None
        self._decode: Callable[[Sequence[bytes]], RowBlock] | None = None  # None: the format is not known yet
        self._consumer: Any = None
        # By partition: up to which offset its messages were read, and the latest time among them. Of a run that never
        # takes these notes, or whose windows are long, offsets are committed later than they might be.
        self._notes: dict[int, Notes] = {}
        self._polling = threading.Lock()  # A consumer must not be closed while it is asked for messages.
        self._closes: Any = None
        self._shown = 0
        self._client = import_client(name)

    def _read(self) -> Iterator[PacketBlock]:
        consumer = self._consumer = self._open()
        ends: set[int] = set()  # partitions that were read to their end
        try:
            while not self._stopped:
                polled = self._poll(consumer)
                messages = [message for message in polled if message.error() is None and message.value()]
                self._waits = not messages
                for message in polled:
                    self._check(message, ends)
                if messages:
                    if block := self._packets(messages):
                        yield block
                elif "until" in self._topic.words:
                    assigned = {each.partition for each in consumer.assignment()}
                    if assigned and assigned <= ends:
                        return
        finally:
            self._waits = True

    def release(self, before: int) -> None:
        """Commit the offsets of messages whose times are before this one: their windows are safe."""
        if self._closes is None or not self._closes.alive:  # not begun, or left
            return
        offsets = ((partition, notes.take(before)) for partition, notes in list(self._notes.items()))
        topic = partial(self._client.TopicPartition, self._topic.name)
        done = [topic(partition, offset) for partition, offset in offsets if offset is not None]
        if done:
            try:
                self._consumer.commit(offsets=done, asynchronous=False)
            except (self._client.KafkaException, RuntimeError) as error:  # the latter if it was closed meanwhile
                # The next window commits more; until then a restart reads more.
                self.counters.warn(
                    Notice(f"{self.name}: offsets cannot be committed: {reason_of(error)}", "trouble", WARNING)
                )

    def leave(self) -> None:
        """Leave the group, so that another member need not wait until this one is given up."""
        self._stopped = True
        with self._polling:
            if self._closes is not None:
                self._closes()

    def _open(self) -> Any:
        words = self._topic.words
        settings: dict[str, Any] = {
            "bootstrap.servers": self._topic.brokers,
            "group.id": words.get("group", "superhosts"),
            "auto.offset.reset": words.get("from", "earliest"),
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 2,  # its errors come as messages
            **(read_properties(words["config"]) if "config" in words else {}),
        }
        try:
            consumer = self._client.Consumer(settings)
            found = consumer.list_topics(self._topic.name, timeout=REACHED_WITHIN).topics[self._topic.name]
            if found.error is not None:
                raise InputError(f"cannot be read: {found.error.str()}", file=self.name)
            # Callbacks of the notes alone: if the consumer held this source, it would never be closed.
            lost = partial(forget, self._notes)
            consumer.subscribe([self._topic.name], on_revoke=lost, on_lost=lost)
        except self._client.KafkaException as error:
            raise InputError(f"cannot be read: {reason_of(error)}", file=self.name) from None
        self._closes = weakref.finalize(self, consumer.close)  # also where nobody says that the run is over
        return consumer

    def _poll(self, consumer: Any) -> list[Any]:
        try:
            with self._polling:
                polled: list[Any] = [] if self._stopped else consumer.consume(MESSAGES, POLL)
        except self._client.KafkaException as error:
            raise InputError(f"cannot be read: {reason_of(error)}", file=self.name) from None
        return polled

    def _check(self, message: Any, ends: set[int]) -> None:
        """Note the end of a partition; raise InputError for an error that does not pass by itself."""
        error = message.error()
        if error is None:
            ends.discard(message.partition())
        elif error.code() == self._client.KafkaError._PARTITION_EOF:
            ends.add(message.partition())
        elif error.fatal() or error.code() in (
            self._client.KafkaError.UNKNOWN_TOPIC_OR_PART,
            self._client.KafkaError.TOPIC_AUTHORIZATION_FAILED,
            self._client.KafkaError.GROUP_AUTHORIZATION_FAILED,
        ):
            raise InputError(f"cannot be read: {error.str()}", file=self.name)

    def _packets(self, messages: list[Any]) -> PacketBlock:
        values = [message.value() for message in messages]
        self._bytes += sum(map(len, values))
        if self._decode is None:
            likely = (value for value in values if value[:1] == b"{" or is_delimited(value))
            self._decode = self._recognise(next(likely, values[0]))
        records = self._decode(values)
        assert records.time is not None
        self._note(messages, records.time)
        block, bad = packets_of_rows(records)
        self.counters.packets += len(bad)
        self.counters.rows += len(values)
        self.counters.bad_rows += len(bad)
        for index in bad[: SHOWN - self._shown].tolist():
            self._shown += 1
            message = messages[index]
            place = f"partition {message.partition()}, offset {message.offset()}"
            self.counters.warn(f"{self.name}: {place} does not count: {printable(shown(values[index]), 160)}")
        return block

    def _recognise(self, message: bytes) -> Callable[[Sequence[bytes]], RowBlock]:
        """Return what decodes messages of the format that the caller has named, or that one of them shows."""
        format, fields = self._topic.words.get("format"), self._fields
        if format == "json" or (format is None and fields is None and message[:1] == b"{"):
            return JsonRecords(self.name, details=self.wants.details).read
        if fields is None and (format == "goflow2" or is_delimited(message)):
            fields = GOFLOW2
        elif fields is None:
            way = "say format=goflow2 or json, or proto=FILE with its fields (Akvorado's outlet serves schema.proto)"
            raise InputError(f"the first message is neither JSON nor protobuf behind its length; {way}", file=self.name)
        elif format != "goflow2":
            fields = fields._replace(delimited=is_delimited(message))
        return partial(read_protobuf, fields=fields, details=self.wants.details)

    def _note(self, messages: list[Any], times: NDArray[np.int64]) -> None:
        likely = np.where(times > time.time_ns() + AHEAD, NO_TIME, times).tolist()
        latest: dict[int, tuple[int, int]] = {}
        for message, stamp in zip(messages, likely, strict=True):
            partition = message.partition()
            _, before = latest.get(partition, (0, NO_TIME))
            latest[partition] = (message.offset() + 1, max(before, stamp))
        for partition, (offset, stamp) in latest.items():
            self._notes.setdefault(partition, Notes(max, MOST_NOTED)).add(stamp, offset)


def open_kafka(text: str) -> KafkaSource:
    return KafkaSource(text, parse_topic(text))
