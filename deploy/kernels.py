"""Write the kernels of default cubes for the wheels: python deploy/kernels.py FOLDER, from the root of the source tree.

The code is PTX, of which NVIDIA's driver makes machine code for the GPU that is there. It needs numba-cuda and NVVM
(pip install 'numba-cuda[cu12]'), but no GPU: kernels are listed by a cube on the tests' stand-in for one.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any
from unittest.mock import patch

from numba import cuda, typeof
from numba.core.types import Array
from numba.cuda import dispatcher
from numba.np.numpy_support import from_dtype

sys.path.append(str(Path(__file__).parent.parent / "tests"))

from hostgpu import host_gpu
from superhosts.core.defaults import IPV6_PREFIX
from superhosts.detectors.cube import Cube
from superhosts.detectors.gpu.launch import bind_cuda_names

LEAST = 7, 5  # compute capability: of the oldest GPUs that CUDA 12 and 13 know


def to_ptx(function: FunctionType, arguments: tuple[Any, ...]) -> tuple[str, bytes]:
    kinds = tuple(typeof(each) if isinstance(each, tuple | int) else _array(each) for each in arguments)
    oldest = SimpleNamespace(compute_capability=LEAST)
    with patch.object(dispatcher, "get_current_device", lambda: oldest):  # of functions that kernels call
        code, _ = cuda.compile_ptx(bind_cuda_names(function), kinds, cc=LEAST, device=False, abi="numba")
    (name,) = re.findall(r"\.entry (\w+)", code)
    return name, code.encode()


def _array(each: Any) -> Array:
    return Array(from_dtype(each.dtype), each.ndim, "C")


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with host_gpu():
        for bits in (32, IPV6_PREFIX):
            cube = Cube(key_bits=bits, device="cuda:0", exact=False)
            for kernel, arguments in cube.engine._needed_kernels():
                kernel.ship(folder, arguments, to_ptx)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
