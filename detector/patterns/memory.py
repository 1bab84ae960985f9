"""Memory: allocations, and data that is moved, filled or cast for nothing."""

from __future__ import annotations

from typing import Final

import numpy as np

from detector import vocabulary
from detector.patterns.conditions import (
    caches_nothing,
    empties_cache,
    has_bf16,
    has_fp16_only,
    in_inference,
    in_training,
    on_rocm,
    under_fsdp,
)
from detector.patterns.pattern import WHOLE, Advice, Pattern
from detector.patterns.repairs import dropped, removed, spared_both_ways
from detector.replay.repair import Repair
from detector.signals import Signals
from detector.trace import Cat, Int64

# An activation's backward takes about as long as its forward (0.9 to 1.4 times as recorded); where
# its gradient comes in another layout than its input, 4 to 14 times.
BACKWARD_OF_FORWARD: Final = 1.5


def _in_one_layout(s: Signals, rows: Int64) -> Repair:
    """The transforms go. On a CPU run their backward, too, and the backward of activations takes no
    longer than one with its tensors in one layout."""
    if s.activity.has_device:
        return dropped(s, rows)
    return spared_both_ways(s, rows) | Repair(own=_slow_backward(s))


def _slow_backward(s: Signals) -> tuple[Int64, Int64]:
    """Backward ops of activations that take much longer than the forward of the same shape, and how
    long they may take."""
    ops = s.activity.aten
    backward = s.activity.named(ops, vocabulary.ACTIVATION_BACKWARD, Cat.CPU_OP)
    forward = s.activity.named(ops, vocabulary.ACTIVATION, Cat.CPU_OP)
    took: dict[tuple[str, str], list[int]] = {}
    for row in forward.tolist():
        took.setdefault(_activation(s, row), []).append(int(s.own_time[row]))
    usual = {activation: np.median(times) for activation, times in took.items()}
    most = BACKWARD_OF_FORWARD * np.array(
        [usual.get(_activation(s, row), np.inf) for row in backward.tolist()]
    )
    slow = s.own_time[backward] > most
    return backward[slow], most[slow].astype(np.int64)


def _activation(s: Signals, row: int) -> tuple[str, str]:
    """The op by the name of its forward, and the shape of its first input as text."""
    trace = s.trace
    name = trace.names[trace.name[row]].removesuffix("_backward")
    dims = trace.dims[row]
    return name, trace.names[dims].partition("]")[0] if dims >= 0 else ""


