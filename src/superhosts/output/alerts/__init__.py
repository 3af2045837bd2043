"""Alerts: from the rows of windows to a few messages that a person reads.

`rules.py` says what a configuration wants, `machine.py` decides, `store.py` keeps alerts in a SQLite file and hands
them to their destinations. Begin with `machine.py`.
"""
