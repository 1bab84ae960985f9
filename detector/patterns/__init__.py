"""The anti-patterns, each defined in one place: what it is, where it occurs, how it is repaired.

There is one module for each family. The order of ``PATTERNS`` is the order of the models' classes:
a new pattern goes to the end of its family, and the models are trained again.
"""

from __future__ import annotations

from typing import Final

from detector.patterns.circumstances import Circumstances, circumstances_of
from detector.patterns.comm import PATTERNS as COMM
from detector.patterns.compile import PATTERNS as COMPILE
from detector.patterns.compute import PATTERNS as COMPUTE
from detector.patterns.host import PATTERNS as HOST
from detector.patterns.infer import PATTERNS as INFER
from detector.patterns.input import PATTERNS as INPUT
from detector.patterns.memory import PATTERNS as MEMORY
from detector.patterns.pattern import Advice, Cited, Kind, Occurrences, Pattern
from detector.patterns.sync import PATTERNS as SYNC
from detector.taxonomy import NONE

PATTERNS: Final = (*INPUT, *SYNC, *HOST, *MEMORY, *COMPUTE, *COMPILE, *COMM, *INFER)
BY_ID: Final = {pattern.id: pattern for pattern in PATTERNS}
IDS: Final = tuple(BY_ID)
CLASSES: Final = (*IDS, NONE)  # the classes of every model, in this order

__all__ = [
    "BY_ID",
    "CLASSES",
    "IDS",
    "PATTERNS",
    "Advice",
    "Circumstances",
    "Cited",
    "Kind",
    "Occurrences",
    "Pattern",
    "circumstances_of",
]
