"""The path of a packet: sources in, super hosts of windows and their sketches out.

`scan.py` is the run, and the file to read first: it asks sources for blocks of packets (`interleaver.py` puts files in
the order of time), splits them into windows (`windows.py`), and has the builder of each open window (`builder.py`)
turn packets into pairs (`network.py`, with `contacts.py` where it matters who opened a conversation) and pairs into a
sketch. A window that closes is searched for super hosts and yielded. `sliding.py` makes windows that overlap of
sketches of shorter ones. `settings.py` says what is looked for, and with which detector.
"""
