"""The interface that every detector implements.

    update(hosts, peers) · merge(other) · super_hosts(threshold) · top(count) · estimate(host) · clear() · save(path)

Tests hold every detector to these laws: the order and repetition of pairs do not matter; a merged detector equals one
that has seen both streams; merging is commutative and idempotent. A detector that cannot keep a law names it in
`broken_laws`.

Any thread may call any public method at any time; the results are those of some sequential order of the calls. This
module defines the public methods: each acquires the detector's lock once and calls the private method of the same name.
A detector implements the private methods and decorates its other public methods with `locked`. What it is made of, in
memory and in files, is in `storing.py`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Self, final, overload

import numpy as np

from superhosts.core.columns.hosts import Pairs
from superhosts.core.columns.readers import ColumnData, TableData, columns_of, is_table
from superhosts.core.pairs import TEXT, Addresses, Batches, Host, HostFormat, PairBatch
from superhosts.core.profile import measured
from superhosts.core.results import SuperHost, SuperHosts
from superhosts.core.textkeys import TextFormat, TextKey
from superhosts.core.units import format_size
from superhosts.detectors.arguments import (
    Hosts,
    as_pairs,
    check_count,
    check_threshold,
    is_one_host,
    named_column,
    read_pairs,
)
from superhosts.detectors.engines.base import Tuning
from superhosts.detectors.engines.bins import DoesNotFitError
from superhosts.detectors.kinds import Kind, check_alike
from superhosts.detectors.locking import holding
from superhosts.detectors.storing import Storable
from superhosts.errors import MergeError, UsageError


class Detector(Storable):
    """A detector of super hosts over one set of pairs. It starts its own threads, and any thread may call it."""

    broken_laws: ClassVar[frozenset[str]] = frozenset()
    takes_ipv6: ClassVar[bool] = False  # accepts hosts of 64 and 128 bits
    takes_keys: ClassVar[bool] = False  # accepts generic keys (argument `keys`)
    runs_on_gpu: ClassVar[bool] = True
    geometry_type: ClassVar[type[Any] | None] = None  # the class of its geometries; None if it has no geometry
    takes_geometry: ClassVar[bool] = False  # its sizes can be given as text, which `geometry_type.parse` reads
    takes_exact: ClassVar[bool] = False  # can keep pairs exactly while they fit (argument `exact`)
    takes_blocks: ClassVar[bool] = False  # can merge the blocks of a file one by one
    wants_threshold: ClassVar[bool] = False  # needs the threshold before the first pair
    grows_with_traffic: ClassVar[bool] = False  # its memory depends on the traffic and cannot be chosen
    tuning: ClassVar[Tuning] = Tuning()
    threads: int
    _text_key: TextKey | None = None  # the key of the hash of texts; None if hosts are addresses
    _dropped: int = 0

    # Constant properties, which need no lock

    @property
    def key_bits(self) -> int:
        """Bits of the integer that represents a host."""
        return self.format.key_bits

    @property
    def kind(self) -> Kind:
        """The properties that two detectors must have in common to be merged."""
        return Kind(self.name, None, None, HostFormat(*self.format), "merge" not in self.broken_laws)

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

        A row with a null (None, NA, masked) is no pair; `dropped` counts these. An error names the column and the
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
        if self._text_key is not None:
            return self._update_keys([(hosts, peers)])
        blocks = self._checked(hosts, peers)
        with self.lock:
            for block in blocks:
                self._dropped += block.dropped
                if len(block.hosts):
                    self._update_block(block)
        return None

    def _update_block(self, block: Pairs) -> None:
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
        if self._text_key is not None:
            return self._update_keys([(batch.hosts, batch.peers) for batch in batches])
        checked = [self._checked(batch.hosts, batch.peers) for batch in batches]
        with self.lock:
            blocks = [block for each in checked for block in each]
            self._dropped += sum(block.dropped for block in blocks)
            try:
                self._update_many([block[:2] for block in blocks if len(block.hosts)])
            except DoesNotFitError:
                for block in blocks:
                    if len(block.hosts):
                        self._update_block(block)
        return None

    def _update_keys(self, batches: Iterable[tuple[Any, Any]]) -> None:
        """Add pairs of generic keys, and the names of their hosts."""
        assert self._text_key is not None
        read = [read_pairs(hosts, peers, self.format, self._text_key, self.threads) for hosts, peers in batches]
        with self.lock:
            self._dropped += sum(batch.dropped for batch in read)
            self._update_many([(batch.hosts, batch.peers) for batch in read if len(batch.hosts)])
            for batch in read:
                if self._names is not None and batch.names is not None:
                    self._names.add(batch.hosts, batch.peers, batch.names)

    def _checked(self, hosts: Any, peers: Any) -> Iterable[Pairs]:
        """Return the blocks of a batch; raise UsageError if its columns do not fit this detector or each other."""
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
    def _union(self, other: Self) -> Self:
        self.check_alike(other)
        with holding(self, other):
            whole = self._united(other)
            if self._names is not None:
                whole._names = self._names.copy()
                if other._names is not None:
                    whole._names.merge(other._names)
        return whole

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
        """Return a result with the detector's name, and with those of its hosts if these are text.

        `given`: the names that the caller gave.
        """
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

    def __copy__(self) -> Self:
        with self._held():
            twin = self._copy()
            if self._names is not None:
                twin._names = self._names.copy()
            return twin

    def __repr__(self) -> str:
        try:
            with self.lock:
                words = self._description()
        except (AttributeError, UsageError):  # A debugger looks into the constructor, or the lock is lost (locking.py).
            return object.__repr__(self)
        device = getattr(self, "device", "")
        return f"<{type(self).__name__}: {', '.join(filter(None, [*words, device]))}>"

    # Methods that a detector implements. The caller holds the lock.

    @abstractmethod
    def _update(self, hosts: Addresses, peers: Addresses) -> None: ...

    def _update_many(self, batches: Batches) -> None:
        for hosts, peers in batches:
            self._update(hosts, peers)

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
        """Return the number of peers below which `_top` does not list hosts."""
        return 1

    @abstractmethod
    def _estimate_many(self, hosts: Addresses) -> SuperHosts: ...

    def _description(self) -> list[str]:
        """Return the memory and the state in words, for people."""
        return [format_size(self._memory())]

    def _flush(self) -> None:
        """Write all pending pairs. Most detectors have none."""

    @abstractmethod
    def _clear(self) -> None: ...

    @abstractmethod
    def _memory(self) -> int: ...

    def _columns_of(self, host: str | int | Host) -> list[dict[str, Any]]:
        return []


def check_detector(other: Any, name: str) -> None:
    """Raise MergeError if `other` is not a detector."""
    if isinstance(other, Detector):
        return
    if hasattr(other, "parts"):
        remedy = f"pass one of its parts, for example {name}.merge(sketch.part(sh.Part(4)))"
        raise MergeError(f"cannot merge a whole sketch into one {name}; {remedy}")
    raise MergeError(f"cannot merge {type(other).__name__} into {name}: not a detector")
