"""The healthy step of each workload, and the loop that runs steps on the machine."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace

from dataset.simulate import compiled as C
from dataset.simulate import kernels as K
from dataset.simulate import models as M
from dataset.simulate.eager import Eager, Modes, Tensor
from dataset.simulate.machine import Machine
from dataset.simulate.optimizers import clip_gradients, optimizer_step, zero_grad
from dataset.simulate.plan import Hook, Plan, Run
from dataset.simulate.ranks import Ranks, Reducer, collective
from dataset.simulate.rows import Habits
from dataset.simulate.training import Feed, backward, copy_batch, load

Step = Callable[[Run, int], None]


def _update(run: Run, params: list | None = None) -> None:  # type: ignore[type-arg]
    plan, e = run.plan, run.e
    params = e.params if params is None else params
    if plan.clip:
        clip_gradients(e, params)
    run.at("before_optimizer")
    optimizer_step(e, plan.optimizer, plan.fused, params)
    for _ in range(plan.state_copies):
        buffer = Tensor((run.m.rng.choice((1, 64, 1_024, 16_384)),))
        with e.op("aten::copy_", buffer):
            run.m.copy("DtoD", buffer.size, wait=False)
    if plan.scalar_every and len(run.finish) % plan.scalar_every == plan.scalar_every - 1:
        scalar(run)


def scalar(run: Run, name: str = "aten::item") -> None:
    """``tensor.item()``: four bytes to the host, and a wait for everything before them."""
    e = run.e
    one = Tensor((), "float")
    with e.op(name, one, pre=1.0):
        with e.op("aten::_local_scalar_dense", one, pre=1.5):
            run.m.copy("DtoH", 4, pinned=run.plan.variant % 2 == 0, wait=True)


def _feed(run: Run) -> None:
    if not run.at("load"):
        load(run.m, run.feed.wait * run.m.rng.uniform(0.6, 1.4))
    if not run.at("copy"):
        copy_batch(run.e, run.feed)


def _train(run: Run, model: M.Model, step: int) -> None:
    """One optimizer step of ordinary training, over the plan's micro-steps."""
    plan, e, m = run.plan, run.e, run.m
    zero_grad(e, plan.optimizer, e.params)
    for micro in range(plan.accumulate):
        _feed(run)
        last = micro == plan.accumulate - 1
        reducer = run.reducer
        if reducer:
            reducer.on = last or "comm-missing-no-sync" in e.modes.share
            reducer.acting = "" if last else "comm-missing-no-sync"
            run.at("reducer")
        with m.frame("train.py(118): training_step"):
            note = m.annotation("DistributedDataParallel.forward") if reducer else nullcontext()
            with note:
                out = model.forward(run)
                run.at("forward")
            model.loss(run, out)
        run.at("loss")
        backward(e)
        if reducer:
            reducer.finish()
        run.at("after_backward")
    _update(run)


def _trainer(make: Callable[[Run], M.Model]) -> Callable[[Run], Step]:
    def build(run: Run) -> Step:
        model = make(run)
        return lambda r, step: _train(r, model, step)

    return build


def _diffusion(run: Run) -> Step:
    model = M.UNet(run, generator=True)

    def step(r: Run, index: int) -> None:
        r.e.grad, grad = False, r.e.grad
        M.noise(r, Tensor((r.plan.scaled(8), 4, min(r.plan.image, 128), min(r.plan.image, 128))))
        r.e.grad = grad
        _train(r, model, index)
        with r.e.op("aten::_foreach_lerp_", pre=4.0):
            size = 3 * sum(p.size for p in r.e.params)
            r.e.launch(K.multi_tensor(r.e.d, "lerp_", size, len(r.e.params)))

    return step


def _gan(run: Run) -> Step:
    generator = M.UNet(run, generator=False)
    split = len(run.e.params)
    critic = M.ConvNet(run)

    def step(r: Run, index: int) -> None:
        e, p = r.e, r.plan
        _feed(r)
        for params, both in ((e.params[split:], False), (e.params[:split], True)):
            zero_grad(e, p.optimizer, params)
            if both:
                generator.forward(r)
            out = critic.forward(r)
            e.mse(Tensor((out.shape[0], 1), "float"), "binary_cross_entropy_with_logits")
            r.at("loss")
            backward(e)
            r.at("after_backward")
            optimizer_step(e, p.optimizer, p.fused, params)

    return step


def _generate(run: Run) -> Step:
    """A diffusion sampling loop: a few denoising passes a step."""
    model = M.UNet(run, generator=True)
    passes = 2 + run.plan.variant % 3

    def step(r: Run, index: int) -> None:
        for _ in range(passes):
            model.forward(r)
            x = Tensor((r.plan.scaled(8), 4, min(r.plan.image, 128), min(r.plan.image, 128)))
            for name in ("aten::mul", "aten::sub", "aten::div", "aten::add"):
                r.e.pointwise(name, x, tensors=3)
            r.e.tape.clear()
            r.e.casts.clear()

    return step


