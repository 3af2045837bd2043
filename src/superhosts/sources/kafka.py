"""Flow records of a Kafka topic: kafka://broker[:port][,broker…]/topic[?word=value&…].

| word | what it says |
|---|---|
| `group` | consumer group, under which offsets are committed (superhosts) |
| `from` | where a group without offsets begins: `earliest` (the default) or `latest` |
| `until` | `end`: stop at what the topic holds now; without it the reading goes on |
| `format` | `goflow2` (protobuf behind its length), `json`, or `proto` (protobuf); without it the first message tells |
| `proto` | a .proto file with the fields of the record; Akvorado's outlet serves its own |
| `config` | a file with properties of librdkafka, one `name=value` in a line: TLS, passwords |

A topic can be read again from an offset, so nothing is lost by a stop. Offsets are committed once all windows are safe
that the messages before them belong to: in the spool of an edge, or reported by a scan (`release`). A run that is
killed is followed by one that begins there and reads some messages again; an edge drops what is in windows it has
spooled. A window that is open when an edge stops belongs to the next run.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import numpy as np
from numpy.typing import NDArray

from superhosts.core.columns.split import packets_of
from superhosts.core.kafkaclient import import_client, read_properties, reason_of, with_ports
from superhosts.core.notices import WARNING, Notice
from superhosts.core.pairs import PacketBlock
from superhosts.core.text import printable
from superhosts.errors import InputError, UsageError
from superhosts.sources.base import PLAIN, Source, SourceCounters, Wants
from superhosts.sources.kafka_messages import (
    GOFLOW2,
    Fields,
    JsonRecords,
    Records,
    is_delimited,
    read_proto,
    read_protobuf,
    shown,
)
from superhosts.sources.kinds import Scheme
from superhosts.sources.tables.base import NO_TIME

WORDS = {"group": None, "from": ("earliest", "latest"), "until": ("end",), "format": ("goflow2", "json", "proto")}
FILES = ("proto", "config")
MESSAGES = 20_000  # of a block, at most
POLL = 0.2  # seconds of waiting for messages after which a reader looks whether it should stop
REACHED_WITHIN = 30.0  # seconds in which a broker must answer
SHOWN = 3  # bad messages
MOST_NOTED = 10_000  # offsets of a partition that wait to be committed
AHEAD = 86400 * 10**9  # nanoseconds; a time further ahead of this machine's clock is wrong, and holds no offset back
EXAMPLE = "kafka://broker:9092/flows?group=superhosts"


@dataclass(frozen=True)
class Topic:
    """A topic, and how it is read."""

    brokers: str
    name: str
    words: dict[str, str]


def parse_topic(text: str) -> Topic:
    """Read the name of an input; UsageError if it makes no sense."""
    try:
        url = urlsplit(text)
    except ValueError:  # of brackets without their partner, or without an IPv6 address between them
        raise UsageError(f"{text}: this is no address of a broker; write it like {EXAMPLE}") from None
    topic = url.path.strip("/")
    if not url.netloc or not topic or "/" in topic:
        raise UsageError(f"{text}: write it like {EXAMPLE}")
    words: dict[str, str] = {}
    for word, value in parse_qsl(url.query, keep_blank_values=True):
        if word not in WORDS and word not in FILES:
            raise UsageError(f"{text}: unknown word {word!r}; use {', '.join((*WORDS, *FILES))}")
        allowed = WORDS.get(word)
        if not value or (allowed is not None and value not in allowed):
            raise UsageError(f"{text}: {word}={value}: " + (f"use {' or '.join(allowed)}" if allowed else "a name"))
        words[word] = value
    if words.get("format") == "proto" and "proto" not in words:
        raise UsageError(f"{text}: format=proto: name the file of its fields: proto=schema.proto")
    return Topic(with_ports(url.netloc), topic, words)


class Notes:
    """Up to which offset the messages of each partition were read, and the latest time among them.

    One thread reads and notes, others take. A run that never takes, or whose windows are long, has a bounded number of
    notes: neighbours become one, with the later offset and the later time, which is committed later than it might be.
    """

    def __init__(self, most: int = MOST_NOTED) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._read: dict[int, deque[tuple[int, int]]] = {}  # partition → (offset behind messages, their latest time)

    def add(self, partition: int, offset: int, time: int) -> None:
        """Note that messages before an offset were read."""
        with self._lock:
            read = self._read.setdefault(partition, deque())
            read.append((offset, time))
            if len(read) > self._most:
                notes = list(read)
                pairs = zip(notes[::2], notes[1::2], strict=False)
                last = notes[len(notes) & ~1 :]
                self._read[partition] = deque([*((b[0], max(a[1], b[1])) for a, b in pairs), *last])

    def take(self, before: int) -> dict[int, int]:
        """Return the offsets of partitions before which all messages have earlier times than this, and forget them."""
        done = {}
        with self._lock:
            for partition, read in self._read.items():
                while read and read[0][1] < before:
                    done[partition] = read.popleft()[0]
        return done

    def forget(self, _consumer: Any, partitions: Sequence[Any]) -> None:
        """Forget partitions that another member of the group reads from now on: it commits their offsets."""
        with self._lock:
            for each in partitions:
                self._read.pop(each.partition, None)


class KafkaSource(Source):
    """The records of a topic as packets."""

    live = True
    replays = True  # from the offsets that were committed

    def __init__(self, name: str, topic: Topic) -> None:
        self.name = name
        self.counters = SourceCounters()
        self._topic = topic
        self._fields: Fields | None = read_proto(topic.words["proto"]) if "proto" in topic.words else None
        self._json: JsonRecords | None = None
        self._known = False  # the format
        self._wants = PLAIN
        if topic.words.get("format") == "goflow2":
            self._fields = self._fields or GOFLOW2
        self._consumer: Any = None
        self._notes = Notes()
        self._polling = threading.Lock()  # A consumer must not be closed while it is asked for messages.
        self._closes: Any = None
        self._bytes = 0
        self._shown = 0
        self._stopped = self._waits = False
        self._client = import_client(name)

    def want(self, wants: Wants) -> None:
        """Read protocols, ports and flags, too, if the run wants details."""
        self._wants = wants

    def first_time(self) -> int | None:
        """Return None: nobody knows before a message has come."""
        return None

    def blocks(self) -> Iterator[PacketBlock]:
        """Yield the records as they come."""
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
                    block = self._packets(messages)
                    if block:
                        yield block
                elif self._stopped or self._is_at_end(consumer, ends):
                    return
        finally:
            self._waits = True

    def position(self) -> int:
        """Bytes of messages read so far."""
        return self._bytes

    def size(self) -> int | None:
        """Return None: a topic has no end."""
        return None

    def waits(self) -> bool:
        """Return True if there was no message for a moment."""
        return self._waits

    def stop(self) -> None:
        """End the reading soon."""
        self._stopped = True

    def release(self, before: int) -> None:
        """Commit the offsets of messages whose times are before this one: their windows are safe."""
        if self._closes is None or not self._closes.alive:  # not begun, or left
            return
        offsets = self._notes.take(before).items()
        done = [self._client.TopicPartition(self._topic.name, partition, offset) for partition, offset in offsets]
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
            consumer.subscribe([self._topic.name], on_revoke=self._notes.forget, on_lost=self._notes.forget)
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

    def _is_at_end(self, consumer: Any, ends: set[int]) -> bool:
        if "until" not in self._topic.words:
            return False
        assigned = {each.partition for each in consumer.assignment()}
        return bool(assigned) and assigned <= ends

    def _packets(self, messages: list[Any]) -> PacketBlock:
        values = [message.value() for message in messages]
        self._bytes += sum(map(len, values))
        records = self._decode(values)
        self._note(messages, records.time)
        whole = records.time != NO_TIME
        kept = np.flatnonzero(whole)
        src, dst = (type(end)(end.kinds[kept], end.words[kept]) for end in (records.src, records.dst))
        details = None if records.details is None else records.details[kept]
        block, refused = packets_of(src, dst, records.time[kept], details)
        bad = np.sort(np.concatenate([np.flatnonzero(~whole), kept[refused]]))
        self.counters.count(block)
        self.counters.packets += len(bad)
        self.counters.rows += len(values)
        self.counters.bad_rows += len(bad)
        for index in bad[: SHOWN - self._shown].tolist():
            self._shown += 1
            message = messages[index]
            place = f"partition {message.partition()}, offset {message.offset()}"
            self.counters.warn(f"{self.name}: {place} does not count: {printable(shown(values[index]), 160)}")
        return block

    def _decode(self, values: list[bytes]) -> Records:
        if not self._known:
            self._recognise(next((value for value in values if value[:1] == b"{" or is_delimited(value)), values[0]))
        if self._json is not None:
            return self._json.read(values)
        assert self._fields is not None
        return read_protobuf(values, self._fields, details=self._wants.details)

    def _recognise(self, message: bytes) -> None:
        """Find out the format by a message, unless the caller has said it."""
        format = self._topic.words.get("format")
        if format == "json" or (format is None and self._fields is None and message[:1] == b"{"):
            self._json = JsonRecords(self.name, details=self._wants.details)
        elif self._fields is None and is_delimited(message):
            self._fields = GOFLOW2
        elif self._fields is None:
            way = "say format=goflow2 or json, or proto=FILE with its fields (Akvorado's outlet serves schema.proto)"
            raise InputError(f"the first message is neither JSON nor protobuf behind its length; {way}", file=self.name)
        elif self._topic.words.get("format") != "goflow2":
            self._fields = self._fields._replace(delimited=is_delimited(message))
        self._known = True

    def _note(self, messages: list[Any], times: NDArray[np.int64]) -> None:
        """Note up to which offset each partition was read, and the latest time among these messages."""
        likely = np.where(times > time.time_ns() + AHEAD, NO_TIME, times).tolist()
        latest: dict[int, tuple[int, int]] = {}
        for message, stamp in zip(messages, likely, strict=True):
            partition = message.partition()
            _, before = latest.get(partition, (0, NO_TIME))
            latest[partition] = (message.offset() + 1, max(before, stamp))
        for partition, (offset, stamp) in latest.items():
            self._notes.add(partition, offset, stamp)


def open_kafka(text: str) -> Source:
    """Open a topic by its name."""
    return KafkaSource(text, parse_topic(text))


KAFKA = Scheme("kafka", open_kafka)
