"""Trace -> dependency graph -> the times it would have had after a repair."""

from detector.replay.graph import Graph
from detector.replay.repair import Repair, joined
from detector.replay.savings import Times
from detector.replay.solve import Stuck

__all__ = ["Graph", "Repair", "Stuck", "Times", "joined"]
