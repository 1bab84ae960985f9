"""The report: everything one scan of one trace found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from detector.report.events import Peaks, TopEvent
from detector.report.finding import Finding
from detector.report.job import Communication, Job
from detector.report.judging import Judging
from detector.report.ledger import LedgerRow, Summary, WindowScore
from detector.report.source import SourceInfo, Tool
from detector.taxonomy import Severity

SCHEMA = 2

LEVELS: tuple[Severity, ...] = ("info", "low", "medium", "high", "critical")
"""Severities from the least to the worst."""


@dataclass(frozen=True)
class NotChecked:
    """A pattern that this trace cannot show, or that was not asked for; never "clean"."""

    pattern: str
    """Its id."""
    because: str
    """What the trace lacks, or that select or ignore leave it out."""
    setting: str = ""
    """What to set in the profiler, or to record, so that it can be checked."""


@dataclass(frozen=True)
class Report:
    """Everything one scan of one trace found."""

    schema: Literal[2] = 2
    """Version of this format."""
    analyzable: bool = True
    """Whether the trace could be analyzed; if not, there are no findings."""
    why_not: str | None = None
    """Why it could not be analyzed."""
    record_instead: str | None = None
    """What to record so that it can."""
    tool: Tool = field(default_factory=Tool)
    """What made this report."""
    source: SourceInfo = field(default_factory=lambda: SourceInfo(""))
    """The trace that was read."""
    summary: Summary = field(default_factory=Summary)
    """The analyzed time in a few figures."""
    ledger: tuple[LedgerRow, ...] = ()
    """All analyzed time by exclusive cause, largest first."""
    unexplained: tuple[LedgerRow, ...] = ()
    """Causes of 5 % and more of the analyzed time that no finding accounts for."""
    top_kernels: tuple[TopEvent, ...] = ()
    """The kernels with the most time."""
    top_ops: tuple[TopEvent, ...] = ()
    """The ops with the most time, on the host and of what they issued to the GPU."""
    peaks: Peaks | None = None
    """What the GPU could reach; null without one, and for one that the table lacks."""
    communication: Communication | None = None
    """What the rank sends; null without a collective."""
    windows: tuple[WindowScore, ...] = ()
    """The windows that tile the analyzed time."""
    findings: tuple[Finding, ...] = ()
    """What was found, the largest estimated savings first."""
    leads: tuple[Finding, ...] = ()
    """The same for what is less likely than not."""
    judging: Judging = field(default_factory=Judging)
    """How the judge's language model was asked."""
    not_checked: tuple[NotChecked, ...] = ()
    """Patterns that this trace cannot show, or that were not asked for."""
    warnings: tuple[str, ...] = ()
    """Doubts about the trace, and what the judge could not do."""
    job: Job | None = None
    """What the ranks of one job tell together, in whose reference rank's trace all else is; null
    in the report of one trace."""
