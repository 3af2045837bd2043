"""A fleet of real processes on one machine: edges, hub, broker; what they lose is nothing, or is said."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from commands import Run
from processes import (
    DEADLINE,
    SITES,
    ending,
    make_edge,
    make_hub,
    make_hub_on_files,
    one_process,
    rows,
    sites_traffic,
    status_of,
    unions,
    wait_for,
    write_captures,
)
from superhosts.core.database import Database
from superhosts.core.files import hold_folder
from superhosts.core.hashing import fingerprint
from superhosts.fleet.edge import FORMAT, STATE

NEEDS_NATS = "pip install 'superhosts[fleet]'"


def test_three_edges_and_a_hub_answer_as_one_process(tmp_path: Path):
    pytest.importorskip("nats", reason=NEEDS_NATS)
    captures = {site: write_captures(tmp_path / site, batches, 2000) for site, batches in sites_traffic(3).items()}
    truth = one_process([path for paths in captures.values() for path in paths], "1m")
    hub, link = make_hub(tmp_path, "--grace", "1h")  # however far apart this machine lets the edges be
    edges = [make_edge(tmp_path, site, link, *map(str, captures[site]), "--window", "1m") for site in SITES]
    with ending(hub, *edges):
        hub.start()
        for edge in edges:
            edge.start()
        for edge in edges:
            assert edge.process.wait(DEADLINE) == 0
        wait_for(lambda: unions(tmp_path / "archive") == truth, "the unions are exact")
        assert hub.end() == 0
    found = rows(tmp_path / "found.jsonl")
    assert {row["window_start"] for row in found if not row["missing"]} == {row["window_start"] for row in found}
    assert all({site["site"] for site in row["sites"]} == set(SITES) for row in found)
    for site in SITES:
        spool = tmp_path / f"spool-{site}"
        assert list(spool.glob("*.cube")) == []
        assert status_of(spool)["spool"] == {"spooled": 3, "delivered": 3, "refused": 0, "damaged": 0, "dropped": 0}
    assert status_of(tmp_path / "hub")["desk"]["accepted"] == 9


@pytest.mark.slow
def test_a_live_pipe_loses_at_most_its_open_window_and_says_so(tmp_path: Path):
    """Killed in the third window; started again for the fourth and fifth. The third is lost, and named."""
    batches = sites_traffic(5)["ams"]
    paths = write_captures(tmp_path / "ams", batches, 10**9)
    data = paths[0].read_bytes()
    starts = sorted({int(time) // (60 * 10**9) for batch in batches for time in batch.time})
    hub, link = make_hub(tmp_path, sites=("ams",))
    edge = make_edge(tmp_path, "ams", link, "-", "--window", "1m", "--grace", "1h")  # no window closes by the clock
    rest = make_edge(tmp_path, "ams", link)
    spool = tmp_path / "spool-ams"
    archive = tmp_path / "archive"
    second, third = (record_behind(data, (start * 60 + 45) * 10**9) for start in starts[1:3])  # well into these
    later = record_behind(data, starts[3] * 60 * 10**9)
    with ending(hub, edge, rest):
        hub.start()
        edge.start(stdin=subprocess.PIPE)
        for number, piece in enumerate((data[:second], data[second:third]), 1):
            edge.process.stdin.write(piece)
            edge.process.stdin.flush()  # one by one: a window that waits for the disk is lost when the next one ends
            wait_for(lambda number=number: len(unions(archive)) == number, "a window is over and delivered")
        wait_for(lambda: opened(spool) == starts[2] * 60 * 10**9, "the third is noted as open")
        edge.kill()
        edge.process.stdin.close()
        edge.start(stdin=subprocess.PIPE)
        edge.process.stdin.write(data[:24] + data[later:])
        edge.process.stdin.flush()
        wait_for(lambda: len(unions(archive)) == 3, "the fourth is over and delivered")
        edge.process.stdin.close()
        assert edge.process.wait(DEADLINE) == 0
        assert status_of(spool)["edge"]["interrupted"] == 1
        rest.start()  # a live edge waits for the hub only for a moment
        assert rest.process.wait(DEADLINE) == 0
        wait_for(lambda: len(unions(archive)) == 4, "all that was sent is reported")
        hub.end()
    assert "LOST" in edge.words
    truth = one_process(paths, "1m")
    found = unions(archive)
    missing = [window for window in truth if window not in found]
    assert [window for window in truth if window in found and found[window] == truth[window]] == [
        window for window in truth if window not in missing
    ]
    assert len(missing) == 1


def record_behind(data: bytes, time: int) -> int:
    """The offset of the first record of a capture at or behind a time."""
    seconds, rest = divmod(time, 10**9)
    place = 24
    while place < len(data):
        when = int.from_bytes(data[place : place + 4], "little"), int.from_bytes(data[place + 4 : place + 8], "little")
        if when >= (seconds, rest):
            return place
        place += 16 + int.from_bytes(data[place + 8 : place + 12], "little")
    return len(data)


def opened(spool: Path) -> int | None:
    """When the window began that an edge has noted as open."""
    if not (spool / STATE).exists():
        return None
    note = json.loads(Database(spool / STATE, FORMAT).state().get("open", "null"))
    return None if note is None else note["start"]


def on_small_disk(folder: Path) -> tuple[Path, tuple[str, ...]]:
    """A file system of 1 MiB that is full until the file make-room is there, and the words that run a process with it.

    Only that process sees what is in the returned folder.
    """
    if shutil.which("unshare") is None:
        pytest.skip("needs a small file system of its own: there is no unshare here")
    probe = subprocess.run(["unshare", "-rm", "mount", "-t", "tmpfs", "t", str(folder)], capture_output=True)
    if probe.returncode:
        pytest.skip("needs a small file system of its own: user namespaces are not allowed here")
    small = folder / "small"
    small.mkdir()
    script = folder / "on_small_disk.sh"
    script.write_text(
        f"mount -t tmpfs -o size=1m small {small} || exit\n"
        f"head -c 968k /dev/zero > {small}/ballast 2> /dev/null\n"
        '"$@" & pid=$!\n'
        f"echo $pid > {folder}/program.pid\n"
        f"trap 'kill $pid' TERM\n"
        f"while [ ! -e {folder}/make-room ]; do sleep 0.1; done; rm {small}/ballast\n"
        "wait $pid; status=$?; while kill -0 $pid 2>/dev/null; do wait $pid; status=$?; done; exit $status\n"
    )
    return small, ("unshare", "-rm", "sh", str(script))


@pytest.mark.slow
@pytest.mark.parametrize("whose", ["spool", "hub"])
def test_a_full_disk_is_waited_for(tmp_path: Path, whose: str):
    """The spool, or the hub's state, lies on a small file system that is full until room is made."""
    small, prefix = on_small_disk(tmp_path)
    (path,) = write_captures(tmp_path / "ams", sites_traffic(4, packets=20_000)["ams"], 10**9)
    hub, link = make_hub_on_files(tmp_path, sites=("ams",))
    edge = make_edge(tmp_path, "ams", link, str(path), "--window", "1m")
    node = edge if whose == "spool" else hub
    node.prefix = prefix
    node.arguments = tuple(
        str(small / whose) if word in (str(tmp_path / "spool-ams"), str(tmp_path / "hub")) else word
        for word in node.arguments
    )
    with ending(hub, edge):
        edge.start()
        if whose == "hub":
            hub.start()
        said = "NOT WRITABLE" if whose == "spool" else "No space left on device"
        wait_for(lambda: said in node.words, "the full disk is said")
        if whose == "spool":
            hub.start()
        (tmp_path / "make-room").touch()
        assert edge.process.wait(DEADLINE) == 0
        truth = one_process([path], "1m")
        wait_for(lambda: unions(tmp_path / "archive") == truth, "the unions are exact")
        hub.end()
    assert "Traceback" not in hub.words + edge.words


