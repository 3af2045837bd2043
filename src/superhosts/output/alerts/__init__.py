"""Alerts: from the rows of windows to a few messages that a person reads. Begin with `machine.py`."""
