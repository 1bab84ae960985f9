"""Circumstances: what a trace tells of device and program, and which advice fits them."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import pytest

from detector.patterns import BY_ID, PATTERNS, Circumstances, Pattern, circumstances_of, conditions
from detector.signals import signals_of
from detector.trace import Trace
from tests.traces import Event, annotation, call, kernel, launch, op, python, trace_of

WORK = (op("aten::mm", 0, 10), launch(2, 3, corr=1), kernel("gemm", 6, 50, corr=1))
SGEMM = kernel("volta_sgemm_128x64_nn", 60, 50, corr=1)


def circumstances(*events: Event, **rest: object) -> Circumstances:
    return circumstances_of(signals_of(trace_of(*events, **rest)))  # type: ignore[arg-type]


def capability(major: int, minor: int = 0) -> dict[str, object]:
    return {"deviceProperties": [{"id": 0, "computeMajor": major, "computeMinor": minor}]}


# -- what a trace tells ----------------------------------------------------------------------------


def test_an_empty_trace_tells_nothing() -> None:
    assert circumstances() == Circumstances(vendor="cpu")


def test_a_device_and_its_generation() -> None:
    found = circumstances(*WORK, metadata=capability(7, 5))
    assert (found.vendor, found.generation) == ("cuda", 7.5)
    assert conditions.has_fp16_only.holds(found)
    assert not conditions.has_tf32.holds(found)


def test_a_rocm_device_has_no_compute_capability() -> None:
    events = (op("aten::mm", 0, 10), call("hipLaunchKernel", 2, 3, corr=1), WORK[2])
    found = circumstances(*events, metadata=capability(9, 4))
    assert (found.vendor, found.generation) == ("rocm", 0.0)
    assert conditions.has_bf16.holds(found)
    assert not conditions.has_tf32.holds(found)


@pytest.mark.parametrize(
    ("event", "use"),
    [
        (annotation("Optimizer.step#SGD.step", 100, 10), "training"),
        (op("autograd::engine::evaluate_function: AddBackward0", 100, 10), "training"),
        (op("aten::relu", 100, 10), "inference"),
    ],
)
def test_training_or_inference(event: Event, use: str) -> None:
    assert circumstances(*WORK, event).use == use


def test_device_work_alone_does_not_say_whether_it_trains() -> None:
    assert circumstances(WORK[2]).use is None


@pytest.mark.parametrize(
    ("inside", "style"),
    [("aten::add_", "single"), ("aten::_foreach_add_", "foreach"), ("aten::_fused_adam_", "fused")],
)
def test_the_optimizer_and_its_style(inside: str, style: str) -> None:
    step = annotation("Optimizer.step#Adam.step", 100, 50)
    found = circumstances(*WORK, step, op(inside, 110, 10))
    assert (found.optimizers, found.style) == (("Adam",), style)


def test_a_name_that_is_no_class_is_no_optimizer() -> None:
    step = annotation("Optimizer.step#Adam(); import os.step", 100, 50)
    assert circumstances(*WORK, step).optimizers == ()


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (annotation("DistributedDataParallel.forward", 0, 100), "ddp"),
        (op("torch.distributed.ddp.reducer::copy_bucket_to_view", 100, 5), "ddp"),
        (annotation("FSDP::all_gather", 100, 5), "fsdp"),
        (annotation("FullyShardedDataParallel.forward", 0, 100), "fsdp"),
        (python("nn.Module: RowParallelLinear_3", 0, 100), "tensor"),
    ],
)
def test_parallelism(event: Event, kind: str) -> None:
    assert circumstances(*WORK, event).parallelism == {kind}


def test_no_parallelism_in_a_plain_program() -> None:
    names = ("nn.Module: Linear_0", "train.py(3): forward", "nn.Module: ParallelBranch_0")
    assert (
        circumstances(*WORK, *(python(name, 0, 100) for name in names)).parallelism == frozenset()
    )


def test_loader_compilation_graphs_and_libraries() -> None:
    found = circumstances(
        *WORK,
        annotation("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 100, 10),
        op("Torch-Compiled Region: 0/0", 120, 10),
        call("cudaGraphLaunch", 140, 5),
        op("aten::_amp_foreach_non_finite_check_and_unscale_", 150, 5),
        python("/site-packages/transformers/models/bert/modeling_bert.py(10): forward", 0, 90),
    )
    assert found.loader
    assert found.compiled
    assert found.graphs
    assert found.scales_gradients
    assert found.frameworks == {"transformers"}


@pytest.mark.parametrize(("freed", "off"), [(60, True), (5, False)])
def test_a_driver_that_frees_every_tensor_has_no_cache_above_it(freed: int, off: bool) -> None:
    made = [op("aten::empty", 200 + 20 * i, 10) for i in range(60)]
    frees = [call("hipFree", 212 + 20 * i, 5) for i in range(freed)]
    found = circumstances(*WORK, *made, *frees)
    assert found.caches_nothing == off
    said = BY_ID["memory-alloc-churn"].advise(found).text
    assert ("caching allocator on" in said) == off


def test_where_fp32_work_goes() -> None:
    product = circumstances(WORK[0], WORK[1], SGEMM, metadata=capability(7))
    conv = replace(SGEMM, name="implicit_convolve_sgemm<float, float>", dur=900.0)
    both = circumstances(WORK[0], WORK[1], conv, metadata=capability(7))
    assert (product.fp32_in, both.fp32_in) == ("products", "convolutions")


@pytest.mark.parametrize(
    ("metadata", "version"),
    [
        ({"torch_version": "2.4.1+cu121"}, (2, 4)),
        ({"torch_version": "nightly"}, None),
        ({"metadata": {"pip": ["open_clip_torch==3.0.0", "torch==2.6.0"]}}, (2, 6)),
        ({}, None),
    ],
)
def test_the_version_where_the_metadata_has_it(
    metadata: dict[str, object], version: tuple[int, int] | None
) -> None:
    assert circumstances(*WORK, metadata=metadata).torch == version


# -- which advice fits -----------------------------------------------------------------------------

V100 = Circumstances(vendor="cuda", generation=7.0)
A100 = Circumstances(vendor="cuda", generation=8.0)
MI300 = Circumstances(vendor="rocm")
CPU = Circumstances(vendor="cpu")
USES = ("training", "inference", None)


def given(pattern: Pattern, *devices: Circumstances) -> list[str]:
    """Text and code of a pattern's advice on these devices, in programs of many kinds."""
    programs = itertools.product(
        devices,
        USES,
        (True, False),
        (True, False),
        (frozenset(), frozenset({"ddp"}), frozenset({"fsdp"}), frozenset({"tensor"})),
        ((), ("AdamW",), ("Adagrad",), ("Shampoo",)),
        (None, "convolutions"),
    )
    found = []
    for device, use, loader, compiled, parallelism, optimizers, fp32_in in programs:
        program = replace(
            device,
            use=use,
            loader=loader,
            compiled=compiled,
            parallelism=parallelism,
            optimizers=optimizers,
            fp32_in=fp32_in,
        )
        advice = pattern.advise(program)
        found.append(f"{advice.text}\n{advice.code}")
    return found


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda p: p.id)
def test_the_last_advice_fits_always_and_every_advice_somewhere(pattern: Pattern) -> None:
    assert pattern.advice[-1].when == ()
    assert all(advice.when for advice in pattern.advice[:-1])
    assert all(advice.text.endswith(".") and advice.code for advice in pattern.advice)


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda p: p.id)
def test_no_words_of_ampere_on_a_v100(pattern: Pattern) -> None:
    for text in given(pattern, V100):
        assert not re.search(r"(?i)tf32|float32_matmul|dtype=torch\.bfloat16|\.bfloat16\(", text)


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda p: p.id)
def test_no_words_of_cuda_on_rocm_but_those_of_its_own_api(pattern: Pattern) -> None:
    for text in given(pattern, MI300):
        own = re.sub(r'torch\.cuda\b|"cuda"|--disable-cuda-graph|--cuda-graph-max-bs', "", text)
        assert not re.search(r"(?i)cuda|cudnn|nvidia|tf32|expandable_segments", own)


