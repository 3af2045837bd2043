"""`superhosts.plan`: the best geometry for expected traffic, and what to expect of it and of other memories."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from superhosts.core import defaults
from superhosts.core.pairs import check_width
from superhosts.core.text import counted, either, named, setting
from superhosts.core.units import format_size, parse_count, parse_share, parse_size
from superhosts.detectors.arguments import check_threshold
from superhosts.detectors.cube.geometry import Geometry
from superhosts.detectors.formulas import Sizes
from superhosts.detectors.plan.choice import best_sizes, check_suffices, least_memory
from superhosts.detectors.plan.prediction import Prediction, predict
from superhosts.errors import GeometryError, UsageError


@dataclass(frozen=True)
class Plan:
    """A planned cube: `Cube(geometry=plan.geometry)` makes it, `scan(…, geometry=plan.option)` scans with it.

    Rates are shares of the true super hosts.
    """

    geometry: Geometry
    expected: Prediction
    asked: int  # bytes of memory that the geometry was chosen for
    alternatives: tuple[Plan, ...] = ()  # half and twice the memory

    def __repr__(self) -> str:
        expected = self.expected
        size, flows, least = format_size(self.memory), counted(round(expected.flows), "flow"), f"{expected.threshold:g}"
        wrong = f"{100 * self.total:.2g} % of super hosts missed or false"
        return f"<Plan: {size} for {flows} and hosts of {least} peers: about {wrong}; geometry {self.option}>"

    @property
    def memory(self) -> int:
        return self.expected.memory

    @property
    def option(self) -> str:
        """The geometry as text, for `scan(…, geometry=…)` and --geometry."""
        return self.geometry.spelled

    @property
    def total(self) -> float:
        """The total false rate that is expected: missed and false hosts."""
        return self.expected.total

    @property
    def exact_pairs(self) -> int:
        """Pairs of a window up to which the cube counts exactly."""
        return self.geometry.exact_pairs

    @property
    def total_by_memory_alone(self) -> float | None:
        """The total false rate of the geometry that the memory alone gives; None if it is too little for that one."""
        try:
            plain = Geometry.for_memory(self.asked, self.geometry.key_bits)
        except GeometryError:
            return None
        return predict(plain, self.expected.flows, self.expected.threshold).total

    @property
    def file_bytes(self) -> float:
        """Bytes of a window's file, which lists rows of hosts if the window is counted exactly."""
        expected = self.expected
        is_exact = expected.flows <= self.exact_pairs
        return min(expected.rows_bytes, expected.wire_bytes) if is_exact else expected.wire_bytes

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain numbers by name, as `superhosts plan --json` prints it."""
        alone = {"total_by_memory_alone": self.total_by_memory_alone}
        return {**self._facts(), **alone, "alternatives": [each._facts() for each in self.alternatives]}

    def _facts(self) -> dict[str, Any]:
        expected = self.expected
        return {
            "flows": expected.flows,
            "threshold": expected.threshold,
            "memory": expected.memory,
            "geometry": self.geometry._asdict(),
            "geometry_option": self.option,
            "super_hosts": round(expected.super_hosts, 1),
            "standard_error": expected.standard_error,
            "fnr": expected.fnr,
            "fpr": expected.fpr,
            "total": expected.total,
            "unnamed": expected.missed_unnamed,
            "phantoms": 0,
            "saturation": expected.saturation,
            "exact_pairs": self.exact_pairs,
            "fill": expected.fill,
            "hot_columns": round(expected.hot_columns),
            "candidates": round(expected.candidates),
            "restore_seconds": expected.restore_seconds,
            "wire_bytes": round(self.file_bytes),
        }


def plan(
    *,
    flows: str | int | None = None,
    threshold: float = defaults.THRESHOLD,
    memory: str | int | None = None,
    error: str | float | None = None,
    key_bits: int = 32,
) -> Plan:
    """Plan a cube: the best geometry for a memory, or the least memory for an error, and what to expect of it.

    `flows` are the distinct pairs of a window. `error` is the total false rate that is allowed (0.01 or "1%"): without
    a `memory`, the plan has the least that suffices. Without both it has the default memory. A memory with a
    false rate above 20 % is refused. False rates are predicted for hosts with a heavy tail of peers: exponent 1.05, one
    host in 10,000 flows with 1024 peers.

    Without `flows` the geometry is that of the memory alone, and its errors are predicted for 5 M flows.

    >>> plan(flows="20M", error=0.01).memory
    """
    pairs = defaults.FLOWS if flows is None else parse_count(flows)
    check_width(key_bits, either("--key-bits ", "key_bits="))
    least = round(check_threshold(threshold, named("threshold")))
    wanted = None if error is None else parse_share(error)
    size = parse_size(defaults.MEMORY if memory is None else memory)
    enough = 0
    if wanted is not None:
        if flows is None:
            raise UsageError(f"{setting('error', error)}: needs the expected flows; pass {either('--flows', 'flows=')}")
        enough = least_memory(wanted, pairs, least, key_bits)
        size = enough if memory is None else size
    make = best_sizes if flows is not None else _sizes_of_memory
    chosen = _planned(make, size, pairs, least, key_bits)
    if flows is not None:
        check_suffices(chosen.geometry, pairs, least, size if memory is None else memory)
    if wanted is not None and chosen.total > wanted:
        raise UsageError(
            f"{setting('memory', memory)}: a total false rate of {chosen.total:.2%} is expected, "
            f"not {error}; {format_size(enough)} would achieve it"
        )
    others = []
    for other in (size // 2, size * 2):
        try:
            others.append(_planned(make, other, pairs, least, key_bits))
        except GeometryError:  # half of it is too little for any cube
            continue
    return Plan(chosen.geometry, chosen.expected, size, tuple(others))


def _sizes_of_memory(memory: int, _flows: int, _threshold: float, key_bits: int) -> Sizes:
    return Geometry.for_memory(memory, key_bits)


def _planned(make: Callable[..., Sizes], memory: int, flows: int, threshold: float, key_bits: int) -> Plan:
    sizes = make(memory, flows, threshold, key_bits)
    return Plan(Geometry(*sizes), predict(sizes, flows, threshold), memory)
