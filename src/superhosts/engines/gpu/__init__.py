"""What all sketches of columns share on a GPU: kernels, staging of host memory, launches recorded as graphs."""
