"""Changes to bytes and to JSON that know where formats are weak: lengths, counts, types, ends."""

from __future__ import annotations

import copy
import struct
from typing import Any

from hypothesis import strategies as st

Edit = tuple[str, int, int, bytes]  # what, where, how much, with what
EDITS = ("set", "flip", "insert", "delete", "repeat", "cut", "move")
NUMBERS = (0, 1, 2, 3, 4, 7, 8, 11, 12, 15, 16, 20, 24, 28, 31, 32, 38, 255, 256, 0xFFFF, 0x10000, 1 << 18)
NUMBERS += ((1 << 18) + 1, 1 << 26, (1 << 26) + 4, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFC, 0xFFFFFFFF)

_words = st.tuples(st.sampled_from(NUMBERS), st.sampled_from("<>"), st.sampled_from("IH")).map(
    lambda drawn: struct.pack(drawn[1] + drawn[2], drawn[0] if drawn[2] == "I" else drawn[0] & 0xFFFF)
)
edits = st.lists(
    st.tuples(st.sampled_from(EDITS), st.integers(0, 1 << 16), st.integers(1, 64), _words | st.binary(max_size=8)),
    max_size=4,
)


def apply(data: bytes, changes: list[Edit]) -> bytes:
    """Return data with changes; a place behind its end is taken from its beginning again."""
    changed = bytearray(data)
    for what, where, length, value in changes:
        at = where % (len(changed) + 1)
        if what == "set":
            at -= at % 4 if len(value) == 4 else 0  # most lengths are aligned
            changed[at : at + len(value)] = value
        elif what == "flip" and at < len(changed):
            changed[at] ^= 1 << length % 8
        elif what == "insert":
            changed[at:at] = value
        elif what == "delete":
            del changed[at : at + length]
        elif what == "repeat":
            changed[at:at] = changed[at : at + length]
        elif what == "cut":
            del changed[at:]
        elif what == "move":
            piece = changed[at : at + length]
            del changed[at : at + length]
            changed += piece
    return bytes(changed)


# JSON

scalars = (
    st.none()
    | st.booleans()
    | st.sampled_from([-1, 0, 1, 2, 4, 6, 31, 32, 33, 64, 65, 128, 129, 1 << 31, 1 << 32, 1 << 53, (1 << 63) - 1])
    | st.sampled_from([1 << 63, 1 << 64, -(1 << 63), 10**18, 10**19, 10**30, 10**400])
    | st.sampled_from([0.0, 0.5, 4.0, 32.0, 64.5, 1e18, 1e308, -1.5, float("inf"), float("nan")])
    | st.sampled_from(["", "0", "4", "32", "ams", "inner", "any", "cube", "exact", "<u8", "|u1", "O", "../x", "a/b"])
    | st.sampled_from(["\x1b[31mred", "a\nb", "\u202etxet", "\ud800", "<script>", "é" * 70, "\0"])
    | st.integers(100, 5000).map("x".__mul__)
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
JsonEdit = tuple[int, str, Any]  # which node of the tree, what, with what
json_edits = st.lists(
    st.tuples(st.integers(0, 200), st.just("set"), values)
    | st.tuples(st.integers(0, 200), st.just("twist"), st.integers(0, 11))
    | st.tuples(st.integers(0, 200), st.sampled_from(["drop", "double", "swap"]), st.none()),
    min_size=1,
    max_size=3,
)


def _twisted(value: Any, number: int) -> Any:
    """Return a value that is nearly the same, or the same in another type."""
    if isinstance(value, bool | None | float):
        return [value]
    if isinstance(value, int):
        near = [float(value) if abs(value) < 1 << 1000 else 0.0, value + 1, value - 1, -value, 2 * value, value // 2]
        half = value + 0.5 if abs(value) < 99 else 1.5
        return [*near, str(value), [value], {"value": value}, bool(value), half, value << 32][number]
    if isinstance(value, str):
        near = [value.upper(), value + " ", value + "\n", "\x1b[1m" + value, value * 2, value[:-1]]
        other = [[value], {value: value}, value.encode(errors="replace").hex(), list(value), "", value + "\ud800"]
        return [*near, *other][number]
    if isinstance(value, list):
        near = [value[::-1], value + value, value[1:], value[:-1], [value], [value, value], {"0": value}]
        return [*near, str(value), len(value), [None, *value], [*value, *value, *value], []][number]
    near = [list(value), list(value.values()), [[key, value[key]] for key in value], str(value)]
    return [*near, len(value), [value], {}, {**value, "": 0}][number % 8]


def _nodes(tree: Any) -> list[tuple[Any, Any]]:
    keys = list(tree) if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else []
    return [node for key in keys for node in ((tree, key), *_nodes(tree[key]))]


def apply_json(tree: Any, changes: list[JsonEdit]) -> Any:
    tree = copy.deepcopy(tree)
    for which, what, value in changes:
        nodes = _nodes(tree)
        if which == 200 or not nodes:
            tree = value if what == "set" else tree
            continue
        parent, key = nodes[which % len(nodes)]
        if what == "set":
            parent[key] = value
        elif what == "twist":
            parent[key] = _twisted(parent[key], value)
        elif what == "drop":
            del parent[key]
        elif what == "double" and isinstance(parent, list):
            parent.append(copy.deepcopy(parent[key]))
        elif what == "swap":
            other = next(iter(parent)) if isinstance(parent, dict) else 0
            parent[key], parent[other] = parent[other], parent[key]
    return tree
