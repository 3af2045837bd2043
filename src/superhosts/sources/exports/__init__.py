"""Flow exports: NetFlow v5 and v9, IPFIX and sFlow v5, from UDP, from captures of UDP and from files.

A datagram passes through these modules:

| step | modules |
|---|---|
| datagrams come in batches | `receiving.py` (UDP), `payloads.py` (captures), `splitting.py` (files of datagrams) |
| compiled loops read a batch | `netflow_walk.py`, `recordsets.py`, `sflow_walk.py` |
| Python reads templates and options, and keeps data without a template | `collector.py`, `templates.py`, `held.py` |
| fields become a plan for the loops | `elements.py` |
| what is known of exporters | `registry.py`, on disk `state.py` |
| sources | `udp.py`, `files.py` |
"""
