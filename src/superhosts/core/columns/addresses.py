"""Address text to integers, in compiled loops, and packets of rows with two addresses (`packets_of`).

What is an address is what Python's `ipaddress` says: four decimal numbers without leading zeros, or IPv6 in any of its
forms. An IPv4-mapped IPv6 address (::ffff:192.0.2.1) is that IPv4 address. Blanks, quotes, ports and zones (%eth0) are
not part of an address: whoever has them cuts them off first.

A loop over characters mispredicts at the end of every number, which costs more than all the rest. So all bytes of an
IPv4 address are compared at once in a vector register. Its dots become the bits of a mask; the positions of these bits
say where each number ends. IPv6 is read eight bytes at a time into integers, one step for each group.

Functions take bytes as uint8 and return the address as (kind, high, low): `kind` is 4 or 6, or 0 if the text is no
address; `low` has the 32 bits of an IPv4 address. Nothing outside of `data` is read.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core.device import run_parallel, split_evenly, thread_count
from superhosts.core.pairs import Details, PacketBatch, PacketBlock, Times, as_words
from superhosts.jit.cache import compiled
from superhosts.jit.intrinsics import MARKED_BYTES, byte_marks, word_at

Bytes = NDArray[np.uint8]
Kinds = NDArray[np.uint8]  # 4, 6 or 0 (no address)
Words = NDArray[np.uint64]  # addresses as rows (high word, low word)
Rows = NDArray[np.int64]  # positions in text, one for each row

ROWS_PER_THREAD = 1 << 14  # fewer are not worth waking another thread
LONGEST = 45  # characters: six groups of four and an IPv4 address
READABLE = 56  # bytes from the start of a text that are read, wherever it ends
_HIGH_BITS = 0x8080808080808080
_LOW_BITS = 0x7F7F7F7F7F7F7F7F
_ONES = 0x0101010101010101


@compiled
def _trailing_zeros(word: np.uint64) -> np.uint64:
    """Return the number of zeros below the lowest set bit. LLVM makes one instruction of the count."""
    x = (word & (~word + np.uint64(1))) - np.uint64(1)
    x -= (x >> np.uint64(1)) & np.uint64(0x5555555555555555)
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (x * np.uint64(_ONES)) >> np.uint64(56)


@compiled
def _not_digits(word: np.uint64) -> np.uint64:
    """Return 0x80 for each byte that is not a decimal digit."""
    distance = (word & np.uint64(_LOW_BITS)) ^ np.uint64(0x3030303030303030)
    return (distance + np.uint64(0x7676767676767676) | word) & np.uint64(_HIGH_BITS)


@compiled
def _not_hex(word: np.uint64) -> np.uint64:
    """Return 0x80 for each byte that is not a hexadecimal digit."""
    letter = (word & np.uint64(_LOW_BITS) | np.uint64(0x2020202020202020)) ^ np.uint64(0x6060606060606060)
    no_letter = letter + np.uint64(0x7979797979797979) | ~(letter + np.uint64(_LOW_BITS)) | word
    return _not_digits(word) & no_letter & np.uint64(_HIGH_BITS) | word & np.uint64(_HIGH_BITS)


@compiled
def _number(word: np.uint64, length: np.uint64) -> np.uint64:
    digits = word << (np.uint64(24) - (length << np.uint64(3)) & np.uint64(63))
    hundreds, tens = digits & np.uint64(15), digits >> np.uint64(8) & np.uint64(15)
    return hundreds * np.uint64(100) + tens * np.uint64(10) + (digits >> np.uint64(16) & np.uint64(15))


@compiled
def parse_ipv4(start: np.uint64, length: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Return the IPv4 address in the text at an address in memory, and 1 if it is none (else 0).

    24 bytes can be read there. Everything is tested at once, for all four numbers, by bits that stand for characters.
    """
    zero, one, two = np.uint64(0), np.uint64(1), np.uint64(2)
    if length - np.uint64(7) > np.uint64(8):
        return zero, one
    marks = np.uint64(byte_marks(start))
    after = one << length
    others, dots = marks & (after - one), marks >> np.uint64(MARKED_BYTES) & (after - one)
    ends = dots | after  # The end of the text counts as a dot: every step below finds a bit.
    ends2 = ends & (ends - one)
    ends3 = ends2 & (ends2 - one)
    begins = ends << one | one  # beyond the end, too
    empty = begins & ends
    long = ~(ends | ends >> one | ends >> two | ends >> np.uint64(3)) & (after - one)
    padded = marks >> np.uint64(2 * MARKED_BYTES) & begins & ~(ends >> one) & (after - one)
    wrong = (others ^ dots) | (ends3 & (ends3 - one) ^ after) | empty | long | padded
    if wrong != zero:
        return zero, one
    end1, end2, end3 = _trailing_zeros(ends), _trailing_zeros(ends2), _trailing_zeros(ends3)
    number1 = _number(np.uint64(word_at(start)), end1)
    number2 = _number(np.uint64(word_at(start + end1 + one)), end2 - end1 - one)
    number3 = _number(np.uint64(word_at(start + end2 + one)), end3 - end2 - one)
    number4 = _number(np.uint64(word_at(start + end3 + one)), length - end3 - one)
    value = number1 << np.uint64(24) | number2 << np.uint64(16) | number3 << np.uint64(8) | number4
    return value, np.uint64(number1 | number2 | number3 | number4 > np.uint64(255))


