"""Trace -> dependency graph -> the times it would have had after a repair."""

from detector.replay.columns import Columns
from detector.replay.condense import Condensed
from detector.replay.graph import Graph
from detector.replay.repair import Repair, joined
from detector.replay.savings import Savings, Times
from detector.replay.solve import Stuck

__all__ = ["Columns", "Condensed", "Graph", "Repair", "Savings", "Stuck", "Times", "joined"]
