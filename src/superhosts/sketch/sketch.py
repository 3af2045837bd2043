"""A sketch: the detectors of one window, one for each requested address family, watched side and direction.

A sketch has the methods of its detectors and is the content of a .cube file. Merging is exact and idempotent: the
window becomes the hull of both, the sets of sites are united, and the counters of (site, window, part) are kept as
entries, of which equal ones count once.

Any thread may call any method. A method locks the sketch and all of its detectors, so that a result or a file reflects
one moment.
"""

from __future__ import annotations

import heapq
import json
import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

import numpy as np

from superhosts.core.device import check_device, thread_count
from superhosts.core.pairs import Part, Window
from superhosts.core.results import SuperHost, SuperHosts
from superhosts.core.text import counted, printable, setting
from superhosts.core.times import window_span
from superhosts.cubefile.container import Arrays, CubeReader, File, Take, block_writer, name_of
from superhosts.cubefile.header import MOST_PARTS, Entry, Notes, array_name, compose_header, write_parts
from superhosts.detectors import hostnames
from superhosts.detectors.arguments import check_count, is_one_host
from superhosts.detectors.columnsketch import ColumnSketch
from superhosts.detectors.detector import Detector
from superhosts.detectors.lock import holding, state_of
from superhosts.detectors.registry import DETECTORS
from superhosts.detectors.stored import (
    Kind,
    Place,
    Storable,
    Stored,
    StoredPart,
    array_errors,
    build,
    check_hosts,
    check_memory,
    check_mergeable,
    describe,
    header_errors,
    memory_limit,
    read_fields,
)
from superhosts.errors import (
    DifferenceError,
    HalfMergedError,
    HalfReadError,
    MergeError,
    SketchFileError,
    UnreadableError,
    UsageError,
)
from superhosts.sketch.evidence.sample import Evidence
from superhosts.sketch.unanswered import searched, with_unanswered

if TYPE_CHECKING:
    from superhosts.sketch.evidence.patterns import Judge, Verdict

# Counters, and sites besides those of the counters, that a sketch keeps: less than 1 MiB with the longest names.
MOST_NOTES = 2500
SITES_SHOWN = 5  # sites that the text of a sketch names


