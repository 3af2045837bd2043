"""What `superhosts doctor` says of this machine and of others, and what commands say of the device they use."""

from __future__ import annotations

import ctypes
import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_cli import SMALL

import superhosts as sh
from commands import Run
from superhosts import device
from superhosts.cli import _checks as checks
from superhosts.detectors.cube.cpu import fill
from traffic import talk, write

NAMES = [
    "versions",
    "CPU",
    "packages",
    "compiled code",
    "CPU check",
    "GPU",
    "GPU packages",
    "GPU check",
    "tables",
    "fleet",
    "batch",
]


class Driver:
    """Two GPUs, as libcuda.so.1 would tell of them."""

    start = 0  # what cuInit gives
    gpus = (("NVIDIA H200", 141 << 30, (9, 0)), ("Tesla T4", 15 << 30, (7, 5)))

    def cuInit(self, flags: int) -> int:  # noqa: N802
        return self.start

    def cuDeviceGetCount(self, count: Any) -> int:  # noqa: N802
        count._obj.value = len(self.gpus)
        return 0

    def cuDriverGetVersion(self, version: Any) -> int:  # noqa: N802
        version._obj.value = 12_040
        return 0

    def cuDeviceGet(self, gpu: Any, number: int) -> int:  # noqa: N802
        gpu._obj.value = number + 10  # a handle is not the number
        return 0

    def cuDeviceGetName(self, name: Any, size: int, gpu: int) -> int:  # noqa: N802
        assert size == len(name)
        name.value = self.gpus[gpu - 10][0].encode()
        return 0

    def cuDeviceTotalMem_v2(self, memory: Any, gpu: int) -> int:  # noqa: N802
        memory._obj.value = self.gpus[gpu - 10][1]
        return 0

    def cuDeviceGetAttribute(self, value: Any, which: int, gpu: int) -> int:  # noqa: N802
        value._obj.value = self.gpus[gpu - 10][2][{75: 0, 76: 1}[which]]
        return 0


class NoDriver(ctypes.CDLL):
    """All libraries but NVIDIA's driver."""

    def __init__(self, name: str, *options: Any, **more: Any) -> None:
        if name == "libcuda.so.1":
            raise OSError(name)
        super().__init__(name, *options, **more)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A machine without GPU, driver and packages, whatever this one has."""
    monkeypatch.delenv("NUMBA_ENABLE_CUDASIM", raising=False)
    monkeypatch.setattr(ctypes, "CDLL", NoDriver)
    real = importlib.metadata.version

    def version(name: str) -> str:
        if "cu" in name:
            raise importlib.metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    device.cuda_problem.cache_clear()
    yield
    device.cuda_problem.cache_clear()


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Two GPUs that the CPU stands for: one is right, the other does what is asked."""

    def install(second: Callable[[sh.Cube], sh.Cube]) -> None:
        real = checks._small_cube
        monkeypatch.setattr(device, "cuda_problem", lambda: None)
        monkeypatch.setattr(device, "choose_device", lambda _: "cuda:0,1")
        monkeypatch.setattr(checks, "_small_cube", lambda on: second(real("cpu")) if on == "cuda:1" else real("cpu"))

    return install


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
        name: state
        for name, (state, _) in rows.items()
        if name[:3] != "GPU" and name not in ("tables", "fleet", "batch")
    } == dict.fromkeys(["versions", "CPU", "packages", "compiled code", "CPU check"], "ok")
    assert [rows[name][0] for name in ("GPU", "GPU packages", "GPU check")] == ["missing"] * 3
    assert f"superhosts {sh.__version__}, Python {sys.version.split()[0]}" in rows["versions"][1]
    assert f"NumPy {np.__version__}, numba " in rows["packages"][1]
    assert "no NVIDIA driver was found" in rows["GPU"][1]
    assert "numba-cuda and CuPy not installed; with a GPU: pip install 'superhosts[gpu]'" in rows["GPU packages"][1]


def test_json_is_one_list(run: Run, no_gpu: None) -> None:
    ended = run("doctor", "--json")
    assert (ended.status, ended.err) == (0, "")
    (found,) = ended.rows
    assert [row["name"] for row in found] == NAMES
    assert all(list(row) == ["name", "state", "text"] and row["text"] for row in found)
    assert {row["state"] for row in found} <= {"ok", "missing"}


def test_missing_tables_name_the_command(run: Run, no_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    ended = run("doctor")
    assert ended.status == 0
    (last,) = [line for line in ended.out.splitlines() if line[9:].startswith("tables")]
    assert last.startswith("missing  tables")
    assert "Polars" in last
    assert "pip install 'superhosts[tables]'" in last


def test_the_driver_tells_of_its_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver())
    assert checks._gpu() == (
        "ok",
        "cuda:0 NVIDIA H200, 141 GiB, compute capability 9.0; "
        "cuda:1 Tesla T4, 15 GiB, compute capability 7.5; driver for CUDA 12.4",
    )
    monkeypatch.setattr(Driver, "start", 100)
    state, text = checks._gpu()
    assert (state, "sees no GPU (status 100)" in text) == ("missing", True)


def test_gpus_that_agree(two_gpus: Callable[..., None]) -> None:
    two_gpus(lambda cube: cube)
    assert checks._gpu_check()[0] == "ok"
    assert "GPU and CPU give the same bits" in checks._gpu_check()[1]


