"""Engines store the columns of a sketch and do the work on them: CPU threads, a GPU, or several GPUs."""
