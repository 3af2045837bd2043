"""Files that another program rotates while a run without an end appends to them."""

from __future__ import annotations

import json
import shutil
from ipaddress import ip_address
from pathlib import Path

import pytest

from superhosts.core.pairs import Window
from superhosts.core.results import SuperHost
from superhosts.core.units import SECOND
from superhosts.errors import OutputError
from superhosts.output.destination import RunKind
from superhosts.output.files import AppendedFile
from superhosts.output.report import Report, make_rows

ENDLESS = RunKind(endless=True)


def report(number: int) -> Report:
    host = SuperHost(ip_address(f"10.0.0.{number}"), 2000, 1990, 2010, False, False, detector="cube")
    window = Window(number * SECOND, (number + 1) * SECOND)
    return Report(rows=make_rows(window, [host]), window=window)


def hosts(path: Path) -> list[str]:
    lines = path.read_text().splitlines()
    if path.name.startswith("rows.csv"):
        assert lines[0].startswith("window_start,")
        return [line.split(",")[2] for line in lines[1:]]
    return [json.loads(line)["host"] for line in lines]


@pytest.fixture(params=["jsonl", "csv"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / f"rows.{request.param}"


def test_a_file_that_is_moved_away_is_left_alone(path: Path) -> None:
    """Without any signal, as a program without one expects it."""
    file, old = AppendedFile(path, ENDLESS), path.with_name(f"{path.name}.1")
    file.write(report(1))
    path.rename(old)
    file.write(report(2))
    file.write(report(3))
    assert (hosts(old), hosts(path)) == (["10.0.0.1"], ["10.0.0.2", "10.0.0.3"])
    path.rename(old)
    path.touch()  # `create` of logrotate
    file.write(report(4))
    assert hosts(path) == ["10.0.0.4"]
    assert path.stat().st_mode & 0o777 != 0
    file.close()


def test_a_file_that_is_copied_and_emptied_begins_again(path: Path) -> None:
    file = AppendedFile(path, ENDLESS)
    for number in (1, 2):
        file.write(report(number))
    shutil.copy(path, path.with_name(f"{path.name}.1"))
    with path.open("r+b") as other:
        other.truncate(0)
    file.write(report(3))
    assert hosts(path.with_name(f"{path.name}.1")) == ["10.0.0.1", "10.0.0.2"]
    assert hosts(path) == ["10.0.0.3"]
    assert b"\0" not in path.read_bytes()
    file.close()


def test_a_folder_that_is_gone_is_an_error_and_the_report_is_written_later(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "rows.jsonl"
    path.parent.mkdir()
    file = AppendedFile(path, ENDLESS)
    file.write(report(1))
    path.parent.rename(tmp_path / "elsewhere")
    with pytest.raises(OutputError, match=r"rows\.jsonl: cannot be written: No such file or directory"):
        file.write(report(2))
    assert file.counters.failures == 1
    path.parent.mkdir()
    file.write(report(2))
    assert (hosts(tmp_path / "elsewhere" / "rows.jsonl"), hosts(path)) == (["10.0.0.1"], ["10.0.0.2"])
    file.close()


def test_a_disk_that_is_full_after_a_file_was_emptied_leaves_no_hole(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = AppendedFile(path, ENDLESS)
    file.write(report(1))

    def full(_: int) -> None:
        with path.open("r+b") as other:
            other.truncate(0)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(OutputError, match="No space left"):
            file.write(report(2))
    assert path.read_bytes() == b""
    file.write(report(2))
    assert hosts(path) == ["10.0.0.2"]
    file.close()