def one_pair_more(cube: sh.Cube) -> sh.Cube:
    cube.update(np.array([1], np.uint32), np.array([2], np.uint32))
    return cube


def other_labels(cube: sh.Cube) -> sh.Cube:
    arrays = {name: array.copy() for name, array in cube.arrays().items()}
    arrays["labels"].reshape(-1)[-1] ^= 1
    cube.load_arrays(arrays)
    return cube


@pytest.mark.parametrize("wrong", [one_pair_more, other_labels])
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_gpu_that_gives_other_bits(run: Run, two_gpus: Any, wrong: Any, options: list[str]) -> None:
    two_gpus(wrong)
    ended = run("doctor", *options)
    assert (ended.status, ended.err) == (2, "superhosts: problems found: GPU check\n")
    assert "cuda:1 gives other bits than the CPU" in ended.out
    if options:
        assert [row["name"] for row in json.loads(ended.out) if row["state"] == "problem"] == ["GPU check"]
    else:
        assert "\nproblem  GPU check" in ended.out


def test_hosts_are_compared_too(monkeypatch: pytest.MonkeyPatch) -> None:
    left, right = checks._small_cube("cpu"), checks._small_cube("cpu")
    assert checks.same_content(left, right)
    monkeypatch.setattr(right, "super_hosts", lambda threshold: sh.Exact().super_hosts(threshold))
    assert not checks.same_content(left, right)


def test_a_gpu_that_fails(run: Run, two_gpus: Any) -> None:
    def fail(_: sh.Cube) -> sh.Cube:
        raise RuntimeError("no kernel image\nand much more")

    two_gpus(fail)
    ended = run("doctor")
    assert (ended.status, ended.err) == (2, "superhosts: problems found: GPU check\n")
    assert "a small cube fails there: RuntimeError: no kernel image; " in ended.out
    assert "much more" not in ended.out
    assert "pip install 'superhosts[gpu]'" in ended.out


def test_a_cpu_that_fails(run: Run, no_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(checks, "_small_cube", lambda _: sh.Cube("1MiB", device="cpu"))  # nobody is found
        ended = run("doctor")
    assert (ended.status, "\nproblem  CPU check" in ended.out) == (2, True)
    monkeypatch.setenv("SUPERHOSTS_THREADS", "two")
    ended = run("doctor")
    assert (ended.status, ended.err) == (2, "superhosts: problems found: CPU, CPU check\n")
    assert "SUPERHOSTS_THREADS='two': must be a positive number" in ended.out
    assert [line[9:24].strip() for line in ended.out.splitlines()] == NAMES  # one that breaks does not end the list


def test_code_that_cannot_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fill, "_cache", object())
    state, text = checks._compiled_code()
    assert (state, "NUMBA_CACHE_DIR" in text) == ("missing", True)
    monkeypatch.setattr("numba.config.DISABLE_JIT", 1)
    assert "NUMBA_DISABLE_JIT" in checks._compiled_code()[1]


def test_the_gpu_check_in_the_simulator() -> None:
    """The real kernels, in a process of its own: numba decides on its simulator when it is imported."""
    code = "from superhosts.cli import _checks as checks; checks.MEMORY = '16KiB'; print(*checks._gpu_check())"
    ended = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ended.stdout == "ok GPU and CPU give the same bits (numba's simulator)\n", ended.stderr


# The device of scan and bench


def test_scan_on_a_gpu_that_is_not_there(run: Run, no_gpu: None, quiet: Path) -> None:
    ended = run("scan", quiet, "--device", "cuda", "--json", *SMALL)
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.count("\n") == 1
    assert "device 'cuda' cannot be used: no NVIDIA driver was found" in ended.err
    assert "pip install 'superhosts[gpu]'" in ended.err


def test_scan_on_a_device_that_nobody_knows(run: Run, quiet: Path) -> None:
    ended = run("scan", quiet, "--device", "abacus", "--json", *SMALL)
    assert (ended.status, ended.out, "unknown device 'abacus'" in ended.err) == (2, "", True)


def device_line(err: str) -> str:
    (line,) = [line for line in err.splitlines() if line.startswith("device:")]
    return line


def test_scan_says_its_device(run: Run, no_gpu: None, quiet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = device_line(run("scan", quiet, "--json", *SMALL).err)
    assert line == "device: cpu (auto; superhosts doctor says more about GPUs)"
    assert device_line(run("scan", quiet, "--device", "cpu", *SMALL).err) == "device: cpu"
    assert run("scan", quiet, "--quiet", *SMALL).err == ""
    monkeypatch.setattr(
        "superhosts.cli.scan.choose_device", lambda _: "cuda:0"
    )  # the line alone: cubes stay where they are
    assert device_line(run("scan", quiet, *SMALL).err) == "device: cuda:0 (auto)"
    assert device_line(run("scan", quiet, "--device", "cpu", *SMALL).err) == "device: cuda:0"


def test_bench_names_its_device(run: Run, no_gpu: None) -> None:
    small = ["--flows", "20k", "--packets", "40k", "--memory", "1MiB"]
    (figures,) = run("bench", *small, "--device", "cpu", "--json").rows
    assert figures["machine"].startswith("cpu, ")
    assert not [name for name in figures if "GPU" in name]
    refused = run("bench", *small, "--device", "cuda")
    assert (refused.status, refused.out, "pip install" in refused.err) == (2, "", True)