def _classify(run: Run) -> Step:
    conv = run.plan.variant % 2 == 0
    model: M.Model = M.ConvNet(run) if conv else M.Transformer(run, classify=True)

    def step(r: Run, index: int) -> None:
        for _ in range(2):
            _feed(r)
            out = model.forward(r)
            if "infer-autograd" in r.e.modes.share and not conv:
                r.e.dropout(out)
            r.e.softmax(out)
            with r.e.op("aten::argmax", out):
                r.e.launch(K.reduction(r.e.d, "max", out.elems, out.dtype, out.shape[0]))
            r.e.tape.clear()
            r.e.casts.clear()

    return step


def _decode(run: Run) -> Step:
    model = C.Decoder(run)
    tokens = 3 + run.plan.variant % 4

    def step(r: Run, index: int) -> None:
        for _ in range(tokens):
            with r.m.frame("transformers/generation/utils.py(2780): _sample", pre=6.0):
                r.m.busy(12.0)
                model.token(r)
            r.at("token")
            r.e.tape.clear()
            r.e.casts.clear()

    return step


def _compiled(run: Run) -> Step:
    C.compiled_params(run)

    def step(r: Run, index: int) -> None:
        _feed(r)
        zero_grad(r.e, r.plan.optimizer, r.e.params)
        r.at("before_forward")
        C.compiled_step(r)
        r.at("after_backward")
        _update(r)

    return step


