"""The labelled cube, the default detector: a cube of bit columns with labels that name hosts.

As long as few distinct pairs came, the cube is a set of them instead and its answers are exact (`engine.py`). Files of
such a cube list the rows of each host (`rowform.py`); other files hold bits and labels.

Recovering hosts needs no join and yields no phantoms, because labels name only hosts that were really seen. The cost is
linear in the number of hot columns, and the method is the same for hosts of any width.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from superhosts.core.defaults import MEMORY, NAMES_SHARE, THRESHOLD
from superhosts.core.device import thread_count
from superhosts.core.hashing import make_key, mangle_column, secret_of
from superhosts.core.pairs import TEXT, Addresses, Batches, Host, as_words, words_to_column
from superhosts.core.results import SuperHosts
from superhosts.core.text import counted
from superhosts.core.units import format_size, parse_size
from superhosts.cubefile.container import block_writer
from superhosts.detectors.arguments import check_key_bits, check_keys, check_no_conflict, check_threshold, starts_exact
from superhosts.detectors.columnsketch import MAX_UNNAMED, ColumnSketch, Fill, StoredColumns, bits_of_arrays
from superhosts.detectors.cube import pairform, rowform, tally
from superhosts.detectors.cube.addressing import lowest_priority
from superhosts.detectors.cube.engine import CpuCube, Stages, make_on_gpu, merge_dense
from superhosts.detectors.cube.geometry import Geometry, Search
from superhosts.detectors.cube.rowform import Numbers, encode, gather
from superhosts.detectors.cube.search import labelled_hosts, unnamed_share
from superhosts.detectors.cube.tally import Tallies
from superhosts.detectors.engines.base import Arrays, ArrayShape, AutoGpu, Counts, Engine, Plan, Words
from superhosts.detectors.engines.pairset import PairSet
from superhosts.detectors.estimate import Estimate, Evidence, better_of, conclude, measure, measure_all, saturation_of
from superhosts.detectors.formulas import MISS_EXPONENT, prefix_test, unnamed_probability, zero_limit
from superhosts.detectors.hostnames import names_for
from superhosts.detectors.lock import locked, state_of
from superhosts.detectors.stored import Kind, Read

__all__ = ["Cube", "Geometry"]
PREFIX_ONES = (15, 60, 240)  # ones expected in the words that each test of a candidate reads


class Cube(ColumnSketch):
    """A labelled cube for 32-, 64- or 128-bit hosts, of 128 MiB by default.

    A `Geometry`, or its text as `superhosts plan` prints it, gives the sizes in place of a memory. With `flows`
    (distinct pairs per window), the geometry is planned for them and for `threshold` (1024 by default). Without, it
    follows from the memory alone, whatever the threshold.

    With `exact`, the cube counts exactly, on the CPU, up to `geometry.exact_pairs` distinct pairs; this is the default
    unless `device` names a GPU. A pickle of an exact cube holds its pairs, and goes on exactly. Files do not, but the
    number of peers of each host: what is read from them answers exactly until more pairs come. In a union of several,
    hosts of one of them keep their number; of others it is estimated, within what is known.

    Hosts are addresses unless `keys` says otherwise: with "int64" they are integers, with "text" names. Peers are then
    integers or text. Files of text keys hold names of hosts in clear text, never those of peers. An eighth of the
    memory is for these names, enough for one of 60 bytes for each KiB; with names of 255 bytes
    a cube takes up to a fifth more than its memory.

    Without `key` (or SUPERHOSTS_KEY) a cube uses the public key, which everybody knows: programs give the same results
    everywhere, and their files can be merged. Whoever can choose addresses or names can then hide super hosts from a
    dense cube. If traffic may be hostile, pass `key=own_key()`, the key of the commands, or one that all machines
    share whose cubes are to be merged (`superhosts key`).
    """

    name = "cube"
    widths = (32, 64, 128)
    geometry: Geometry
    geometry_type = Geometry
    cpu_engine = CpuCube
    # What is known of pairs that are no longer there; None: nothing. It has no meaning while the cube has its pairs.
    _tallies: Tallies | None = None
    _ways_out = "a higher threshold, more memory, shorter windows or superhosts plan"
    auto_gpu: ClassVar[AutoGpu] = AutoGpu(make_on_gpu)

    def __init__(
        self,
        memory: str | int | None = None,
        *,
        key_bits: int | None = None,
        key: bytes | str | None = None,
        device: str = "auto",
        threads: int | None = None,
        geometry: Geometry | str | None = None,
        flows: str | int | None = None,
        threshold: float | None = None,
        exact: bool | str | None = None,
        keys: str | None = None,
    ) -> None:
        generic = check_keys(keys, key_bits)
        if generic is not None:
            key_bits = generic.key_bits
        if isinstance(geometry, str):
            geometry = Geometry.parse(geometry, check_key_bits(key_bits))
        if geometry is not None:
            check_no_conflict(geometry, memory=memory, key_bits=key_bits, flows=flows, threshold=threshold)
        else:
            size, bits = MEMORY if memory is None else memory, check_key_bits(key_bits)
            if generic == TEXT:  # The rest is for names.
                size = parse_size(size) - parse_size(size) // NAMES_SHARE
            least = THRESHOLD if threshold is None else check_threshold(threshold)
            if flows is None:  # A threshold alone says nothing about how full the cube will be.
                geometry = Geometry.for_memory(size, bits)
            else:
                geometry = Geometry.for_traffic(size, bits, flows=flows, threshold=least)
        self._starts_exact = starts_exact(exact, device)
        super().__init__(geometry, key=key, device=device, threads=threads)
        self._tallies = Tallies(geometry)
        if generic is not None:
            self._take_keys(generic, secret_of(key), names_for(geometry.memory))

    @property
    @locked
    def device(self) -> str:
        """Where the cube works as soon as it is dense. With "auto", "cpu" until it has moved to a GPU."""
        engine = vars(self).get("engine")
        return engine.device if isinstance(engine, Stages) else self._device

    @device.setter
    def device(self, chosen: str) -> None:
        self._device = chosen

    def _make_engine(self) -> Engine:
        if not self._starts_exact:
            return super()._make_engine()
        plan = Plan(self.geometry, self.key, self.threads, self.tuning)
        return Stages(plan, self.device, self.auto_gpu)

    def _choose_device(self, device: str) -> str:
        """Return the device. An exact cube looks for the GPU of "auto" when it needs one: that takes time."""
        return device if self._starts_exact and device == "auto" else super()._choose_device(device)

    def _on_gpu(self, plan: Plan, gpu: int) -> Engine:
        return make_on_gpu(plan, gpu)

    @classmethod
    def _arguments_for(cls, kind: Kind) -> dict[str, Any]:
        return {"geometry": kind.geometry, "keys": kind.format.keys, "exact": False}  # without pairs, as files are

    # Exact answers

    @property
    @locked
    def exact(self) -> bool:
        """True as long as the cube has its pairs: until more than `geometry.exact_pairs` distinct ones came.

        What is read from a file has no pairs, but may know the number of peers of each host (`exact_count`).
        """
        return self._pairs() is not None

    @locked
    def exact_count(self) -> int | None:
        """Return the number of distinct pairs; None if it is not known exactly."""
        pairs = self._pairs()
        if pairs is not None:
            return pairs.pairs
        return None if self._tallies is None else self._tallies.pairs

    @locked
    def densify(self) -> None:
        """Become dense now, although all pairs may fit: what is merged later is written once, and not first counted."""
        if isinstance(self.engine, Stages):
            self.engine.densify()

    @locked
    def surely_exceeds_exact(self) -> bool:
        """Return True if some array has more bits set than an exact cube has pairs. False says nothing."""
        if self._pairs() is not None:
            return False
        bits = bits_of_arrays(tuple(self.geometry.edges), self.geometry.rows)
        return bool((bits - self.engine.zero_sums()).sum(axis=0).max() > self.geometry.exact_pairs)

    def _pairs(self) -> PairSet | None:
        return self.engine.settle() if isinstance(self.engine, Stages) else None

    def _counted(self, mangled: Words, peers: NDArray[np.int64]) -> SuperHosts:
        hosts = mangle_column(mangled, self.key_bits, True, self.key)
        return SuperHosts.counted(words_to_column(hosts, self.key_bits), peers, self.format)

    def _update_many(self, batches: Batches) -> None:
        if batches:
            self._tallies = None
        super()._update_many(batches)

    def _clear(self) -> None:
        super()._clear()
        self._tallies = Tallies(self.geometry)

    def _super_hosts(self, threshold: float) -> SuperHosts:
        pairs = self._pairs()
        if pairs is not None:
            return self._counted(*pairs.super_hosts(threshold))
        if self._tallies is None:
            return super()._super_hosts(threshold)
        found = self._tallied(threshold)
        return found.select(found.peers >= threshold - np.where(found.exact, 0, self.slack))

    def _top(self, count: int) -> SuperHosts:
        pairs = self._pairs()
        if pairs is not None:
            return self._counted(*pairs.top(count)).select(slice(0, count))
        if self._tallies is None:
            return super()._top(count)
        low = self._tallies.bounds.low
        least = np.partition(low, len(low) - count)[len(low) - count] if len(low) > count else 0
        return self._tallied(least).select(slice(0, count))

    def _least_listed(self) -> float:
        return super()._least_listed() if self._pairs() is None and self._tallies is None else 1

    def _estimate_many(self, hosts: Addresses) -> SuperHosts:
        pairs = self._pairs()
        if pairs is not None:
            return SuperHosts.counted(hosts, pairs.peers_of(self.mangle(hosts)), self.format, sort=False)
        if self._tallies is None:
            return super()._estimate_many(hosts)
        mangled = self.mangle(hosts)
        return self._within(hosts, mangled, *self._tallies.find(mangled), sort=False)

    def _tallied(self, least: float) -> SuperHosts:
        """Return the hosts of the tallies that may have `least` peers."""
        assert self._tallies is not None
        mangled, low, high = self._tallies.bounds
        chosen = np.flatnonzero(high >= least)
        words = as_words(mangled[chosen])
        hosts = words_to_column(mangle_column(words, self.key_bits, True, self.key), self.key_bits)
        found = self._within(hosts, words, low[chosen], high[chosen])
        self._warn_if_overfull(found.select(~found.exact))
        return found

    def _within(
        self, hosts: Addresses, mangled: Words, low: Numbers, high: Numbers, *, sort: bool = True
    ) -> SuperHosts:
        """Return hosts whose numbers of peers are known, or estimated within bounds."""
        peers, least, most, some = low.copy(), low.copy(), high.copy(), np.flatnonzero(low < high)
        if len(some):
            estimates = self._estimates(mangled[some], self.engine.measure(mangled[some]))
            found = self._rows(hosts[some], estimates, sort=False)
            for column, values in ((peers, found.peers), (least, found.peers_low), (most, found.peers_high)):
                column[some] = np.clip(values, low[some], high[some])
        result = SuperHosts(hosts, peers, least, most, np.zeros(len(low), bool), low == high, sort=sort)
        result.format = self.format
        return result

    def _columns_of(self, host: str | int | Host) -> list[dict[str, Any]]:
        return super()._columns_of(host) if self._pairs() is None else []

    @locked
    def fill(self) -> Fill:
        """Return how full the cube is. An exact one has the fill of its dense form and the exact number of pairs."""
        pairs, found = self.exact_count(), super().fill()
        return found._replace(pairs=found.pairs * self.geometry.sample if pairs is None else pairs)

    def _description(self) -> list[str]:
        """Return the memory, the state and the pairs. An exact cube has no bits; making them would take memory."""
        pairs = self._pairs()
        if pairs is None:
            memory, *others = super()._description()
            known = [] if self._tallies is None else [f"{counted(len(self._tallies.bounds.hosts), 'host')} counted"]
            return [memory, "dense", *known, *others]
        size, most = format_size(self.geometry.memory), self.geometry.exact_pairs
        return [size, "exact", f"{pairs.pairs:,} of at most {counted(most, 'pair')} ({format_size(self._memory())})"]

    # Files

    @classmethod
    def _file_shapes(cls, kind: Kind) -> tuple[dict[str, ArrayShape], ...]:
        forms = kind.geometry.array_shapes(), rowform.shapes(kind.geometry)
        tallied = ({**form, **tally.shapes(kind.geometry, rows="rows" in form)} for form in forms)
        return *forms, *tallied, pairform.shapes(kind.geometry)

    @classmethod
    def _loaded_memory(cls, kind: Kind, sides: Mapping[str, Sequence[int]]) -> int:
        listed = rowform.memory_of(sides, kind.geometry) if "rows" in sides else 0
        return int(kind.geometry.memory) + listed + tally.memory_of(sides) + pairform.memory_of(sides)

    def _memory(self) -> int:
        return super()._memory() + (0 if self._tallies is None else self._tallies.memory)

    def _file_arrays(self) -> Arrays:
        pairs = self._pairs()
        if pairs is None:
            return self._arrays() | ({} if self._tallies is None else self._tallies.arrays())
        gathered = gather(pairs, self.geometry, self.key)
        return encode(gathered, self.geometry, self.key) | tally.beside_rows(gathered)

    def _pair_arrays(self) -> Arrays:
        pairs = self._pairs()
        return self._file_arrays() if pairs is None else pairform.encode(pairs, self.geometry)

    def _buffers(self, sides: Mapping[str, Sequence[int]]) -> Arrays:
        return _empty_arrays(sides, self.geometry) | (super()._buffers(sides) if "bits" in sides else {})

    def _load_arrays(self, arrays: Arrays) -> None:
        if "pairs" in arrays:
            pairs = pairform.decode(arrays, self.geometry, self.key)
            self._starts_exact = True
            self.engine, self._tallies = self._make_engine(), None
            self.engine.update_batches([pairs])
            return
        content, tallies = _read(arrays, self.geometry, self.threads)
        if content is not None:
            dense = CpuCube(Plan(self.geometry, self.key, self.threads, self.tuning))
            dense.merge_rows(content)
            if isinstance(self.engine, CpuCube):
                self.engine, self._tallies = dense, tallies
                return
            arrays = dense.arrays()
        super()._load_arrays(arrays)
        self._tallies = tallies

    def _merger(self, arrays: Arrays) -> Callable[[], None]:
        content, tallies = _read(arrays, self.geometry, self.threads)
        dense = self.engine.dense if isinstance(self.engine, Stages) else self.engine
        assert isinstance(dense, CpuCube)  # Only these have block takers.

        def merge() -> None:
            if content is not None:
                dense.merge_rows(content)
            self._tallies = None if self._tallies is None or tallies is None else self._tallies.united(tallies)

        return merge

    @classmethod
    def _stored_hosts(
        cls, kind: Kind, secret: bytes, hosts: Addresses, sides: Mapping[str, Sequence[int]]
    ) -> StoredColumns | None:
        if "pairs" in sides:
            return None
        if "rows" in sides or "tallies" in sides:
            return StoredCube(cls, kind, secret, hosts, sides)
        return super()._stored_hosts(kind, secret, hosts, sides)

    @classmethod
    def _shown_hosts(cls, kind: Kind, secret: bytes, names: Collection[str], read: Read) -> Words | None:
        if "pairs" in names:
            mangled = pairform.hosts_of(read("pairs"))
        elif "rows" in names:
            mangled, _ = rowform.decode_hosts(read("counts"), read("hosts"), kind.geometry)
        else:
            mangled = labelled_hosts(read("labels"))
        return mangle_column(mangled, kind.format.key_bits, True, make_key(secret))[:, 1] if len(mangled) else None

    # Merging and copying

    def _known(self) -> Tallies | None:
        pairs = self._pairs()
        if pairs is None or not pairs.pairs:
            return self._tallies if pairs is None else Tallies(self.geometry)
        return Tallies.of(gather(pairs, self.geometry, self.key), self.geometry)

    def _tallies_with(self, other: Self) -> Tallies | None:
        """Return the tallies of the union. Two cubes that have their pairs need none: they stay exact, or overflow."""
        dense = [cube for cube in (self, other) if cube._pairs() is None]
        if not dense or any(cube._tallies is None for cube in dense):
            return None
        mine, theirs = self._known(), other._known()
        return None if mine is None or theirs is None else mine.united(theirs)

    def _merge(self, other: Self) -> None:
        tallies = self._tallies_with(other)
        self._tallies = None  # in case that the merge is interrupted
        if isinstance(self.engine, Stages):
            self.engine.merge(other.engine)
        else:
            merge_dense(self.engine, other.engine)
        self._tallies = tallies

    def _copy(self) -> Self:
        if isinstance(self.engine, Stages):
            return self._with_state({**state_of(self), "engine": self.engine.copy()})
        return super()._copy()

    def _united(self, other: Self) -> Self:
        if isinstance(self.engine, Stages):
            whole = {"engine": self.engine.united(other.engine), "_tallies": self._tallies_with(other)}
            return self._with_state({**state_of(self), **whole})
        return super()._united(other)

    # Estimates

    @locked
    def search_for(self, threshold: float) -> Search:
        return search_for(threshold, self.geometry)

    def _unnamed(self, threshold: float, pairs: float) -> float:
        geometry = self.geometry
        labels, share = geometry.columns << (geometry.slice_bits + geometry.label_bits), 2.0**-geometry.share_bits
        written = threshold / geometry.sample
        most = unnamed_probability(pairs / labels, written, geometry.arrays, share)
        # With the mean number of pairs for all labels this is too high where few hosts have most of the pairs.
        return unnamed_share(self._arrays()["labels"], written, geometry) if pairs and most > MAX_UNNAMED else most

    def _estimates(self, mangled: Words, counts: Counts) -> Estimate:
        """Return estimates from the plain columns, and from the giant ones where the plain ones are nearly full."""
        geometry = self.geometry
        rows, sample = geometry.rows, geometry.sample
        evidence = self._evidence(mangled, counts)
        found = measure_all(evidence, rows, sample, self.threads)
        big = np.flatnonzero(evidence.common < geometry.giant_zeros)
        if len(big):
            giant_counts = counts[big, geometry.arrays + 1 :]  # Some engines already read them during the search.
            if not giant_counts.size:
                giant_counts = self.engine.measure_giants(mangled[big])
            # Giant columns have no mean fill of their own; about as many pairs share them as plain ones.
            seen = Evidence(giant_counts[:, :-1], giant_counts[:, -1], evidence.fills[big])
            giant = measure(seen, rows, geometry.coarsest_sample)
            for column, values in zip(found, better_of(found.select(big), giant), strict=True):
                column[big] = values
        # In an overfull cube, others alone fill the AND.
        noise = float(self._mean_fills().prod(axis=1).max()) if found.full.any() else 0.0
        return conclude(found, saturation_of(rows, 1 - noise, geometry.coarsest_sample))

    def _evidence(self, mangled: Words, counts: Counts) -> Evidence:
        return super()._evidence(mangled, counts[:, : self.geometry.arrays + 1])

    def _noise(self, fills: NDArray[np.float64]) -> float:
        return super()._noise(fills) * self.geometry.sample

    @property
    def _most_peers(self) -> int:
        return self.geometry.most_peers

    @property
    @locked
    def labels(self) -> Words:
        """Copy of the labels of all columns."""
        return self._arrays()["labels"].copy()


@lru_cache(maxsize=64)
def search_for(threshold: float, geometry: Geometry) -> Search:
    written = threshold / geometry.sample
    prefixes = [prefix_test(geometry.column_bits, written, ones) for ones in PREFIX_ONES]
    competing, wanted = lowest_priority(geometry.share_bits), int((1 - MISS_EXPONENT / written) * (1 << 32))
    # A host may have no pair that competes in some array if few do.
    elsewhere = wanted if wanted >= competing else 0
    numbers = (number for prefix in prefixes for number in prefix)
    return Search(zero_limit(geometry.column_bits, written), max(competing, wanted), elsewhere, *numbers)


def _empty_arrays(sides: Mapping[str, Sequence[int]], geometry: Geometry) -> Arrays:
    """Return arrays for all of a file but bits and labels."""
    known = rowform.shapes(geometry) | tally.shapes(geometry) | pairform.shapes(geometry)
    return {name: np.zeros(sides[name], shape.dtype) for name, shape in known.items() if name in sides}


def _read(arrays: Arrays, geometry: Geometry, threads: int) -> tuple[rowform.HostRows | None, Tallies | None]:
    """Return the rows and tallies of a file, if it has them. Raise ArrayError, which names the array."""
    content = rowform.decode(arrays, geometry, threads) if "rows" in arrays else None
    return content, Tallies.read(arrays, content, geometry)


class StoredCube(StoredColumns):
    """Estimates some hosts of a cube in a file with rows of hosts, or tallies. Of bits, it makes a slice per thread."""

    def __init__(
        self, detector: type[Cube], kind: Kind, secret: bytes, hosts: Addresses, sides: Mapping[str, Sequence[int]]
    ) -> None:
        super().__init__(detector, kind, secret, hosts)
        self._arrays = _empty_arrays(sides, kind.geometry)
        bits = self.takers if "bits" in sides else {}
        self.takers = {**bits, **{name: block_writer(array) for name, array in self._arrays.items()}}

    def answer(self) -> SuperHosts:
        """Return the numbers of peers, in the order in which the caller named the hosts. Raise ArrayError."""
        threads = thread_count()
        content, self._sketch._tallies = _read(self._arrays, self.geometry, threads)
        if content is not None and self._sketch._tallies is None:
            rowform.pass_slices(content, self.take_columns, self.geometry, self.key, threads)
        return super().answer()
