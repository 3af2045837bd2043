"""Detectors against the truth and against each other: scores, experiments, figures."""
