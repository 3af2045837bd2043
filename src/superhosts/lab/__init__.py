"""Comparisons of detectors with the exact answer.

In: traffic, synthetic or a user's own. Out: scores of detectors (`compare`), how well the cube does (`calibrate`), what
to expect of a planned cube (`plan`), and figures of all these.
"""
