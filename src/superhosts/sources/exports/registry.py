"""What is known of exporters: their streams, templates and sampling rates, all of it bounded.

An exporter is an address. It has streams, one for each version and domain (source id, engine, sub-agent), because
templates and sequence numbers belong to a domain. A router sends from any port, so that the port says nothing. The
sampling rate belongs to the address: some exporters announce it under another domain than their flows.

If there are too many streams or templates, those that were used least recently are given up, and among streams those
first that have sent little: whoever forges source addresses sends few datagrams from each.

Templates and sampling rates are also on disk (`TemplateFile`), so that a restart loses no flow whose template was ever
seen: an exporter may send its templates every few minutes only. The file has what the exporters sent, and is replaced
when that has changed, at most once in a second.
"""

from __future__ import annotations

import ipaddress
import os
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from superhosts.core.files import make_folder, read_state, write_json
from superhosts.core.notices import WARNING, Notice
from superhosts.core.text import counted
from superhosts.errors import OutputError
from superhosts.sources.exports import layout
from superhosts.sources.exports.layout import (
    MOST_FIELDS,
    VERSION5,
    Field,
    Index,
    Rows,
    Tables,
    add_rows,
    find_stream,
    make_plan,
)
from superhosts.sources.exports.walks import V5_PLAN, template_hash

ESTABLISHED = 64  # datagrams after which a stream is given up later than others
MOST_SAMPLERS = 64  # of an exporter
_NAMES = {5: "NetFlow v5", 9: "NetFlow v9", 10: "IPFIX", 1: "sFlow v5"}
FIRST_TEMPLATE = 256
_BOOT = 160
_FAR = 4 * 10**12  # milliseconds; a time beyond them makes no sense
_SAMPLER = (48, 302, 300)  # sampler id, selector id, selection sequence id
FORMAT = "superhosts templates 1"
MOST_BYTES = 4 << 20  # of templates; those that were used last are kept
PAUSE = 1.0  # seconds between two writings, at least
BUSY = 20  # times as long as a writing takes; only exporters that send ever new templates make it long


class Limits(NamedTuple):
    streams: int = 4096
    templates: int = 8192  # of all streams
    templates_each: int = 512  # of one stream


LIMITS = Limits()


class StreamKey(NamedTuple):
    """An exporter's address as an IPv6 address, the version of its format, and the domain."""

    address: int
    version: int
    domain: int

    @property
    def shown(self) -> str:
        """The address as people write it, an IPv4 address as such; empty for datagrams of a file."""
        full = ipaddress.IPv6Address(self.address)
        return str(full.ipv4_mapped or full) if self.address else ""


