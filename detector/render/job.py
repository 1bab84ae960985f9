"""What a report says of a job: who waits for whom, as lines and as pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from statistics import median_low

from detector.jobs.merge import ONE_STEP, others_wait
from detector.render.clean import clean
from detector.render.html_text import rect, strip
from detector.report.job import Job, JobCause, JobCollective, JobRank, JobStraggler
from detector.units import duration, rounded, size

MOST = 16  # ranks, in the terminal's table
PICTURED = 256  # ranks, in a picture: thinner rows would not be seen
STEPS = 200  # columns of the heat map

PATTERNS = {
    "balanced": "No rank waits to speak of.",
    "in turn": "All ranks come late in turn: no straggler, but no balance either.",
    "uneven": "Ranks wait for each other, and for none of them most of the time.",
}
HEADING = "Who waits for whom"


REASONS = {
    "data": "Its data comes late",
    "host": "Its host is late",
    "compute": "It computes longer",
    "sync": "It waits for its own device",
    "copy": "Its copies take longer",
    "unknown": "Its trace does not show why",
}
COLUMNS = ("rank", "waits", "transfers", "others wait for it", "spends more than the others on")
HARDLY = 0.01  # of a rank's time: a smaller excess over the others is not worth a word


def verdict(job: Job) -> str:
    """The line for a newcomer: who waits for whom, and how long."""
    for s in job.stragglers:
        return (
            f"{others_wait(job)} for rank {s.rank}: {duration(_each(s, s.waited_us))} of a"
            f" {duration(job.step_us)} step on average, {_when(job, s)}."
        )
    for s in job.pauses:
        return (
            f"No rank is late as a rule. In step {s.steps[0]} the others wait"
            f" {duration(s.waited_us)} for rank {s.rank}."
        )
    return PATTERNS.get(job.pattern, "")


def reason(job: Job) -> str:
    """Why they wait for it, and how much of all waiting that is; empty where nobody is late."""
    late = next(iter((*job.stragglers, *job.pauses)), None)
    return f"{_why(late)} The wait for it is {rounded(late.share)} of all waiting." if late else ""


def scope(job: Job) -> str:
    """Whose trace the rest of the report is about."""
    return (
        f"What follows is of rank {job.reference}, which the others wait for longest; a finding"
        " says on which ranks it holds."
    )


def _each(s: JobStraggler, us: float) -> float:
    """The share of one step in a time over the steps in which the others waited."""
    return us / max(len(s.steps), 1)


def _when(job: Job, s: JobStraggler) -> str:
    steps = len(job.heat[0]) if job.heat else 0
    if steps < 2:
        return ONE_STEP
    since = f" since step {s.since}" if s.since else ""
    return f"in {len(s.steps)} of {steps} steps{since} ({s.how})"


def _why(s: JobStraggler) -> str:
    """The two largest excesses over the other ranks; a delay from before the recording apart."""
    before = [c for c in s.causes if c.cause == "before"]
    during = [c for c in s.causes if c.cause != "before"][: 2 - len(before)]
    said = [f"{duration(_each(s, c.us))} more on {_cause(c)}" for c in during]
    spends = f"it spends {', '.join(said)}" if said else ""
    if s.kind == "before" and before:
        behind = f"It is {duration(before[0].us)} behind when its recording begins"
        return f"{behind}; then {spends}." if spends else f"{behind}."
    reason = REASONS.get(s.kind, REASONS["unknown"])
    return f"{reason}: {spends}." if spends else f"{reason}."


def _cause(c: JobCause) -> str:
    return c.label.removeprefix("host: ")


def summary(job: Job) -> list[str]:
    """Step, waiting against transfer, how sure the match is."""
    known = f"{len(job.ranks)} of {job.world_size or len(job.ranks)} ranks"
    lines = [
        f"{known} · step {duration(job.step_us)} · in collectives {duration(job.waiting_us)}"
        f" waiting and {duration(job.transfer_us)} transfer a rank",
        f"{len(job.collectives)} collectives matched by {job.matched_by or 'nothing'}"
        f" ({rounded(job.confidence)} agree), ends within {duration(job.clock_error_us)}"
        if job.collectives
        else "no collective could be matched across the ranks",
    ]
    if job.balanced_us >= 0.01 * job.step_us:
        lines.append(f"perfect balance would save {duration(job.balanced_us)} at most")
    return lines


def rows(job: Job) -> list[tuple[str, str, str, str, str]]:
    """The cells of ``COLUMNS`` for each rank."""
    spent: dict[str, list[float]] = {}
    for r in job.ranks:
        for c in r.ledger:
            spent.setdefault(c.cause, []).append(c.us)
    absent = {cause: [0.0] * (len(job.ranks) - len(us)) for cause, us in spent.items()}
    usual = {cause: median_low([*us, *absent[cause]]) for cause, us in spent.items()}
    return [_rank_row(r, usual) for r in job.ranks]


def _rank_row(r: JobRank, usual: Mapping[str, float]) -> tuple[str, str, str, str, str]:
    own = [c for c in r.ledger if c.cause not in ("communication", "rank-wait")]
    most = max(own, key=lambda c: c.us - usual[c.cause], default=None)
    least = HARDLY * sum(c.us for c in r.ledger)
    excess = most.us - usual[most.cause] if most else 0.0
    beyond = f"{_cause(most)}: {duration(excess)}" if most and excess > least else "–"
    late = duration(r.late_us) if r.late_us else "–"
    return str(r.rank), duration(r.waiting_us), duration(r.transfer_us), late, beyond


def collective(c: JobCollective) -> str:
    """One collective on one line."""
    what = f"{c.op} {size(c.bytes)}" if c.bytes >= 0 else c.op
    where = f" in step {c.step}" if c.step is not None else ""
    return (
        f"{what}{where}, rank {c.last} arrives {duration(c.skew_us)} after the first;"
        f" transfer {duration(c.transfer_us)}"
    )


def worst(job: Job, most: int = 5) -> list[str]:
    """A line for the collectives of one kind that one rank is last at, the longest wait first."""
    alike: dict[tuple[str, int], list[JobCollective]] = {}
    for c in sorted(job.collectives, key=lambda c: -c.skew_us):
        alike.setdefault((c.op, c.last), []).append(c)
    return [_alike(found) for found in list(alike.values())[:most]]


def _alike(found: Sequence[JobCollective]) -> str:
    if len(found) == 1:
        return collective(found[0])
    longest, transfer = found[0], sum(c.transfer_us for c in found)
    return (
        f"{longest.op}, rank {longest.last} arrives last {len(found)} times, up to"
        f" {duration(longest.skew_us)} after the first; transfer {duration(transfer)} in all"
    )


# -- pictures --------------------------------------------------------------------------------------


def html(job: Job) -> list[str]:
    """The section of the page below the verdict: two pictures, a table, how it is known."""
    return [
        '<section aria-label="job">',
        f"<h2>{HEADING}</h2>",
        *_strip(job),
        *_heat(job),
        *_table(job),
        *(f'<p class="soft">{escape(line)}</p>' for line in (*summary(job), scope(job))),
        "</section>",
    ]


def _strip(job: Job) -> list[str]:
    """Ranks × time around the worst collective: waiting, then transfer."""
    full = [c for c in job.collectives if c.arrivals_us]
    if not full:
        return []
    c = max(full, key=lambda c: c.skew_us)
    if not c.skew_us:
        return []
    span = max(c.end_us - c.start_us, 1e-3)
    lines = [
        f"<h3>The longest wait: {escape(clean(collective(c)))}</h3>",
        '<p class="soft legend"><span><span class="swatch g-none"></span>not there yet</span>'
        '<span><span class="swatch g-exposed"></span>waits for the last rank</span>'
        '<span><span class="swatch g-busy"></span>transfer</span></p>',
    ]
    for rank, at in list(zip(job.ranks, c.arrivals_us, strict=True))[:PICTURED]:
        if at < 0:
            continue
        left, mid = 1000 * at / span, 1000 * min(c.skew_us / span, 1.0)
        rects = _bar(left, mid - left) + _bar(mid, 1000 - mid, "g-busy")
        name = f"rank {rank.rank}" + (" (last)" if rank.rank == c.last else "")
        lines.append(strip(name, rects))
    ends = f"<span>0</span><span>{duration(span)}</span>"
    return [*lines, f'<div class="row"><span></span><div class="axis">{ends}</div></div>']


def _heat(job: Job) -> list[str]:
    """Ranks × steps: how long the others waited for each."""
    steps = len(job.heat[0]) if job.heat else 0
    most = max((max(row) for row in job.heat), default=0.0) if steps > 1 else 0.0
    if not most:
        return []
    group = -(-steps // STEPS)
    lines = [
        f"<h3>Waiting caused by each rank in each of {steps} steps, {duration(most)} at most</h3>"
    ]
    for rank, row in list(zip(job.ranks, job.heat, strict=True))[:PICTURED]:
        cells = [max(row[i : i + group]) for i in range(0, steps, group)]
        width = 1000 / len(cells)
        rects = "".join(
            _bar(i * width, width, opacity=max(value / most, 0.05))
            for i, value in enumerate(cells)
            if value > 0.01 * most
        )
        lines.append(strip(f"rank {rank.rank}", rects))
    return lines


def _bar(x: float, width: float, kind: str = "g-exposed", opacity: float = 1.0) -> str:
    return rect(x, max(width, 1.0), kind, opacity)


def _table(job: Job) -> list[str]:
    head = "".join(f'<th scope="col">{name}</th>' for name in COLUMNS)
    body = [
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
        for row in rows(job)[:PICTURED]
    ]
    return [
        '<div class="wide" tabindex="0" role="region" aria-label="ranks"><table class="ranks">',
        f"<tr>{head}</tr>",
        *body,
        "</table></div>",
    ]
