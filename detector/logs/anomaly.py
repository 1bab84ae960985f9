"""What is wrong in a log, a dump or a table: one line each, with the ranks and the place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "missing-rank",
    "stopped",
    "skipped-call",
    "extra-call",
    "mismatched-op",
    "mismatched-size",
    "mismatched-dtype",
    "mismatched-root",
    "few-channels",
    "low-bandwidth",
    "slow-node",
    "slow-pair",
    "failed-run",
    "late-rank",
    "hang",
    "warning",
]


@dataclass(frozen=True)
class Anomaly:
    """One thing that is not as it should be."""

    kind: Kind
    text: str
    """One sentence for a person."""
    ranks: tuple[int, ...] = ()
    """The ranks it concerns; several where one of them, and nobody can tell which."""
    where: str = ""
    """File and line, communicator or group."""
    call: int = -1
    """Which call of the rank on its communicator, from 0; -1 where it is no call."""
    line: int = 0
    """Line of the file, from 1; 0 where it is no line."""
    time: str = ""
    """The log's own time stamp; empty where it has none."""
    subject: str = ""
    """The node or nodes it names, where it is about nodes."""
