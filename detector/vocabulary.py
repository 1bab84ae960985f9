"""What names in a trace mean, over vendors, generations and PyTorch versions.

The one place where event names are matched: every other module asks ``Activity`` for the rows of a
kind. The names come from real traces (V100 to B200, MI210 to MI300X, 2021 to 2026).
"""

from __future__ import annotations

import re
from typing import Final, Literal

# Kernel kinds, matched against the name in lower case (a search that ignores case takes five times
# as long). The first match counts, so the specific kinds come before the general ones.
KERNEL_KINDS: Final[dict[str, re.Pattern[str]]] = {
    kind: re.compile(pattern)
    for kind, pattern in {
        "comm": r"nccl|rccl|hccl::|oneccl|msccl|cross_device_reduce|multimem_all"
        r"|all_?reduce_(one|two)_?shot",
        "attention": r"flash|fmha|mha_|attention|attn|unified_decode|paged",
        "layout": r"nchwtonhwc|nhwctonchw|batched_transpose|subtensoropwithtransform"
        r"|transpose_readwrite|(nchw|nhwc)_?(to|2)_?n",
        "cat": r"catarray",
        "optimizer": r"multi_tensor_apply|fusedadam|fused_adam|fusedoptimizer",
        "fill": r"fillfunctor|(?<!masked_)fill_kernel|__amd_rocclr_fill",
        "copy": r"copy_kernel|copy_device|direct_copy|bfloat16_copy|float16_copy|rocclr_copy",
        "gemm": r"^(?!.*(embedding|conv|[fdw](prop|grad))).*(gemm|gemv|cutlass|cijk|nvjet|wgmma"
        r"|splitkreduce|_mm_|matmul|xmma)",
        "norm": r"batch_?norm|cudnn::(\w+::)*bn_|layer_?norm|rms_?norm|group_?norm"
        r"|rowwisemoments",
        "conv": r"conv|implicit|wgrad|dgrad|fprop|winograd|scudnn|cudnn.*nchw|miopen|igemm",
        "softmax": r"softmax",
        "reduce": r"reduce_kernel|reduceop|reduceby|devicereduce|devicescan|triton_(red|per)",
        "pointwise": r"elementwise|pointwise|triton_poi|functor|dropout|_silu|gelu|activation"
        r"|rotary|subtensorop|scalepackedtensor",
        "index": r"index|gather|scatter|embedding|sort|topk|radix",
    }.items()
}

# Full-precision matrix kernels, and those that use tensor (matrix) cores.
FP32_MATRIX: Final = re.compile(
    r"(?i)sgemm|scudnn|^(?!.*tf32).*f32f32|simt_s|ffma|_simt_|Cijk_.*_SB_(?!.*BF16)|gemmSN"
    r"|gemv2T.*float|(dgrad|wgrad|engine|winograd)\w*<float"
)
TENSOR_CORE: Final = re.compile(
    r"(?i)tensorop|xmma.*(f16|bf16|tf32)|s\d{3,5}gemm|(?<![a-z])h\d{3,5}|wgmma|nvjet|_tf32|bf16gemm"
    r"|[hs]884|1688|16816|cijk_.*_(HB|BB|HHS|BBS)|gmma|tcgen|mfma|bf16xbf16|mxfp4"
)

# Kernels of libraries for compute capability 7.0 and newer: nearly all such devices have tensor
# cores.
FROM_VOLTA: Final = re.compile(
    r"(?i)volta_|turing_|ampere_|hopper_|blackwell_|nvjet|sm_?(7\d|8\d|9\d|1[0-2]\d)_|cutlass_(7[05]|[89]\d)_"
)

# Matrix kernels that load one or two elements at a time: sides that are no multiple of 8.
MISALIGNED: Final = re.compile(r"(?i)align[12](\D|$)")

