"""What `superhosts doctor` says of this machine and of others, and what commands say of the device they use."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from test_cli import SMALL

import superhosts as sh
from commands import Run
from gpus import Driver, machine_with
from stand_in import StandIn
from superhosts.cli import doctor as checks
from superhosts.jit.cache import distrusted
from traffic import talk, write

NAMES = [
    *("versions", "CPU", "packages", "compiled code", "CPU check", "sketch key", "GPU", "GPU packages", "GPU check"),
    *("tables", "fleet", "batch", "dashboard", "top", "figures", "metrics", "kafka", "apprise", "geo", "capturing"),
]
OPTIONAL = NAMES[NAMES.index("tables") :]  # extras, and the right to capture


@pytest.fixture
def no_gpu() -> Iterator[None]:
    """A machine without GPU, driver and packages, whatever this one has."""
    with machine_with(None):
        yield


@pytest.fixture
def quiet(tmp_path: Path) -> Path:
    return write(tmp_path / "quiet.pcap", talk("10.0.0.1", 20))


# doctor


def test_a_machine_without_gpu_is_in_order(run: Run, no_gpu: None) -> None:
    ended = run("doctor")
    assert (ended.status, ended.err) == (0, "")
    rows = {line[9:24].strip(): (line[:8].strip(), line[24:]) for line in ended.out.splitlines()}
    assert list(rows) == NAMES
    assert {
        name: state for name, (state, _) in rows.items() if name[:3] != "GPU" and name not in OPTIONAL
    } == dict.fromkeys(["versions", "CPU", "packages", "compiled code", "CPU check", "sketch key"], "ok")
    assert [rows[name][0] for name in ("GPU", "GPU packages", "GPU check")] == ["missing"] * 3
    assert f"superhosts {sh.__version__}, Python {sys.version.split()[0]}" in rows["versions"][1]
    assert f"NumPy {np.__version__}, numba " in rows["packages"][1]
    assert "no NVIDIA driver was found" in rows["GPU"][1]
    assert "numba-cuda and CuPy not installed; with a GPU: pip install 'superhosts[gpu]'" in rows["GPU packages"][1]
    ended = run("doctor", "--json")
    assert (ended.status, ended.err) == (0, "")
    (found,) = ended.rows  # one list
    assert [row["name"] for row in found] == NAMES
    assert all(list(row) == ["name", "state", "text"] and row["text"] for row in found)


def test_the_key_is_named_and_not_made(run: Run, no_gpu: None, own_file: Path) -> None:
    def said() -> str:
        (line,) = [line for line in run("doctor").out.splitlines() if "sketch key" in line]
        return line

    assert f"ok       sketch key     none yet; the first command that needs one makes {own_file}" in said()
    assert not own_file.exists()
    print_of_key = run("key", "new").out.strip()
    assert f"{print_of_key} ({own_file})" in said()
    own_file.write_text("short")
    assert said().startswith("problem  sketch key     UsageError: ")


def test_missing_tables_name_the_command(run: Run, no_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    ended = run("doctor")
    assert ended.status == 0
    (last,) = [line for line in ended.out.splitlines() if line[9:].startswith("tables")]
    assert last.startswith("missing  tables")
    assert "Polars" in last
    assert "pip install 'superhosts[tables]'" in last


def test_the_driver_tells_of_its_gpus() -> None:
    with machine_with(Driver()):
        assert checks.CHECKS["GPU"]() == (
            "ok",
            "cuda:0 NVIDIA H200, 141 GiB, compute capability 9.0; "
            "cuda:1 Tesla T4, 15 GiB, compute capability 7.5; driver for CUDA 12.4",
        )
    with machine_with(Driver(status=100)):
        state, text = checks.CHECKS["GPU"]()
    assert (state, "sees no GPU (status 100)" in text) == ("missing", True)


def compare_two_gpus(second: Callable[[sh.Cube], sh.Cube]) -> tuple[str, str]:
    """Compare two GPUs for which the CPU stands in: one is right, the other does what is asked."""

    def make(device: str) -> sh.Cube:
        cube = checks.small_cube("cpu")
        return second(cube) if device == "cuda:1" else cube

    return checks.compare_gpus([0, 1], make)


def one_pair_more(cube: sh.Cube) -> sh.Cube:
    cube.update(np.array([1], np.uint32), np.array([2], np.uint32))
    return cube


def other_labels(cube: sh.Cube) -> sh.Cube:
    arrays = {name: array.copy() for name, array in cube.arrays().items()}
    arrays["labels"].reshape(-1)[-1] ^= 1
    cube.load_arrays(arrays)
    return cube


class Blind(sh.Cube):
    """A cube that finds nobody."""

    def _super_hosts(self, threshold: float) -> sh.SuperHosts:
        return sh.Exact().super_hosts(threshold)


def no_hosts(cube: sh.Cube) -> sh.Cube:
    blind = Blind(geometry=cube.geometry, key="superhosts doctor", device="cpu")
    blind.load_arrays(cube.arrays())
    return blind


def test_gpus_that_agree_and_one_that_gives_other_bits_or_hosts() -> None:
    state, text = compare_two_gpus(lambda cube: cube)
    assert (state, "GPU and CPU give the same bits" in text) == ("ok", True)
    for wrong in (one_pair_more, other_labels, no_hosts):
        state, text = compare_two_gpus(wrong)
        assert state == "problem"
        assert text.startswith("cuda:1 gives other bits than the CPU: do not trust it")


def test_a_gpu_that_fails() -> None:
    def fail(_: sh.Cube) -> sh.Cube:
        raise RuntimeError("no kernel image\nand much more")

    state, text = compare_two_gpus(fail)
    assert (state, "much more" in text) == ("problem", False)
    assert text.startswith("a small cube fails there: RuntimeError: no kernel image; ")
    assert "pip install 'superhosts[gpu]'" in text


def test_a_cpu_that_finds_nobody() -> None:
    assert checks.check_answer(checks.small_cube("cpu"))[0] == "ok"
    state, text = checks.check_answer(sh.Cube("1MiB", device="cpu"))
    assert (state, "please report this" in text) == ("problem", True)


def test_a_check_that_breaks(run: Run, no_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUPERHOSTS_THREADS", "two")
    ended = run("doctor")
    assert (ended.status, ended.err) == (2, "superhosts: problems found: CPU, CPU check\n")
    assert "\nproblem  CPU check" in ended.out
    assert "SUPERHOSTS_THREADS='two': must be a positive number" in ended.out
    assert [line[9:24].strip() for line in ended.out.splitlines()] == NAMES  # one that breaks does not end the list
    ended = run("doctor", "--json")
    assert (ended.status, ended.err) == (2, "superhosts: problems found: CPU, CPU check\n")
    assert [row["name"] for row in json.loads(ended.out) if row["state"] == "problem"] == ["CPU", "CPU check"]


def test_code_that_cannot_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    assert checks.CHECKS["compiled code"]()[0] == "ok"
    state, text = checks.describe_code(lambda: None)  # a function that numba does not keep
    assert (state, "NUMBA_CACHE_DIR" in text) == ("missing", True)
    monkeypatch.setitem(distrusted, "/shared/cache", "can be written by other users")
    state, text = checks.CHECKS["compiled code"]()
    assert (state, text.endswith("; /shared/cache is not used: it can be written by other users")) == ("ok", True)
    monkeypatch.setattr("numba.config.CACHE_DIR", "/proc")
    state, text = checks.CHECKS["compiled code"]()
    assert text.startswith("kept in ")
    assert (state, "kept in /proc" in text, "; /proc is not used: it cannot be written" in text) == ("ok", False, True)
    monkeypatch.setattr("numba.config.DISABLE_JIT", 1)
    assert "NUMBA_DISABLE_JIT" in checks.CHECKS["compiled code"]()[1]


@pytest.mark.slow
@pytest.mark.skipif("SUPERHOSTS_TEST_GPU" in os.environ, reason="kernels run on a real GPU")
def test_the_gpu_check_in_the_simulator() -> None:
    assert checks.gpu_check("16KiB") == ("ok", "GPU and CPU give the same bits (numba's simulator)")


KERNELS = """
import warnings
import numpy as np
from hostgpu import host_gpu
from superhosts.cli import doctor as checks
from superhosts.detectors.cube import Cube
from superhosts.detectors.cube.engine import make_on_gpu
from superhosts.detectors.engines.base import AutoGpu
from superhosts.detectors.gpu import launch
from superhosts.pipeline.settings import Settings

