"""Batches on a real Dask cluster give the same sketches and rows as one scan over all captures."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import superhosts as sh
from commands import Run, command
from fleets import SETTINGS, make_sketch
from hubs import union_of
from superhosts.cli.batch import save_window as save
from superhosts.core.pairs import Window
from superhosts.core.results import COLUMNS
from superhosts.cubefile import container as sketchfile
from superhosts.errors import SketchFileError, SuperhostsError, UsageError
from superhosts.fleet import batch as clusters
from superhosts.fleet.batch import (
    MOST_FILES,
    Batch,
    BatchWindow,
    Result,
    Task,
    check_workers,
    connect,
    prepare,
    run_task,
    split_into_tasks,
)
from superhosts.pipeline.saver import file_name
from superhosts.pipeline.settings import Settings
from superhosts.sources.capture import BLOCK_PACKETS
from superhosts.sources.files import FoundFile
from superhosts.sources.open import list_files
from traffic import MINUTES, NOON, Frames, content, talk, three_windows, write
from waiting import DEADLINE, wait_for

SMALL = ["--memory", "1MiB", "--inner", "10.0.0.0/8", "--inner", "2001:db8::/32", "--threshold", "1000"]
EACH = ["--task-size", "1"]  # one capture per task


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait longer for schedulers, because a busy machine answers late."""
    monkeypatch.setattr(clusters, "TIMEOUT", DEADLINE)


WORKERS = 2
CAPTURES = 10  # Two levels of merges: one task merges at most eight sketches.
TASKS = CAPTURES + 3 * 3 + 3  # The merges of three windows, and their restores.


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
    scatter(folder, three_windows(), CAPTURES)
    return folder


