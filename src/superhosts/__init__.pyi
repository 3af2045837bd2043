"""The public names, each with the module that defines it: for type checkers, and for `__getattr__` in `__init__.py`."""

from superhosts.core.keys import own_key as own_key
from superhosts.core.pairs import PacketBatch as PacketBatch
from superhosts.core.pairs import PairBatch as PairBatch
from superhosts.core.pairs import Part as Part
from superhosts.core.pairs import Window as Window
from superhosts.core.results import SuperHost as SuperHost
from superhosts.core.results import SuperHosts as SuperHosts
from superhosts.detectors.cbaa import Cbaa as Cbaa
from superhosts.detectors.cube import Cube as Cube
from superhosts.detectors.cube import Geometry as Geometry
from superhosts.detectors.detector import Detector as Detector
from superhosts.detectors.exact import Exact as Exact
from superhosts.detectors.stream import Stream as Stream
from superhosts.errors import GeometryError as GeometryError
from superhosts.errors import InputError as InputError
from superhosts.errors import MergeError as MergeError
from superhosts.errors import SketchFileError as SketchFileError
from superhosts.errors import SuperhostsError as SuperhostsError
from superhosts.errors import ThresholdWarning as ThresholdWarning
from superhosts.errors import UsageError as UsageError
from superhosts.lab.calibrate import Calibration as Calibration
from superhosts.lab.calibrate import calibrate as calibrate
from superhosts.lab.compare import Comparison as Comparison
from superhosts.lab.compare import compare as compare
from superhosts.lab.own import OwnDetector as OwnDetector
from superhosts.lab.plan import Plan as Plan
from superhosts.lab.plan import plan as plan
from superhosts.lab.rivals.dcds import Dcds as Dcds
from superhosts.lab.rivals.filter import Filter as Filter
from superhosts.lab.rivals.gse import Gse as Gse
from superhosts.lab.rivals.pairsample import PairSample as PairSample
from superhosts.lab.rivals.rgs import Rgs as Rgs
from superhosts.lab.rivals.spreadsketch import SpreadSketch as SpreadSketch
from superhosts.lab.rivals.vbfa import Vbfa as Vbfa
from superhosts.lab.scan import scan as scan
from superhosts.pipeline.network import Network as Network
from superhosts.pipeline.scan import Scan as Scan
from superhosts.pipeline.settings import Settings as Settings
from superhosts.sketch.sketch import Sketch as Sketch
from superhosts.sketch.sketch import load as load
from superhosts.sketch.sketch import union as union
from superhosts.sources.synthetic.capture import synth as synth

__version__: str