compiled = []

def compiler(function, arguments):
    compiled.append(function.__name__)
    return "name", b"code"

def on_auto_gpu(cube):
    auto = AutoGpu(make_on_gpu, lambda: 0)
    auto.engine(cube.engine.plan)
    auto.wait()
    made = auto.engine(cube.engine.plan)
    return None if made is None else made[0]

launch.compile_for_gpu = compiler
warnings.simplefilter("ignore")
settings = Settings()
cubes = {settings.host_format(part).key_bits: settings.make_detector(part) for part in settings.parts}
with host_gpu() as gpu:
    gpu.all_pinned = True
    checks.small_cube("cuda:0").engine.compile()
    print(sorted(cubes), [on_auto_gpu(cube) for cube in cubes.values()])
    print(*checks.compile_kernels([0], "fine"))
    count = len(compiled)
    for bits, cube in cubes.items():
        engine = on_auto_gpu(cube)
        hosts = np.zeros(9, np.uint32 if bits == 32 else np.uint64)
        engine.update_batches([(hosts, hosts)])  # as from a set of pairs
        engine.update_batches([(hosts, hosts if bits == 32 else np.zeros((9, 2), np.uint64))])  # as from packets
        engine.search(cube.search_for(1000))
    print(count > 5, len(compiled) - count)
