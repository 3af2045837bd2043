"""Fuzzing: cases that nobody thought of, against oracles and laws that must hold for every case.

    make fuzz MINUTES=5 SEED=1              all targets, the minutes shared out among them
    make fuzz MINUTES=5 TARGET=captures     one target
    make fuzz CASES=200                     so many cases of each target, the same on every machine
    cd tests && python -m fuzz --replay ../fuzz-failures/captures-1a2b3c4d.txt

A target is a strategy that makes cases and a check that must pass for every case (`targets.py`). Cases are plain Python
literals (bytes, numbers, text, tuples), so that a failing one can be written down, read by a person and replayed by
any later version of the code. hypothesis makes the cases and shrinks those that fail. `make test` runs every target for
a small number of cases, always the same.

A campaign runs each target in a process of its own (`campaign.py`), with numba's bounds checks on, a time limit for
each case and a limit on memory. It ends with the first failure, and the case that ended the process is saved: by an
error, a crash, or by hanging.
"""
