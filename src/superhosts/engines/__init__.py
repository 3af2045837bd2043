"""Where the columns of a sketch live and who works on them: threads of the CPU, a GPU, or several GPUs."""
