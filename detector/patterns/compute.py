"""Compute: kernels that are slower, smaller or more than they need be."""

from __future__ import annotations

from typing import Final

import numpy as np

from detector.index_sets import difference
from detector.patterns import capability
from detector.patterns.circumstances import circumstances_of
from detector.patterns.conditions import (
    falls_back_to_math,
    has_fp16_only,
    has_tf32,
    in_convolutions,
    in_inference,
    in_training,
    in_transformers,
    is_compiled,
    lacks_compiler,
    on_cpu,
    on_rocm,
    optimizer_has_foreach,
    optimizer_has_fused,
)
from detector.patterns.pattern import LEFT, Advice, Pattern
from detector.patterns.repairs import (
    dropped,
    quicker_host,
    shortened,
    spared,
    spared_both_ways,
)
from detector.replay.repair import Repair
from detector.signals import Signals
from detector.signals.device import SHORT_NS, issued
from detector.signals.event_sets import multiprocessors
from detector.trace import Int64

ALIGNED_SHARE: Final = 0.7  # of an unaligned product's time, typical
FUSED_STEP: Final = 0.3  # of an optimizer's device time that a fused one takes
FOREACH_HOST: Final = 0.1  # ... and of its host time
FUSED_ON_CPU: Final = 0.25  # of its time on a CPU run: 0.16 to 0.39 as recorded
NEAR_NS: Final = 50_000  # kernels further apart on a stream belong to different chains ...
PACE: Final = 4  # ... and further than so many times from one launch to the next


def _on_tensor_cores(s: Signals, rows: Int64) -> Repair:
    most = np.maximum(s.trace.dur[rows] / capability.matrix_ratio(s), SHORT_NS)
    return shortened(s, rows, most.astype(np.int64))


def _aligned(s: Signals, rows: Int64) -> Repair:
    return shortened(s, rows, (s.trace.dur[rows] * ALIGNED_SHARE).astype(np.int64))


def _filled(s: Signals, rows: Int64) -> Repair:
    """The same work on all multiprocessors."""
    fill = s.trace.blocks[rows] / max(1, multiprocessors(s.activity))
    most = np.maximum(s.trace.dur[rows] * fill, SHORT_NS)
    return shortened(s, rows, most.astype(np.int64))


def _fused_chains(s: Signals, rows: Int64) -> Repair:
    """The longest kernel of each chain stays: it reads and writes as much as the fused one. On a
    CPU run the backward of the others goes, too."""
    trace = s.trace
    order = rows[np.lexsort((trace.start[rows], trace.track[rows]))]
    gap = trace.start[order[1:]] - trace.end[order[:-1]]
    far = (gap > _near(s)) | (trace.track[order[1:]] != trace.track[order[:-1]])
    far |= _between(s, order)
    chain = np.concatenate([[0], np.cumsum(far)])[: len(order)]
    ranked = np.lexsort((-trace.dur[order], chain))
    first = np.append(True, chain[ranked][1:] != chain[ranked][:-1])[: len(order)]
    gone = np.sort(order[ranked[~first]])
    return spared(s, gone) if s.activity.has_device else spared_both_ways(s, gone)


def _near(s: Signals) -> int:
    """How far apart kernels of one chain are at most, ns: where the host is slower, so are they."""
    at = s.trace.start[s.activity.launches]
    return max(NEAR_NS, PACE * int(np.median(np.diff(at)))) if len(at) > 1 else NEAR_NS


def _between(s: Signals, order: Int64) -> np.ndarray:
    """Between which two neighbors of one stream other work than pointwise ran."""
    a, trace = s.activity, s.trace
    other = a.compute_rows if a.has_device else s.activity.top_ops
    keep = [a.kernels_of(kind) for kind in ("copy", "cat", "reduce")] if a.has_device else []
    other = difference(other, np.concatenate([order, *keep]))
    at = np.sort(trace.start[other])
    first, second = trace.start[order[:-1]], trace.start[order[1:]]
    return np.asarray(np.searchsorted(at, second) > np.searchsorted(at, first))


