"""Inference: what only training needs, and caches that grow by copying."""

from __future__ import annotations

from typing import Final

import numpy as np

from detector.patterns.conditions import drops_out, in_transformers
from detector.patterns.pattern import Advice, Pattern
from detector.patterns.repairs import shortened
from detector.replay.repair import Repair
from detector.signals import Signals
from detector.signals.device import issued
from detector.trace import Int64

# Of an op's own time, what recording takes: the median of nine recorded pairs (0.15 to 0.9).
RECORDING: Final = 0.3
APPENDED: Final = 0.125  # of a torch.cat appending to a growing tensor


def _without_graph(s: Signals, rows: Int64) -> Repair:
    """Ops keep 0.7 of their own time; dropout goes."""
    dropout = np.intersect1d(rows, s["needless-dropout"])
    rows = np.setdiff1d(rows, dropout)
    own = (s.own_time[rows] * (1 - RECORDING)).astype(np.int64)
    return Repair(remove=dropout, own=(rows, own))


def _is_whole(s: Signals) -> bool:
    """A file that is cut off may have lost its backward pass."""
    return not s.trace.coverage.is_cut_off


def _static_cache(s: Signals, rows: Int64) -> Repair:
    """Only the new part is written."""
    work = issued(s, rows) if s.activity.has_device else rows
    return shortened(s, work, (s.trace.dur[work] * APPENDED).astype(np.int64))


PATTERNS: Final = (
    Pattern(
        id="infer-autograd",
        kind="fault",
        side="cpu",
        needs=("host",),
        signal="needless-autograd",
        applies=_is_whole,
        repair=_without_graph,
        assumes="recording the graph takes three tenths of an op's time on the host",
        explains=("dispatch", "cpu-compute"),
        title="Inference records the autograd graph",
        what="A graph is recorded, or layers are in training mode, in a job that never runs "
        "backward.",
        look="Sequence numbers without any backward; dropout or BatchNorm training kernels",
        costs="A node for every op, memory for activations that nobody needs, and with dropout "
        "wrong results besides lost time.",
        repaired="Ops that record keep seven tenths of their own time; dropout goes.",
        harmless="The trace ends before the backward pass, or gradients are taken now and then.",
        advice=(
            Advice(
                "Dropout runs: call model.eval(), and run under inference_mode.",
                "model.eval()\nwith torch.inference_mode(): y = model(x)",
                (drops_out,),
            ),
            Advice(
                "Run under inference_mode.",
                "with torch.inference_mode(): y = model(x)",
            ),
        ),
        facts=("needless_graph", "needless_dropout", "graph_ops"),
        cites="op",
        counted="ops",
    ),
    Pattern(
        id="infer-kv-cat",
        kind="fault",
        side="gpu",
        needs=("host", "shapes"),
        signal="cat-append",
        repair=_static_cache,
        assumes="writing the new part takes an eighth of copying all",
        explains=("compute", "cpu-compute"),
        title="torch.cat appending to a growing tensor",
        what="Each append copies all that was there before: the KV cache of every layer, each "
        "token.",
        look="aten::cat whose dimension grows by one, per layer and token",
        costs="Token n copies n rows per layer, so that a sequence costs the square of its length; "
        "the changing shapes keep graphs out.",
        repaired="What each append launches takes an eighth of its time.",
        harmless="A few tokens, or a cache that is small beside the weights.",
        advice=(
            Advice(
                "Use the static cache, which is written in place and lets the step be compiled.",
                'model.generation_config.cache_implementation = "static"\n'
                "model.forward = torch.compile(model.forward)",
                (in_transformers,),
            ),
            Advice(
                "Allocate the cache once, at its longest, and write each token in place.",
                "cache = k.new_empty(batch, heads, longest, dim)  # once\n"
                "cache[:, :, t : t + 1] = k",
            ),
        ),
        facts=("work_cat_append", "cat_appends", "work_cat", "cat_ops"),
        cites="launched",
    ),
)