# Runtime and driver calls.
CALLS: Final[dict[str, re.Pattern[str]]] = {
    kind: re.compile(pattern)
    for kind, pattern in {
        "launch": r"Launch(Cooperative)?(Kernel|Host)|GraphLaunch|LaunchGrid|^urEnqueueKernel",
        "graph": r"GraphLaunch",
        "copy": r"(cuda|hip|cu)Memcpy",
        "sync": r"(Stream|Device|Event|Ctx|Context)Synchronize$|^(cuda|hip)Memcpy$"
        r"|^hipMemcpyWithStream$|^urQueueFinish|^urEventWait",
        "alloc": r"^(cuda|hip)(Malloc|Free|ExtMalloc|Host(Alloc|Malloc|Register|Free|Unregister))"
        r"|^cuMem(Alloc|Free|Create|Release|Map|Unmap|AddressReserve)",
        "capture": r"^(cuda|hip)(StreamBeginCapture|StreamEndCapture|GraphInstantiate)",
    }.items()
}

FREES: Final = re.compile(r"^(cuda|hip)Free|^cuMem(Free|Release|Unmap)")
EVENT_SYNC: Final = re.compile(r"^(cuda|hip)EventSynchronize$")
RECORDS_EVENT: Final = re.compile(r"^(cuda|hip)EventRecord(WithFlags)?$")
SYNCHRONIZES: Final = re.compile(r"torch/(cuda|xpu|accelerator)/\w+\.py\(\d+\): synchronize$")
DEVICE_SYNC: Final = re.compile(r"(Device|Ctx|Context)Synchronize$")

# Collectives that reduce, by "Collective name", kernel or annotation of a CPU backend.
REDUCES: Final = re.compile(r"(?i)reduce")

# Collectives that exchange different data between any two ranks, and sends from rank to rank.
EXCHANGES: Final = re.compile(r"(?i)all_?to_?all|send_?recv|^(nccl:)?(send|recv)")

# The dispatcher's ops.
DISPATCHED: Final = re.compile(r"^\w+::")

