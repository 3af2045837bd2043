"""Tables of connections or flows as traffic: a row is a packet from its source to its destination at its time.

An input and the caller's options (`options.py`) come in. `formats.py` recognises the format, whose reader yields blocks
of rows, and `source.py` makes packets of them: read it first. `mapping.py` finds the columns, `knownlogs.py` describes
logs as data, `times.py` and `details.py` read values, the same for every format. Readers: `delimited.py` and
`jsonlines.py` (lines come from `textreader.py`, a row is made by `textrow.py` with the help of `textscan.py`),
`azure.py`, `parquet.py` and `arrow.py`.
"""
