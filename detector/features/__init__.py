"""Windows of a trace as numbers: a table of features, computed without a loop over events."""

from detector.features.extract import extract
from detector.features.measure import Feature
from detector.features.table import COLUMNS, FEATURES, VARIANTS, in_words

__all__ = ["COLUMNS", "FEATURES", "VARIANTS", "Feature", "extract", "in_words"]
