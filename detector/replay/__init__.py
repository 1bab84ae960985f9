"""Trace -> dependency graph -> the times it would have had after an edit."""

from detector.replay.columns import Columns
from detector.replay.condense import Condensed
from detector.replay.edits import Alter, Edit, Insert, Issue, Remove, Replace, Task, Times
from detector.replay.graph import Graph
from detector.replay.repair import Repair, joined
from detector.replay.savings import Savings
from detector.replay.solve import Stuck

__all__ = [
    "Alter",
    "Columns",
    "Condensed",
    "Edit",
    "Graph",
    "Insert",
    "Issue",
    "Remove",
    "Repair",
    "Replace",
    "Savings",
    "Stuck",
    "Task",
    "Times",
    "joined",
]
