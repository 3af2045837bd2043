"""Bit columns in the memory of a GPU.

`engine.py` is the engine that a sketch uses: read it first. `transfer.py` copies pairs to the GPU, `kernels.py` has the
kernels that all sketches share, `launch.py` compiles kernels, keeps them on disk and launches them, and `driver.py`
calls NVIDIA's driver, for which tests without a GPU have a stand-in that runs kernels as Python.
"""
