"""Who the others wait for, in which steps, and what that rank did meanwhile."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from detector.jobs.match import NEVER, Matched, spread
from detector.jobs.rank import RankTrace, causes
from detector.ledger import CAUSES
from detector.report.job import JobCause, JobStraggler
from detector.trace import NS_PER_US, Bool, Int64

Floats = npt.NDArray[np.float64]
How = Literal["balanced", "straggler", "one-off", "in turn", "uneven"]

LATE: Final = 0.03  # of a step: waiting that is worth a word
WORTH: Final = 0.05  # of a step: what a straggler costs, on average
BY_CHANCE: Final = 0.05  # how often a job of equal ranks may seem to have a straggler, by each test
DRAWS: Final = 4_000  # of who is late in each step
MOSTLY: Final = 0.6  # share of a step's waiting, of a one-step trace's, of steps
CLEARLY: Final = 2.0  # so many times as much as the next rank, where there is one step alone
LOST: Final = 0.5  # of a step, that a one-off costs at least: machines pause now and then
OUTLIER: Final = 4.0  # a one-off step waits so many times as long as the median step

KINDS: Final = {
    "loader": "data",
    "preprocessing": "data",
    "compute": "compute",
    "cpu-compute": "compute",
    "fill": "compute",
    "queue": "compute",
    "copy": "copy",
    "pageable": "copy",
    "device-stall": "unknown",
    "unlinked": "unknown",
    "unrecorded-wait": "unknown",
    "before": "before",
}
# Not of the ledger: a rank whose recording begins later than the others' was late already.
BEFORE: Final = ("before", "before its recording begins")
# Waiting in another collective is no reason to be late, but the same thing once more.
_NO_REASON: Final = ("communication", "rank-wait")


@dataclass(frozen=True, eq=False)
class Lateness:
    """Waiting by who caused it: ns, means over the ranks that waited."""

    caused: Int64  # (collectives,): mean over the other ranks
    late: Int64  # (collectives,): the rank, as a column
    step: Int64  # (collectives,): -1 outside of all steps
    by_step: Floats  # (ranks, steps)
    worked: Int64  # (collectives, ranks): what each did before it, ns; 0 where not in it
    step_ns: float
    blur_ns: float
    """How far apart the ranks leave a collective: what is shorter is no lateness."""
    began: Int64  # (collectives, ranks): when the rank left its last collective; NEVER before it
    first: Bool  # (collectives, ranks): whether it is the rank's first


def lateness(matched: Matched, ranks: Sequence[RankTrace], edges: Int64) -> Lateness:
    """``edges``: where steps begin, and the end of the last, on the common axis; two and more."""
    waited = matched.waiting.sum(axis=1)
    others = np.maximum(matched.present.sum(axis=1) - 1, 1)
    caused = waited // others
    step = np.searchsorted(edges, _called(matched, ranks), side="right") - 1
    step = np.where((step >= 0) & (step < len(edges) - 1), step, -1)
    by_step = np.zeros((len(ranks), len(edges) - 1))
    inside = step >= 0
    np.add.at(by_step, (matched.last[inside], step[inside]), caused[inside])
    began = _began(matched, ranks)
    worked = np.where(matched.present, np.maximum(matched.start - began, 0), 0)
    return Lateness(
        caused,
        matched.last,
        step,
        by_step,
        worked,
        float(np.median(np.diff(edges))),
        spread(matched, 0.5),
        began,
        matched.present & (np.cumsum(matched.present, axis=0) == 1),
    )


def _called(matched: Matched, ranks: Sequence[RankTrace]) -> Int64:
    """When hosts called for each collective: the median of its ranks. A device may run it after the
    step of the host that it belongs to."""
    called = np.full(matched.start.shape, np.nan)
    origin = ranks[0].start
    for r, rank in enumerate(ranks):
        mine = matched.present[:, r]
        called[mine, r] = (
            rank.collectives.called[matched.place[mine, r]] - matched.offset[r] - origin
        )
    found: Int64 = origin + np.nanmedian(called, axis=1).astype(np.int64)
    return found


def _began(matched: Matched, ranks: Sequence[RankTrace]) -> Int64:
    """When each rank was let go by its collective before; at first, when all were recorded."""
    origin = max(int(r.start - o) for r, o in zip(ranks, matched.offset.tolist(), strict=True))
    began = np.full(matched.start.shape, NEVER)
    done = matched.done
    free = np.full(len(ranks), origin)
    for k in range(len(matched)):
        mine = matched.present[k]
        began[k, mine] = np.minimum(free[mine], matched.start[k, mine])
        free[mine] = np.maximum(free[mine], done[k])
    return began


@dataclass(frozen=True, eq=False)
class Late:
    """A rank that the others wait for, and in which steps."""

    column: int
    how: str
    steps: Bool
    chance: float
    """How likely ranks that are alike would seem as uneven; 1 where nothing tells."""


def judge(late: Lateness, ranks: Sequence[RankTrace]) -> tuple[How, Late | None, Late | None]:
    """What the waiting looks like; the straggler, and else the one pause that stands out."""
    total = late.by_step.sum()
    steps = late.by_step.shape[1]
    of_rank = late.by_step.sum(axis=1)
    worst = int(of_rank.argmax())
    mine = _late_steps(late, worst)
    costs = max(WORTH * late.step_ns, 2 * late.blur_ns) if steps > 1 else LATE * late.step_ns
    if mine.any() and of_rank[worst] >= costs * steps:
        likely = chance(late.by_step, worst)
        if likely <= BY_CHANCE or (steps == 1 and _clear(of_rank)):
            return "straggler", Late(worst, _how(mine), mine, likely), None
    spikes = _spikes(late)
    if spikes.sum() == 1:
        column = int(late.by_step[:, spikes].argmax())
        if late.by_step[column, spikes] >= LOST * late.step_ns:
            return "one-off", None, Late(column, "one-off", spikes, 1.0)
    if total < LATE * late.step_ns * steps:
        return "balanced", None, None
    shared = (of_rank > 0.5 * total / len(ranks)).sum() >= min(len(ranks), 3)
    return ("in turn" if shared else "uneven"), None, None


def _clear(of_rank: Floats) -> bool:
    """Whether a rank stands out in a single step, which has nothing to compare with."""
    most, next_ = np.sort(of_rank)[::-1][:2]
    return bool(most >= MOSTLY * of_rank.sum() and most >= CLEARLY * next_)


def chance(by_step: Floats, rank: int) -> float:
    """How likely the waiting would fall on one rank as it does on this one, were they all alike.

    The smaller of two tests. If the late rank of each step were drawn anew, how often would any
    come to as much of the waiting? (A permutation test: one long pause does not win it, nor hide a
    rank that is late in every step.) Is this rank ahead of the next one by more than steps differ?
    (Student's t, times the ranks: it needs few steps where these agree.)
    """
    ranks, steps = len(by_step), int(by_step.shape[1])
    if steps < 2 or ranks < 2:
        return 1.0
    who, most = by_step.argmax(axis=0), by_step.max(axis=0)
    drawn = np.random.default_rng(0).integers(ranks, size=(DRAWS, steps))
    places = (drawn + ranks * np.arange(DRAWS)[:, None]).ravel()
    sums = np.bincount(places, np.tile(most, DRAWS), DRAWS * ranks).reshape(DRAWS, ranks)
    reached = int((sums.max(axis=1) >= most[who == rank].sum() * (1 - 1e-9)).sum())
    ahead = by_step[rank] - np.delete(by_step, rank, axis=0).max(axis=0)
    mean, error = float(ahead.mean()), float(ahead.std(ddof=1)) / math.sqrt(steps)
    t = mean / max(error, 1e-9 * abs(mean), 1e-9)
    return min((1 + reached) / (1 + DRAWS), ranks * above(t, steps - 1), 1.0)


def above(t: float, freedom: int) -> float:
    """Probability that Student's t with so many degrees of freedom is larger: the finite sums of
    Abramowitz and Stegun, 26.7.3 and 26.7.4."""
    angle = math.atan2(t, math.sqrt(freedom))
    c, odd = math.cos(angle), freedom % 2
    term = c if odd else 1.0
    total = term if freedom > 1 else 0.0
    for k in range(3 if odd else 2, freedom, 2):
        term *= c * c * (k - 1) / k
        total += term
    inside = math.sin(angle) * total
    return 0.5 - ((angle + inside) / math.pi if odd else inside / 2)


def _late_steps(late: Lateness, rank: int) -> Bool:
    """Steps in which this rank causes most of a waiting that matters."""
    mine, total = late.by_step[rank], late.by_step.sum(axis=0)
    least = max(LATE * late.step_ns, late.blur_ns)
    found: Bool = (mine >= MOSTLY * total) & (mine >= least)
    return found


def _spikes(late: Lateness) -> Bool:
    """Steps that wait far longer than the others, for one rank."""
    total, most = late.by_step.sum(axis=0), late.by_step.max(axis=0)
    usual = float(np.median(total)) if len(total) > 2 else np.inf
    least = max(OUTLIER * usual, 2 * LATE * late.step_ns, 4 * late.blur_ns)
    found: Bool = (total > least) & (most >= MOSTLY * total)
    return found


def _how(late: Bool) -> str:
    steps = np.flatnonzero(late)
    if len(late) == 1:
        return "one step"
    if len(steps) >= MOSTLY * len(late):
        return "persistent"
    gaps = np.unique(np.diff(steps))
    if len(steps) >= 3 and len(gaps) == 1 and gaps[0] > 1:
        return "periodic"
    first = steps[0]
    if len(steps) >= 3 and len(steps) >= MOSTLY * (len(late) - first):
        return "persistent"
    return "at times"


def describe(
    matched: Matched,
    ranks: Sequence[RankTrace],
    late: Lateness,
    who: Late,
) -> JobStraggler:
    """The late rank with its cause: what its ledger has beyond the others' between collectives."""
    column, steps = who.column, who.steps
    chosen = np.flatnonzero((late.late == column) & (late.step >= 0) & steps[late.step])
    excess = np.zeros(len(CAUSES))
    for k in chosen.tolist():
        excess += _excess(matched, ranks, late, k, column)
    for cause in _NO_REASON:
        excess[_code(cause)] = 0
    names = [*((c.id, c.label) for c in CAUSES), BEFORE]
    ns = [*excess.tolist(), sum(_before(matched, ranks, late, k, column) for k in chosen.tolist())]
    order = [i for i in np.argsort(-np.array(ns), kind="stable").tolist() if ns[i] > 0]
    causes_ = tuple(JobCause(names[i][0], names[i][1], ns[i] / NS_PER_US) for i in order)
    total = float(late.caused[late.step >= 0].sum())
    waited = float(late.caused[chosen].sum())
    kind = _kind(causes_)
    marked = np.flatnonzero(steps).tolist()
    return JobStraggler(
        rank=ranks[column].rank or 0,
        how=who.how,
        chance=who.chance,
        since=marked[0] if marked and len(steps) > 1 else None,
        steps=tuple(marked),
        waited_us=waited / NS_PER_US,
        share=waited / total if total else 0.0,
        cause=causes_[0].cause if causes_ else "",
        kind=kind,
        causes=causes_[:6],
        detail=_detail(matched, ranks, late, column, chosen) if kind == "compute" else "",
    )


def _code(cause: str) -> int:
    return next(i for i, c in enumerate(CAUSES) if c.id == cause)


def _kind(found: Sequence[JobCause]) -> str:
    """The kind with the most excess: several causes may be of one."""
    sums: dict[str, float] = {}
    for cause in found:
        other = "sync" if cause.cause.startswith("sync-") else "host"
        kind = KINDS.get(cause.cause, other)
        sums[kind] = sums.get(kind, 0.0) + cause.us
    return max(sums, key=lambda k: sums[k]) if sums else "unknown"


def _excess(
    matched: Matched, ranks: Sequence[RankTrace], late: Lateness, k: int, column: int
) -> Floats:
    """What this rank did before the collective beyond the median of the others, by cause, ns."""
    spent = {
        r: _spent(matched, ranks[r], late, k, r)
        for r in np.flatnonzero(matched.present[k]).tolist()
    }
    others = [s for r, s in spent.items() if r != column]
    found: Floats = spent[column] - np.median(others, axis=0)
    return found


def _spent(matched: Matched, rank: RankTrace, late: Lateness, k: int, r: int) -> Int64:
    return causes(rank, *_span(matched, rank, late, k, r))


def _span(matched: Matched, rank: RankTrace, late: Lateness, k: int, r: int) -> tuple[int, int]:
    """What a rank did before a collective, on its own clock: since its last one, else since its
    recording begins, as the other ranks' work before their first one counts in full."""
    offset = int(matched.offset[r])
    began = rank.start if late.first[k, r] else int(late.began[k, r]) + offset
    return began, int(matched.start[k, r]) + offset


def _before(
    matched: Matched, ranks: Sequence[RankTrace], late: Lateness, k: int, column: int
) -> float:
    """How much later than the others' this rank's recording begins, where that is all that comes
    before the collective, ns."""
    if not late.first[k, column]:
        return 0.0
    there = np.flatnonzero(late.first[k]).tolist()
    starts = {r: ranks[r].start - int(matched.offset[r]) for r in there}
    others = [start for r, start in starts.items() if r != column]
    return max(0.0, starts[column] - float(np.median(others))) if others else 0.0


def _detail(
    matched: Matched, ranks: Sequence[RankTrace], late: Lateness, column: int, chosen: Int64
) -> str:
    """Whether it had more or larger work, or the same work took longer."""
    counts = np.zeros(len(ranks))
    shapes: list[list[int]] = [[] for _ in ranks]
    for k in chosen.tolist():
        for r in np.flatnonzero(matched.present[k]).tolist():
            span = _span(matched, ranks[r], late, k, r)
            a, b = np.searchsorted(ranks[r].work_start, span).tolist()
            counts[r] += b - a
            shapes[r] += ranks[r].work_shape[a:b].tolist()
    usual = float(np.median(np.delete(counts, column)))
    own = counts[column]
    if own > 1.1 * usual:
        more = f"more work: {own:,.0f} pieces against {usual:,.0f}"
        return f"{more}; its share of data or model is larger"
    mine, theirs = sorted(shapes[column]), [sorted(s) for r, s in enumerate(shapes) if r != column]
    if any(mine) and mine not in theirs:
        return "as much work on other shapes: its inputs differ in size"
    if any(mine):
        return "the same work on the same shapes takes longer: a slower or a shared device"
    return "as much work takes longer; shapes were not recorded, so its inputs may be larger"
