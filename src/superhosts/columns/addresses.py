"""Address text to integers, in compiled loops.

What is an address is what Python's `ipaddress` says: four decimal numbers without leading zeros, or IPv6 in any of its
forms (upper case, `::`, an IPv4 address at the end). An IPv4-mapped IPv6 address (::ffff:192.0.2.1) is that IPv4
address. Blanks, quotes, ports and zones (%eth0) are not part of an address: whoever has them cuts them off first.

A loop over characters mispredicts at the end of every number, which costs more than all the rest. So text is read eight
bytes at a time into integers, and all bytes of one are compared at once. The dots of an IPv4 address become the bits of
a mask; the positions of these bits say where each number ends. IPv6 takes one such step for each group.

Every function takes bytes as uint8 and returns the address as (kind, high, low): `kind` is 4 or 6, or 0 if the text is
no address; `low` has the 32 bits of an IPv4 address. Nothing outside `data` is read.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from superhosts.compiled import compiled
from superhosts.device import run_parallel, split_evenly, thread_count

Bytes = NDArray[np.uint8]
Kinds = NDArray[np.uint8]  # 4, 6 or 0 (no address)
Words = NDArray[np.uint64]  # addresses as rows (high word, low word)

ROWS_PER_THREAD = 1 << 14  # fewer are not worth waking another thread
LONGEST = 45  # characters: six groups of four and an IPv4 address
_HIGH_BITS = 0x8080808080808080
_LOW_BITS = 0x7F7F7F7F7F7F7F7F
_ONES = 0x0101010101010101
_GATHER = 0x0102040810204080  # the product with this has the lowest bits of the eight bytes in its highest byte


@compiled
def word_at(data: Bytes, at: np.uint64) -> np.uint64:
    """Return eight bytes, the first one lowest. The caller has checked that they exist."""
    one = np.uint64(1)
    word = np.uint64(data[at])
    word |= np.uint64(data[at + one]) << np.uint64(8)
    word |= np.uint64(data[at + np.uint64(2)]) << np.uint64(16)
    word |= np.uint64(data[at + np.uint64(3)]) << np.uint64(24)
    word |= np.uint64(data[at + np.uint64(4)]) << np.uint64(32)
    word |= np.uint64(data[at + np.uint64(5)]) << np.uint64(40)
    word |= np.uint64(data[at + np.uint64(6)]) << np.uint64(48)
    word |= np.uint64(data[at + np.uint64(7)]) << np.uint64(56)
    return word


@compiled
def last_word_at(data: Bytes, at: np.uint64) -> np.uint64:
    """Return eight bytes, with the last byte of `data` in place of those behind it."""
    last = np.uint64(len(data) - 1)
    word = np.uint64(0)
    for i in range(8):
        word |= np.uint64(data[min(at + np.uint64(i), last)]) << np.uint64(8 * i)
    return word


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
    """Return 0x80 for each byte that is no decimal digit."""
    distance = (word & np.uint64(_LOW_BITS)) ^ np.uint64(0x3030303030303030)
    return (distance + np.uint64(0x7676767676767676) | word) & np.uint64(_HIGH_BITS)


@compiled
def _not_hex(word: np.uint64) -> np.uint64:
    """Return 0x80 for each byte that is no hexadecimal digit."""
    letter = (word & np.uint64(_LOW_BITS) | np.uint64(0x2020202020202020)) ^ np.uint64(0x6060606060606060)
    no_letter = letter + np.uint64(0x7979797979797979) | ~(letter + np.uint64(_LOW_BITS)) | word
    return _not_digits(word) & no_letter & np.uint64(_HIGH_BITS) | word & np.uint64(_HIGH_BITS)


@compiled
def _dots(word: np.uint64) -> np.uint64:
    """Return 0x80 for each byte that is a dot."""
    distance = word ^ np.uint64(0x2E2E2E2E2E2E2E2E)
    return ~((distance & np.uint64(_LOW_BITS)) + np.uint64(_LOW_BITS) | distance) & np.uint64(_HIGH_BITS)


@compiled
def _gathered(marks: np.uint64) -> np.uint64:
    """Return eight bits, one for each byte that is 0x80."""
    return ((marks >> np.uint64(7)) * np.uint64(_GATHER)) >> np.uint64(56)


@compiled
def _number(first: np.uint64, second: np.uint64, begin: np.uint64, end: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Return the number in characters begin..end of sixteen, and 1 if it is no part of an IPv4 address (else 0).

    All characters are digits. Of a number with more than three, or none, only the mark means something.
    """
    length = end - begin
    low_shift = (begin << np.uint64(3)) & np.uint64(63)
    inside = first >> low_shift | second << np.uint64(1) << (np.uint64(63) - low_shift)
    digits = second >> low_shift if begin >= np.uint64(8) else inside
    shift = (np.uint64(24) - (length << np.uint64(3))) & np.uint64(63)
    digits = (digits << shift) & np.uint64(0x0F0F0F)
    hundreds, tens, ones = digits & np.uint64(15), digits >> np.uint64(8) & np.uint64(15), digits >> np.uint64(16)
    value = hundreds * np.uint64(100) + tens * np.uint64(10) + ones
    leading = np.uint64((length == np.uint64(2)) & (tens == np.uint64(0)))
    leading |= np.uint64((length == np.uint64(3)) & (hundreds == np.uint64(0)))
    wrong = np.uint64(length - np.uint64(1) > np.uint64(2)) | np.uint64(value > np.uint64(255)) | leading
    return value, wrong


