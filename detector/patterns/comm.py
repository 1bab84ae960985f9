"""Communication: collectives beside no compute, too many, or too often.

From one rank's trace only transfer can be repaired; what a rank waits for others needs theirs.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from detector import vocabulary
from detector.patterns.conditions import (
    is_exchange,
    under_ddp,
    under_fsdp,
    under_tensor_parallelism,
)
from detector.patterns.pattern import WHOLE, Advice, Pattern
from detector.patterns.repairs import dropped, removed
from detector.replay.repair import Repair
from detector.signals import Signals
from detector.signals.comm import transfer_ns
from detector.trace import Int64


def _overlapped(s: Signals, rows: Int64) -> Repair:
    """The transfer goes behind compute; waiting for other ranks stays, where it is known."""
    if not s.activity.has_device:
        return Repair(own=(rows, np.zeros(len(rows), np.int64)))
    return Repair(work=(rows, s.trace.dur[rows] - transfer_ns(s, rows)))


def _on_time(s: Signals, rows: Int64) -> Repair:
    """All ranks arrive together: what is left is the transfer."""
    return Repair(work=(rows, transfer_ns(s, rows)))


def _bucketed(s: Signals, rows: Int64) -> Repair:
    """All but one of sixteen go, with the ops that call for them."""
    gone = rows[np.arange(len(rows)) % 16 > 0]
    if not s.activity.has_device:
        return Repair(remove=gone)
    ops = s.enclosing(s.trace.op[gone].astype(np.int64), vocabulary.HOST["collective_op"])
    return Repair(remove=np.unique(ops[ops >= 0]), drop=gone)


PATTERNS: Final = (
    Pattern(
        id="comm-exposed",
        kind="opportunity",
        side="gpu",
        needs=("device", "comm"),
        signal="exposed-collective",
        repair=_overlapped,
        assumes="there is compute to hide all transfers behind",
        explains=("communication", "rank-wait"),
        applies=lambda s: not s.activity.has_device or len(s.activity.compute) > 0,
        title="Exposed communication",
        what="The GPU waits for collectives that no compute hides. What exceeds the estimated "
        "transfer is waiting for other ranks, and is not counted as a saving.",
        look="collective kernels with little compute beside them",
        costs="The time of collectives beside which nothing computes: transfer, and waiting for "
        "other ranks.",
        repaired="Collectives take no longer than what is waiting: that of each beyond the fastest "
        "of its kind and size (without sizes: place in the step), or beyond what its size takes at "
        "the best rate of its kind. Where there are fewer than three of a kind, all of it counts "
        "as transfer.",
        harmless="The last bucket of a backward pass, and what the next op needs at once.",
        advice=(
            Advice(
                "Start the exchange for the next batch, or for the other half of this one, while "
                "dense layers compute; TorchRec's train pipelines do this for embeddings.",
                "work = dist.all_to_all_single(out, x, async_op=True)\n"
                "y = dense(z)  # what needs no exchanged data\n"
                "work.wait()  # before out is used",
                (is_exchange,),
            ),
            Advice(
                "Prefetch the next layers' parameters while this one computes, and shard in units "
                "that are large enough to hide a gather.",
                "for a, b in zip(layers, layers[1:]):\n"
                "    a.set_modules_to_forward_prefetch([b])\n"
                "    b.set_modules_to_backward_prefetch([a])",
                (under_fsdp,),
            ),
            Advice(
                "Buckets are reduced while the backward pass goes on: keep them large enough for "
                "bandwidth but more than one, let gradients be views of them, and compress to bf16 "
                "where the network is slow.",
                "model = DistributedDataParallel(\n"
                "    model, bucket_cap_mb=50, gradient_as_bucket_view=True, static_graph=True)",
                (under_ddp,),
            ),
            Advice(
                "The next product needs each result at once: keep the group within one machine's "
                "fast links, use fewer ranks per group, or split the batch so that one half "
                "computes while the other communicates.",
                'mesh = init_device_mesh("cuda", (n // 4, 4), mesh_dim_names=("dp", "tp"))',
                (under_tensor_parallelism,),
            ),
            Advice(
                "Start the collective early and wait for it late, with compute in between.",
                "work = dist.all_reduce(x, async_op=True)\n"
                "y = independent(z)\n"
                "work.wait()  # before x is used",
            ),
        ),
        facts=("exposed_comm", "comm", "collectives"),
        cites="collective",
        counted="collectives",
    ),
    Pattern(
        id="comm-small-collectives",
        kind="opportunity",
        side="gpu",
        needs=("host", "comm"),
        signal="small-collective",
        repair=_bucketed,
        assumes="one collective takes the place of sixteen",
        explains=("communication", "rank-wait", "dispatch", "framework"),
        title="Many small collectives",
        what="Each collective under 1 MB pays the full latency for a few bytes.",
        look="In msg nelems x dtype under 1 MB, many times a step",
        costs="Ten to some hundred microseconds each, however little is sent.",
        repaired="Fifteen of sixteen go, with the ops that call for them.",
        harmless="A few a step, for a loss or a flag.",
        advice=(
            Advice(
                "Shard larger units, such as whole blocks: each gets one gather and one reduction.",
                "for block in model.layers: fully_shard(block)  # not every Linear\n"
                "fully_shard(model)",
                (under_fsdp,),
            ),
            Advice(
                "Raise the bucket size, send metrics as one tensor every N steps, and keep "
                "SyncBatchNorm to where the batch per rank is small.",
                "model = DistributedDataParallel(model, bucket_cap_mb=50)\n"
                "dist.all_reduce(torch.stack([loss, accuracy, norm]))",
                (under_ddp,),
            ),
            Advice(
                "Join the tensors and send them in one collective.",
                "flat = torch.cat([g.flatten() for g in grads])\ndist.all_reduce(flat)",
            ),
        ),
        facts=("small_collectives", "collective_elements", "collectives", "comm"),
        cites="collective",
        counted="collectives",
    ),
    Pattern(
        id="comm-straggler",
        kind="fault",
        side="gpu",
        needs=("device", "comm"),
        signal="straggler",
        repair=_on_time,
        assumes="all ranks arrive together; which one is late needs the traces of the others",
        explains=("rank-wait",),
        title="Ranks wait for a straggler",
        what="This rank waits in collectives until another one has arrived.",
        look="same group and sequence: the late rank has the shortest kernel",
        costs="Every rank loses what the slowest takes longer.",
        repaired="Collectives that are mostly waiting take what the fastest of their kind and size "
        "(without sizes: place in the step) takes, or what their size takes at the best rate of "
        "their kind. With the traces of all ranks the late one is named, and waiting is measured.",
        harmless="The late rank differs from step to step, and by little.",
        advice=(
            Advice(
                "Record all ranks and scan their folder: it names the late one and what it does "
                "meanwhile; then balance its work, or fix its input.",
                "DistributedSampler(dataset, drop_last=True)  # the same number of batches each",
            ),
        ),
        facts=("exposed_comm", "comm", "collectives"),
        cites="collective",
        counted="collectives",
    ),
    Pattern(
        id="comm-unused-parameters",
        kind="fault",
        side="cpu",
        needs=("host", "comm"),
        signal="unused-parameters",
        repair=removed,
        assumes="the graph is static",
        explains=("framework", "dispatch"),
        error=WHOLE,
        title="DDP searches for unused parameters every step",
        what="The search traverses the autograd graph and delays the reduction.",
        look="reducer::search_unused_parameters in each step",
        costs="The traversal between forward and backward pass, on the thread that launches; what "
        "overlap is lost besides is not counted.",
        repaired="The searches go.",
        harmless="The used parameters differ from step to step, as with random routing.",
        advice=(
            Advice(
                "Turn the search off; where the same parameters stay unused, declare the graph "
                "static.",
                "DistributedDataParallel(model)  # find_unused_parameters is False\n"
                "DistributedDataParallel(model, static_graph=True)  # some are never used",
            ),
        ),
        facts=("unused_parameters", "exposed_comm"),
        cites="op",
    ),
    Pattern(
        id="comm-missing-no-sync",
        kind="fault",
        side="gpu",
        needs=("host", "comm"),
        signal="extra-round",
        repair=dropped,
        assumes="only the last micro-step has to reduce",
        explains=("communication", "rank-wait"),
        title="Gradients reduced on every micro-step",
        what="With gradient accumulation only the last backward pass has to reduce.",
        look="two or more rounds of all-reduce per optimizer step",
        costs="A whole round of reductions for every micro-step but the last.",
        repaired="All rounds but the last before each optimizer step go.",
        harmless="Under FSDP, reducing at once saves the memory of unsharded gradients.",
        advice=(
            Advice(
                "Reduce in the last micro-step only, where memory holds the unsharded gradients.",
                "model.set_requires_gradient_sync(i == last)  # FSDP2; FSDP1: model.no_sync()\n"
                "loss.backward()",
                (under_fsdp,),
            ),
            Advice(
                "Wrap forward and backward pass of all but the last micro-step in no_sync.",
                "with model.no_sync() if i < last else nullcontext():\n    model(x).backward()",
            ),
        ),
        facts=("repeated_collectives", "exposed_comm", "collectives", "optimizer_steps"),
        cites="collective",
        counted="collectives",
    ),
)
