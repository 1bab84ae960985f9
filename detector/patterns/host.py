"""The host: it feeds the device too slowly, is stopped, or computes what the device should."""

from __future__ import annotations

from typing import Final

import numpy as np

from detector import vocabulary
from detector.patterns.conditions import (
    in_inference,
    in_sglang,
    in_vllm,
    is_compiled,
    lacks_compiler,
    under_ddp,
    under_fsdp,
    uses_graphs,
)
from detector.patterns.pattern import PAUSED, WHOLE, Advice, Pattern
from detector.patterns.repairs import quicker_host, shorter_gaps, spared_both_ways
from detector.replay.repair import Repair
from detector.signals import Signals
from detector.signals.python import calls_of, gap_before, loop_rounds, ordinary_gap
from detector.trace import Int64

GRAPH_SHARE: Final = 0.1  # of the host's time per kernel: what a graph replay leaves


def _as_a_graph(s: Signals, rows: Int64) -> Repair:
    """All between the launches goes but a tenth; longer gaps are the program's own Python."""
    return quicker_host(s, rows, GRAPH_SHARE, ordinary_gap(s))


def _one_op(s: Signals, rows: Int64) -> Repair:
    """One round of each loop stays."""
    trace, ops = s.trace, s.on(s.activity.top_ops, s.main_thread)
    gone = [rows[:0]]
    for _, second, last in zip(*loop_rounds(s), strict=True):
        mine = rows[(rows >= second) & (rows <= last)]
        if len(mine):
            gone.append(ops[(ops >= mine[0]) & (trace.start[ops] <= trace.start[mine[-1]])])
    all_gone = np.unique(np.concatenate(gone))
    idle = np.zeros(len(all_gone), np.int64)
    return spared_both_ways(s, all_gone) | Repair(idle=(all_gone, idle))


def _no_collection(s: Signals, rows: Int64) -> Repair:
    """Collections that were seen go, pauses shrink to the usual gap."""
    seen = np.intersect1d(rows, s["collection"])
    return Repair(remove=seen) | shorter_gaps(s, np.setdiff1d(rows, seen))


def _on_device(s: Signals, rows: Int64) -> Repair:
    """The op and the copies there and back go; the device does it in no time."""
    trace, a = s.trace, s.activity
    out, back = a.copies_of("d2h"), a.copies_of("h2d")
    left = np.searchsorted(trace.end[out], trace.start[rows], side="right") - 1
    right = np.searchsorted(trace.start[back], trace.end[rows])
    copies = np.union1d(out[left[left >= 0]], back[right[right < len(back)]])
    calls = calls_of(s, copies)
    ops = s.enclosing(trace.op[copies].astype(np.int64), vocabulary.READS_BACK)
    waits = np.unique(ops[ops >= 0])
    inside = a.spans(waits).contain(trace.start[a.sync_rows])
    return Repair(remove=rows, unwait=np.union1d(calls, a.sync_rows[inside]), drop=copies)


def _shares_launches(s: Signals) -> bool:
    return len(s.activity.launches) > 0


