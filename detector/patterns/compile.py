"""Compilation: it goes on in steady state, or falls back to eager ops in the middle."""

from __future__ import annotations

from typing import Final

import numpy as np

from detector.patterns.conditions import in_inference, under_ddp
from detector.patterns.pattern import WHOLE, Advice, Pattern
from detector.patterns.repairs import quicker_host, removed
from detector.replay.repair import Repair
from detector.signals import Signals
from detector.trace import Int64

LEFT: Final = 0.1  # of the host's time between two regions, if both are one


def _one_region(s: Signals, rows: Int64) -> Repair:
    """The host keeps a tenth of what it does between a region and the one that continues it."""
    regions, trace = s["compiled-region"], s.trace
    before = np.searchsorted(regions, rows) - 1
    ends = trace.end[regions[np.maximum(before, 0)]]
    ops = s.on(np.sort(s.host_program), int(trace.track[rows[0]]) if len(rows) else -1)
    at = trace.start[ops]
    which = np.searchsorted(trace.start[rows], at)  # the region that comes next
    known = which < len(rows)
    inside = known & (at >= ends[np.minimum(which, len(rows) - 1)]) if len(rows) else known
    return quicker_host(s, np.union1d(ops[inside], rows), LEFT, 1_000_000)


PATTERNS: Final = (
    Pattern(
        id="compile-graph-break",
        kind="fault",
        side="cpu",
        needs=("host",),
        signal="graph-break",
        repair=_one_region,
        assumes="without the break a tenth of the host's time between the regions is left",
        explains=("dispatch", "framework", "python", "between"),
        title="Graph breaks in the compiled step",
        what="Between compiled regions the step falls back to eager ops and Python.",
        look="Torch-Compiled Region: k/m more than once a step",
        costs="Python and eager ops between the regions, guards at the start of each, and no "
        "fusion across the break.",
        repaired="Of what the host does between two regions that belong together a tenth stays.",
        harmless="One break around what cannot be compiled, with large regions on both sides.",
        advice=(
            Advice(
                "List the breaks and remove those that your code makes (print, .item(), unknown "
                "libraries). DDP itself cuts the graph at each gradient bucket, to overlap "
                "communication: these stay.",
                "TORCH_LOGS=graph_breaks python train.py",
                (under_ddp,),
            ),
            Advice(
                "List the breaks, remove them (print, .item(), data-dependent branches), and let "
                "fullgraph=True keep new ones out.",
                "# TORCH_LOGS=graph_breaks lists the breaks\n"
                "model = torch.compile(model, fullgraph=True)",
            ),
        ),
        facts=("compiled_regions", "ops", "idle_python", "idle_op"),
        cites="op",
    ),
    Pattern(
        id="compile-recompile",
        kind="fault",
        side="cpu",
        needs=("host",),
        signal="compilation",
        repair=removed,
        assumes="steady state does not compile",
        explains=("compilation",),
        error=WHOLE,
        title="Recompilation in steady state",
        what="New shapes or values make the compiler run again inside the step.",
        look="m of k/m grows, dynamo or inductor spans, long idle",
        costs="Each compilation takes seconds on the host, with the device idle.",
        repaired="What the compiler does goes.",
        harmless="The first steps, and one more when a dimension turns out to be dynamic.",
        advice=(
            Advice(
                "Find the guard that fails, then mark the dimension dynamic or pad requests to a "
                "few sizes that are compiled before serving.",
                "# TORCH_LOGS=recompiles names the guard\n"
                "torch._dynamo.mark_dynamic(x, 0)  # before the first call",
                (in_inference,),
            ),
            Advice(
                "Find the guard that fails, then mark the dimension dynamic, pad to a few sizes, "
                "or make a changing Python number a tensor; drop_last=True keeps the odd last "
                "batch out.",
                "# TORCH_LOGS=recompiles names the guard\n"
                "torch._dynamo.mark_dynamic(x, 0)  # before the first call",
            ),
        ),
        facts=("compiling", "compile_events", "idle_compile"),
        cites="op",
    ),
)
