"""The pattern table: which edit of a healthy program makes each fault, where it can act.

``comm-straggler`` is absent: it shows only in several ranks' traces together, and this package
writes one rank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dataset.simulate import copies as C
from dataset.simulate import devicework as D
from dataset.simulate import hostwork as H
from dataset.simulate.eager import Modes, Tensor
from dataset.simulate.plan import Hook, Run
from dataset.simulate.ranks import collective
from dataset.simulate.rows import Act

Edit = Callable[[Run, Tensor, float], None]

CONV = ("convnet-train", "detector-train", "segmenter-train", "gan-train", "convnet-ddp")
LM = ("lm-train", "lm-ddp", "lm-ddp-accumulate", "lm-fsdp")
DDP = ("convnet-ddp", "lm-ddp", "lm-ddp-accumulate")
EAGER_TRAIN = (*CONV, "diffusion-train", *LM, "recommender-train")
TRAIN = (*EAGER_TRAIN, "lm-train-compiled")
FED = (*TRAIN, "classifier-infer")
INFER = ("diffusion-infer", "classifier-infer", "lm-decode")
ANY = (*TRAIN, *INFER)
EVERY = (*ANY, "lm-decode-graph")


@dataclass(frozen=True)
class Fault:
    """An edit at some points of a step, or a mode of calling, or both.

    ``spread`` is the most occurrences a step has where the point comes more than once.
    """

    workloads: tuple[str, ...]
    edit: Edit | None = None
    points: tuple[str, ...] = ()
    spread: int = 1
    mode: bool = False
    whole: bool = False  # acts from the start of the step to its end


def _every_launch(run: Run, x: Tensor, us: float) -> None:
    run.m.blocking = True


def _training_mode(run: Run, x: Tensor, us: float) -> None:
    """What ``train()`` left on: dropout of activations."""
    for _ in range(4):
        begin = run.m.tail()
        run.e.dropout(x)
        us -= run.m.tail() - begin
        if us <= 0:
            break


def _late(run: Run, x: Tensor, us: float) -> None:
    """Reduce after backward, in line: in one piece, as a hand-written loop does."""
    assert run.ranks is not None
    begin = max(run.m.tail(), run.m.now)
    elems = max(300_000, sum(p.elems for p in run.e.params) // run.rng.choice((1, 2, 4)))
    with run.m.acting("comm-exposed"):
        for _ in range(12):
            collective(run.e, run.ranks, "allreduce", elems, in_line=True)
            if run.m.tail(run.ranks.stream) - begin > us * 0.8:
                break


def _no_reducer(run: Run, x: Tensor, us: float) -> None:
    assert run.reducer is not None
    run.reducer.on = False


def _slow_link(run: Run, x: Tensor, us: float) -> None:
    """Extra rounds cost as much as the budget says: the share of the link this job gets."""
    assert run.ranks is not None
    elems = sum(p.elems for p in run.e.params)
    network = run.plan.network
    fast = network * elems * 8 / run.e.d.link * (run.plan.accumulate - 1)
    run.ranks.slow = network * max(1.0, us / max(fast, 1.0))


_WAIT_POINTS = ("between", "between", "loss", "after_backward", "end")
_COMPUTE = (*EAGER_TRAIN, *INFER)

FAULTS: dict[str, Fault] = {
    "input-dataloader-sync": Fault(FED, C.loader_in_line, ("load",)),
    "input-dataloader-starved": Fault(FED, C.loader_starved, ("load",)),
    "input-main-thread-preprocessing": Fault(FED, C.preprocess, ("load",)),
    "input-pageable-copy": Fault(FED, C.copy_pageable, ("copy",)),
    "input-copy-not-overlapped": Fault(FED, C.copy_in_line, ("copy",)),
    "input-tiny-copies": Fault(ANY, C.tiny_copies, ("start", "between", "loss")),
    "input-cpu-tensor-to-device": Fault(ANY, C.made_on_host, ("between", "start"), 4),
    "sync-scalar-readback": Fault(ANY, H.scalar_readback, _WAIT_POINTS, 6),
    "sync-tensor-readback": Fault(ANY, C.tensor_readback, _WAIT_POINTS, 3),
    "sync-explicit": Fault(EVERY, H.explicit_sync, _WAIT_POINTS, 6),
    "sync-dynamic-shape": Fault(_COMPUTE, H.dynamic_shape, ("between", "loss"), 4),
    "sync-blocking-launch": Fault((*EAGER_TRAIN, *INFER), _every_launch, ("start",), whole=True),
    "host-launch-bound": Fault(
        (*EAGER_TRAIN, "lm-decode-graph"), H.small_kernels, ("between", "loss"), 3, mode=True
    ),
    "host-python-overhead": Fault(ANY, H.python_overhead, ("between", "between", "end"), 6),
    "host-loop-indexing": Fault(_COMPUTE, H.loop_indexing, ("loss", "between"), 1),
    "host-gc-pause": Fault(EVERY, H.collector_pause, ("between", "loss", "end"), 1),
    "host-cpu-fallback": Fault(ANY, C.cpu_fallback, ("between", "loss"), 2),
    "memory-alloc-churn": Fault(ANY, H.allocation, ("between", "end", "start"), 2),
    "memory-zero-grad-fill": Fault(EAGER_TRAIN, mode=True),
    "memory-redundant-copy": Fault(_COMPUTE, D.redundant_copy, ("between",), 6),
    "memory-layout-transform": Fault((*CONV, "diffusion-train", "diffusion-infer"), mode=True),
    "memory-dtype-churn": Fault(_COMPUTE, D.dtype_churn, ("between",), 6),
    "compute-fp32-matmul": Fault((*EAGER_TRAIN, "diffusion-infer"), mode=True),
    "compute-misaligned-gemm": Fault((*LM, "recommender-train"), mode=True),
    "compute-underfilled": Fault(_COMPUTE, D.underfilled, ("between",), 4),
    "compute-unfused-attention": Fault((*LM, "diffusion-train", "diffusion-infer"), mode=True),
    "compute-unfused-elementwise": Fault(_COMPUTE, D.unfused_elementwise, ("between",), 6),
    "compute-single-tensor-optimizer": Fault(TRAIN, mode=True),
    "compute-conv-bias-batchnorm": Fault(CONV, mode=True),
    "compile-graph-break": Fault(("lm-train-compiled",), mode=True),
    "compile-recompile": Fault(("lm-train-compiled",), H.recompile, ("before_forward",)),
    "comm-exposed": Fault((*DDP, "lm-fsdp"), _late, ("after_backward",), mode=True),
    "comm-small-collectives": Fault(DDP, D.small_collectives, ("after_backward",)),
    "comm-unused-parameters": Fault(DDP, H.unused_parameters, ("forward",)),
    "comm-missing-no-sync": Fault(("lm-ddp-accumulate",), _slow_link, ("start",), mode=True),
    "infer-autograd": Fault(INFER, _training_mode, ("between",), 8, mode=True, whole=True),
    "infer-kv-cat": Fault(("lm-decode",), mode=True),
}

LEFT_OUT = {"comm-straggler": "needs the traces of several ranks; one rank is simulated"}


@dataclass(frozen=True)
class Injection:
    """One fault in one trace: which steps, which of the points, at what strength.

    ``share`` is the wanted added time / faulty step time; ``push`` corrects it after a try.
    ``spans_only``: the program itself is the fault, and each step is labeled whole.
    """

    pattern: str
    steps: frozenset[int]
    point: str
    slots: frozenset[int]  # which passes of the point act
    share: float
    push: float = 1.0
    spans_only: bool = False

    def budget(self, healthy_us: float) -> float:
        """µs to add per step."""
        return self.push * healthy_us * self.share / (1.0 - self.share)


def edits(faults: Sequence[Injection]) -> Callable[[Run, int], tuple[Modes, dict[str, Hook]]]:
    """What `programs.execute` asks for at each step."""

    def at_step(run: Run, index: int) -> tuple[Modes, dict[str, Hook]]:
        _restore(run)
        modes = Modes()
        acts: dict[str, list[Hook]] = {}
        for injection in faults:
            if index in injection.steps:
                _arm(run, injection, modes, acts)
        return modes, {point: _together(hooks) for point, hooks in acts.items()}

    return at_step


def _restore(run: Run) -> None:
    run.e.grad, run.e.depth_tax = run.plan.trains, 1.0
    if run.ranks:
        run.ranks.slow = run.plan.network


def _arm(run: Run, injection: Injection, modes: Modes, acts: dict[str, list[Hook]]) -> None:
    fault = FAULTS[injection.pattern]
    budget = injection.budget(run.healthy_us)
    if injection.spans_only:
        _whole(injection.pattern, acts)
        return
    if fault.mode:
        modes.share[injection.pattern] = min(1.0, injection.share * 2 * injection.push)
    if injection.pattern == "infer-autograd":
        run.e.grad, run.e.depth_tax = True, 1.4
    if injection.pattern == "infer-kv-cat":
        modes.share[injection.pattern] = max(1.0, injection.push)
    if fault.edit and _by_edit(run, injection):
        acts.setdefault(injection.point, []).append(_hook(injection, fault.edit, budget))
    if run.reducer and _replaces_reducer(run, injection.pattern):
        acts.setdefault("reducer", []).append(lambda r, x: _no_reducer(r, x, 0.0))
    if fault.whole:
        _whole(injection.pattern, acts)


def _whole(pattern: str, acts: dict[str, list[Hook]]) -> None:
    begin, end = _spans(pattern)
    acts.setdefault("start", []).append(begin)
    acts.setdefault("end", []).append(end)


def _replaces_reducer(run: Run, pattern: str) -> bool:
    """Hand-written reduction instead of DDP's; of small models alone where each tensor goes alone
    (in large ones the small collectives come on top: statistics, metrics)."""
    small = sum(p.elems for p in run.e.params) < D.SMALL_MODEL
    return pattern == "comm-exposed" or (pattern == "comm-small-collectives" and small)


def _by_edit(run: Run, injection: Injection) -> bool:
    """Modes that replace the edit on some workloads: a graph's decode, sharded gathers."""
    if injection.pattern == "host-launch-bound":
        return not run.plan.workload.endswith("graph")
    if injection.pattern == "comm-exposed":
        return run.reducer is not None
    return True


def _hook(injection: Injection, edit: Edit, budget: float) -> Hook:
    each = budget / max(1, len(injection.slots))

    def act(run: Run, x: Tensor) -> None:
        if run.layers[injection.point] - 1 in injection.slots:
            edit(run, x, each)

    return act


def _together(hooks: list[Hook]) -> Hook:
    def all_of(run: Run, x: Tensor) -> None:
        for hook in hooks:
            hook(run, x)

    return all_of


def _spans(pattern: str) -> tuple[Hook, Hook]:
    """Hooks that note a fault from the start of a step to its end."""
    mark: list[float] = []

    def begin(run: Run, x: Tensor) -> None:
        mark.append(run.m.now)

    def end(run: Run, x: Tensor) -> None:
        run.m.acts.append(Act(pattern, run.m.step_index, (mark.pop(), run.m.now), None))

    return begin, end
