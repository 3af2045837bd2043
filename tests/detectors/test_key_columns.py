"""Columns of generic keys from everything that holds one: lists, NumPy, pandas, Polars, Arrow, DuckDB."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from test_laws import content

import superhosts as sh
from superhosts.detectors.detector import Detector

NAMES = ["größe", "", "user 1", "user 1", "x" * 300, "tab\t", None, "日本"]
NUMBERS = [-(1 << 63), -1, 0, 0, 7, (1 << 63) - 1, None, 42]


def arrow(values: list[Any], kind: str) -> Any:
    pa = pytest.importorskip("pyarrow")
    return pa.array(values, getattr(pa, kind)())


def series(values: list[Any], dtype: str) -> Any:
    return pytest.importorskip("pandas").Series(values, dtype=dtype)


def polars(values: list[Any], kind: str | None = None) -> Any:
    pl = pytest.importorskip("polars")
    return pl.Series(values, dtype=getattr(pl, kind) if kind else None)


def chunked(values: list[Any]) -> Any:
    pa = pytest.importorskip("pyarrow")
    return pa.chunked_array([pa.array(values[:3]), pa.array(values[3:])])


TEXTS: dict[str, Callable[[], Any]] = {
    "list": lambda: NAMES,
    "tuple": lambda: tuple(NAMES),
    "object array": lambda: np.array(NAMES, object),
    "masked array": lambda: np.ma.array(
        ["größe", "", "user 1", "user 1", "x" * 300, "tab\t", "?", "日本"], mask=[0] * 6 + [1, 0]
    ),
    "string": lambda: arrow(NAMES, "string"),
    "large string": lambda: arrow(NAMES, "large_string"),
    "string view": lambda: arrow(NAMES, "string_view"),
    "binary": lambda: arrow([None if name is None else name.encode() for name in NAMES], "binary"),
    "slice": lambda: arrow(["?", *NAMES, "?"], "string")[1:-1],
    "dictionary": lambda: arrow(NAMES, "string").dictionary_encode(),
    "chunked": lambda: chunked(NAMES),
    "pandas": lambda: series(NAMES, "object"),
    "pandas string": lambda: series(NAMES, "string"),
    "pandas category": lambda: series(NAMES, "category"),
    "polars": lambda: polars(NAMES),
    "polars categorical": lambda: polars(NAMES, "Categorical"),
    "bytes": lambda: [None if name is None else name.encode() for name in NAMES],
}
INTEGERS: dict[str, Callable[[], Any]] = {
    "list": lambda: NUMBERS,
    "object array": lambda: np.array(NUMBERS, object),
    "masked array": lambda: np.ma.array([number or 0 for number in NUMBERS], np.int64, mask=[0] * 6 + [1, 0]),
    "arrow": lambda: arrow(NUMBERS, "int64"),
    "pandas": lambda: series(NUMBERS, "Int64"),
    "polars": lambda: polars(NUMBERS, "Int64"),
    "chunked": lambda: chunked(NUMBERS),
}


def fed(keys: str, *columns: Any, **names: Any) -> Detector:
    cube = sh.Cube("1MiB", keys=keys, exact=False, device="cpu")
    cube.update(*columns, **names)
    return cube


@pytest.mark.parametrize("form", TEXTS)
def test_text(form: str) -> None:
    cube, expected = fed("text", TEXTS[form](), list(range(8))), fed("text", NAMES, list(range(8)))
    assert content(cube) == content(expected)
    assert cube.dropped == 1
    kept = sorted(name for name in NAMES if name is not None and len(name) < 256)
    assert sorted({row.host for row in cube.estimate_many(kept)}) == sorted(set(kept))
    assert cube.names_kept == 6


@pytest.mark.parametrize("form", INTEGERS)
def test_integers(form: str) -> None:
    cube, expected = fed("int64", INTEGERS[form](), list("abcdefgh")), fed("int64", NUMBERS, list("abcdefgh"))
    assert content(cube) == content(expected)
    assert cube.dropped == 1


@pytest.mark.parametrize("form", ["string", "dictionary", "polars", "pandas"])
def test_hosts_that_are_asked_for(form: str) -> None:
    names = ["größe", "nobody", ""]
    makers: dict[str, Callable[[], Any]] = {
        "string": lambda: arrow(names, "string"),
        "dictionary": lambda: arrow(names, "string").dictionary_encode(),
        "polars": lambda: polars(names),
        "pandas": lambda: series(names, "object"),
    }
    cube = fed("text", NAMES, list(range(8)))
    assert list(cube.estimate_many(makers[form]())) == list(cube.estimate_many(names))
    assert [row.host for row in cube.estimate_many(makers[form]())] == names


def test_integer_hosts_of_categories_are_asked_for_row_by_row() -> None:
    cube, asked = fed("int64", [5] * 3 + [7], list("abcd")), [5, 7, 5] * 9
    for column in (series(asked, "category"), arrow(asked, "int64").dictionary_encode()):
        assert list(cube.estimate_many(column)) == list(cube.estimate_many(asked))
        assert len(cube.estimate_many(column)) == len(asked)


def test_tables() -> None:
    pl = pytest.importorskip("polars")
    pd = pytest.importorskip("pandas")
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
