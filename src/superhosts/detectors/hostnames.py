"""The names of hosts in a detector of text keys: a bounded dictionary from hashes to names.

A detector works with the hashes of names (`textkeys.py`), so the names of the hosts that it may report have to be kept
beside it. Who will be reported is not known in advance, and one pass cannot keep all names. The dictionary keeps the
names of a *sample of the distinct pairs*: every pair has a rank, a keyed hash of host and peer, a host has the smallest
rank of its pairs, and the hosts with the smallest ranks are kept, `most` of them.

- A host with many peers has many ranks, so its smallest is small. Of N distinct pairs, k names are kept: k hosts have
  ranks below about k/N of the range or more, because each of them needs a pair there. A host with n peers misses that
  with a probability of at most about exp(−n·k/N). A cube keeps one name for each KiB of its memory: k = 131,072 names
  for 128 MiB, planned for N = 5 million pairs. A host with 1,024 peers then loses its name with a probability of
  2·10^-12, one with 175 peers with 1 %, and as long as there are no more than k hosts, none does. (An eighth of a
  memory that is given is for the names: `defaults.NAMES_SHARE`.)
- The dictionary is a function of the set of pairs: order and repetition do not matter, and the dictionaries of two
  detectors can be merged (the smaller rank of each host, then the k smallest), with the result of one that has seen
  both streams.
- Most pairs cost one comparison: once the dictionary is full, only ranks below its largest one are looked up.

Memory: a name takes its bytes, 255 at most (of longer ones the first 200 are kept), and up to 51 bytes beside it. Until
the next cut, an eighth more names than `most` may wait. Peers are never kept.

Files do not hold hashes: they follow from the names and the key, so a file cannot give the hash of one host the whole
name of another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from superhosts.core.columns.column import Text, in_a_row
from superhosts.core.hashing import Key, fold, pair_hash
from superhosts.core.pairs import Addresses
from superhosts.core.textkeys import (
    MOST_BYTES,
    SHORTENED,
    Bytes,
    TextKey,
    beginning_of,
    hash_texts,
    may_show_hash,
    number_in,
    shown_name,
)
from superhosts.cubefile.header import ArrayError
from superhosts.detectors.engines.base import Arrays, ArrayShape, Words
from superhosts.jit.cache import compiled

MEMORY_PER_NAME = 1024  # bytes of a sketch for each name
FEWEST = 1024  # names that the smallest sketch keeps
UNLIMITED = 1 << 40
FIRST = 256  # names for which there is room at first
SHAPES = {
    "names": ArrayShape((None,), "|u1"),
    "namesizes": ArrayShape((None,), "<u2"),
    "nameranks": ArrayShape((None,)),
}
BYTES_PER_LOADED_NAME = 64  # besides the name itself, with what is needed to read it
_NO_CUT = (1 << 64) - 1
Item = TypeVar("Item")


def names_for(memory: int) -> int:
    return max(FEWEST, memory // MEMORY_PER_NAME)


def memory_for(lengths: Mapping[str, Any]) -> int:
    return 2 * lengths["names"][0] + BYTES_PER_LOADED_NAME * lengths["nameranks"][0] if "names" in lengths else 0


def apart(arrays: Mapping[str, Item]) -> tuple[dict[str, Item], dict[str, Item]]:
    """Return what belongs to the detector's own arrays, and what belongs to the names."""
    own = {name: value for name, value in arrays.items() if name not in SHAPES}
    return own, {name: value for name, value in arrays.items() if name in SHAPES}


def buffers(sides: Mapping[str, Sequence[int]]) -> Arrays:
    return {name: np.zeros(shape, SHAPES[name].dtype) for name, shape in sides.items()}


