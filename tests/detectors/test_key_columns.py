"""Columns of generic keys from everything that holds one: lists, NumPy, pandas, Polars, Arrow, DuckDB."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from test_laws import content

import superhosts as sh
from superhosts.detectors.detector import Detector

NAMES = ["größe", "", "user 1", "user 1", "x" * 300, "tab\t", None, "日本"]
NUMBERS = [-(1 << 63), -1, 0, 0, 7, (1 << 63) - 1, None, 42]


ENCODED = [None if name is None else name.encode() for name in NAMES]
TEXTS: dict[str, Callable[[], Any]] = {
    "list": lambda: NAMES,
    "tuple": lambda: tuple(NAMES),
    "object array": lambda: np.array(NAMES, object),
    "masked array": lambda: np.ma.array(["?" if name is None else name for name in NAMES], mask=[0] * 6 + [1, 0]),
    **{
        f"Arrow {kind}": lambda kind=kind: pa.array(NAMES, kind)
        for kind in (pa.string(), pa.large_string(), pa.string_view())
    },
    "Arrow binary": lambda: pa.array(ENCODED, pa.binary()),
    "slice": lambda: pa.array(["?", *NAMES, "?"])[1:-1],
    "dictionary": lambda: pa.array(NAMES).dictionary_encode(),
    "chunked": lambda: pa.chunked_array([NAMES[:3], NAMES[3:]]),
    **{f"pandas {kind}": lambda kind=kind: pd.Series(NAMES, dtype=kind) for kind in ("object", "string", "category")},
    "polars": lambda: pl.Series(NAMES),
    "polars categorical": lambda: pl.Series(NAMES, dtype=pl.Categorical),
    "bytes": lambda: ENCODED,
}
INTEGERS: dict[str, Callable[[], Any]] = {
    "list": lambda: NUMBERS,
    "object array": lambda: np.array(NUMBERS, object),
    "masked array": lambda: np.ma.array([number or 0 for number in NUMBERS], np.int64, mask=[0] * 6 + [1, 0]),
    "arrow": lambda: pa.array(NUMBERS),
    "pandas": lambda: pd.Series(NUMBERS, dtype="Int64"),
    "polars": lambda: pl.Series(NUMBERS, dtype=pl.Int64),
    "chunked": lambda: pa.chunked_array([NUMBERS[:3], NUMBERS[3:]]),
}


def fed(keys: str, *columns: Any, **names: Any) -> Detector:
    cube = sh.Cube("1MiB", keys=keys, exact=False, device="cpu")
    cube.update(*columns, **names)
    return cube


def test_text() -> None:
    expected = content(fed("text", NAMES, list(range(8))))
    kept = sorted(name for name in NAMES if name is not None and len(name) < 256)
    asked = ["größe", "nobody", ""]
    for form, make in TEXTS.items():
        cube = fed("text", make(), list(range(8)))
        assert (content(cube), cube.dropped, cube.names_kept) == (expected, 1, 6), form
        assert sorted({row.host for row in cube.estimate_many(kept)}) == sorted(set(kept)), form
    makers = pa.array, lambda names: pa.array(names).dictionary_encode(), pl.Series, pd.Series
    for column in (make(asked) for make in makers):
        assert list(cube.estimate_many(column)) == list(cube.estimate_many(asked))
        assert [row.host for row in cube.estimate_many(column)] == asked


def test_integers() -> None:
    expected = content(fed("int64", NUMBERS, list("abcdefgh")))
    for form, make in INTEGERS.items():
        cube = fed("int64", make(), list("abcdefgh"))
        assert (content(cube), cube.dropped) == (expected, 1), form


def test_integer_hosts_of_categories_are_asked_for_row_by_row() -> None:
    cube, asked = fed("int64", [5] * 3 + [7], list("abcd")), [5, 7, 5] * 9
    for column in (pd.Series(asked, dtype="category"), pa.array(asked).dictionary_encode()):
        assert list(cube.estimate_many(column)) == list(cube.estimate_many(asked))
        assert len(cube.estimate_many(column)) == len(asked)


def test_tables() -> None:
    columns = {"user": NAMES, "item": list(range(8))}
    expected = content(fed("text", NAMES, list(range(8))))
    for table in (columns, pl.DataFrame(columns), pd.DataFrame(columns), pl.DataFrame(columns).to_arrow()):
        assert content(fed("text", table, host="user", peer="item")) == expected


@pytest.mark.parametrize("values", [np.array(["a", "bb", ""]), np.array([b"a", b"bb", b""]), np.array(["ä", "bb", ""])])
def test_strings_of_numpy(values: np.ndarray) -> None:
    texts = [each.decode() if isinstance(each, bytes) else str(each) for each in values]
    assert content(fed("text", values, values[::-1])) == content(fed("text", texts, texts[::-1]))


def test_nulls_alone() -> None:
    for keys in ("int64", "text"):
        cube = fed(keys, [None, None], [1, 2])
        assert cube.dropped == 2
        assert len(cube.top(1)) == 0


@pytest.mark.parametrize("values", [["ann", 1], [None, 1, "ann"], ["ann", "bob", 2.5]])
def test_a_mixture_names_the_row_that_is_no_text(values: list[object]) -> None:
    row = next(row for row, value in enumerate(values) if isinstance(value, int | float))
    with pytest.raises(sh.UsageError, match=f"^hosts, row {row}: {values[row]} is not text, but other rows are"):
        sh.Cube(memory="4MiB", keys="text").update(values, list(range(len(values))))


@pytest.mark.parametrize("width", [3, 4, 16])
def test_byte_strings_of_numpy_are_text_of_any_length(width: int) -> None:
    cube = sh.Cube(memory="4MiB", keys="text")
    cube.update(np.array([b"a" * width, b"b", b"b"]), np.array([b"x" * width, b"x", b"y"]))
    assert {row.host: row.peers for row in cube.top(5)} == {"a" * width: 1, "b": 2}
