"""What commands say, word for word: one table from a command to its messages and its exit status.

Times and rates are replaced by T and R. A case is one line of `TABLE`; the files that it names are made by `folder`.
"""

from __future__ import annotations

import re
import shlex
import shutil
import warnings
from pathlib import Path
from typing import NamedTuple

import pytest

import superhosts as sh
from commands import Run
from superhosts.core.filetypes import TEXTS
from traffic import talk, write

WINDOW = "2023-11-14T22:15:00Z to 2023-11-14T22:20:00Z"
SKETCH = "20231114T221500Z-5m-local.cube"
NO_ENDS = "which column is src and which is dst? say it with"


class Said(NamedTuple):
    """A command, its exit status, its lines on standard error, and the first line on standard output."""

    command: str
    status: int
    err: tuple[str, ...] = ()
    out: str = ""


def refused(command: str, line: str, status: int = 2, *others: str) -> Said:
    return Said(command, status, (f"superhosts: {line}", *others))


def no_capture(file: str, words: str) -> Said:
    return refused(f"scan {file}", f"{file}: not a capture: it looks like {words}", 3)


def no_rows(file: str, words: str) -> Said:
    """A table that is read, and none of whose rows counts."""
    return refused(f"scan {file}", f"{file}: {words}", 3, "0 packets in T s (R packets/s), 0 windows of 5m")


def no_sketch(command: str, words: str, *others: str) -> Said:
    file = next(word for word in command.split() if "." in word)
    return refused(command, f"{file}: not a .cube file: {words}", 3, *others)


def summary(packets: str, *notes: str, window: str = "1 window (the input is shorter than 5m)") -> str:
    """Return the last line of a scan."""
    return "; ".join([f"{packets} in T s (R packets/s), {window}", *notes])


NOTHING = "superhosts: c.cube: nothing written: the files named above cannot be merged"
UNLIKE = "b.cube: cannot be merged into a.cube: it was made with {}, a.cube with {}"

