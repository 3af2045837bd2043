"""Where results go: from the super hosts of a window to rows, files, tables, receivers and alerts.

A command makes a `Report` of each window (`report.py`) and hands it to its `Destinations` (`destination.py`), which
`registry.py` opens from addresses of `--output`: files (`files.py`), standard output (`stdout.py`, with tables of
`table.py`), and receivers. Reports for receivers become batches of records (`records.py`), wait in a queue on disk, and
a thread of each delivers them (`delivery.py`) with its sender (`senders/`). `names.py` adds who hosts are, and
`alerts/` turns rows into alerts, which go to destinations of their own. Begin with `destination.py`.
"""
