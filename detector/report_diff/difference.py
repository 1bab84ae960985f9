"""Two scans of one program, before and after a change: what it gained, and which findings went.

Amounts are µs in a step. Where steps are known, each comes with the interval that a bootstrap over
the steps gives; a change counts where its interval excludes zero. Times in the two traces belong to
two recordings, so what differs by less than the steps of one recording do is not a change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from detector.candidates import least_shares
from detector.errors import DetectorError
from detector.patterns import BY_ID
from detector.report import Finding, LedgerRow, ProgramOp, Report
from detector.report_diff import matching

Floats = NDArray[np.float64]

DIFFERENCE_SCHEMA: Final = 1
DRAWS: Final = 2_000
LEVEL: Final = 0.95
FEWEST: Final = 3  # steps: fewer say nothing of how much a step varies
SAME_PROGRAM: Final = 0.5  # of the heavy ops' calls in a step: less is another program
LEAST_CHANGE: Final = 0.2  # of a finding's savings: less is no better and no worse
CLEAR: Final = 1.1  # times the least share that is reported: nearer to it, chance decides

Status = Literal["gone", "new", "better", "worse", "same", "unsure"]
ORDER: Final[tuple[Status, ...]] = ("gone", "new", "worse", "better", "same", "unsure")


@dataclass(frozen=True)
class Change:
    """An amount of a step before and after, µs; ``interval``: of ``after - before``, at 95 %;
    None where there are too few steps."""

    before: float
    after: float
    interval: tuple[float, float] | None = None

    @property
    def by(self) -> float:
        """How much more it is, µs."""
        return self.after - self.before

    @property
    def is_sure(self) -> bool:
        """Whether it differs by more than steps do."""
        return self.interval is not None and (self.interval[0] > 0 or self.interval[1] < 0)


@dataclass(frozen=True)
class CauseChange:
    """A cause of the ledger."""

    cause: str
    label: str
    group: str
    time: Change


@dataclass(frozen=True)
class FindingChange:
    """A finding of one scan or of both: ``savings`` is what its repair saves in a step, 0 where it
    is not found. ``unsure``: in one scan only, but too near the least that is reported."""

    status: Status
    pattern: str
    before: Finding | None
    after: Finding | None
    savings: Change

    @property
    def finding(self) -> Finding:
        """The finding as it was first found."""
        found = self.before or self.after
        assert found is not None
        return found


@dataclass(frozen=True)
class Side:
    """One of the two traces."""

    path: str
    steps: int
    analyzed_us: float
    devices: tuple[str, ...]
    analyzable: bool


@dataclass(frozen=True)
class Difference:
    """All that changed. ``why_not``: why the two cannot be compared; then nothing else is said.

    ``predicted_us``: what the findings that are gone or better were to save in a step;
    ``realized_us``: what a step got shorter by.
    """

    before: Side
    after: Side
    why_not: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    step: Change | None = None
    ledger: tuple[CauseChange, ...] = ()
    findings: tuple[FindingChange, ...] = ()
    predicted_us: float = 0.0
    realized_us: float = 0.0
    schema: int = DIFFERENCE_SCHEMA

    @property
    def comparable(self) -> bool:
        """Whether both ran the same program."""
        return not self.why_not

    def of(self, *status: Status) -> list[FindingChange]:
        """The findings of which this came."""
        return [change for change in self.findings if change.status in status]


def compare(before: Report, after: Report) -> Difference:
    """What changed from one scan to the other."""
    sides = _side(before), _side(after)
    if why_not := _why_not(before, after):
        return Difference(*sides, why_not=why_not)
    changes = _findings(before, after)
    step = _step(before, after)
    solved = [change for change in changes if change.status in ("gone", "better")]
    return Difference(
        *sides,
        notes=_notes(before, after),
        step=step,
        ledger=_ledger(before, after),
        findings=changes,
        predicted_us=-float(sum(change.savings.by for change in solved)),
        realized_us=-step.by,
    )


def expected(difference: Difference, patterns: Sequence[str]) -> list[str]:
    """A sentence for each pattern that was to be repaired and is not. Raises DetectorError for a
    pattern that does not exist."""
    wrong = []
    for pattern in patterns:
        if pattern not in BY_ID:
            raise DetectorError(f"--expect-fixed: no pattern '{pattern}'")
        if not difference.comparable:
            wrong.append(f"{pattern}: the traces cannot be compared")
            continue
        mine = [change for change in difference.findings if change.pattern == pattern]
        if not any(change.before for change in mine):
            wrong.append(f"{pattern}: not found before")
        elif left := [c for c in mine if c.after is not None and c.status != "gone"]:
            wrong.append(f"{pattern}: still found ({left[0].status})")
    return wrong


def _side(report: Report) -> Side:
    source = report.source
    analyzed = report.summary.analyzed_us
    return Side(source.path, len(source.steps), analyzed, source.devices, report.analyzable)


# -- whether they compare --------------------------------------------------------------------------


def _why_not(before: Report, after: Report) -> tuple[str, ...]:
    reasons = [
        f"{report.source.path} cannot be analyzed: {report.why_not or 'no reason given'}"
        for report in (before, after)
        if not report.analyzable
    ]
    if bool(before.source.steps) != bool(after.source.steps):
        reasons.append("only one of the traces has steps")
    if bool(before.source.kernels) != bool(after.source.kernels):
        reasons.append("only one of the traces has device records")
    return tuple(reasons) or _other_program(before.source.program, after.source.program)


def _other_program(a: Sequence[ProgramOp], b: Sequence[ProgramOp]) -> tuple[str, ...]:
    """Why the heavy ops of a step are another program's; empty where they are not."""
    if not a or not b:
        return ()  # graphs and compiled code show none
    if (alike := _alike(a, b, lambda op: op.name)) < SAME_PROGRAM:
        return (f"the programs differ: {100 * alike:.0f} % of the matrix products and convolutions "
                "of a step are the same by op and number",)  # fmt: skip
    kinds = [{(op.name, op.shapes) for op in ops if op.shapes} for ops in (a, b)]
    shared = len(kinds[0] & kinds[1]) / max(min(map(len, kinds)), 1)
    if all(kinds) and shared < SAME_PROGRAM:
        # of the trace with fewer kinds: where shapes change with every step, one has many more
        alike = shared
        return (
            "the shapes differ, as with another batch size or model: "
            f"{100 * alike:.0f} % of the matrix products and convolutions of a step have the same "
            "input shapes",
        )
    return ()


