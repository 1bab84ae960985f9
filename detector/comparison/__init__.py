"""Flaggers side by side on the splits of a built benchmark; ``RESULTS.md`` is what comes out."""

from detector.comparison.run import ComparisonExperiment

__all__ = ["ComparisonExperiment"]
