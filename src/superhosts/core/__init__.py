"""What every other room needs: the data that flows through a run, and small tools.

Read `pairs.py` first: packets and pairs as columns of integers, and how these represent hosts. `hashing.py` has the
keyed hashes, `keys.py` finds the secret key, `textkeys.py` makes hosts of text. `prefixes.py` and `lens.py` say which
packets count. `columns/` reads whatever callers have as columns of addresses. `results.py` is what every search
returns: super hosts as rows, columns and tables.

The tools: `device.py` (threads and GPUs), `files.py` (files that appear whole and survive a power failure), `fields.py`
(checks of untrusted JSON), `filetypes.py` (what an unreadable file looks like), `profile.py` (where the time goes),
`times.py`, `units.py`, `text.py`, `defaults.py`, `kafkaclient.py`.
"""
