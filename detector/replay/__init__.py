"""Trace -> dependency graph -> the times it would have had after an edit."""

from detector.replay.edits import Alter, Edit, Insert, Issue, Remove, Replace, Task, Times
from detector.replay.graph import Graph
from detector.replay.repair import Repair, joined
from detector.replay.solve import Stuck

__all__ = [
    "Alter",
    "Edit",
    "Graph",
    "Insert",
    "Issue",
    "Remove",
    "Repair",
    "Replace",
    "Stuck",
    "Task",
    "Times",
    "joined",
]
