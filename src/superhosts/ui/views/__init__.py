"""What people look at: the last windows, one host's past, questions to saved sketches.

The pages of `--web` and the terminal of `superhosts top` show the same answers, which are made here.
"""
