"""A filter in the kernel that drops packets whose pair came before in the same window: half of busy traffic.

It is an eBPF program in front of the ring of a live capture. Two tables have the pairs that were let through lately,
each with its window. A place that several pairs share has the last ones, so a collision lets a repeat through and never
drops a pair that is new: counting stays exact.

    IPv4: two places for an index; a place has what the index does not tell of a pair (a bijection), and the window
    IPv6: one place; the pair itself, and a hash of pair and window, so that two cores that write at once match nothing

The capture tells the program when a window begins and ends, ahead of time and in ticks of the kernel's own clock, which
costs a packet nothing. Around the end of a window, or if the capture does not tell, everything is let through and
nothing is noted: a packet's time is taken before or after the filter runs. What was let through may be lost because the
ring is full, or may belong to another window because the clock was set. Then the capture makes the program `forget`.

LLVM makes the program when a capture begins (some milliseconds), from text with the numbers of this capture in it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import secrets
import socket
import struct
import time
from pathlib import Path
from typing import Any, NamedTuple

from superhosts.core.units import SECOND

# Numbers of linux/bpf.h.
MAP_CREATE, MAP_LOOKUP, MAP_UPDATE, PROG_LOAD, PROG_TEST_RUN = 0, 1, 2, 5, 10
ARRAY, PER_CPU_ARRAY = 2, 6
SOCKET_FILTER = 1
LOOKUP, LOAD_BYTES, JIFFIES = 1, 68, 118  # functions of the kernel
FROM_IP = 1  # offsets of bytes count from the IP header
PROTOCOL, DIRECTION, INTERFACE, OUTGOING = 16, 4, 40, 4  # fields of struct __sk_buff, and one of the directions
LOOPBACK = 1  # the number of `lo`, whose packets come again, incoming
SO_ATTACH_BPF = 50
SYSCALLS = {"x86_64": 321, "aarch64": 280}  # of bpf(2)

BITS4, BITS6 = 20, 16  # of an index: 16 MiB for IPv4, 2.5 MiB for IPv6
ROUNDS = (1 << BITS4) - 1  # numbers of windows; a place is older than that in years only
RATES = (100, 250, 300, 1000)  # ticks a second, of which every kernel has one
GUARD = (
    SECOND // 5
)  # before and after the end of a window: packets wait at most so long between their time and the filter
LEAST_SPAN = 20 * GUARD
PACE = SECOND  # between two times that the program is told
SHARP = SECOND // 200
HEADER = 54  # bytes of a packet that the kernel runs a program with, to ask it for its clock


class Moment(NamedTuple):
    now: int
    wall: int
    ticks: int
    is_sharp: bool  # the clocks were read one right after the other: this thread may have waited in between


class Repeats:
    """The tables and the program of one capture. OSError says why there cannot be one."""

    def __init__(self, span: int, snap: int) -> None:
        """Drop repeats within windows of `span` nanoseconds, 0: of the whole run. Take `snap` bytes of the others."""
        self._span, self._forgotten, self._told, self._clock = span, 0, 0, 0
        self._due = 0  # when to tell again
        self._is_stale = False
        self._files: list[int] = []
        try:
            tables = Tables(
                narrow=self._table(ARRAY, 16, 1 << BITS4),
                wide=self._table(ARRAY, 40, 1 << BITS6),
                window=self._table(ARRAY, 16, 1),
                dropped=self._table(PER_CPU_ARRAY, 16, 1),
            )
            self._tables = tables
            self._program = self._load(filter_program(tables, snap))
            self._ticker = self._load(TICKER)
            self._began = self._moment()
        except BaseException:
            self.close()
            raise

    def _table(self, kind: int, size: int, places: int) -> int:
        self._files.append(_bpf(MAP_CREATE, struct.pack("=5I", kind, 4, size, places, 0)))
        return self._files[-1]

    def _load(self, text: str) -> int:
        code = machine_code(text)
        program, licence = ctypes.create_string_buffer(code, len(code)), ctypes.create_string_buffer(b"Apache-2.0")
        places = ctypes.addressof(program), ctypes.addressof(licence)
        self._files.append(_bpf(PROG_LOAD, struct.pack("=2I2Q", SOCKET_FILTER, len(code) // 8, *places)))
        return self._files[-1]

    def attach(self, own: socket.socket) -> None:
        own.setsockopt(socket.SOL_SOCKET, SO_ATTACH_BPF, self._program)

    def tell(self) -> None:
        """Tell the program of the window that is open, or will be next; does nothing until that is due."""
        if time.monotonic_ns() < self._due:
            return
        now, wall, ticks, is_sharp = moment = self._moment()
        if not is_sharp:
            return
        self._began = self._began if self._began.is_sharp else moment
        clock, before = wall - now, self._clock
        was_set = bool(before) and abs(clock - before) > GUARD // 4
        self._forgotten += was_set or self._is_stale
        self._is_stale = False
        self._told, self._clock = now, clock
        span, passed = self._span, now - self._began.now
        measured = (ticks - self._began.ticks) % (1 << 32) * SECOND / max(passed, 1)
        rate = min(RATES, key=lambda each: abs(each - measured))
        number = (wall + GUARD) // span if span else 0
        begin, end = (number * span + GUARD, (number + 1) * span - GUARD) if span else (wall, wall + 3600 * SECOND)
        self._due = now + min(PACE, max(end - wall, 0))  # the next window begins soon after the end of this one
        length = (end - begin) * rate // SECOND if passed > SECOND // 2 else 0
        start = (ticks + (begin - wall) * rate // SECOND) % (1 << 32)
        round = (number + self._forgotten) % ROUNDS + 1
        key, window = ctypes.c_uint32(0), ctypes.create_string_buffer(struct.pack("=4I", start, round, length, round))
        _bpf(MAP_UPDATE, struct.pack("=I4x3Q", self._tables.window, ctypes.addressof(key), ctypes.addressof(window), 0))

    def forget(self) -> None:
        """Let all pairs through once more, from the next `tell` on: some were lost behind the filter."""
        self._is_stale = True

    def _moment(self) -> Moment:
        now, wall, ticks = time.monotonic_ns(), time.time_ns(), self._ticks()
        return Moment(now, wall, ticks, time.monotonic_ns() - now < SHARP)

    def _ticks(self) -> int:
        packet = ctypes.create_string_buffer(HEADER)
        asked = struct.pack("=4I2Q2I", self._ticker, 0, HEADER, 0, ctypes.addressof(packet), 0, 1, 0)
        return int(struct.unpack_from("=I", _answer(PROG_TEST_RUN, asked), 4)[0])

    def dropped(self) -> tuple[int, int]:
        """Return how many packets of IPv4 and IPv6 were dropped so far."""
        key, values = ctypes.c_uint32(0), (ctypes.c_uint64 * (2 * possible_cpus()))()
        _bpf(
            MAP_LOOKUP, struct.pack("=I4x3Q", self._tables.dropped, ctypes.addressof(key), ctypes.addressof(values), 0)
        )
        return sum(values[::2]), sum(values[1::2])

    def close(self) -> None:
        while self._files:
            os.close(self._files.pop())


def _bpf(command: int, asked: bytes) -> int:
    return int(struct.unpack_from("=i", _answer(command, asked), 144)[0])


def _answer(command: int, asked: bytes) -> bytes:
    """Return what bpf(2) leaves of a question, with the number that it returns behind it."""
    number = SYSCALLS.get(platform.machine())
    if number is None or platform.system() != "Linux":
        raise OSError(errno.ENOSYS, "no such kernel")
    room = ctypes.create_string_buffer(asked, 144)  # all of the union: kernels look at more of it than a command needs
    found = ctypes.CDLL(None, use_errno=True).syscall(number, command, room, len(room))
    if found < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return room.raw + struct.pack("=i", found)


def possible_cpus() -> int:
    text = Path("/sys/devices/system/cpu/possible").read_text("ascii").strip()
    return int(text.rpartition(",")[2].rpartition("-")[2]) + 1


def machine_code(text: str) -> bytes:
    """Return the instructions that LLVM makes of a program's text."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine: Any = llvm.Target.from_triple("bpfel").create_target_machine(opt=2)
    elf: bytes = machine.emit_object(llvm.parse_assembly(f'target triple = "bpfel"\n{text}'))
    headers, size, count, names = struct.unpack_from("<Q10x3H", elf, 40)
    sections = [struct.unpack_from("<I20x2Q", elf, headers + number * size) for number in range(count)]
    for name, start, length in sections:
        at = sections[names][1] + name
        if elf[at : elf.index(b"\0", at)] == b"program":
            return elf[start : start + length]
    raise OSError(errno.ENOSYS, "LLVM made no program")


