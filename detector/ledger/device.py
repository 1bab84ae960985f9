"""What the device does: busy, exposed transfers, and idle with the work that ends it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from detector.intervals import Intervals
from detector.ledger.causes import CODE
from detector.ledger.pieces import Pieces, merged, of_rows, of_spans
from detector.signals import Signals
from detector.signals.comm import transfer_ns
from detector.signals.waits import called, is_linked
from detector.trace import Int64

BLOCKED_NS: Final = 50_000  # a launch call that takes longer waits: for room, or for its code
REACHES_NS: Final = 100_000  # by then a launch has reached an idle device


@dataclass(frozen=True, eq=False)
class Gap:
    """Idle gaps [start, end) of the main device, ascending.

    ``work`` ends each, -1 for the last one; ``call`` is when the host called for it, within the
    gap; ``thread`` called, -1 where nobody knows; ``linked``: whether the trace tells that call.
    """

    start: Int64
    end: Int64
    work: Int64
    call: Int64
    thread: Int64
    linked: Int64


def busy(s: Signals) -> Pieces:
    """Time in which the main device works: compute, then collectives, copies, fills."""
    a, trace = s.activity, s.trace
    compute = of_rows(trace, a.compute_rows, CODE["compute"])
    comm = _split_waiting(s, of_rows(trace, a.comm_rows, CODE["communication"]).minus(a.compute))
    kernels = a.compute | a.comm
    copies = of_rows(trace, a.copies, CODE["copy"]).minus(kernels)
    fills = of_rows(trace, a.memsets, CODE["fill"]).minus(kernels | a.copy)
    return merged([compute, comm, copies, fills])


def _split_waiting(s: Signals, comm: Pieces) -> Pieces:
    """What a recurring collective takes beyond the fastest of its kind and size is waiting.

    A collective waits first, for the last rank to arrive, and then transfers.
    """
    trace, rows = s.trace, s.activity.comm_rows
    if not len(rows):
        return comm
    until = trace.end[rows] - transfer_ns(s, rows)
    limit = until[np.searchsorted(rows, comm.row)]
    early, late = comm.start < limit, comm.end > limit
    waiting = Pieces(
        comm.start[early], np.minimum(comm.end, limit)[early], comm.row[early], comm.cause[early]
    )
    transfer = Pieces(
        np.maximum(comm.start, limit)[late], comm.end[late], comm.row[late], comm.cause[late]
    )
    return merged([waiting.with_cause(CODE["rank-wait"]), transfer])


def gaps(s: Signals, start: int, end: int) -> Gap:
    """The main device's idle gaps in [start, end)."""
    a, trace = s.activity, s.trace
    idle = a.busy.invert(start, end)
    work = a.device_work
    next_at = np.searchsorted(trace.start[work], idle.end)
    ends = next_at < len(work)
    row = np.where(ends, work[np.minimum(next_at, len(work) - 1)], -1).astype(np.int64)
    ends &= trace.start[row] == idle.end  # the analyzed time may end in an idle gap
    row[~ends] = -1
    call = idle.end.copy()
    call[ends] = np.clip(called(s, row[ends]), idle.start[ends], idle.end[ends])
    linked = np.ones(len(row), np.int64)
    linked[ends] = is_linked(s, row[ends])
    caller = np.where(trace.launch[row] >= 0, trace.launch[row], trace.op[row])
    thread = np.where(ends & (caller >= 0), trace.track[caller], -1).astype(np.int64)
    return Gap(idle.start, idle.end, row, call, thread, linked)


def unlinked(g: Gap) -> Pieces:
    """Gaps that end with work whose call the trace does not tell."""
    unknown = g.linked == 0
    spans = Intervals(g.start[unknown], g.end[unknown])
    return of_spans(spans, CODE["unlinked"], g.work[unknown].astype(np.int32))


def launched(s: Signals, g: Gap) -> Pieces:
    """What of each gap lies after the call for the work that ends it."""
    trace = s.trace
    chosen = (g.linked == 1) & (g.call < g.end)
    start, end, work = g.call[chosen], g.end[chosen], g.work[chosen]
    queued = g.call[chosen] == g.start[chosen]
    launch = trace.launch[work].astype(np.int64)
    returned = np.where(launch >= 0, trace.end[launch], start)
    slow = (launch >= 0) & (trace.dur[launch] > BLOCKED_NS)
    blocked = np.where(slow, np.clip(returned, start, end), start)
    reached = np.minimum(blocked + REACHES_NS, end)
    pageable = np.isin(work, s.activity.pageable_h2d)
    parts = [
        _span(start, blocked, work, np.where(pageable, CODE["pageable"], CODE["blocked-launch"])),
        _span(blocked, reached, work, np.where(queued, CODE["queue"], CODE["latency"])),
        _span(reached, end, work, np.full(len(work), CODE["device-stall"])),
    ]
    return merged(parts)


def _span(start: Int64, end: Int64, row: Int64, cause: Int64) -> Pieces:
    keep = end > start
    return Pieces(start[keep], end[keep], row[keep].astype(np.int32), cause[keep].astype(np.int8))
