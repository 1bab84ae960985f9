"""Evidence: the numbers, names and places that a person would look at in a region."""

from detector.evidence.gather import gather, visible
from detector.evidence.sheet import Context, Evidence, EvidenceRow, Item, Place

__all__ = [
    "Context",
    "Evidence",
    "EvidenceRow",
    "Item",
    "Place",
    "gather",
    "visible",
]
