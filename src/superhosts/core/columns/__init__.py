"""Any column of addresses to integers.

What callers have (arrays, lists, data frames, Arrow, DuckDB, tables) comes into `readers.py` and becomes
a `Column` (`column.py`): integers, text, bytes or addresses, and which rows are null. `addresses.py` parses text in
compiled loops and makes packets of rows. `hosts.py` makes of a column the hosts and peers that a detector takes. Errors
name the column and the row. Read `column.py` first.
"""
