"""What a report says of a job: who waits for whom, as lines and as pictures."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from detector.render.clean import clean
from detector.render.html_text import strip
from detector.render.units import duration, rounded, size
from detector.report.job import Job, JobCollective, JobRank

MOST = 16  # ranks, in the terminal's table
PICTURED = 256  # ranks, in a picture: thinner rows would not be seen
STEPS = 200  # columns of the heat map

PATTERNS = {
    "balanced": "No rank waits to speak of.",
    "in turn": "All ranks come late in turn: no straggler, but no balance either.",
    "uneven": "Ranks wait for each other, and for none of them most of the time.",
}
HEADING = "Who waits for whom"


def verdict(job: Job) -> str:
    """The one line for a newcomer."""
    for s in job.stragglers:
        causes = f", mostly {s.causes[0].label}" if s.causes else ""
        return (
            f"The other ranks wait for rank {s.rank}: {duration(s.waited_us)} on average,"
            f" {rounded(s.share)} of all waiting ({s.how}{_since(s.since)}){causes}."
        )
    for s in job.pauses:
        causes = f", mostly {s.causes[0].label}" if s.causes else ""
        return (
            f"No rank is late as a rule. In step {s.steps[0]} the others wait"
            f" {duration(s.waited_us)} for rank {s.rank}{causes}."
        )
    return PATTERNS.get(job.pattern, "")


def _since(step: int | None) -> str:
    return f", since step {step}" if step is not None else ""


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
    """(rank, waits, transfers, others wait for it, its largest cause) of each rank."""
    return [_rank_row(r) for r in job.ranks]


def _rank_row(r: JobRank) -> tuple[str, str, str, str, str]:
    own = [c for c in r.ledger if c.cause not in ("communication", "rank-wait")]
    most = f"{own[0].label} {duration(own[0].us)}" if own else ""
    return str(r.rank), duration(r.waiting_us), duration(r.transfer_us), duration(r.late_us), most


def collective(c: JobCollective) -> str:
    """One collective on one line."""
    what = f"{c.op} {size(c.bytes)}" if c.bytes >= 0 else c.op
    where = f", step {c.step}" if c.step is not None else ""
    return (
        f"{what}{where}: rank {c.last} last, {duration(c.skew_us)} after the first;"
        f" transfer {duration(c.transfer_us)}"
    )


def worst(job: Job, most: int = 8) -> Sequence[JobCollective]:
    """The collectives with the most waiting, in time order."""
    found = sorted(job.collectives, key=lambda c: -c.skew_us)[:most]
    return sorted(found, key=lambda c: c.start_us)


# -- pictures --------------------------------------------------------------------------------------


def html(job: Job) -> list[str]:
    """The section of the page: one sentence, two pictures, a table."""
    head = [
        '<section aria-label="job">',
        f"<h2>{HEADING}</h2>",
        f'<p class="verdict">{escape(verdict(job))}</p>',
        *(f'<p class="soft">{escape(line)}</p>' for line in summary(job)),
    ]
    return [*head, *_strip(job), *_heat(job), *_table(job), "</section>"]


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
        f"<h3>The collective with the most waiting: {escape(clean(collective(c)))}</h3>",
        '<p class="soft"><span class="swatch g-none"></span> not there yet'
        ' <span class="swatch g-exposed"></span> waits for the last rank'
        ' <span class="swatch g-busy"></span> transfer</p>',
    ]
    for rank, at in list(zip(job.ranks, c.arrivals_us, strict=True))[:PICTURED]:
        if at < 0:
            continue
        left, mid = 1000 * at / span, 1000 * min(c.skew_us / span, 1.0)
        rects = _rect(left, mid - left, "g-exposed") + _rect(mid, 1000 - mid, "g-busy")
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
            _rect(i * width, width, "g-exposed", value / most)
            for i, value in enumerate(cells)
            if value > 0.01 * most
        )
        lines.append(strip(f"rank {rank.rank}", rects))
    return lines


def _rect(x: float, width: float, kind: str, opacity: float = 1.0) -> str:
    faint = "" if opacity >= 1 else f' fill-opacity="{max(opacity, 0.05):.2f}"'
    return (
        f'<rect class="{kind}" x="{x:.1f}" y="0" width="{max(width, 1.0):.1f}" height="20"{faint}/>'
    )


def _table(job: Job) -> list[str]:
    names = ("rank", "waits", "transfers", "others wait for it", "most of its own time")
    head = "".join(f'<th scope="col">{name}</th>' for name in names)
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
