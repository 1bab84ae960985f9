"""The result of a scan: what every renderer reads, and nothing else does the talking.

The dataclasses mirror ``report.json`` version 2, name for name: field names are a contract.
Times are µs on the trace file's own ``ts`` axis, shares and scores are in [0, 1]; shares are of the
analyzed time. A step is named by its index into ``source.steps``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, cast

import msgspec

from detector.errors import DetectorError
from detector.taxonomy import UNCLEAR, Severity, Side

SCHEMA = 2

LEVELS: tuple[Severity, ...] = ("info", "low", "medium", "high", "critical")
"""Severities from the least to the worst."""

# Characters that a terminal obeys or that turn the direction of writing; JSON itself escapes those
# below a blank. Names keep them, as escapes: whoever reads the JSON gets the same text.
_UNSEEN = re.compile("[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")

# The parts whose keys a later version may add to: numbers there may be missing, hence null.
_FREE = frozenset({"evidence", "config"})


@dataclass(frozen=True)
class Tool:
    """What made this report: versions and the whole configuration."""

    version: str = ""
    flagger: str = ""
    judge: str = ""
    taxonomy: str = ""
    config: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class StepInfo:
    """One marked step of the trace."""

    name: str
    start_us: float
    end_us: float


@dataclass(frozen=True)
class CoverageInfo:
    """What was read of the file, mended and left out (counts by reason), and how well it links."""

    read_fraction: float = 1.0
    repaired: dict[str, int] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)
    kernels_with_launch: float = 1.0
    kernels_with_op: float = 1.0


@dataclass(frozen=True)
class SourceInfo:
    """The trace that was read; ``bytes`` of the file as stored, ``events`` of any phase."""

    path: str
    sha256: str = ""
    bytes: int = 0
    events: int = 0
    kernels: int = 0
    devices: tuple[str, ...] = ()
    rank: int | None = None
    span_us: tuple[float, float] = (0.0, 0.0)
    steps: tuple[StepInfo, ...] = ()
    coverage: CoverageInfo = field(default_factory=CoverageInfo)


@dataclass(frozen=True)
class LedgerPlace:
    """Where time of a cause goes: a source line where stacks were recorded (``line`` above 0),
    else the name of an op, call or kernel in ``function``."""

    function: str
    file: str = ""
    line: int = 0
    us: float = 0.0


@dataclass(frozen=True)
class Summary:
    """The time that was analyzed, and what the GPU did in it (on a trace without one: the CPU).

    All but the times are shares of ``analyzed_us``. ``trace_us``: the whole recording;
    ``estimated_savings_us``: of all findings together, by one replay.
    """

    analyzed_us: float = 0.0
    trace_us: float = 0.0
    gpu_busy: float = 0.0
    exposed_copy: float = 0.0
    exposed_comm: float = 0.0
    gpu_idle: float = 0.0
    estimated_savings_us: float = 0.0


@dataclass(frozen=True)
class LedgerRow:
    """Time of one exclusive cause; the rows of a ledger add up to the analyzed time.

    ``group``: "busy", "exposed", "host", "device" or "unexplained"; ``where``: most time first.
    """

    cause: str
    label: str
    group: str
    us: float
    share: float
    where: tuple[LedgerPlace, ...] = ()


@dataclass(frozen=True)
class WindowScore:
    """One window and how suspicious it is; ``step`` is an index into ``source.steps``."""

    start_us: float
    end_us: float
    step: int | None = None
    score: float = 0.0
    cpu_score: float = 0.0
    gpu_score: float = 0.0


@dataclass(frozen=True)
class SourceLine:
    """A place in the profiled program, as the trace names it."""

    file: str
    line: int
    function: str = ""


@dataclass(frozen=True)
class Fix:
    """What to change: one sentence, a few lines of code, and where."""

    summary: str = ""
    code: str = ""
    where: tuple[SourceLine, ...] = ()


@dataclass(frozen=True)
class Candidate:
    """A pattern that was considered, and how likely it was held to be."""

    pattern: str
    probability: float


@dataclass(frozen=True)
class Finding:
    """One pattern in one place: where, how sure, what it costs, what to change.

    ``start_us`` and ``end_us`` span every occurrence; ``evidence["occurrences"]`` lists each as
    ``{"start_us": …, "end_us": …}``. ``steps`` are indices into ``source.steps``.

    ``estimated_savings_us`` is by counterfactual: the trace replayed without the fault. It lies in
    ``savings_range_us``, from what is saved with all other findings repaired to what is saved
    alone; ``share`` is it over ``summary.analyzed_us``. ``assumes``: what the replay takes for
    granted. ``kind``: "fault" (done wrong here) or "opportunity" (a known better way).
    ``pattern`` is a row of the taxonomy, or "unclear" where no judge could say; ``candidates``
    then tell more.
    """

    id: str
    pattern: str
    side: Side
    start_us: float
    end_us: float
    steps: tuple[int, ...] = ()
    score: float = 0.0
    confidence: float = 0.0
    severity: Severity = "info"
    kind: Literal["fault", "opportunity"] = "fault"
    estimated_savings_us: float = 0.0
    savings_range_us: tuple[float, float] = (0.0, 0.0)
    share: float = 0.0
    assumes: str = ""
    occurrences: int = 1
    evidence: dict[str, object] = field(default_factory=dict)
    explanation: str = ""
    fix: Fix = field(default_factory=Fix)
    candidates: tuple[Candidate, ...] = ()


@dataclass(frozen=True)
class NotChecked:
    """A pattern this trace cannot show, and why. Never the same as "clean"."""

    pattern: str
    because: str


@dataclass(frozen=True)
class Report:
    """Everything one scan of one trace found.

    Where the trace cannot be analyzed, ``why_not`` says why and ``record_instead`` what would help;
    there are no findings then. ``ledger`` has all analyzed time, ``unexplained`` its larger causes
    that no finding accounts for, ``leads`` findings of less than even confidence.
    """

    schema: Literal[2] = 2
    analyzable: bool = True
    why_not: str | None = None
    record_instead: str | None = None
    tool: Tool = field(default_factory=Tool)
    source: SourceInfo = field(default_factory=lambda: SourceInfo(""))
    summary: Summary = field(default_factory=Summary)
    ledger: tuple[LedgerRow, ...] = ()
    unexplained: tuple[LedgerRow, ...] = ()
    windows: tuple[WindowScore, ...] = ()
    findings: tuple[Finding, ...] = ()
    leads: tuple[Finding, ...] = ()
    not_checked: tuple[NotChecked, ...] = ()
    warnings: tuple[str, ...] = ()


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


def reaches(report: Report, level: Severity) -> bool:
    """Whether any finding is at least as severe as ``level``; what stayed unclear never is."""
    least = LEVELS.index(level)
    return any(LEVELS.index(f.severity) >= least for f in report.findings if f.pattern != UNCLEAR)


def to_json(report: Report) -> str:
    """``report.json``, indented. Never writes NaN or infinity.

    A number that is not finite becomes null in ``evidence`` and ``config``; anywhere else it is a
    fault of this program and raises ValueError naming the field.
    """
    plain = _clean(msgspec.to_builtins(report, enc_hook=_foreign), "report", free=False)
    text = msgspec.json.format(msgspec.json.encode(plain), indent=2).decode() + "\n"
    return _UNSEEN.sub(lambda m: f"\\u{ord(m[0]):04x}", text)


def from_json(text: str | bytes) -> Report:
    """Read what ``to_json`` wrote. Raises DetectorError when it is not a report of schema 1."""
    try:
        return msgspec.json.decode(text, type=Report)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DetectorError(f"not a report of schema {SCHEMA}: {error}") from error


def _foreign(value: object) -> object:
    """Numpy's scalars and arrays, told by what they can do, so that numpy is not needed here."""
    for way in ("tolist", "item"):
        if callable(method := getattr(value, way, None)):
            return cast(object, method())
    return str(value)


def _clean(value: object, place: str, *, free: bool) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        if free:
            return None
        raise ValueError(f"{place} is {value}, which JSON cannot hold")
    if isinstance(value, str):
        # A lone surrogate is a byte that was no UTF-8 in the trace; JSON cannot hold it either.
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return float(value) if abs(value) < 2**1023 else str(value)
    if isinstance(value, dict):
        return {
            cast(str, _clean(str(key), place, free=True)): _clean(
                item, f"{place}.{key}", free=free or key in _FREE
            )
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_clean(item, f"{place}[{i}]", free=free) for i, item in enumerate(value)]
    return value