@compiled
def _group(word: np.uint64, digits: np.uint64) -> np.uint64:
    text = (word << (np.uint64(32) - (digits << np.uint64(3)))) & np.uint64(0xFFFFFFFF)
    nibbles = (text & np.uint64(0x0F0F0F0F)) + (text >> np.uint64(6) & np.uint64(0x01010101)) * np.uint64(9)
    pairs = nibbles << np.uint64(4) | nibbles >> np.uint64(8)  # bytes 0 and 2 have two digits each
    return (pairs & np.uint64(0xFF)) << np.uint64(8) | pairs >> np.uint64(16) & np.uint64(0xFF)


@compiled
def _parse_ipv6(start: np.uint64, length: np.uint64) -> tuple[int, np.uint64, np.uint64]:
    """Return the IPv6 address in the text, of at least two characters; kind 6 even if IPv4 is mapped to it."""
    zero, one, colon, byte = np.uint64(0), np.uint64(1), np.uint64(58), np.uint64(0xFF)
    high, low, head_high, head_low = zero, zero, zero, zero
    count, gap = 0, -1  # groups read, and those before "::"
    at = zero
    word = np.uint64(word_at(start))
    if word & byte == colon:
        if word >> np.uint64(8) & byte != colon:
            return 0, zero, zero
        gap = 0
        at = np.uint64(2)
    while at < length:
        word = np.uint64(word_at(start + at))
        left = length - at
        digits = min(_trailing_zeros(_not_hex(word) | one << np.uint64(63)) >> np.uint64(3), left)
        if digits - one > np.uint64(3) or count > 7:
            return 0, zero, zero
        after = word >> (digits << np.uint64(3))
        if digits < left and after & byte == np.uint64(46):
            number, wrong = parse_ipv4(start + at, left)
            if wrong:
                return 0, zero, zero
            high, low = high << np.uint64(32) | low >> np.uint64(32), low << np.uint64(32) | number
            count += 2
            break
        high, low = high << np.uint64(16) | low >> np.uint64(48), low << np.uint64(16) | _group(word, digits)
        count += 1
        if digits == left:
            break
        if after & byte != colon or digits + one == left:  # A single colon does not end an address.
            return 0, zero, zero
        at += digits + one
        if after >> np.uint64(8) & byte == colon:
            if gap >= 0:
                return 0, zero, zero
            gap, head_high, head_low = count, high, low
            high, low = zero, zero
            at += one
    if gap < 0:
        return (6, high, low) if count == 8 else (0, zero, zero)
    if count > 7:
        return 0, zero, zero
    shift = np.uint64(16 * (8 - gap))
    if shift < np.uint64(64):
        high |= head_high << shift | head_low >> (np.uint64(64) - shift)
        low |= head_low << shift
    elif shift < np.uint64(128):
        high |= head_low << (shift - np.uint64(64))
    return 6, high, low


@compiled
def parse_at(start: np.uint64, length: np.uint64) -> tuple[int, np.uint64, np.uint64]:
    """Return (kind, high, low) of the text at an address in memory, from which READABLE bytes can be read.

    For loops: arrays that are passed to a function are counted, which can take longer than an address.
    """
    zero = np.uint64(0)
    if length - np.uint64(2) > np.uint64(LONGEST - 2):
        return 0, zero, zero
    if length < np.uint64(16):
        number, wrong = parse_ipv4(start, length)
        if not wrong:
            return 4, zero, number
    kind, high, low = _parse_ipv6(start, length)
    if kind == 6 and high == zero and low >> np.uint64(32) == np.uint64(0xFFFF):
        return 4, zero, low & np.uint64(0xFFFFFFFF)
    return kind, high, low