def _alike(
    a: Sequence[ProgramOp], b: Sequence[ProgramOp], key: Callable[[ProgramOp], str]
) -> float:
    """Share of the calls of a step that both have."""
    calls: dict[str, list[float]] = {}
    for side, ops in enumerate((a, b)):
        for op in ops:
            calls.setdefault(key(op), [0.0, 0.0])[side] += op.calls
    both = sum(min(pair) for pair in calls.values())
    return both / max(sum(max(pair) for pair in calls.values()), 1e-9)


def _notes(before: Report, after: Report) -> tuple[str, ...]:
    a, b = before.source, after.source
    notes = []
    if a.devices != b.devices:
        notes.append(f"other devices: {', '.join(a.devices)} before, {', '.join(b.devices)} after")
    blind = {x.pattern for x in before.not_checked} ^ {x.pattern for x in after.not_checked}
    if blind:
        notes.append(f"checked in one trace only: {', '.join(sorted(blind))}")
    if min(len(a.steps), len(b.steps)) < FEWEST:
        notes.append(f"fewer than {FEWEST} steps: no intervals, so no change is sure")
    if not a.program or not b.program:
        notes.append("no matrix product or convolution is recorded that shows the program is the "
                     "same")  # fmt: skip
    return tuple(notes)


# -- amounts of a step -----------------------------------------------------------------------------


def _step(before: Report, after: Report) -> Change:
    return _change(*(_step_lengths(report) for report in (before, after)))


def _step_lengths(report: Report) -> Floats:
    """µs of each step; all analyzed time as one where there are none."""
    steps = report.source.steps
    lengths = [step.end_us - step.start_us for step in steps] or [report.summary.analyzed_us]
    return np.array(lengths, np.float64)


def _ledger(before: Report, after: Report) -> tuple[CauseChange, ...]:
    """Every cause of either ledger, the largest change first."""
    rows = [{row.cause: row for row in report.ledger} for report in (before, after)]
    counts = [max(len(report.source.steps), 1) for report in (before, after)]
    causes = dict.fromkeys((*rows[0], *rows[1]))
    found = []
    for cause in causes:
        row = rows[0].get(cause) or rows[1][cause]
        amounts = [_of_cause(r.get(cause), n) for r, n in zip(rows, counts, strict=True)]
        found.append(CauseChange(cause, row.label, row.group, _change(*amounts)))
    return tuple(sorted(found, key=lambda change: -abs(change.time.by)))