def _sharded(run: Run) -> Step:
    """FSDP-like: gathers one block ahead, scatters gradients behind."""
    model = M.Transformer(run)

    def step(r: Run, index: int) -> None:
        e, ranks = r.e, r.ranks
        assert ranks is not None
        _feed(r)
        zero_grad(e, r.plan.optimizer, e.params)
        size = sum(p.elems for w in model.blocks[:1] for pair in w.values() for p in pair)
        dtype = e.amp or "float"
        x = Tensor((r.plan.scaled(2), r.plan.length, model.dim), dtype)
        e.embedding(model.table, x.elems // model.dim)
        ready = _gather(r, ranks, size, dtype)
        for w in model.blocks:
            ahead = "comm-exposed" not in e.modes.share
            if not ahead:
                with r.m.acting("comm-exposed"):
                    ready = _gather(r, ranks, size, dtype, blame=True)
            r.m.tails[e.d.stream] = max(r.m.tail(e.d.stream), ready)
            if ahead:
                ready = _gather(r, ranks, size, dtype)
            e.node("SplitWithSizesBackward0", x, lambda: _scatter(r, ranks, size))
            model.block(r, x, w)
            r.at("between", x)
        with e.module("Linear"):
            out = e.linear(x, model.head)
        model.loss(r, out)
        r.at("loss")
        backward(e)
        r.m.stream_wait(e.d.stream, ranks.stream)
        r.at("after_backward")
        _update(r)

    return step


def _gather(r: Run, ranks: Ranks, size: int, dtype: str, blame: bool = False) -> float:
    times = 1 + round(r.e.modes.share["comm-exposed"] * 3) if blame else 1
    with r.e.m.op("FSDP::all_gather", pre=8.0):
        return max(collective(r.e, ranks, "_allgather_base", size, dtype) for _ in range(times))


def _scatter(r: Run, ranks: Ranks, size: int) -> None:
    with r.e.m.op("FSDP::post_backward_reduce", pre=8.0):
        collective(r.e, ranks, "_reduce_scatter_base", size)


WORKLOADS: dict[str, Callable[[Run], Step]] = {
    "convnet-train": _trainer(M.ConvNet),
    "detector-train": _trainer(M.Detector),
    "segmenter-train": _trainer(lambda run: M.UNet(run, generator=False)),
    "diffusion-train": _diffusion,
    "gan-train": _gan,
    "lm-train": _trainer(M.Transformer),
    "lm-train-compiled": _compiled,
    "recommender-train": _trainer(M.Recommender),
    "convnet-ddp": _trainer(M.ConvNet),
    "lm-ddp": _trainer(M.Transformer),
    "lm-ddp-accumulate": _trainer(M.Transformer),
    "lm-fsdp": _sharded,
    "diffusion-infer": _generate,
    "classifier-infer": _classify,
    "lm-decode": _decode,
    "lm-decode-graph": _decode,
}


# -- running -----------------------------------------------------------------------------------
Edits = Callable[[Run, int], tuple[Modes, dict[str, Hook]]]


def _none(run: Run, step: int) -> tuple[Modes, dict[str, Hook]]:
    return Modes(), {}


def prepare(plan: Plan) -> tuple[Run, Step]:
    """A machine and the program on it."""
    rng = random.Random(f"noise/{plan.workload}/{plan.device.key}/{plan.seed}")
    habits = Habits(
        host=plan.host,
        noise=0.02 + 0.05 * rng.random(),
        queue=plan.queue,
        stacks=plan.stacks,
        leafy=plan.leafy,
        sync_rows=plan.sync_rows,
        main=1000 + plan.variant % 60_000,
        backward=1080 + plan.variant % 60_000,
    )
    m = Machine(plan.device, rng, habits)
    e = Eager(m, amp=plan.amp, grad=plan.trains, shapes=plan.shapes, half=plan.half_params)
    e.chatty = plan.chatty
    stream = 20 + plan.variant % 9 if plan.side_stream else None
    feed = Feed(1 << 16, stream, plan.wait, plan.paced)
    edits = random.Random(f"edits/{plan.workload}/{plan.device.key}/{plan.seed}")
    run = Run(plan, m, e, feed, edits)
    if "ddp" in plan.workload or "fsdp" in plan.workload:
        run.ranks = Ranks(plan.world, 40 + plan.variant % 5, slow=plan.network)
    step = WORKLOADS[plan.workload](run)
    if "ddp" in plan.workload and run.ranks:
        total = 4 * sum(p.elems for p in e.params)
        run.reducer = Reducer(e, run.ranks, min(plan.bucket, max(1 << 20, total // 8)))
        e.on_grad = run.reducer.ready
    return run, step


def execute(
    plan: Plan,
    edits: Edits = _none,
    *,
    steps: int = 0,
    warm: int | None = None,
    healthy_us: float = 0.0,
) -> Run:
    """Run the program for its steps (after ``warm`` that stay unrecorded)."""
    run, step = prepare(plan)
    run.healthy_us = healthy_us
    if healthy_us:
        run.feed.bytes = int(max(2048, plan.input_share * healthy_us * plan.device.pinned))
    m = run.m
    for index in range(plan.warm if warm is None else warm):
        run.reset(Modes(), {})
        step(run, index)
    run.opened = max(m.now, m.tail())
    _open_window(m)
    script = "train.py" if plan.trains else "generate.py"
    with m.frame(f"{script}(203): <module>"), m.frame(f"{script}(166): main"):
        for index in range(steps or plan.steps):
            modes, hooks = edits(run, index)
            run.reset(modes, hooks)
            _step(run, step, index)
        if plan.final_sync:
            m.sync()
    return run


def _step(run: Run, step: Step, index: int) -> None:
    m, plan = run.m, run.plan
    m.step_index = index
    if index == 0 and plan.cold:
        _cold_start(m)
    name = f"ProfilerStep#{plan.variant % 40 + index + 1}"
    with m.annotation(name) if plan.markers else m.frame("trainer.py(88): one_batch"):
        run.at("start")
        step(run, index)
        run.at("end")
    m.blocking = False
    run.finish.append(max(m.now, m.tail()))


def _open_window(m: Machine) -> None:
    """Forget the rows of the warm-up; what still runs on the device stays, without its launch."""
    m.rows.clear()
    m.device_rows = [r for r in m.device_rows if r.end > m.now]
    m.acts.clear()


def _cold_start(m: Machine) -> None:
    for _ in range(6):
        m.malloc(m.rng.choice((2, 20, 64, 256)) << 20)
    m.busy(400.0)


def step_us(run: Run) -> list[float]:
    """Wall time of each step: from the moment the one before had left host and device."""
    edges = [run.opened, *run.finish]
    return [b - a for a, b in zip(edges, edges[1:], strict=False)]


def fitted(plan: Plan) -> tuple[Plan, float, dict[str, int]]:
    """The plan with its batch scaled to the wanted device/host ratio; its healthy step (µs); how
    often a step passes each point.
    """
    for _ in range(3):
        probe = replace(plan, warm=0, cold=False, paced=False, queue=1 << 30, final_sync=False)
        run = execute(probe, steps=1)
        kernels = [r for r in run.m.device_rows if r.lane == plan.device.stream]
        device = sum(r.end - r.start for r in kernels)
        ratio = device / run.m.now
        if 0.8 < ratio / plan.pull < 1.25:
            break
        plan = replace(plan, batch=min(max(plan.batch * (plan.pull / ratio) ** 1.1, 0.02), 4000))
    plan = _networked(plan, run)
    run = execute(replace(plan, warm=1, cold=False), steps=3)
    times = sorted(step_us(run)[1:])
    return plan, times[len(times) // 2], dict(run.layers)


def _networked(plan: Plan, run: Run) -> Plan:
    """The plan with a network that hides its collectives well, as a healthy job has."""
    if run.ranks is None:
        return plan
    times = {True: 0.0, False: 0.0}
    for row in run.m.device_rows:
        times[row.lane == run.ranks.stream] += row.end - row.start
    return replace(plan, network=plan.comm * times[False] / max(times[True], 1.0))
