"""Where the analyzed time went, and how suspicious each window of it is."""

from __future__ import annotations

from dataclasses import dataclass


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
