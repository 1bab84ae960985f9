"""The result of a scan: all that a renderer reads.

The dataclasses mirror ``report.json`` version 2, name for name: field names are a contract.
Times are µs on the trace file's own ``ts`` axis; shares, scores and probabilities are in [0, 1].

The text below each field is what ``docs/report.md`` says of it; ``scripts/report_format.py``
writes that page.
"""

from detector.report.finding import Candidate, Claim, Finding, Fix, SourceLine, occurrences
from detector.report.ledger import LedgerPlace, LedgerRow, Summary, WindowScore
from detector.report.report import LEVELS, SCHEMA, NotChecked, Report
from detector.report.serialization import from_json, to_json
from detector.report.source import CoverageInfo, ProgramOp, SourceInfo, StepInfo, Tool

__all__ = [
    "LEVELS",
    "SCHEMA",
    "Candidate",
    "Claim",
    "CoverageInfo",
    "Finding",
    "Fix",
    "LedgerPlace",
    "LedgerRow",
    "NotChecked",
    "ProgramOp",
    "Report",
    "SourceInfo",
    "SourceLine",
    "StepInfo",
    "Summary",
    "Tool",
    "WindowScore",
    "from_json",
    "occurrences",
    "to_json",
]
