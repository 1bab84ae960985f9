"""What a program computes, whatever it costs: its heavy ops with their shapes, for a comparison.

Repairs change small ops, copies and waiting; matrix products and convolutions they leave alone.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from detector.activity import Activity
from detector.index_sets import groups
from detector.report import ProgramOp
from detector.trace import Cat
from detector.window import AnalyzedTime

MOST: Final = 64
LONGEST: Final = 200  # characters of a text of shapes
_HEAVY: Final = re.compile(
    r"^aten::(mm|bmm|addmm|baddbmm|_scaled_mm|convolution|convolution_backward|embedding)$"
)


def heavy_ops(activity: Activity, analyzed: AnalyzedTime) -> tuple[ProgramOp, ...]:
    """The heavy ops of the analyzed time, the most frequent first."""
    trace = activity.trace
    rows = activity.named(activity.of(Cat.CPU_OP), _HEAVY)
    inside = (trace.start[rows] >= analyzed.start) & (trace.start[rows] < analyzed.end)
    rows = rows[inside]
    kinds, which = groups(trace.name[rows], trace.dims[rows])
    steps = max(len(analyzed.steps), 1)
    found = [
        ProgramOp(trace.names[name], trace.names[dims][:LONGEST] if dims >= 0 else "", n / steps)
        for name, dims, n in zip(*(k.tolist() for k in (*kinds, np.bincount(which))), strict=True)
    ]
    return tuple(sorted(found, key=lambda op: (-op.calls, op.name, op.shapes))[:MOST])