# Host-side events (cpu_op, user_annotation, python_function).
HOST: Final[dict[str, re.Pattern[str]]] = {
    kind: re.compile(pattern)
    for kind, pattern in {
        # ops of any library; the autograd engine's and the collectives' are wrappers
        "compute": r"^(?!autograd::|c10d::|profiler::|torch::)\w+::",
        "loader": r"^enumerate\(DataLoader\)|DataLoaderIter\.__next__$",
        "loader_sync": r"_SingleProcessDataLoaderIter",
        "loader_workers": r"_MultiProcessingDataLoaderIter",
        "optimizer_step": r"^Optimizer\.step#",
        "zero_grad": r"^Optimizer\.zero_grad#",
        "scalar": r"^aten::(item|_local_scalar_dense|is_nonzero)$",
        "dynamic_shape": r"^aten::(nonzero|nonzero_numpy|masked_select|unique\w*|_unique\w*"
        r"|unique_consecutive|repeat_interleave|bincount|argwhere|where_index)$",
        "factory": r"^aten::(zeros|ones|arange|randn|rand|randint|full|eye|linspace|zeros_like"
        r"|ones_like|randperm|scalar_tensor|tensor)$",
        "to": r"^aten::(to|_to_copy)$",
        "cast": r"^aten::_to_copy$",
        "copy_op": r"^aten::(copy_|clone|contiguous|cat|_cat|stack|repeat)$",
        "cat": r"^aten::(cat|_cat)$",
        "zero": r"^aten::(zero_|fill_|_foreach_zero_)$",
        "select": r"^aten::(select|slice|narrow|unbind|__getitem__)$",
        "matmul": r"^aten::(mm|bmm|addmm|baddbmm|_scaled_mm|addmv|mv|dot)$",
        "bmm": r"^aten::(bmm|baddbmm)$",
        "conv": r"^aten::(_?convolution|conv[123]d|cudnn_convolution|mkldnn_convolution"
        r"|miopen_convolution|_convolution_mode|_slow_conv2d_forward|thnn_conv2d)$",
        "conv_backward": r"^aten::(\w*convolution_backward)$",
        "add": r"^aten::add_?$",
        "conv_call": r"^aten::conv[123]d$",
        "batch_norm_call": r"^aten::batch_norm$",
        "softmax": r"^aten::(_softmax|softmax|_safe_softmax)$",
        "math_attention": r"_scaled_dot_product_attention_math",
        "fused_attention": r"_scaled_dot_product_(flash|efficient|cudnn|fused)|flash_attn",
        "batch_norm": r"^aten::(batch_norm|_batch_norm\w*|native_batch_norm|cudnn_batch_norm"
        r"|miopen_batch_norm)$",
        "dropout": r"^aten::(dropout|native_dropout|_fused_dropout|bernoulli_)$",
        "train_dropout": r"^aten::(native_dropout|_fused_dropout|bernoulli_)$",
        "pointwise": r"^aten::(add|sub|mul|div|pow|sqrt|rsqrt|exp|log|tanh|sigmoid|relu|gelu|silu"
        r"|neg|clamp\w*|addcmul|addcdiv|lerp|mean|abs|square|rsub|reciprocal|erf|sin|cos|where"
        r"|threshold_backward|masked_fill|maximum|minimum|leaky_relu|hardtanh|sum)_?$",
        "foreach": r"^aten::_(foreach|fused)_|_multi_tensor",
        "single_tensor": r"_single_tensor_|^aten::(addcdiv_|addcmul_|lerp_)$",
        "backward": r"^autograd::engine::|Backward\d*$",
        "collective_op": r"^(c10d::|record_param_comms|nccl:|gloo:|mpi:|ucc:|xccl:)",
        "collective_run": r"^(gloo|mpi|ucc):",
        "unused_parameters": r"search_unused_parameters",
        "compiled_region": r"^Torch-Compiled Region|^## Call CompiledFxGraph|^CompiledFunction",
        "compile": r"(?i)dynamo_timed|compile_inner|compile_fx|call_user_compiler|convert_frame"
        r"|_compile\.<locals>|aot_dispatch|aot_autograd|backend_compile|OutputGraph|bytecode_tracing"
        r"|symbolic_convert|compile_time_autotune|async_compile",
        "empty_cache": r"empty_cache",
        "gc": r"gc\.collect|built-in function collect|built-in method collect|^Python GC"
        r"|(?i:garbage collect)",
        "preprocess": r"(?i)(^|/)(PIL|cv2|skimage|albumentations|imageio|scipy"
        r"|torchvision/transforms)"
        r"/|built-in method numpy|numpy/.*\.py\(",
    }.items()
}

