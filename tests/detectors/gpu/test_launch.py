"""Machine code of kernels is compiled once, kept on disk, and used only if it is what would be compiled now."""

from __future__ import annotations

import os
import subprocess
import sys
from types import FunctionType
from typing import Any

import numpy as np
import pytest

from hostgpu import host_gpu
from superhosts.core.hashing import make_key
from superhosts.detectors.gpu import driver
from superhosts.detectors.gpu.launch import MOST_FILES, Kernel, kind_of

FACTOR = 3


def make(step: int) -> FunctionType:
    def kernel(numbers: Any, key: Any) -> None:
        numbers[0] = step * FACTOR

    return kernel


class Compiler:
    """Makes machine code that says what it was made from."""

    def __init__(self) -> None:
        self.compiled: list[tuple[str, bytes]] = []

    def __call__(self, function: FunctionType, arguments: tuple[Any, ...]) -> tuple[str, bytes]:
        words: list[Any] = [None]
        function(words, None)
        self.compiled.append((f"name{len(self.compiled)}", f"{words[0]} {arguments[0].dtype}\0\xff".encode("latin1")))
        return self.compiled[-1]


@pytest.fixture
def compiler():
    return Compiler()


@pytest.fixture
def load(compiler, tmp_path):
    """Return a function that loads a kernel in a process of its own, as far as the kernel knows."""

    def call(step: int = 1, dtype: Any = np.uint32, **gpu: Any) -> bytes:
        with host_gpu(**gpu) as stand_in:
            arguments = driver.allocate(4, dtype), make_key()
            kernel = Kernel(make(step), compiler, tmp_path)
            kernel.load(0, arguments)
            assert kernel.load(0, arguments) is kernel.load(0, arguments)
            assert kernel.is_on_disk(0, arguments)
            return stand_in.images[-1]

    return call


def test_the_second_process_compiles_nothing_and_loads_the_same_code(load, compiler):
    assert load() == load() == b"3 uint32"
    assert len(compiler.compiled) == 1


def test_other_constants_types_and_gpus_are_compiled_and_all_are_kept(load, compiler, monkeypatch):
    ways = [{}, {"step": 2}, {"dtype": np.uint64}, {"capability": (8, 9)}]
    for _ in range(2):
        assert [load(**way) for way in ways] == [b"3 uint32", b"6 uint32", b"3 uint64", b"3 uint32"]
    assert len(compiler.compiled) == 4
    monkeypatch.setattr(sys.modules[__name__], "FACTOR", 5)
    assert load() == b"5 uint32"


def test_code_that_the_driver_refuses_is_compiled_again(load, compiler, tmp_path):
    load()
    with host_gpu() as stand_in:
        stand_in.refuses_code = True
        with pytest.raises(driver.DriverError, match="cuModuleLoadData"):
            Kernel(make(1), compiler, tmp_path).load(0, (driver.allocate(4, np.uint32), make_key()))
    assert len(compiler.compiled) == 2


def test_files_that_were_not_used_for_long_are_removed(load, compiler, tmp_path):
    load(0)
    (oldest,) = tmp_path.glob("*.cubin")
    load(1)
    for path in tmp_path.glob("*.cubin"):
        made = 1000 if path == oldest else 2000
        os.utime(path, (made, made))
    load(0)
    for step in range(2, MOST_FILES + 1):
        load(step)
    assert len(list(tmp_path.glob("*.cubin"))) == MOST_FILES
    count = len(compiler.compiled)
    load(0)
    assert len(compiler.compiled) == count
    load(1)
    assert len(compiler.compiled) == count + 1


def test_without_a_place_to_write_kernels_are_compiled_in_every_process(compiler, tmp_path):
    (tmp_path / "file").touch()
    for _ in range(2):
        with host_gpu():
            kernel = Kernel(make(1), compiler, tmp_path / "file")
            arguments = driver.allocate(4, np.uint32), make_key()
            kernel.load(0, arguments)
            assert not kernel.is_on_disk(0, arguments)
    assert len(compiler.compiled) == 2


def test_types_of_arguments_are_told_apart():
    key = make_key()
    kinds = [kind_of(each) for each in (key, key._replace(pair=()), (1, 2), 1, np.zeros(3, np.uint32))]
    kinds += [kind_of(np.zeros((3, 2), np.uint32)), kind_of(np.zeros(3, np.int32))]
    assert len(set(map(repr, kinds))) == len(kinds)
    assert kind_of(np.zeros(5, np.uint32)) == kind_of(np.zeros(0, np.uint32))


REAL = """
import sys
from superhosts.jit.cache import stamp_of
from superhosts.detectors.cube import Geometry, cuda
from superhosts.detectors.cbaa import Geometry as CbaaGeometry, cuda as cbaa
from superhosts.lab.rivals.dcds import Geometry as DcdsGeometry
from superhosts.lab.rivals.gse import Geometry as GseGeometry
from superhosts.lab.rivals import gse
from superhosts.detectors.gpu import kernels, launch
from superhosts.detectors.gpu.launch import ON_GPU

geometry = Geometry(32, 1, 3, 6, 5, 1, 0, giants=1)
put = cuda.make_put(geometry)
made = [
    kernels.make_update(put, 32, 1, 1),
    kernels.make_tiles(1, 5, ON_GPU),
    kernels.make_fill(put, 5, ON_GPU),
    kernels.make_count(64, ON_GPU)[0],
    kernels.make_sum_zeros(tuple(geometry.edges), ON_GPU)[0],
    kernels.make_measure(cuda.make_column_of(geometry, giant=True), cuda.make_read(geometry), 3, 64),
    kernels.make_merge(256),
    cuda.make_list_candidates(geometry, ON_GPU)[0],
    cuda.make_verify(geometry, ON_GPU)[0],
    cbaa.make_list_hot(DcdsGeometry()),
    cbaa.make_join(DcdsGeometry(), ON_GPU)[0],
    cbaa.make_list_hot(CbaaGeometry(1, 7, 5, 1, 2, 6)),
    cbaa.make_join(CbaaGeometry(1, 7, 5, 1, 2, 6), ON_GPU)[0],
    gse.make_update(GseGeometry(), 1),
    gse.make_search(GseGeometry()),
    gse.make_measure(GseGeometry()),
]
assert len({stamp_of(each.function) for each in made}) == len(made)
print([name for name in sys.modules if name == "cupy" or name.startswith("numba.cuda")])
copies = [launch.bind_cuda_names(each.function) for each in made]
from numba import cuda as numba_cuda
from numba.cuda.dispatcher import CUDADispatcher
assert all(copy.__globals__["cuda"] is numba_cuda for copy in copies)
assert made[0].function.__globals__["cuda"] is not numba_cuda
def found(function):
    values = [cell.cell_contents for cell in function.__closure__ or ()]
    return [each for each in values if isinstance(each, CUDADispatcher)]
print([len(found(copy)) for copy in copies[:10]])
print(isinstance(found(copies[0])[0].py_func.__globals__["draw_of"], CUDADispatcher))
"""


@pytest.mark.slow
def test_kernels_get_their_meaning_only_from_the_compiler():
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "0"}
    ended = subprocess.run([sys.executable, "-c", REAL], env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == ["[]", "[1, 0, 1, 1, 1, 2, 0, 3, 3, 0]", "True"]