@pytest.mark.parametrize(
    "pattern", [p for p in PATTERNS if "device" not in p.needs], ids=lambda p: p.id
)
def test_no_words_of_a_gpu_on_a_cpu(pattern: Pattern) -> None:
    for text in given(pattern, CPU):
        assert not re.search(r"(?i)\bgpu|cuda|tf32|reduce-overhead|pin_memory|tensor core", text)


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda p: p.id)
def test_no_loader_in_a_service_without_one(pattern: Pattern) -> None:
    if pattern.signal.startswith("loader"):
        return  # it needs a loader to be seen
    service = replace(A100, use="inference")
    advice = pattern.advise(service)
    assert "DataLoader" not in f"{advice.text}{advice.code}"
    assert "optimizer" not in f"{advice.text}{advice.code}" or pattern.signal in (
        "zero-grad",
        "optimizer-walk",
    )


@pytest.mark.parametrize(
    ("vendor", "optimizer", "torch", "option"),
    [
        ("cuda", "AdamW", None, "torch.optim.AdamW(params, lr=lr, fused=True)"),
        ("cuda", "SGD", (2, 1), "torch.optim.SGD(params, lr=lr, foreach=True)"),
        ("cuda", "Adagrad", None, "torch.optim.Adagrad(params, lr=lr, foreach=True)"),
        ("cuda", "Shampoo", None, "torch.compile"),
        ("cpu", "Adagrad", None, "torch.optim.Adagrad(params, lr=lr, fused=True)"),
        ("cpu", "Adam", (2, 3), "torch.compile"),
        ("cpu", "RMSprop", None, "torch.compile"),
        ("rocm", "RMSprop", None, "torch.optim.RMSprop(params, lr=lr, foreach=True)"),
    ],
)
def test_fused_only_for_optimizers_that_have_it(
    vendor: str, optimizer: str, torch: tuple[int, int] | None, option: str
) -> None:
    here = Circumstances(vendor=vendor, optimizers=(optimizer,), torch=torch)  # type: ignore[arg-type]
    assert option in BY_ID["compute-single-tensor-optimizer"].advise(here).code


def test_fp32_advice_by_device_and_library() -> None:
    advise = BY_ID["compute-fp32-matmul"].advise
    assert "set_float32_matmul_precision" in advise(A100).code
    assert "cudnn.allow_tf32" in advise(replace(A100, fp32_in="convolutions")).code
    assert "GradScaler" in advise(replace(V100, use="training")).code
    assert "half()" in advise(replace(V100, use="inference")).code
    assert "bfloat16" in advise(MI300).code


def test_what_torch_compile_does_not_support_is_not_compiled() -> None:
    pascal = Circumstances(vendor="cuda", generation=6.0, use="training")
    for pattern in ("host-launch-bound", "compute-unfused-elementwise"):
        advice = BY_ID[pattern].advise(pascal)
        assert "does not support" in advice.text
        assert "torch.compile(" not in advice.code


def trace_with(*more: Event) -> Trace:
    return trace_of(*WORK, *more)


def test_circumstances_are_the_whole_traces() -> None:
    """A loader anywhere counts everywhere."""
    late = annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 9_000, 10)
    assert circumstances_of(signals_of(trace_with(late))).loader
    assert not circumstances_of(signals_of(trace_with())).loader
