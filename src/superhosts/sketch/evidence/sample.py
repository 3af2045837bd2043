"""The sample of a closed window: merged with others, saved in a sketch, and asked for the pairs of a host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from superhosts.core.defaults import EVIDENCE_PAIRS
from superhosts.core.hashing import Key, fingerprint, make_key, mangle_column, unmangle64
from superhosts.sketch.evidence.rows import HASH, HIGHER, LOWER, NARROW, WIDE, Rows, united

MOST: Final = 1 << 22
LEAST: Final = 1 << 10
WIDTHS: Final = {4: NARROW, 6: WIDE}


class Evidence:
    """A sample of the distinct pairs of a window, in both address families."""

    def __init__(self, secret: bytes, size: int = EVIDENCE_PAIRS, rows: Mapping[int, Rows] | None = None) -> None:
        self.size = size
        self.lacking = False  # True if it was merged with sketches that have none
        self.secret = secret
        self.rows: dict[int, Rows] = dict(rows or {})  # by address family; in the order of hashes, never changed
        self.summaries: dict[int, Any] = {}  # of families: made when a host is asked for (`verdicts.py`)

    @property
    def key(self) -> str:
        """The fingerprint of the key."""
        return fingerprint(self.secret)

    @property
    def fields(self) -> dict[str, Any]:
        """What the header of a file says of it."""
        return {"pairs": self.size, "key": self.key, **({"lacking": True} if self.lacking else {})}

    @property
    def memory(self) -> int:
        """Bytes of the rows."""
        return sum(rows.nbytes for rows in self.rows.values())

    def is_whole(self, family: int) -> bool:
        """Return True if every pair of the family is in the sample."""
        return len(self.rows.get(family, ())) < self.size and not self.lacking

    def merged(self, other: Evidence) -> Evidence:
        """Return the sample of the union. It is as small as the smaller of both."""
        size = min(self.size, other.size)
        rows = {}
        for family in sorted(self.rows.keys() | other.rows.keys()):
            empty = np.zeros((0, WIDTHS[family]), np.uint64)
            rows[family] = united(self.rows.get(family, empty), other.rows.get(family, empty), size)
        whole = Evidence(self.secret, size, rows)
        whole.lacking = self.lacking or other.lacking
        return whole

    def as_lacking(self) -> Evidence:
        """Return the same, as that of a union in which others have none."""
        lacking = Evidence(self.secret, self.size, self.rows)
        lacking.lacking = True
        return lacking

    def __deepcopy__(self, _memo: object) -> Evidence:
        return self  # It never changes.

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Evidence):
            return NotImplemented
        families = {family for each in (self, other) for family, rows in each.rows.items() if len(rows)}
        same = all(np.array_equal(self.rows.get(f, ()), other.rows.get(f, ())) for f in families)
        return same and (self.size, self.key, self.lacking) == (other.size, other.key, other.lacking)

    __hash__ = None  # type: ignore[assignment]

    # Files

    def stored(self) -> dict[int, Rows]:
        """Return the rows as files have them: nobody computes an address without the key."""
        key = make_key(self.secret)
        return {family: _mangled(rows, False, key) if family == 6 else rows for family, rows in self.rows.items()}

    @classmethod
    def loaded(cls, secret: bytes, size: int, stored: Mapping[int, Rows]) -> Evidence:
        """Return the sample of a file. Raise ValueError if its rows are too many or not in order."""
        key = make_key(secret)
        rows = {}
        for family, each in stored.items():
            if len(each) > size or (each[1:, HASH] <= each[:-1, HASH]).any():
                raise ValueError(f"the evidence of IPv{family} has too many pairs, or not in the order of their hashes")
            rows[family] = _mangled(each, True, key) if family == 6 else each
        return cls(secret, size, rows)


def _mangled(rows: Rows, inverse: bool, key: Key) -> Rows:
    """Return rows of IPv6 with their addresses mangled, or as they were before."""
    rows = rows.copy()
    for end in (LOWER, HIGHER):
        rows[:, end : end + 2] = mangle_column(np.ascontiguousarray(rows[:, end : end + 2]), 128, inverse, key)
    return rows


def ends_of(rows: Rows, family: int, secret: bytes) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return the lower and the higher address of each pair, as rows of two words."""
    if family == 6:
        return rows[:, LOWER : LOWER + 2], rows[:, HIGHER : HIGHER + 2]
    undo: Any = getattr(unmangle64, "py_func", unmangle64)  # numpy does it sooner than machine code is loaded
    pairs = undo(rows[:, HASH], make_key(secret))
    lower, higher = np.zeros((len(rows), 2), np.uint64), np.zeros((len(rows), 2), np.uint64)
    lower[:, 1], higher[:, 1] = pairs >> np.uint64(32), pairs & np.uint64(0xFFFFFFFF)
    return lower, higher