@pytest.fixture(scope="module")
def cluster(captures: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    path = tmp_path_factory.mktemp("warm") / "a.cube"
    settings: dict[str, Any] = {"memory": "1MiB", "inner": ["10.0.0.0/8", "2001:db8::/32"], "device": "cpu"}
    for window in sh.scan(sorted(captures.iterdir()), **settings):  # Compiles once what the workers then load.
        window.sketch.save(path)
        window.sketch.merge_file(path)
        sh.load(path)
    with start_workers(WORKERS) as made:
        yield made


@pytest.fixture
def mortal_cluster(cluster: Any) -> Iterator[Any]:
    """A cluster for tests that kill workers: one survives, whether or not Dask starts others in their place."""
    with start_workers(3) as made:
        yield made


@contextlib.contextmanager
def start_workers(count: int) -> Iterator[Any]:
    import dask
    from distributed import LocalCluster

    once_more = {"distributed.scheduler.allowed-failures": 1}  # A task that has killed two workers fails.
    place = {"processes": True, "dashboard_address": "127.0.0.1:0"}
    with dask.config.set(once_more), LocalCluster(n_workers=count, threads_per_worker=1, **place) as made:
        yield made


def saved(folder: Path, **options: Any) -> dict[str, Any]:
    """Return the content of all sketches in a folder by file name."""
    found = {}
    for path in folder.iterdir():
        sketch = sh.load(path, **options)
        entries = sorted(json.dumps(entry, sort_keys=True) for entry in sketch.entries)
        found[path.name] = sketch.window, sketch.sites, entries, content(sketch)
    return found


# Same results as one scan


def assert_same(many: str, one: str) -> None:
    """Rows of a batch are those of a scan, but estimates within bounds where several inputs have a host."""
    numbers = "peers", "peers_low", "peers_high", "exact"
    found, counted = ([json.loads(line) for line in text.splitlines()] for text in (many, one))
    assert found
    for row, other in zip(found, counted, strict=True):
        assert {name: row[name] for name in COLUMNS if name not in numbers} == {
            name: other[name] for name in COLUMNS if name not in numbers
        }
        assert other["exact"]
        assert row["peers_low"] <= other["peers"] <= row["peers_high"]
        assert row["exact"] == (row["peers_low"] == row["peers_high"])


def packets_read(err: str) -> str:
    (number,) = re.findall(r"^([\d,]+) packets in [\d.]+ s .*, \d windows?( of 5m)?$", err.splitlines()[-1])
    return str(number[0])


@pytest.mark.parametrize(
    "options",
    [
        [],
        pytest.param(["--window", "all", "--top", "2"], marks=pytest.mark.slow),
        pytest.param(
            ["--detector", "exact", "--watch", "outer", "--watch", "inner", "--direction", "out", "--site", "ams"],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_same_sketches_and_rows_as_one_scan(run, cluster, captures, tmp_path, options) -> None:
    one = run("scan", *captures.iterdir(), *SMALL, *options, "--json", "--save", tmp_path / "one")
    address = ["--scheduler", cluster.scheduler_address]
    target = ["--save", tmp_path / "many", "--counters", tmp_path / "counters.json"]
    many = run("batch", captures, *address, *SMALL, *options, "--json", *target, *EACH)
    assert (one.status, many.status) == (0, 0), many.err
    assert_same(many.out, one.out)
    assert len(one.out.splitlines()) >= 2
    assert saved(tmp_path / "many") == saved(tmp_path / "one")
    assert not (tmp_path / "many.work").exists()
    assert packets_read(one.err) == packets_read(many.err) == "8,840"
    counters = json.loads((tmp_path / "counters.json").read_text())
    assert (counters["packets"], counters["truncated_files"]) == (8840, 0)
    assert counters["windows"] == (1 if "--window" in options else 3)
    assert options or counters["pairs"] > 8000


def test_files_and_keys_of_the_client_hold_on_the_workers(
    run: Run, cluster: Any, captures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_file: Path
) -> None:
    """The workers were started in another environment and folder, and cannot know the user's own key."""
    monkeypatch.chdir(tmp_path)
    Path("inner.txt").write_text("10.0.0.0/8  # all of it\n")
    common = ["--memory", "1MiB", "--inner", "@inner.txt", "--quiet"]
    for name, said in (("own", f"made a key of your own: {own_file}"), ("given", "")):
        ended = run("batch", captures, "--scheduler", cluster.scheduler_address, *common, "--save", f"{name}-many")
        assert (ended.status, said in ended.err, bool(ended.err)) == (0, True, bool(said))
        assert run("scan", *captures.iterdir(), *common, "--save", f"{name}-one").status == 0
        key = sh.own_key() if said else None
        assert saved(Path(f"{name}-many"), key=key) == saved(Path(f"{name}-one"), key=key)
        monkeypatch.setenv("SUPERHOSTS_KEY", "correct horse battery")


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
    assert packets_read(ended.err) == f"{many + 3320:,}"
    pairs = [sum(entry["pairs"] for entry in sh.load(path).entries) for path in sorted((tmp_path / "s").iterdir())]
    assert pairs == [1320, many, 2000]


# Killed processes


Execute = Callable[[Task, dict[str, int]], Result]


class Direct:
    """A batch without the command line, whose tasks `execute` runs on the workers."""

    def __init__(self, cluster: Any, captures: Path, folder: Path, execute: Execute, task_size: int) -> None:
        self.errors: list[SuperhostsError] = []
        self.work, self.save = folder / "work", folder / "save"
        self.save.mkdir()
        inner = ["10.0.0.0/8", "2001:db8::/32"]
        settings = prepare(Settings(memory="1MiB", inner=inner, threshold=1000, site="local", device="cpu"))
        with connect(cluster.scheduler_address, timeout=DEADLINE) as client:
            self.batch = Batch(
                client,
                list_files([str(captures)], self.errors.append),
                settings,
                self.work,
                task_size=task_size,
                on_error=self.errors.append,
                on_progress=lambda *_: None,
                execute=execute,
            )
            for result in self.batch:
                save(result, self.save / file_name(result.window, settings), settings)


def records(work: Path) -> dict[str, int]:
    """Return the finished folds in a work folder with their modification times."""
    return {
        path.name: path.stat().st_mtime_ns
        for path in work.glob("*.json")
        if isinstance(found := json.loads(path.read_text()), dict) and "counters" in found["result"]
    }


@pytest.mark.slow
def test_a_worker_that_is_killed_at_work(run: Run, mortal_cluster: Any, captures: Path, tmp_path: Path) -> None:
    run("scan", *captures.iterdir(), *SMALL, "--quiet", "--save", tmp_path / "one")
    note = tmp_path / "note"

    def caught(task: Task, threads: dict[str, int]) -> Result:
        """Kill one worker while it is saving a sketch."""
        import os
        import signal

        from superhosts.sketch.sketch import Sketch

        save = Sketch.save

        def halt(sketch: Any, path: Any) -> None:
            save(sketch, path)
            note.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)

        if task.kind == "fold" and task.names[0].endswith("dump.pcap7") and not note.exists():
            Sketch.save = halt
        return run_task(task, threads)

    direct = Direct(mortal_cluster, captures, tmp_path, caught, task_size=1)
    assert direct.errors == []
    assert len(list(direct.work.glob(f".{'?' * 32}.{note.read_text()}.{'?' * 32}"))) == 1  # the dead worker left it
    assert saved(direct.save) == saved(tmp_path / "one")
    direct.batch.clear()
    assert not direct.work.exists()


GATED = """
import sys
from pathlib import Path
from superhosts.fleet.batch import connect
from superhosts.fleet.batch import Batch, prepare
from superhosts.fleet.batch import run_task
from superhosts.pipeline.settings import Settings
from superhosts.sources.open import list_files

gate, address, captures, work = sys.argv[1:]

def gated(task, threads):
    if task.kind != "fold" or not task.names[0].endswith(("dump.pcap0", "dump.pcap1", "dump.pcap2", "dump.pcap3")):
        open(gate).close()  # It is a pipe: this waits until it is opened to write.
    return run_task(task, threads)

inner = ["10.0.0.0/8", "2001:db8::/32"]
settings = prepare(Settings(memory="1MiB", inner=inner, threshold=1000, site="local", device="cpu"))
common = {"task_size": 1, "on_error": print, "on_progress": lambda *_: None}
with connect(address, timeout=600) as client:
    list(Batch(client, list_files([captures], print), settings, Path(work), execute=gated, **common))
"""


def is_idle(cluster: Any) -> bool:
    from distributed import Client

    with Client(cluster, set_as_default=False, timeout=DEADLINE) as client:
        return not any(client.run(lambda dask_worker: len(dask_worker.state.tasks)).values())


@pytest.mark.slow
def test_a_client_that_is_killed_goes_on_when_started_again(run, cluster, captures, tmp_path) -> None:
    run("scan", *captures.iterdir(), *SMALL, "--json", "--save", tmp_path / "one")
    common = ["batch", captures, *SMALL, "--save", tmp_path / "many", "--scheduler", cluster.scheduler_address]
    work = tmp_path / "many.work"
    gate = tmp_path / "gate"  # Until this is open, captures from number 4 on are not read.
    os.mkfifo(gate)
    start = [sys.executable, "-c", GATED, str(gate), cluster.scheduler_address, str(captures), str(work)]
    with subprocess.Popen(start, stderr=subprocess.PIPE) as client:
        wait_for(lambda: len(records(work)) >= 3, "the first results")
        client.kill()
    assert client.returncode == -signal.SIGKILL
    wait_for(lambda: not cluster.scheduler.clients.keys() - {"fire-and-forget"}, "the end of the client")
    writer = os.open(gate, os.O_RDWR)
    wait_for(lambda: is_idle(cluster), "the end of what its workers were at")
    os.close(writer)
    assert not list(work.glob(".*"))
    before = records(work)
    assert 3 <= len(before) < CAPTURES
    ended = run(*common, "--keep-work")  # The size of tasks is reused, too.
    after = records(work)
    assert len(after) == CAPTURES
    assert after.items() >= before.items()
    assert f"{len(before)} of them from an earlier run" in ended.err
    assert saved(tmp_path / "many") == saved(tmp_path / "one")

    other = run(*common, "--keep-work", "--window", "10m")  # Other settings reuse nothing.
    assert "from an earlier run" not in other.err
    question = run(*common, "--keep-work", "--threshold", "100")  # Reuses everything but the restores of three windows.
    assert f"{TASKS} tasks, {TASKS - 3} of them from an earlier run" in question.err
    os.utime(captures / "dump.pcap3", (1, 1))  # Repeats its fold, and for each window two merges and the restore.
    assert f"{TASKS} tasks, {TASKS - 10} of them from an earlier run" in run(*common).err


def flip(path: Path) -> None:
    """Change one bit of a file, like a decaying disk. Hard links to the old content do not change."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.unlink()
    path.write_bytes(data)


@pytest.mark.slow
def test_results_that_have_rotted_are_made_again(run: Run, cluster: Any, captures: Path, tmp_path: Path) -> None:
    work = tmp_path / "w"
    common = ["batch", captures, *SMALL, "--work", work, "--keep-work", "--scheduler", cluster.scheduler_address]
    first = run(*common, *EACH, "--json", "--save", tmp_path / "a")
    made = {path.name: path.read_bytes() for path in work.glob("*.cube")}
    fold = next(path for path in records(work))[:32]
    flip(next(path for path in work.glob("*.cube") if path.samefile(min((tmp_path / "a").iterdir()))))  # a union
    flip(next(work.glob(f"{fold}-*.cube")))
    again = run(*common, "--json", "--save", tmp_path / "b")
    assert f"{TASKS} tasks, {TASKS - 2} of them from an earlier run" in again.err
    assert again.out == first.out
    assert {path.name: path.read_bytes() for path in work.glob("*.cube")} == made
    assert saved(tmp_path / "b") == saved(tmp_path / "a")


@pytest.mark.slow
def test_records_that_somebody_has_changed_are_none(run: Run, cluster: Any, captures: Path, tmp_path: Path) -> None:
    work = tmp_path / "w"
    common = ["batch", captures, *SMALL, "--work", work, "--keep-work", "--scheduler", cluster.scheduler_address]
    first = run(*common, *EACH, "--json", "--save", tmp_path / "a")
    assert first.status == 0, first.err
    changed = sorted(path for path in work.glob("*.json") if not path.read_text().strip().isdigit())
    assert len(changed) == TASKS
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
    for number, path in enumerate(sorted(work.glob("*.cube"))[:6]):
        path.unlink()
        os.mkfifo(path) if number % 2 else (path / "inside").mkdir(parents=True)
    again = run(*common, *EACH, "--json", "--save", tmp_path / "c")
    assert (again.status, again.out) == (0, first.out), again.err
    odd = [path for number, path in enumerate(changed) if number % 5 in (3, 4)]
    assert {path.name for path in work.glob(".*.json.aside")} == {f".{path.name}.aside" for path in odd}


def test_what_is_saved_already_stays(tmp_path: Path) -> None:
    """As in a scan, the same window and site from two runs become one sketch, and a third run changes nothing."""
    halves = [make_sketch("ams"), make_sketch("ams", peers=900, base=9000)]
    for half, is_merged in zip((*halves, halves[1]), (False, True, True), strict=True):
        half.save(tmp_path / "union.cube")
        assert (
            save(BatchWindow(Window(0, 1), [], tmp_path / "union.cube"), tmp_path / "saved.cube", SETTINGS) is is_merged
        )
        (tmp_path / "union.cube").unlink()
    assert content(sh.load(tmp_path / "saved.cube")) == content(union_of(*halves))


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


@pytest.mark.slow
def test_a_wrong_inner_of_all_captures_is_one_warning(run: Run, captures: Path, cluster: Any, tmp_path: Path) -> None:
    common = ["batch", captures, "--memory", "1MiB", "--scheduler", cluster.scheduler_address, "--quiet", *EACH]
    ended = run(*common, "--save", tmp_path / "saved", "--inner", "203.0.113.0/24")
    (line,) = [line for line in ended.err.splitlines() if "have neither address inside --inner" in line]
    assert "(100.0%)" in line
    assert "prefixes seen most: " in line


@pytest.mark.slow
def test_a_work_folder_is_private_or_as_open_as_it_was(run: Run, captures: Path, cluster: Any, tmp_path: Path) -> None:
    def modes(folder: Path) -> tuple[int, set[int]]:
        return stat.S_IMODE(folder.stat().st_mode), {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}

    opened = tmp_path / "open"
    opened.mkdir()
    opened.chmod(0o2775)
    for work, expected in ((tmp_path / "work", (0o700, {0o600})), (opened, (0o2775, {0o664}))):
        common = ["batch", captures, *SMALL, "--work", work, "--keep-work", "--scheduler", cluster.scheduler_address]
        assert run(*common, "--save", tmp_path / "saved").status == 0
        assert modes(work) == expected
        assert modes(tmp_path / "saved") == (0o700, {0o600})


@pytest.mark.slow
def test_an_input_that_kills_its_workers(mortal_cluster: Any, captures: Path, tmp_path: Path) -> None:
    """The other tasks finish, and the exit status reports the failure."""

    def deadly(task: Task, threads: dict[str, int]) -> Result:
        """End the worker at the last captures once the other folds are done, which Dask would blame, too."""
        import os
        import time
        from pathlib import Path

        if any(name.endswith("dump.pcap9") for name in task.names):
            while len(list(Path(task.folder).glob("*.json"))) < 5:  # four folds and the size of tasks
                time.sleep(0.01)
            os._exit(1)
        return run_task(task, threads)

    size = max(path.stat().st_size for path in captures.iterdir()) + 1  # two captures per task
    direct = Direct(mortal_cluster, captures, tmp_path, deadly, task_size=size)
    (error,) = direct.errors
    assert re.search(r"dump\.pcap8 and 1 more: every worker that ran this task died", str(error))
    assert error.exit_status == 3
    assert len(list(direct.save.iterdir())) == 3


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
    assert (
        run("batch", tmp_path / "none", "--local-cluster", "--save", tmp_path / "t").status == 3
    )  # No cluster is started.


@pytest.mark.slow
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
    assert_same(ended.out, run("scan", *common, tmp_path / "c").out)
    assert saved(tmp_path / "b") == saved(tmp_path / "c")


@pytest.mark.slow
def test_progress_on_a_terminal(run, cluster, captures, tmp_path, monkeypatch) -> None:
    common = ["batch", captures, *SMALL, "--save", tmp_path / "s", "--scheduler", cluster.scheduler_address]
    monkeypatch.setenv("TERM", "xterm")
    for quiet in ([], ["--quiet"]):
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        shown = run(*common, *quiet).err
        assert ("4 of 4 tasks" in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)) == (not quiet)
        assert ("\x1b" in shown) == (not quiet)


@pytest.mark.slow
def test_local_workers_and_urls(run: Run, captures: Path, tmp_path: Path) -> None:
    local = ["--local-cluster", "--workers", 1, "--work", tmp_path / "w"]
    ended = subprocess.run(
        command("batch", f"file://{captures}/**/dump*", *local, *SMALL, "--json", "--save", tmp_path / "s"),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert (ended.returncode, ended.stderr.splitlines()[:-1]) == (0, ["10 captures, 4 tasks"])
    assert packets_read(ended.stderr) == "8,840"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s"]
    one = run("scan", *(f"file://{path}" for path in captures.iterdir()), *SMALL, "--json", "--save", tmp_path / "one")
    assert_same(ended.stdout, one.out)
    assert len(one.rows) == 5


def test_cutting_tasks() -> None:
    def cut(*sizes: int) -> list[list[int]]:
        runs = split_into_tasks([FoundFile(str(i), size, "") for i, size in enumerate(sizes)], 10)
        return [[capture.size for capture in run] for run in runs]

    assert cut() == []
    assert cut(4, 4, 4, 30, 1, 9, 2) == [[4, 4, 4], [30], [1, 9], [2]]
    assert [len(run) for run in cut(*[0] * (2 * MOST_FILES + 1))] == [MOST_FILES, MOST_FILES, 1]


def test_packages_that_are_missing(run: Run, captures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    for name in (
        ["batch", "s3://bucket/*.pcap", "--local-cluster", "--save", tmp_path / "s"],
        ["scan", "s3://bucket/a.pcap"],
    ):
        ended = run(*name)
        assert (ended.status, "pip install s3fs" in ended.err) == (2, True)
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    ended = run("scan", f"file://{tmp_path}/a.pcap")
    assert (ended.status, "pip install 'superhosts[batch]'" in ended.err) == (2, True)
    monkeypatch.setitem(sys.modules, "distributed", None)
    ended = run("batch", captures, "--local-cluster", "--save", tmp_path / "s")
    assert ended.status == 2
    assert ended.err.startswith("superhosts: the batch command needs packages that are not installed: pip install ")


# Invalid options and clusters


def test_usage(run: Run, captures: Path, tmp_path: Path) -> None:
    for words, options in (
        ("either --scheduler ADDRESS or --local-cluster", []),
        ("either --scheduler ADDRESS or --local-cluster", ["--local-cluster", "--scheduler", "tcp://localhost:1"]),
        ("--workers: only with --local-cluster", ["--workers", "2", "--scheduler", "tcp://localhost:1"]),
        ("--scheduler udp://localhost:1: cannot be reached", ["--scheduler", "udp://localhost:1"]),
        ("--detector filter: workers merge cube, cbaa", ["--local-cluster", "--detector", "filter"]),
        ("'10.0.0.0/33' is not a prefix", ["--local-cluster", "--inner", "10.0.0.0/33"]),
        ("is not a size", ["--local-cluster", "--task-size", "large"]),
        ("a name without slashes", ["--local-cluster", "--site", "a/b"]),
    ):
        ended = run("batch", captures, "--save", tmp_path / "s", *options)
        assert (ended.status, words in ended.err) == (2, True), ended.err
        assert not (tmp_path / "s.work").exists()
    address = "tcp://localhost:1"  # where nothing answers
    with pytest.raises(UsageError, match=f"--scheduler {address}: cannot be reached"), connect(address, timeout=0.1):
        pass


def test_local_workers_that_die_at_their_start(run: Run, captures: Path, tmp_path: Path) -> None:
    import dask

    preload = tmp_path / "preload.py"  # Runs in the process that starts the workers.
    preload.write_text("raise RuntimeError('Nanny failed to start.')")
    with dask.config.set({"distributed.nanny.preload": [str(preload)]}):
        ended = run("batch", captures, *SMALL, "--local-cluster", "--workers", 3, "--save", tmp_path / "s")
    assert ended.status == 2
    assert ended.err == (
        "superhosts: --local-cluster: 3 worker processes cannot be started: Nanny failed to start; "
        "out of memory? try fewer --workers\n"
    )


@pytest.mark.slow
def test_workers_that_cannot_do_it(run: Run, captures: Path, tmp_path: Path) -> None:
    """No worker, a worker without the package, and one with another version, each in a separate process."""
    from distributed import LocalCluster

    (tmp_path / "none" / "superhosts").mkdir(parents=True)
    (tmp_path / "none" / "superhosts" / "__init__.py").write_text("raise ImportError")
    (tmp_path / "old" / "superhosts").mkdir(parents=True)
    (tmp_path / "old" / "superhosts" / "__init__.py").write_text("__version__ = '0.0.1'")
    with LocalCluster(n_workers=0, dashboard_address="127.0.0.1:0") as own:
        common = ["batch", captures, "--save", tmp_path / "s", "--scheduler", own.scheduler_address]
        with connect(own.scheduler_address, timeout=DEADLINE) as client, pytest.raises(UsageError, match="no workers"):
            check_workers(client, tmp_path, None, timeout=0.1)
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


def test_a_folder_that_workers_do_not_see(cluster, captures, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)  # The workers are elsewhere: to them, a path in this folder is another place.
    (tmp_path / "w").mkdir()
    with connect(cluster.scheduler_address, timeout=DEADLINE) as client:
        assert len(check_workers(client, tmp_path / "w", str(captures / "dump.pcap0"))) == WORKERS
        with pytest.raises(UsageError, match=r"^--work w: worker tcp://.* does not see it"):
            check_workers(client, Path("w"), None)
        with pytest.raises(UsageError, match=r"^gone: worker tcp://.* cannot read it"):
            check_workers(client, tmp_path / "w", "gone")
    assert list((tmp_path / "w").iterdir()) == []


@pytest.mark.slow
def test_a_work_folder_that_has_more_in_it(run: Run, cluster: Any, captures: Path, tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "mine.txt").write_text("x")
    (tmp_path / "file").write_text("x")
    common = ["batch", captures, *SMALL, "--save", tmp_path / "s", "--scheduler", cluster.scheduler_address, "--work"]
    assert run(*common, tmp_path / "w").status == 0
    assert [path.name for path in (tmp_path / "w").iterdir()] == ["mine.txt"]
    assert run(*common, tmp_path / "file" / "w").status == 4
