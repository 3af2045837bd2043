"""Tables of JSON Lines: one object per line, or an array with one object per line.

A column is a key, or a path of keys with dots between them (`flow.start`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from superhosts.errors import InputError
from superhosts.sources.tables.detailfields import candidates_of
from superhosts.sources.tables.jsonloop import walk_json
from superhosts.sources.tables.log import Log
from superhosts.sources.tables.logfields import as_column, check_ends, wanted_of
from superhosts.sources.tables.options import TableOptions
from superhosts.sources.tables.textlayout import make_detail_roles, make_keys, make_roles
from superhosts.sources.tables.textreader import Layout
from superhosts.sources.tables.textrow import MOST_DEPTH

MARK = b"\xef\xbb\xbf"
LOOKED_AT = 20  # objects whose keys are the columns
MOST_COLUMNS = 1000


@dataclass(frozen=True, eq=False)
class JsonLayout(Layout):
    """The keys that are wanted of each object."""

    def is_whole(self, line: bytes) -> bool:
        """Return True if a line ends as an object does."""
        return line.rstrip(b" \t\r,]").endswith(b"}")


class JsonGrammar:
    """Which keys are wanted: those of a log, or those that the first objects have."""

    def __init__(self, name: str, log: Log, options: TableOptions) -> None:
        self._name, self._log, self._options = name, log, options

    def begin(self, head: bytes, *, ended: bool) -> tuple[int, Layout] | None:
        """Return where the first object begins, and the layout of all of them."""
        start = len(MARK) if head.startswith(MARK) else 0
        found = list(objects(head, ended=ended))
        if not found and not ended:
            return None
        columns = list(dict.fromkeys(name for each in found for name in names_of(each)))[:MOST_COLUMNS]
        if not found:
            raise InputError("none of its first lines is a JSON object", file=self._name)
        log = self._log
        check_ends(log, columns, self._options, self._name)
        # Other lines may have other keys: candidates of a known log are looked for in each.
        fields = (*log.src, *log.dst, *log.start, *log.end, *log.duration, log.kind)
        candidates = [as_column(name).name for name in fields if name]
        if self._options.details:
            candidates += candidates_of(log)
        known = {name.lower() for name in columns}
        possible = [*columns, *(name for name in candidates if name.lower() not in known)]
        wanted = wanted_of(log, possible, self._options, self._name)
        keys = make_keys(wanted, whole=log.has_several)
        roles = make_roles(wanted), make_detail_roles(wanted)
        return start, JsonLayout(columns, bool(wanted.time), *roles, keys, walk_json)


def objects(head: bytes, *, ended: bool) -> Iterator[dict[str, object]]:
    """Yield the objects of the first whole lines, up to `LOOKED_AT`."""
    lines = head.removeprefix(MARK).split(b"\n")
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
        if isinstance(inner, dict) and depth < MOST_DEPTH:
            yield from names_of(inner, f"{prefix}{key}.", depth + 1)
        else:
            yield prefix + key
