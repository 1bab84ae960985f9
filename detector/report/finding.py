"""A finding: where a pattern occurs, how sure that is, what its repair saves, what to change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from detector.report.events import Excerpt
from detector.taxonomy import Severity, Side


@dataclass(frozen=True)
class SourceLine:
    """A place in the profiled program, as the trace names it."""

    file: str
    """Path of the file."""
    line: int
    """Line of the call, or of the function's definition."""
    function: str = ""
    """Name of the function."""


@dataclass(frozen=True)
class Fix:
    """What to change."""

    summary: str = ""
    """In a sentence or two."""
    code: str = ""
    """A few lines that show it."""
    where: tuple[SourceLine, ...] = ()
    """Where to look, the likeliest place first."""
    module: tuple[str, ...] = ()
    """The path of the module to look in, the outermost first; empty where modules hold little."""


@dataclass(frozen=True)
class Candidate:
    """A pattern that the judge considered."""

    pattern: str
    """Its id, or ``none``: no fault."""
    probability: float
    """How likely it is."""


@dataclass(frozen=True)
class Claim:
    """A number of the evidence that an explanation rests on."""

    label: str
    """Label of the measure."""
    value: float
    """Its value; shares in [0, 1]."""


@dataclass(frozen=True)
class Finding:
    """One pattern: where it occurs, how sure that is, what its repair saves, what to change."""

    id: str
    """Names pattern and place in the code; the same in every recording of the program."""
    pattern: str
    """Id of the pattern."""
    side: Side
    """Who has to change: the host's program (``cpu``) or the work on the GPU (``gpu``)."""
    start_us: float
    """Start of its first occurrence."""
    end_us: float
    """End of its last occurrence."""
    steps: tuple[int, ...] = ()
    """Indices into ``source.steps`` of the steps it occurs in."""
    score: float = 0.0
    """Highest score of a window it occurs in."""
    confidence: float = 0.0
    """How likely the pattern is the matter here."""
    severity: Severity = "info"
    """By ``share``: info from 1 %, low from 3 %, medium from 5 %, high from 10 %, critical from
    20 %."""
    kind: Literal["fault", "opportunity"] = "fault"
    """Fault: done wrong here. Opportunity: a known better way."""
    estimated_savings_us: float = 0.0
    """By counterfactual: how much shorter the replayed trace is without the pattern."""
    savings_range_us: tuple[float, float] = (0.0, 0.0)
    """What is likely saved: from when all other findings are repaired to when none is, widened by
    how far replays of the pattern were off for known faults; four of five lay inside."""
    savings_alone_us: float = 0.0
    """What the replay saves when this pattern alone is repaired; 0 where it was not replayed so."""
    by_step_us: tuple[float, ...] = ()
    """What each of ``source.steps`` gains alone; empty without steps."""
    share: float = 0.0
    """Estimated savings over the analyzed time."""
    assumes: str = ""
    """What the estimate assumes."""
    occurrences: int = 1
    """How often the pattern occurs."""
    evidence: dict[str, object] = field(default_factory=dict)
    """Measures by key, each with ``label``, ``value``, ``unit`` and ``rest``, its baseline: the
    same outside the place; ``top_features``: what the score went by; ``occurrences``: a list of
    ``{"start_us", "end_us"}``."""
    explanation: str = ""
    """Why this is the pattern."""
    claims: tuple[Claim, ...] = ()
    """The measures that the explanation rests on, with their values in the evidence."""
    judged_by: str = ""
    """The judge whose verdict this is; why the embedded judge's stands in for another's, or that
    the other does not confirm it. Empty where no judge was asked about the place."""
    fix: Fix = field(default_factory=Fix)
    """What to change, and where."""
    candidates: tuple[Candidate, ...] = ()
    """The patterns that were considered."""
    excerpt: Excerpt | None = None
    """Events around its costliest place; null for leads."""
    ranks: tuple[int, ...] = ()
    """The ranks of a job that show it, first the one whose times and figures these are; empty in
    the report of one trace."""


def occurrences(finding: Finding) -> tuple[tuple[float, float], ...]:
    """The (start, end) of each occurrence in µs; the whole span where none are listed."""
    listed = finding.evidence.get("occurrences")
    spans = []
    for item in listed if isinstance(listed, list | tuple) else ():
        if isinstance(item, Mapping):
            start, end = item.get("start_us"), item.get("end_us")
            if isinstance(start, int | float) and isinstance(end, int | float):
                spans.append((float(start), float(end)))
    return tuple(spans) or ((finding.start_us, finding.end_us),)
