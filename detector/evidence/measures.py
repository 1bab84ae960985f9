"""The table of measures: every number of the evidence, with key, label, unit and formula."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from detector import vocabulary
from detector.activity import IDLE_CAUSES, SYNC_CAUSES
from detector.evidence.fields import Fields, Pair
from detector.evidence.sheet import Unit
from detector.features import sets
from detector.index_sets import among
from detector.trace import NS_PER_US, Cat, Int64

TINY_KERNEL_NS: Final = 10_000


@dataclass(frozen=True)
class Spec:
    """A row of the table; ``make`` gives the quotient's two amounts."""

    key: str
    label: str
    unit: Unit
    make: Callable[[Fields], Pair]


def _share(key: str, label: str, make: Callable[[Fields], Pair]) -> Spec:
    return Spec(key, label, "share", make)


def _count(key: str, label: str, make: Callable[[Fields], Int64]) -> Spec:
    return Spec(key, label, "count", lambda f: f.count(make(f)))


def _ops(key: str, label: str, kind: str) -> Spec:
    return _count(key, label, lambda f: f.a.host(kind))


def _rows(key: str, label: str, name: str) -> Spec:
    return _count(key, label, lambda f: f.set(name))


def _among(key: str, label: str, name: str, of: str) -> Spec:
    return _share(key, label, lambda f: f.count_in(name, of))


def _kernels(key: str, label: str, name: str) -> Spec:
    return _share(key, label, lambda f: f.kernel_time_of(among(f.a.kernels, f.set(name))))


def _idle(cause: str, label: str) -> Spec:
    return _share(f"idle_{cause}", label, lambda f: f.share(f.a.idle_while(cause)))


def _kind(kind: str) -> Spec:
    return _share(f"kernel_{kind}", f"kernel time in {kind} kernels", lambda f: f.kind(kind))


def _work(key: str, label: str, of: str) -> Spec:
    return _share(f"work_{key}", f"GPU time {label}", lambda f: f.work(of))


# The work of the device by what the host asked for: what an op is called, its shapes, its caller.
_WORK: Final = {
    "matmul": ("of matrix-product ops", "from:op:matmul"),
    "misaligned": ("of GEMMs with a dimension not divisible by 8", "from:misaligned matmul"),
    "bmm": ("of bmm ops", "from:op:bmm"),
    "softmax": ("of softmax ops", "from:op:softmax"),
    "math_attention": ("of unfused attention ops", "from:op:math_attention"),
    "fused_attention": ("of fused attention ops", "from:op:fused_attention"),
    "batch_norm": ("of batch-norm ops", "from:op:batch_norm"),
    "dropout": ("of dropout ops", "from:op:dropout"),
    "pointwise": ("of pointwise ops", "from:op:pointwise"),
    "chained": ("of pointwise ops in chains", "from:chained op"),
    "copy_op": ("of copy/clone/contiguous/cat ops", "from:op:copy_op"),
    "cat": ("of cat ops", "from:op:cat"),
    "cat_append": ("of torch.cat appending to a growing tensor", "from:cat append"),
    "cast": ("of casts", "from:cast"),
    "cast_repeated": ("of repeated casts", "from:repeated cast"),
    "zero": ("of zero and fill ops", "from:op:zero"),
    "zero_grad_fill": ("of fills in zero_grad", "from:zero_grad fill"),
    "factory": ("of tensor factory ops", "from:op:factory"),
    "select": ("of selects in quick succession", "from:dense select"),
    "foreach": ("of foreach or fused optimizer ops", "from:op:foreach"),
    "single_tensor": ("of single-tensor optimizer ops", "from:single-tensor op"),
    "backward": ("of backward ops", "from:host:backward"),
    "optimizer": ("launched in Optimizer.step", "during:host:optimizer_step"),
    "zero_grad": ("launched in Optimizer.zero_grad", "during:host:zero_grad"),
    "conv_bias": ("of biases of convolutions", "conv bias"),
    "biased": ("of biased convolutions before a norm", "from:biased conv before norm"),
    "unlinked": ("that no op explains", "unlinked"),
}
_IDLE_LABELS: Final = {
    "loader": "GPU idle while the host waits for a batch",
    "sync": "GPU idle while the host synchronizes",
    "alloc": "GPU idle while the driver allocates",
    "compile": "GPU idle while the program compiles",
    "comm": "GPU idle while a host collective runs",
    "launch": "GPU idle while the host launches",
    "op": "GPU idle while the host runs ops",
    "python": "GPU idle while the host is in Python",
}
_SYNC_LABELS: Final = {
    "dynamic_shape": "for data-dependent shapes",
    "scalar": "for scalar read-backs",
    "h2d": "for copies to the GPU",
    "d2h": "for copies to the host",
    "explicit": "by explicit calls",
}