class Sketch(Storable):
    """The detectors of one window. `sh.load` returns one; `scan` creates one for every window."""

    def __init__(
        self, make: Callable[[Part], Detector] | None = None, *, window: Window | None = None, site: str = ""
    ) -> None:
        self._make = make
        self.parts: dict[Part, Detector] = {}  # replaced, never changed in place: other threads may be iterating it
        self.window = window
        self.sites: set[str] = {site} if site else set()
        self.entries: list[Entry] = []
        self.unlisted = False  # True if some sites or entries were dropped to bound the header
        self.partial = False  # True if a scan was interrupted before the end of this window or of a merged one
        self.evidence: Evidence | None = None  # a sample of the pairs; None: nobody has asked for it
        self._files: dict[Part, str] = {}  # the file that each part came from first, for messages
        # Cache of `_known`: the list of entries, how many of them it covers, and their texts.
        self._seen: tuple[list[Entry], int, set[str]] = (self.entries, 0, set())

    @classmethod
    def of(cls, detector: Detector) -> Sketch:
        """Return a sketch with this detector as its only part."""
        sketch = cls()
        sketch.parts[Part(family=detector.format.family)] = detector
        return sketch

    @contextmanager
    def _held(self, *others: Sketch) -> Iterator[None]:
        """Lock sketches, and then, which prevents deadlocks, all of their detectors."""
        sketches = (self, *others)
        with holding(*sketches), holding(*(each for sketch in sketches for each in sketch.parts.values())):
            yield

    def part(self, part: Part) -> Detector:
        """Return the detector of a part. It is created on first use."""
        with self.lock:
            if part not in self.parts:
                if self._make is None:
                    raise UsageError(f"this sketch has no part {part.words}")
                self.parts = {**self.parts, part: self._make(part)}
            return self.parts[part]

    @property
    def memory(self) -> int:
        """Bytes of all detectors, and of the evidence."""
        with self._held():
            sample = self.evidence.memory if self.evidence else 0
            return sum(detector.memory for detector in self.parts.values()) + sample

    def super_hosts(self, threshold: float) -> SuperHosts:
        """Return the hosts with at least `threshold` peers in any part, sorted by peers in descending order."""
        return self.collect(lambda _, detector: detector.super_hosts(threshold))

    def top(self, count: int) -> SuperHosts:
        """Return the `count` hosts with the most peers over all parts."""
        most = check_count(count)
        return self.collect(lambda _, detector: detector.top(most))[:most]

    @property
    def least_listed(self) -> float:
        """Peers below which `top` does not list hosts of some part; 1: it lists all hosts."""
        with self._held():
            return max((detector.least_listed for detector in self.parts.values()), default=1)

    def collect(self, ask: Callable[[Part, Any], SuperHosts], parts: Iterable[Part] | None = None) -> SuperHosts:
        """Call `ask` for every part, or for some, and return all rows, sorted by peers in descending order.

        Contacts that are unanswered are the difference of two parts, and count as one more part. The sketch is locked
        during the calls, so `ask` must not wait for a thread that uses the sketch.
        """
        with self._held():
            chosen = with_unanswered(self.parts) if parts is None else parts
            asked = [(part, detector) for part in chosen if (detector := searched(self.parts, part)) is not None]
            found = [ask(part, detector).named(detector.name, part) for part, detector in asked]
            return SuperHosts.joined(found, self.window)

    def estimate(self, host: Any) -> SuperHosts:
        """Estimate the peers of one host, or of many, in every part of its address family or of generic keys.

        Many hosts are a column as `update` takes it, or a result. Rows come part by part, in the order of the hosts.
        """
        hosts = [host] if is_one_host(host) else host
        with self._held():
            asked = [(part, detector, _hosts_for(part, detector, hosts, self.parts)) for part, detector in self]
            found = [
                detector.estimate_many(column).named(detector.name, part)
                for part, detector, column in asked
                if len(column)
            ]
            return SuperHosts.joined(found, self.window, sort=False)

    def estimate_many(self, hosts: Any) -> SuperHosts:
        """Estimate the peers of many hosts, as `estimate` does."""
        return self.estimate(hosts)

    def verdict(self, row: SuperHost) -> Verdict | None:
        """Return what the peers of a row's host look like, with the reason; None without evidence."""
        judge = self.judge()
        return None if judge is None else judge.verdict(row.host, row.part)

    def judge(self) -> Judge | None:
        """Return what names the patterns of hosts; None without evidence."""
        with self._held():
            evidence = self.evidence
        if evidence is None:
            return None
        # Imported here: most sketches have no evidence, and need not wait for its rules.
        from superhosts.sketch.evidence.patterns import Judge

        return Judge(evidence)

    def merge(self, other: Sketch) -> Self:
        """Merge another sketch into this one, and return it.

        Raise MergeError, and change nothing, if any part does not match.
        """
        _check_sketch(other)
        with self._held(other):
            self._check_mergeable(other.kinds, other._files)
            self._add(other, operator.ior)
        return self

    def __or__(self, other: Self) -> Self:
        """Return the union of two sketches as a new one."""
        if not isinstance(other, Sketch | Detector):
            return NotImplemented
        _check_sketch(other)
        with self._held(other):
            self._check_mergeable(other.kinds, other._files)
            whole = self._with_state(self._copied(other.parts))  # Of a part that both have, only the union is made.
            whole._add(other, operator.or_)
        return whole

    def __ior__(self, other: Self) -> Self:
        return self.merge(other) if isinstance(other, Sketch | Detector) else NotImplemented

    def _add(self, other: Sketch, unite: Callable[[Detector, Detector], Detector]) -> None:
        """Add all that another sketch has. `unite` returns what a part becomes that both have."""
        self._add_evidence(other.evidence, has_parts=bool(other.parts))
        added = {
            # A later merge into this sketch must not change the other one.
            part: unite(self.parts[part], detector) if part in self.parts else detector.copy()
            for part, detector in other.parts.items()
        }
        self.parts = {**self.parts, **added}
        self._unite(other)

    def merge_file(
        self, path: File, *, key: bytes | str | None = None, trusted: bool = False, max_memory: str | int | None = None
    ) -> Self:
        """Merge a .cube file as `merge(load(path, key=key))` does, but block by block, without a second sketch.

        The file's digest and header are verified before anything changes. If a block cannot be read or decoded later,
        this sketch contains only part of the file: HalfMergedError is raised, and the sketch must be discarded.
        `trusted`: the caller has just verified the digest, and it is not computed again. Raise SketchFileError if this
        sketch would need more than `max_memory` (default: what this process can use).
        """
        with CubeReader(path, trusted=trusted) as reader, self._held():
            limit = memory_limit(max_memory, self.memory)
            header = describe(reader, limit, DETECTORS)
            self._check_mergeable(header.kinds, dict.fromkeys(header.kinds, header.file))
            secret = header.secret(key)
            check_hosts(reader, header, secret)
            place = Place("cpu", self._threads())
            if not self._takes_blocks(header):
                check_memory(self.memory + header.memory, limit, reader.name)
                self.merge(_build(reader, header, secret, place))
                self._note_file(header)
                return self
            self._add_evidence(_read_evidence(reader, header, secret), has_parts=bool(header.parts))
            added = header.memory - sum(
                kind.geometry.memory for part, kind in header.kinds.items() if part in self.parts and kind.geometry
            )
            check_memory(self.memory + added, limit, reader.name)
            new = {
                part: stored.detector._make_empty(stored.kind, secret, place)
                for part, stored in header.parts.items()
                if part not in self.parts
            }
            places = reader.places()
            takers: dict[str, Take] = {}
            mergers: list[Callable[[], None]] = []
            for part, stored in header.parts.items():
                detector = new[part] if part in new else self.parts[part]
                sides, names = hostnames.apart(stored.sides)
                if names:
                    mergers.append(
                        _read(reader, stored, hostnames.buffers(names), detector._name_merger, detector.threads)
                    )
                own = detector._block_takers() or {}
                if own.keys() <= sides.keys():
                    takers.update({array_name(stored.number, name): take for name, take in own.items()})
                    sides = {name: each for name, each in sides.items() if name not in own}
                buffers = detector._buffers(sides) if sides else {}
                mergers.append(_read(reader, stored, buffers, detector._merger, detector.threads))
            try:
                reader.each_block(takers, self._threads(), places)
                for merge in mergers:
                    merge()
            except SketchFileError as error:
                failure = HalfReadError if isinstance(error, UnreadableError) else HalfMergedError
                raise failure(error.message, file=error.file, offset=error.offset) from None
            self.parts = {**self.parts, **new}
            self._unite(header)
            self._note_file(header)
        return self

    def _add_evidence(self, other: Evidence | None, *, has_parts: bool) -> None:
        """Merge the sample of a sketch with or without parts. Raise MergeError if it was made with another key."""
        if other is None or self.evidence is None:
            lacks = has_parts if other is None else bool(self.parts)
            found = self.evidence or other
            self.evidence = found.as_lacking() if found is not None and lacks else found
            return
        if self.evidence.key != other.key:
            raise MergeError(f"cannot merge: evidence with key {other.key} into evidence with key {self.evidence.key}")
        self.evidence = self.evidence.merged(other)

    def _check_mergeable(self, kinds: Mapping[Part, Kind], files: Mapping[Part, str]) -> None:
        """Raise MergeError if another sketch was made with other settings. If it is from a file, name both files."""
        if len({**self.parts, **kinds}) > MOST_PARTS:
            raise MergeError(f"cannot merge: a sketch has at most {MOST_PARTS} parts (sides, directions, filters)")
        for part, kind in kinds.items():
            try:
                check_mergeable(self.kinds, {part: kind})
                _check_answers(part, self.parts, kinds)
            except DifferenceError as error:
                if part not in files:
                    raise
                into = self._files.get(part) or next(iter(self._files.values()), "this sketch")
                raise error.naming(files[part], into) from None

    def _note_file(self, header: Stored) -> None:
        self._files = {**dict.fromkeys(header.kinds, header.file), **self._files}

    @property
    def kinds(self) -> dict[Part, Kind]:
        """The kind of each part. The parts of another sketch must have the same kinds to be merged."""
        return {part: detector.kind for part, detector in self.parts.items()}

    def _takes_blocks(self, header: Stored) -> bool:
        return all(
            issubclass(stored.detector, ColumnSketch) and "pairs" not in stored.sides
            for stored in header.parts.values()
        ) and all(detector._block_takers() is not None for detector in self.parts.values())

    def _threads(self) -> int:
        return max((detector.threads for detector in self.parts.values()), default=thread_count())

    def _unite(self, other: Sketch | Stored) -> None:
        """Extend the window to the hull of both, and add the sites and the entries that are new."""
        if (window := other.window) is not None:
            mine = self.window or window
            self.window = Window(min(mine.start, window.start), max(mine.end, window.end))
        self.sites = self.sites | set(other.sites)
        known = self._known()
        for entry in other.entries:
            text = entry_text(entry)
            if text not in known:
                known.add(text)
                self.entries.append(entry)
        self._seen = (self.entries, len(self.entries), known)
        self.unlisted |= other.unlisted
        self.partial |= other.partial
        self._bound_notes()

    def _bound_notes(self) -> None:
        """Keep the newest counters, their sites, and the first sites by name.

        A union of years has very many, and its header must stay small enough to be sent. What a union keeps depends
        only on what its members keep, in any order, so merging remains exact and idempotent.
        """
        if len(self.entries) > MOST_NOTES:
            self.entries, self.unlisted = heapq.nsmallest(MOST_NOTES, self.entries, key=_newest_first), True
        if len(self.sites) > MOST_NOTES:
            named = self.sites & {entry["site"] for entry in self.entries}
            kept = {*heapq.nsmallest(MOST_NOTES, self.sites), *named}
            self.unlisted |= len(kept) < len(self.sites)
            self.sites = kept

    def _known(self) -> set[str]:
        """Return the entries as a set of texts. Each entry is converted only once: a year of files has very many."""
        entries, count, known = self._seen
        if entries is not self.entries or len(entries) < count:  # A caller has replaced the entries.
            count, known = 0, set()
        known.update(map(entry_text, self.entries[count:]))
        return known

    def clear(self) -> None:
        """Remove all pairs."""
        with self._held():
            for detector in self.parts.values():
                detector.clear()
            self.entries, self.unlisted, self.partial, self.evidence = [], False, False, None

    def __repr__(self) -> str:
        with self._held():
            when = [window_span(self.window)] if self.window and self.window.is_timed else []
            sites = [f"sites {', '.join(map(printable, sorted(self.sites)[:SITES_SHOWN]))}"] if self.sites else []
            more = [f"and {len(self.sites) - SITES_SHOWN} more"] if len(self.sites) > SITES_SHOWN else []
            words = [*when, *sites, *more, *(["partial"] if self.partial else []), counted(len(self.parts), "part")]
            lines = [f"  {part.words}: {self.parts[part]!r}" for part in sorted(self.parts)]
            return "\n".join([f"<Sketch: {', '.join(words)}>", *lines])

    def __iter__(self) -> Iterator[tuple[Part, Detector]]:
        return iter(self.parts.items())

    def save(self, path: File) -> None:
        """Write a .cube file: to a path, or to a file that is open for writing bytes.

        Other threads wait until it is written, because a copy could take gigabytes.
        """
        self._write(path, pairs=False)

    def _write(self, path: File, *, pairs: bool) -> None:
        with self._held():
            parts = [self.parts[part]._written(part, pairs=pairs) for part in sorted(self.parts)]
            self._bound_notes()
            sample = self.evidence
            about = self.unlisted, self.partial, sample.kind if sample else None
            header = compose_header(parts, Notes(self.window, frozenset(self.sites), self.entries, *about))
            try:
                read_fields(json.loads(json.dumps(header)), DETECTORS)
            except ValueError as error:  # Never write a file that could not be read back.
                raise UsageError(f"{name_of(path)}: cannot be saved: {error}") from None
            stored = sample.stored() if sample else {}
            write_parts(path, header, parts, {f"evidence/{family}": rows for family, rows in stored.items()})

    @classmethod
    def load(
        cls,
        file: File,
        *,
        key: bytes | str | None = None,
        device: str = "cpu",
        threads: int | None = None,
        max_memory: str | int | None = None,
    ) -> Self:
        """Load a .cube file, given by its path or as a file object that is open for reading bytes.

        Without `key`, SUPERHOSTS_KEY counts; without both, the public key or the user's own may be that of the file.
        """
        # `cls` may be a class of the caller.
        return cls._with_state(state_of(load(file, key=key, device=device, threads=threads, max_memory=max_memory)))

    def copy(self) -> Self:
        """Return an independent sketch with the same content, on the same devices."""
        with self._held():
            return self._with_state(self._copied())

    def _copied(self, other: Collection[Part] = ()) -> dict[str, Any]:
        """Return a copy of the state, but for the detectors of some parts, which are the same."""
        parts = {part: each if part in other else each.copy() for part, each in self.parts.items()}
        return {**state_of(self), "parts": parts, "sites": set(self.sites), "entries": list(self.entries)}

    def __eq__(self, other: object) -> bool:
        """Return True if the other has the same notes and evidence, and detectors that are equal."""
        if self is other:
            return True
        if not isinstance(other, Sketch):
            return NotImplemented
        with self._held(other):
            mine, theirs = (
                (each.window, each.sites, set(map(entry_text, each.entries)), each.unlisted, each.partial)
                for each in (self, other)
            )
            return mine == theirs and self.evidence == other.evidence and self.parts == other.parts


