"""Metrics and health of the programs that run on: `edge`, `hub` and `watch`.

    the program's own counters  →  readings.py  →  server.py   /metrics, as Prometheus reads it
    the main loop's progress    →  health.py    →  server.py   /healthz, /readyz

Numbers are read when somebody asks, in the thread that answers, from counters that exist anyway. So the work pays
nothing for them, and an endpoint that is slow or attacked delays nothing. No label ever is an address, neither of a
host nor of a destination.
"""