MEASURES: Final[tuple[Spec, ...]] = (
    # Where the time goes.
    _share("busy", "GPU busy", lambda f: f.share(f.a.busy)),
    _share("compute", "GPU busy: compute", lambda f: f.share(f.a.compute)),
    _share("exposed_copy", "exposed copy", lambda f: f.share(f.a.exposed_copy)),
    _share("exposed_comm", "exposed communication", lambda f: f.share(f.a.exposed_comm)),
    *(_idle(cause, _IDLE_LABELS[cause]) for cause in IDLE_CAUSES),
    # The host.
    _share("loader", "host waits for a batch", lambda f: f.share(f.a.loader)),
    _share(
        "loader_sync",
        "host makes a batch itself (no workers)",
        lambda f: f.time(f.a.named(f.a.loader_rows, vocabulary.HOST["loader_sync"])),
    ),
    _share(
        "loader_workers",
        "host waits for loader workers",
        lambda f: f.time(f.a.named(f.a.loader_rows, vocabulary.HOST["loader_workers"])),
    ),
    _share("sync", "host synchronizes", lambda f: f.share(f.a.sync)),
    *(
        _share(
            f"sync_{cause}",
            f"host synchronizes {_SYNC_LABELS[cause]}",
            lambda f, cause=cause: f.time(f.a.syncs_of(cause)),  # type: ignore[misc]
        )
        for cause in SYNC_CAUSES
    ),
    _share("alloc", "host inside driver allocation calls", lambda f: f.share(f.a.alloc)),
    _share("compiling", "torch.compile compiles", lambda f: f.share(f.a.compiling)),
    _share("op_time", "host runs ops", lambda f: f.share(f.a.op_time)),
    _share("call_time", "host in runtime calls", lambda f: f.share(f.a.call_time)),
    _share("launching", "host launches", lambda f: f.time(f.a.calls("launch"))),
    _share("optimizer", "host in Optimizer.step", lambda f: f.time(f.a.host("optimizer_step"))),
    _share("zero_grad", "host in Optimizer.zero_grad", lambda f: f.time(f.a.host("zero_grad"))),
    _share("backward", "host in backward ops", lambda f: f.time(f.a.host("backward"))),
    _share(
        "preprocess", "host in image, text or array code", lambda f: f.time(f.a.host("preprocess"))
    ),
    _share("gc", "garbage collection", lambda f: f.time(f.a.host("gc"))),
    _share("hostless_op", "host ops that use no GPU", lambda f: f.time(f.set("silent op"))),
    _share("graph_ops", "ops that record an autograd node", lambda f: f.graph_ops()),
    _share("blank", "CPU time in plain Python", lambda f: f.share(sets.intervals(f.a, "blank"))),
    # Counts of host events.
    _count("ops", "ops", lambda f: f.a.of(Cat.CPU_OP)),
    _count("loader_calls", "loader calls", lambda f: f.a.loader_rows),
    _rows("casts", "casts", "cast"),
    _rows("casts_repeated", "repeated casts", "repeated cast"),
    _rows("cat_appends", "torch.cat appending to a growing tensor", "cat append"),
    _rows("dense_selects", "selects in quick succession", "dense select"),
    _rows("needless_graph", "needless autograd nodes", "needless graph"),
    _rows("needless_dropout", "needless dropouts", "needless dropout"),
    _ops("scalar_ops", "scalar read-back ops", "scalar"),
    _ops("dynamic_ops", "ops of data-dependent shape", "dynamic_shape"),
    _ops("factory_ops", "tensor factory ops", "factory"),
    _ops("to_ops", "aten::to/_to_copy ops", "to"),
    _ops("copy_ops", "copy/clone/contiguous/cat ops", "copy_op"),
    _ops("cat_ops", "cat ops", "cat"),
    _ops("zero_ops", "zero and fill ops", "zero"),
    _ops("select_ops", "select/slice ops", "select"),
    _ops("matmul_ops", "matrix-product ops", "matmul"),
    _ops("bmm_ops", "bmm ops", "bmm"),
    _ops("conv_ops", "convolution ops", "conv"),
    _ops("softmax_ops", "softmax ops", "softmax"),
    _ops("math_attention", "unfused attention ops", "math_attention"),
    _ops("fused_attention", "fused attention ops", "fused_attention"),
    _ops("batch_norm_ops", "batch-norm ops", "batch_norm"),
    _ops("dropout_ops", "dropout ops", "dropout"),
    _ops("pointwise_ops", "pointwise ops", "pointwise"),
    _ops("foreach_ops", "foreach or fused optimizer ops", "foreach"),
    _ops("single_tensor", "single-tensor optimizer ops", "single_tensor"),
    _ops("backward_ops", "backward ops", "backward"),
    _ops("optimizer_steps", "Optimizer.step calls", "optimizer_step"),
    _ops("zero_grads", "Optimizer.zero_grad calls", "zero_grad"),
    _ops("collective_ops", "collective ops", "collective_op"),
    _ops("unused_parameters", "searches for unused parameters", "unused_parameters"),
    _ops("compiled_regions", "compiled regions", "compiled_region"),
    _ops("compile_events", "compiler events", "compile"),
    _ops("empty_cache", "empty_cache calls", "empty_cache"),
    _rows("biased_conv", "biased convolutions before a norm", "biased conv before norm"),
    _among(
        "odd_matmul",
        "GEMM calls with a dimension not divisible by 8",
        "misaligned matmul",
        "op:matmul",
    ),
    _share("pointwise_time", "host in pointwise ops", lambda f: f.time(f.a.ops("pointwise"))),
    # Calls.
    _count("launches", "kernel launches", lambda f: f.a.calls("launch")),
    _count("graph_launches", "graph launches", lambda f: f.a.calls("graph")),
    _count("allocs", "driver allocation calls", lambda f: f.a.calls("alloc")),
    _count("syncs", "synchronizing calls", lambda f: f.a.sync_rows),
    *(
        Spec(
            f"syncs_{cause}",
            f"synchronizations {_SYNC_LABELS[cause]}",
            "count",
            lambda f, cause=cause: f.count(f.a.syncs_of(cause)),  # type: ignore[misc]
        )
        for cause in SYNC_CAUSES
    ),
    # The device.
    _count("kernels", "kernels", lambda f: f.a.kernels),
    Spec(
        "kernel_us",
        "mean kernel",
        "us",
        lambda f: f.mean(f.a.kernels, f.trace.dur[f.a.kernels] / NS_PER_US),
    ),
    _share(
        "tiny_kernels",
        "kernels under 10 µs",
        lambda f: f.part(f.a.kernels, f.trace.dur[f.a.kernels] < TINY_KERNEL_NS),
    ),
    _among("starved", "kernels launched onto an idle GPU", "starved", "launched"),
    Spec(
        "launch_delay_us",
        "mean delay from launch to kernel",
        "us",
        lambda f: f.mean(f.launched, f.launch_delay_us),
    ),
    _among("blocking", "kernels that ended before their launch returned", "blocking", "launched"),
    _kernels("misaligned_kernels", "kernel time in GEMMs with odd dimensions", "misaligned kernel"),
    _kernels("unfilled", "kernel time in grids too small to fill the GPU", "unfilled kernel"),
    _kernels("chained", "kernel time in chains of pointwise kernels", "chained kernel"),
    _kernels("fp32_matrix", "kernel time in fp32 matrix kernels", "fp32 matrix kernel"),
    _kernels("tensor_core", "kernel time in tensor-core kernels", "tensor-core kernel"),
    *(_kind(kind) for kind in (*vocabulary.KERNEL_KINDS, "other")),
    _count("memsets", "memsets", lambda f: f.a.memsets),
    _count("h2d", "copies to the GPU", lambda f: f.h2d),
    _count("h2d_pageable", "copies from pageable memory", lambda f: f.a.pageable_h2d),
    _rows("h2d_small", "copies to the GPU under 64 KB", "small h2d"),
    _share("h2d_time", "time in copies to the GPU", lambda f: f.time(f.h2d)),
    _share(
        "pageable_time", "time in copies from pageable memory", lambda f: f.time(f.a.pageable_h2d)
    ),
    _share(
        "h2d_in_line",
        "copies to the GPU on the compute stream",
        lambda f: f.part(f.h2d, f.trace.stream[f.h2d] == f.compute_stream),
    ),
    Spec("h2d_speed", "copies to the GPU", "GB/s", lambda f: f.h2d_speed()),
    _count("d2h", "copies to the host", lambda f: f.a.copies_of("d2h")),
    _share("d2h_time", "time in copies to the host", lambda f: f.time(f.a.copies_of("d2h"))),
    _share(
        "d2h_calls",
        "host inside calls that copy to the host",
        lambda f: f.calls_of(f.a.copies_of("d2h")),
    ),
    _rows("bounced", "copies to the GPU right after one to the host", "bounced"),
    _count("d2d", "copies on the GPU", lambda f: f.a.copies_of("d2d")),
    # Collectives.
    _count("collectives", "collectives", lambda f: f.a.comm_rows),
    _share("comm", "time in collectives", lambda f: f.share(f.a.comm)),
    Spec("collective_elements", "mean collective", "elements", lambda f: f.collective_elements()),
    _rows("small_collectives", "collectives under 1 MB", "small collective"),
    _rows(
        "repeated_collectives",
        "collectives repeated since the last optimizer step",
        "repeated collective",
    ),
    # The GPU's work by the ops that issued it, whenever they ran.
    *(_work(key, label, of) for key, (label, of) in _WORK.items()),
)

# Of these the low values are the bad ones: what exceeds its baseline speaks for no pattern.
LOW_IS_BAD: Final = frozenset(("busy", "h2d_speed", "kernel_us", "collective_elements"))
