"""Detectors that others published, for comparisons with the cube: one file each, with its paper in the docstring.

In: pairs as two columns (`update`). Out: super hosts with their numbers of peers and intervals (`super_hosts`). Read
`base.py` first: it has the verbs of all of them. DCDS, VBFA and GSE run on GPUs, too, as the paper ran them.
`lab/lineup.py` lists them, `lab/scan.py` lets a scan use one as its detector.
"""

from __future__ import annotations

from importlib import import_module

from superhosts.lab import lineup
from superhosts.lab.rivals.base import Rival

RIVALS: dict[str, type[Rival]] = {
    name: getattr(import_module(f"{__name__}.{name}"), kind) for name, kind in lineup.RIVALS.items()
}
