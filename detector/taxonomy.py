"""The anti-patterns this product names, one row each.

The id is the label in every dataset, the class in every model and the key in every report; ids
never change meaning. ``needs`` says which detail of a trace a pattern takes to be seen: without
it the report says *not checked*, never *clean*.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Side = Literal["cpu", "gpu"]
Severity = Literal["info", "low", "medium", "high", "critical"]
Need = Literal["device", "host", "links", "shapes", "steps", "comm", "ranks"]

NONE = "none"  # "not an anti-pattern", the class beside the patterns
UNCLEAR = "unclear"  # a judge that gave no valid answer

# Share of the analyzed time that a finding could save -> severity. Below the last: no finding.
SEVERITIES: tuple[tuple[float, Severity], ...] = (
    (0.20, "critical"),
    (0.10, "high"),
    (0.05, "medium"),
    (0.03, "low"),
    (0.01, "info"),
)


def severity(share: float) -> Severity | None:
    """The severity of the share of the analyzed time that a finding could save; None below 1 %."""
    return next((name for least, name in SEVERITIES if share >= least), None)


@dataclass(frozen=True)
class Pattern:
    """A row of the taxonomy.

    ``what`` is the fault, ``look`` where a trace shows it, ``fix`` and ``code`` what to change.
    """

    id: str
    side: Side
    title: str
    what: str
    look: str
    fix: str
    code: str
    needs: tuple[Need, ...]


PATTERNS: tuple[Pattern, ...] = (
    Pattern(
        "input-dataloader-sync",
        "cpu",
        "Data loading blocks training (num_workers=0)",
        "The data loader has no workers, so the training thread reads and decodes every batch.",
        "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__ while nothing computes",
        "Give the loader worker processes and keep them alive between epochs.",
        "DataLoader(dataset, num_workers=4, persistent_workers=True)",
        ("host",),
    ),
    Pattern(
        "input-dataloader-starved",
        "cpu",
        "Data loader workers do not keep up",
        "Worker processes exist, but the training loop still waits for their batches.",
        "_MultiProcessingDataLoaderIter.__next__ waits, periodic or long at an epoch's start",
        "Add workers or prefetching, keep them alive, or make decoding cheaper.",
        "DataLoader(dataset, num_workers=8, prefetch_factor=4, persistent_workers=True)",
        ("host",),
    ),
    Pattern(
        "input-main-thread-preprocessing",
        "cpu",
        "Preprocessing on the training thread",
        "Image or array work between steps runs on the training thread, and nothing else runs.",
        "PIL, numpy or cv2 frames, or CPU tensor ops, while the launch queue is empty",
        "Move the work into the data loader's workers, or to the GPU.",
        "class Data(Dataset):\n    def __getitem__(self, i): return preprocess(load(i))",
        ("host",),
    ),
    Pattern(
        "input-pageable-copy",
        "cpu",
        "Host-to-device copies from pageable memory",
        "Copies from memory that is not pinned block the host until they end.",
        "Memcpy HtoD (Pageable -> Device), then a synchronization; ROCm: hipMemcpyWithStream",
        "Pin the batches and copy without blocking.",
        "DataLoader(..., pin_memory=True)\nx = x.to(device, non_blocking=True)",
        ("device",),
    ),
    Pattern(
        "input-copy-not-overlapped",
        "gpu",
        "Input copies not overlapped with compute",
        "Pinned copies run on the compute stream, so the GPU computes nothing meanwhile.",
        "Memcpy HtoD (Pinned -> Device) on the compute stream with no kernel beside it",
        "Prefetch the next batch on a side stream while this one computes.",
        "with torch.cuda.stream(copy_stream):\n    next_x = next(batches).to(device, "
        "non_blocking=True)",
        ("device",),
    ),
    Pattern(
        "input-tiny-copies",
        "cpu",
        "Many small host-to-device copies",
        "Each small host-to-device copy costs a call that takes longer than its bytes.",
        "many Memcpy HtoD under 64 KB in a step",
        "Pack the values into one tensor, or create them on the GPU.",
        "packed = torch.stack(values).to(device, non_blocking=True)",
        ("device",),
    ),
    Pattern(
        "input-cpu-tensor-to-device",
        "cpu",
        "Tensors created on the CPU, then copied to the GPU",
        "A factory call fills a tensor on the host, and a copy moves it to the GPU.",
        "aten::zeros/ones/arange/randn/full, then aten::to -> aten::_to_copy -> aten::copy_",
        "Pass the device to the factory call.",
        "mask = torch.zeros(n, device=x.device)",
        ("device", "host"),
    ),
    Pattern(
        "sync-scalar-readback",
        "cpu",
        "Single values read back from the GPU",
        "Reading one value makes the host wait until the GPU has finished all queued work.",
        "aten::item -> aten::_local_scalar_dense, a copy of a few bytes, a stream synchronization",
        "Keep the value on the GPU and read it every N steps.",
        "total += loss.detach()\nif step % 100 == 0: log(total.item())",
        ("device", "host"),
    ),
    Pattern(
        "sync-tensor-readback",
        "cpu",
        "Tensors copied to the host inside the step",
        "Each copy to pageable host memory blocks the host until the GPU has computed the tensor.",
        "Memcpy DtoH (Device -> Pageable) under aten::to / aten::_to_copy",
        "Leave the work on the GPU, or copy asynchronously into pinned memory.",
        "buffer.copy_(x, non_blocking=True)  # buffer: pinned; read it a step later",
        ("device", "host"),
    ),
    Pattern(
        "sync-explicit",
        "cpu",
        "Explicit device or stream synchronization",
        "The program itself makes the host wait for the GPU.",
        "cudaDeviceSynchronize, cudaStreamSynchronize or hip* that no read-back explains",
        "Remove it; measure time with events.",
        "start.record(); work(); end.record()  # torch.cuda.Event(enable_timing=True)",
        ("device", "host"),
    ),
    Pattern(
        "sync-dynamic-shape",
        "cpu",
        "Data-dependent shapes force a synchronization",
        "The host must wait for the GPU to know how large the result is.",
        "aten::nonzero, masked_select, unique or a boolean index, then a copy to the host",
        "Use masks, torch.where and static shapes.",
        "loss = torch.where(mask, loss, 0).sum() / mask.sum()",
        ("device", "host"),
    ),
    Pattern(
        "sync-blocking-launch",
        "cpu",
        "Every kernel launch blocks",
        "Host and GPU take turns: no work is ever queued.",
        "a synchronization after each launch, or launches as long as their kernels",
        "Unset CUDA_LAUNCH_BLOCKING and leave anomaly mode.",
        "unset CUDA_LAUNCH_BLOCKING; torch.autograd.set_detect_anomaly(False)",
        ("device", "host", "links"),
    ),
    Pattern(
        "host-launch-bound",
        "cpu",
        "GPU starved by kernel-launch overhead",
        "Kernels are so short that each ends before the host has launched the next.",
        "kernels under 10 us, each launched after the one before it ended",
        "Compile the model or capture CUDA graphs, or give each launch more work.",
        'model = torch.compile(model, mode="reduce-overhead")',
        ("device", "host", "links"),
    ),
    Pattern(
        "host-python-overhead",
        "cpu",
        "Python overhead between launches",
        "Hooks, logging or bookkeeping keep the interpreter busy while no work is launched.",
        "Python time while the device idles, without a synchronization or a loader",
        "Hoist the work out of the step, do it every N steps, or compile.",
        "if step % 100 == 0: log(...)",
        ("host",),
    ),
    Pattern(
        "host-loop-indexing",
        "cpu",
        "Python loop over rows or elements",
        "The same few ops run once per row where one vectorised op would do.",
        "the same op group after aten::select or aten::slice, ten times or more",
        "Replace the loop by one vectorised op.",
        "out = f(x)  # instead of torch.stack([f(x[i]) for i in range(len(x))])",
        ("host",),
    ),
    Pattern(
        "host-gc-pause",
        "cpu",
        "Garbage collection pauses the step",
        "Python's garbage collector visits all objects while the step waits.",
        "a gap with almost no host events, or gc.collect",
        "Freeze the start-up objects and collect at a time of your choosing.",
        "gc.freeze(); gc.disable()\nif step % 1000 == 0: gc.collect()",
        ("host",),
    ),
    Pattern(
        "host-cpu-fallback",
        "cpu",
        "Op of a GPU model runs on the CPU",
        "Data goes to the host, is computed there, and comes back.",
        "a copy to the host, a long CPU op without a kernel, a copy back",
        "Move the op, or the buffer that keeps it on the CPU, to the GPU.",
        "self.register_buffer('table', table)  # moves with model.to(device)",
        ("device", "host"),
    ),
    Pattern(
        "memory-alloc-churn",
        "cpu",
        "Driver memory allocation in steady state",
        "cudaMalloc and cudaFree stop the GPU; the caching allocator should make them rare.",
        "cudaMalloc, cudaFree or hipMalloc inside steady steps; empty_cache",
        "Keep shapes static, allow expandable segments, remove empty_cache.",
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        ("device", "host"),
    ),
    Pattern(
        "memory-zero-grad-fill",
        "gpu",
        "Gradients filled with zeros every step",
        "One fill kernel per parameter, where setting gradients to None costs nothing.",
        "Optimizer.zero_grad over aten::zero_, one fill per parameter",
        "Set gradients to None.",
        "optimizer.zero_grad(set_to_none=True)",
        ("host",),
    ),
    Pattern(
        "memory-redundant-copy",
        "gpu",
        "Redundant tensor copies",
        "contiguous, clone and cat copy whole tensors that a view or a better layout would avoid.",
        "aten::contiguous -> clone -> copy_, CatArray kernels, Memcpy DtoD",
        "Use views, produce the right layout first, write into a preallocated tensor.",
        "torch.mm(a, b, out=buffer[:, :n])  # instead of torch.cat",
        ("host",),
    ),
    Pattern(
        "memory-layout-transform",
        "gpu",
        "Layout transforms around convolutions",
        "Each convolution converts between NCHW and NHWC and back.",
        "nchwToNhwc and nhwcToNchw kernels, or reorders",
        "Put model and input into channels_last once.",
        "model = model.to(memory_format=torch.channels_last)\n"
        "x = x.to(memory_format=torch.channels_last)",
        ("device",),
    ),
    Pattern(
        "memory-dtype-churn",
        "gpu",
        "Repeated casts of the same tensors",
        "Casts between fp32 and a half type read and write whole tensors every step.",
        "aten::_to_copy between bf16/fp16 and fp32 with the same shape, every step",
        "Cast once and keep the parameters in bf16.",
        "model = model.to(torch.bfloat16)",
        ("host",),
    ),
    Pattern(
        "compute-fp32-matmul",
        "gpu",
        "Matrix products in full fp32",
        "Matrix products run without tensor cores where TF32 or bf16 would do.",
        "sgemm or f32f32 simt kernels and no tensor-core kernel",
        "Allow TF32, or use autocast to bf16.",
        'torch.set_float32_matmul_precision("high")  # from Ampere on; before: autocast to fp16',
        ("device",),
    ),
    Pattern(
        "compute-misaligned-gemm",
        "gpu",
        "GEMM dimensions not divisible by 8",
        "Dimensions that are no multiple of 8 (16 in fp8) run on slower kernels.",
        "Input Dims not a multiple of 8; align1 or align2 kernels",
        "Pad the vocabulary or the hidden size.",
        "vocab = (vocab + 63) // 64 * 64",
        ("device", "shapes"),
    ),
    Pattern(
        "compute-underfilled",
        "gpu",
        "Kernels launch too few blocks to fill the GPU",
        "Kernels launch fewer blocks than the GPU has multiprocessors.",
        "grids below the number of multiprocessors, many tiny matrix products",
        "Use larger batches, bmm or grouped products, split-K.",
        "out = torch.bmm(a, b)  # instead of a loop of small mm",
        ("device",),
    ),
    Pattern(
        "compute-unfused-attention",
        "gpu",
        "Attention is not fused",
        "The score matrix is written and read several times.",
        "aten::bmm -> aten::softmax -> aten::bmm, or _scaled_dot_product_attention_math",
        "Use the fused attention op.",
        "F.scaled_dot_product_attention(q, k, v)",
        ("host",),
    ),
    Pattern(
        "compute-unfused-elementwise",
        "gpu",
        "Pointwise or norm kernels are not fused",
        "Each small op reads and writes the whole tensor again.",
        "three or more pointwise kernels in a row under one module",
        "Compile the module, or use a fused op.",
        "model.norm = torch.compile(model.norm)",
        ("host",),
    ),
    Pattern(
        "compute-single-tensor-optimizer",
        "gpu",
        "Optimizer is not fused or foreach",
        "Several small kernels per parameter instead of a few for all.",
        "Optimizer.step over _single_tensor_*; no _foreach_ or _fused_ op",
        "Use the fused or the foreach implementation.",
        "torch.optim.AdamW(params, lr=lr, fused=True)",
        ("host",),
    ),
    Pattern(
        "compute-conv-bias-batchnorm",
        "gpu",
        "Convolution bias before BatchNorm",
        "The convolution adds a bias; the normalization subtracts it again.",
        "aten::conv2d with a bias, then batch_norm",
        "Build the convolution without a bias.",
        "nn.Conv2d(cin, cout, 3, bias=False)",
        ("host", "shapes"),
    ),
    Pattern(
        "compile-graph-break",
        "cpu",
        "Graph breaks in the compiled step",
        "Between compiled regions the step falls back to eager ops and Python.",
        "Torch-Compiled Region: k/m more than once a step",
        "Remove the break; fullgraph=True shows where it is.",
        "model = torch.compile(model, fullgraph=True)",
        ("host",),
    ),
    Pattern(
        "compile-recompile",
        "cpu",
        "Recompilation in steady state",
        "New shapes or values make the compiler run again inside the step.",
        "m of k/m grows, dynamo or inductor spans, long idle",
        "Mark the dimension dynamic, or pad shapes to a few sizes.",
        "torch._dynamo.mark_dynamic(x, 0)",
        ("host",),
    ),
    Pattern(
        "comm-exposed",
        "gpu",
        "Exposed communication",
        "The GPU waits for the network, and no compute hides it.",
        "collective kernels with little compute beside them",
        "Bucket, prefetch and overlap the collectives with compute.",
        "DistributedDataParallel(model, bucket_cap_mb=100, gradient_as_bucket_view=True)",
        ("device", "comm"),
    ),
    Pattern(
        "comm-small-collectives",
        "gpu",
        "Many small collectives",
        "Each collective under 1 MB pays the full latency.",
        "In msg nelems x dtype under 1 MB, many times a step",
        "Coalesce them, or raise the bucket size.",
        "dist.all_reduce(torch.cat([g.flatten() for g in grads]))",
        ("host", "comm"),
    ),
    Pattern(
        "comm-straggler",
        "gpu",
        "Ranks wait for a straggler",
        "All ranks of a collective wait until the slowest has arrived.",
        "same group and sequence: the late rank has the shortest kernel",
        "Balance the work, or fix the late rank's input.",
        "DistributedSampler(dataset, drop_last=True)",
        ("device", "comm", "ranks"),
    ),
    Pattern(
        "comm-unused-parameters",
        "cpu",
        "DDP searches for unused parameters every step",
        "The search traverses the autograd graph and delays the reduction.",
        "reducer::search_unused_parameters in each step",
        "Turn it off, or declare the graph static.",
        "DistributedDataParallel(model, find_unused_parameters=False, static_graph=True)",
        ("host", "comm"),
    ),
    Pattern(
        "comm-missing-no-sync",
        "gpu",
        "Gradients reduced on every micro-step",
        "With gradient accumulation only the last backward has to reduce.",
        "two or more rounds of all-reduce per optimizer step",
        "Wrap all but the last micro-step in no_sync.",
        "with model.no_sync(): loss.backward()",
        ("host", "comm"),
    ),
    Pattern(
        "infer-autograd",
        "cpu",
        "Inference records the autograd graph",
        "A graph is recorded, or layers are in training mode, in a job that never runs backward.",
        "Sequence numbers without any backward; dropout or BatchNorm training kernels",
        "Run under inference_mode and call eval().",
        "model.eval()\nwith torch.inference_mode(): y = model(x)",
        ("host",),
    ),
    Pattern(
        "infer-kv-cat",
        "gpu",
        "torch.cat appending to a growing tensor",
        "Each append copies all that was there before: the KV cache of every layer, each token.",
        "aten::cat whose dimension grows by one, per layer and token",
        "Use a static cache.",
        'model.generation_config.cache_implementation = "static"',
        ("host", "shapes"),
    ),
)

BY_ID = {pattern.id: pattern for pattern in PATTERNS}
IDS = tuple(BY_ID)
CLASSES = (*IDS, NONE)  # the classes of every model, in this order
