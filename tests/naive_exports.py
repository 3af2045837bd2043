"""A slow, obvious reader of flow exports, against which the compiled one is held. It imports nothing of ours.

It says which records a stream of datagrams has: addresses, time and what is lost. Times: the record's "start" or "end",
"export", or "received"; a time more than a day from its reference is not obeyed.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

DAY = 86400 * 10**9
STARTS = {22: "uptime", 150: "s", 152: "ms", 154: "ntp", 156: "ntp", 158: "delta"}
ENDS = {21: "uptime", 151: "s", 153: "ms", 155: "ntp", 157: "ntp", 159: "delta"}
EVENTS = {322: "s", 323: "ms", 324: "ntp", 325: "ntp", 258: "ms"}
BEST = ["ntp", "ms", "delta", "s", "uptime"]


class Bad(Exception):  # noqa: N818
    """A datagram that makes no sense from here on."""


@dataclass
class Naive:
    time: str = "start"
    ipv4: list[tuple[int, int, int]] = field(default_factory=list)
    ipv6: list[tuple[int, int, int]] = field(default_factory=list)
    not_ip: int = 0
    templates: dict = field(default_factory=dict)  # (stream, number) → (fields, scope)
    held: dict = field(default_factory=dict)  # (stream, number) → sets with the header's times
    boots: dict = field(default_factory=dict)

    def netflow(self, datagram: bytes, exporter: object = 0, received: int = 0) -> None:
        if len(datagram) < 16:
            return
        version = int.from_bytes(datagram[:2], "big")
        if version == 5:
            self._version5(datagram, received)
        elif version == 9 and len(datagram) >= 20:
            _, _, uptime, seconds, _, domain = struct.unpack_from("!HHIIII", datagram)
            self._sets(datagram[20:], (exporter, 9, domain), self._when(seconds * 10**9, uptime, received))
        elif version == 10:
            _, length, seconds, _, domain = struct.unpack_from("!HHIII", datagram)
            if length >= 16:
                when = self._when(seconds * 10**9, None, received)
                self._sets(datagram[16:length], (exporter, 10, domain), when)

    def _when(self, export: int, uptime: int | None, received: int) -> tuple[int, int, int | None]:
        if received and abs(export - received) > DAY:
            export = received
        return (received if self.time == "received" and received else export), export, uptime

    def _version5(self, datagram: bytes, received: int) -> None:
        if len(datagram) < 24:
            return
        _, count, uptime, seconds, nanoseconds = struct.unpack_from("!HHIII", datagram)
        when = self._when(seconds * 10**9 + (nanoseconds if nanoseconds < 10**9 else 0), uptime, received)
        for number in range(min(count, (len(datagram) - 24) // 48)):
            record = datagram[24 + 48 * number :][:48]
            values = {8: record[:4], 12: record[4:8], 22: record[24:28], 21: record[28:32]}
            self._record([(element, 0, value) for element, value in values.items()], when, 0)

    def _sets(self, content: bytes, stream: tuple, when: tuple) -> None:
        first = 0 if stream[1] == 9 else 2
        while len(content) >= 4:
            kind, length = struct.unpack_from("!HH", content)
            if length < 4 or length > len(content):
                return
            inside, content = content[4:length], content[length:]
            if kind in (first, first + 1):
                self._templates(inside, kind, stream)
            elif kind >= 256:
                self._data(inside, kind, stream, when)

    def _templates(self, content: bytes, kind: int, stream: tuple) -> None:
        try:
            self._read_templates(content, kind, stream)
        except (struct.error, Bad):
            return

    def _read_templates(self, content: bytes, kind: int, stream: tuple) -> None:
        while len(content) >= 4:
            number, count = struct.unpack_from("!HH", content)
            if kind < 2 and number == 0:
                return
            if kind >= 2 and count == 0:
                if number < 256 and number != kind:
                    return
                for key in list(self.templates):
                    is_of_kind = self.templates[key][1] == (kind == 3)
                    if key[0] == stream and (key[1] == number or (number == kind and is_of_kind)):
                        del self.templates[key]
                content = content[4:]
                continue
            if number < 256:
                raise Bad
            at = 4
            if kind in (1, 3):
                (more,) = struct.unpack_from("!H", content, 4)
                at = 6
            if kind == 1:
                end, count = 6 + count + more, (count + more) // 4
            if not 0 < count <= 512:
                raise Bad
            fields = []
            for _ in range(count):
                element, length = struct.unpack_from("!HH", content, at)
                at, enterprise = at + 4, 0
                if kind >= 2 and element & 0x8000:
                    (enterprise,) = struct.unpack_from("!I", content, at)
                    at, element = at + 4, element & 0x7FFF
                fields.append((element, length, enterprise))
            if not any(length for _, length, _ in fields):
                raise Bad
            content = content[end if kind == 1 else at :]
            is_new = self.templates.get((stream, number)) != (fields, kind in (1, 3))
            self.templates[stream, number] = (fields, kind in (1, 3))
            if is_new:
                for inside, when in self.held.pop((stream, number), []):
                    self._data(inside, number, stream, when)

    def _data(self, content: bytes, number: int, stream: tuple, when: tuple) -> None:
        if (stream, number) not in self.templates:
            self.held.setdefault((stream, number), []).append((content, when))
            return
        fields, is_option = self.templates[stream, number]
        least = sum(1 if length == 65535 else length for _, length, _ in fields)
        while len(content) >= max(least, 1):
            try:
                record, content = _cut(content, fields)
            except Bad:
                return
            if is_option:
                boot = next((int.from_bytes(value, "big") for element, _, value in record if element == 160), 0)
                if 0 < boot < 4 * 10**12:
                    self.boots[stream] = boot * 10**6
            else:
                self._record(record, when, self.boots.get(stream, 0))

    def _record(self, record: list, when: tuple, boot: int) -> None:
        values: dict[int, bytes] = {}
        for element, enterprise, value in record:
            if not enterprise and (element not in LENGTHS or LENGTHS[element] == len(value)):
                values.setdefault(element, value)
        narrow, wide_ = 8 in values and 12 in values, 27 in values and 28 in values
        if narrow and wide_:
            if 60 in values:
                narrow = values[60] != b"\x06"
            else:
                narrow = values[8] + values[12] != bytes(8)
        time = self._time(record, values, when, boot)
        if narrow:
            self.ipv4.append((int.from_bytes(values[8], "big"), int.from_bytes(values[12], "big"), time))
        elif wide_:
            self.ipv6.append((int.from_bytes(values[27], "big"), int.from_bytes(values[28], "big"), time))
        else:
            self.not_ip += 1

    def _time(self, record: list, values: dict[int, bytes], when: tuple, boot: int) -> int:
        base, export, uptime = when
        if self.time not in ("start", "end"):
            return base
        for kinds in (STARTS, ENDS, EVENTS) if self.time == "start" else (ENDS, STARTS, EVENTS):
            for kind in BEST:
                for element, enterprise, value in record:
                    if enterprise or kinds.get(element) != kind:
                        continue
                    if len(value) == 8 if kind == "ntp" else 0 < len(value) <= 8:
                        if kind == "uptime" and 160 in values:
                            said = int.from_bytes(values[160], "big")
                            boot, uptime = said * 10**6 if said < 4 * 10**12 else 0, None
                        if kind == "uptime" and uptime is None and not boot:
                            return base
                        time = _meaning(kind, int.from_bytes(value, "big"), export, uptime, boot)
                        return time if abs(time - base) <= DAY else base
        return base


LENGTHS = {8: 4, 12: 4, 27: 16, 28: 16, 60: 1, 160: 8}


def _cut(content: bytes, fields: list) -> tuple[list, bytes]:
    record = []
    for element, length, enterprise in fields:
        is_variable = length == 65535  # addresses and times have one length
        if is_variable:
            if not content:
                raise Bad
            length, content = content[0], content[1:]
            if length == 255:
                if len(content) < 2:
                    raise Bad
                length, content = int.from_bytes(content[:2], "big"), content[2:]
        if len(content) < length:
            raise Bad
        if not is_variable or element not in STARTS | ENDS | EVENTS | LENGTHS:
            record.append((element, enterprise, content[:length]))
        content = content[length:]
    return record, content


def _meaning(kind: str, value: int, export: int, uptime: int | None, boot: int) -> int:
    """Return the nanoseconds that a field says; something far away if that makes no sense."""
    if kind == "ntp":
        if value == 0:
            return 0
        seconds = value >> 32
        seconds += 0 if seconds >= 2_208_988_800 else 1 << 32
        return (seconds - 2_208_988_800) * 10**9 + ((value & 0xFFFFFFFF) * 10**9 >> 32)
    if kind == "uptime" and uptime is not None:
        if value >= 2**32:
            return 0
        difference = (uptime - value) % 2**32
        return export - (difference - (2**32 if difference >= 2**31 else 0)) * 10**6
    if value >= 4 * 10**9 * (1 if kind == "s" else 1000):
        return 0
    if kind == "uptime":
        return boot + value * 10**6
    return export - value * 1000 if kind == "delta" else value * (10**6 if kind == "ms" else 10**9)