def _of_cause(row: LedgerRow | None, steps: int) -> Floats:
    """µs of a cause in each step."""
    if row is None:
        return np.zeros(steps)
    return np.array(row.by_step_us if len(row.by_step_us) == steps else [row.us / steps])


def _change(before: Floats, after: Floats) -> Change:
    """The means, and the interval of their difference by a bootstrap over the steps.

    The percentile interval of a few steps is too narrow by sqrt((n - 1) / n), Hesterberg, "What
    Teachers Should Know About the Bootstrap", 2015, section 5; the draws are widened by that.
    """
    means = float(before.mean()), float(after.mean())
    if min(len(before), len(after)) < FEWEST:
        return Change(*means)
    draw = np.random.default_rng(0)
    by = np.zeros(DRAWS)
    for sign, steps in ((-1.0, before), (1.0, after)):
        wide = np.sqrt(len(steps) / (len(steps) - 1))
        drawn = steps[draw.integers(0, len(steps), (DRAWS, len(steps)))].mean(axis=1)
        by += sign * (steps.mean() + wide * (drawn - steps.mean()))
    low, high = np.quantile(by, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist()
    return Change(*means, (low, high))


# -- findings --------------------------------------------------------------------------------------


def _findings(before: Report, after: Report) -> tuple[FindingChange, ...]:
    """All findings of both; a lead of the other scan is the same finding, less sure."""
    left = list(after.findings)
    changes = []
    for old in before.findings:
        new = next((f for f in (*left, *after.leads) if matching.same(old, f)), None)
        left = [f for f in left if f is not new]
        changes.append(_finding(old, new, before, after))
    for new in left:
        old_lead = next((f for f in before.leads if matching.same(f, new)), None)
        changes.append(_finding(old_lead, new, before, after))
    key = {status: i for i, status in enumerate(ORDER)}
    return tuple(sorted(changes, key=lambda c: (key[c.status], -abs(c.savings.by))))


def _finding(
    old: Finding | None, new: Finding | None, before: Report, after: Report
) -> FindingChange:
    found = old or new
    assert found is not None
    savings = _change(_savings(old, before), _savings(new, after))
    status = _status(old, new, savings, before, after)
    return FindingChange(status, found.pattern, old, new, savings)


def _savings(finding: Finding | None, report: Report) -> Floats:
    """What a finding saves in each step, µs: its best estimate, spread as what it saves alone."""
    steps = max(len(report.source.steps), 1)
    if finding is None:
        return np.zeros(steps)
    each = finding.estimated_savings_us / steps
    alone = np.array(finding.by_step_us, np.float64)
    if len(alone) != steps or alone.sum() <= 0:
        return np.full(steps, each)
    return np.asarray(alone * (each / alone.mean()), np.float64)


def _status(
    old: Finding | None, new: Finding | None, savings: Change, before: Report, after: Report
) -> Status:
    """What came of a finding. One that is only a lead now, and of half the savings at most, is
    gone: the report no longer says that it is there."""
    if old is not None and new is not None:
        least = LEAST_CHANGE * max(savings.before, savings.after)
        if not savings.is_sure or abs(savings.by) < least:
            return "same"
        if new in after.leads and savings.after <= savings.before / 2:
            return "gone"
        if old in before.leads and savings.before <= savings.after / 2:
            return "new"
        return "better" if savings.by < 0 else "worse"
    longest = max(float(_step_lengths(report).mean()) for report in (before, after))
    if old is not None:
        return "gone" if _is_clear(old, after, savings, longest) else "unsure"
    assert new is not None
    return "new" if _is_clear(new, before, savings, longest) else "unsure"


def _is_clear(finding: Finding, other: Report, savings: Change, step_us: float) -> bool:
    """Whether a finding that the other scan lacks is a change: looked for there, and not only a
    little below what is reported.

    An opportunity is by nature in both programs: at the lower end of what it may save it must still
    be half of the least that is reported. A fault may sit in one step of several, as a pause does.
    """
    pattern = BY_ID.get(finding.pattern)
    if finding.pattern in {row.pattern for row in other.not_checked}:
        return False
    if pattern is None:
        return True
    on_device = other.summary.gpu_busy > 0
    least = least_shares(on_device=on_device)[pattern.kind] * step_us
    lower = abs(savings.by)
    if pattern.kind == "opportunity" and savings.interval is not None:
        lower = min(map(abs, savings.interval)) if savings.is_sure else 0.0
    return abs(savings.by) >= CLEAR * least and lower >= least / 2
