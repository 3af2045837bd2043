"""Where the state of a sketch lives, and what works on it.

Batches of pairs come in; bits, labels and zero counts go out, which are the same on every device. `base.py` has the
interfaces of engines and geometries: read it first. `bins.py` collects pairs by slice before they are written. `cpu.py`
keeps bit columns in main memory and works on them with threads. `pairset.py` is the exact set of pairs with which every
sketch begins, and `pairtable.py` has its hash tables and their loops. Engines on GPUs are in
`detectors/gpu`.
"""
