"""Commands with sketches whose hosts are integers or names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import superhosts as sh
from commands import Run

LARGE = {"int64": [-7, 1 << 40], "text": ["größe\t[red]", "::1"]}


def save(keys: str, path: Path, first: int = 0) -> None:
    cube = sh.Cube("1MiB", keys=keys)
    hosts: list[Any] = [LARGE[keys][i % 2] for i in range(3000)]
    cube.update(hosts, np.arange(first, first + 3000))
    cube.save(path)


@pytest.mark.parametrize("keys", LARGE)
def test_merge_hosts_and_explain(keys: str, tmp_path: Path, run: Run) -> None:
    for number, name in enumerate("ab"):
        save(keys, tmp_path / f"{name}.cube", 2000 * number)
    assert run("merge", tmp_path / "a.cube", tmp_path / "b.cube", "-o", tmp_path / "u.cube").status == 0
    rows = run("hosts", tmp_path / "u.cube", "--json").rows
    assert {row["host"] for row in rows} == set(LARGE[keys])
    assert all(row["family"] is None and abs(row["peers"] - 2500) < 300 for row in rows)
    for host in LARGE[keys]:
        one = run("explain", "--json", "--", tmp_path / "u.cube", host).rows
        assert [row["host"] for row in one] == [host]
        many = run("explain", "--json", "--", tmp_path / "a.cube", tmp_path / "b.cube", host).rows
        assert {row["host"] for row in many} == {host}


@pytest.mark.parametrize("keys", LARGE)
def test_tables_and_files(keys: str, tmp_path: Path, run: Run) -> None:
    save(keys, tmp_path / "a.cube")
    table = run("hosts", tmp_path / "a.cube", "-o", tmp_path / "rows.csv")
    assert ("größe\\t[red]" if keys == "text" else "1099511627776") in table.out
    assert str(LARGE[keys][1]) in (tmp_path / "rows.csv").read_text()
    run("hosts", tmp_path / "a.cube", "-o", tmp_path / "rows.parquet")
    parquet = pytest.importorskip("pyarrow.parquet").read_table(tmp_path / "rows.parquet")
    assert set(parquet["host"].to_pylist()) == set(LARGE[keys])
    explained = run("explain", "--", tmp_path / "a.cube", LARGE[keys][0])
    assert "\t" not in explained.out


def test_forgotten_names_are_counted(tmp_path: Path, run: Run) -> None:
    exact = sh.Exact(keys="text", device="cpu")
    exact.update(["kept"] * 20 + ["forgotten"] * 10, np.arange(30))
    exact._names = exact._names.read({k: v[:0] for k, v in exact._name_arrays().items()})
    exact.update(["kept"], [0])
    exact.save(tmp_path / "a.cube")
    ended = run("hosts", tmp_path / "a.cube", "--threshold", 5)
    assert "1 host is shown as # and a hash: the sketch has not kept the name" in ended.out + ended.err
    shown = [row["host"] for row in run("hosts", tmp_path / "a.cube", "--threshold", 5, "--json").rows]
    assert shown[0] == "kept"
    assert run("explain", "--json", tmp_path / "a.cube", shown[1]).rows[0]["peers"] == 10


def test_prefixes_select_addresses_only(tmp_path: Path, run: Run) -> None:
    save("text", tmp_path / "a.cube")
    ended = run("hosts", tmp_path / "a.cube", "--prefix", "10.0.0.0/8")
    assert ended.status == 2
    assert "--prefix" in ended.err
    assert "text keys" in ended.err
