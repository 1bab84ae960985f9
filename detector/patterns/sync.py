"""Synchronization: the host waits for the device, and the device runs dry behind it."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from detector import vocabulary
from detector.patterns.conditions import in_inference, in_training, on_rocm, scales_gradients
from detector.patterns.pattern import WHOLE, Advice, Pattern
from detector.patterns.places import op_around
from detector.patterns.repairs import CALL_NS
from detector.replay.repair import Repair
from detector.signals import Signals
from detector.signals.python import calls_of
from detector.trace import Cat, Int64

FUNCTIONS: Final = 4  # a call, its built-in, and torch's methods around it


def _unread(s: Signals, rows: Int64) -> Repair:
    """The op that reads the value goes, with its copy and its wait."""
    ops = s.enclosing(rows, vocabulary.READS_BACK)
    return Repair(remove=np.unique(ops[ops >= 0]), unwait=rows)


def _not_asked(s: Signals, rows: Int64) -> Repair:
    """The calls that wait go, with torch's functions around them, and the event that is recorded
    for nothing but such a wait."""
    calls = s.calls
    place = np.searchsorted(calls, rows)
    before = calls[np.maximum(place - 1, 0)]
    recorded = np.isin(before, s.activity.named(calls, vocabulary.RECORDS_EVENT))
    recorded &= s.trace.track[before] == s.trace.track[rows]
    recorded &= np.isin(rows, s.activity.named(rows, vocabulary.EVENT_SYNC))
    frames = s.activity.of(Cat.PYTHON_FUNCTION)
    asking = s.activity.named(frames, vocabulary.SYNCHRONIZES, Cat.PYTHON_FUNCTION)
    asking = asking[np.isin(asking, _around(s, rows))]
    gone = Repair(remove=np.concatenate([rows, before[recorded]]))
    return gone | Repair(own=(asking, np.zeros(len(asking), np.int64)))


def _around(s: Signals, rows: Int64) -> Int64:
    """What is open right around these rows: the functions between a call and who asks for it."""
    found, at = [rows[:0]], rows.astype(np.int64)
    for _ in range(FUNCTIONS):
        at = s.trace.parent[at[at >= 0]].astype(np.int64)
        found.append(at)
    return np.concatenate(found)


def _sized_before(s: Signals, rows: Int64) -> Repair:
    """The wait goes, the copy of the size, and the op's time on the host: what it launches stays,
    and a mask is part of an op that is there anyway."""
    copies = _copies_beside(s, rows, vocabulary.HOST["dynamic_shape"])
    ops = s.enclosing(rows, vocabulary.HOST["dynamic_shape"])
    inside = s.inside(np.unique(ops[ops >= 0]))
    own = Repair(own=(inside, np.zeros(len(inside), np.int64)))
    return own | Repair(unwait=np.union1d(rows, calls_of(s, copies)), drop=copies)


def _left_on_device(s: Signals, rows: Int64) -> Repair:
    """The waits and the copies go; the calls stay."""
    copies = _copies_beside(s, rows, vocabulary.READS_BACK)
    return Repair(unwait=np.union1d(rows, calls_of(s, copies)), drop=copies)


def _copies_beside(s: Signals, waits: Int64, ops: re.Pattern[str]) -> Int64:
    """Copies to the host that the op around each wait issued."""
    around = s.enclosing(waits, ops)
    spans = s.activity.spans(around[around >= 0])
    copies = s.activity.copies_of("d2h")
    launch = s.trace.launch[copies]
    return copies[(launch >= 0) & spans.contain(s.trace.start[launch])]


def _queued(s: Signals, rows: Int64) -> Repair:
    """Each launch takes what a launch takes, and no wait follows it."""
    own = np.full(len(rows), CALL_NS)
    launches = rows[np.isin(s.trace.cat[rows], (Cat.RUNTIME, Cat.DRIVER))]
    return Repair(own=(rows, own), unwait=launches)


PATTERNS: Final = (
    Pattern(
        id="sync-scalar-readback",
        kind="fault",
        side="cpu",
        needs=("device", "host"),
        signal="scalar-readback-wait",
        repair=_unread,
        place=op_around(vocabulary.READS_BACK),
        assumes="nobody needs the value now",
        explains=("sync-scalar", "restart"),
        title="Single values read back from the GPU",
        what="Reading one value makes the host wait until the GPU has finished all queued work.",
        look="aten::item -> aten::_local_scalar_dense, a copy of a few bytes, a stream "
        "synchronization",
        costs="The wait itself, and the idle time after it: the queue is empty, so the GPU waits "
        "for the next launch.",
        repaired="The op that reads the value goes, with its copy and its wait.",
        harmless="Once in many steps, for a log; or where the host is so far ahead that the queue "
        "refills before the GPU runs dry.",
        advice=(
            Advice(
                "Keep the loss and metrics on the GPU and read them every N steps. The GradScaler "
                "reads one value a step by itself; bf16 needs no scaler, where the GPU has it.",
                "total += loss.detach()\nif step % 100 == 0: log(total.item() / 100)",
                (scales_gradients, in_training),
            ),
            Advice(
                "Keep the loss and metrics on the GPU and read them every N steps; replace "
                "`if tensor:` by torch.where.",
                "total += loss.detach()\nif step % 100 == 0: log(total.item() / 100)",
                (in_training,),
            ),
            Advice(
                "Keep stop tests and sampling on the GPU, and look at the stop flag every few "
                "tokens or requests only.",
                "done |= token == eos  # stays on the GPU\n"
                "if i % 8 == 0 and done.all().item(): break",
                (in_inference,),
            ),
            Advice(
                "Keep the value on the GPU and read it every N steps.",
                "total += value.detach()\nif step % 100 == 0: log(total.item())",
            ),
        ),
        facts=("syncs_scalar", "sync_scalar", "scalar_ops", "idle_sync"),
        cites="op",
    ),
    Pattern(
        id="sync-tensor-readback",
        kind="fault",
        side="cpu",
        needs=("device", "host"),
        signal="tensor-readback-wait",
        repair=_left_on_device,
        place=op_around(vocabulary.READS_BACK),
        assumes="nobody needs the tensor on the host now",
        explains=("sync-tensor", "copy", "restart"),
        title="Tensors copied to the host inside the step",
        what="Each copy to pageable host memory blocks the host until the GPU has computed the "
        "tensor.",
        look="Memcpy DtoH (Device -> Pageable) under aten::to / aten::_to_copy",
        costs="The host waits for all queued work and for the copy, and launches nothing "
        "meanwhile.",
        repaired="The waits and the copies go; the calls stay.",
        harmless="The results that leave the program, once per request or epoch.",
        advice=(
            Advice(
                "Compute metrics on the GPU and copy once an epoch; where a copy is needed every "
                "step, copy into pinned memory without blocking and read it a step later.",
                "buffer.copy_(x, non_blocking=True)  # buffer: pinned, kept\n"
                "ready.record()  # torch.cuda.Event; a step later: ready.synchronize()",
                (in_training,),
            ),
            Advice(
                "Do the post-processing on the GPU and copy only its result, into pinned memory; "
                "launch the next request before this one is read.",
                "buffer.copy_(y, non_blocking=True)  # buffer: pinned, kept\n"
                "ready.record()  # torch.cuda.Event; after the next launch: ready.synchronize()",
                (in_inference,),
            ),
            Advice(
                "Leave the work on the GPU, or copy asynchronously into pinned memory.",
                "buffer.copy_(x, non_blocking=True)  # buffer: pinned; read it a step later",
            ),
        ),
        facts=("d2h_calls", "sync_d2h", "d2h", "d2h_time"),
        cites="copy",
    ),
    Pattern(
        id="sync-explicit",
        kind="fault",
        side="cpu",
        needs=("device", "host"),
        signal="explicit-wait",
        repair=_not_asked,
        assumes="nothing but a clock on the host needs the call",
        explains=("sync-explicit", "restart"),
        title="Explicit device or stream synchronization",
        what="The program itself makes the host wait for the GPU.",
        look="cudaDeviceSynchronize, cudaStreamSynchronize or hip* that no read-back explains",
        costs="The wait, and the idle time after it until the host has launched again.",
        repaired="The synchronizing calls go, with torch's functions around them and the event "
        "that is recorded right before one.",
        harmless="At the end of a request or a benchmark, and the profiler's own at either end of "
        "the trace, which is not counted.",
        advice=(
            Advice(
                "Remove torch.cuda.synchronize() and stream.synchronize() from the step; order "
                "streams with wait_stream and measure time with events.",
                "start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))\n"
                "start.record(); work(); end.record()  # end.synchronize() after the last step",
            ),
        ),
        facts=("sync_explicit", "syncs_explicit", "idle_sync"),
        cites="call",
    ),
    Pattern(
        id="sync-dynamic-shape",
        kind="fault",
        side="cpu",
        needs=("device", "host"),
        signal="dynamic-shape-wait",
        repair=_sized_before,
        place=op_around(vocabulary.HOST["dynamic_shape"]),
        assumes="a mask does the same on the device, and computes as much",
        explains=("sync-shape", "restart"),
        title="Data-dependent shapes force a synchronization",
        what="The host must wait for the GPU to know how large the result is.",
        look="aten::nonzero, masked_select, unique or a boolean index, then a copy to the host",
        costs="The wait for all queued work, once per op, and the idle time after it.",
        repaired="The waits, the copies of the sizes and the ops' own time on the host go; what "
        "they launch stays.",
        harmless="The selection is so small that computing on everything would cost more than the "
        "wait.",
        advice=(
            Advice(
                "Keep the shape: compute on all rows and mask the result with torch.where instead "
                "of indexing with a boolean; tell repeat_interleave its output_size.",
                "loss = torch.where(mask, loss, 0).sum() / mask.sum()  # not loss[mask].mean()\n"
                "x.repeat_interleave(counts, output_size=total)  # total: known on the host",
            ),
        ),
        facts=("dynamic_ops", "sync_dynamic_shape", "syncs_dynamic_shape"),
        cites="op",
    ),
    Pattern(
        id="sync-blocking-launch",
        kind="fault",
        side="cpu",
        needs=("device", "host", "links"),
        signal="blocking-launch",
        repair=_queued,
        assumes="launches queue up as fast as they are called",
        explains=("blocked-launch", "call", "restart"),
        error=WHOLE,
        title="Every kernel launch blocks",
        what="Host and GPU take turns: no work is ever queued.",
        look="a synchronization after each launch, or launches as long as their kernels",
        costs="Every launch waits for its kernel, so that neither side ever works ahead.",
        repaired="Each launch takes what a launch takes, and nothing waits after it.",
        harmless="A debugging run, which should not be profiled for speed.",
        advice=(
            Advice(
                "Unset HIP_LAUNCH_BLOCKING and AMD_SERIALIZE_KERNEL, and leave anomaly mode and "
                "other debug switches off.",
                "unset HIP_LAUNCH_BLOCKING AMD_SERIALIZE_KERNEL",
                (on_rocm,),
            ),
            Advice(
                "Unset CUDA_LAUNCH_BLOCKING, and leave anomaly mode and other debug switches off.",
                "unset CUDA_LAUNCH_BLOCKING",
            ),
        ),
        facts=("blocking", "starved", "syncs", "busy"),
        cites="call",
        counted="launches",
    ),
)
