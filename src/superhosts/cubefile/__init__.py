"""The .cube file format: a header and named arrays, compressed and checksummed.

`container.py` writes and reads files, whole or block by block, and verifies them. `header.py` is the grammar of the
header: notes about the sketch, and parts. Nothing here depends on detectors, which interpret their parts themselves.
"""
