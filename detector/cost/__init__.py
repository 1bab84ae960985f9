"""How much time a pattern could give back, and which time that is.

A claim is a set of wall-time intervals and a weight: claimed time times weight is the recoverable
time. Weights under 1 are models, each with its reason in ``WEIGHTS``; the rest is measured idle or
needless work. Intervals let the pipeline keep claims disjoint, so shares never add up beyond 1.

Idle is time in which the main device runs nothing; what is ``Activity.stalled`` of it nobody can
claim. One module a side: ``host`` and ``device``. Sources of the formulas: the taxonomy's column
"recoverable time".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from detector.activity import Activity
from detector.cost import device, host
from detector.intervals import Intervals

CLAIMS: Final = {**host.CLAIMS, **device.CLAIMS}

# The share of the claimed time that the fix gives back, where it cannot be measured.
WEIGHTS: Final[dict[str, float]] = {
    "host-launch-bound": 0.8,  # a graph launch still costs a launch
    "host-loop-indexing": 0.9,  # one vectorised op remains of ten or more
    "memory-redundant-copy": 0.8,  # some copies are needed
    "compute-fp32-matmul": 0.67,  # TF32 at a third of the time; bounded by what is memory-bound
    "compute-misaligned-gemm": 0.3,  # aligned kernels of the same size, typical
    "compute-unfused-attention": 0.6,  # the fused op spares the score matrix's traffic
    "compute-unfused-elementwise": 0.6,  # a chain of three reads and writes once instead of thrice
    "compute-single-tensor-optimizer": 0.7,  # the arithmetic stays, the many launches go
    "comm-small-collectives": 0.7,  # the bytes stay, the latencies go
    "infer-autograd": 0.1,  # book-keeping per op
    "infer-kv-cat": 0.9,  # writing one row instead of copying all
    "compute-conv-bias-batchnorm": 0.05,  # on a CPU run the bias is a small part of the convolution
}


@dataclass(frozen=True)
class Claim:
    """Time a finding says it can give back: ``weight`` times the measure of ``intervals``."""

    intervals: Intervals
    weight: float

    @property
    def recoverable_ns(self) -> float:
        """Recoverable time, ns."""
        return self.weight * self.intervals.measure

    def within(self, spans: Intervals) -> Claim:
        """The part of the claim inside ``spans``."""
        return Claim(self.intervals & spans, self.weight)

    def without(self, spans: Intervals) -> Claim:
        """The part of the claim outside ``spans``."""
        return Claim(self.intervals - spans, self.weight)


def claim(activity: Activity, pattern: str) -> Claim:
    """What ``pattern`` can claim of the whole trace; ``within`` gives the part of a region."""
    claimed = CLAIMS[pattern](activity) - activity.stalled
    return Claim(claimed, weight(activity, pattern))


def weight(activity: Activity, pattern: str) -> float:
    """The share of its claimed time that a pattern's fix gives back."""
    if pattern == "compute-underfilled":
        return device.mean_unfilled(activity)
    if pattern == "compute-conv-bias-batchnorm" and activity.has_device:
        return 1.0  # there the bias kernels themselves are claimed
    return WEIGHTS.get(pattern, 1.0)
