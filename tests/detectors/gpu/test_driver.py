"""NVIDIA's driver, called directly: arrays, streams and contexts, on a stand-in for the driver."""

from __future__ import annotations

import ctypes
import threading

import numpy as np
import pytest

from hostgpu import CONTEXT, HostGpu, host_gpu
from superhosts.detectors.gpu import driver


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