"""


@pytest.mark.slow
def test_doctor_compiles_what_the_cubes_of_a_default_scan_need(tmp_path: Path) -> None:
    """With a stand-in for driver and compiler, in a process of its own: this one has the simulator's kernels."""
    places = {"PYTHONPATH": os.pathsep.join(sys.path), "NUMBA_CACHE_DIR": str(tmp_path)}
    ended = subprocess.run(
        [sys.executable, "-c", KERNELS],
        env={**os.environ, **places, "NUMBA_ENABLE_CUDASIM": "0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ended.stdout.splitlines() == ["[32, 64] [None, None]", "ok fine", "True 0"], ended.stderr


def test_kernels_that_cannot_be_compiled() -> None:
    state, text = checks.compile_kernels([99], "GPU and CPU give the same bits")
    assert state == "problem"
    assert text.startswith("GPU and CPU give the same bits, but the kernels of default cubes cannot be compiled: ")


# The device of scan and bench


def test_scan_on_a_gpu_that_is_not_there(run: Run, no_gpu: None, quiet: Path) -> None:
    ended = run("scan", quiet, "--device", "cuda", "--json", *SMALL)
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.count("\n") == 1
    assert "device 'cuda' cannot be used: no NVIDIA driver was found" in ended.err
    assert "pip install 'superhosts[gpu]'" in ended.err


def device_line(err: str) -> str:
    (line,) = [line for line in err.splitlines() if line.startswith("device:")]
    return line


def test_scan_says_its_device(run: Run, no_gpu: None, quiet: Path) -> None:
    line = device_line(run("scan", quiet, "--json", "-v", *SMALL).err)
    assert line == "device: cpu (auto; superhosts doctor says more about GPUs)"
    assert device_line(run("scan", quiet, "--device", "cpu", "-v", *SMALL).err) == "device: cpu"
    assert "device:" not in run("scan", quiet, *SMALL).err
    with machine_with(Driver(), StandIn()):
        assert device_line(run("scan", quiet, "-v", "--detector", "exact").err) == "device: cuda:0 (auto)"
        assert device_line(run("scan", quiet, "-v", "--detector", "exact", "--device", "cuda").err) == "device: cuda:0"


def test_bench_names_its_device(run: Run, no_gpu: None) -> None:
    small = ["--flows", "20k", "--packets", "40k", "--memory", "1MiB"]
    (figures,) = run("bench", *small, "--device", "cpu", "--json").rows
    assert figures["machine"].startswith("cpu, ")
    assert not [name for name in figures if "GPU" in name]
    refused = run("bench", *small, "--device", "cuda")
    assert (refused.status, refused.out, "pip install" in refused.err) == (2, "", True)
