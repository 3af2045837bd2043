"""Batches on a real Dask cluster give the same sketches and rows as one scan over all captures."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import superhosts as sh
from commands import Run, command
from processes import DEADLINE
from superhosts.batch import cluster as clusters
from superhosts.batch import run as batches
from superhosts.batch.run import MOST_FILES, BatchWindow, split_into_tasks
from superhosts.cli.batch import save_window as save
from superhosts.cubefile import container as sketchfile
from superhosts.errors import SketchFileError
from superhosts.pairs import Window
from superhosts.pipeline.settings import Settings
from superhosts.sources.capture_reader import BLOCK_PACKETS
from superhosts.sources.finding import FoundFile
from traffic import MINUTES, NOON, Frames, content, talk, three_windows, write

SMALL = ["--memory", "1MiB", "--inner", "10.0.0.0/8", "--inner", "2001:db8::/32", "--threshold", "1000"]
EACH = ["--task-size", "1"]  # one capture per task


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait longer for schedulers, because a busy machine answers late."""
    monkeypatch.setattr(clusters, "TIMEOUT", DEADLINE)


WORKERS = 4


def scatter(folder: Path, frames: Frames, count: int) -> list[Path]:
    """Distribute frames over captures so that every capture has packets of all windows."""
    rng = random.Random(5)
    shares: list[Frames] = [[] for _ in range(count)]
    for frame in frames:
        rng.choice(shares).append(frame)
    return [write(folder / f"dump.pcap{number}", share) for number, share in enumerate(shares)]


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("captures")
    scatter(folder, three_windows(), 20)
    return folder


@pytest.fixture(scope="module")
def cluster(captures: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from distributed import LocalCluster

    path = tmp_path_factory.mktemp("warm") / "a.cube"
    settings: dict[str, Any] = {"memory": "1MiB", "inner": ["10.0.0.0/8", "2001:db8::/32"], "device": "cpu"}
    for window in sh.scan(sorted(captures.iterdir()), **settings):  # Compiles once what the workers then load.
        window.sketch.save(path)
        window.sketch.merge_file(path)
        sh.load(path)
    with LocalCluster(
        n_workers=WORKERS, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0"
    ) as cluster:
        yield cluster


def saved(folder: Path, **options: Any) -> dict[str, Any]:
    """Return the content of all sketches in a folder by file name."""
    found = {}
    for path in folder.iterdir():
        sketch = sh.load(path, **options)
        entries = sorted(json.dumps(entry, sort_keys=True) for entry in sketch.entries)
        found[path.name] = sketch.window, sketch.sites, entries, content(sketch)
    return found


# Same results as one scan


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--window", "all", "--top", "2"],
        ["--detector", "exact", "--watch", "outer", "--watch", "inner", "--direction", "out", "--site", "ams"],
    ],
)
def test_the_same_sketches_and_rows_as_one_scan(
    run: Run, cluster: Any, captures: Path, tmp_path: Path, options: list[str]
) -> None:
    one = run("scan", *captures.iterdir(), *SMALL, *options, "--json", "--save", tmp_path / "one")
    address = ["--scheduler", cluster.scheduler_address]
    many = run("batch", captures, *address, *SMALL, *options, "--json", "--save", tmp_path / "many", *EACH)
    assert (one.status, many.status) == (0, 0), many.err
    assert many.out == one.out
    assert len(one.out.splitlines()) >= 2
    assert saved(tmp_path / "many") == saved(tmp_path / "one")
    assert not (tmp_path / "many.work").exists()
    assert one.err.splitlines()[-1] == many.err.splitlines()[-1] == "8,840 packets"


