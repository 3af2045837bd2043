"""The interface that every detector implements.

    update(hosts, peers) · merge(other) · super_hosts(threshold) · top(count) · estimate(host) · clear() · save(path)

Tests hold every detector to these laws: the order and repetition of pairs do not matter; a merged detector equals one
that has seen both streams; merging is commutative and idempotent. A detector that cannot keep a law names it in
`broken_laws`.

This module defines the public methods: each acquires the detector's lock once and calls the private method of the same
name. A detector implements the private methods and decorates its other public methods with `locked` (`lock.py`).

Detectors are objects with operators: a | b · a |= b · a == b · to_bytes · from_bytes · load · pickle. Two are equal if
they are of the same kind and key and hold the same bits, pairs or names.

A detector describes its part of a file by fields and named arrays, of which there may be several forms, and builds
itself from them (`stored.py`). What is unpickled works on the CPU, whatever the device of the original was.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self, final, overload

import numpy as np
from numpy.typing import NDArray

from superhosts.core.columns.hosts import Pairs
from superhosts.core.columns.readers import ColumnData, TableData, columns_of, is_table
from superhosts.core.device import check_device, thread_count
from superhosts.core.hashing import fingerprint, make_key
from superhosts.core.pairs import TEXT, Addresses, Batches, Host, HostFormat, PairBatch, Part
from superhosts.core.profile import measured
from superhosts.core.results import SuperHost, SuperHosts
from superhosts.core.text import printable
from superhosts.core.textkeys import TextFormat, TextKey, bound, text_key
from superhosts.core.units import format_size
from superhosts.cubefile.container import CubeReader, File, Take
from superhosts.cubefile.header import WrittenPart, compose_header, part_of, write_parts
from superhosts.detectors import hostnames
from superhosts.detectors.arguments import (
    Hosts,
    as_pairs,
    check_count,
    check_threshold,
    is_one_host,
    named_column,
    read_pairs,
)
from superhosts.detectors.engines.base import Arrays, ArrayShape, Tuning
from superhosts.detectors.engines.bins import DoesNotFitError
from superhosts.detectors.hostnames import HostNames
from superhosts.detectors.lock import holding, state_of
from superhosts.detectors.stored import (
    Kind,
    Place,
    Read,
    Storable,
    build,
    check_alike,
    check_hosts,
    describe,
    header_errors,
    memory_limit,
)
from superhosts.errors import MergeError, UsageError


class Detector(Storable, ABC):
    """A detector of super hosts over one set of pairs. It starts its own threads, and any thread may call it."""

    name: ClassVar[str]
    widths: ClassVar[tuple[int, ...]] = (32,)  # the bits of hosts that it takes
    broken_laws: ClassVar[frozenset[str]] = frozenset()
    geometry_type: ClassVar[type[Any] | None] = None  # the class of its geometries; None if it has no geometry
    tuning: ClassVar[Tuning] = Tuning()
    threads: int
    format: HostFormat  # how this detector's integers represent hosts
    geometry: Any = None
    fingerprint: str | None = None  # of the key; None if nothing is hashed
    _text_key: TextKey | None = None  # the key of the hash of texts; None if hosts are addresses
    _names: HostNames | None = None  # the names of hosts; None unless hosts are text
    _dropped: int = 0

    def _take_keys(self, format: HostFormat, secret: bytes, most_names: int) -> None:
        """Take generic keys of this format as hosts; keep the names of `most_names` hosts if they are text."""
        self.fingerprint, self._text_key = fingerprint(secret), text_key(secret)
        self.format = bound(format, self._text_key)
        if format == TEXT:
            self._names = HostNames(most_names, make_key(secret), self._text_key)

    @classmethod
    def for_scan(cls, threshold: float, /, **arguments: Any) -> Self:
        """Return a detector for a scan that reports hosts of at least `threshold` peers."""
        return cls(**arguments)

    @classmethod
    def check_memory(cls, memory: str | int, threshold: float) -> None:
        """Raise GeometryError if nothing of this memory reports hosts of at least `threshold` peers."""
        if cls.geometry_type is not None:
            cls.geometry_type.for_memory(memory)

    @classmethod
    def check_device(cls, device: str) -> None:
        check_device(device)

    # Constant properties, which need no lock

    @property
    def key_bits(self) -> int:
        """Bits of the integer that represents a host."""
        return self.format.key_bits

    @property
    def kind(self) -> Kind:
        """The properties that two detectors must have in common to be merged."""
        return Kind(self.name, self.fingerprint, self.geometry, HostFormat(*self.format))

    def check_alike(self, other: Detector) -> None:
        """Raise MergeError, which names both values, if another detector must not be merged into this one."""
        check_detector(other, self.name)
        check_alike(self.kind, other.kind)

    # Public methods

    @overload
    def update(self, hosts: PairBatch) -> None: ...

    @overload
    def update(self, hosts: ColumnData, peers: ColumnData) -> None: ...

    @overload
    def update(self, hosts: TableData, *, host: str, peer: str) -> None: ...

    @final
    def update(self, hosts: Any, peers: Any = None, *, host: str | None = None, peer: str | None = None) -> None:
        """Add pairs, given as two columns, as a table with the names of two columns, or as one PairBatch.

            cube.update(hosts, peers)
            cube.update(df, host="src", peer="dst")

        A column is an array, a list, or a series of pandas, Polars or Arrow. It holds integers of any width, address
        text, `ipaddress` objects, or 4 or 16 bytes in network order (as uint8 also (n, 4) and (n, 16)); uint64 (n, 2)
        is 128 bits, high word first. Integers are the hosts' numbers and must fit their width. Hosts of another family
        than the detector's are an error; peers may be of either. IPv4-mapped IPv6 is IPv4 in every form, except in
        arrays on a GPU, which are taken as they are. A table is a data frame, a structured array, a mapping
        of columns, a DuckDB relation or any Arrow stream, which is read batch by batch.

        With generic keys (`keys`), columns hold integers or text, and bytes are text.

        A row with a null (None, NA, masked) is not a pair; `dropped` counts these. An error names the column and the
        first bad row, counted from 0. Rows before it may have been added; adding them again changes nothing.
        """
        if isinstance(hosts, PairBatch):
            return self._add(hosts.hosts, hosts.peers)
        if host is None and peer is None and not (peers is None and is_table(hosts)):
            if peers is None:
                raise UsageError("update: peers are missing; pass hosts and peers, or one PairBatch")
            return self._add(hosts, peers)
        if peers is not None:
            raise UsageError("update: host= and peer= name columns of one table; pass either these or two columns")
        for left, right in columns_of(hosts, host, peer):
            self._add(left, right)
        return None

    def _add(self, hosts: Any, peers: Any) -> None:
        blocks = self._checked(hosts, peers)
        with self.lock:
            for block in blocks:
                self._dropped += block.dropped
                self._update_block(block)
                self._keep_names(block)

    def _keep_names(self, block: Pairs) -> None:
        if self._names is not None and block.names is not None:
            self._names.add(block.hosts, block.peers, block.names)

    def _update_block(self, block: Pairs) -> None:
        if not len(block.hosts):
            return
        try:
            self._update(block.hosts, block.peers)
        except DoesNotFitError:
            assert block.checked is not None
            for each in block.checked():  # Pairs that were added before change nothing.
                self._update(each.hosts, each.peers)

    @final
    @property
    def dropped(self) -> int:
        """Rows that `update` left out because their host or peer was null, since the last `clear`."""
        with self.lock:
            return self._dropped

    @final
    def update_many(self, batches: Iterable[PairBatch]) -> None:
        """Add several batches of pairs. Threads share them, so this is faster than one `update` for each."""
        checked = [self._checked(batch.hosts, batch.peers) for batch in batches]
        with self.lock:
            blocks = [block for each in checked for block in each]
            self._dropped += sum(block.dropped for block in blocks)
            try:
                self._update_many([block[:2] for block in blocks if len(block.hosts)])
            except DoesNotFitError:
                for block in blocks:
                    self._update_block(block)
            for block in blocks:
                self._keep_names(block)

    def _checked(self, hosts: Any, peers: Any) -> Iterable[Pairs]:
        if self._text_key is not None:
            return [read_pairs(hosts, peers, self.format, self._text_key, self.threads)]
        return as_pairs(hosts, peers, self.format, self.name, narrows=self._narrows())

    def _narrows(self) -> bool:
        """Return True if `_update` takes integers of 64 bits for hosts of 32, and raises DoesNotFitError.

        This is asked without the lock: an engine that no longer narrows by then must still take them.
        """
        return False

    @final
    def merge(self, other: Self) -> Self:
        """Add everything that another detector of the same kind has seen; return this detector."""
        self.check_alike(other)
        with holding(self, other):
            self._merge(other)
            if self._names is not None and other._names is not None:
                self._names.merge(other._names)
        return self

    @final
    def super_hosts(self, threshold: float) -> SuperHosts:
        """Return the hosts with at least `threshold` peers, largest first."""
        minimum = check_threshold(threshold)
        with self.lock, measured("restore"):
            return self._with_names(self._super_hosts(minimum))

    @final
    def top(self, count: int) -> SuperHosts:
        """Return the `count` hosts with the most peers. Some detectors do not find hosts with only a few peers."""
        limit = check_count(count)
        with self.lock, measured("restore"):
            return self._with_names(self._top(limit))

    @final
    @property
    def names_kept(self) -> int | None:
        """Number of hosts whose names are kept; None unless hosts are text. Others are shown as hashes."""
        with self.lock:
            return None if self._names is None else len(self._names)

    @final
    @property
    def least_listed(self) -> float:
        """The number of peers below which `top` does not list hosts; 1: it lists all hosts."""
        with self.lock:
            return self._least_listed()

    @overload
    def estimate(self, host: str | int | np.integer[Any] | Host) -> SuperHost: ...

    @overload
    def estimate(self, host: Any) -> SuperHosts: ...

    @final
    def estimate(self, host: Any) -> SuperHost | SuperHosts:
        """Return the number of peers of any host, with its confidence interval.

        For many hosts (a column as `update` takes it, or a result), return a result in the same order.
        """
        return self.estimate_many([host])[0] if is_one_host(host) else self.estimate_many(host)

    @final
    def estimate_many(self, hosts: Hosts) -> SuperHosts:
        """Return the numbers of peers of any hosts (a result, or a column as `update` takes it), in order."""
        column, given = named_column(hosts, self.format)
        with self.lock:
            return self._with_names(self._estimate_many(column).in_original_order(), given)

    def _with_names(self, found: SuperHosts, given: Sequence[str | None] = ()) -> SuperHosts:
        """Return a result with names: the detector's, those that the caller gave, and those of hosts that are text."""
        if self.format == TEXT:
            texts: Sequence[str | None] = given or [None] * len(found)
            if self._names is not None and None in texts:
                known = self._names.find(found.hosts)
                texts = [kept if name is None else name for name, kept in zip(texts, known, strict=True)]
            found.format = TextFormat(None, found.hosts, texts)
        return found.named(self.name)

    @final
    def columns_of(self, host: str | int | Host) -> list[dict[str, Any]]:
        """Return how full the columns of a host are; an empty list if the detector has no columns."""
        with self.lock:
            return self._columns_of(host)

    @final
    def flush(self) -> None:
        """Write all pending pairs. Every query does this automatically."""
        with self.lock:
            self._flush()

    @final
    def clear(self) -> None:
        """Discard all pairs."""
        with self.lock:
            self._dropped = 0
            self._clear()
            if self._names is not None:
                self._names.clear()

    @final
    @property
    def memory(self) -> int:
        """Bytes of the detector's data, on all of its devices together."""
        with self.lock:
            return self._memory() + (0 if self._names is None else self._names.memory)

    # Objects

    @final
    def copy(self) -> Self:
        """Return an independent object with the same content, on the same device."""
        with self.lock:
            twin = self._copy()
            if self._names is not None:
                twin._names = self._names.copy()
            return twin

    def __or__(self, other: Self) -> Self:
        """Return the union of two detectors as a new one."""
        if not _can_merge(other):
            return NotImplemented
        self.check_alike(other)
        with holding(self, other):
            whole = self._united(other)
            if self._names is not None:
                whole._names = self._names.copy()
                if other._names is not None:
                    whole._names.merge(other._names)
        return whole

    def __ior__(self, other: Self) -> Self:
        return self.merge(other) if _can_merge(other) else NotImplemented

    def __eq__(self, other: object) -> bool:
        """Return True if the other is of the same kind and key and holds the same bits, pairs and names."""
        if self is other:
            return True
        if not isinstance(other, Detector):
            return NotImplemented
        with holding(self, other):
            if self.kind != other.kind:
                return False
            mine, theirs = self._arrays() | self._name_arrays(), other._arrays() | other._name_arrays()
            return mine.keys() == theirs.keys() and all(
                np.array_equal(array, theirs[name]) for name, array in mine.items()
            )

    def __repr__(self) -> str:
        try:
            with self.lock:
                words = self._description()
        except (AttributeError, UsageError):  # A debugger looks into the constructor, or the lock is lost (lock.py).
            return object.__repr__(self)
        device = getattr(self, "device", "")
        return f"<{type(self).__name__}: {', '.join(filter(None, [*words, device]))}>"

    # Files

    @final
    def save(self, file: File) -> None:
        """Write a .cube file with this detector as its only part: to a path, or to a file that is open for writing."""
        self._write(file, pairs=False)

    def _write(self, file: File, *, pairs: bool) -> None:
        with self.lock:
            parts = [self._written(Part(self.format.family), pairs=pairs)]
            write_parts(file, compose_header(parts), parts)

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
        """Load a .cube file with one part, given by its path or as a file object that is open for reading bytes.

        Without `key`, SUPERHOSTS_KEY counts; without both, the public key or the user's own may be that of the file.
        """
        limit = memory_limit(max_memory)
        check_device(device)  # Report a missing device before reading the file.
        with CubeReader(file) as reader:
            home = cls._class_in(reader)
            stored = describe(reader, limit, {home.name: home})
            secret = stored.secret(key)
            check_hosts(reader, stored, secret)
            (detector,) = build(reader, stored, secret, Place(device, thread_count(threads))).values()
        return cls._with_state(state_of(detector))

    @classmethod
    def _class_in(cls, reader: CubeReader) -> type[Detector]:
        """Return the class of a file's only part, from which the caller's may derive. Raise UsageError."""
        parts = reader.header.get("parts")
        if isinstance(parts, list) and all(isinstance(fields, dict) and "detector" in fields for fields in parts):
            with header_errors(reader.name):
                held = [part_of(fields, f"parts[{number}]").words for number, fields in enumerate(parts)]
            if len(held) != 1:
                found = f"the file has {len(held)} parts ({', '.join(held) or 'none'})"
                raise UsageError(f"{cls.__name__}.load: {found}; use sh.load")
            if isinstance(parts[0]["detector"], str) and parts[0]["detector"] != getattr(cls, "name", ""):
                found = f"the file holds {printable(parts[0]['detector'])}"
                raise UsageError(f"{cls.__name__}.load: {found}; use sh.load")
        return next(each for each in reversed(cls.__mro__) if getattr(each, "name", "") == cls.name)

    @final
    def arrays(self) -> Arrays:
        """Return copies of the arrays that make up the detector's state."""
        with self.lock:
            return {name: array.copy() for name, array in self._arrays().items()} | self._name_arrays()

    @final
    def load_arrays(self, arrays: Arrays) -> None:
        """Replace the detector's state by arrays that `arrays` returned or that a file holds."""
        with self.lock:
            content, names = hostnames.apart(arrays)
            read = None if self._names is None or not names else self._names.read(names)
            self._load_arrays(content)
            if read is not None:
                self._names = read

    # How a detector is described in a file, and restored. The caller holds the lock.

    def _written(self, part: Part, *, pairs: bool = False) -> WrittenPart:
        """Return the fields and arrays of a file. The arrays are the detector's own if they are in main memory."""
        sizes = {"key_bits": self.key_bits} if self.geometry is None else {"geometry": dict(self.geometry._asdict())}
        fields = {"detector": self.name, **sizes, "key": self.fingerprint, "format": self.format.fields}
        return WrittenPart(part, fields, (self._pair_arrays() if pairs else self._file_arrays()) | self._name_arrays())

    def _name_arrays(self) -> Arrays:
        return {} if self._names is None else self._names.arrays()

    @classmethod
    def _make_empty(cls, kind: Kind, secret: bytes, place: Place) -> Self:
        """Return an empty detector of this kind, for the content of a file."""
        make: Any = cls
        made: Self = make(**cls._arguments_for(kind), key=secret, device=place.device, threads=place.threads)
        if kind.format.keys is None:
            made.format = kind.format
        return made

    @classmethod
    def _arguments_for(cls, kind: Kind) -> dict[str, Any]:
        return {"geometry": kind.geometry}

    @classmethod
    def _file_shapes(cls, kind: Kind) -> tuple[dict[str, ArrayShape], ...]:
        """Return the shapes of the arrays in a file, in all forms; the first form is that of `_arrays`."""
        raise NotImplementedError

    @classmethod
    def _loaded_memory(cls, kind: Kind, sides: Mapping[str, Sequence[int]]) -> int:
        """Return the bytes that a detector takes after loading arrays with these sides."""
        raise NotImplementedError

    @classmethod
    def _shown_hosts(cls, kind: Kind, secret: bytes, names: Collection[str], read: Read) -> NDArray[np.uint64] | None:
        """Return the last words of the hosts that arrays of a file, `names`, tell; None if they tell none."""
        return None

    @classmethod
    def _stored_hosts(cls, kind: Kind, secret: bytes, hosts: Addresses, sides: Mapping[str, Sequence[int]]) -> Any:
        """Return an object that estimates hosts from a file with arrays of these sides; None if it must be loaded.

        Its `takers` take the blocks of arrays; `answer` then returns the rows, in the order of the hosts.
        """
        return None

    def _buffers(self, sides: Mapping[str, Sequence[int]]) -> Arrays:
        """Return arrays with these sides for reading a file; pass them to `load_arrays` when they are filled."""
        return {name: np.zeros(sides[name], shape.dtype) for name, shape in self._file_shapes(self.kind)[0].items()}

    @abstractmethod
    def _arrays(self) -> Arrays:
        """Return the detector's own arrays if they are in main memory, otherwise copies."""

    def _file_arrays(self) -> Arrays:
        return self._arrays()

    def _pair_arrays(self) -> Arrays:
        """Return the arrays of a file that may hold pairs."""
        return self._file_arrays()

    def _load_arrays(self, arrays: Arrays) -> None:
        raise NotImplementedError

    def _block_takers(self) -> dict[str, Take] | None:
        """Return a function per array that merges a block of a file; None if files must be loaded to be merged."""
        return None

    def _merger(self, arrays: Arrays) -> Callable[[], None]:
        """Check the arrays of a file that blocks do not merge, if any; return a function that merges them."""
        if arrays:
            raise NotImplementedError
        return lambda: None

    def _name_merger(self, arrays: Arrays) -> Callable[[], None]:
        names = self._names
        assert names is not None  # Only files of text keys have names.
        read = names.read(arrays)
        return lambda: names.merge(read)

    # Methods that a detector implements. The caller holds the lock.

    @abstractmethod
    def _update(self, hosts: Addresses, peers: Addresses) -> None: ...

    def _update_many(self, batches: Batches) -> None:
        for hosts, peers in batches:
            self._update(hosts, peers)

    def _copy(self) -> Self:
        return self._with_state(copy.deepcopy(state_of(self)))

    @abstractmethod
    def _merge(self, other: Self) -> None:
        """Merge a detector of the same kind. The caller holds its lock too."""

    def _united(self, other: Self) -> Self:
        """Return the union with a detector of the same kind, but for names. The caller holds its lock too."""
        whole = self._copy()
        whole._merge(other)
        return whole

    @abstractmethod
    def _super_hosts(self, threshold: float) -> SuperHosts: ...

    @abstractmethod
    def _top(self, count: int) -> SuperHosts: ...

    def _least_listed(self) -> float:
        return 1

    @abstractmethod
    def _estimate_many(self, hosts: Addresses) -> SuperHosts: ...

    def _description(self) -> list[str]:
        return [format_size(self._memory())]

    def _flush(self) -> None:
        """Write all pending pairs. Most detectors have none."""

    @abstractmethod
    def _clear(self) -> None: ...

    @abstractmethod
    def _memory(self) -> int: ...

    def _columns_of(self, host: str | int | Host) -> list[dict[str, Any]]:
        return []


def _can_merge(other: Any) -> bool:
    """Return True for detectors, and for sketches, which a message refuses."""
    return isinstance(other, Detector) or hasattr(other, "parts")


def check_detector(other: Any, name: str) -> None:
    if isinstance(other, Detector):
        return
    if hasattr(other, "parts"):
        remedy = f"pass one of its parts, for example {name}.merge(sketch.part(sh.Part(4)))"
        raise MergeError(f"cannot merge a whole sketch into one {name}; {remedy}")
    raise MergeError(f"cannot merge {type(other).__name__} into {name}: not a detector")