PATTERNS: Final = (
    Pattern(
        id="host-launch-bound",
        kind="opportunity",
        side="cpu",
        needs=("device", "host", "links"),
        signal="launching",
        repair=_as_a_graph,
        assumes="a graph replay, or a compiled step, leaves a tenth of the host's time between "
        "kernels",
        explains=(
            "dispatch",
            "call",
            "framework",
            "between",
            "latency",
            "restart",
            "op-stall",
            "blocked-launch",
        ),
        applies=_shares_launches,
        title="GPU starved by kernel-launch overhead",
        what="The GPU waits for the host, which launches short kernels one by one.",
        look="kernels under 10 µs, each launched after the one before it ended",
        costs="The step takes as long as the host needs to launch it, however fast the GPU is.",
        repaired="Nine tenths of what the host does between launches go; longer gaps are the "
        "program's own Python and stay.",
        harmless="A step that is short enough already, or a model small by nature that runs "
        "beside others on the same GPU.",
        advice=(
            Advice(
                "Run with graphs: do not start the engine with enforce_eager.",
                "LLM(model, enforce_eager=False)  # or drop --enforce-eager",
                (in_vllm,),
            ),
            Advice(
                "Run with graphs: drop --disable-cuda-graph and capture the batch sizes that are "
                "served.",
                "python -m sglang.launch_server --cuda-graph-max-bs 64  # no --disable-cuda-graph",
                (in_sglang,),
            ),
            Advice(
                "Graphs cover a part of the step only: capture what is launched one by one, too, "
                "or give each launch more work with a larger batch.",
                'model = torch.compile(model, mode="reduce-overhead")',
                (uses_graphs,),
            ),
            Advice(
                "torch.compile does not support this GPU: capture the forward and backward pass in "
                "graphs, or give each launch more work with a larger batch.",
                "model = torch.cuda.make_graphed_callables(model, (sample_input,))",
                (lacks_compiler,),
            ),
            Advice(
                "The model is compiled, but its kernels are still launched one by one: let the "
                "compiler capture graphs, or give each launch more work with a larger batch.",
                'model = torch.compile(model, mode="reduce-overhead")',
                (is_compiled,),
            ),
            Advice(
                "Compile the wrapped model (the compiler keeps the gradient buckets apart, so that "
                "communication still overlaps), or give each launch more work with a larger batch.",
                "model = torch.compile(DistributedDataParallel(model))",
                (under_ddp,),
            ),
            Advice(
                "Compile each block before it is sharded, or give each launch more work with a "
                "larger batch.",
                "for block in model.layers:\n    block.compile()\n    fully_shard(block)",
                (under_fsdp,),
            ),
            Advice(
                "Compile the model and let the compiler capture graphs, or give each launch more "
                "work with a larger batch.",
                'model = torch.compile(model, mode="reduce-overhead")',
            ),
        ),
        facts=("starved", "busy", "tiny_kernels"),
        cites="op",
        counted=None,
    ),
    Pattern(
        id="host-python-overhead",
        kind="opportunity",
        side="cpu",
        needs=("host",),
        signal="python-gap",
        repair=shorter_gaps,
        place=gap_before,
        assumes="the work can be hoisted out of the step; gaps shrink to the usual one",
        explains=("python", "between", "restart"),
        error=PAUSED,
        title="Python overhead between launches",
        what="Hooks, logging or bookkeeping keep the interpreter busy while no work is launched.",
        look="Python time while nothing computes, without a synchronization or a loader",
        costs="The interpreter's time, as far as the work queued before it does not hide it.",
        repaired="Long gaps between two ops of the main thread shrink to the usual one.",
        harmless="The device has enough queued work to bridge the gap.",
        advice=(
            Advice(
                "Move request handling, tokenization and logging to another thread or process, so "
                "that the thread that launches does nothing else.",
                "executor.submit(log, result)  # not on the thread that calls the model",
                (in_inference,),
            ),
            Advice(
                "Hoist the work out of the step, or do it every N steps; remove hooks that are no "
                "longer needed.",
                "if step % 100 == 0: log(...)",
            ),
        ),
        facts=("idle_python", "busy"),
        cites="frame",
        counted=None,
    ),
    Pattern(
        id="host-loop-indexing",
        kind="fault",
        side="cpu",
        needs=("host",),
        signal="row-loop",
        repair=_one_op,
        assumes="one vectorized op takes as long as one round of the loop",
        explains=("dispatch", "python", "between"),
        error=WHOLE,
        title="Python loop over rows or elements",
        what="The same few ops run once per row where one vectorized op would do.",
        look="the same op group after aten::select or aten::slice, ten times or more",
        costs="Every round pays Python, dispatch and a launch for a row's worth of work.",
        repaired="Of each loop one round stays, and of its backward.",
        harmless="Each round needs the result of the one before, as in a recurrence.",
        advice=(
            Advice(
                "Replace the loop by one vectorized op; torch.vmap does it for a function of one "
                "row.",
                "out = f(x)  # instead of torch.stack([f(x[i]) for i in range(len(x))])\n"
                "out = torch.vmap(f)(x)",
            ),
        ),
        facts=("dense_selects", "select_ops", "ops", "op_time"),
        cites="op",
    ),
    Pattern(
        id="host-gc-pause",
        kind="fault",
        side="cpu",
        needs=("host",),
        signal="gc-pause",
        repair=_no_collection,
        place=gap_before,
        assumes="an isolated pause of the interpreter is a collection; collecting can wait",
        explains=("collection", "nothing", "between", "python"),
        proof="collection",
        error=PAUSED,
        title="Garbage collection pauses the step",
        what="The step waits while Python's garbage collector runs, or the interpreter stops as if "
        "it did.",
        look="a gap with almost no host events, or gc.collect",
        costs="Each full collection stops the interpreter for as long as it takes to visit every "
        "object: tens to hundreds of milliseconds in a large program. In a job of several ranks "
        "all wait for the one that collects.",
        repaired="Collections that were recorded go; isolated pauses without any event shrink to "
        "the usual gap.",
        harmless="Between requests or epochs.",
        advice=(
            Advice(
                "Freeze what start-up made, and collect between requests instead of at any time.",
                "gc.collect(); gc.freeze(); gc.disable()  # once, after loading\n"
                "gc.collect(1)  # between requests, now and then",
                (in_inference,),
            ),
            Advice(
                "Freeze what start-up made, and collect every N steps, on all ranks in the same "
                "one.",
                "gc.collect(); gc.freeze(); gc.disable()  # once, before the first step\n"
                "if step % 1000 == 0: gc.collect(1)",
                (under_ddp,),
            ),
            Advice(
                "Freeze what start-up made, and collect at a time of your choosing.",
                "gc.collect(); gc.freeze(); gc.disable()  # once, before the first step\n"
                "if step % 1000 == 0: gc.collect(1)",
            ),
        ),
        facts=("gc", "blank", "idle_python"),
    ),
    Pattern(
        id="host-cpu-fallback",
        kind="fault",
        side="cpu",
        needs=("device", "host"),
        signal="fallback-op",
        repair=_on_device,
        assumes="the device has the op, and computes it in no time",
        explains=("preprocessing", "sync-tensor", "copy"),
        error=WHOLE,
        title="Op of a GPU model runs on the CPU",
        what="Data goes to the host, is computed there, and comes back.",
        look="a copy to the host, a long CPU op without a kernel, a copy back",
        costs="The host waits for the GPU, the GPU for the op and for the copy back.",
        repaired="The op and the copies there and back go.",
        harmless="The result is needed on the host anyway, as in decoding the final output.",
        advice=(
            Advice(
                "Move the op, or the tensor that keeps it on the CPU, to the GPU: what a module "
                "keeps should be a parameter or a buffer.",
                'self.register_buffer("table", table)  # moves with model.to(device)',
            ),
        ),
        facts=("bounced", "hostless_op", "d2h", "idle_op"),
        cites="op",
    ),
)