def load(
    path: File,
    *,
    key: bytes | str | None = None,
    device: str = "cpu",
    threads: int | None = None,
    max_memory: str | int | None = None,
) -> Sketch:
    """Load a .cube file onto a device: from a path, or from a file that is open for reading bytes.

    Without `key`, SUPERHOSTS_KEY counts; without both, the file may be written with the public key or the user's own.
    Raise MergeError if it was written with another key.
    """
    limit = memory_limit(max_memory)
    check_device(device)  # Report a missing device before reading the file.
    place = Place(device, thread_count(threads))
    with CubeReader(path) as reader:
        header = describe(reader, limit, DETECTORS)
        secret = header.secret(key)
        check_hosts(reader, header, secret)
        return _build(reader, header, secret, place)


def _read(
    reader: CubeReader,
    stored: StoredPart,
    buffers: Arrays,
    merger: Callable[[Arrays], Callable[[], None]],
    threads: int,
) -> Callable[[], None]:
    """Read and check arrays of a part which blocks cannot merge; return a function that merges them."""
    takers = {array_name(stored.number, name): block_writer(array) for name, array in buffers.items()}
    if takers:
        reader.each_block(takers, threads)
    with array_errors(reader.name, stored.number):
        return merger(buffers)


def _build(reader: CubeReader, header: Stored, secret: bytes, place: Place) -> Sketch:
    sketch = Sketch(window=header.window)
    sketch.sites, sketch.entries, sketch.unlisted = set(header.sites), list(header.entries), header.unlisted
    sketch.partial = header.partial
    sketch._note_file(header)
    sketch.parts = build(reader, header, secret, place)
    sketch.evidence = _read_evidence(reader, header, secret)
    return sketch


