"""Predict the accuracy of a geometry from formulas, and choose the best geometry. Does not depend on any detector.

In: the expected flows of a window, a threshold, and a memory or an error. Out: a geometry, and the rates of missed and
false super hosts to expect of it. Read `prediction` first. `formulas` contains exact results for one column or label,
`population` models the hosts of a window and what they put on the columns of a host, `decision` says how likely a host
is named and passes the threshold. `prediction` combines them, `choice` searches for the best geometry.
"""

from superhosts.detectors.plan.choice import Sizes, best_sizes, check_suffices, least_memory
from superhosts.detectors.plan.formulas import (
    MISS_EXPONENT,
    SLACK,
    SLICE_BYTES,
    Columns,
    Prefix,
    Shape,
    check_limits,
    coarsest_sample,
    column_bytes,
    columns_in,
    most_peers,
    prefix_test,
    saturation_point,
    shape_for,
    standard_error,
    unnamed_probability,
    zero_limit,
)
from superhosts.detectors.plan.population import Population, counted_population, population_of
from superhosts.detectors.plan.prediction import Prediction, predict

__all__ = [
    "MISS_EXPONENT",
    "SLACK",
    "SLICE_BYTES",
    "Columns",
    "Population",
    "Prediction",
    "Prefix",
    "Shape",
    "Sizes",
    "best_sizes",
    "check_limits",
    "check_suffices",
    "coarsest_sample",
    "column_bytes",
    "columns_in",
    "counted_population",
    "least_memory",
    "most_peers",
    "population_of",
    "predict",
    "prefix_test",
    "saturation_point",
    "shape_for",
    "standard_error",
    "unnamed_probability",
    "zero_limit",
]
