"""What people and monitors look at: the last windows, one host's past, questions to saved sketches, metrics.

Reports come in as to any other destination (`board.py`), and sketches from a folder (`folder.py`). `view.py` puts both
together to plain objects: the answers that all viewers show. `web/` serves them to browsers, `top/` draws them in a
terminal, and RemoteFeed of `top/` asks a web address for the same answers.

`monitor.py` reads the counters of a program, and `endpoint.py` serves them to Prometheus, with liveness and readiness.
Begin with `view.py`.
"""
