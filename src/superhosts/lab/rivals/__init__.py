"""Detectors that others published, for comparisons with the cube: one file each, with its paper in the docstring.

In: pairs as two columns (`update`). Out: super hosts with their numbers of peers and intervals (`super_hosts`). Read
`base.py` first: it has the verbs of all of them. DCDS, VBFA and GSE run on GPUs, too, as the paper ran them.
`lab/scan.py` lets a scan use a rival as its detector.
"""

from __future__ import annotations

from superhosts.lab.rivals.base import Rival
from superhosts.lab.rivals.dcds import Dcds
from superhosts.lab.rivals.filter import Filter
from superhosts.lab.rivals.gse import Gse
from superhosts.lab.rivals.pairsample import PairSample
from superhosts.lab.rivals.rgs import Rgs
from superhosts.lab.rivals.spreadsketch import SpreadSketch
from superhosts.lab.rivals.vbfa import Vbfa

RIVALS: dict[str, type[Rival]] = {kind.name: kind for kind in (Dcds, Vbfa, Gse, Filter, SpreadSketch, PairSample, Rgs)}
