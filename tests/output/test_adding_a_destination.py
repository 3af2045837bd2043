"""A destination of its own, added as CONTRIBUTING.md says: one class, and one line in the list of `registry.py`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from commands import Run
from superhosts.errors import OutputError, UsageError
from superhosts.output import registry
from superhosts.output.destination import ENDLESS, RUN_THAT_ENDS, Destination, RunKind
from superhosts.output.registry import DESTINATIONS
from superhosts.output.report import Report
from traffic import MINUTES, NOON, talk, write


class Toy(Destination):
    """Keeps reports in a list. toy:full takes none, toy:broken fails as no code foresees."""

    scheme = "toy"
    opened: ClassVar[list[Toy]] = []

    def __init__(self, address: str, run: RunKind = RUN_THAT_ENDS) -> None:
        super().__init__(address, run)
        self.reports: list[Report] = []
        self.ended = ""
        self.opened.append(self)

    def _write(self, report: Report) -> None:
        if self.name == "toy:full":
            raise OutputError(f"{self.name}: takes no more")
        if self.name == "toy:broken":
            raise TypeError("rows are not text")
        self.reports.append(report)

    def close(self) -> None:
        self.ended = "closed"

    def abandon(self) -> None:
        self.ended = "abandoned"


class ToyFile(Toy):
    """A kind of file, which has endings instead of a scheme."""

    scheme = ""

    @classmethod
    def endings(cls, run: RunKind) -> tuple[str, ...]:
        return () if run.endless else (".toy",)


@pytest.fixture(autouse=True)
def toys() -> Iterator[list[Toy]]:
    Toy.opened.clear()
    DESTINATIONS.append(Toy)
    yield Toy.opened
    DESTINATIONS.remove(Toy)


@pytest.fixture
def scan(tmp_path: Path) -> list[Any]:
    frames = talk("10.0.0.7", 50) + talk("10.0.0.8", 60, NOON + 5 * MINUTES)
    return ["scan", write(tmp_path / "a.pcap", frames), "-q", "--detector", "exact", "-t", 20]


def test_scan_writes_to_it(run: Run, scan: list[Any], toys: list[Toy]) -> None:
    ended = run(*scan, "--json", "-o", "toy:x")
    assert ended.status == 0
    (toy,) = toys
    assert [row for report in toy.reports for row in report.rows] == ended.rows
    assert [report.window.start for report in toy.reports if report.window] == [NOON, NOON + 5 * MINUTES]
    assert all(report.heading.endswith("Z: 1 host with at least 20 peers") for report in toy.reports)
    assert (toy.name, toy.run.endless, toy.ended) == ("toy:x", False, "closed")
    assert toy.status() == {"reports": 2, "rows": 2, "failures": 0, "waiting": 0, "dropped": 0}


def test_it_may_fail_and_all_others_have_the_rows_of_all_windows(run, scan, toys, tmp_path) -> None:
    file = tmp_path / "rows.csv"
    for name, said in (
        ("toy:full", "takes no more"),
        ("toy:broken", "internal error (TypeError: rows are not text); please report it (--verbose shows where)"),
    ):
        ended = run(*scan, "--json", "-o", name, "-o", file)
        assert (ended.status, [row["host"] for row in ended.rows]) == (4, ["10.0.0.7", "10.0.0.8"])
        assert ended.err == f"superhosts: {name}: {said}\n"
        assert len(file.read_text().splitlines()) == 3
        toy = toys.pop()
        assert (toy.ended, toy.status()["failures"]) == ("abandoned", 1)
        file.unlink()


def test_a_run_without_any_destination_left_ends(run: Run, scan: list[Any], toys: list[Toy]) -> None:
    ended = run(*scan, "-o", "toy:full", "--counters", "-")  # no table on standard output
    assert (ended.status, ended.out, toys[0].status()["failures"]) == (4, "", 1)


def test_errors_name_its_scheme(run: Run, scan: list[Any]) -> None:
    ended = run(*scan, "-o", "carrier-pigeon://roof")
    assert (ended.status, ended.out) == (2, "")
    assert " toy:," in ended.err
    assert "--output carrier-pigeon://roof: unknown scheme; known schemes: " in ended.err


def test_a_kind_of_file_is_recognised_by_its_ending_and_named_to_others(run, scan, toys, monkeypatch) -> None:
    monkeypatch.setattr(registry, "DESTINATIONS", [*DESTINATIONS, ToyFile])
    assert run(*scan, "--json", "-o", "rows.toy").status == 0
    assert [(toy.name, len(toy.reports)) for toy in toys] == [("rows.toy", 2)]
    assert "the name must end in .jsonl, .csv, .parquet or .toy" in run(*scan, "-o", "rows.lst").err
    with pytest.raises(UsageError, match=r"must end in \.jsonl or .csv, or be a folder"):
        registry.find_kind("rows.toy", ENDLESS)
