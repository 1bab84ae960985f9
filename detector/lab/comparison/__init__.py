"""Every way to find anti-patterns on programs it never saw; ``RESULTS.md`` is what comes out."""

from detector.lab.comparison.run import StrangersExperiment

__all__ = ["StrangersExperiment"]
