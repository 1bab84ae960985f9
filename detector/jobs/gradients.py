"""What DDP reduces in a step, beside the model's own gradients.

How large these are follows from their shapes, where shapes were recorded, or by the copies that DDP
makes of each reduced bucket into the gradients. Both are seen in every pass backward, of which a
step may have several: in n passes of a model every size occurs a multiple of n times.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

from detector import vocabulary
from detector.jobs.rank import Calls, calls_of, elements_of
from detector.jobs.traffic import dimension, traffic
from detector.jobs.volumes import bytes_of
from detector.logs.collectives import element_bytes
from detector.report.job import Communication, Gradients
from detector.signals import Signals
from detector.signals.device import issued
from detector.signals.event_sets import first_type
from detector.trace import Cat, Int64, Step
from detector.window import AnalyzedTime

REDUCING: Final = ("AllReduce", "ReduceScatter")
Span = tuple[int, int]  # [start, end) ns
Sizes = Counter[tuple[int, int]]  # (bytes, elements) of a gradient; elements -1: not known


def communication(signals: Signals, analyzed: AnalyzedTime) -> Communication | None:
    """What the rank of this trace sends; None without a collective."""
    calls = calls_of(signals.trace, signals.activity)
    if not len(calls.collectives):
        return None
    return Communication(traffic([calls]), gradients(signals, calls, analyzed.steps))


def gradients(signals: Signals, calls: Calls, marked: Sequence[Step]) -> Gradients | None:
    """None where it is not under DDP, or steps or sizes are not known."""
    if not marked:
        return None
    activity, span = signals.activity, (marked[0].start, marked[-1].end)
    passes = activity.named(signals.host_events, vocabulary.DDP_PASS)
    updates = activity.host("optimizer_step")
    # The profiler may record one event twice, as an op and as an annotation.
    n_passes, n_updates = (
        len(activity.spans(_within(signals, rows, span))) for rows in (passes, updates)
    )
    steps = min(len(marked), n_updates)
    if not steps or not n_passes:
        return None
    sizes, known_by = _by_shapes(signals, span), "shapes"
    if not sizes:
        sizes, known_by = _by_copies(signals, span), "copies"
    reduced = _reduced(calls, span, signals.trace.base_ns)
    rounds = math.gcd(n_passes, *sizes.values())
    whole = sum(size * n for (size, _), n in sizes.items()) // rounds
    if not whole or reduced is None:
        return None
    elements = sum(count * n for (_, count), n in sizes.items()) // rounds
    return Gradients(
        reduced_bytes=reduced[0] / steps,
        reduced_elements=reduced[1] / steps,
        model_bytes=whole,
        model_elements=elements if known_by == "shapes" else -1,
        times=reduced[0] / steps / whole,
        known_by=known_by,
    )


def _within(signals: Signals, rows: Int64, span: Span) -> Int64:
    start = signals.trace.start[rows]
    found: Int64 = rows[(start >= span[0]) & (start < span[1])]
    return found


def _ops(signals: Signals, name: re.Pattern[str], span: Span) -> Int64:
    activity = signals.activity
    return _within(signals, activity.named(activity.of(Cat.CPU_OP), name, Cat.CPU_OP), span)


def _by_shapes(signals: Signals, span: Span) -> Sizes:
    """Gradients added to those of their parameters; empty where one has no shape or type."""
    trace, names = signals.trace, signals.trace.names
    rows = _ops(signals, vocabulary.ACCUMULATES, span)
    found = Sizes()
    for (dims, types), n in Counter(
        zip(trace.dims[rows].tolist(), trace.types[rows].tolist(), strict=True)
    ).items():
        if dims < 0 or types < 0:
            return Sizes()
        width, count = (
            element_bytes(first_type(names[types])),
            elements_of(names[dims], names[types]),
        )
        if not width or count < 0:
            return Sizes()
        found[width * count, count] += n
    return found


def _by_copies(signals: Signals, span: Span) -> Sizes:
    """Copies out of DDP's buckets, by the bytes that the device moved."""
    rows = _ops(signals, vocabulary.OUT_OF_BUCKET, span)
    if not len(rows):
        return Sizes()
    work = issued(signals, rows)
    copied = signals.trace.bytes[work[signals.trace.cat[work] == Cat.GPU_MEMCPY]]
    return Sizes((size, -1) for size in copied.tolist() if size > 0)


def _reduced(calls: Calls, span: Span, base_ns: int) -> tuple[int, int] | None:
    """Bytes and elements; None without a reduction, or where one has no size."""
    c = calls.collectives
    inside = (c.called >= span[0] + base_ns) & (c.called < span[1] + base_ns)
    size = elements = 0
    for kind, count in zip(c.kind[inside].tolist(), c.elements[inside].tolist(), strict=True):
        what = calls.kinds[kind]
        if what.op not in REDUCING or not _is_data_parallel(calls.purposes.get(what.group, "")):
            continue
        if (mine := bytes_of(count, what.dtype)) < 0:
            return None
        size, elements = size + mine, elements + count
    return (size, elements) if size else None


def _is_data_parallel(purpose: str) -> bool:
    """Unless the group says that it is for something else."""
    return dimension(purpose) in ("", "data")