@compiled
def parse_ipv4(first: np.uint64, second: np.uint64, length: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Return the IPv4 address in the first `length` of sixteen characters, and 1 if it is none (else 0)."""
    if length - np.uint64(7) > np.uint64(8):
        return np.uint64(0), np.uint64(1)
    inside = (np.uint64(1) << length) - np.uint64(1)
    marks = (_gathered(_not_digits(first)) | _gathered(_not_digits(second)) << np.uint64(8)) & inside
    dots = (_gathered(_dots(first)) | _gathered(_dots(second)) << np.uint64(8)) & inside
    # A fourth mark behind the text ends the last number, and makes each step below find a bit.
    rest = dots | np.uint64(1) << length
    one = np.uint64(1)
    end1 = _trailing_zeros(rest)
    rest &= rest - one
    wrong = np.uint64(rest == np.uint64(0)) | np.uint64(marks != dots)
    end2 = _trailing_zeros(rest)
    rest &= rest - one
    wrong |= np.uint64(rest == np.uint64(0))
    end3 = _trailing_zeros(rest)
    rest &= rest - one
    wrong |= np.uint64(rest != one << length)
    if wrong:
        return np.uint64(0), one
    number1, wrong1 = _number(first, second, np.uint64(0), end1)
    number2, wrong2 = _number(first, second, end1 + one, end2)
    number3, wrong3 = _number(first, second, end2 + one, end3)
    number4, wrong4 = _number(first, second, end3 + one, length)
    value = number1 << np.uint64(24) | number2 << np.uint64(16) | number3 << np.uint64(8) | number4
    return value, wrong1 | wrong2 | wrong3 | wrong4


@compiled
def _group(word: np.uint64, digits: np.uint64) -> np.uint64:
    """Return the number in the first `digits` characters, one to four hexadecimal digits."""
    text = (word << (np.uint64(32) - (digits << np.uint64(3)))) & np.uint64(0xFFFFFFFF)
    nibbles = (text & np.uint64(0x0F0F0F0F)) + (text >> np.uint64(6) & np.uint64(0x01010101)) * np.uint64(9)
    pairs = nibbles << np.uint64(4) | nibbles >> np.uint64(8)  # bytes 0 and 2 have two digits each
    return (pairs & np.uint64(0xFF)) << np.uint64(8) | pairs >> np.uint64(16) & np.uint64(0xFF)


@compiled
def _parse_ipv6(data: Bytes, start: np.uint64, end: np.uint64) -> tuple[int, np.uint64, np.uint64]:
    """Return the IPv6 address in data[start:end], which is not empty; kind 6 even if IPv4 is mapped to it."""
    zero, one, colon = np.uint64(0), np.uint64(1), np.uint64(58)
    size = np.uint64(len(data))
    high, low, head_high, head_low = zero, zero, zero, zero
    count, gap = 0, -1  # groups read, and those before "::"
    at = start
    if np.uint64(data[at]) == colon:
        if end - at < np.uint64(2) or np.uint64(data[at + one]) != colon:
            return 0, zero, zero
        gap = 0
        at += np.uint64(2)
    while at < end:
        word = word_at(data, at) if at + np.uint64(8) <= size else last_word_at(data, at)
        left = end - at
        stops = _not_hex(word) | np.uint64(1) << np.uint64(63)
        digits = min(_trailing_zeros(stops) >> np.uint64(3), left)
        if digits - one > np.uint64(3) or count > 7:
            return 0, zero, zero
        after = word >> (digits << np.uint64(3))
        if digits < left and after & np.uint64(0xFF) == np.uint64(46):
            second = at + np.uint64(8)
            rest = zero
            if second < end:
                rest = word_at(data, second) if second + np.uint64(8) <= size else last_word_at(data, second)
            number, wrong = parse_ipv4(word, rest, left)
            if wrong:
                return 0, zero, zero
            high, low = high << np.uint64(32) | low >> np.uint64(32), low << np.uint64(32) | number
            count += 2
            break
        high, low = high << np.uint64(16) | low >> np.uint64(48), low << np.uint64(16) | _group(word, digits)
        count += 1
        if digits == left:
            break
        if after & np.uint64(0xFF) != colon or digits + one == left:  # A single colon does not end an address.
            return 0, zero, zero
        at += digits + one
        if after >> np.uint64(8) & np.uint64(0xFF) == colon:
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
def parse_address(data: Bytes, start: int, end: int) -> tuple[int, np.uint64, np.uint64]:
    """Return (kind, high, low) of the text in data[start:end]: kind 4, 6, or 0 if it is no address.

    The caller has checked that 0 <= start <= end <= len(data).
    """
    zero = np.uint64(0)
    length = end - start
    if length < 2 or length > LONGEST:
        return 0, zero, zero
    first_at, size = np.uint64(start), np.uint64(len(data))
    if length < 16:
        second_at = first_at + np.uint64(8)
        if first_at + np.uint64(16) <= size:
            first, second = word_at(data, first_at), word_at(data, second_at)
        else:
            first, second = last_word_at(data, first_at), last_word_at(data, second_at)
        number, wrong = parse_ipv4(first, second, np.uint64(length))
        if not wrong:
            return 4, zero, number
    kind, high, low = _parse_ipv6(data, first_at, np.uint64(end))
    if kind == 6 and high == zero and low >> np.uint64(32) == np.uint64(0xFFFF):
        return 4, zero, low & np.uint64(0xFFFFFFFF)
    return kind, high, low


@compiled
def parse_rows(data: Bytes, offsets: NDArray[np.int64], rows: tuple[int, int], kinds: Kinds, words: Words) -> None:
    """Parse the rows first..last of a text column; row i is data[offsets[i]:offsets[i + 1]]."""
    for i in range(rows[0], rows[1]):
        kind, high, low = parse_address(data, offsets[i], offsets[i + 1])
        kinds[i] = kind
        words[i, 0] = high
        words[i, 1] = low


def parse_text(data: Bytes, offsets: NDArray[np.int64], threads: int | None = None) -> tuple[Kinds, Words]:
    """Parse a text column as Arrow keeps it: row i is data[offsets[i]:offsets[i + 1]].

    Return a kind for each row (4, 6, or 0 for what is no address) and the addresses as rows (high word, low word).
    `offsets` must not decrease nor point outside `data`.
    """
    count = len(offsets) - 1
    kinds, words = np.empty(count, np.uint8), np.empty((count, 2), np.uint64)
    runs = split_evenly(count, min(thread_count(threads), max(1, count // ROWS_PER_THREAD)))
    positions = offsets.astype(np.int64, copy=False)
    run_parallel(parse_rows, [(data, positions, run, kinds, words) for run in runs], len(runs))
    return kinds, words
