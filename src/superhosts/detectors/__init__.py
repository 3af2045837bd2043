"""Detectors of super hosts: pairs (host, peer) come in, hosts with their numbers of peers go out.

`detector.py` comes first: the verbs that every detector has, its operators and its files. `cube/` is the default
detector, `cbaa/` that of the paper, `exact.py` counts. Cube and CBAA share `columnsketch.py`, and `estimate.py` turns
their zero counts into peers. `engines/` and `gpu/` hold the bits and pairs, `plan/` predicts errors and chooses sizes.

A detector describes its part of a .cube file and restores itself from it; `stored.py` reads the header and builds
detectors of the classes that it is given. `registry.py` lists these classes by name.
"""
