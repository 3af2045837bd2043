"""The GPU engine that all column sketches share: kernels, transfers from host memory, launches recorded as graphs."""