STEP_MARKER: Final = re.compile(r"^ProfilerStep#?\d*$")
# Present only while it compiles; the other names of "compile" occur in run-time wrappers, too.
COMPILES: Final = re.compile(
    r"compile_inner|call_user_compiler|OutputGraph|symbolic_convert|dynamo_timed"
    r"|compile_time_autotune|async_compile|bytecode_tracing"
)
# Image, audio, video, text and array work on the host, where nothing is launched inside.
PREPROCESSES: Final = re.compile(
    r"(?i)(^|/)(PIL|cv2|skimage|albumentations|imageio|scipy|librosa|soundfile|decord|av|pandas"
    r"|tokenizers|sentencepiece|tiktoken)/|torchvision/transforms|torchaudio/|(^|[/ _])numpy[/.]"
    r"|numpy\.|\bav\.(video|audio|container)|(image|video|audio|feature|text)_"
    r"(transforms?|process\w*|extraction\w*|utils)(_\w+)?\.py\("
    r"|tokenization_\w+\.py\(|\): _?(pre|post)process(_\w+)?$"
)
# Ops that only move a tensor, as a program calls them and as they call each other.
MOVES: Final = re.compile(r"^aten::(to|_to_copy|copy_|cuda|_pin_memory|pin_memory)$")
COPIES_ONLY: Final = re.compile(
    r"^aten::(copy_|clone|contiguous|cat|_cat|stack|hstack|vstack|concat|repeat|reshape"
    r"|repeat_interleave|tile|narrow_copy)$"
)
JOINS: Final = re.compile(r"^aten::(cat|_cat|concat|stack|hstack|vstack)$")
# What makes parts of a tensor, and copies of them.
CUTS: Final = re.compile(
    r"^aten::(chunk|split|split_with_sizes|tensor_split|unbind|slice|narrow|select|contiguous|clone)$"
)
COPIES: Final = re.compile(r"^aten::copy_$")
CONTIGUOUS: Final = re.compile(r"^aten::contiguous$")
# Activations, and their backward: the name of the forward with a suffix.
_ACTIVATIONS: Final = (
    "aten::(gelu|silu|elu|mish|relu|leaky_relu|hardswish|hardtanh|softplus|sigmoid|tanh)"
)
ACTIVATION: Final = re.compile(f"^{_ACTIVATIONS}$")
ACTIVATION_BACKWARD: Final = re.compile(f"^{_ACTIVATIONS}_backward$")
# Ops that copy as part of their own work: torch's own, and nodes of the backward pass.
COPIES_FOR_ITSELF: Final = re.compile(r"^(aten::|torch(::|\.)|c10d::|\w+Backward\d+$)")
DDP_PASS: Final = re.compile(r"^DistributedDataParallel\.forward$")
# Layers of a network, in torch's own ops and in those of libraries.
LAYER: Final = re.compile(
    r"::(linear|addmm|conv(olution|[123]d)|embedding|lstm|gru|rnn_\w+)$|(layer|batch|group|rms)_?norm"
    r"|attention|attn"
)
# A gradient added to its parameter's; what DDP copies of a reduced bucket into a gradient.
ACCUMULATES: Final = re.compile(r"^torch::autograd::AccumulateGrad$")
OUT_OF_BUCKET: Final = re.compile(r"^torch\.distributed\.ddp\.reducer::copy_bucket_to_grad$")
VIEW: Final = re.compile(r"^aten::as_strided$")
READS_BACK: Final = re.compile(
    r"^aten::(item|_local_scalar_dense|is_nonzero|equal|allclose|to|_to_copy|copy_|cpu|tolist"
    r"|__bool__)$"
)
# What Tensor.numpy() calls last, and what torch.tensor(array) calls on what it has made.
ARRAY_OUT: Final = re.compile(r"^aten::resolve_neg$")
ARRAY_IN: Final = re.compile(r"^aten::lift(_fresh)?$")
# Kernels that a compiler has fused.
FUSED_KERNEL: Final = re.compile(r"^triton_|fused")
FUSED_BY_COMPILER: Final = re.compile(r"^triton_")
# How a job is spread over devices: torch's own ranges, ops and frames, and those of libraries.
PARALLELISM: Final[dict[Literal["ddp", "fsdp", "tensor"], re.Pattern[str]]] = {
    "ddp": re.compile(r"^DistributedDataParallel\.|distributed[./:]+ddp|c10d::[Rr]educer"),
    "fsdp": re.compile(
        r"^FSDP(::|\d*[._])|FullyShardedDataParallel|distributed/(_composable/)?fsdp/"
    ),
    "tensor": re.compile(
        r"tensor_model_parallel_all_|(Column|Row)Parallel(Linear)?(_\d+)?$|distributed/tensor/parallel"
    ),
}
SCALES_GRADIENTS: Final = re.compile(r"_amp_(foreach_)?non_finite_check_and_unscale_")
FRAMEWORK_FRAME: Final = re.compile(r"(?:^|/)(transformers|vllm|sglang|diffusers|lightning)/")
# A module's own frame, with the number of its instance: "nn.Module: Linear_3".
MODULE_FRAME: Final = re.compile(r"(?s)^nn\.Module: (.+)$")
# The main thread's wait for the backward engine.
WAITS_FOR_BACKWARD: Final = re.compile(r"run_backward")
# A backward node of a function written in Python, or of compiled code; torch numbers its own.
CUSTOM_NODE: Final = re.compile(r"Backward$")
# Calls in which a thread does nothing: it sleeps, or waits for another thread or process.
RESTS: Final = re.compile(
    r"^<built-in (function (sleep|select)|method (acquire of _(thread|multiprocessing)|poll of))"
)
# A tensor that another process has sent is put into the memory that both share.
RECEIVES: Final = re.compile(r"^aten::set_$")
# A thread's sleep until another one of its process wakes it: a condition, or the lock below it.
SLEEPS: Final = re.compile(r"^threading\.py\(\d+\): wait$|^<built-in method acquire of _thread\.")
# Ranges that torch itself annotates; any other annotation is the program's own.
TORCH_ANNOTATION: Final = re.compile(
    r"^(Optimizer\.|DistributedDataParallel|FSDP|FullyShardedDataParallel|torch\.|nccl:|gloo:|mpi:"
    r"|ucc:|c10d::|ProfilerStep|PyTorch Profiler|enumerate\(DataLoader\)|## Call|Torch-Compiled"
    r"|CompiledFunction|DataParallel|TorchDynamo|Pregraph|record_param_comms)"
)
# Those among them that hold the program's own forward pass.
WRAPS_MODEL: Final = re.compile(
    r"^(Distributed|FullySharded)?DataParallel\.forward|^FSDP::?\.?forward"
)

