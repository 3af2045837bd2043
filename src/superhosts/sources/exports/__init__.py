"""Flow exports: NetFlow v5 and v9, IPFIX and sFlow v5, from UDP, from captures of UDP and from files.

Datagrams come in batches, from sockets (`udp.py`) or from captures and files of datagrams (`files.py`, cut by
`containers.py`), and leave as blocks of packets: a record of a flow is a packet. Read `collector.py` first. It gives a
batch to a compiled walk (`walks.py`) and does what the walk leaves: it reads templates and
options, and keeps data that came before its template. `registry.py` knows the exporters, in memory and on disk;
`layout.py` has the arrays that Python and walks share, and makes a plan for the walk of a template's fields.
"""
