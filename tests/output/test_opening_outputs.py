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


@pytest.mark.parametrize(
    ("name", "run", "kind"),
    [
        ("a.jsonl", ENDS, ReplacedFile),
        ("a.CSV", ENDS, ReplacedFile),
        ("a.parquet", ENDS, ReplacedFile),
        ("a.jsonl", ENDLESS, AppendedFile),
        ("a.csv", ENDLESS, AppendedFile),
        ("folder", ENDLESS, ParquetFolder),
        ("12:00.jsonl", ENDS, ReplacedFile),
        ("noon:a.jsonl", ENDS, ReplacedFile),
    ],
)
def test_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, run: RunKind, kind: type[Destination]
) -> None:
    if "parquet" in name or kind is ParquetFolder:
        pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    opened = open_destination(name, run)
    assert type(opened.inner if isinstance(opened, PatientFile) else opened) is kind
    assert isinstance(opened, PatientFile) == run.endless
    assert opened.name == name
    opened.abandon()


@pytest.mark.parametrize(
    ("address", "run", "message"),
    [
        ("a", ENDS, r"--output a: the name must end in \.jsonl, \.csv or \.parquet"),
        ("a.txt", ENDS, r"must end in"),
        (".csv", ENDS, r"must end in"),
        ("a.parquet", ENDLESS, r"Parquet cannot be appended to; name a folder"),
        ("smoke://signal", ENDS, r"--output smoke://signal: unknown scheme"),
        ("smoke://signal.csv", ENDLESS, r"unknown scheme; known schemes: alertmanager\+http://, .*exec:, "),
        ("syslog:localhost", ENDS, r"write syslog://"),
    ],
)
def test_what_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, run: RunKind, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=message):
        open_each(OutputOptions(outputs=[address]), run)
    with pytest.raises(UsageError, match=message.replace("--output", "--alert-to")):
        check_addresses(OutputOptions(outputs=[address], option="--alert-to"), run)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "format", "addresses"),
    [
        (OutputOptions(), "table", []),
        (OutputOptions(json=True, outputs=["a.csv"]), "json", ["a.csv"]),
        (OutputOptions(outputs=["-"]), "json", []),
        (OutputOptions(csv=True, outputs=["-"]), "csv", []),
        (OutputOptions(outputs=["a.csv", "-", "b.csv"]), "json", ["a.csv", "b.csv"]),
    ],
)
def test_what_standard_output_gets(options: OutputOptions, format: str, addresses: list[str]) -> None:
    assert (options.format, options.addresses) == (format, addresses)


def test_two_formats_are_one_too_many() -> None:
    with pytest.raises(UsageError, match="--json and --csv: choose one"):
        OutputOptions(json=True, csv=True)


def test_a_dash_is_standard_output(run: Run, tmp_path: Path) -> None:
    scan: list[Any] = ["scan", write(tmp_path / "a.pcap", talk("10.0.0.7", 50)), "-q", "--detector", "exact", "-t", 20]
    assert [json.loads(line)["host"] for line in run(*scan, "-o", "-").out.splitlines()] == ["10.0.0.7"]
    assert run(*scan, "-o", "-", "--csv") == run(*scan, "--csv")