class HostNames:
    """The names of at most `most` hosts: those with the smallest ranks. The detector's lock guards it."""

    def __init__(self, most: int, key: Key, text_key: TextKey) -> None:
        self.most, self._key, self._text_key = most, key, text_key
        self.clear()

    def clear(self) -> None:
        self._table = empty_table(min(FIRST, self.most), FIRST * 32)
        self._cut = _NO_CUT  # the largest rank that matters

    def __len__(self) -> int:
        self._settle()
        return int(self._table.used[0])

    @property
    def memory(self) -> int:
        return sum(array.nbytes for array in self._table)

    def copy(self) -> HostNames:
        twin = HostNames.__new__(HostNames)
        vars(twin).update(vars(self))
        copies: Any = (array.copy() for array in self._table)
        twin._table = NameTable(*copies)
        return twin

    def add(self, hosts: Addresses, peers: Addresses, text: Text) -> None:
        pairs = _as_rows(hosts), _as_rows(peers)
        done = 0
        while done < len(hosts):
            cut: Any = np.uint64(self._cut)
            done = admit(self._table, pairs, text, done, cut, self._key)
            if done < len(hosts):
                self._make_room()

    def merge(self, other: HostNames) -> None:
        """Add the names of another dictionary.

        A host may have a smaller rank than either knows: one of them forgot it. That one is full then, of hosts with
        smaller ranks still, which leave the host no place here either.
        """
        numbers, theirs = other._first(), other._table
        numbers = numbers[theirs.ranks[numbers] <= np.uint64(self._cut)]
        room = int(self._table.used[0]) + len(numbers)
        self._rebuild(self._all(), room, int(theirs.sizes[numbers].sum()))
        absorb(self._table, theirs, numbers)
        self._settle()

    def find(self, hosts: Addresses) -> list[str | None]:
        self._settle()
        found = find(self._table, np.ascontiguousarray(hosts))
        return [None if number < 0 else self._shown(int(number)) for number in found]

    def _shown(self, number: int) -> str:
        table = self._table
        start = int(table.starts[number])
        raw = table.letters[start : start + int(table.sizes[number])].tobytes()
        high, low = table.hashes[number]
        return shown_name(raw, bool(table.shortened[number]), int(high) << 64 | int(low))

    # Room

    def _all(self) -> NDArray[np.int64]:
        return np.arange(int(self._table.used[0]))

    def _first(self) -> NDArray[np.int64]:
        """Return the numbers of the names with the smallest ranks, `most` at most, by rank."""
        count = int(self._table.used[0])
        hashes, ranks = self._table.hashes[:count], self._table.ranks[:count]
        order = np.lexsort((hashes[:, 1], hashes[:, 0], ranks))
        return order[: self.most]

    def _settle(self) -> None:
        if int(self._table.used[0]) > self.most:
            self._rebuild(self._first())

    def _make_room(self) -> None:
        count = int(self._table.used[0])
        if count == len(self._table.ranks) and count > self.most:
            self._rebuild(self._first())
            return
        letters = max(MOST_BYTES, int(self._table.used[1]))
        self._rebuild(self._all(), min(2 * count, self.most + self.most // 8 + 1) - count, letters)

    def _rebuild(self, numbers: NDArray[np.int64], more: int = 0, letters: int = 0) -> None:
        """Keep these names only, with room for some more and for the letters of those."""
        old = self._table
        if len(numbers) == self.most:
            self._cut = min(self._cut, int(old.ranks[numbers].max()))
            more = max(more, self.most // 8 + 1)
        sizes = int(old.sizes[numbers].sum())
        self._table = empty_table(max(FIRST, len(numbers) + more), 2 * MOST_BYTES + 9 * sizes // 8 + letters)
        absorb(self._table, old, numbers)

    # Files

    def arrays(self) -> Arrays:
        self._rebuild(self._first())  # Names are in the order of their ranks now, and so are their letters.
        table = self._table
        count, used = table.used.tolist()
        data, sizes, ranks = table.letters[:used].copy(), table.sizes[:count].copy(), table.ranks[:count].copy()
        text = in_a_row(data, sizes)
        is_plain = not table.shortened[:count].any() and not may_show_hash(text).any()
        if not is_plain or _first_invalid(text) >= 0:
            shown = [self._shown(number).encode() for number in range(count)]
            data = np.frombuffer(b"".join(shown), np.uint8)
            sizes = np.array([len(each) for each in shown], np.uint16)
        return {"names": data, "namesizes": sizes, "nameranks": ranks}

    def read(self, arrays: Arrays) -> HostNames:
        """Return a dictionary like this one with the names of a file. Raise ArrayError if they are invalid."""
        data, sizes, ranks = (np.ascontiguousarray(arrays[name]) for name in SHAPES)
        text = in_a_row(data, sizes)
        if len(sizes) != len(ranks) or len(ranks) > self.most:
            rule = f"of at most {self.most:,} names" if len(ranks) > self.most else "as many as nameranks"
            raise ArrayError("namesizes", f"{len(sizes):,} sizes, must be {rule}")
        if int(sizes.sum(dtype=np.int64)) != len(data) or (len(sizes) and int(sizes.max()) > MOST_BYTES):
            raise ArrayError("namesizes", f"must be up to {MOST_BYTES} bytes each, {len(data):,} in all")
        if (ranks[1:] < ranks[:-1]).any():
            raise ArrayError("nameranks", "must be in ascending order")
        wrong = _first_invalid(text)
        if wrong >= 0:
            raise ArrayError("names", f"name {wrong} is not UTF-8")
        found = HostNames(self.most, self._key, self._text_key)
        found._fill(text, ranks)
        if int(found._table.used[0]) < len(ranks):
            raise ArrayError("names", "names a host twice")
        found._settle()
        return found

    def _fill(self, text: Text, ranks: Words) -> None:
        count = len(ranks)
        read = empty_table(max(FIRST, count), 0)._replace(letters=text.data)
        read.hashes[:count], read.ranks[:count] = hash_texts(text, self._text_key), ranks
        read.starts[:count], read.sizes[:count] = text.starts, text.ends - text.starts
        read.shortened[:count] = 0
        for number in np.flatnonzero(may_show_hash(text)):
            shown = text.data[text.starts[number] : text.ends[number]].tobytes().decode()
            stored = number_in(shown)
            if stored is not None:
                read.hashes[number] = stored >> 64, stored & _NO_CUT
                read.sizes[number] = len(beginning_of(shown).encode())
                read.shortened[number] = 1
        self._table = empty_table(max(FIRST, count), len(text.data))
        absorb(self._table, read, np.arange(count))


def _as_rows(peers: Addresses) -> Words:
    return np.ascontiguousarray(peers if peers.ndim == 2 else peers[:, None], np.uint64)


def _first_invalid(text: Text) -> int:
    """Return the number of the first of the texts, which follow each other, that is not UTF-8; -1 if all are."""
    data = text.data
    try:
        data.tobytes().decode()
        bad = len(data)
    except UnicodeDecodeError as error:
        bad = error.start
    starts = text.starts[text.ends > text.starts]
    split = starts[(data[starts] & 0xC0) == 0x80]  # A text begins within a character, so the one before is cut off.
    first = min(bad, int(split[0]) - 1 if len(split) else len(data))
    return -1 if first >= len(data) else int(np.searchsorted(text.ends, first, "right"))


# The table of names


class NameTable(NamedTuple):
    """Names in the order of their arrival, and an open hash table of their numbers."""

    hashes: Words
    ranks: Words
    starts: NDArray[np.int64]
    sizes: NDArray[np.uint16]
    shortened: NDArray[np.uint8]
    slots: NDArray[np.int32]  # number of a name, or -1
    letters: Bytes
    used: NDArray[np.int64]  # names, and bytes of them


def empty_table(names: int, letters: int) -> NameTable:
    slots = 2 << (names - 1).bit_length()
    return NameTable(
        np.empty((names, 2), np.uint64),
        np.empty(names, np.uint64),
        np.empty(names, np.int64),
        np.empty(names, np.uint16),
        np.empty(names, np.uint8),
        np.full(slots, -1, np.int32),
        np.empty(letters, np.uint8),
        np.zeros(2, np.int64),
    )


@compiled
def _place_of(high: int, low: int, hashes: Words, slots: NDArray[np.int32]) -> int:
    """Return the slot of a hash, or the free slot where it belongs."""
    last = np.uint64(len(slots) - 1)
    place = low & last
    while True:
        number = slots[place]
        if number < 0 or (hashes[number, 1] == low and hashes[number, 0] == high):
            return place
        place = (place + np.uint64(1)) & last


@compiled
def _append(table: NameTable, place: int, high: int, low: int, rank: int) -> int:
    """Add a name without its letters; return its number."""
    number: int = table.used[0]
    table.hashes[number, 0], table.hashes[number, 1] = high, low
    table.ranks[number] = rank
    table.slots[place] = number
    table.used[0] = number + 1
    return number


@compiled
def _spell(table: NameTable, number: int, data: Bytes, start: int, size: int) -> None:
    used = table.used[1]
    for i in range(size):
        table.letters[used + i] = data[start + i]
    table.starts[number] = used
    table.sizes[number] = size
    table.used[1] = used + size


@compiled
def admit(table: NameTable, pairs: tuple[Words, Words], text: Text, first: int, cut: int, key: Key) -> int:
    """Add hosts whose rank is not above `cut`, from pair `first` on; return where it ended, or the table is full."""
    hosts, peers = pairs
    hashes, ranks, slots = table.hashes, table.ranks, table.slots
    data, starts, ends = text.data, text.starts, text.ends
    for i in range(first, len(hosts)):
        high, low = hosts[i, 0], hosts[i, 1]
        peer = peers[i, 0] if peers.shape[1] == 1 else fold(peers[i, 0], peers[i, 1], key)
        rank = pair_hash(fold(high, low, key), peer, key)
        if rank > cut:
            continue
        place = _place_of(high, low, hashes, slots)
        number = slots[place]
        if number >= 0:
            ranks[number] = min(ranks[number], rank)
            continue
        if table.used[0] == len(ranks) or table.used[1] + MOST_BYTES > len(table.letters):
            return i
        number = _append(table, place, high, low, rank)
        start, size = starts[i], ends[i] - starts[i]
        table.shortened[number] = size > MOST_BYTES
        if size > MOST_BYTES:
            size = SHORTENED
            while size > 0 and data[start + size] & 0xC0 == 0x80:  # within a character
                size -= 1
        _spell(table, number, data, start, size)
    return len(hosts)


@compiled
def _is_better(table: NameTable, mine: int, other: NameTable, theirs: int) -> bool:
    """Return True if another spelling of a host replaces the one here: whole ones first, then by their letters."""
    if table.shortened[mine] != other.shortened[theirs]:
        return bool(table.shortened[mine])
    a, b = table.starts[mine], other.starts[theirs]
    length = min(table.sizes[mine], other.sizes[theirs])
    for i in range(length):
        if table.letters[a + i] != other.letters[b + i]:
            return bool(other.letters[b + i] < table.letters[a + i])
    return bool(other.sizes[theirs] < table.sizes[mine])


@compiled
def absorb(table: NameTable, other: NameTable, numbers: NDArray[np.int64]) -> None:
    """Add some names of another table, for which there is room."""
    for theirs in numbers:
        high, low = other.hashes[theirs, 0], other.hashes[theirs, 1]
        place = _place_of(high, low, table.hashes, table.slots)
        number = np.int64(table.slots[place])
        if number < 0:
            number = _append(table, place, high, low, other.ranks[theirs])
        else:
            table.ranks[number] = min(table.ranks[number], other.ranks[theirs])
            if not _is_better(table, number, other, theirs):
                continue
        table.shortened[number] = other.shortened[theirs]
        _spell(table, number, other.letters, other.starts[theirs], np.int64(other.sizes[theirs]))


@compiled
def find(table: NameTable, hosts: Words) -> NDArray[np.int64]:
    found = np.empty(len(hosts), np.int64)
    for i in range(len(hosts)):
        found[i] = table.slots[_place_of(hosts[i, 0], hosts[i, 1], table.hashes, table.slots)]
    return found