def _fused_step(s: Signals, rows: Int64) -> Repair:
    """The host makes a tenth of the calls, the device a fused pass. On a CPU run both are one."""
    inside = s.inside(rows)
    if not s.activity.has_device:
        return quicker_host(s, inside, FUSED_ON_CPU, 1_000_000)
    work = issued(s, rows)
    most = (s.trace.dur[work] * FUSED_STEP).astype(np.int64)
    return quicker_host(s, inside, FOREACH_HOST, 1_000_000) | Repair(work=(work, most))


def _can_be_fused(s: Signals) -> bool:
    """On a CPU foreach walks the parameters one by one, too: only a fused one is better."""
    return s.activity.has_device or optimizer_has_fused.holds(circumstances_of(s))


def _has_matrix_units(s: Signals) -> bool:
    return s.activity.has_device and capability.matrix_ratio(s) > 1


PATTERNS: Final = (
    Pattern(
        id="compute-fp32-matmul",
        kind="opportunity",
        side="gpu",
        needs=("device",),
        signal="fp32-matrix",
        repair=_on_tensor_cores,
        assumes="the model tolerates TF32 or half precision; the kernels then take a third of "
        "their time (half on ROCm)",
        explains=("compute",),
        applies=_has_matrix_units,
        title="Matrix products in full fp32",
        what="Matrix products or convolutions run in full fp32, without the GPU's matrix units "
        "(tensor cores).",
        look="sgemm or f32f32 simt kernels and no tensor-core kernel",
        costs="The units for full fp32 are several times slower than the matrix units.",
        repaired="Each such kernel takes a third of its time (half on ROCm), but no less than a "
        "kernel's start.",
        harmless="The numbers need fp32: solvers, some losses, small parts of a model.",
        advice=(
            Advice(
                "Let cuDNN use TF32 (the default: something switches it off), or run the "
                "convolutions in bf16 under autocast with channels_last.",
                "torch.backends.cudnn.allow_tf32 = True\n"
                'with torch.autocast("cuda", dtype=torch.bfloat16): loss = model(x)',
                (has_tf32, in_convolutions),
            ),
            Advice(
                "Allow TF32 for fp32 products, which changes no tensor's type; autocast to bf16 is "
                "faster still.",
                'torch.set_float32_matmul_precision("high")',
                (has_tf32,),
            ),
            Advice(
                "Run in bf16: under autocast, or with the model cast once for inference.",
                'with torch.autocast("cuda", dtype=torch.bfloat16):  # "cuda" is right on ROCm\n'
                "    y = model(x)",
                (on_rocm,),
            ),
            Advice(
                "This GPU's tensor cores take fp16 alone: autocast to fp16, with a GradScaler.",
                'scaler = torch.amp.GradScaler("cuda")\n'
                'with torch.autocast("cuda", dtype=torch.float16): loss = model(x)\n'
                "scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()",
                (has_fp16_only, in_training),
            ),
            Advice(
                "This GPU's tensor cores take fp16 alone: run the model in fp16.",
                "model = model.half()  # inputs too, or torch.autocast to torch.float16",
                (has_fp16_only,),
            ),
            Advice(
                "Run the products in a type that the device's matrix units take.",
                "with torch.autocast(device_type): y = model(x)",
            ),
        ),
        facts=("fp32_matrix", "tensor_core"),
        cites="kernel",
        counted="kernels",
    ),
    Pattern(
        id="compute-misaligned-gemm",
        kind="opportunity",
        side="gpu",
        needs=("device", "shapes"),
        signal="misaligned-gemm",
        repair=_aligned,
        assumes="aligned kernels of the same size take 0.7 of the time",
        explains=("compute",),
        title="GEMM dimensions not divisible by 8",
        what="Dimensions that are no multiple of 8 (16 in fp8) run on slower kernels.",
        look="Input Dims not a multiple of 8; align1 or align2 kernels",
        costs="Loads of one or two elements at a time keep the matrix units waiting.",
        repaired="Each such kernel takes 0.7 of its time.",
        harmless="The product is small or bound by memory, or the odd dimension is the batch.",
        advice=(
            Advice(
                "Pad what is odd to a multiple of 8, better 64: vocabulary, hidden size, heads or "
                "sequence length.",
                "vocab = (vocab + 63) // 64 * 64  # the added rows are never used\n"
                "x = F.pad(x, (0, -x.shape[-1] % 8))",
            ),
        ),
        facts=("work_misaligned", "odd_matmul", "misaligned_kernels"),
        cites="launched",
        counted="kernels",
    ),
    Pattern(
        id="compute-underfilled",
        kind="opportunity",
        side="gpu",
        needs=("device", "grids"),
        signal="underfilled-kernel",
        repair=_filled,
        assumes="the same work can be spread over all multiprocessors",
        explains=("compute",),
        title="Kernels launch too few blocks to fill the GPU",
        what="Kernels launch so few blocks that most of the GPU's multiprocessors idle.",
        look="grids below half the number of multiprocessors: thin matrix products, scans and "
        "reductions of a few rows",
        costs="Multiprocessors without a block wait for those that have one.",
        repaired="Each such kernel takes its time times the share of multiprocessors that it "
        "fills, but no less than a kernel's start.",
        harmless="Other streams fill the GPU meanwhile, or there is only so much work, as for one "
        "token of one request.",
        advice=(
            Advice(
                "Serve requests in batches; join small products into one bmm, or run independent "
                "ones on two streams.",
                "y = model(torch.stack(requests))  # one call, not one a request",
                (in_inference,),
            ),
            Advice(
                "Give each GPU a larger batch and accumulate less; join small products into one "
                "bmm.",
                "out = torch.bmm(a, b)  # a: [n, i, j], instead of n small mm",
                (in_training,),
            ),
            Advice(
                "Use larger batches, and bmm instead of many small products.",
                "out = torch.bmm(a, b)  # instead of a loop of small mm",
            ),
        ),
        facts=("unfilled", "kernel_us", "tiny_kernels"),
        cites="kernel",
        counted="kernels",
    ),
    Pattern(
        id="compute-unfused-attention",
        kind="opportunity",
        side="gpu",
        needs=("host",),
        signal="attention-between",
        repair=spared,
        assumes="a fused kernel takes as long as the two products",
        explains=("compute", "cpu-compute"),
        title="Attention is not fused",
        what="The score matrix of attention is written and read several times.",
        look="aten::bmm -> aten::softmax -> aten::bmm, or _scaled_dot_product_attention_math",
        costs="The matrix grows with the square of the sequence's length, and scaling, mask, "
        "softmax and dropout each pass over it.",
        repaired="The work between the two products goes, with the ops that launch nothing else.",
        harmless="Short sequences, where the matrix is small beside the products.",
        advice=(
            Advice(
                "scaled_dot_product_attention is called, but falls back to plain math: the mask, "
                "type or head size does not suit a fused kernel. Forbid the fallback to "
                "see why.",
                "from torch.nn.attention import SDPBackend, sdpa_kernel\n"
                "with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]):\n"
                "    y = model(x)  # fails, and warns why no kernel fits",
                (falls_back_to_math,),
            ),
            Advice(
                "Load the model with its fused attention.",
                'AutoModel.from_pretrained(name, attn_implementation="sdpa")',
                (in_transformers,),
            ),
            Advice(
                "Use the fused attention op in the place of the two products and the softmax.",
                "y = F.scaled_dot_product_attention(q, k, v, is_causal=True)",
            ),
        ),
        facts=("work_bmm", "work_softmax", "work_math_attention", "softmax_ops", "bmm_ops"),
        cites="launched",
        counted="kernels",
    ),
    Pattern(
        id="compute-unfused-elementwise",
        kind="opportunity",
        side="gpu",
        needs=("host",),
        signal="pointwise-chain",
        repair=_fused_chains,
        assumes="a fused kernel takes as long as the longest of its chain",
        explains=("compute", "cpu-compute"),
        title="Pointwise or norm kernels are not fused",
        what="Each small op of a chain reads and writes the whole tensor again.",
        look="three or more pointwise kernels in a row under one module",
        costs="The time of such ops is memory traffic: n ops in a row move the tensor n times.",
        repaired="Of each chain the longest kernel stays, with the ops that launch more than the "
        "others; on a CPU run the backward of the others goes, too.",
        harmless="The tensors are so small that they stay in the cache.",
        advice=(
            Advice(
                "torch.compile does not support this GPU: use ops that are fused already "
                "(F.layer_norm, F.gelu, addcmul) and in-place ones.",
                "y = torch.addcmul(bias, x, scale)  # instead of x * scale + bias",
                (lacks_compiler,),
            ),
            Advice(
                "The model is compiled, and these chains lie outside what was compiled: bring "
                "their module in, or find the break that keeps it out.",
                "# TORCH_LOGS=graph_breaks lists the breaks\n"
                "model.norm = torch.compile(model.norm)",
                (is_compiled,),
            ),
            Advice(
                "Compile the module, which fuses the chain into one kernel; norms and gated "
                "activations have fused ops of their own.",
                "block.compile()  # or the whole model\n"
                "y = F.rms_norm(x, x.shape[-1:], weight)  # PyTorch 2.4 on",
            ),
        ),
        facts=("chained", "work_pointwise", "pointwise_ops"),
        cites="kernel",
        counted="kernels",
    ),
    Pattern(
        id="compute-single-tensor-optimizer",
        kind="opportunity",
        side="gpu",
        needs=("host",),
        signal="optimizer-walk",
        repair=_fused_step,
        assumes="a fused optimizer takes a tenth of the host's and 0.3 of the device's time; on a "
        "CPU a quarter",
        explains=("dispatch", "framework", "compute", "cpu-compute", "latency", "between"),
        applies=_can_be_fused,
        error=LEFT,
        title="Optimizer is not fused or foreach",
        what="The optimizer updates each parameter by small ops of its own, instead of all in a "
        "few.",
        look="Optimizer.step over _single_tensor_*; no _foreach_ or _fused_ op",
        costs="Ten and more ops per parameter: dispatch on the host, and one short kernel each on "
        "a device.",
        repaired="In the optimizer's step the host keeps a tenth of its time, and the device 0.3 "
        "of its time; on a CPU run a quarter stays.",
        harmless="A model of a few large parameters; on a CPU an optimizer without a fused form.",
        advice=(
            Advice(
                "Use the fused implementation: one pass over all parameters (on a CPU from "
                "PyTorch 2.4 on).",
                "torch.optim.{optimizer}(params, lr=lr, fused=True)",
                (on_cpu, optimizer_has_fused),
            ),
            Advice(
                "Use the fused implementation: one pass over all parameters (Adam and AdamW from "
                "PyTorch 2.0 on, SGD from 2.3 on; before, foreach=True).",
                "torch.optim.{optimizer}(params, lr=lr, fused=True)",
                (optimizer_has_fused,),
            ),
            Advice(
                "Use the foreach implementation: a few kernels for all parameters. It is the "
                "default on a GPU from PyTorch 2.0 on, so look for foreach=False or an older "
                "version.",
                "torch.optim.{optimizer}(params, lr=lr, foreach=True)",
                (optimizer_has_foreach,),
            ),
            Advice(
                "This optimizer has no fused implementation: compile its step, or update lists of "
                "parameters with the torch._foreach_ ops.",
                "@torch.compile\ndef step(): optimizer.step()",
            ),
        ),
        facts=("work_optimizer", "work_single_tensor", "optimizer", "single_tensor", "kernel_us"),
    ),
    Pattern(
        id="compute-conv-bias-batchnorm",
        kind="fault",
        side="gpu",
        needs=("host", "shapes"),
        signal="bias-add",
        repair=dropped,
        assumes="the norm that follows subtracts the bias again",
        explains=("compute",),
        title="Convolution bias before BatchNorm",
        what="The convolution adds a bias; the normalization subtracts it again.",
        look="aten::conv2d with a bias, then batch_norm",
        costs="A pass over each activation to add the bias, and in training one to reduce its "
        "gradient; only the addition is counted.",
        repaired="The kernels that add the bias go.",
        harmless="The bias is part of the convolution's kernel and costs nothing.",
        advice=(
            Advice(
                "Fold the norm into the convolution: one op instead of two.",
                "conv = torch.nn.utils.fusion.fuse_conv_bn_eval(conv, bn)  # both in eval mode",
                (in_inference,),
            ),
            Advice(
                "Build the convolution without a bias.",
                "nn.Conv2d(cin, cout, 3, bias=False)",
            ),
        ),
        facts=("biased_conv", "work_conv_bias", "work_biased", "conv_ops"),
        cites="launched",
        counted="kernels",
    ),
)
