"""Machine code of kernels is compiled once, kept on disk, and used only if it is what would be compiled now."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from types import FunctionType
from typing import Any

import numpy as np
import pytest

from hostgpu import CONTEXT, HostGpu, host_gpu
from superhosts.core.hashing import make_key
from superhosts.detectors.gpu import driver, launch
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


def test_code_of_the_package_is_for_every_gpu_and_what_it_lacks_is_compiled(load, compiler, tmp_path, monkeypatch):
    package = tmp_path / "package"
    monkeypatch.setattr(launch, "SHIPPED", package)
    (package / launch.FOR_GPUS).mkdir(parents=True)
    Kernel(make(1)).ship(package / launch.FOR_GPUS, (np.empty(4, np.uint32), make_key()), compiler)
    assert load() == load(capability=(12, 0)) == b"3 uint32"
    assert len(compiler.compiled) == 1
    assert load(step=2) == b"6 uint32"
    assert load(dtype=np.uint64) == b"3 uint64"
    assert len(compiler.compiled) == 3
    monkeypatch.setattr(sys.modules[__name__], "FACTOR", 5)
    assert load() == b"5 uint32"


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


@pytest.mark.filterwarnings("ignore:machine code cannot be kept")  # said once in a process
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
    kernels.make_count(64, tuple(geometry.edges), ON_GPU)[0],
    cbaa.make_measure(CbaaGeometry(1, 7, 5, 1, 2, 6)),
    kernels.make_merge(256),
    cuda.make_list_candidates(geometry, ON_GPU)[0],
    cuda.make_verify(geometry, ON_GPU)[0],
    cbaa.make_list_hot(DcdsGeometry()),
    cbaa.make_join(DcdsGeometry(), ON_GPU)[0],
    cbaa.make_list_hot(CbaaGeometry(1, 7, 5, 1, 2, 6)),
    cbaa.make_join(CbaaGeometry(1, 7, 5, 1, 2, 6), ON_GPU)[0],
    gse.make_update(GseGeometry(), 1),
    gse.make_search(GseGeometry()),
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
    assert ended.stdout.splitlines() == ["[]", "[1, 0, 1, 2, 1, 0, 3, 3, 0, 0]", "True"]


# The driver, called directly: arrays, streams and contexts, on a stand-in for it


@pytest.fixture
def gpu():
    with host_gpu() as stand_in:
        yield stand_in


def test_an_array_comes_back_as_it_went(gpu):
    source = np.arange(12, dtype=np.uint64).reshape(6, 2)
    array = driver.allocate(source.shape, source.dtype)
    array.copy_to_device(source)
    assert np.array_equal(array.copy_to_host(), source)
    assert np.array_equal(array[2:5].copy_to_host(), source[2:5])
    assert np.array_equal(array[2:5][1:].copy_to_host(), source[3:5])
    assert np.array_equal(array.view(np.uint32).copy_to_host(), source.reshape(-1).view(np.uint32))
    assert np.array_equal(array.reshape((12,)).copy_to_host(), source.reshape(-1))
    assert len(array[6:]) == 0
    assert len(array[6:].copy_to_host()) == 0


def test_a_view_keeps_the_memory_and_the_last_one_frees_it(gpu):
    array = driver.allocate(8, np.uint32)
    view = array[2:4].view(np.uint64)
    del array
    assert len(gpu.memory) == 1
    del view
    assert not gpu.memory
    assert gpu.names()[-3:] == ["cuCtxPushCurrent_v2", "cuMemFree_v2", "cuCtxPopCurrent_v2"]  # in any thread


def test_what_a_kernel_receives_of_an_array(gpu):
    array = driver.allocate((6, 2), np.uint64)
    assert array[2:].launch_words == (0, 0, 8, 8, array.address + 32, 4, 2, 16, 8)


def test_arrays_of_others_are_not_copied_unless_they_have_gaps(gpu):
    array = driver.allocate((6, 2), np.uint64)
    shown = driver.borrow(array)
    assert shown is not None
    assert shown.launch_words == array.launch_words

    class Column:
        def __init__(self, **more):
            self.__cuda_array_interface__ = {**array.__cuda_array_interface__, **more}

    assert driver.borrow(Column(strides=(16, 8))) is not None
    assert driver.borrow(Column(strides=(32, 8))) is None
    assert driver.borrow(Column(shape=(0, 2), strides=(32, 8), data=(0, False))) is not None


def test_an_array_without_gaps_of_the_right_size_is_wanted(gpu):
    array = driver.allocate(4, np.uint32)
    with pytest.raises(ValueError, match="12 bytes do not fill an array of 16"):
        array.copy_to_device(np.zeros(3, np.uint32))
    with pytest.raises(ValueError, match="no gaps"):
        array[::2]


def test_copies_and_zeros_on_a_stream(gpu):
    stream, array = driver.Stream(), driver.allocate(4, np.uint32)
    array.set_zero(stream.handle)
    assert not array.copy_to_host().any()
    array.copy_to_device(np.full(4, 7, np.uint32), stream=stream.handle)
    answer = driver.pinned(4, np.uint32)
    array.copy_to_host(answer, stream=stream.handle)
    assert answer.tolist() == [7] * 4
    names = "cuMemsetD8Async", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2"
    assert [gpu.calls(name)[0][-1] for name in names] == [stream.handle] * 3
    kept = len(gpu.memory)
    del answer
    assert len(gpu.memory) == kept - 1


def test_streams_and_recordings_are_given_back(gpu):
    stream = driver.Stream(waits_for_default=False)
    assert gpu.calls("cuStreamCreate")[-1][1] == driver.CU_STREAM_NON_BLOCKING
    stream.start_recording()
    recording = stream.stop_recording()
    recording.launch(stream)
    handle = stream.handle
    del stream, recording
    assert gpu.calls("cuStreamDestroy_v2") == [(handle,)]
    assert len(gpu.calls("cuGraphDestroy")) == len(gpu.calls("cuGraphExecDestroy")) == 1


def test_every_thread_enters_the_context_once(gpu):
    def work():
        for _ in range(3):
            driver.enter(0)

    before = len(gpu.calls("cuCtxSetCurrent"))
    for _ in range(2):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert gpu.calls("cuCtxSetCurrent")[before:] == [(CONTEXT,)] * 2


def test_another_gpu_is_left_again():
    with host_gpu(gpus=2) as gpu:
        with pytest.raises(ZeroDivisionError), driver.inside(1):
            raise ZeroDivisionError
        assert gpu.calls("cuCtxPushCurrent_v2") == [(CONTEXT + 1,)]
        assert gpu.names()[-1] == "cuCtxPopCurrent_v2"


def test_a_failure_names_the_call_and_the_error(monkeypatch):
    def refuse(self: HostGpu, answer: int, size: int) -> int:
        return driver.OUT_OF_MEMORY

    def name_of(self: HostGpu, status: int, name) -> None:
        name._obj.value = b"CUDA_ERROR_OUT_OF_MEMORY"

    monkeypatch.setattr(HostGpu, "_cuMemAlloc", refuse)
    monkeypatch.setattr(HostGpu, "_cuGetErrorName", name_of, raising=False)
    with host_gpu():
        text = r"the GPU driver failed: cuMemAlloc_v2 returned CUDA_ERROR_OUT_OF_MEMORY \(2\)"
        with pytest.raises(driver.DriverError, match=text) as failed:
            driver.allocate(4, np.uint32)
        assert driver.is_out_of_memory(failed.value)


def test_the_place_of_memory(gpu, monkeypatch):
    def attribute(self: HostGpu, answer: int, which: int, address: int) -> int:
        ctypes.c_uint32.from_address(answer).value = {driver.MEMORY_TYPE: 1, driver.GPU_OF_MEMORY: 3}[which]
        return 0 if address == 42 else 1  # The driver knows nothing of ordinary memory.

    monkeypatch.setattr(HostGpu, "_cuPointerGetAttribute", attribute, raising=False)
    assert driver.is_pinned(42)
    assert not driver.is_pinned(43)
    assert driver.gpu_at(42) == 3
