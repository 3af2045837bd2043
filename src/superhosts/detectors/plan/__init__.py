"""Predict the accuracy of a geometry from formulas, and choose the best geometry. Does not depend on any detector.

`formulas` contains exact results for one column or label. `population` models the hosts of a window, `loads` what they
put on the columns of a host. `deciding` and `naming` say how likely a host passes the threshold and is named, `work`
what a restore costs. `prediction` combines them into rates of missed and false super hosts. `choice` searches for the
best geometry.
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
    column_bytes,
    columns_in,
    prefix_test,
    saturation_point,
    shape_for,
    standard_error,
    unnamed_probability,
    zero_limit,
)
from superhosts.detectors.plan.population import Population, counted_population, population_of
from superhosts.detectors.plan.prediction import Prediction, predict
from superhosts.detectors.plan.sizes import coarsest_sample, most_peers

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
