"""The result of a scan: all that a renderer reads.

The dataclasses mirror ``report.json`` version 2, name for name: field names are a contract.
Times are µs on the trace file's own ``ts`` axis; shares, scores and probabilities are in [0, 1].

The text below each field is what ``docs/report.md`` says of it; ``scripts/report_format.py``
writes that page.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from detector.errors import DetectorError
from detector.report.events import Excerpt, Peaks, TopEvent
from detector.report.job import Communication, Job
from detector.report.json_values import plain
from detector.report.judging import Judging
from detector.taxonomy import Severity, Side

SCHEMA = 2

LEVELS: tuple[Severity, ...] = ("info", "low", "medium", "high", "critical")
"""Severities from the least to the worst."""

# Characters that a terminal obeys or that turn the direction of writing; JSON itself escapes those
# below a blank. Names keep them, as escapes: whoever reads the JSON gets the same text.
_UNSEEN = re.compile("[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")

# A list of numbers goes on one line. A line break of the indented text is never inside a string.
_NUMBERS = re.compile(r"\[\n\s+([-+.\deE]+(?:,\n\s+[-+.\deE]+)*)\n\s+\]")
_BREAK = re.compile(r",\n\s+")


@dataclass(frozen=True)
class Tool:
    """What made this report: versions and the whole configuration."""

    version: str = ""
    """Of this program."""
    flagger: str = ""
    """Name and version of the model that scores windows."""
    confidence: str = ""
    """Name and version of the model that says how sure a candidate is."""
    judge: str = ""
    """Name and version of the judge."""
    taxonomy: str = ""
    """Hash of the pattern ids that these models know."""
    config: dict[str, object] = field(default_factory=dict)
    """The configuration of the scan, without secrets."""


@dataclass(frozen=True)
class StepInfo:
    """One step of the analyzed time."""

    name: str
    """As marked in the trace, or ``iteration N``, ``burst N`` where steps were not marked."""
    start_us: float
    """Its start."""
    end_us: float
    """Its end."""


@dataclass(frozen=True)
class CoverageInfo:
    """What was read of the file, repaired and left out, and how well it links."""

    read_fraction: float = 1.0
    """Share of the file's events that could be read."""
    repaired: dict[str, int] = field(default_factory=dict)
    """Reason and count of what was repaired while reading."""
    dropped: dict[str, int] = field(default_factory=dict)
    """Reason and count of what was left out."""
    kernels_with_launch: float = 1.0
    """Share of the GPU's events whose launch was recorded."""
    kernels_with_op: float = 1.0
    """Share of the GPU's events whose op was recorded."""


@dataclass(frozen=True)
class ProgramOp:
    """A matrix product, convolution or embedding of the program: no repair changes these."""

    name: str
    """Name of the op."""
    shapes: str
    """Shapes of its inputs as the trace gives them; empty where they were not recorded."""
    calls: float
    """Calls in a step; in all analyzed time where there are no steps."""


@dataclass(frozen=True)
class SourceInfo:
    """The trace that was read."""

    path: str
    """As the user named it; ``<stdin>`` for standard input."""
    sha256: str = ""
    """Of the file as stored."""
    bytes: int = 0
    """Size of the file as stored."""
    events: int = 0
    """Events of any phase in the file."""
    kernels: int = 0
    """Kernels among them."""
    devices: tuple[str, ...] = ()
    """Names of the devices, as the trace gives them."""
    rank: int | None = None
    """Rank of the process in its job; null where the trace does not say."""
    span_us: tuple[float, float] = (0.0, 0.0)
    """First and last instant of the trace."""
    steps: tuple[StepInfo, ...] = ()
    """The steps of the analyzed time, without warm-up."""
    program: tuple[ProgramOp, ...] = ()
    """What the program computes, the most frequent first: two traces compare where this agrees."""
    coverage: CoverageInfo = field(default_factory=CoverageInfo)
    """What could be read of the file."""


@dataclass(frozen=True)
class LedgerPlace:
    """Where time of a cause goes: a source line where stacks were recorded, else an event."""

    function: str
    """Name of the function; without ``line``: of the op, call or kernel."""
    file: str = ""
    """Its file; empty without stacks."""
    line: int = 0
    """Its line; 0 without stacks."""
    us: float = 0.0
    """Time of the cause that goes here."""


@dataclass(frozen=True)
class Summary:
    """The time that was analyzed, and what the GPU did in it (on a trace without one: the CPU).

    Shares are of ``analyzed_us``.
    """

    analyzed_us: float = 0.0
    """Length of the analyzed time."""
    trace_us: float = 0.0
    """Length of the whole trace."""
    gpu_busy: float = 0.0
    """Share in which the GPU runs anything at all."""
    exposed_copy: float = 0.0
    """Share of copies that no compute hides."""
    exposed_comm: float = 0.0
    """Share of communication that no compute hides."""
    gpu_idle: float = 0.0
    """Share in which the GPU runs nothing."""
    estimated_savings_us: float = 0.0
    """What all findings save together."""


@dataclass(frozen=True)
class LedgerRow:
    """Time of one exclusive cause; the rows of a ledger add up to the analyzed time."""

    cause: str
    """Id of the cause, stable over versions."""
    label: str
    """The same in words."""
    group: str
    """``busy``: it computes; ``exposed``: a copy or communication that nothing hides; ``host``:
    idle, the host is late; ``device``: idle, although work was launched; ``unexplained``."""
    us: float
    """Time of the cause."""
    share: float
    """The same over the analyzed time."""
    where: tuple[LedgerPlace, ...] = ()
    """Where it goes, most time first."""
    by_step_us: tuple[float, ...] = ()
    """Time of the cause in each of ``source.steps``; empty without steps."""


@dataclass(frozen=True)
class WindowScore:
    """One window of the analyzed time and how suspicious it is."""

    start_us: float
    """Its start."""
    end_us: float
    """Its end."""
    step: int | None = None
    """Index into ``source.steps``; null where there are no steps."""
    score: float = 0.0
    """The higher of the two scores."""
    cpu_score: float = 0.0
    """How suspicious the host side is."""
    gpu_score: float = 0.0
    """How suspicious the GPU side is."""


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


def to_json(report: Report) -> str:
    """``report.json``, indented. Never writes NaN or infinity.

    A number that is not finite becomes null in ``evidence`` and ``config``; anywhere else it is a
    fault of this program and raises ValueError naming the field.
    """
    encoded = msgspec.json.encode(plain(report, "report"))
    text = msgspec.json.format(encoded, indent=2).decode() + "\n"
    text = _NUMBERS.sub(lambda m: f"[{_BREAK.sub(', ', m[1])}]", text)
    return _UNSEEN.sub(lambda m: f"\\u{ord(m[0]):04x}", text)


class _Marked(msgspec.Struct):
    """What every report says of itself; a Report alone would take any object for an empty one."""

    schema: Literal[2]


def from_json(text: str | bytes) -> Report:
    """Read what ``to_json`` wrote. Raises DetectorError when it is no report of version 2."""
    try:
        msgspec.json.decode(text, type=_Marked)
        return msgspec.json.decode(text, type=Report)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DetectorError(f"not a report of schema {SCHEMA}: {error}") from error
