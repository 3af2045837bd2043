"""Sources of traffic: a name comes in (a file, URL, pipe, folder, interface, port or topic), blocks of packets go out.

The path of a captured packet: `open.py` finds out what a name stands for, `input.py` reads the bytes, `compression.py`
decompresses them, `capture.py` reads pieces of them ahead, `walk.py` goes from record to record (`pcap.py`,
`pcapng.py`), `frames/` finds the addresses and writes columns. `readers.py` has the threads that read for a run.

Other traffic: `folder.py` follows a folder, `livecapture.py` captures interfaces, `exports/` reads flow exports,
`tables/` tables and logs, `kafka.py` topics, `synthetic/` makes traffic with a known answer. Read `base.py` first: what
a source is, and what it counts.
"""
