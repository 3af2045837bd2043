"""The grammar of `--output`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from commands import Run
from superhosts.errors import UsageError
from superhosts.output.destination import Destination, RunKind
from superhosts.output.files import AppendedFile, ParquetFolder, PatientFile, ReplacedFile
from superhosts.output.registry import OutputOptions, check_addresses, open_destination, open_each
from traffic import talk, write

ENDS, ENDLESS = RunKind(), RunKind(endless=True)


@pytest.fixture(autouse=True)
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_path() -> None:
    cases: list[tuple[str, RunKind, type[Destination]]] = [
        ("a.jsonl", ENDS, ReplacedFile),
        ("a.CSV", ENDS, ReplacedFile),
        ("a.parquet", ENDS, ReplacedFile),
        ("a.jsonl", ENDLESS, AppendedFile),
        ("a.csv", ENDLESS, AppendedFile),
        ("folder", ENDLESS, ParquetFolder),
        ("12:00.jsonl", ENDS, ReplacedFile),
        ("noon:a.jsonl", ENDS, ReplacedFile),
    ]
    for name, run, kind in cases:
        opened = open_destination(name, run)
        assert type(opened.inner if isinstance(opened, PatientFile) else opened) is kind
        assert isinstance(opened, PatientFile) == run.endless
        assert opened.name == name
        opened.abandon()


def test_what_is_refused(tmp_path: Path) -> None:
    for address, run, message in (
        ("a", ENDS, r"--output a: the name must end in \.jsonl, \.csv or \.parquet"),
        ("a.txt", ENDS, r"must end in"),
        (".csv", ENDS, r"must end in"),
        ("a.parquet", ENDLESS, r"Parquet cannot be appended to; name a folder"),
        ("smoke://signal", ENDS, r"--output smoke://signal: unknown scheme"),
        ("smoke://signal.csv", ENDLESS, r"unknown scheme; known schemes: alertmanager\+http://, .*exec:, "),
        ("syslog:localhost", ENDS, r"write syslog://"),
    ):
        with pytest.raises(UsageError, match=message):
            open_each(OutputOptions(outputs=[address]), run)
        with pytest.raises(UsageError, match=message.replace("--output", "--alert-to")):
            check_addresses(OutputOptions(outputs=[address], option="--alert-to"), run)
        assert list(tmp_path.iterdir()) == []
    with pytest.raises(UsageError, match="--json and --csv: choose one"):
        OutputOptions(json=True, csv=True)


def test_what_standard_output_gets() -> None:
    for options, format, addresses in (
        (OutputOptions(), "table", []),
        (OutputOptions(json=True, outputs=["a.csv"]), "json", ["a.csv"]),
        (OutputOptions(outputs=["-"]), "json", []),
        (OutputOptions(csv=True, outputs=["-"]), "csv", []),
        (OutputOptions(outputs=["a.csv", "-", "b.csv"]), "json", ["a.csv", "b.csv"]),
    ):
        assert (options.format, options.addresses) == (format, addresses)


def test_a_dash_is_standard_output(run: Run, tmp_path: Path) -> None:
    scan: list[Any] = ["scan", write(tmp_path / "a.pcap", talk("10.0.0.7", 50)), "-q", "--detector", "exact", "-t", 20]
    assert [json.loads(line)["host"] for line in run(*scan, "-o", "-").out.splitlines()] == ["10.0.0.7"]
    assert run(*scan, "-o", "-", "--csv") == run(*scan, "--csv")