class Tables(NamedTuple):
    narrow: int
    wide: int
    window: int
    dropped: int


def _found(name: str, table: int, index: str) -> str:
    """Return instructions that look up a place; without one, which never happens, the packet is let through."""
    return f"""
  store i32 {index}, ptr %index
  %{name}.table = call i64 @llvm.bpf.pseudo(i64 1, i64 {table})
  %{name} = call ptr inttoptr (i64 {LOOKUP} to ptr)(i64 %{name}.table, ptr %index)
  %{name}.none = icmp eq ptr %{name}, null
  br i1 %{name}.none, label %pass, label %{name}.there
{name}.there:"""


def _copied(name: str, to: str, size: int) -> str:
    """Return instructions that copy an IP header to the stack; a packet that is too short is let through."""
    return f"""
  %{name} = call i64 inttoptr (i64 {LOAD_BYTES} to ptr)(ptr %packet, i64 0, ptr {to}, i64 {size}, i64 {FROM_IP})
  %{name}.short = icmp ne i64 %{name}, 0
  br i1 %{name}.short, label %pass, label %{name}.whole
{name}.whole:
  %{name}.first = load i8, ptr {to}
  %{name}.version = lshr i8 %{name}.first, 4
  %{name}.fits = icmp eq i8 %{name}.version, {4 if size == 20 else 6}
  br i1 %{name}.fits, label %{name}.pair, label %pass
{name}.pair:"""


