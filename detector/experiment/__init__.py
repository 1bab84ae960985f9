"""Experiments: what is trained, what it is measured on, and what is written down.

An experiment reads the tables of ``dataset.build`` and has two verbs. ``train`` writes a model
that ships; ``evaluate`` trains anew without the workloads it then measures on. Both return the
lines to print; as an ``Outcome`` these carry what the run's record keeps.
"""

from detector.experiment.flagger import FlaggerExperiment
from detector.experiment.judge import JudgeExperiment
from detector.experiment.record import Outcome
from detector.experiment.sweep import SweepExperiment
from detector.experiment.tables import PARTS, provenance, table

__all__ = [
    "PARTS",
    "FlaggerExperiment",
    "JudgeExperiment",
    "Outcome",
    "SweepExperiment",
    "provenance",
    "table",
]