def _read_evidence(reader: CubeReader, header: Stored, secret: bytes) -> Evidence | None:
    if header.evidence is None:
        return None
    names = {array["name"] for array in reader.header["arrays"]}
    with header_errors(reader.name):
        stored = {f: reader.read_array(f"evidence/{f}") for f in (4, 6) if f"evidence/{f}" in names}
        return Evidence.loaded(secret, header.evidence, stored)


def _hosts_for(part: Part, detector: Detector, hosts: Any, parts: Iterable[Part]) -> Any:
    if isinstance(hosts, SuperHosts):
        rows = [row.host for row in hosts if row.part.family == part.family]
        return hosts if len(rows) == len(hosts) and hosts.hosts.ndim == 1 else rows
    if isinstance(hosts, np.ndarray) and hosts.dtype.kind == "u":
        bits = 128 if hosts.ndim == 2 else 8 * hosts.dtype.itemsize
        return hosts if bits == detector.key_bits else hosts[:0]
    if len({each.family for each in parts}) == 1 and not isinstance(hosts, list | tuple):
        return hosts
    return [host for host in hosts if part.may_hold(host)]


def _check_answers(part: Part, mine: Iterable[Part], other: Iterable[Part]) -> None:
    known = [part.with_contact("answered") in parts for parts in (other, mine)]
    if part.contact == "opened" and part in mine and known[0] != known[1]:
        there, here = (setting("peers", "opened,answered" if each else "opened") for each in known)
        raise DifferenceError(f"cannot merge: {there} into {here}", there=there, here=here)


