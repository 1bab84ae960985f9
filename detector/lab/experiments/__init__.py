"""Experiments: what is trained, what it is measured on, and what is written down.

An experiment reads the tables of ``dataset.build`` and has two verbs. ``train`` writes a model
that ships; ``evaluate`` trains anew without the workloads it then measures on. Both return the
lines to print; as an ``Outcome`` these carry what the run's record keeps.
"""

from detector.lab.experiments.causal import CausalExperiment
from detector.lab.experiments.confidence import ConfidenceExperiment
from detector.lab.experiments.flagger import FlaggerExperiment
from detector.lab.experiments.judges import JudgesExperiment
from detector.lab.experiments.record import Outcome
from detector.lab.experiments.sweep import SweepExperiment

__all__ = [
    "CausalExperiment",
    "ConfidenceExperiment",
    "FlaggerExperiment",
    "JudgesExperiment",
    "Outcome",
    "SweepExperiment",
]
