"""Input: batches that come too late, and copies that cost more than their bytes."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from detector import vocabulary
from detector.index_sets import difference
from detector.patterns import capability
from detector.patterns.conditions import has_loader, in_inference, on_cpu, under_ddp
from detector.patterns.pattern import PAUSED, WHOLE, Advice, Pattern
from detector.patterns.places import op_around
from detector.patterns.repairs import CALL_NS, removed, shorter_gaps
from detector.replay.repair import Repair
from detector.signals import Signals
from detector.signals.copies import made_for
from detector.signals.host import ORDINARY_FETCH_NS, fetch_ns, resting, tensors_in, waited
from detector.signals.python import calls_of, gap_before
from detector.trace import Int64

APART: Final = 8  # so many tensors in a batch are samples sent apart, not fields
# The causes of the ledger that a copy accounts for: itself, its calls, and the wait for it.
_COPYING: Final = ("copy", "pageable", "sync-copy", "restart", "dispatch", "latency")


def _pinned(s: Signals, rows: Int64) -> Repair:
    """The call returns at once, and the copy runs at the speed of pinned memory."""
    calls = calls_of(s, rows)
    waits = _waits_for(s, rows)
    most = capability.pinned_copy_ns(s, rows)
    own = np.full(len(calls), CALL_NS)
    return Repair(unwait=np.union1d(calls, waits), own=(calls, own), work=(rows, most))


def _waits_for(s: Signals, copies: Int64) -> Int64:
    """Synchronizations in the op that copies."""
    waits = s["input-copy-wait"]
    ops = s.enclosing(s.trace.op[copies].astype(np.int64), vocabulary.MOVES)
    return waits[s.activity.spans(ops[ops >= 0]).contain(s.trace.start[waits])]


def _no_transfer(s: Signals, rows: Int64) -> Repair:
    """The op that moves the tensor goes, with its copy and its wait."""
    ops = s.enclosing(s.trace.op[rows].astype(np.int64), vocabulary.MOVES)
    known = ops >= 0
    calls = calls_of(s, rows[~known])
    return Repair(remove=np.union1d(ops[known], calls), drop=rows)


def _made_on_device(s: Signals, rows: Int64) -> Repair:
    """Neither the factory op on the host nor the transfer; a fill on the device costs nothing."""
    copies, factory = made_for(s)
    mine = np.isin(copies, rows) & (factory >= 0)
    return _no_transfer(s, rows) | Repair(remove=np.unique(factory[mine]))


def _behind_the_rest(s: Signals, rows: Int64) -> Repair:
    """Copies are hidden as far as there is time for it: all of the time from the first compute to
    the last but the copies', since the copy engine works while the device waits for the host, too.
    """
    copies, compute = s.activity.spans(rows), s.activity.compute
    if not len(compute):
        return Repair()
    first, last = int(compute.start[0]), int(compute.end[-1])
    room = last - first - copies.clip(first, last).measure
    left = max(0.0, 1 - room / max(1, copies.measure))
    return Repair(work=(rows, (s.trace.dur[rows] * left).astype(np.int64)))


def _made_by_workers(s: Signals, rows: Int64) -> Repair:
    """The loader's calls go. Without a device that hides it, what it takes to fetch a worker's
    batch stays."""
    if s.activity.has_device:
        return removed(s, rows)
    share = ORDINARY_FETCH_NS / np.maximum(s.trace.dur[rows], 1)
    return _quicker(s, rows, np.minimum(share, 1.0))


def _quicker(s: Signals, rows: Int64, share: npt.NDArray[np.float64]) -> Repair:
    """These calls of one thread keep a share each, all inside them alike."""
    inside = s.inside(rows)
    which = np.searchsorted(s.trace.start[rows], s.trace.start[inside], side="right") - 1
    return Repair(own=(inside, (s.own_time[inside] * share[which]).astype(np.int64)))


def _no_wait(s: Signals, rows: Int64) -> Repair:
    """The waits go. Without a device that hides it, what it takes to fetch a batch stays."""
    if s.activity.has_device:
        return removed(s, rows)
    rest = resting(s, rows)
    if len(rest):
        return Repair(own=(rest, np.zeros(len(rest), np.int64)))
    return Repair(own=(rows, np.maximum(s.own_time[rows] - waited(s, rows), 0)))


def _prepared_before(s: Signals, rows: Int64) -> Repair:
    """Frames and ops that prepare are removed; gaps of array work shrink to the usual gap, and
    batches of many tensors, which are samples yet to be prepared, are fetched as a few."""
    seen = np.intersect1d(rows, s["preprocessing"])
    return Repair(remove=seen) | shorter_gaps(s, difference(rows, seen)) | _joined_batches(s)


def _joined_batches(s: Signals) -> Repair:
    """On a CPU run: batches that workers send as many tensors are fetched as a few."""
    if s.activity.has_device:
        return Repair()
    waits = s.named(s.activity.loader_rows, "loader_workers")
    count = tensors_in(s, waits)
    waits, count = waits[count >= APART], count[count >= APART]
    spared = 1 - ORDINARY_FETCH_NS / fetch_ns(count)
    taken = s.trace.dur[waits]
    return _quicker(s, waits, 1 - spared * (taken - waited(s, waits)) / np.maximum(taken, 1))


PATTERNS: Final = (
    Pattern(
        id="input-dataloader-sync",
        kind="fault",
        side="cpu",
        needs=("host",),
        signal="loader-sync",
        repair=_made_by_workers,
        assumes="workers make batches as fast as they are consumed",
        explains=("loader",),
        error=WHOLE,
        title="Data loading blocks training (num_workers=0)",
        what="The data loader has no workers, so the training thread reads and decodes every "
        "batch.",
        look="enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__ while nothing computes",
        costs="While the training thread makes a batch it launches nothing. As soon as the queued "
        "work is done, the device waits for the rest of the batch, in every step.",
        repaired="The loader's calls go, with all inside them; on a CPU run what it takes to "
        "fetch a worker's batch stays.",
        harmless="The device has work queued for longer than a batch takes to make: then the call "
        "is hidden, and the replay saves nothing.",
        advice=(
            Advice(
                "Give the loader a few worker processes and keep them alive between epochs; leave "
                "the ops enough cores (torch.set_num_threads).",
                "DataLoader(dataset, num_workers=2, persistent_workers=True)",
                (on_cpu,),
            ),
            Advice(
                "Give each rank's loader worker processes (the machine's cores divided by its "
                "ranks), keep them alive between epochs, and pin the batches.",
                "DataLoader(dataset, sampler=DistributedSampler(dataset), num_workers=4,\n"
                "           persistent_workers=True, pin_memory=True)",
                (under_ddp,),
            ),
            Advice(
                "Give the loader worker processes, keep them alive between epochs, and pin the "
                "batches.",
                "DataLoader(dataset, num_workers=4, persistent_workers=True, pin_memory=True)",
            ),
        ),
        facts=("loader_sync", "idle_loader", "loader_calls"),
    ),
    Pattern(
        id="input-dataloader-starved",
        kind="fault",
        side="cpu",
        needs=("host",),
        signal="loader-workers",
        repair=_no_wait,
        assumes="with enough workers no batch is waited for",
        explains=("loader",),
        error=WHOLE,
        title="Data loader workers do not keep up",
        what="Worker processes exist, but the training loop still waits for their batches.",
        look="_MultiProcessingDataLoaderIter.__next__ waits, periodic or long at an epoch's start",
        costs="The loop stands still until the next batch arrives. Waits every few steps mean too "
        "few workers; one long wait at the start of an epoch means that workers start again.",
        repaired="The waits for batches go; on a CPU run what it takes to fetch a batch that is "
        "ready stays.",
        harmless="The waits are what it takes to fetch a batch that is ready: some milliseconds "
        "where it comes as many tensors.",
        advice=(
            Advice(
                "Add workers while cores are left, keep them alive between epochs, or make "
                "decoding cheaper; more workers than cores take time from the ops.",
                "DataLoader(dataset, num_workers=4, prefetch_factor=4, persistent_workers=True)",
                (on_cpu,),
            ),
            Advice(
                "Add workers or prefetching and keep the workers alive; where the cores are used "
                "up, make decoding cheaper or move augmentation to the GPU.",
                "DataLoader(dataset, num_workers=8, prefetch_factor=4, persistent_workers=True,\n"
                "           pin_memory=True)",
            ),
        ),
        facts=("loader_workers", "idle_loader", "loader_calls"),
    ),
    Pattern(
        id="input-main-thread-preprocessing",
        kind="fault",
        side="cpu",
        needs=("host",),
        signal="preparation",
        repair=_prepared_before,
        place=gap_before,
        assumes="workers do this in parallel, and keep up",
        explains=("preprocessing",),
        error=PAUSED,
        title="Preprocessing on the training thread",
        what="Image, text or array work runs on the thread that should feed the model.",
        look="PIL, numpy, cv2 or tokenizer frames, or CPU tensor ops, while the launch queue is "
        "empty",
        costs="The thread launches nothing meanwhile: the device runs dry for as long as the "
        "preparation takes.",
        repaired="The frames and ops that prepare data go; array work between a tensor and the "
        "next shrinks to the usual gap. On a CPU run samples that the loader sends apart come "
        "together.",
        harmless="The work overlaps with queued device work, or has to wait for the model's last "
        "answer anyway.",
        advice=(
            Advice(
                "Move the work into the dataset or the collate function, so that the loader's "
                "workers do it ahead of time.",
                "class Data(Dataset):\n    def __getitem__(self, i): return preprocess(load(i))",
                (has_loader,),
            ),
            Advice(
                "Prepare the next request in a thread or a process while this one computes; image "
                "transforms can also run on the device.",
                "pool = ThreadPoolExecutor(4)\n"
                "ahead = pool.submit(preprocess, next_request)  # while model(x) runs\n"
                "x = ahead.result()",
                (in_inference,),
            ),
            Advice(
                "Move the work into a dataset that worker processes read ahead of time.",
                "class Data(Dataset):\n    def __getitem__(self, i): return preprocess(load(i))\n"
                "loader = DataLoader(Data(), num_workers=4, persistent_workers=True)",
            ),
        ),
        facts=("hostless_op", "preprocess", "idle_python", "idle_op"),
        cites="frame",
        counted=None,
    ),
    Pattern(
        id="input-pageable-copy",
        kind="fault",
        side="cpu",
        needs=("device",),
        signal="pageable-copy",
        repair=_pinned,
        assumes="the memory can be pinned; copies run at the pinned bandwidth of the device's "
        "generation",
        explains=("pageable", "copy", "sync-copy"),
        title="Host-to-device copies from pageable memory",
        what="Copies from memory that is not pinned block the host until they end.",
        look="Memcpy HtoD (Pageable -> Device), then a synchronization; ROCm: hipMemcpyWithStream",
        costs="The driver first copies into a pinned buffer of its own, at a third of the speed, "
        "and the host waits for it instead of launching.",
        repaired="The call returns at once, nothing waits for the copy, and the copy takes as long "
        "as its bytes take from pinned memory.",
        harmless="A few copies before the first step, such as the model's parameters.",
        advice=(
            Advice(
                "Let the loader pin its batches, and copy without blocking.",
                "loader = DataLoader(..., pin_memory=True)\nx = x.to(device, non_blocking=True)",
                (has_loader,),
            ),
            Advice(
                "Fill a pinned buffer that is kept between calls, and copy from it without "
                "blocking.",
                "buffer = torch.empty(shape, dtype=x.dtype, pin_memory=True)  # once\n"
                "buffer.copy_(x)\n"
                "x = buffer.to(device, non_blocking=True)",
            ),
        ),
        facts=("h2d_pageable", "pageable_time", "exposed_copy", "h2d_speed", "sync_h2d"),
        cites="copy",
        counted="copies",
    ),
    Pattern(
        id="input-copy-not-overlapped",
        kind="fault",
        side="gpu",
        needs=("device",),
        signal="inline-copy",
        repair=_behind_the_rest,
        assumes="a side stream copies the next batch while this one computes",
        explains=("copy",),
        title="Input copies not overlapped with compute",
        what="Pinned copies run on the compute stream, so the GPU computes nothing meanwhile.",
        look="Memcpy HtoD (Pinned -> Device) on the compute stream with no kernel beside it",
        costs="Each step pays for its copy, although the copy engine could have moved the batch "
        "during the step before.",
        repaired="The copies go from the compute stream, as far as there is time between the first "
        "and the last compute to hide them in.",
        harmless="Loading a model, or a batch that is known only when the last result is there.",
        advice=(
            Advice(
                "Prefetch the next batch on a side stream while this one computes.",
                "copies = torch.cuda.Stream()  # once\n"
                "with torch.cuda.stream(copies):\n"
                "    ahead = next(batches).to(device, non_blocking=True)\n"
                "torch.cuda.current_stream().wait_stream(copies)  # before ahead is used\n"
                "ahead.record_stream(torch.cuda.current_stream())",
            ),
        ),
        facts=("exposed_copy", "h2d_time", "h2d_in_line", "h2d_speed", "h2d"),
        cites="copy",
        counted="copies",
    ),
    Pattern(
        id="input-tiny-copies",
        kind="fault",
        side="cpu",
        needs=("device",),
        signal="tiny-copy",
        repair=_no_transfer,
        assumes="the values are packed into a transfer that is made anyway, or are built on the "
        "device",
        explains=_COPYING,
        error=WHOLE,
        title="Many small host-to-device copies",
        what="The call for each small host-to-device copy takes longer than moving its bytes.",
        look="many Memcpy HtoD under 64 KB in a step",
        costs="Per copy some ten microseconds of ops and calls on the host, and a wait where the "
        "memory is pageable.",
        repaired="The op that moves each tensor goes, with its copy and its wait.",
        harmless="A handful in a step: positions, lengths, a learning rate.",
        advice=(
            Advice(
                "Let collate_fn pack the small fields into one tensor, copy that once and take "
                "views of it on the GPU.",
                "packed = torch.stack([a, b, c]).pin_memory()  # in collate_fn\n"
                "a, b, c = packed.to(device, non_blocking=True).unbind()",
                (has_loader,),
            ),
            Advice(
                "Collect the values on the host and copy them once, or compute them on the GPU "
                "from what is there.",
                "values = torch.tensor([a, b, c]).pin_memory().to(device, non_blocking=True)",
            ),
        ),
        facts=("h2d_small", "h2d", "h2d_time", "exposed_copy"),
        cites="copy",
        counted="copies",
    ),
    Pattern(
        id="input-cpu-tensor-to-device",
        kind="fault",
        side="cpu",
        needs=("device", "host"),
        signal="factory-copy",
        repair=_made_on_device,
        place=op_around(vocabulary.MOVES),
        assumes="the tensor can be made on the device at no cost",
        explains=_COPYING,
        error=WHOLE,
        title="Tensors created on the CPU, then copied to the GPU",
        what="A factory call fills a tensor on the host, and a copy moves it to the GPU.",
        look="aten::zeros/ones/arange/randn/full, then aten::to -> aten::_to_copy -> aten::copy_",
        costs="The host computes and copies what one small kernel could write, and, as the memory "
        "is pageable, waits for the copy.",
        repaired="The factory op, the op that moves the tensor, its copy and its wait go.",
        harmless="Random numbers that must be the same on every device.",
        advice=(
            Advice(
                "Pass the device to the factory call; keep what never changes as a buffer of the "
                "module.",
                "mask = torch.zeros(n, device=x.device)\n"
                'self.register_buffer("positions", torch.arange(n))  # moves with the model',
            ),
        ),
        facts=("factory_ops", "to_ops", "h2d", "exposed_copy"),
        cites="op",
    ),
)