def _word(name: str, place: str, offset: int, bits: int = 64) -> str:
    return f"""
  %{name}.at = getelementptr i8, ptr {place}, i64 {offset}
  %{name} = load i{bits}, ptr %{name}.at"""


def _mixed(name: str, value: str) -> str:
    """Return instructions that mangle 64 bits, so that all bits of an index depend on all of a pair: a bijection."""
    lines = ""
    for number, factor in enumerate((0xD6E8FEB86659FD93, 0xA5CB9243F3BF5E6D)):
        now = f"{name}.{number}"
        lines += f"""
  %{now}.high = lshr i64 {value}, 32
  %{now}.folded = xor i64 {value}, %{now}.high
  %{now} = mul i64 %{now}.folded, {factor - (1 << 64)}"""
        value = f"%{now}"
    return f"""{lines}
  %{name}.high = lshr i64 {value}, 32
  %{name} = xor i64 {value}, %{name}.high"""


TICKER = f"""
define i32 @ticker(ptr %packet) section "program" {{
  %now = call i64 inttoptr (i64 {JIFFIES} to ptr)()
  %low = trunc i64 %now to i32
  ret i32 %low
}}
"""


def filter_program(tables: Tables, snap: int) -> str:
    """Return the program's text. What it cannot tell as the walk does (no IP, a header cut short) is let through."""
    secret = secrets.randbits(63)
    words = [("a", 8), ("b", 16), ("c", 24), ("d", 32)]  # of two addresses of IPv6, in the header
    chained = "".join(
        f"\n  %in.{name} = {f'add i64 %mixed.{before}, %{name}' if before else f'xor i64 %{name}, {secret}'}"
        + _mixed(f"mixed.{name}", f"%in.{name}")
        for before, (name, _) in zip(("", "a", "b", "c"), words, strict=True)
    )
    compared, same = "", "0"
    for number, name in enumerate((*"abcd", "check")):
        compared += _word(f"old.{name}", "%wide.slot", 8 * number)
        compared += f"\n  %new.{name} = xor i64 %old.{name}, %{name}\n  %any.{name} = or i64 {same}, %new.{name}"
        same = f"%any.{name}"
    stored = "".join(f"\n  store i64 %{name}, ptr %old.{name}.at" for name in (*"abcd", "check"))
    return f"""
declare i64 @llvm.bpf.pseudo(i64, i64)
define i32 @filter(ptr %packet) section "program" {{
  %index = alloca i32
  %header = alloca [5 x i64]{_word("kind", "%packet", PROTOCOL, 32)}{_word("way", "%packet", DIRECTION, 32)}
  {_word("device", "%packet", INTERFACE, 32)}
  %out = icmp eq i32 %way, {OUTGOING}
  %local = icmp eq i32 %device, {LOOPBACK}
  %again = and i1 %out, %local
  %is.narrow = icmp eq i32 %kind, {socket.htons(0x0800)}
  %is.wide = icmp eq i32 %kind, {socket.htons(0x86DD)}
  %is = or i1 %is.narrow, %is.wide
  %wanted = icmp ugt i1 %is, %again
  br i1 %wanted, label %ip, label %pass
ip:{_found("span", tables.window, "0")}{_word("start", "%span", 0)}{_word("length", "%span", 8)}
  %one.round = lshr i64 %start, 32
  %round = lshr i64 %length, 32
  %whole = icmp eq i64 %one.round, %round
  %now = call i64 inttoptr (i64 {JIFFIES} to ptr)()
  %since = sub i64 %now, %start
  %since.low = trunc i64 %since to i32
  %length.low = trunc i64 %length to i32
  %inside = icmp ult i32 %since.low, %length.low
  %open = and i1 %whole, %inside
  br i1 %open, label %told, label %pass
told:
  br i1 %is.narrow, label %narrow, label %wide
narrow:
  %behind = getelementptr i8, ptr %header, i64 4{_copied("four", "%behind", 20)}{_word("ends", "%header", 16)}
  %keyed = xor i64 %ends, {secret}{_mixed("mixed", "%keyed")}
  %place = trunc i64 %mixed to i32
  %narrow.index = and i32 %place, {(1 << BITS4) - 1}
  %high = and i64 %mixed, {-1 << BITS4}
  %tag = or i64 %high, %round{_found("narrow.slot", tables.narrow, "%narrow.index")}
  %first = load i64, ptr %narrow.slot
  %is.first = icmp eq i64 %first, %tag
  br i1 %is.first, label %drop, label %other
other:{_word("second", "%narrow.slot", 8)}
  store i64 %first, ptr %second.at
  store i64 %tag, ptr %narrow.slot
  %is.second = icmp eq i64 %second, %tag
  br i1 %is.second, label %drop, label %pass
wide:{_copied("six", "%header", 40)}{"".join(_word(name, "%header", offset) for name, offset in words)}{chained}
  %in.check = add i64 %mixed.d, %round{_mixed("check", "%in.check")}
  %wide.place = trunc i64 %mixed.d to i32
  %wide.index = and i32 %wide.place, {(1 << BITS6) - 1}{_found("wide.slot", tables.wide, "%wide.index")}{compared}
  %is.same = icmp eq i64 {same}, 0
  br i1 %is.same, label %drop, label %note
note:{stored}
  br label %pass
drop:{_found("counts", tables.dropped, "0")}
  %offset = select i1 %is.narrow, i64 0, i64 8
  %count.at = getelementptr i8, ptr %counts, i64 %offset
  %count = load i64, ptr %count.at
  %more = add i64 %count, 1
  store i64 %more, ptr %count.at
  ret i32 0
pass:
  ret i32 {snap}
}}
"""