PATTERNS: Final = (
    Pattern(
        id="memory-alloc-churn",
        kind="fault",
        side="cpu",
        needs=("device", "host"),
        signal="allocation",
        repair=removed,
        assumes="the caching allocator serves steady state without a driver call",
        explains=("allocation", "nothing", "restart"),
        error=WHOLE,
        title="Driver memory allocation in steady state",
        what="The driver allocates and frees memory in the step, which stops the GPU; the caching "
        "allocator should make such calls rare.",
        look="cudaMalloc, cudaFree or hipMalloc inside steady steps; empty_cache",
        costs="Freeing waits for all work on the device, and allocating takes up to milliseconds; "
        "the GPU idles in both.",
        repaired="The driver's calls that allocate, map and free go.",
        harmless="The first steps, while the allocator fills its cache.",
        advice=(
            Advice(
                "Remove torch.cuda.empty_cache() from the loop: each call gives all cached blocks "
                "back to the driver, and the next ops fetch them again.",
                "# no torch.cuda.empty_cache() in the loop",
                (empties_cache,),
            ),
            Advice(
                "Turn the caching allocator on: nearly every tensor here is a call to the driver. "
                "Unset PYTORCH_NO_HIP_MEMORY_CACHING and PYTORCH_NO_CUDA_MEMORY_CACHING, and check "
                "what replaces the allocator.",
                "unset PYTORCH_NO_HIP_MEMORY_CACHING PYTORCH_NO_CUDA_MEMORY_CACHING",
                (caches_nothing,),
            ),
            Advice(
                "Leave the allocator memory to spare (near the limit it frees and allocates blocks "
                "all the time), and keep shapes to a few sizes, so that cached blocks fit again.",
                "x = F.pad(x, (0, -x.shape[-1] % 64))  # a few lengths instead of any",
                (on_rocm,),
            ),
            Advice(
                "Keep shapes to a few sizes, leave the allocator memory to spare and let it grow "
                "its segments; no torch.cuda.empty_cache() in the loop.",
                "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python train.py",
                (in_training,),
            ),
            Advice(
                "Keep shapes to a few sizes, leave the allocator memory to spare and let it grow "
                "its segments; no torch.cuda.empty_cache() in the loop.",
                "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python serve.py",
            ),
        ),
        facts=("allocs", "alloc", "idle_alloc", "empty_cache"),
        cites="call",
        counted="calls",
    ),
    Pattern(
        id="memory-zero-grad-fill",
        kind="fault",
        side="gpu",
        needs=("host",),
        signal="zero-grad",
        repair=removed,
        assumes="gradients set to None cost nothing",
        explains=("dispatch", "framework", "compute", "cpu-compute"),
        title="Gradients filled with zeros every step",
        what="Every gradient is filled with zeros, where setting it to None costs nothing.",
        look="Optimizer.zero_grad over aten::zero_, one fill per parameter",
        costs="A fill of every gradient, and in the backward pass an addition to it where a plain "
        "write would do; only the fill is counted.",
        repaired="The calls of zero_grad that fill go, with what they launch.",
        harmless="Gradients are accumulated on purpose in tensors that must stay, for graphs or "
        "hooks.",
        advice=(
            Advice(
                "Set gradients to None: the default from PyTorch 2.0 on, so drop "
                "set_to_none=False, and replace p.grad.zero_() in code of your own.",
                "optimizer.zero_grad(set_to_none=True)",
            ),
        ),
        facts=("zero_ops", "zero_grad", "work_zero_grad_fill"),
    ),
    Pattern(
        id="memory-redundant-copy",
        kind="opportunity",
        side="gpu",
        needs=("host",),
        signal="copy-op",
        repair=spared_both_ways,
        assumes="every such copy can be spared by a view, a layout or a preallocated tensor",
        explains=("compute", "copy", "cpu-compute"),
        title="Redundant tensor copies",
        what="contiguous, clone and cat copy whole tensors that a view or a better layout would "
        "avoid.",
        look="aten::contiguous -> clone -> copy_, CatArray kernels, Memcpy DtoD",
        costs="Each copy reads and writes the whole tensor and computes nothing.",
        repaired="The outermost ops that only copy go, with what they launch; casts and layouts "
        "around convolutions have patterns of their own.",
        harmless="The copy makes a much-used tensor contiguous once, or its source is freed by it.",
        advice=(
            Advice(
                "Compile the module that copies: the compiler writes results into place and drops "
                "copies that a view can stand for. By hand: split, unflatten and expand instead of "
                "contiguous and repeat, and results written into one preallocated tensor.",
                "out = x.new_empty(rows, n + m)  # instead of torch.cat([a, b], dim=1)\n"
                "torch.mm(x, w1, out=out[:, :n]); torch.mm(x, w2, out=out[:, n:])",
                (in_inference,),
            ),
            Advice(
                "Use views (unflatten, expand) instead of contiguous and repeat, one wide product "
                "instead of several that are joined by cat, and the layout that the next op wants.",
                "q, k, v = self.qkv(x).chunk(3, dim=-1)  # one product, three views",
            ),
        ),
        facts=("work_copy_op", "copy_ops", "kernel_copy", "kernel_cat", "d2d"),
        cites="launched",
        counted="ops",
    ),
    Pattern(
        id="memory-layout-transform",
        kind="opportunity",
        side="gpu",
        needs=("device",),
        needs_on_cpu=("host", "shapes"),
        signal="layout-kernel",
        repair=_in_one_layout,
        assumes="model and input stay in the layout of the kernels",
        explains=("compute", "cpu-compute"),
        title="Layout transforms around convolutions",
        what="Each convolution converts between NCHW and NHWC and back.",
        look="nchwToNhwc and nhwcToNchw kernels, or reorders; on a CPU aten::to that copies and "
        "changes no type, and the contiguous after a convolution",
        costs="Each transform reads and writes a whole activation. On a CPU the backward of an "
        "activation takes several times as long where its tensors differ in layout.",
        repaired="The transforming kernels go; on a CPU run the ops that transform, their "
        "backward, and what the backward of activations takes beyond 1.5 times their forward.",
        harmless="One at the input and one at the output of the model.",
        advice=(
            Advice(
                "Put model and input into channels_last once, and let MIOpen use it (on Instinct "
                "devices; on Radeon it may be slower).",
                "# started with PYTORCH_MIOPEN_SUGGEST_NHWC=1\n"
                "model = model.to(memory_format=torch.channels_last)\n"
                "x = x.to(memory_format=torch.channels_last)",
                (on_rocm,),
            ),
            Advice(
                "Put model and input into channels_last once.",
                "model = model.to(memory_format=torch.channels_last)\n"
                "x = x.to(memory_format=torch.channels_last)",
            ),
        ),
        facts=("kernel_layout", "conv_ops"),
        cites="kernel",
        counted="kernels",
    ),
    Pattern(
        id="memory-dtype-churn",
        kind="opportunity",
        side="gpu",
        needs=("host",),
        signal="cast-op",
        repair=spared_both_ways,
        assumes="tensors are cast once, or never",
        explains=("compute", "cpu-compute"),
        title="Repeated casts of the same tensors",
        what="Casts between fp32 and a half type read and write whole tensors every step.",
        look="aten::_to_copy between bf16/fp16 and fp32 with the same shape, every step",
        costs="Each cast reads and writes a whole tensor and computes nothing.",
        repaired="The outermost ops that cast on their device go, with what they launch and "
        "their backward.",
        harmless="Autocast's own casts of activations, where the products that follow take far "
        "longer.",
        advice=(
            Advice(
                "Let FSDP keep the parameters it gathers in bf16, instead of autocast inside.",
                "fully_shard(model, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))",
                (under_fsdp, has_bf16),
            ),
            Advice(
                "Cast the model once and feed it the same type. Norms that go to fp32 and back "
                "are one op as F.rms_norm or F.layer_norm, and one kernel when compiled.",
                "model = model.to(torch.bfloat16)\n"
                "y = F.rms_norm(x, x.shape[-1:], weight)  # instead of x.float() ... .to(x.dtype)",
                (in_inference, has_bf16),
            ),
            Advice(
                "Cast the model once and feed it the same type; keep only what needs it, such as "
                "a final softmax, in fp32.",
                "model = model.half()",
                (in_inference, has_fp16_only),
            ),
            Advice(
                "Enter autocast once around the whole forward pass, so that each weight is cast "
                "once a step, and remove .float() and .half() between the layers.",
                "with torch.autocast(device_type, dtype=torch.float16): loss = model(x)\n"
                "# no x.float() ... x.half() inside the model",
                (in_training, has_fp16_only),
            ),
            Advice(
                "Enter autocast once around the whole forward pass, so that each weight is cast "
                "once a step, and remove .float() and .bfloat16() between the layers; or keep the "
                "parameters in bf16.",
                "with torch.autocast(device_type, dtype=torch.bfloat16): loss = model(x)\n"
                "# no x.float() ... x.bfloat16() inside the model",
                (in_training, has_bf16),
            ),
            Advice(
                "Cast once, where the tensor is made, and keep one type from there on.",
                "model = model.to(dtype); x = x.to(dtype)  # once, not in every layer",
            ),
        ),
        facts=("work_cast", "casts_repeated", "casts", "kernel_copy"),
        cites="launched",
        counted="ops",
    ),
)