def test_files_and_keys_of_the_client_hold_on_the_workers(
    run: Run, cluster: Any, captures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SUPERHOSTS_KEY", "correct horse battery")
    Path("inner.txt").write_text("10.0.0.0/8  # all of it\n")
    common = ["--memory", "1MiB", "--inner", "@inner.txt", "--quiet"]
    assert run("scan", *captures.iterdir(), *common, "--save", "one").status == 0
    ended = run("batch", captures, "--scheduler", cluster.scheduler_address, *common, "--save", "many")
    assert (ended.status, ended.err) == (0, "")
    assert saved(Path("many")) == saved(Path("one"))


def test_packets_that_come_late_are_kept(run: Run, cluster: Any, tmp_path: Path) -> None:
    """Late packets re-open a window, within one capture and across captures."""
    many = BLOCK_PACKETS + 2000  # The late packets are in a later block than the others of their window.
    frames = talk("10.0.0.1", 1200) + talk("10.0.0.1", many, NOON + 5 * MINUTES) + talk("10.0.0.2", 50)
    write(tmp_path / "a.pcap", frames + talk("10.0.0.1", 2000, NOON + 10 * MINUTES))
    write(tmp_path / "b.pcap", talk("10.0.0.2", 70, base="172.17.0.0"))
    common = [tmp_path / "a.pcap", tmp_path / "b.pcap", "--detector", "exact", "--threshold", "1", "--json"]
    common += ["--inner", "10.0.0.0/8", "--save", tmp_path / "s", "--scheduler", cluster.scheduler_address]
    ended = run("batch", *common, *EACH)
    rows = [json.loads(line) for line in ended.out.splitlines()]
    assert [((row["window_start"][14:16]), row["host"], row["peers"]) for row in rows] == [
        ("15", "10.0.0.1", 1200),
        ("15", "10.0.0.2", 120),
        ("20", "10.0.0.1", many),
        ("25", "10.0.0.1", 2000),
    ]
    assert ended.err.splitlines()[-1] == f"{many + 3320:,} packets"
    pairs = [sum(entry["pairs"] for entry in sh.load(path).entries) for path in sorted((tmp_path / "s").iterdir())]
    assert pairs == [1320, many, 2000]


def test_what_is_saved_already_stays(run: Run, cluster: Any, captures: Path, tmp_path: Path) -> None:
    """As in a scan, the same window and site from two runs become one sketch, and a third run changes nothing."""
    names = sorted(captures.iterdir())
    address = ["--scheduler", cluster.scheduler_address, "--quiet"]
    run("scan", *names, *SMALL, "--quiet", "--save", tmp_path / "whole")
    for half in (names[:10], names[10:], names[10:]):
        assert run("batch", *half, *SMALL, *address, "--save", tmp_path / "halves").status == 0
    whole, halves = saved(tmp_path / "whole"), saved(tmp_path / "halves")
    assert {name: (w[0], w[3]) for name, w in whole.items()} == {name: (h[0], h[3]) for name, h in halves.items()}
    assert all(len(entries) == 2 * len(whole[name][2]) for name, (_, _, entries, _) in halves.items())


# Killed processes


def wait_for(condition: Callable[[], Any], what: str) -> Any:
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.01)
    raise AssertionError(f"{what} did not come")


def records(work: Path) -> dict[str, int]:
    """Return the finished folds in a work folder with their modification times."""
    return {
        path.name: path.stat().st_mtime_ns
        for path in work.glob("*.json")
        if isinstance(found := json.loads(path.read_text()), dict) and "counters" in found["result"]
    }


