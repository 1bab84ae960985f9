"""When an advice fits: conditions on the device, the program and its libraries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from detector.patterns.circumstances import Circumstances


@dataclass(frozen=True)
class Condition:
    """``words`` end the sentence "this advice holds ...", as the pages of the patterns show it."""

    words: str
    holds: Callable[[Circumstances], bool]


# -- the device ------------------------------------------------------------------------------------

on_cpu = Condition("on a CPU", lambda c: c.vendor == "cpu")
on_rocm = Condition("on ROCm", lambda c: c.vendor == "rocm")
has_tf32 = Condition(
    "on a GPU with TF32 (Ampere and later)", lambda c: c.vendor == "cuda" and c.generation >= 8
)
has_bf16 = Condition(
    "on a GPU with matrix units for bf16 (Ampere and later, or ROCm)",
    lambda c: has_tf32.holds(c) or on_rocm.holds(c),
)
has_fp16_only = Condition(
    "on a GPU whose tensor cores know fp16 alone (V100, T4, RTX 20)",
    lambda c: c.vendor == "cuda" and 7 <= c.generation < 8,
)
lacks_compiler = Condition(
    "on a GPU that torch.compile does not support (before Volta)",
    lambda c: c.vendor == "cuda" and 0 < c.generation < 7,
)

# -- the program -----------------------------------------------------------------------------------

in_training = Condition("in training", lambda c: c.use == "training")
in_inference = Condition("in inference", lambda c: c.use == "inference")
has_loader = Condition("with a DataLoader", lambda c: c.loader)
is_compiled = Condition("where the model is compiled", lambda c: c.compiled)
uses_graphs = Condition("where graphs are launched already", lambda c: c.graphs)
scales_gradients = Condition("with a GradScaler", lambda c: c.scales_gradients)
under_ddp = Condition("under DDP", lambda c: "ddp" in c.parallelism)
under_fsdp = Condition("under FSDP", lambda c: "fsdp" in c.parallelism)
under_tensor_parallelism = Condition(
    "under tensor parallelism", lambda c: "tensor" in c.parallelism
)
in_convolutions = Condition(
    "where most of it is convolutions (cuDNN)", lambda c: c.fp32_in == "convolutions"
)
falls_back_to_math = Condition(
    "where the attention op falls back to plain math", lambda c: c.attention_math
)
drops_out = Condition("where dropout runs", lambda c: c.dropout)
empties_cache = Condition("where empty_cache is called", lambda c: c.empties_cache)
caches_nothing = Condition(
    "where the driver allocates nearly every tensor", lambda c: c.caches_nothing
)
is_exchange = Condition("where most of it is all-to-all or send and receive", lambda c: c.exchanges)

# -- libraries -------------------------------------------------------------------------------------

in_transformers = Condition(
    "with Hugging Face Transformers",
    lambda c: "transformers" in c.frameworks and not c.frameworks & {"vllm", "sglang"},
)
in_vllm = Condition("with vLLM", lambda c: "vllm" in c.frameworks)
in_sglang = Condition("with SGLang", lambda c: "sglang" in c.frameworks)

# -- the optimizer ---------------------------------------------------------------------------------

# Optimizers of torch.optim. The fused ones for a device, from PyTorch 2.3 on, and for the CPU, from
# 2.4 on; the fused Adam and AdamW for CUDA are older.
FUSED_ON_DEVICE: Final = frozenset({"Adam", "AdamW", "SGD"})
FUSED_ON_CPU: Final = frozenset({"Adagrad", "Adam", "AdamW", "SGD"})
FUSED_FIRST: Final = frozenset({"Adam", "AdamW"})
FOREACH: Final = frozenset(
    "ASGD Adadelta Adagrad Adam AdamW Adamax NAdam RAdam RMSprop Rprop SGD".split()
)


def _all_in(c: Circumstances, known: frozenset[str]) -> bool:
    return bool(c.optimizers) and known.issuperset(c.optimizers)


def _has_fused(c: Circumstances) -> bool:
    known = FUSED_ON_CPU if c.vendor == "cpu" else FUSED_ON_DEVICE
    if c.torch is None:
        return c.vendor in ("cpu", "cuda", "rocm") and _all_in(c, known)
    if c.vendor == "cpu":
        return c.torch >= (2, 4) and _all_in(c, known)
    first = FUSED_FIRST if c.torch < (2, 3) else known
    return c.vendor in ("cuda", "rocm") and c.torch >= (2, 0) and _all_in(c, first)


optimizer_has_fused = Condition(
    "where the optimizer has a fused implementation for the device", _has_fused
)
optimizer_has_foreach = Condition(
    "where the optimizer has a foreach implementation for the GPU",
    lambda c: c.vendor in ("cuda", "rocm", "xpu") and _all_in(c, FOREACH),
)
