"""Templates of NetFlow v9 and IPFIX, from the bytes of a set, and the options that exporters send with them."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from superhosts.core.text import counted
from superhosts.sources.exports.elements import MOST_FIELDS, Field
from superhosts.sources.exports.layout import VARIABLE

FIRST_TEMPLATE = 256
_BOOT = 160
_FAR = 4 * 10**12  # milliseconds; a time beyond them makes no sense
_SAMPLER = (48, 302, 300)  # sampler id, selector id, selection sequence id


class Template(NamedTuple):
    """A template of data or of options."""

    number: int
    fields: list[Field]  # none: it is withdrawn
    kind: int  # the id of its set: 0, 1 (NetFlow v9), 2, 3 (IPFIX); 1 and 3 are options
    content: bytes  # its record

    @property
    def is_option(self) -> bool:
        """True if its data are options."""
        return self.kind in (1, 3)


class BadTemplateError(ValueError):
    """A template that makes no sense, or that is longer than all reason."""


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
    """What a record of options says."""

    sampler: int = 0
    rate: int = 0  # one packet in this many; 0 if it does not say
    boot: int = 0  # when the exporter was started, in nanoseconds; 0 if it does not say


def read_options(content: bytes, template: Template) -> Iterator[Options]:
    """Yield what the records of a set of options say. What is no whole record is padding."""
    at = 0
    while at < len(content):
        values: dict[int, int] = {}
        begun = at
        for field in template.fields:
            length = field.length
            if length == VARIABLE:
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
    length = content[at] if at < len(content) else VARIABLE
    if length < 255:
        return length, at + 1
    return int.from_bytes(content[at + 1 : at + 3], "big") if at + 3 <= len(content) else VARIABLE, at + 3


def _rate(values: dict[int, int]) -> int:
    """Return the sampling rate that fields of options say: one packet in so many."""
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
