"""Values that commands refuse: one line names the option, the value and what is accepted; nothing is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands import Run
from superhosts.cli._options import DETECTORS
from traffic import talk, write

TABLES = (
    ("--map src", "--map: 'src': write it like src=COLUMN,dst=COLUMN,time=COLUMN"),
    ("--format xls", "--format: 'xls' is none of parquet, arrow"),
    ("--time middle", "--time: 'middle' is none of record, start, end"),
)
REFUSED: dict[str, tuple[tuple[str, str], ...]] = {
    "scan x.pcap": (
        *TABLES,
        ("--window 5x", "--window: '5x' is not a duration; write it like 90s, 5m, 1h or 30d, or all"),
        ("--window 900000w", "longer than"),
        ("--slide 7m", "--slide 7m: the window (5m) has to be a multiple of it"),
        ("--slide 1m --detector rgs", "--slide 1m: only with --detector cube"),
        ("--memory lots", "--memory: 'lots' is not a size; write it like 128MiB"),
        ("--memory 8B", "too small"),
        ("--memory-total 1MiB --memory 1MiB", "--memory-total 1MiB"),
        ("--memory-total 1GiB --detector exact", "grows with the traffic"),
        ("--inner 10.0.0.1/8", "--inner: '10.0.0.1/8'"),
        ("--inner @nowhere", "--inner @nowhere: cannot be read: No such file or directory"),
        ("--inner privat", "'privat' is not a prefix: write it like 10.0.0.0/8, 2001:db8::/32 or private"),
        ("--save s --site=", "--site is empty: a name without slashes is needed"),
        ("--watch outer", "--watch outer needs --inner"),
        ("--direction sideways", "--direction sideways"),
        ("--direction in,up", "--direction up: one of any"),
        ("--special maybe", "--special: 'maybe' is none of drop, keep"),
        ("--exact yes", "--exact: 'yes' is none of on, off"),
        ("--detector magic", f"--detector magic: one of auto, {', '.join(DETECTORS)}"),
        ("--threshold many", "--threshold: 'many' is not a number; write it like 1024 or 1k"),
        ("--threshold 0", "--threshold 0"),
        ("--threshold inf", "--threshold inf: must be a number of peers, at least 1"),
        ("--threshold nan", "--threshold nan: must be a number of peers, at least 1"),
        (f"--threshold {1 << 63}", "--threshold 9.22337e+18: must be a number of peers, at least 1 and below 2^63"),
        ("--top -1", "--top: -1 is too small; write a whole number, at least 1"),
        ("--evidence-pairs 0", "--evidence-pairs: 0 is too small; write a whole number, at least 1"),
        ("--ipv4-prefix 0", "--ipv4-prefix 0"),
        ("--ipv4-prefix 33", "--ipv4-prefix 33: must be from 1 to 32"),
        ("--ipv6-prefix 0", "--ipv6-prefix 0"),
        ("--device abacus", "--device: unknown device 'abacus'; use one of cpu"),
        ("--key-file nowhere", "--key-file nowhere: cannot be read"),
        ("--json --csv", "--json and --csv: choose one"),
    ),
    **dict.fromkeys(("calibrate x.parquet", "edge x.parquet", "batch x.parquet"), TABLES),
    "compare": (
        *TABLES,
        ("--detector crystal-ball", "crystal-ball"),
        ("--json --csv", "choose one"),
        ("--threshold 0", "--threshold 0"),
        ("-m 1MiB,much", "--memory: 'much' is not a size; write it"),
        ("- -m 1MiB,2MiB --detector cube", "can be read only once"),
    ),
    "hub --from link": (("--log-format xml", "--log-format: 'xml' is none of auto, text, json"),),
    "demo": (("--fleet --exact on", "--exact: not with --fleet"),),
}


@pytest.mark.parametrize("command", REFUSED)
def test_what_is_refused(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "x.pcap", talk("10.0.0.1", 20))
    for options, said in REFUSED[command]:
        ended = run(*command.split(), *options.split())
        lines = [line for line in ended.err.splitlines() if "becomes a setting" not in line]
        assert (ended.status, ended.out, len(lines)) == (2, "", 1), (options, ended.err)
        assert lines[0].startswith("superhosts: "), lines
        assert said in lines[0]
    assert [path.name for path in tmp_path.iterdir()] == ["x.pcap"]
