"""A trace's graph with events put in, replaced, altered or taken out, and the times that come out.

The detector's own replay (``detector.replay``) only takes things out or shortens them.
"""

from dataset.replay.edits import Alter, Edit, EditedTimes, Insert, Issue, Remove, Replace, Task
from dataset.replay.program import EditableGraph

__all__ = [
    "Alter",
    "Edit",
    "EditableGraph",
    "EditedTimes",
    "Insert",
    "Issue",
    "Remove",
    "Replace",
    "Task",
]