@compiled
def parse_address(data: Bytes, start: int, end: int) -> tuple[int, np.uint64, np.uint64]:
    """Return (kind, high, low) of the text in data[start:end]: kind 4, 6, or 0 if it is not an address.

    The caller has checked that 0 <= start <= end <= len(data).
    """
    if len(data) - start >= READABLE:
        return parse_at(np.uint64(data.ctypes.data + start), np.uint64(end - start))
    text = np.zeros(2 * READABLE, np.uint8)
    for i in range(start, end):
        text[i - start] = data[i]
    found = parse_at(np.uint64(text.ctypes.data), np.uint64(end - start))
    text[0] = 0  # An array is freed after its last use, and an address does not count as one.
    return found


@compiled
def parse_rows(data: Bytes, starts: Rows, ends: Rows, rows: tuple[int, int], kinds: Kinds, words: Words) -> None:
    """Parse the rows first..last of a text column; row i is data[starts[i]:ends[i]]."""
    begin, safe = np.uint64(data.ctypes.data), len(data) - READABLE
    for i in range(rows[0], rows[1]):
        at = starts[i]
        if at <= safe:
            kind, high, low = parse_at(begin + np.uint64(at), np.uint64(ends[i] - at))
        else:
            kind, high, low = parse_address(data, at, ends[i])
        kinds[i] = kind
        words[i, 0] = high
        words[i, 1] = low


@compiled
def are_inside(offsets: NDArray[Any], size: int) -> bool:
    """Return True if offsets do not decrease and point to data of this size."""
    falls = 0
    for i in range(len(offsets) - 1):
        falls += offsets[i] > offsets[i + 1]
    return bool(falls == 0 and offsets[0] >= 0 and offsets[-1] <= size)


def parse_spans(data: Bytes, starts: Rows, ends: Rows, threads: int | None = None) -> tuple[Kinds, Words]:
    """Parse rows of text: row i is data[starts[i]:ends[i]], which lies inside.

    Return a kind for each row (4, 6, or 0 for what is not an address) and the addresses as rows (high word, low word).
    """
    count = len(starts)
    kinds, words = np.empty(count, np.uint8), np.empty((count, 2), np.uint64)
    runs = split_evenly(count, min(thread_count(threads), max(1, count // ROWS_PER_THREAD)))
    run_parallel(parse_rows, [(data, starts, ends, run, kinds, words) for run in runs], len(runs))
    return kinds, words


class AddressColumn(NamedTuple):
    kinds: Kinds  # 4, 6, or 0 for what is not an address
    words: Words  # rows (high word, low word)


Ends = AddressColumn | NDArray[np.uint32]


def packets_of(src: Ends, dst: Ends, time: Times, details: Details | None = None) -> tuple[PacketBlock, Rows]:
    """Return the packets of rows, in order, and the numbers of the rows that are none.

    Columns of uint32 are not copied, nor are their details.
    """
    if not isinstance(src, AddressColumn) and not isinstance(dst, AddressColumn):
        block = (PacketBatch(4, src, dst, time, details=details),) if len(time) else ()
        return block, np.empty(0, np.int64)
    left, right = widened(src), widened(dst)
    kinds = np.where(left.kinds == right.kinds, left.kinds, 0)
    batches = []
    for family in (4, 6):
        rows = np.flatnonzero(kinds == family)
        ends = [
            column.words[rows] if family == 6 else column.words[rows, 1].astype(np.uint32) for column in (left, right)
        ]
        chosen = None if details is None else details[rows]
        batches.append(PacketBatch(family, ends[0], ends[1], time[rows], details=chosen))
    return tuple(batch for batch in batches if len(batch)), np.flatnonzero(kinds == 0)


def widened(column: Ends) -> AddressColumn:
    if isinstance(column, AddressColumn):
        return column
    return AddressColumn(np.full(len(column), 4, np.uint8), as_words(column))


def taken(column: Ends, rows: Any) -> Ends:
    """Return some rows, by their numbers or a slice."""
    return AddressColumn(column.kinds[rows], column.words[rows]) if isinstance(column, AddressColumn) else column[rows]