@pytest.mark.slow
def test_users_without_a_key_file_have_keys_of_their_own(
    tmp_path: Path, own_file: Path, monkeypatch: pytest.MonkeyPatch
):
    """Hub and edge of one user fit together. The edge of another user is told which key it needs."""
    captures = {site: write_captures(tmp_path / site, batches, 10**9)[0] for site, batches in sites_traffic(2).items()}
    hub, link = make_hub_on_files(tmp_path, "--grace", "2s", sites=("ams", "fra"))
    ams, fra = (make_edge(tmp_path, site, link, str(captures[site]), "--window", "1m") for site in ("ams", "fra"))
    with ending(hub, ams, fra):
        hub.start()
        ams.start()
        assert ams.process.wait(DEADLINE) == 0
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "other"))
        fra.start()
        assert fra.process.wait(DEADLINE) == 5
        hub.end()
    mine, other = (
        fingerprint(path.read_bytes().strip()) for path in (own_file, tmp_path / "other" / "superhosts" / "key")
    )
    refused = f"key {other} into key {mine}; sketches of two keys cannot be merged; all sites need the same key"
    assert refused in fra.words
    assert refused in hub.words
    assert (hub.words + ams.words).count("made a key of your own") == 1
    assert "public" not in hub.words + ams.words + fra.words


def test_two_processes_do_not_share_a_folder(run: Run, tmp_path: Path):
    for words in ("hub --from link --state place", "edge --site ams --to link --spool place"):
        with hold_folder(tmp_path / "place"), contextlib.chdir(tmp_path):
            ended = run(*words.split())
        assert (ended.status, "another process is using this folder" in ended.err) == (2, True)
