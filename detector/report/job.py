"""What a report says of communication and of a job of several ranks.

Fields mirror ``report.json``, name for name. The text below each field is what ``docs/report.md``
says of it. Times are µs; instants are on the axis of the report's own trace, the reference rank's,
whatever the other ranks' clocks said.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class JobCause:
    """Time of one cause."""

    cause: str
    """Id of the ledger's cause."""
    label: str
    """The same in words."""
    us: float
    """Time of the cause; of a straggler: beyond the other ranks' median."""


@dataclass(frozen=True)
class JobRank:
    """One rank of the job."""

    rank: int
    """Its number."""
    path: str
    """Its trace."""
    clock_offset_us: float
    """Subtracted from its times to reach the reference rank's axis."""
    step_us: float
    """Median length of its steps; of its analyzed time where no steps are marked."""
    waiting_us: float
    """Time in matched collectives before the last rank arrived."""
    transfer_us: float
    """Time in matched collectives after that."""
    late_us: float
    """How long, on average, the other ranks waited for this one alone."""
    ledger: tuple[JobCause, ...] = ()
    """Its time by cause, largest first."""


@dataclass(frozen=True)
class JobCollective:
    """One collective, matched across ranks."""

    op: str
    """Its operation."""
    group: str
    """Its process group, or stream where none was recorded."""
    bytes: int
    """Of the message on one rank; -1 where the traces do not say."""
    step: int | None
    """Index of the step it ends in; null where no steps are marked."""
    start_us: float
    """Arrival of the first rank."""
    end_us: float
    """When it ended."""
    skew_us: float
    """From the first rank's arrival to the last one's."""
    transfer_us: float
    """Its time on the last rank to arrive."""
    last: int
    """The last rank to arrive."""
    arrivals_us: tuple[float, ...] = ()
    """Arrival of each rank after the first, in the order of ``ranks``; empty but for the worst."""


@dataclass(frozen=True)
class JobStraggler:
    """A rank that the others wait for, and why."""

    rank: int
    """Its number."""
    how: str
    """``persistent``, ``periodic``, ``at times``; ``one step``: the traces hold no more; of a pause
    ``one-off``."""
    chance: float
    """How likely ranks that are alike would seem as uneven; 1 where the traces cannot tell."""
    since: int | None
    """Index of the first step in which the others waited for it; null without steps."""
    steps: tuple[int, ...]
    """The steps in which they did."""
    waited_us: float
    """How long, on average, the other ranks waited for it."""
    share: float
    """That, over all waiting."""
    cause: str
    """What its own time shows where the others waited: an id of the ledger, its largest excess;
    ``before``: its recording begins later than theirs."""
    kind: str
    """``data``, ``host``, ``compute``, ``sync``, ``copy``, ``before`` (late when its recording
    begins) or ``unknown``."""
    causes: tuple[JobCause, ...]
    """All excesses, largest first."""
    detail: str
    """What tells more work from slower work."""


@dataclass(frozen=True)
class JobTraffic:
    """Collectives of one kind and size, of all ranks that were read."""

    op: str
    """The operation."""
    dtype: str
    """Type of an element, as the trace spells it; empty where unknown."""
    group: str
    """Process group."""
    dimension: str
    """``data``, ``tensor``, ``pipeline`` or ``expert`` parallel, where the group's name tells."""
    group_size: int
    """Ranks of the group; 0 where unknown."""
    algorithm: str
    """By the kernel's name; empty where it does not tell."""
    protocol: str
    """By the kernel's name; empty where it does not tell."""
    bytes: int
    """Of one message; -1 where unknown."""
    calls: int
    """How often."""
    elements: int
    """Over all calls; -1 where unknown."""
    transfer_us: float
    """The fastest instance; the rest of the others' time is waiting, or nobody can tell."""
    bus_gbs: float
    """Bus bandwidth of the median instance; 0 where unknown."""
    best_bus_gbs: float
    """Of the fastest instance of this size."""


@dataclass(frozen=True)
class Gradients:
    """What one rank reduces of gradients in a step, beside the model's own size."""

    reduced_bytes: float
    """Of all-reduces and reduce-scatters in a step, but for those of groups that are not data
    parallel."""
    reduced_elements: float
    """The same, elements."""
    model_bytes: int
    """Of the gradients of all parameters, each once."""
    model_elements: int
    """The same, elements; -1 where only copies show them."""
    times: float
    """Reduced bytes over the model's: 1 under DDP; n where n micro-steps all reduce; less where
    gradients are sharded, or reduced in a smaller type."""
    known_by: str
    """``shapes`` of the gradients, or ``copies`` of them out of DDP's buckets."""


@dataclass(frozen=True)
class Communication:
    """What this trace's rank sends."""

    traffic: tuple[JobTraffic, ...]
    """Its collectives by kind and size, most bytes first."""
    gradients: Gradients | None = None
    """Null where it is not under DDP, or nothing tells how large the gradients are."""


@dataclass(frozen=True)
class Job:
    """Several ranks, read as one job."""

    world_size: int | None
    """Ranks of the whole job; null where no trace says."""
    reference: int
    """The rank whose trace the rest of the report is about: the one the others wait for most."""
    ranks: tuple[JobRank, ...]
    """The ranks that were read."""
    missing: tuple[int, ...]
    """Ranks without a trace; their waiting and lateness are not known."""
    matched_by: str
    """``sequence`` numbers, ``group order``, ``stream order``, or ``ends``: the least certain way
    that was needed."""
    confidence: float
    """Share of collectives whose operation and size agree over the ranks; by ``ends``, that have
    a partner at all."""
    clock_error_us: float
    """How far apart the ranks end a collective after alignment, at most in nine of ten."""
    step_us: float
    """The job's step: the median over steps, of the slowest rank."""
    waiting_us: float
    """Mean over ranks."""
    transfer_us: float
    """Mean over ranks."""
    balanced_us: float
    """What balance would save of the analyzed time: every rank arriving with the mean."""
    without_straggler_us: float
    """What is saved when the straggler arrives with the median of the others."""
    pattern: str
    """``balanced``, ``straggler``, ``one-off``, ``in turn`` or ``uneven``."""
    stragglers: tuple[JobStraggler, ...] = ()
    """The ranks that the others wait for."""
    pauses: tuple[JobStraggler, ...] = ()
    """A single step in which they wait long for one rank, which makes no straggler of it."""
    path: tuple[JobCause, ...] = ()
    """The ledger along the critical path: in each stretch, that of the last rank to arrive."""
    heat: tuple[tuple[float, ...], ...] = ()
    """Waiting caused by each rank (rows, as ``ranks``) in each step (columns), µs."""
    collectives: tuple[JobCollective, ...] = ()
    """The collectives with the most waiting, in time order, 200 at most."""
    traffic: tuple[JobTraffic, ...] = ()
    """The communication profile, most bytes first."""
    notes: tuple[str, ...] = ()
    """What is missing, doubtful or left out, one line each."""
