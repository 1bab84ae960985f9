"""Who the others wait for, in which steps, and what that rank did meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from detector.job import JobCause, JobStraggler
from detector.jobs.match import NEVER, Matched, spread
from detector.jobs.rank import RankTrace, causes
from detector.ledger import CAUSES
from detector.trace import NS_PER_US, Bool, Int64

Floats = npt.NDArray[np.float64]
How = Literal["balanced", "straggler", "in turn", "uneven"]

LATE: Final = 0.03  # of a step: waiting that is worth a word
MAIN: Final = 0.6  # share of a step's waiting that one rank must cause to be the step's late one
MOSTLY: Final = (
    0.6  # share of all waiting that a straggler causes, and of steps if it is persistent
)
CLEARLY: Final = 2.0  # so many times as much as the next rank
MUCH: Final = 0.15  # of a step, that a rank late in most steps costs; less must be steady
STEADY: Final = 3.0  # standard errors by which a straggler is later than the next rank
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
    "nothing": "unknown",
}
# Waiting in another collective is no reason to be late, but the same thing once more.
_NO_REASON: Final = ("communication", "rank-wait")


@dataclass(frozen=True, eq=False)
class Lateness:
    """Waiting by who caused it: ns, means over the ranks that waited."""

    caused: Int64  # (collectives,): mean over the other ranks
    late: Int64  # (collectives,): the rank, as a column
    step: Int64  # (collectives,): -1 outside of all steps
    by_step: Floats  # (ranks, steps)
    step_ns: float
    blur_ns: float
    """How far apart the ranks leave a collective: what is shorter is no lateness."""
    began: Int64  # (collectives, ranks): when the rank left its last collective; NEVER before it


def lateness(matched: Matched, ranks: Sequence[RankTrace], edges: Int64) -> Lateness:
    """``edges``: where steps begin, and the end of the last, on the common axis; two and more."""
    waited = matched.waiting.sum(axis=1)
    others = np.maximum(matched.present.sum(axis=1) - 1, 1)
    caused = waited // others
    step = np.searchsorted(edges, matched.done, side="right") - 1
    step = np.where((step >= 0) & (step < len(edges) - 1), step, -1)
    by_step = np.zeros((len(ranks), len(edges) - 1))
    inside = step >= 0
    np.add.at(by_step, (matched.last[inside], step[inside]), caused[inside])
    return Lateness(
        caused,
        matched.last,
        step,
        by_step,
        float(np.median(np.diff(edges))),
        spread(matched, 0.5),
        _began(matched, ranks),
    )


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


def judge(late: Lateness, ranks: Sequence[RankTrace]) -> tuple[How, list[tuple[int, str, Bool]]]:
    """What the waiting looks like, and the stragglers: column, how, and its late steps."""
    total = late.by_step.sum()
    steps = late.by_step.shape[1]
    if total < LATE * late.step_ns * steps and not _spikes(late).any():
        return "balanced", []
    of_rank = late.by_step.sum(axis=1)
    order = np.argsort(-of_rank)
    worst = int(order[0])
    next_ = float(of_rank[order[1]]) if len(order) > 1 else 0.0
    mine = _late_steps(late, worst)
    clear = of_rank[worst] >= MOSTLY * total and of_rank[worst] >= CLEARLY * next_
    if clear and mine.any() and _steady(late, worst):
        return "straggler", [(worst, _how(mine), mine)]
    spikes = _spikes(late)
    if spikes.any():
        rank = int(late.by_step[:, spikes].sum(axis=1).argmax())
        mine = spikes & (late.by_step.argmax(axis=0) == rank)
        how = _how(mine)
        worth = how == "periodic" or late.by_step[rank, mine].max() >= LOST * late.step_ns
        if worth and mine.sum() <= max(1, steps // 3):
            return "straggler", [(rank, how, mine)]
    shared = (of_rank > 0.5 * total / len(ranks)).sum() >= min(len(ranks), 3)
    return ("in turn" if shared else "uneven"), []


def _steady(late: Lateness, rank: int) -> bool:
    """Whether a rank is late in most steps, or by more than steps differ; and by more than ends
    are apart. A pause of one rank, once, is a one-off and not a rank that is late.
    """
    mine = late.by_step[rank]
    if mine.mean() < 2 * late.blur_ns:
        return False
    often = _late_steps(late, rank).mean() >= MOSTLY and mine.mean() >= MUCH * late.step_ns
    if len(mine) < 3 or often:
        return True
    ahead = mine - np.delete(late.by_step, rank, axis=0).max(axis=0)
    return bool(ahead.mean() >= STEADY * ahead.std(ddof=1) / np.sqrt(len(mine)))


def _late_steps(late: Lateness, rank: int) -> Bool:
    """Steps in which this rank causes most of a waiting that matters."""
    mine, total = late.by_step[rank], late.by_step.sum(axis=0)
    least = max(LATE * late.step_ns, late.blur_ns)
    found: Bool = (mine >= MAIN * total) & (mine >= least)
    return found


def _spikes(late: Lateness) -> Bool:
    """Steps that wait far longer than the others, for one rank."""
    total, most = late.by_step.sum(axis=0), late.by_step.max(axis=0)
    usual = float(np.median(total)) if len(total) > 2 else np.inf
    least = max(OUTLIER * usual, 2 * LATE * late.step_ns, 4 * late.blur_ns)
    found: Bool = (total > least) & (most >= MAIN * total)
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
    if len(steps) == 1:
        return "one-off"
    first = steps[0]
    if len(steps) >= 3 and len(steps) >= MOSTLY * (len(late) - first):
        return "persistent"
    return "at times"


def describe(
    matched: Matched,
    ranks: Sequence[RankTrace],
    late: Lateness,
    column: int,
    how: str,
    steps: Bool,
) -> JobStraggler:
    """The straggler with its cause: what its ledger has beyond the others' between collectives."""
    chosen = np.flatnonzero((late.late == column) & (late.step >= 0) & steps[late.step])
    excess = np.zeros(len(CAUSES))
    for k in chosen.tolist():
        excess += _excess(matched, ranks, late, k, column)
    for cause in _NO_REASON:
        excess[_code(cause)] = 0
    order = [i for i in np.argsort(-excess).tolist() if excess[i] > 0]
    causes_ = tuple(
        JobCause(CAUSES[i].id, CAUSES[i].label, float(excess[i]) / NS_PER_US) for i in order
    )
    total = float(late.caused[late.step >= 0].sum())
    waited = float(late.caused[chosen].sum())
    kind = _kind(causes_)
    marked = np.flatnonzero(steps).tolist()
    return JobStraggler(
        rank=ranks[column].rank or 0,
        how=how,
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
    offset = int(matched.offset[r])
    return causes(rank, int(late.began[k, r]) + offset, int(matched.start[k, r]) + offset)


def _detail(
    matched: Matched, ranks: Sequence[RankTrace], late: Lateness, column: int, chosen: Int64
) -> str:
    """Whether it had more or larger work, or the same work took longer."""
    counts = np.zeros(len(ranks))
    shapes: list[list[int]] = [[] for _ in ranks]
    for k in chosen.tolist():
        for r in np.flatnonzero(matched.present[k]).tolist():
            offset = int(matched.offset[r])
            span = (int(late.began[k, r]) + offset, int(matched.start[k, r]) + offset)
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
