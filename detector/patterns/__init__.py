"""The anti-patterns, one place each: where they occur, what repairs them, what is assumed.

One module a family. ``PATTERNS`` has them in the taxonomy's order, which the models' classes
follow.
"""

from __future__ import annotations

from typing import Final

from detector.patterns.comm import PATTERNS as COMM
from detector.patterns.compile import PATTERNS as COMPILE
from detector.patterns.compute import PATTERNS as COMPUTE
from detector.patterns.host import PATTERNS as HOST
from detector.patterns.infer import PATTERNS as INFER
from detector.patterns.input import PATTERNS as INPUT
from detector.patterns.memory import PATTERNS as MEMORY
from detector.patterns.pattern import Family, Kind, Occurrences, Pattern
from detector.patterns.sync import PATTERNS as SYNC
from detector.taxonomy import IDS

_ALL: Final = (*INPUT, *SYNC, *HOST, *MEMORY, *COMPUTE, *COMPILE, *COMM, *INFER)
BY_ID: Final = {pattern.id: pattern for pattern in _ALL}
PATTERNS: Final = tuple(BY_ID[name] for name in IDS)

__all__ = ["BY_ID", "PATTERNS", "Family", "Kind", "Occurrences", "Pattern"]
