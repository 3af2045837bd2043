"""Detectors of one's own in a comparison: two methods suffice, and what is missing is named."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import superhosts as sh
from commands import Run
from superhosts.lab import own
from traffic import MINUTES, NOON, talk, write

SMALL: dict[str, Any] = {"flows": 20_000, "packets": 40_000, "windows": 2, "super_hosts": 5}


class Counting:
    """Counts exactly; knows nothing of this package."""

    made = 0

    def __init__(self) -> None:
        type(self).made += 1
        self.pairs: set[tuple[int, int]] = set()

    def update(self, hosts: Any, peers: Any) -> None:
        assert (hosts.dtype, peers.dtype) == (np.uint32, np.uint32)
        self.pairs.update(zip(hosts.tolist(), peers.tolist(), strict=True))

    def super_hosts(self, threshold: float) -> Any:
        counts = Counter(host for host, _ in self.pairs)
        found = {host: peers for host, peers in counts.items() if peers >= threshold}
        return {"hosts": list(found), "peers": list(found.values())}


class Blind(Counting):
    """Finds only every other host, and doubles its peers."""

    memory = 4711

    def super_hosts(self, threshold: float) -> Any:
        found = super().super_hosts(threshold)
        return SimpleNamespace(hosts=np.array(found["hosts"][::2]), peers=np.array(found["peers"][::2]) * 2.0)


def test_a_class_with_two_methods_takes_part() -> None:
    result = sh.compare(detectors=["cube", Counting, Blind], **SMALL)
    cube, exact, blind = result.means
    assert [each.detector for each in result] == ["cube", f"{__name__}:Counting", f"{__name__}:Blind"]
    assert (exact.true, exact.fnr, exact.fpr, exact.error) == (5, 0, 0, 0)
    assert (cube.ftr, cube.coverage) == (0, 1)
    assert exact.coverage is None  # no intervals
    assert blind.fnr == pytest.approx(2 / 5)
    assert (blind.error, blind.fpr, blind.memory, blind.wire) == (1.0, 0, 4711, 0)
    assert result[f"{__name__}:Blind"] == blind
    assert len(result.rows) == len(result.to_dict()) == 3 * 2
    assert "Comparison: 2 windows" in repr(result)
    assert result.left_out == {}


def test_every_window_of_a_capture_has_a_new_object(tmp_path: Path) -> None:
    capture = write(tmp_path / "a.pcap", talk("10.1.2.3", 300) + talk("10.1.2.4", 200, NOON + 10 * MINUTES))
    before = Counting.made
    result = sh.compare(capture, detectors=[Counting], inner="10.0.0.0/8", threshold=100)
    assert [(row.true, row.missed, row.false) for row in result.rows] == [(1, 0, 0), (1, 0, 0)]
    assert Counting.made - before >= 2


def test_constructors_get_what_they_take() -> None:
    seen: list[Any] = []

    class Sized(Counting):
        def __init__(self, *, memory: int | None, threshold: float = 0) -> None:
            super().__init__()
            seen.append((memory, threshold))

    sh.compare(detectors=[Sized], memory="1MiB", threshold=2000, **SMALL)
    assert set(seen) == {(1 << 20, 2000.0)}
    assert isinstance(Counting(), sh.OwnDetector)
    assert not isinstance(NoSearch(), sh.OwnDetector)


NoUpdate = type("NoUpdate", (), {"super_hosts": Counting.super_hosts, "__module__": __name__})
NoSearch = type("NoSearch", (), {"update": Counting.update, "__module__": __name__})


class Needy(Counting):
    def __init__(self, colour: str) -> None: ...


class Broken(Counting):
    def update(self, hosts: Any, peers: Any) -> None:
        raise KeyError("lost")


def answering(answer: Any) -> type:
    return type("Answering", (Counting,), {"super_hosts": lambda *_: answer, "__module__": __name__})


def test_errors_name_module_class_and_what_is_missing() -> None:
    wrong: list[tuple[Any, str]] = [
        (NoUpdate, r"NoUpdate: has no method update\(hosts, peers\)"),
        (NoSearch, r"NoSearch: has no method super_hosts\(threshold\)"),
        (Needy, "Needy: its constructor needs colour; it may take memory and threshold, by name"),
        (Broken, r"Broken\.update failed: KeyError: 'lost'"),
        (answering([1, 2]), r"Answering\.super_hosts: returned list, which has no hosts; return anything with hosts"),
        (answering({"hosts": [1]}), r"Answering\.super_hosts: returned dict, which has no peers"),
        (answering({"hosts": [1], "peers": []}), r"Answering\.super_hosts: returned 1 host but 0 numbers of peers"),
        (answering({"hosts": ["a"], "peers": [1]}), r"hosts must be a column of numbers"),
        (answering({"hosts": [-1], "peers": [1]}), r"hosts are IPv4 addresses as numbers"),
    ]
    for kind, words in wrong:
        with pytest.raises(sh.UsageError, match=words) as caught:
            sh.compare(detectors=[kind], **SMALL)
        assert str(caught.value).startswith(f"{__name__}:")


def test_the_example_of_the_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    example = textwrap.dedent(re.search(r"\n\n(    class .*?)\n\n`superhosts", own.__doc__ or "", re.DOTALL)[1])  # type: ignore[index]
    assert len(example.splitlines()) <= 15
    (tmp_path / "my_module.py").write_text("from collections import Counter\n\n" + example)
    monkeypatch.chdir(tmp_path)
    options = ["--flows", "20k", "--packets", "40k", "--windows", "1", "--super-hosts", "5", "--json"]
    ended = run("compare", "--detector", "cube,my_module:Sampling", *options)
    assert ended.status == 0, ended.err
    assert '"detector": "my_module:Sampling"' in ended.out
    names: dict[str, Any] = {"Counter": Counter}
    exec(example, names)
    (cube, sampling) = sh.compare(detectors=["cube", names["Sampling"]], **SMALL)
    assert sampling.fnr is not None
    assert 0 <= sampling.fnr <= 1 == cube.coverage


def test_classes_that_cannot_be_found(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sick.py").write_text("raise RuntimeError('ill')\n")
    monkeypatch.chdir(tmp_path)
    for text, words in {
        "nowhere:Thing": "no module named nowhere",
        "textwrap:Thing": "textwrap has no Thing",
        "math:pi": "pi of math is not a class",
        "sick:Thing": "sick cannot be imported: RuntimeError: ill",
        "magic": "one of cube, cube-dense",
    }.items():
        ended = run("compare", "--detector", text)
        assert (ended.status, ended.err.count("\n")) == (2, 1)
        assert f"--detector {text}: {words}" in ended.err
