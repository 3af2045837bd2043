"""Sketches in files: what their headers say, estimates for some hosts, and merges whose errors name the file.

Estimates read a file block by block, so that memory depends on the hosts in the query, not on the sketch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from superhosts.core.device import thread_count
from superhosts.core.fields import FieldError
from superhosts.core.pairs import TEXT, Host, HostKeys, Part, Window
from superhosts.core.results import SuperHosts
from superhosts.core.textkeys import TextFormat, bound, text_key
from superhosts.cubefile.container import MAX_HEADER, CubeReader, Take, peek
from superhosts.cubefile.header import array_name, sites_field, window_field
from superhosts.detectors.arguments import Hosts, named_column
from superhosts.detectors.registry import DETECTORS
from superhosts.detectors.stored import Stored, array_errors, check_hosts, describe, memory_limit
from superhosts.errors import DifferenceError, MergeError
from superhosts.sketch.sketch import Sketch, load
from superhosts.sketch.unanswered import difference, sources_of, with_unanswered


class SavedSketch(NamedTuple):
    path: Path
    is_readable: bool = False  # False: the rest is not known, and reading the file is an error
    window: Window | None = None
    sites: frozenset[str] = frozenset()
    parts: frozenset[Part] = frozenset()  # with those that follow from others
    has_evidence: bool = False

    @property
    def site(self) -> str:
        return joined_sites(self.sites)

    @property
    def is_timed(self) -> bool:
        return self.window is not None and self.window.is_timed

    def overlaps(self, start: int | None, end: int | None) -> bool:
        """Return True if the window overlaps a span of time, or if the header cannot be read."""
        if not self.is_readable:
            return True
        window = self.window
        return window is not None and (start is None or window.end > start) and (end is None or window.start < end)


def joined_sites(sites: Iterable[str]) -> str:
    return ",".join(sorted(sites))


def saved_sketch(path: Path) -> SavedSketch:
    header = peek(path) or {}
    try:
        window, sites = window_field(header["window"], "window"), sites_field(header["sites"], "sites")
        held = [Part(side=str(part["side"]), direction=str(part["direction"])) for part in header["parts"]]
    except (FieldError, KeyError, TypeError):
        return SavedSketch(path)
    return SavedSketch(path, True, window, frozenset(sites), frozenset(with_unanswered(held)), "evidence" in header)


def read_header(path: str | Path, *, trusted: bool = False, max_header: int = MAX_HEADER) -> Stored:
    """Verify the digest of a file and read its header, but not its arrays.

    `trusted`: the caller has just verified the digest, and it is not computed again. Raise SketchFileError, without
    reading the header, if it is longer than `max_header` bytes.
    """
    with CubeReader(path, trusted=trusted, max_header=max_header) as reader:
        header = describe(reader, memory_limit(None), DETECTORS)
        reader.places()
    return header


def merge_named(whole: Sketch, path: Path, key: bytes | str | None, memory: str | None = None) -> None:
    try:
        whole.merge_file(path, key=key, max_memory=memory)
    except DifferenceError:
        raise  # It names both files.
    except MergeError as error:
        named = str(error).startswith(f"{path}: ")
        raise error if named else MergeError(f"{path}: {error}") from None


def estimate_in_file(
    path: str | Path, hosts: Mapping[Part, Hosts], *, key: bytes | str | None = None, trusted: bool = False
) -> dict[Part, SuperHosts]:
    """Estimate the peers of hosts (a column, a result, addresses) in a stored sketch, in the order of the hosts.

    Every row equals `load(path).parts[part].estimate(host)`. The result has no entry for parts that the file lacks.
    `trusted`: the caller has just verified the checksum.
    """
    with CubeReader(path, trusted=trusted) as reader:
        stored = describe(reader, memory_limit(None), DETECTORS)
        asked = {each: column for part, column in hosts.items() for each in sources_of(part)}
        answers = _estimate(reader, stored, asked, stored.secret(key))
    found = {part: [answers[each] for each in sources_of(part) if each in answers] for part in hosts}
    return {
        part: difference(*rows) if len(rows) == 2 else rows[0]
        for part, rows in found.items()
        if len(rows) == len(sources_of(part))
    }


def find_in_file(
    path: str | Path, host: str | Host, *, key: bytes | str | None = None, max_memory: str | int | None = None
) -> SuperHosts:
    with CubeReader(path) as reader:
        stored = describe(reader, memory_limit(max_memory), DETECTORS)
        hosts: dict[Part, Hosts] = {part: [host] for part in stored.kinds if part.may_hold(host)}
        results = _estimate(reader, stored, hosts, stored.secret(key))
    named = [rows.named(stored.kinds[part].detector, part) for part, rows in results.items()]
    return SuperHosts.joined(named, stored.window, sort=False)


def _estimate(reader: CubeReader, stored: Stored, hosts: Mapping[Part, Hosts], secret: bytes) -> dict[Part, SuperHosts]:
    check_hosts(reader, stored, secret)
    asked = {
        part: named_column(hosts[part], bound(kind.format, text_key(secret)))
        for part, kind in stored.kinds.items()
        if part in hosts
    }
    queries: dict[Part, Any] = {}
    takers: dict[str, Take] = {}
    for part, (column, _) in asked.items():
        number, kind, detector, sides = stored.parts[part]
        query = detector._stored_hosts(kind, secret, column, sides)
        if query is None:  # This detector cannot be queried in blocks, so the whole sketch is loaded.
            sketch = load(reader.name, key=secret)
            return {each: sketch.parts[each].estimate_many(HostKeys(column)) for each, (column, _) in asked.items()}
        queries[part] = query
        takers.update({array_name(number, name): take for name, take in query.takers.items()})
    reader.each_block(takers, thread_count())
    answers = {}
    for part, query in queries.items():
        with array_errors(reader.name, stored.parts[part].number):
            answers[part] = query.answer()
        if stored.kinds[part].format == TEXT:
            column, names = asked[part]
            answers[part].format = TextFormat(None, column, names or [None] * len(column))
    return answers
