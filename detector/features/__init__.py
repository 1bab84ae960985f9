"""Windows of a trace as numbers: one table of features, computed without a loop over events."""

from detector.features.extract import extract
from detector.features.measure import Feature
from detector.features.table import COLUMNS, FEATURES, VARIANTS

__all__ = ["COLUMNS", "FEATURES", "VARIANTS", "Feature", "extract"]