class Registry:
    def __init__(self, times: str | None = "start", limits: Limits = LIMITS) -> None:
        self.limits = limits
        self.templates: dict[tuple[int, int], Template] = {}  # by stream and number
        self.samplers: dict[int, dict[int, int]] = {}  # by address: sampler → rate
        self.given_up = 0  # streams and templates
        self.changed = False  # since somebody has looked
        self._lost = np.zeros(3, np.int64)  # what `losses` returns, of streams that were given up
        self._times = times
        self._free = list(range(limits.templates, V5_PLAN, -1))  # rows for plans
        self._own: Counter[int] = Counter()  # templates of each stream
        streams, plans = limits.streams, limits.templates + 1
        self.tables = Tables(
            _new_index(streams),
            np.zeros((streams, layout.STREAM_SLOTS), np.int64),
            _new_index(plans),
            np.zeros((plans, layout.PLAN_SLOTS), np.int64),
            np.zeros((plans * MOST_FIELDS, 2), np.int64),  # memory that is never written costs nothing
            np.zeros(layout.PLAN_SLOTS, np.int64),
            np.zeros(1, np.int64),
            np.frombuffer(os.urandom(16), np.uint64).copy(),
        )
        self.tables.plans[V5_PLAN], _ = make_plan(VERSION5, times)

    def key_of(self, stream: int) -> StreamKey:
        high, low, domain = (int(word) for word in self.tables.stream_index.keys[stream])
        return StreamKey(high << 64 | low, domain >> 32, domain & 0xFFFFFFFF)

    def stream_of(self, key: StreamKey) -> int:
        """Return the number of a stream, a new one if it was never seen; -1 if there is no room."""
        high, low, domain = key.address >> 64, key.address & (1 << 64) - 1, key.version << 32 | key.domain
        tally = np.zeros(layout.TALLY_SLOTS, np.int64)
        return find_stream(self.tables, np.uint64(high), np.uint64(low), np.uint64(domain), tally)

    def learn(self, stream: int, template: Template) -> bool:
        """Take a template in place of the one with its number; return True if it is new or has changed."""
        key = (stream, template.number)
        known = self.templates.get(key)
        if known is not None and known.content == template.content and known.kind == template.kind:
            return False
        self.changed = True
        plan, fields = make_plan([] if template.is_option else template.fields, self._times)
        if template.is_option:
            plan[layout.KIND] = layout.OPTION
        row = self._new_row(stream) if known is None else known.row
        self._own[stream] += known is None
        content = np.frombuffer(bytearray(template.content), np.uint8)
        plan[layout.HASH] = template_hash(content, 0, len(content))
        plan[layout.PLAN_USED] = self.tables.streams[stream, layout.USED]
        first = plan[layout.FIRST_FIELD] = row * MOST_FIELDS
        plan[layout.FIELDS] = len(fields)
        self.tables.fields[first : first + len(fields)] = fields
        self.tables.plans[row] = plan
        self.templates[key] = template._replace(row=row)
        self.tables.plan_index.keys[row] = *key, 0
        add_rows(self.tables.plan_index, self.tables.secret, np.array([row]))
        return True

    def withdraw(self, stream: int, template: Template) -> None:
        every = template.number < 256
        for key in [key for key in self.templates if key[0] == stream and (every or key[1] == template.number)]:
            if not every or self.templates[key].kind == template.number:
                self._forget(key)
                self.changed = True
        self._index_plans()

    def note_rate(self, stream: int, sampler: int, rate: int) -> None:
        samplers = self.samplers.setdefault(self.key_of(stream).address, {})
        if samplers.get(sampler) != rate and (sampler in samplers or len(samplers) < MOST_SAMPLERS):
            samplers[sampler] = rate
            self.changed = True
        while len(self.samplers) > self.limits.streams:
            self.samplers.pop(next(iter(self.samplers)))

    def with_rates(self) -> list[int]:
        """Return one stream of each exporter that has announced its sampling rate."""
        first: dict[int, int] = {}
        for stream in range(int(self.tables.used[0])) if self.samplers else ():
            first.setdefault(self.key_of(stream).address, stream)
        return [stream for address, stream in first.items() if address in self.samplers]

    def rate_of(self, stream: int) -> int:
        announced = self.samplers.get(self.key_of(stream).address, {}).values()
        return max([int(self.tables.streams[stream, layout.RATE]), *announced])

    def rate(self) -> int:
        streams = self.tables.streams[: self.tables.used[0], layout.RATE]
        return max([int(streams.max(initial=0)), *(max(each.values(), default=0) for each in self.samplers.values())])

    def make_room(self) -> None:
        """Give up a quarter of the streams. The others get new numbers."""
        used = int(self.tables.used[0])
        streams = self.tables.streams[:used]
        order = np.lexsort((streams[:, layout.USED], streams[:, layout.STREAM_DATAGRAMS] >= ESTABLISHED))
        gone = order[: max(used // 4, 1)]
        self._lost += _sum_losses(streams[gone])
        kept = np.sort(order[max(used // 4, 1) :])
        numbers = np.full(used, -1, np.int64)
        numbers[kept] = np.arange(len(kept))
        addresses = {self.key_of(int(stream)).address for stream in gone}
        for key in [key for key in self.templates if numbers[key[0]] < 0]:
            self._forget(key)
        tables = self.tables
        tables.stream_index.keys[: len(kept)] = tables.stream_index.keys[kept]
        tables.streams[: len(kept)] = tables.streams[kept]
        tables.used[0] = len(kept)
        self.templates = {(int(numbers[stream]), number): each for (stream, number), each in self.templates.items()}
        self._own = Counter(stream for stream, _ in self.templates)
        for key, template in self.templates.items():
            tables.plan_index.keys[template.row] = *key, 0
        for address in addresses - {self.key_of(stream).address for stream in range(len(kept))}:
            self.samplers.pop(address, None)
        self.given_up += len(gone)
        self._index_plans()
        tables.stream_index.slots[:] = -1
        add_rows(tables.stream_index, tables.secret, np.arange(len(kept)))

    def exporters(self, most: int) -> Iterator[dict[str, Any]]:
        rows = self.tables.streams[: self.tables.used[0]]
        for stream in np.argsort(-rows[:, layout.STREAM_DATAGRAMS], kind="stable")[:most].tolist():
            key, row = self.key_of(stream), rows[stream]
            unit = "records" if key.version in (5, 10) else "datagrams"
            yield {
                "address": key.shown,
                "format": _NAMES.get(key.version, str(key.version)),
                "domain": key.domain,
                "datagrams": int(row[layout.STREAM_DATAGRAMS]),
                "records": int(row[layout.STREAM_RECORDS]),
                f"lost_{unit}": int(_losses(row)[0]),
                "restarts": int(_losses(row)[1]),
                "sampling": self.rate_of(stream) or None,
            }

    def losses(self) -> list[int]:
        """Return the lost records, the lost datagrams and the restarts of all exporters."""
        found: list[int] = (self._lost + _sum_losses(self.tables.streams[: self.tables.used[0]])).tolist()
        return found

    def by_use(self) -> list[tuple[int, int]]:
        """Return the streams and numbers of all templates, those first that were used last."""
        plans = self.tables.plans
        return sorted(self.templates, key=lambda key: -plans[self.templates[key].row, layout.PLAN_USED])

    def _new_row(self, stream: int) -> int:
        """Return a row for a plan; if there are too many, give up those that were used least recently."""
        has_many = self._own[stream] >= self.limits.templates_each
        if has_many or not self._free:
            keys = [key for key in self.by_use() if key[0] == stream or not has_many]
            oldest = keys[-max(len(keys) // 4, 1) :]
            for key in oldest:
                self._forget(key)
            self.given_up += len(oldest)
            self._index_plans()
        return self._free.pop()

    def _forget(self, key: tuple[int, int]) -> None:
        """Forget a template. Its row is free for another one once the rows are indexed anew."""
        row = self.templates.pop(key).row
        self._own[key[0]] -= 1
        self.tables.plans[row, layout.KIND] = layout.GONE
        self._free.append(row)

    def _index_plans(self) -> None:
        index = self.tables.plan_index
        index.slots[:] = -1
        add_rows(index, self.tables.secret, np.array([each.row for each in self.templates.values()], np.int64))


def _new_index(rows: int) -> Index:
    return Index(np.full(1 << (2 * rows - 1).bit_length(), -1, np.int32), np.zeros((rows, 3), np.uint64))


def _losses(streams: Rows) -> Any:
    """Return what streams, or one of them, have lost, and their restarts, by what their numbers count (layout.py)."""
    includes_own = streams[..., layout.SCORE] > 0
    lost = np.where(includes_own, streams[..., layout.OWN_LOST], streams[..., layout.LOST])
    return lost, np.where(includes_own, streams[..., layout.OWN_RESTARTS], streams[..., layout.RESTARTS])


def _sum_losses(streams: Rows) -> Rows:
    of_records = np.isin(streams[:, layout.VERSION], (5, 10))
    lost, restarts = _losses(streams)
    return np.array([lost[of_records].sum(), lost[~of_records].sum(), restarts.sum()], np.int64)


class Template(NamedTuple):
    number: int
    fields: list[Field]  # none: it is withdrawn
    kind: int  # the id of its set: 0, 1 (NetFlow v9), 2, 3 (IPFIX); 1 and 3 are options
    content: bytes  # its record
    row: int = -1  # of its plan

    @property
    def is_option(self) -> bool:
        return self.kind in (1, 3)


class BadTemplateError(ValueError):
    """A template that makes no sense, or has too many fields."""


def read_templates(content: bytes, kind: int) -> Iterator[Template]:
    """Yield the templates of a set without its header. Raise BadTemplateError where one makes no sense."""
    at = 0
    while len(content) - at >= 4:
        number, count = struct.unpack_from("!HH", content, at)
        if number == 0 and kind < 2:  # padding
            return
        if kind >= 2 and count == 0:
            if not (number >= FIRST_TEMPLATE or number == kind):
                return  # padding
            yield Template(number, [], kind, content[at : at + 4])
            at += 4
            continue
        if number < FIRST_TEMPLATE:
            raise BadTemplateError(f"template {number}: templates have numbers from {FIRST_TEMPLATE} on")
        template = _read_one(content, at, kind)
        yield template
        at += len(template.content)


def _read_one(content: bytes, start: int, kind: int) -> Template:
    number, count = struct.unpack_from("!HH", content, start)
    at = start + (4 if kind in (0, 2) else 6)
    if kind == 1:
        if len(content) < at:
            raise BadTemplateError(f"template {number} is truncated")
        (options,) = struct.unpack_from("!H", content, start + 4)
        count = (count + options) // 4
    if not 0 < count <= MOST_FIELDS:
        raise BadTemplateError(f"template {number} has {counted(count, 'field')}")
    fields = []
    for _ in range(count):
        if len(content) - at < 4:
            raise BadTemplateError(f"template {number} is truncated")
        element, length = struct.unpack_from("!HH", content, at)
        at += 4
        enterprise = 0
        if kind >= 2 and element & 0x8000:
            if len(content) - at < 4:
                raise BadTemplateError(f"template {number} is truncated")
            (enterprise,) = struct.unpack_from("!I", content, at)
            element &= 0x7FFF
            at += 4
        fields.append(Field(element, length, enterprise))
    if kind == 1:
        at = start + 6 + sum(struct.unpack_from("!HH", content, start + 2))
    if not any(field.length for field in fields):
        raise BadTemplateError(f"template {number} has records without a length")
    return Template(number, fields, kind, content[start:at])


class Options(NamedTuple):
    sampler: int = 0
    rate: int = 0  # one packet in this many; 0 if it does not say
    boot: int = 0  # when the exporter was started, in nanoseconds; 0 if it does not say


def read_options(content: bytes, template: Template) -> Iterator[Options]:
    """Yield what the records of a set of options say. What is not a whole record is padding."""
    at = 0
    while at < len(content):
        values: dict[int, int] = {}
        begun = at
        for field in template.fields:
            length = field.length
            if length == layout.VARIABLE:
                length, at = _variable_length(content, at)
            if at + length > len(content):
                return
            if not field.enterprise and length <= 8:
                values.setdefault(field.element, int.from_bytes(content[at : at + length], "big"))
            at += length
        if at == begun:
            return
        sampler = next((values[element] for element in _SAMPLER if element in values), 0)
        boot = values.get(_BOOT, 0)
        yield Options(sampler, _rate(values), boot * 10**6 if boot < _FAR else 0)


def _variable_length(content: bytes, at: int) -> tuple[int, int]:
    """Return the length of a field of varying length and where it begins; beyond the end if it is not there."""
    length = content[at] if at < len(content) else layout.VARIABLE
    if length < 255:
        return length, at + 1
    return int.from_bytes(content[at + 1 : at + 3], "big") if at + 3 <= len(content) else layout.VARIABLE, at + 3


def _rate(values: dict[int, int]) -> int:
    if values.get(305):  # samplingPacketInterval packets are taken, samplingPacketSpace are not
        return min((values[305] + values.get(306, 0)) // values[305] if 306 in values else values[305], 2**32 - 1)
    if values.get(309) and values.get(310):  # samplingSize of samplingPopulation
        return min(values[310] // values[309], 2**32 - 1)
    if values.get(307) and 308 in values:  # time, in place of packets
        return min((values[307] + values[308]) // values[307], 2**32 - 1)
    if values.get(311):  # samplingProbability
        (share,) = struct.unpack("!d", values[311].to_bytes(8, "big"))
        return min(round(1 / share), 2**32 - 1) if 1e-9 < share <= 1 else 0
    return min(next((values[element] for element in (50, 34) if values.get(element)), 0), 2**32 - 1)


def state_folder() -> Path:
    """Return the folder of state: that of the service ($STATE_DIRECTORY), or the user's."""
    service = os.environ.get("STATE_DIRECTORY", "").split(":")[0]
    if service:
        return Path(service)
    user = os.environ.get("XDG_STATE_HOME", "")
    return (Path(user) if user.startswith("/") else Path("~/.local/state").expanduser()) / "superhosts"


class TemplateFile:
    def __init__(self, path: Path, warn: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._warn, self._clock = path, warn, clock
        self._written = -PAUSE
        self._pause = PAUSE
        self._has_failed = False

    def load(self, registry: Registry) -> None:
        try:
            read_state(self._path, lambda content, _place: _load(content, registry), self._warn)
        except (OutputError, OSError) as error:
            self._warn(str(error))
        registry.changed = False

    def save(self, registry: Registry, *, now: bool = False) -> None:
        """Write what a registry knows if it has changed; without `now` at most once in a while."""
        started = self._clock()
        if not registry.changed or (not now and started - self._written < self._pause):
            return
        registry.changed = False
        self._written = started
        try:
            make_folder(self._path.parent)
            write_json(self._path, {"format": FORMAT, "exporters": _content(registry)})
            self._has_failed = False
        except OSError as error:
            if not self._has_failed:
                reason = error.strerror or error
                text = f"{self._path}: templates cannot be kept for the next start: {reason}"
                self._warn(Notice(text, "trouble", WARNING))
            self._has_failed = True
        self._pause = max(PAUSE, BUSY * (self._clock() - started))


def _content(registry: Registry) -> list[dict[str, Any]]:
    streams = registry.tables.streams
    kept: dict[int, list[Template]] = {}
    size = 0
    for key in registry.by_use():
        size += len(registry.templates[key].content)
        if size > MOST_BYTES:
            break
        kept.setdefault(key[0], []).append(registry.templates[key])
    content = []
    for stream in sorted(kept.keys() | set(registry.with_rates()), key=lambda stream: -streams[stream, layout.USED]):
        exporter = registry.key_of(stream)
        content.append(
            {
                "address": f"{exporter.address:x}",
                "version": exporter.version,
                "domain": exporter.domain,
                "exporter": exporter.shown,
                "templates": [(each.kind, each.content.hex()) for each in kept.get(stream, ())],
                "sampling": list(registry.samplers.get(exporter.address, {}).items()),
            }
        )
    return content


def _load(content: Any, registry: Registry) -> None:
    """Take what a file says; any of several exceptions if it is not what `_content` makes."""
    if content["format"] != FORMAT:
        raise ValueError
    for each in content["exporters"]:
        stream = registry.stream_of(StreamKey(int(each["address"], 16), each["version"], each["domain"]))
        if stream < 0:
            return
        for kind, record in each["templates"]:
            for template in read_templates(bytes.fromhex(record), kind):
                if template.fields:
                    registry.learn(stream, template)
        for sampler, rate in each["sampling"]:
            registry.note_rate(stream, int(sampler), int(rate))
