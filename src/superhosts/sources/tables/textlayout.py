"""What is wanted of each line of a text, as the compiled loops need it.

`Wanted` names the fields by what they mean; several names for one thing are tried in their order, line by line.
`make_roles` numbers them, `make_delimited` finds them among the columns of a table, and `make_keys` makes the tree of
keys of JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise

import numpy as np

from superhosts.sources.tables.delimitedloop import Delimited
from superhosts.sources.tables.detailfields import DetailFields
from superhosts.sources.tables.detailvalues import DIRECTION, numbers_table
from superhosts.sources.tables.jsonloop import EDGE_NUMBERS, Keys
from superhosts.sources.tables.mapping import Column
from superhosts.sources.tables.textdetails import DetailRoles
from superhosts.sources.tables.textrow import MOST_DEPTH, MOST_SLOTS, MOST_TIMES, Roles
from superhosts.sources.tables.texttimes import UNIT_DIGITS

MOST_KINDS, LONGEST_KIND = 4, 8
BLANK = " "  # as a delimiter: runs of blanks


@dataclass(frozen=True)
class Wanted:
    """Columns or keys by what they mean, the preferred ones first."""

    src: tuple[Column, ...]
    dst: tuple[Column, ...]
    time: tuple[Column, ...] = ()
    duration: tuple[Column, ...] = ()
    sign: int = 0  # 1: the duration is added to the time, -1: it is subtracted
    kind: str = ""  # the field that says what a record is
    kinds: tuple[str, ...] = field(default=())  # and those that count
    details: DetailFields | None = None  # None: not wanted

    def used(self) -> list[str]:
        """Return the fields without details."""
        fields = [*self.src, *self.dst, *self.time, *(self.duration if self.sign else ())]
        return [column.name for column in fields] + ([self.kind] if self.kind else [])

    def names(self) -> list[str]:
        """Return the field of each slot."""
        return [*self.used(), *(name for names in self.more() for name in names)]

    def more(self) -> list[tuple[str, ...]]:
        """Return the fields of details, role by role; a direction that is the kind of a record is not among them."""
        if self.details is None:
            return []
        return [tuple(name for name in names if name != self.kind) for names in self.details.names]


def make_roles(wanted: Wanted) -> Roles:
    """Return which slot is what."""
    duration = wanted.duration if wanted.sign else ()
    src = len(wanted.src)
    dst = src + len(wanted.dst)
    time = dst + len(wanted.time)
    last = time + len(duration)
    assert last < MOST_SLOTS
    assert last - dst <= MOST_TIMES
    assert len(wanted.kinds) <= MOST_KINDS
    units = 0
    for slot, column in enumerate((*wanted.time, *duration), dst):
        digits = UNIT_DIGITS[column.unit or ("s" if slot >= time else "")]
        units |= digits << (4 * (slot - dst))
    words = [np.uint64(int.from_bytes(kind.encode()[:LONGEST_KIND], "little")) for kind in wanted.kinds]
    words += [np.uint64(0)] * (MOST_KINDS - len(words))
    kinds = words[0], words[1], words[2], words[3]
    return Roles(src, dst, time, last, wanted.sign, units, last if wanted.kind else -1, kinds)


def make_detail_roles(wanted: Wanted) -> DetailRoles | None:
    """Return which of the slots behind the others are what; None if no details are wanted."""
    if wanted.details is None:
        return None
    place = first = len(wanted.used())
    bounds = []
    for names in wanted.more():
        bounds.append((place, place + len(names)))
        place += len(names)
    assert place <= MOST_SLOTS
    if wanted.kind in wanted.details.names[DIRECTION]:
        bounds[DIRECTION] = first - 1, first  # The kind is the last of the others.
    return DetailRoles(first, numbers_table(tuple(bounds)).ctypes.data, wanted.details.codes)


def make_delimited(
    wanted: Wanted, columns: Sequence[str], delimiter: str, *, marks: str = "#", quote: str = '"', header: bytes = b""
) -> Delimited:
    """Return where the wanted fields are in a line. `marks`: lines that begin with one of these are for the reader."""
    places = sorted((columns.index(name), slot) for slot, name in enumerate(wanted.names()))
    # One column that means two things is found once: the loop wants ascending numbers.
    assert len({place for place, _ in places}) == len(places)
    return Delimited(
        ord(delimiter),
        int(delimiter == BLANK),
        0 if delimiter == BLANK or not quote else ord(quote),
        ord(marks[0]) if marks else -1,
        ord(marks[1]) if len(marks) > 1 else -1,
        np.array([place for place, _ in places], np.int64),
        np.array([slot for _, slot in places], np.int64),
        np.frombuffer(header.rstrip(b"\r\n") or b"\0", np.uint8)[: len(header.rstrip(b"\r\n"))],
    )


def make_keys(wanted: Wanted, *, whole: bool) -> Keys:
    """Return the tree of the wanted keys. `whole`: every candidate is looked for before a line is left."""
    nodes: list[dict[str, list[int]]] = [{}]  # key → slot, node
    for slot, name in enumerate(wanted.names()):
        for path in _paths(name):
            node = 0
            for key in path[:-1]:
                edge = nodes[node].setdefault(key, [-1, -1])
                if edge[1] < 0:
                    edge[1] = len(nodes)
                    nodes.append({})
                node = edge[1]
            nodes[node].setdefault(path[-1], [-1, -1])[0] = slot
    first, edges, text = [0], [], b""
    for each in nodes:
        for key, (slot, node) in each.items():
            encoded = key.encode("utf-8", "surrogateescape")
            edges += [
                int.from_bytes(encoded[:8], "little", signed=len(encoded) >= 8),
                len(encoded),
                len(text),
                slot,
                node,
            ]
            text += encoded
        first.append(len(edges) // EDGE_NUMBERS)
    return Keys(
        np.array(first, np.int64),
        np.array(edges, np.int64),
        np.frombuffer(text, np.uint8),
        _enough(wanted, whole=whole),
        len(wanted.names()),
    )


def _paths(name: str) -> list[tuple[str, ...]]:
    """Return the ways in which a name can be a path: every dot may be one in a key, or lead into an object."""
    parts = name.split(".")
    if len(parts) > MOST_DEPTH or not all(parts):
        return [(name,)]
    ways = []
    for count in range(len(parts)):
        for cuts in combinations(range(1, len(parts)), count):
            ends = [0, *cuts, len(parts)]
            ways.append(tuple(".".join(parts[a:b]) for a, b in pairwise(ends)))
    return ways


def _enough(wanted: Wanted, *, whole: bool) -> int:
    """Return the bits of the slots that make the rest of a line needless: the first candidate of each thing."""
    slots, place = [], 0
    kind = (wanted.kind,) if wanted.kind else ()
    for fields in (wanted.src, wanted.dst, wanted.time, wanted.duration if wanted.sign else (), kind, *wanted.more()):
        count = len(fields)
        slots += list(range(place, place + (count if whole else min(count, 1))))
        place += count
    return sum(1 << slot for slot in slots)