def _check_sketch(other: Any) -> None:
    if not isinstance(other, Sketch):
        hint = "use sh.Sketch.of(detector), or merge a detector into one part: sketch.part(sh.Part(4)).merge(detector)"
        raise MergeError(f"cannot merge {type(other).__name__} into a sketch: not a sketch; {hint}")


# The union of several detectors, sketches or files.


AnyDetector = TypeVar("AnyDetector", bound=Detector)


@overload
def union(members: Iterable[Sketch | str | Path], *, key: bytes | str | None = None) -> Sketch: ...


@overload
def union(members: Iterable[AnyDetector], *, key: bytes | str | None = None) -> AnyDetector: ...


def union(members: Iterable[Any], *, key: bytes | str | None = None) -> Any:
    """Return the union of detectors, or of sketches and .cube files, as a new object. The members do not change.

    Files are merged block by block; `key` is theirs, as for `load`. Raise MergeError if members do not match.
    """
    whole: Any = None
    for member in members:
        is_file = isinstance(member, str | Path)
        if whole is None and not is_file:
            if not isinstance(member, Detector | Sketch):
                raise UsageError(f"union: {type(member).__name__} is not a detector, sketch or path of a .cube file")
            whole = member.copy()
            continue
        whole = Sketch() if whole is None else whole
        if is_file and isinstance(whole, Sketch):
            whole.merge_file(member, key=key)
        else:
            whole.merge(member)
    if whole is None:
        raise UsageError("union: there is nothing to unite; pass at least one detector, sketch or path")
    return whole


def _newest_first(entry: Entry) -> tuple[int, int, str]:
    return -entry.get("end", 0), -entry.get("start", 0), entry_text(entry)


def entry_text(entry: Entry) -> str:
    """Return an entry as text. Equal entries have equal text."""
    return json.dumps(entry, sort_keys=True)
