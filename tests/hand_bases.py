"""Bases of an injection, written by hand: a training run of several ranks, and inference; and what
edits of them hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

from dataset.inject.base import Base
from dataset.inject.edits import Call, Edit, Insert, Replace, Work
from tests.traces import Event, annotation, call, kernel, op, trace_of

STEP, STEPS, AUTOGRAD, NETWORK = 4_000.0, 3, 2, 20
DEVICES = {"cuda": "NVIDIA A100-SXM4-40GB", "rocm": "AMD Instinct MI300X"}
CONV = "[[8, 64, 28, 28], [128, 64, 3, 3], []]"
TF32 = "sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x16_stage4_tensor16x8x8_kernel"
HALF = {
    "cuda": "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn",
    "rocm": "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64_MI16x16x1_SN_GRVWA8_GRVWB8",
}
FLASH = "void pytorch_flash::flash_fwd_kernel<cutlass::bfloat16_t>(Flash_fwd_params)"
ROTARY = "rotary_embedding_kernel<c10::BFloat16>"
ADD = "vectorized_elementwise_kernel<4, CUDAFunctor_add<float>, std::array<char*, 3ul> >"
FOREACH = "multi_tensor_apply_kernel<TensorListMetadata<2>>"
ALLREDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
FLOATS = '["float", "float", "float"]'
HALVES = '["c10::BFloat16", "c10::BFloat16", "c10::BFloat16"]'


class Writer:
    """Events with correlations of their own; ``word`` is cuda or hip."""

    def __init__(self, word: str) -> None:
        self.word, self.corr, self.events = word, 0, list[Event]()

    def launched(self, name: str, at: float, dur: float, **rest: object) -> None:
        """A launch of 6 us, and its kernel 3 us behind it."""
        self.corr += 1
        stream = int(rest.pop("stream", 7))  # type: ignore[call-overload]
        thread = int(rest.pop("thread", 1))  # type: ignore[call-overload]
        self.events.append(call(f"{self.word}LaunchKernel", at, 6, corr=self.corr, thread=thread))
        self.events.append(kernel(name, at + 9, dur, self.corr, stream, **rest))

    def ran(self, name: str, at: float, kernel_name: str, dur: float, **rest: object) -> None:
        """An op of 30 us that runs one kernel."""
        thread = int(rest.get("thread", 1))  # type: ignore[call-overload]
        self.events.append(op(name, at, 30, **rest))
        self.launched(kernel_name, at + 12, dur, thread=thread)


def training_step(w: Writer, start: float, i: int, ranks: bool) -> None:
    """A forward pass of convolution, norm and product, a backward pass, and an update."""
    add, grad = w.events.append, {"thread": AUTOGRAD}
    add(annotation(f"ProfilerStep#{i}", start, STEP - 10))
    add(annotation("DistributedDataParallel.forward", start + 20, 900))
    add(
        op(
            "aten::conv2d",
            start + 50,
            100,
            sequence=7,
            dims=CONV,
            types='["float", "float", ""]',
        )
    )
    add(
        op(
            "aten::cudnn_convolution",
            start + 60,
            60,
            dims=CONV,
            types='["float", "float", ""]',
        )
    )
    w.launched("sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc", start + 80, 140)
    w.ran("aten::batch_norm", start + 200, "cudnn::bn_fw_tr_1C11_kernel_NCHW<float>", 40)
    w.ran(
        "aten::addmm",
        start + 400,
        TF32,
        200,
        sequence=9,
        dims="[[1024], [2048, 1024], [1024, 1024]]",
        types=FLOATS,
    )
    w.ran(
        "aten::mul",
        start + 600,
        ADD,
        60,
        sequence=10,
        dims="[[2048, 1024], [2048, 1024]]",
        types='["float", "float"]',
    )
    node = "autograd::engine::evaluate_function: "
    for k in range(4):
        at = start + 1_100 + 200 * k
        add(op(node + "MulBackward0", at, 40, **grad))
        add(op("MulBackward0", at + 1, 38, **grad))
        w.ran(
            "aten::mul",
            at + 2,
            ADD,
            60,
            dims="[[2048, 1024], [2048, 1024]]",
            types='["float", "float"]',
            **grad,
        )
        add(op(node + "torch::autograd::AccumulateGrad", at + 60, 30, **grad))
        add(
            op(
                "torch::autograd::AccumulateGrad",
                at + 62,
                20,
                **grad,
                dims=f"[[{64 * (k + 1)}, 1024]]",
                types='["float"]',
            )
        )
    add(
        op(
            "aten::convolution_backward",
            start + 1_950,
            60,
            **grad,
            dims="[[8, 128, 28, 28], [8, 64, 28, 28], [128, 64, 3, 3]]",
            types=FLOATS,
        )
    )
    w.launched("cutlass_tensorop_s1688dgrad_optimized_tf32", start + 1_970, 150, thread=AUTOGRAD)
    if ranks:
        reduced(w, start + 2_100)
    add(annotation("Optimizer.step#SGD.step", start + 2_600, 200))
    for k in range(2):
        w.ran("aten::_foreach_add_", start + 2_620 + 60 * k, FOREACH, 30)
    add(annotation("Optimizer.zero_grad#SGD.zero_grad", start + 3_000, 50))
    w.ran("aten::mul", start + 3_800, ADD, 20)


def reduced(w: Writer, at: float) -> None:
    """A bucket of gradients."""
    size, sent = "[[[655360]], []]", {"collective": "allreduce", "msg_elems": 655_360}
    w.events.append(
        op("c10d::allreduce_", at, 60, thread=AUTOGRAD, dims=size, types='["TensorList", ""]')
    )
    w.events.append(op("record_param_comms", at + 5, 50, thread=AUTOGRAD, **sent))
    w.events.append(annotation("nccl:all_reduce", at + 15, 30, thread=AUTOGRAD))
    w.launched(ALLREDUCE, at + 20, 80, thread=AUTOGRAD, stream=NETWORK, **sent)


def inference_step(w: Writer, start: float, i: int) -> None:
    """Twelve layers of a product, attention and an activation, in bf16."""
    w.events.append(annotation(f"ProfilerStep#{i}", start, STEP - 10))
    heads = "[[4, 12, 256, 64], [4, 12, 256, 64], [4, 12, 256, 64]]"
    for k in range(12):
        at = start + 40 + 320 * k
        w.events.append(
            op("aten::linear", at, 60, dims="[[4, 256, 768], [768, 768], [768]]", types=HALVES)
        )
        w.ran(
            "aten::addmm",
            at + 10,
            HALF["rocm" if w.word == "hip" else "cuda"],
            90,
            dims="[[768], [1024, 768], [768, 768]]",
            types=HALVES,
        )
        w.events.append(
            op("aten::scaled_dot_product_attention", at + 80, 60, dims=heads, types=HALVES)
        )
        w.ran("aten::_flash_attention_forward", at + 90, FLASH, 60)
        w.ran(
            "aten::mul",
            at + 160,
            ROTARY if k % 2 else ADD,
            40,
            dims="[[4, 256, 768], [4, 256, 768]]",
            types='["c10::BFloat16", "c10::BFloat16"]',
        )
        w.events.append(
            op(
                "aten::dropout",
                at + 220,
                5,
                dims="[[4, 256, 768], [], []]",
                types='["c10::BFloat16", "Scalar", "Scalar"]',
            )
        )


@cache
def base_of(
    kind: str = "training", vendor: str = "cuda", *, ranks: bool = True, newer: bool = True
) -> Base:
    w = Writer("hip" if vendor == "rocm" else "cuda")
    for i in range(STEPS):
        if kind == "training":
            training_step(w, i * STEP, i, ranks)
        else:
            inference_step(w, i * STEP, i)
    steps = [(i * STEP, (i + 1) * STEP - 10) for i in range(STEPS)]
    device = {"deviceProperties": [{"id": 0, "name": DEVICES[vendor], "numSms": 108}]}
    trace = trace_of(*w.events, steps=steps, metadata=device)
    return Base("hand.json", replace(trace, base_ns=1 if newer else 0))


@cache
def host_only() -> Base:
    events = [op("aten::mm", 100 * i, 50) for i in range(60)]
    return Base("hand.json", trace_of(*events, steps=[(0, 3_000), (3_000, 6_000)]))


def walk(calls: Sequence[Call]) -> Iterator[Call]:
    for c in calls:
        yield c
        yield from walk(c.inside)


def calls_of(edits: Sequence[Edit], faulty: bool = False) -> list[Call]:
    rows = [e for e in edits if isinstance(e, Insert | Replace) and (e.faulty or not faulty)]
    return [c for e in rows for c in walk(e.calls)]


def works_of(edits: Sequence[Edit]) -> list[Work]:
    return [c.work for c in calls_of(edits) if c.work]


def named(edits: Sequence[Edit], name: str) -> list[Call]:
    return [c for c in calls_of(edits) if c.name == name]
