"""What a geometry can do, from formulas alone, and the geometry that does best: no detector is known here.

`formulas` are exact statements on one column or label. `population` says which hosts a window is expected to have.
`prediction` puts both together into rates of missed and false super hosts. `choice` searches the best geometry.
"""

from superhosts.planning.choice import Sizes, best_sizes, least_memory
from superhosts.planning.formulas import (
    SLICE_BYTES,
    Prefix,
    Shape,
    check_limits,
    column_bytes,
    prefix_test,
    shape_for,
    standard_error,
    unnamed_probability,
    zero_limit,
)
from superhosts.planning.population import Population, counted_population, population_of
from superhosts.planning.prediction import Prediction, predict

__all__ = [
    "SLICE_BYTES",
    "Population",
    "Prediction",
    "Prefix",
    "Shape",
    "Sizes",
    "best_sizes",
    "check_limits",
    "column_bytes",
    "counted_population",
    "least_memory",
    "population_of",
    "predict",
    "prefix_test",
    "shape_for",
    "standard_error",
    "unnamed_probability",
    "zero_limit",
]