def test_a_worker_that_is_killed_at_work(
    run: Run, cluster: Any, captures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("scan", *captures.iterdir(), *SMALL, "--quiet", "--save", tmp_path / "one")
    work, note, deadline = tmp_path / "many.work", tmp_path / "note", DEADLINE
    real = batches.run_task

    def caught(task: Any, threads: Any) -> Any:
        """Let one worker wait to be killed while it is saving a sketch."""
        import os
        import time

        from superhosts.sketches.bundle import Sketch

        save = Sketch.save

        def halt(sketch: Any, path: Any) -> None:
            save(sketch, path)
            part.write_text(str(os.getpid()))
            part.rename(note)
            time.sleep(deadline)

        part = note.with_name("part")
        if task.kind == "fold" and task.names[0].endswith("dump.pcap7") and not note.exists():
            Sketch.save = halt  # type: ignore[method-assign]
        return real(task, threads)

    left: list[Path] = []

    def kill() -> None:
        process = int(wait_for(lambda: note.exists() and note.read_text(), "a worker at work"))
        left.extend(work.glob(f".{'?' * 32}.{process}.{'?' * 32}"))
        os.kill(process, signal.SIGKILL)

    monkeypatch.setattr(batches, "run_task", caught)
    killer = threading.Thread(target=kill)
    killer.start()
    common = ["batch", captures, *SMALL, "--save", tmp_path / "many", *EACH, "--scheduler", cluster.scheduler_address]
    ended = run(*common)
    killer.join(DEADLINE)
    assert ended.status == 0, ended.err
    assert len(left) == 1
    assert saved(tmp_path / "many") == saved(tmp_path / "one")
    assert not work.exists()  # including what the dead worker left
    assert wait_for(lambda: len(cluster.scheduler.workers) == WORKERS, "a new worker")


GATED = """
import sys
from superhosts import cli
from superhosts.batch import run as batches

gate = sys.argv.pop(1)
real = batches.run_task

def gated(task, threads):
    import os, time
    while task.kind != "fold" or not task.names[0].endswith(tuple(f"dump.pcap{number}" for number in range(8))):
        if os.path.exists(gate):
            break
        time.sleep(0.01)
    return real(task, threads)

batches.run_task = gated
cli.main()
"""


def is_idle(cluster: Any) -> bool:
    """Return True if no worker has any task, running or waiting."""
    from distributed import Client

    with Client(cluster, set_as_default=False, timeout=DEADLINE) as client:
        return not any(client.run(lambda dask_worker: len(dask_worker.state.tasks)).values())


def test_a_client_that_is_killed_goes_on_when_started_again(
    run: Run, cluster: Any, captures: Path, tmp_path: Path
) -> None:
    run("scan", *captures.iterdir(), *SMALL, "--json", "--save", tmp_path / "one")
    common = ["batch", captures, *SMALL, "--save", tmp_path / "many", "--scheduler", cluster.scheduler_address]
    work = tmp_path / "many.work"
    gate = tmp_path / "gate"  # Until this file exists, captures from number 8 on are not read.
    start = [sys.executable, "-c", GATED, str(gate), *command(*common, *EACH)[3:]]
    with subprocess.Popen(start, stderr=subprocess.PIPE) as client:
        wait_for(lambda: len(records(work)) >= 3, "the first results")
        client.kill()
    assert client.returncode == -signal.SIGKILL
    wait_for(lambda: not cluster.scheduler.clients.keys() - {"fire-and-forget"}, "the end of the client")
    gate.touch()
    wait_for(lambda: is_idle(cluster), "the end of what its workers were at")
    assert not list(work.glob(".*"))
    before = records(work)
    assert 3 <= len(before) < 20
    ended = run(*common, "--keep-work")  # The size of tasks is reused, too.
    after = records(work)
    assert len(after) == 20
    assert after.items() >= before.items()
    assert f"{len(before)} of them from an earlier run" in ended.err
    assert saved(tmp_path / "many") == saved(tmp_path / "one")

    other = run(*common, "--keep-work", "--window", "10m")  # Other settings reuse nothing.
    assert "from an earlier run" not in other.err
    question = run(*common, "--keep-work", "--threshold", "100")  # Reuses everything but the restores of three windows.
    assert "35 tasks, 32 of them from an earlier run" in question.err
    os.utime(captures / "dump.pcap3", (1, 1))  # Repeats its fold, and for each window two merges and the restore.
    assert "35 tasks, 25 of them from an earlier run" in run(*common).err


def flip(path: Path) -> None:
    """Change one bit of a file, like a decaying disk. Hard links to the old content do not change."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.unlink()
    path.write_bytes(data)


def test_results_that_have_rotted_are_made_again(run: Run, cluster: Any, captures: Path, tmp_path: Path) -> None:
    work = tmp_path / "w"
    common = ["batch", captures, *SMALL, "--work", work, "--keep-work", "--scheduler", cluster.scheduler_address]
    first = run(*common, *EACH, "--json", "--save", tmp_path / "a")
    made = {path.name: path.read_bytes() for path in work.glob("*.cube")}
    fold = next(path for path in records(work))[:32]
    flip(next(path for path in work.glob("*.cube") if path.samefile(min((tmp_path / "a").iterdir()))))  # a union
    flip(next(work.glob(f"{fold}-*.cube")))
    again = run(*common, "--json", "--save", tmp_path / "b")
    assert "35 tasks, 33 of them from an earlier run" in again.err
    assert again.out == first.out
    assert {path.name: path.read_bytes() for path in work.glob("*.cube")} == made
    assert saved(tmp_path / "b") == saved(tmp_path / "a")


def test_records_that_somebody_has_changed_are_none(run: Run, cluster: Any, captures: Path, tmp_path: Path) -> None:
    work = tmp_path / "w"
    common = ["batch", captures, *SMALL, "--work", work, "--keep-work", "--scheduler", cluster.scheduler_address]
    first = run(*common, *EACH, "--json", "--save", tmp_path / "a")
    assert first.status == 0, first.err
    changed = sorted(path for path in work.glob("*.json") if not path.read_text().strip().isdigit())
    assert len(changed) == 35
    for number, path in enumerate(changed):
        record = json.loads(path.read_text())
        result = record["result"]
        if number % 5 == 0:
            record["result"] = number
        elif number % 5 == 1:
            result["pieces"] = [{"key": "x", "file": ["/"]}]
        elif number % 5 == 2:
            result.update(counters="none", window=[None], rows=[5])
        path.unlink()
        if number % 5 == 3:
            os.mkfifo(path)
        elif number % 5 == 4:
            (path / "inside").mkdir(parents=True)
        else:
            path.write_text(json.dumps(record))
    (sizes,) = (path for path in work.glob("*.json") if path not in changed)
    for size in (True, "many"):
        sizes.write_text(json.dumps(size))
        again = run(*common, *EACH, "--json", "--save", tmp_path / f"b{size}")
        assert (again.status, again.out) == (0, first.out), again.err
    odd = [path for number, path in enumerate(changed) if number % 5 in (3, 4)]
    assert {path.name for path in work.glob(".*.aside")} == {f".{path.name}.aside" for path in odd}


def test_sketches_that_are_no_files_are_made_again(run: Run, cluster: Any, captures: Path, tmp_path: Path) -> None:
    work = tmp_path / "w"
    common = ["batch", captures, *SMALL, "--work", work, "--keep-work", "--scheduler", cluster.scheduler_address]
    first = run(*common, *EACH, "--json", "--save", tmp_path / "a")
    assert first.status == 0, first.err
    for number, path in enumerate(sorted(work.glob("*.cube"))[:6]):
        path.unlink()
        os.mkfifo(path) if number % 2 else (path / "inside").mkdir(parents=True)
    again = run(*common, *EACH, "--json", "--save", tmp_path / "b")
    assert (again.status, again.out) == (0, first.out), again.err


def test_a_result_that_rots_before_it_is_saved_is_not_saved(tmp_path: Path) -> None:
    sketch = tmp_path / "union.cube"
    sketchfile.write(sketch, {}, {"noise": np.arange(1000)})
    whole = BatchWindow(Window(0, 1), [], sketch)
    save(whole, tmp_path / "saved.cube", Settings())
    assert (tmp_path / "saved.cube").read_bytes() == sketch.read_bytes()
    (tmp_path / "saved.cube").unlink()
    flip(sketch)
    with pytest.raises(SketchFileError, match=r"union\.cube: damaged since it was written"):
        save(whole, tmp_path / "saved.cube", Settings())
    assert [path.name for path in tmp_path.iterdir()] == ["union.cube"]


def test_an_input_that_kills_its_workers(
    run: Run, cluster: Any, captures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other tasks finish, and the exit status reports the failure."""
    real = batches.run_task

    def deadly(task: Any, threads: Any) -> Any:
        if any(name.endswith("dump.pcap7") for name in task.names):
            import os

            os._exit(1)
        return real(task, threads)

    monkeypatch.setattr(batches, "run_task", deadly)
    monkeypatch.setattr(
        cluster.scheduler, "allowed_failures", 2
    )  # Dask may also blame tasks that wait on the same worker.
    address = ["--scheduler", cluster.scheduler_address]
    ended = run("batch", captures, *SMALL, "--save", tmp_path / "s", *address, "--task-size", "100k")
    assert ended.status == 3
    (line,) = [line for line in ended.err.splitlines() if line.startswith("superhosts:")]
    assert re.search(r"dump\.pcap\d+ and \d+ more: every worker that ran this task died", line)
    assert len(list((tmp_path / "s").iterdir())) == 3
    assert wait_for(lambda: len(cluster.scheduler.workers) == WORKERS, "a new worker")


# Inputs


def test_bad_inputs_among_good_ones(run: Run, cluster: Any, tmp_path: Path) -> None:
    write(tmp_path / "a.pcap", talk("10.0.0.1", 1200))
    write(tmp_path / "c.pcap", talk("10.0.0.1", 1200, base="172.17.0.0"))
    (tmp_path / "b.pcap").write_text("this is not a capture")
    common = ["batch", tmp_path / "*.pcap", tmp_path / "none*", "s3:/not/there", *SMALL, "--json", "--save"]
    ended = run(*common, tmp_path / "s", "--scheduler", cluster.scheduler_address)
    assert ended.status == 3
    assert [json.loads(line)["host"] for line in ended.out.splitlines()] == ["10.0.0.1"]
    assert [line.split(": ")[1] for line in ended.err.splitlines() if line.startswith("superhosts: ")] == [
        f"{tmp_path}/none*",
        "s3:/not/there",
        f"{tmp_path}/b.pcap",
    ]
    assert "2,400 packets" in ended.err
    assert run("batch", tmp_path / "none", "--local", "--save", tmp_path / "t").status == 3  # No cluster is started.


def test_an_input_that_failed_is_tried_again(run: Run, cluster: Any, tmp_path: Path) -> None:
    """A fold with a failed input is not reused, and neither is a merge of its sketch."""
    paths = scatter(tmp_path, three_windows(), 4)
    good = paths[1].read_bytes()
    half = len(good) // 2  # The first window is complete, the second is not.
    paths[1].write_bytes(good[:half] + b"\xff" * (len(good) - half))
    os.utime(paths[1], (1, 1))
    common = [*paths, *SMALL, "--json", "--save"]
    address = ["--keep-work", *EACH, "--scheduler", cluster.scheduler_address]
    assert run("batch", *common, tmp_path / "a", "--work", tmp_path / "w", *address).status == 3
    paths[1].write_bytes(good)  # as if its server had been unavailable: size and time do not change
    os.utime(paths[1], (1, 1))
    ended = run("batch", *common, tmp_path / "b", "--work", tmp_path / "w", *address)
    assert ended.status == 0
    assert "10 tasks, 5 of them from an earlier run" in ended.err
    assert ended.out == run("scan", *common, tmp_path / "c").out
    assert saved(tmp_path / "b") == saved(tmp_path / "c")


def test_progress_on_a_terminal(
    run: Run, cluster: Any, captures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    common = ["batch", captures, *SMALL, "--save", tmp_path / "s", *EACH, "--scheduler", cluster.scheduler_address]
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert "35/35 tasks" in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", run(*common).err)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert "\x1b" not in run(*common, "--quiet").err


def test_local_workers_and_urls(captures: Path, tmp_path: Path) -> None:
    local = ["--local", "--workers", 2, "--work", tmp_path / "w"]
    ended = subprocess.run(
        command("batch", f"file://{captures}/**/dump*", *local, *SMALL, "--json", *EACH, "--save", tmp_path / "s"),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert (ended.returncode, ended.stderr) == (0, "20 captures, 35 tasks\n8,840 packets\n")
    one = subprocess.run(
        command("scan", *(f"file://{path}" for path in captures.iterdir()), *SMALL, "--json"),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert ended.stdout == one.stdout
    assert len(one.stdout.splitlines()) == 5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s"]


def test_cutting_tasks() -> None:
    def cut(*sizes: int) -> list[list[int]]:
        runs = split_into_tasks([FoundFile(str(i), size, "") for i, size in enumerate(sizes)], 10)
        return [[capture.size for capture in run] for run in runs]

    assert cut() == []
    assert cut(4, 4, 4, 30, 1, 9, 2) == [[4, 4, 4], [30], [1, 9], [2]]
    assert [len(run) for run in cut(*[0] * (2 * MOST_FILES + 1))] == [MOST_FILES, MOST_FILES, 1]


def test_a_package_for_urls_that_is_missing(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    for name in (["batch", "s3://bucket/*.pcap", "--local", "--save", tmp_path / "s"], ["scan", "s3://bucket/a.pcap"]):
        ended = run(*name)
        assert (ended.status, "pip install s3fs" in ended.err) == (2, True)
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    ended = run("scan", f"file://{tmp_path}/a.pcap")
    assert (ended.status, "pip install 'superhosts[batch]'" in ended.err) == (2, True)


# Invalid options and clusters


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("either --scheduler ADDRESS or --local", []),
        ("either --scheduler ADDRESS or --local", ["--local", "--scheduler", "tcp://localhost:1"]),
        ("--workers: only with --local", ["--workers", "2", "--scheduler", "tcp://localhost:1"]),
        ("--scheduler tcp://localhost:1: cannot be reached", ["--scheduler", "tcp://localhost:1"]),
        ("--scheduler udp://localhost:1: cannot be reached", ["--scheduler", "udp://localhost:1"]),
        ("--detector filter: its sketches", ["--local", "--detector", "filter"]),
        ("--inner 10.0.0.0/33", ["--local", "--inner", "10.0.0.0/33"]),
        ("is not a size", ["--local", "--task-size", "large"]),
        ("a name without slashes", ["--local", "--site", "a/b"]),
    ],
)
def test_usage(
    run: Run, captures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, options: list[str]
) -> None:
    monkeypatch.setattr(clusters, "TIMEOUT", 1)
    ended = run("batch", captures, "--save", tmp_path / "s", *options)
    assert ended.status == 2
    assert words.replace("--inner 10.0.0.0/33", "'10.0.0.0/33' is not a prefix") in ended.err
    assert not (tmp_path / "s.work").exists()


def test_local_workers_that_die_at_their_start(
    run: Run, captures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(**_options: object) -> None:
        raise RuntimeError("Nanny failed to start.")

    monkeypatch.setattr("distributed.LocalCluster", fails)
    ended = run("batch", captures, *SMALL, "--local", "--workers", 3, "--save", tmp_path / "s")
    assert ended.status == 2
    assert ended.err == (
        "superhosts: --local: 3 worker processes cannot be started: Nanny failed to start; "
        "out of memory? try fewer --workers\n"
    )


def test_without_dask(run: Run, captures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    ended = run("batch", captures, "--local", "--save", tmp_path / "s")
    assert ended.status == 2
    assert ended.err.startswith("superhosts: the batch command needs packages that are not installed: pip install ")


def test_workers_that_cannot_do_it(
    run: Run, cluster: Any, captures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No worker, a worker without the package, and one with another version, each in a separate process."""
    from distributed import LocalCluster

    def impatient(*arguments: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(clusters, "TIMEOUT", 1)
            return clusters.check_workers(*arguments)

    (tmp_path / "none" / "superhosts").mkdir(parents=True)
    (tmp_path / "none" / "superhosts" / "__init__.py").write_text("raise ImportError")
    (tmp_path / "old" / "superhosts").mkdir(parents=True)
    (tmp_path / "old" / "superhosts" / "__init__.py").write_text("")
    (tmp_path / "old" / "superhosts" / "_version.py").write_text("__version__ = '0.0.1'")
    with LocalCluster(n_workers=0, dashboard_address="127.0.0.1:0") as own:
        common = ["batch", captures, "--save", tmp_path / "s", "--scheduler", own.scheduler_address]
        with monkeypatch.context() as patch:
            patch.setattr(batches, "check_workers", impatient)
            ended = run(*common)
        assert (ended.status, "has no workers" in ended.err) == (2, True)
        for place, words in (
            ("none", "does not have superhosts: run pip install superhosts=="),
            ("old", "has superhosts 0.0.1,"),
        ):
            start = [sys.executable, "-m", "distributed.cli.dask_worker", own.scheduler_address, "--no-nanny"]
            options = ["--no-dashboard", "--local-directory", str(tmp_path)]
            env = {**os.environ, "PYTHONPATH": str(tmp_path / place)}
            with subprocess.Popen([*start, *options], env=env, stderr=subprocess.DEVNULL) as worker:
                wait_for(lambda: own.scheduler.workers, "the worker")
                ended = run(*common)
                worker.kill()
            assert (ended.status, words in ended.err) == (2, True), ended.err
            wait_for(lambda: not own.scheduler.workers, "the end of the worker")


def test_a_folder_that_workers_do_not_see(
    run: Run, cluster: Any, captures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = clusters._worker_check
    common = ["batch", captures, "--save", tmp_path / "s", "--scheduler", cluster.scheduler_address]
    monkeypatch.setattr(clusters, "_worker_check", lambda probe, word, sample: ask(f"{probe}/x", word, sample))
    ended = run(*common)
    assert (ended.status, f"--work {tmp_path}/s.work: worker tcp://" in ended.err) == (2, True)
    assert "does not see it" in ended.err
    monkeypatch.setattr(clusters, "_worker_check", lambda probe, word, sample: ask(probe, word, f"{sample}.elsewhere"))
    ended = run(*common)
    assert (ended.status, f"{captures}/dump.pcap0: worker tcp://" in ended.err) == (2, True)
    assert "cannot read it" in ended.err


def test_a_work_folder_that_has_more_in_it(run: Run, cluster: Any, captures: Path, tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "mine.txt").write_text("x")
    (tmp_path / "file").write_text("x")
    common = ["batch", captures, *SMALL, "--save", tmp_path / "s", "--scheduler", cluster.scheduler_address, "--work"]
    assert run(*common, tmp_path / "w").status == 0
    assert [path.name for path in (tmp_path / "w").iterdir()] == ["mine.txt"]
    assert run(*common, tmp_path / "file" / "w").status == 4
