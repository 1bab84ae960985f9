"""What was read, and by what: the trace, its coverage and steps, this program and its models."""

from __future__ import annotations

from dataclasses import dataclass, field


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