TABLE: dict[str, Said] = {
    "a sketch on standard output": refused(
        "merge a.cube -o -",
        "--output -: a sketch needs a file; results can go to standard output, with superhosts hosts",
    ),
    "a wrong output, before the input is looked at": refused(
        "scan none.pcap -o rows.txt",
        "--output rows.txt: the name must end in .jsonl, .csv or .parquet; or write FILE?format=, with ecs, ocsf, cef",
    ),
    # Files that are not what a command reads
    "a Zeek log": no_rows("conn.log", f"{NO_ENDS} --map src=COLUMN,dst=COLUMN; its columns: ts, uid, id.orig_h"),
    "EVE": no_rows(
        "eve.json",
        "its only row is bad; row 1 does not count: no address: "
        '{"timestamp":"2023-11-14","event_type":"flow","src_ip":"10.0.0.7"}; '
        "its columns: timestamp, event_type, src_ip; --map src=COLUMN,dst=COLUMN says which to read",
    ),
    "CSV": no_rows(
        "flows.csv",
        "its rows have no time: --window all counts them all as one window; or name the column: --map time=COLUMN; "
        "its columns: src, dst, port",
    ),
    "CSV of no known columns": no_capture(
        "sizes.csv",
        "CSV: name, width, height; name its columns: "
        "superhosts scan sizes.csv --format csv --map src=COLUMN,dst=COLUMN,time=COLUMN",
    ),
    "text": no_capture("notes.pcap", f"text; {TEXTS}"),
    "a capture to hosts": no_sketch("hosts small.pcap", "it looks like a capture (pcap); superhosts scan reads it"),
    "a capture to merge": no_sketch(
        "merge small.pcap -o c.cube", "it looks like a capture (pcap); superhosts scan reads it", NOTHING
    ),
    "an empty file to hosts": no_sketch("hosts empty.cube", "it is empty"),
    # Sketches that cannot be merged
    "another memory": refused(
        "merge a.cube b.cube -o c.cube", UNLIKE.format("--memory 512KiB", "--memory 1MiB"), 2, NOTHING
    ),
    "another detector": refused(
        "merge a.cube exact.cube -o c.cube",
        UNLIKE.replace("b.cube", "exact.cube", 1).format("--detector exact", "--detector cube"),
        2,
        NOTHING,
    ),
    "another key": refused(
        "merge a.cube key.cube -o c.cube",
        UNLIKE.replace("b.cube", "key.cube", 1).format("key d069f46c0b4ec5b5", "key ec1d623ff34371f9")
        + "; sketches of two keys cannot be merged; all sites need the same key from the start",
        2,
        NOTHING,
    ),
    "a saved sketch of another key": refused(
        "scan small.pcap -q --json --save s --memory 1MiB --key-file other.key",
        f"NOT SAVED: s/{SKETCH}: cannot be merged into this run: it was made with key ec1d623ff34371f9, this run with "
        "key d069f46c0b4ec5b5; give the key of the sketch with --key-file, move this file away, or save to another "
        "folder",
        4,
    ),
    "a saved sketch of another memory": refused(
        "scan small.pcap -q --json --save s --memory 2MiB",
        f"NOT SAVED: s/{SKETCH}: cannot be merged into this run: it was made with --memory 1MiB, this run with "
        "--memory 2MiB; move this file away, or save to another folder",
        4,
    ),
    # What is there already
    "a saved sketch": Said(
        "scan small.pcap --json --save s --memory 1MiB",
        0,
        (f"s/{SKETCH}: merged into the sketch that was there", summary("15 packets", window="1 window of 5m")),
    ),
    "synth over a file of mine": refused(
        "synth notes.pcap", "notes.pcap: is there, and synth did not write it; superhosts synth --force overwrites it"
    ),
    # One of a kind
    "one packet": Said("scan one.pcap -t 1", 0, (summary("1 packet"),), f"{WINDOW}: 2 hosts with at least 1 peer"),
    "one flow": refused(
        "synth x.pcap --flows 1 --packets 1 --super-hosts 1",
        "--flows: 1 super host needs at least 1,138 flows; raise it, or ask for fewer super hosts",
    ),
    "too few flows for the super hosts of a comparison": refused(
        "compare --flows 100k",
        "--flows: 600 super hosts need at least 682,667 flows; raise it, or ask for fewer super hosts",
    ),
    "one sketch": refused("hosts a.cube --since 2030-01-01", "--since 2030-01-01: 1 sketch has no window in this time"),
    # Options, not arguments of Python
    "a low threshold": Said(
        "scan small.pcap -t 5 --exact off --memory 1MiB --json -q",  # Hosts are missing, which --quiet does not hide.
        0,
        (
            "superhosts: warning: threshold 5 is low for this cube; about 7% of hosts with this many peers cannot be "
            "named; superhosts plan --flows COUNT --threshold 5 prints a geometry for this threshold",
        ),
    ),
    # What a scan says
    "none with so many": Said(
        "scan small.pcap -t 100",
        0,
        (summary("15 packets"),),
        f"{WINDOW}: none with 100 peers or more; largest: 10.0.0.7 with 15",
    ),
    "a file that was cut": Said(
        "scan cut.pcap -q --json -t 1",
        0,
        ("warning: cut.pcap: byte 836: the file ends inside a record; what came before counts",),
    ),
    "a wrong inner network": Said(
        "scan small.pcap --inner 192.168.0.0/16",
        0,
        (
            "superhosts: warning: 15 of 15 packets (100.0%) have neither address inside --inner and are not counted; "
            "prefixes seen most: 10.0.0.0/16, 172.16.0.0/16; if the first is yours: --inner private",
            summary("15 packets", "not counted: 15 with neither address inside --inner"),
        ),
        f"{WINDOW}: no hosts",
    ),
    "none of a saved sketch": Said(
        "hosts s -t 100", 0, (), f"{WINDOW}: none with 100 peers or more; largest: 10.0.0.7 with 15"
    ),
    # Options that do not go together, and things that are not there
    "no such file": refused("scan none.pcap", "none.pcap: cannot be opened: No such file or directory", 3),
}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the table names."""
    folder = tmp_path_factory.mktemp("messages")
    small = write(folder / "small.pcap", talk("10.0.0.7", 15)).read_bytes()
    write(folder / "one.pcap", talk("10.0.0.7", 1))
    log = b"#separator \\x09\n#fields\tts\tuid\tid.orig_h\n"
    contents = {
        "cut.pcap": small[:-3],
        "conn.log": log,
        "eve.json": b'{"timestamp":"2023-11-14","event_type":"flow","src_ip":"10.0.0.7"}\n',
        "flows.csv": b"src,dst,port\n10.0.0.7,172.16.0.1,80\n",
        "sizes.csv": b"name,width,height\nbox,3,4\n",
        "notes.pcap": b"notes of mine",
        "empty.cube": b"",
        "other.key": b"a key of another site",
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    (folder / "other.key").chmod(0o600)
    sh.Cube("1MiB").save(folder / "a.cube")
    sh.Cube("512KiB").save(folder / "b.cube")
    sh.Cube("1MiB", key="a key of another site").save(folder / "key.cube")
    sh.Exact().save(folder / "exact.cube")
    for window in sh.scan(folder / "small.pcap", memory="1MiB"):
        (folder / "s").mkdir()
        window.sketch.save(folder / "s" / SKETCH)
    return folder


def without_times(text: str) -> str:
    text = re.sub(r"compiling for this machine.*\n", "", text)  # if no test before this one has needed the same code
    return re.sub(r"in [\d.,]+ s \([\d.,]+( [kM])? packets/s\)", "in T s (R packets/s)", text)


@pytest.mark.parametrize("case", TABLE)
def test_messages(case: str, run: Run, prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    said = TABLE[case]
    with warnings.catch_warnings():
        warnings.simplefilter("default")  # The command line writes them; tests make errors of others.
        ended = run(*shlex.split(said.command))
    assert (ended.status, tuple(without_times(ended.err).splitlines())) == (said.status, said.err)
    if said.out:
        assert ended.out.splitlines()[0] == said.out


def test_no_message_speaks_python() -> None:
    words = " ".join(line for said in TABLE.values() for line in (*said.err, said.out))
    assert not re.search(r"\bNone\b|\bTrue\b|\w\(\w*=|\bsh\.", words)
