"""Comparisons of detectors with the exact answer.

In: traffic, synthetic or a user's own. Out: the scores of detectors (`compare.py`), the memory that a cube needs
(`calibrate.py`), what to expect of a planned cube (`plan.py`), scans with a rival (`scan.py`), and figures of all these
(`figures.py` and `hostfigures.py`, on the sheets of `sheet.py`).

Read `experiment.py` first: panels of detectors that see the same pairs, scored against the truth (`scores.py`).
`lineup.py` lists the detectors of a comparison; `rivals/` has those that others published, `own.py` takes those that
users write.
"""
