"""Errors that callers in Python get: they name arguments, never options of the command line."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import superhosts as sh
from traffic import talk, write

Call = Callable[[Path], Any]
CASES: list[tuple[str, Call]] = [
    (r"^inner: '10\.0\.0\.0/33' is not a prefix", lambda f: sh.scan(f, inner="10.0.0.0/33")),
    (r'^inner="@none": cannot be read', lambda f: sh.scan(f, inner="@none")),
    ("^exclude: 'x' is not a prefix", lambda f: sh.scan(f, exclude="x")),
    ('^watch="inside": one of inner, outer', lambda f: sh.scan(f, watch="inside")),
    ('^watch="outer" needs inner=, because', lambda f: sh.scan(f, watch="outer")),
    ('^direction="up": one of any, out, in', lambda f: sh.scan(f, direction=["in", "up"])),
    ("^threshold 0: must be a number of peers", lambda f: sh.scan(f, threshold=0)),
    ("^top 0: must be a number of hosts", lambda f: sh.scan(f, top=0)),
    ("^window: '5x' is not a duration", lambda f: sh.scan(f, window="5x")),
    ("^window: 300 is not a duration; write it like '90s'", lambda f: sh.scan(f, window=300)),  # type: ignore[arg-type]
    ("^map=5: write it like 'src=COLUMN", lambda f: sh.scan(f, map=5)),  # type: ignore[arg-type]
    ("^scan: there is no input", lambda f: sh.scan([])),
    ("^scan: int is not the name of an input", lambda f: sh.scan([f, 5])),  # type: ignore[list-item]
    (r"^scan: dict is not the name of an input; .* cube\.update\(table", lambda f: sh.scan({"src": ["10.0.0.1"]})),  # type: ignore[arg-type]
    ("^scan: DataFrame is not the name", lambda f: sh.scan(pd.DataFrame({"src": ["x"]}))),  # type: ignore[arg-type]
    ("^scan: BytesIO is not the name", lambda f: sh.scan(io.BytesIO(b""))),  # type: ignore[arg-type]
    ('^detector="magic": one of auto, cube', lambda f: sh.scan(f, detector="magic")),
    ("^memory: 'lots' is not a size", lambda f: sh.scan(f, memory="lots")),
    ("^geometry: 'x' is not a geometry", lambda f: sh.scan(f, geometry="x")),
    (
        "^geometry= and memory: choose one",
        lambda f: sh.scan(f, geometry="slices=64,arrays=3,columns=330,rows=16384,labels=8,share=8", memory="1MiB"),
    ),
    ('^geometry: only with detector="cube".*, not with gse', lambda f: sh.scan(f, geometry="x", detector="gse")),
    ('^exact: only with detector="cube", not with gse', lambda f: sh.scan(f, exact=True, detector="gse")),
    (r"^exact='yes': must be True \(on\), False \(off\)", lambda f: sh.scan(f, exact="yes")),  # type: ignore[arg-type]
    (r"^exact=1: must be True \(on\)", lambda _: sh.Cube("1MiB", exact=1)),  # type: ignore[arg-type]
    ("^memory_total=5: this scan may reach .*; take less memory=", lambda f: sh.scan(f, memory_total=5)),
    ('^memory_total: the memory of detector="exact" grows', lambda f: sh.scan(f, memory_total=5, detector="exact")),
    ('^special="maybe": one of drop, keep', lambda f: sh.scan(f, special="maybe")),
    ("^ipv4_prefix=33: must be from 1 to 32", lambda f: sh.scan(f, ipv4_prefix=33)),
    ("^ipv6_prefix=0: must be from 1 to 128", lambda f: sh.scan(f, ipv6_prefix=0)),
    ("^key: ", lambda f: list(sh.scan(f, key=""))),
    ('^site="a', lambda f: sh.scan(f, site="a\\b")),
    ("device 'abacus'", lambda f: sh.scan(f, device="abacus")),
    ("^map=", lambda f: sh.scan(f, map="src=a,dts=b")),
    ("^format=", lambda f: sh.scan(f, format="magic")),
    ('^time="noon": must be one of record, start, end', lambda f: sh.scan(f, time="noon")),
    ("^-: given twice", lambda _: sh.scan(["-", "-"])),
    ("memory", lambda _: sh.Cube("1B")),
    ("^'many' is not a count", lambda _: sh.plan(flows="many")),
    ("^2 is not a share", lambda _: sh.plan(error=2)),
    (
        r'^memory="256KiB": a total false rate of .* is expected, not 0\.001',
        lambda _: sh.plan(flows="100k", memory="256KiB", error=0.001),
    ),
    ('^detector="magic": one of cube', lambda _: sh.compare(detectors=["magic"])),
    ("5 packets: too few for 9 flows", lambda _: sh.compare(flows=9, packets=5)),
    ("^'all' is not a share", lambda f: sh.calibrate(f, error="all")),
    (r"^a\.txt: the name of a capture ends in", lambda _: sh.synth("a.txt")),
    ("^family=5: choose 4, 6 or both", lambda f: sh.synth(f, family=5)),  # type: ignore[arg-type]
    ('^window="0.5s": synthetic windows last whole seconds', lambda f: sh.synth(f, window="0.5s")),
    ("is there, and synth did not write it; force=True overwrites it", lambda f: sh.synth(f)),
    ("not a .cube file", lambda f: sh.load(f)),
]


@pytest.fixture
def capture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write(tmp_path / "a.pcap", talk("10.1.2.3", 20))


@pytest.mark.parametrize(("words", "call"), CASES)
def test_arguments_are_named(words: str, call: Call, capture: Path) -> None:
    with pytest.raises(sh.SuperhostsError) as caught:
        list(call(capture))  # Some settings are needed by the first window only.
    text = str(caught.value)
    assert re.search(words, text), text
    assert "\n" not in text
    assert not re.search(r"(?<![\w-])--[a-z]", text), text


def test_nothing_to_do_is_an_error(tmp_path: Path) -> None:
    empty = write(tmp_path / "empty.pcap", [])
    with pytest.raises(sh.InputError, match=r"empty\.pcap: nothing to compare: no packet was read"):
        sh.compare(empty, detectors=["cube"])
    with pytest.raises(sh.InputError, match=r"empty\.pcap: nothing to judge: no packet was read"):
        sh.calibrate(empty, memory="1MiB", device="cpu")


def test_advice_speaks_of_arguments(capture: Path) -> None:
    advice = sh.calibrate(capture, memory="1MiB", device="cpu").advice()
    assert advice == "No host has 1,024 peers: a lower threshold would say more."


def test_any_iterable_of_names_is_scanned(tmp_path: Path) -> None:
    write(tmp_path / "a.pcap", talk("10.0.0.1", 3, 0))
    (window,) = sh.scan(tmp_path.glob("*.pcap"), window="all")  # type: ignore[arg-type]
    assert "10.0.0.1" in window


def test_a_column_of_a_result_is_no_row() -> None:
    with pytest.raises(TypeError, match=r"^'host' is not a row; columns are attributes \(\.peers\)"):
        sh.Cube(memory="1MiB").super_hosts(5000)["host"]  # type: ignore[call-overload]
