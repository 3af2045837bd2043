"""Tables of JSON Lines: one object per line, or an array with one object per line.

A column is a key, or a path of keys with dots between them. `flow.start` is the key `start` in the object of the key
`flow`, or one key with a dot in its name (as Zeek writes `id.orig_h`), whichever comes first. Wanted keys form a tree.

The compiled loop (`walk_json`) makes no objects. It compares each key of an object with the few that are wanted there,
descends into wanted objects and skips all other values; once all that is wanted is found it goes to the end of the
line. So what is not wanted is not checked. A line must begin with a brace and end with one, or lie in an array of one
object per line. Of several equal keys the first counts. Escapes of wanted values and of keys are resolved in place: the
result is never longer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import NamedTuple

import numpy as np

from superhosts.errors import InputError
from superhosts.jit.cache import compiled
from superhosts.jit.intrinsics import byte_at, number_at, set_byte, set_number
from superhosts.sources.tables import textrow
from superhosts.sources.tables.details import DetailRoles, bytes_table, numbers_table, read_details
from superhosts.sources.tables.knownlogs import Log
from superhosts.sources.tables.options import TableOptions
from superhosts.sources.tables.textreader import Layout
from superhosts.sources.tables.textrow import (
    Bytes,
    Roles,
    Rows,
    Tally,
    count_other,
    is_other_kind,
    make_detail_roles,
    make_roles,
    read_row,
)
from superhosts.sources.tables.textscan import find, find_bracket, find_either, read_hex, short_word
from superhosts.sources.tables.wanted import Wanted, candidates_of, check_ends, wanted_of

LOOKED_AT = 20  # objects whose keys are the columns
MOST_COLUMNS = 1000
_NEWLINE = np.uint64(0x0A0A0A0A0A0A0A0A)
_QUOTE = np.uint64(0x2222222222222222)
_BACKSLASH = np.uint64(0x5C5C5C5C5C5C5C5C)


@dataclass(frozen=True, eq=False)
class JsonLayout(Layout):
    def is_whole(self, line: bytes) -> bool:
        return line.rstrip(b" \t\r,]").endswith(b"}")


def begin_json(name: str, log: Log, options: TableOptions, head: bytes, ended: bool) -> tuple[int, Layout] | None:
    """Return where the first object begins, and the layout of all: the keys of a log, or those of the first objects."""
    found = list(objects(head, ended=ended))
    if not found and not ended:
        return None
    if not found:
        raise InputError("none of its first lines is a JSON object", file=name)
    columns = list(dict.fromkeys(name for each in found for name in names_of(each)))[:MOST_COLUMNS]
    check_ends(log, columns, options, name)
    # Other lines may have other keys: candidates of a known log are looked for in each.
    known = {name.lower() for name in columns}
    others = (name for name in candidates_of(log, details=options.details) if name.lower() not in known)
    possible = [*columns, *others]
    wanted = wanted_of(log, possible, options, name)
    tree = make_tree(wanted, whole=log.has_several)
    roles = make_roles(wanted), make_detail_roles(wanted)
    begin = len(textrow.MARK) if head.startswith(textrow.MARK) else 0
    return begin, JsonLayout(columns, bool(wanted.time), *roles, tree, walk_json)


def objects(head: bytes, *, ended: bool) -> Iterator[dict[str, object]]:
    """Yield the objects of the first whole lines, up to `LOOKED_AT`."""
    lines = head.removeprefix(textrow.MARK).split(b"\n")
    if not ended:
        lines.pop()
    count = 0
    for line in lines:
        text = line.strip().lstrip(b"[,").rstrip(b",]")
        try:
            value = json.loads(text) if text.startswith(b"{") else None
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            yield value
            count += 1
            if count == LOOKED_AT:
                return


def names_of(value: dict[str, object], prefix: str = "", depth: int = 1) -> Iterator[str]:
    """Yield the keys of an object, and the paths of those in objects inside it."""
    for key, inner in value.items():
        if isinstance(inner, dict) and depth < textrow.MOST_DEPTH:
            yield from names_of(inner, f"{prefix}{key}.", depth + 1)
        else:
            yield prefix + key


def make_tree(wanted: Wanted, *, whole: bool) -> Tree:
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
            word = int.from_bytes(encoded[:8], "little", signed=len(encoded) >= 8)
            edges += [word, len(encoded), len(text), slot, node]
            text += encoded
        first.append(len(edges) // EDGE_NUMBERS)
    return Tree(
        numbers_table(tuple(first)).ctypes.data,
        numbers_table(tuple(edges)).ctypes.data,
        bytes_table(text).ctypes.data,
        _enough(wanted, whole=whole),
        len(wanted.names()),
    )


def _paths(name: str) -> list[tuple[str, ...]]:
    """Return the ways in which a name can be a path: every dot may be one in a key, or lead into an object."""
    parts = name.split(".")
    if len(parts) > textrow.MOST_DEPTH or not all(parts):
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
    for fields in (wanted.src, wanted.dst, wanted.time, wanted.duration, kind, *wanted.more()):
        count = len(fields)
        slots += list(range(place, place + (count if whole else min(count, 1))))
        place += count
    return sum(1 << slot for slot in slots)


# The numbers of an edge: the first eight bytes of its key, the length of the key, where it begins in the text, the slot
# of its value (-1: the value itself is not wanted), the node of an object behind it (-1: nothing in it is wanted).
WORD, LENGTH, BEGIN, SLOT, NODE = 0, 8, 16, 24, 32
EDGE_NUMBERS = 5
_EDGE = 8 * EDGE_NUMBERS


class Tree(NamedTuple):
    """The wanted keys. Node 0 is the object of a line; node n has the edges first[n]..first[n + 1]."""

    first: int  # address of numbers
    edges: int  # address of `EDGE_NUMBERS` for each edge, see there
    text: int  # address of all keys
    enough: int  # bits of the slots after which the rest of a line is not looked at
    slot_count: int


@compiled
def _end_of_string(at: int, end: int) -> tuple[int, bool]:
    """Return the place of the closing quote of a string whose text begins at `at`, and if it has escapes; -1: none."""
    escaped = False
    while at < end:
        at = find_either(at, end, _QUOTE, _BACKSLASH)
        if at >= end:
            break
        if byte_at(at) == 34:
            return at, escaped
        escaped = True
        at += 2
    return -1, escaped


@compiled
def _unescape(begin: int, end: int) -> int:
    """Resolve the escapes of a string in place and return where it ends now. Characters beyond ASCII become `?`."""
    at = to = begin
    while at < end:
        byte = byte_at(at)
        at += 1
        if byte == 92 and at < end:
            byte = byte_at(at)
            at += 1
            if byte == 117 and at + 4 <= end:  # u
                code = read_hex(at, at + 4)
                at += 4
                byte = code if 0 <= code < 128 else 63
            elif byte == 110 or byte == 116 or byte == 114 or byte == 98 or byte == 102:  # n t r b f
                byte = 32
        set_byte(to, byte)
        to += 1
    return to


@compiled
def _skip_nested(at: int, end: int) -> int:
    """Return the place behind an object or array that begins at `at`; -1 if it does not end."""
    depth = 0
    while at < end:
        at = find_bracket(at, end)
        if at >= end:
            return -1
        byte = byte_at(at)
        if byte == 34:
            at, _ = _end_of_string(at + 1, end)
            if at < 0:
                return -1
        else:
            depth += 1 if byte == 123 or byte == 91 else -1
            if depth == 0:
                return at + 1
        at += 1
    return -1


@compiled
def _is_blank(byte: int) -> bool:
    return byte == 32 or byte == 9 or byte == 13


@compiled
def _skip_blanks(at: int, end: int) -> int:
    while at < end and _is_blank(byte_at(at)):
        at += 1
    return at


@compiled
def _edge_of(begin: int, end: int, tree: Tree, node: int) -> int:
    """Return the address of the edge of a node that has this key, 0 if none has."""
    word, length = np.int64(short_word(begin, end)), end - begin
    edge: int = tree.edges + _EDGE * number_at(tree.first + 8 * node)
    last = tree.edges + _EDGE * number_at(tree.first + 8 * node + 8)
    while edge < last:
        if number_at(edge) == word and number_at(edge + LENGTH) == length:
            at, text = 8, tree.text + number_at(edge + BEGIN)
            while at < length and byte_at(begin + at) == byte_at(text + at):
                at += 1
            if at >= length:
                return edge
        edge += _EDGE
    return 0


@compiled
def _find_values(at: int, end: int, tree: Tree, roles: Roles, places: int, stack: int) -> int:
    """Find the wanted values of the object that begins at `at`; return GOOD, SKIPPED or BAD_LINE."""
    depth, node, found, is_behind_value = 0, 0, 0, False
    at += 1
    while True:
        at = _skip_blanks(at, end)
        if at >= end:
            return textrow.BAD_LINE
        byte = byte_at(at)
        if byte == 125:  # }
            if depth == 0:
                return textrow.GOOD if at + 1 == end else textrow.BAD_LINE
            depth -= 1
            node = number_at(stack + 8 * depth)
            at += 1
            is_behind_value = True
            continue
        if is_behind_value:
            if byte != 44:  # ,
                return textrow.BAD_LINE
            at = _skip_blanks(at + 1, end)
            byte = byte_at(at)
        if byte != 34 or at >= end:  # "
            return textrow.BAD_LINE
        begin = at + 1
        at, escaped = _end_of_string(begin, end)
        if at < 0:
            return textrow.BAD_LINE
        edge = _edge_of(begin, _unescape(begin, at) if escaped else at, tree, node)
        at = _skip_blanks(at + 1, end)
        if at >= end or byte_at(at) != 58:  # :
            return textrow.BAD_LINE
        at = _skip_blanks(at + 1, end)
        if at >= end:
            return textrow.BAD_LINE
        byte = byte_at(at)
        is_behind_value = True
        if byte == 123 or byte == 91:  # { [
            if byte == 123 and edge and number_at(edge + NODE) >= 0:
                set_number(stack + 8 * depth, node)
                depth += 1
                node = number_at(edge + NODE)
                at += 1
                is_behind_value = False
            else:
                at = _skip_nested(at, end)
                if at < 0:
                    return textrow.BAD_LINE
            continue
        slot = number_at(edge + SLOT) if edge else -1
        begin = at
        if byte == 34:
            begin = at + 1
            at, escaped = _end_of_string(begin, end)
            if at < 0:
                return textrow.BAD_LINE
            value_end = _unescape(begin, at) if escaped and slot >= 0 else at
            at += 1
        else:
            while at < end and not _is_blank(byte) and byte != 44 and byte != 125:
                at += 1
                byte = byte_at(at)
            value_end = at
            if begin == at:
                return textrow.BAD_LINE
        if slot >= 0 and number_at(places + 16 * slot) == 0:
            set_number(places + 16 * slot, begin)
            set_number(places + 16 * slot + 8, value_end)
            if slot == roles.kind and is_other_kind(places, roles):
                return textrow.SKIPPED
            found |= 1 << slot
            if found & tree.enough == tree.enough:
                return textrow.GOOD


@compiled
def walk_json(
    data: Bytes, final: bool, tree: Tree, roles: Roles, details: DetailRoles | None, tally: Tally, rows: Rows
) -> int:
    """Read the lines from tally[POSITION] to tally[STOP], which lies behind a newline; return why it ends.

    `final` means nothing here: an object never spans lines.
    """
    base = data.ctypes.data
    at, stop = base + tally[textrow.POSITION], base + tally[textrow.STOP]
    row, limit = tally[textrow.ROWS], tally[textrow.LIMIT]
    places, stack = tally.ctypes.data + 8 * textrow.PLACES, tally.ctypes.data + 8 * textrow.STACK
    while at < stop and row < limit:
        line = at
        newline = find(at, stop, _NEWLINE)
        end = newline
        byte = byte_at(at)
        while at < end and (_is_blank(byte) or byte == 91 or byte == 44):  # [ ,
            at += 1
            byte = byte_at(at)
        last = 0  # There is no byte before an empty line that begins the buffer.
        while end > at:
            last = byte_at(end - 1)
            if not (_is_blank(last) or last == 93 or last == 44):  # ] ,
                break
            end -= 1
        if at < end:
            status = textrow.BAD_LINE
            if byte == 123 and last == 125:
                for i in range(tree.slot_count):
                    set_number(places + 16 * i, 0)
                status = _find_values(at, end, tree, roles, places, stack)
            if status == textrow.GOOD:
                read = read_row(places, roles, True)
                status = read.status
                if status == textrow.GOOD:
                    rows.kinds[row] = read.kind
                    rows.src[row, 0] = read.src_high
                    rows.src[row, 1] = read.src_low
                    rows.dst[row, 0] = read.dst_high
                    rows.dst[row, 1] = read.dst_low
                    rows.time[row] = read.time
                    if details is not None:
                        rows.details[row] = read_details(places, details)
                    tally[textrow.WIDE] += read.kind == 6
                    row += 1
            if status != textrow.GOOD:
                count_other(tally, status, line - base)
        tally[textrow.LINES] += 1
        at = newline + 1
    tally[textrow.POSITION], tally[textrow.ROWS] = at - base, row
    return textrow.MORE if at >= stop else textrow.FULL
