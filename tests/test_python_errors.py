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
CASES: dict[str, tuple[Call, str]] = {
    "inner": (lambda f: sh.scan(f, inner="10.0.0.0/33"), r"^inner: '10\.0\.0\.0/33' is not a prefix"),
    "inner file": (lambda f: sh.scan(f, inner="@none"), r'^inner="@none": cannot be read'),
    "exclude": (lambda f: sh.scan(f, exclude="x"), "^exclude: 'x' is not a prefix"),
    "watch": (lambda f: sh.scan(f, watch="inside"), '^watch="inside": one of inner, outer'),
    "watch outer": (lambda f: sh.scan(f, watch="outer"), '^watch="outer" needs inner=, because'),
    "direction": (lambda f: sh.scan(f, direction=["in", "up"]), '^direction="up": one of any, out, in'),
    "threshold": (lambda f: sh.scan(f, threshold=0), "^threshold 0: must be a number of peers"),
    "top": (lambda f: sh.scan(f, top=0), "^top 0: must be a number of hosts"),
    "window": (lambda f: sh.scan(f, window="5x"), "^'5x' is not a duration"),
    "window of a number": (lambda f: sh.scan(f, window=300), "^300 is not a duration; write it like '90s'"),  # type: ignore[arg-type]
    "map of a number": (lambda f: sh.scan(f, map=5), "^map=5: write it like 'src=COLUMN"),  # type: ignore[arg-type]
    "no inputs": (lambda f: sh.scan([]), "^scan: there is no input"),
    "a number as input": (lambda f: sh.scan([f, 5]), "^scan: int is not the name of an input"),  # type: ignore[list-item]
    "a table as input": (
        lambda f: sh.scan({"src": ["10.0.0.1"]}),  # type: ignore[arg-type]
        r"^scan: dict is not the name of an input; .* cube\.update\(table",
    ),
    "a data frame as input": (lambda f: sh.scan(pd.DataFrame({"src": ["x"]})), "^scan: DataFrame is not the name"),  # type: ignore[arg-type]
    "an open file as input": (lambda f: sh.scan(io.BytesIO(b"")), "^scan: BytesIO is not the name"),  # type: ignore[arg-type]
    "detector": (lambda f: sh.scan(f, detector="magic"), '^detector="magic": one of cube'),
    "memory": (lambda f: sh.scan(f, memory="lots"), "^'lots' is not a size"),
    "geometry": (lambda f: sh.scan(f, geometry="x"), "^geometry: 'x' is not a geometry"),
    "geometry and memory": (
        lambda f: sh.scan(f, geometry="slices=64,arrays=3,columns=330,rows=16384,labels=8,share=8", memory="1MiB"),
        "^geometry= and memory: choose one",
    ),
    "geometry of others": (
        lambda f: sh.scan(f, geometry="x", detector="gse"),
        '^geometry: only with detector="cube".*, not with gse',
    ),
    "exact": (lambda f: sh.scan(f, exact=True, detector="gse"), '^exact: only with detector="cube", not with gse'),
    "exact of another value": (lambda f: sh.scan(f, exact="yes"), r"^exact='yes': must be True \(on\), False \(off\)"),  # type: ignore[arg-type]
    "exact of a number": (lambda _: sh.Cube("1MiB", exact=1), r"^exact=1: must be True \(on\)"),  # type: ignore[arg-type]
    "memory_total": (
        lambda f: sh.scan(f, memory_total=5),
        "^memory_total=5: this scan may reach .*; take less memory=",
    ),
    "memory_total of exact": (
        lambda f: sh.scan(f, memory_total=5, detector="exact"),
        '^memory_total: the memory of detector="exact" grows',
    ),
    "special": (lambda f: sh.scan(f, special="maybe"), '^special="maybe": one of drop, keep'),
    "ipv4_prefix": (lambda f: sh.scan(f, ipv4_prefix=33), "^ipv4_prefix=33: must be from 1 to 32"),
    "ipv6_prefix": (lambda f: sh.scan(f, ipv6_prefix=0), "^ipv6_prefix=0: must be from 1 to 128"),
    "key": (lambda f: list(sh.scan(f, key="")), "^key: "),
    "site": (lambda f: sh.scan(f, site="a\\b"), '^site="a'),
    "device": (lambda f: sh.scan(f, device="abacus"), "device 'abacus'"),
    "map": (lambda f: sh.scan(f, map="src=a,dts=b"), "^map="),
    "format": (lambda f: sh.scan(f, format="magic"), "^format="),
    "time": (lambda f: sh.scan(f, time="noon"), '^time="noon": must be one of record, start, end'),
    "standard input twice": (lambda _: sh.scan(["-", "-"]), "^-: given twice"),
    "cube memory": (lambda _: sh.Cube("1B"), "memory"),
    "plan flows": (lambda _: sh.plan(flows="many"), "^'many' is not a count"),
    "plan error": (lambda _: sh.plan(error=2), "^2 is not a share"),
    "plan memory": (
        lambda _: sh.plan(flows="100k", memory="256KiB", error=0.001),
        r'^memory="256KiB": a total false rate of .* is expected, not 0\.001',
    ),
    "compare detectors": (lambda _: sh.compare(detectors=["magic"]), '^detector="magic": one of cube'),
    "compare traffic": (lambda _: sh.compare(flows=9, packets=5), "5 packets: too few for 9 flows"),
    "calibrate error": (lambda f: sh.calibrate(f, error="all"), "^'all' is not a share"),
    "synth name": (lambda _: sh.synth("a.txt"), r"^a\.txt: the name of a capture ends in"),
    "synth family": (lambda f: sh.synth(f, family=5), "^family=5: choose 4, 6 or both"),  # type: ignore[arg-type]
    "synth window": (lambda f: sh.synth(f, window="0.5s"), '^window="0.5s": synthetic windows last whole seconds'),
    "synth overwrite": (lambda f: sh.synth(f), "is there, and synth did not write it; force=True overwrites it"),
    "load": (lambda f: sh.load(f), "not a .cube file"),
}


@pytest.fixture
def capture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write(tmp_path / "a.pcap", talk("10.1.2.3", 20))


@pytest.mark.parametrize("name", CASES)
def test_arguments_are_named(name: str, capture: Path) -> None:
    call, words = CASES[name]
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