# The forward pass's calls of compiled code, in new and old versions: the first that a trace has.
COMPILED_FRAME: Final = re.compile(r"^Torch-Compiled Region: (\d+)/")
EMPTY: Final = re.compile(r"^aten::empty$")

# Host-to-device, device-to-host, device-to-device, peer.
COPY_DIRECTIONS: Final[dict[str, re.Pattern[str]]] = {
    "h2d": re.compile(r"HtoD|Host -> Device|HostToDevice"),
    "d2h": re.compile(r"DtoH|Device -> Host|DeviceToHost"),
    "d2d": re.compile(r"DtoD|Device -> Device|PtoP|DeviceToDevice"),
}
PAGEABLE: Final = re.compile(r"Pageable")

# Frames of libraries: a reader of the report looks for their own file instead.
# Torch's tracer names files below an entry of sys.path without that entry.
_LIBRARIES: Final = (
    "torch|torchvision|torchaudio|transformers|accelerate|diffusers|datasets|deepspeed|lightning"
    "|pytorch_lightning|numpy|scipy|pandas|PIL|cv2|skimage|sklearn|albumentations|tqdm|triton"
    "|tokenizers|einops|multiprocess|_pytest|pytest"
)
# Of the standard library only what runs in training steps: a user's script may be profile.py.
_STANDARD: Final = (
    "asyncio|ast|codecs|collections|concurrent|contextlib|copy|dataclasses|encodings|enum|functools"
    "|gzip|http|importlib|inspect|json|logging|multiprocessing|os|pathlib|pickle|queue|random|runpy"
    "|selectors|shutil|socket|ssl|subprocess|tempfile|threading|traceback|typing|urllib|warnings"
    "|weakref|zipfile"
)
LIBRARY_FRAME: Final = re.compile(
    rf"^<|site-packages|dist-packages|/lib/python3|/torch/|^nn\.Module|^(?:{_LIBRARIES})/"
    rf"|^(?:{_STANDARD})(?:/|\.py\()"
)
# Of these the standard library's, whose time is its caller's.
STANDARD_FRAME: Final = re.compile(
    rf"/lib/python3[^/]*/(?!(?:site|dist)-packages/)|^(?:{_STANDARD})(?:/|\.py\()"
)
# Frames that a user cannot change, although their path is no library's: code that a compiler has
# written (its files are named by a hash), wrappers of kernel libraries, and the hooks that torch
# calls in every op.
INTERNAL_FRAME: Final = re.compile(
    r"(?:^|/)(?:c[a-z2-7]{40,}\.py|(?:torchinductor\w*|flashinfer|aiter|flash_attn|xformers"
    r"|bitsandbytes|apex|tensorrt_llm)/)|\): __torch_(?:function|dispatch)__$"
)
PYTHON_FRAME: Final = re.compile(r"^(?P<file>.+?)\((?P<line>\d+)\): (?P<function>.+)$")
