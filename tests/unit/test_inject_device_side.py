"""Injectors of memory, compute, communication, compilation and inference: what they put into bases
that were written by hand."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Sequence

import numpy as np
import pytest

from dataset.inject import comm, compiled, compute, infer, memory
from dataset.inject import rounds as r
from dataset.inject import tensors as ts
from dataset.inject.base import Base
from dataset.inject.edits import Alter, Edit, Insert, Remove, Replace, Unfit
from dataset.inject.pieces import Tensor
from detector import vocabulary
from detector.patterns import IDS
from tests.hand_bases import (
    ADD,
    ALLREDUCE,
    STEP,
    STEPS,
    Writer,
    base_of,
    calls_of,
    host_only,
    named,
    training_step,
    walk,
    works_of,
)
from tests.traces import call, trace_of

INJECTORS = {
    **memory.INJECTORS,
    **compute.INJECTORS,
    **comm.INJECTORS,
    **compiled.INJECTORS,
    **infer.INJECTORS,
}
FITS = {
    **dict.fromkeys(memory.INJECTORS, ("training",)),
    "memory-redundant-copy": ("training", "inference"),
    "memory-dtype-churn": ("training", "inference"),
    **dict.fromkeys(compute.INJECTORS, ("training",)),
    "compute-fp32-matmul": ("training", "inference"),
    "compute-misaligned-gemm": ("training", "inference"),
    "compute-underfilled": ("training", "inference"),
    "compute-unfused-attention": ("inference",),
    "compute-unfused-elementwise": ("training", "inference"),
    **dict.fromkeys(comm.INJECTORS, ("training",)),
    **dict.fromkeys(compiled.INJECTORS, ("training", "inference")),
    **dict.fromkeys(infer.INJECTORS, ("inference",)),
}
CASES = [(pattern, kind) for pattern, kinds in FITS.items() for kind in kinds]


def inject(base: Base, pattern: str, seed: int = 0, strength: float = 0.2) -> list[Edit]:
    return INJECTORS[pattern](base, base.spans, strength, np.random.default_rng(seed))


def altered(base: Base, edits: Sequence[Edit], name: str) -> list[Alter]:
    """Alterations of the base's events whose old name matches."""
    word = re.compile(name)
    old = base.trace.names
    return [e for e in edits if isinstance(e, Alter) and word.search(old[base.trace.name[e.row]])]


# -- every injector --------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", INJECTORS)
def test_every_pattern_is_one_of_the_taxonomy(pattern: str) -> None:
    assert pattern in IDS
    assert pattern in FITS


@pytest.mark.parametrize(("pattern", "kind"), CASES)
def test_each_span_gets_faulty_work_of_its_own(pattern: str, kind: str) -> None:
    base = base_of(kind)
    edits = inject(base, pattern)
    faulty = [e for e in edits if not isinstance(e, Remove) and e.faulty]
    at = [base.trace.start[e.row] if isinstance(e, Alter | Replace) else e.at for e in faulty]
    assert all(any(s.start <= t < s.end + STEP * 1_000 / 2 for t in at) for s in base.spans)


@pytest.mark.parametrize(("pattern", "kind"), CASES)
def test_equal_draws_give_equal_edits(pattern: str, kind: str) -> None:
    base = base_of(kind)
    assert inject(base, pattern, seed=3) == inject(base, pattern, seed=3)


@pytest.mark.parametrize(("pattern", "kind"), CASES)
def test_calls_and_works_are_whole(pattern: str, kind: str) -> None:
    base = base_of(kind)
    for seed in range(4):
        edits = inject(base, pattern, seed)
        assert all(c.own >= 0 for c in calls_of(edits))
        assert all(w.dur > 0 and w.track >= 0 for w in works_of(edits))
        assert all(c.cat == "cuda_runtime" for c in calls_of(edits) if c.work)
        json.dumps(
            [dict(c.args) for c in calls_of(edits)] + [dict(w.args) for w in works_of(edits)]
        )


@pytest.mark.parametrize(("pattern", "kind"), CASES)
def test_nothing_names_the_fault(pattern: str, kind: str) -> None:
    edits = inject(base_of(kind), pattern)
    texts = [c.name for c in calls_of(edits)] + [w.name for w in works_of(edits)]
    assert not any(re.search(r"(?i)inject|fault|antipattern", text) for text in texts)
    assert not any(pattern in text for text in texts)


@pytest.mark.parametrize(("pattern", "kind"), CASES)
def test_runtime_calls_are_those_of_the_vendor(pattern: str, kind: str) -> None:
    base = base_of(kind, "rocm")
    try:
        edits = inject(base, pattern)
    except Unfit:
        pytest.skip(f"{pattern} does not fit the {kind} base of this vendor")
    runtime = {c.name for c in calls_of(edits) if c.cat == "cuda_runtime"}
    assert all(name.startswith("hip") for name in runtime)


@pytest.mark.parametrize("pattern", INJECTORS)
def test_a_run_on_the_cpu_shows_none_of_them(pattern: str) -> None:
    with pytest.raises(Unfit):
        inject(host_only(), pattern)


def test_twice_the_strength_is_more_work() -> None:
    base = base_of("inference")
    for pattern in ("memory-redundant-copy", "compute-unfused-elementwise", "compute-underfilled"):
        weak, strong = (works_of(inject(base, pattern, 1, s)) for s in (0.1, 0.4))
        assert sum(w.dur for w in strong) > 1.5 * sum(w.dur for w in weak)


# -- memory ----------------------------------------------------------------------------------------


def test_every_gradient_is_filled_inside_zero_grad_and_then_added_to() -> None:
    base = base_of()
    edits = inject(base, "memory-zero-grad-fill", seed=1)
    fills = [e for e in edits if isinstance(e, Insert) and e.faulty]
    assert len(fills) == STEPS
    marks = [s * STEP + 3_000 for s in range(STEPS)]
    assert all(m * 1e3 < e.at < (m + 50) * 1e3 for m, e in zip(marks, fills, strict=True))
    zeros = named(edits, "aten::zero_")
    assert len(zeros) == 4 * STEPS or named(edits, "aten::_foreach_zero_")
    added = [e for e in edits if isinstance(e, Insert) and not e.faulty]
    assert len(added) == 4 * STEPS
    assert all(e.track == base.backward for e in added)


def test_a_base_that_fills_its_gradients_is_unfit() -> None:
    w = Writer("cuda")
    for i in range(STEPS):
        training_step(w, i * STEP, i, False)
        w.ran("aten::fill_", i * STEP + 3_010, "vectorized_elementwise_kernel<4, FillFunctor>", 5)
    trace = trace_of(*w.events, steps=[(i * STEP, (i + 1) * STEP) for i in range(STEPS)])
    with pytest.raises(Unfit, match="itself"):
        inject(Base("hand.json", trace), "memory-zero-grad-fill")


def test_layouts_change_right_before_and_after_the_convolution() -> None:
    base = base_of()
    edits = [e for e in inject(base, "memory-layout-transform") if isinstance(e, Insert)]
    assert edits
    assert len(edits) % 2 == 0
    for before, after in zip(edits[::2], edits[1::2], strict=True):
        assert before.at < after.at
        assert all("nchwToNhwc" in w.name for w in works_of([before]))
        assert all("nhwcToNchw" in w.name for w in works_of([after]))


def test_types_go_there_and_back() -> None:
    edits = inject(base_of("inference"), "memory-dtype-churn")
    moved = named(edits, "aten::to")
    assert len(moved) % 2 == 0
    assert {c.args["Input type"][0] for c in moved} == {"c10::BFloat16", "float"}


def test_what_lies_between_two_casts_is_no_part_of_their_cost() -> None:
    between = set()
    for seed in range(8):
        edits = inject(base_of("inference"), "memory-dtype-churn", seed)
        called = [c.name for e in edits if isinstance(e, Insert) for c in e.calls]
        needed = [c.name for e in edits if isinstance(e, Insert) for c in e.instead]
        assert needed == [name for name in called if name != "aten::to"]
        between |= set(needed)
    assert len(between) > 1


# -- compute ---------------------------------------------------------------------------------------


def test_products_without_tf32_are_plain_fp32_and_slower() -> None:
    base = base_of()
    alters = altered(base, inject(base, "compute-fp32-matmul"), "gemm")
    assert alters
    for e in alters:
        assert e.name
        assert vocabulary.FP32_MATRIX.search(e.name)
        assert e.dur
        assert e.dur >= 1.2 * base.trace.dur[e.row]


def test_a_half_precision_product_in_fp32_has_casts_around_it_and_says_so() -> None:
    base = base_of("inference")
    edits = inject(base, "compute-fp32-matmul")
    products = altered(base, edits, "s16816gemm")
    assert len(named(edits, "aten::to")) == 2 * len(products)
    types = [e.args["Input type"] for e in altered(base, edits, "addmm|linear")]
    assert types
    assert all(set(t) == {"float"} for t in types)


def test_rocm_products_keep_their_problem_and_change_their_type() -> None:
    base = base_of("inference", "rocm")
    for e in altered(base, inject(base, "compute-fp32-matmul"), "Cijk"):
        assert e.name
        assert "_SB_" in e.name
        assert e.name.startswith("Cijk_Alik_Bljk")
        assert vocabulary.FP32_MATRIX.search(e.name)


def test_full_fp32_already_is_unfit() -> None:
    w = Writer("cuda")
    for i in range(80):
        w.ran("aten::mm", 50 * i, "volta_sgemm_128x64_nn", 30)
    with pytest.raises(Unfit, match="tensor cores"):
        inject(Base("hand.json", trace_of(*w.events)), "compute-fp32-matmul")


def test_an_odd_width_stands_in_every_op_that_has_it() -> None:
    base = base_of("inference")
    edits = inject(base, "compute-misaligned-gemm")
    shapes = [e.args["Input Dims"] for e in altered(base, edits, "addmm")]
    assert len(shapes) == 12 * STEPS
    assert all(768 not in shape[-1] for shape in shapes)
    kernels = altered(base, edits, "s16816gemm")
    assert kernels
    assert all(e.name and vocabulary.MISALIGNED.search(e.name) for e in kernels)
    assert not any(e.faulty for e in altered(base, edits, "addmm"))


@pytest.mark.parametrize("seed", range(6))
def test_underfilled_work_leaves_half_of_the_device_free(seed: int) -> None:
    base = base_of("inference")
    for work in works_of(inject(base, "compute-underfilled", seed)):
        assert np.prod(work.args["grid"]) * 2 <= base.device.units


def test_a_loop_over_samples_stands_in_place_of_the_whole_call() -> None:
    base = base_of("inference")
    found = [inject(base, "compute-underfilled", seed) for seed in range(12)]
    gone = [e.row for edits in found for e in edits if isinstance(e, Remove)]
    assert {base.trace.names[base.trace.name[row]] for row in gone} == {"aten::linear"}
    looped = next(edits for edits in found if any(isinstance(e, Remove) for e in edits))
    pieces = [e.calls[0].name for e in looped if isinstance(e, Insert)]
    assert set(pieces) == {"aten::linear"}
    inside = [c.name for c in named(looped, "aten::linear")[0].inside]
    assert inside == ["aten::t", "aten::mm"]


def test_attention_comes_apart_in_place_of_the_fused_call() -> None:
    base = base_of("inference")
    edits = inject(base, "compute-unfused-attention", strength=0.5)
    gone = [e.row for e in edits if isinstance(e, Remove)]
    names = {base.trace.names[base.trace.name[row]] for row in gone}
    assert names == {"aten::scaled_dot_product_attention"}
    assert len(named(edits, "aten::bmm")) == 2 * len(gone)
    assert len(named(edits, "aten::_softmax")) == len(gone)
    scores = named(edits, "aten::_softmax")[0].args["Input Dims"][0]
    assert scores == [4, 12, 256, 256]


def test_a_convolutional_base_has_no_attention() -> None:
    with pytest.raises(Unfit, match="no transformer"):
        inject(base_of(), "compute-unfused-attention")


def test_chains_that_autograd_records_come_back_on_its_thread() -> None:
    base = base_of()
    found = [inject(base, "compute-unfused-elementwise", seed) for seed in range(8)]
    back = [any(isinstance(e, Insert) and e.track == base.backward for e in f) for f in found]
    recorded = [any("Sequence number" in c.args for c in calls_of(f)) for f in found]
    assert any(back)
    assert not all(back)
    assert back == recorded


def test_the_optimizer_walks_every_parameter() -> None:
    base = base_of()
    edits = inject(base, "compute-single-tensor-optimizer")
    gone = [base.trace.names[base.trace.name[e.row]] for e in edits if isinstance(e, Remove)]
    assert gone == ["aten::_foreach_add_"] * 2 * STEPS
    assert len(named(edits, "aten::add_")) == 4 * 2 * STEPS
    assert not any("foreach" in c.name for c in calls_of(edits))


def test_one_optimizer_makes_all_steps() -> None:
    base = base_of()
    with pytest.raises(Unfit, match="all steps"):
        INJECTORS["compute-single-tensor-optimizer"](
            base, base.spans[:1], 0.2, np.random.default_rng(0)
        )


def test_inference_has_no_optimizer() -> None:
    for pattern in ("compute-single-tensor-optimizer", "memory-zero-grad-fill"):
        with pytest.raises(Unfit):
            inject(base_of("inference"), pattern)


def test_a_bias_is_added_after_the_convolution_and_summed_on_the_way_back() -> None:
    base = base_of()
    edits = inject(base, "compute-conv-bias-batchnorm")
    adds, sums = named(edits, "aten::add_"), named(edits, "aten::sum")
    assert len(adds) == len(sums) == STEPS
    assert adds[0].args["Input Dims"][:2] == [[8, 128, 14, 14], [128]]
    given = altered(base, edits, "conv2d")
    assert all(e.args["Input Dims"][2] == [128] and not e.faulty for e in given)


# -- communication ---------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", comm.INJECTORS)
def test_one_rank_has_no_collectives(pattern: str) -> None:
    with pytest.raises(Unfit):
        inject(base_of(ranks=False), pattern)


def test_exposed_collectives_are_slow_ones_or_compute_waits_for_them() -> None:
    base = base_of()
    for seed in range(6):
        edits = inject(base, "comm-exposed", seed)
        longer = [e for e in edits if isinstance(e, Alter)]
        assert all(e.dur and e.dur > base.trace.dur[e.row] for e in longer)
        assert all(w.holds == (base.stream,) for w in works_of(edits))
        assert longer or works_of(edits)


def test_a_slow_network_makes_transfers_longer_and_no_waiting() -> None:
    base = base_of()
    rows, dur = base.activity.comm_rows, base.trace.dur.copy()
    dur[rows[0]] *= 10  # waits for a late rank
    waiting = Base("base.json", dataclasses.replace(base.trace, dur=dur))
    found = [e for seed in range(6) for e in inject(waiting, "comm-exposed", seed, 0.01)]
    slow = [e for e in found if isinstance(e, Alter)]
    late = [e.dur - dur[e.row] for e in slow if e.row == rows[0]]
    other = [e.dur - dur[e.row] for e in slow if e.row != rows[0]]
    assert late
    assert max(late) < 3 * max(other)


def test_small_collectives_are_small_and_run_where_the_others_do() -> None:
    base = base_of()
    network = int(base.trace.track[base.activity.comm_rows[0]])
    for seed in range(4):
        works = works_of(inject(base, "comm-small-collectives", seed))
        assert len(works) >= 4 * STEPS
        assert all(w.args["In msg nelems"] * 4 < 1 << 20 for w in works)
        assert all(w.track == network and w.after == (base.stream,) for w in works)


def test_the_search_for_unused_parameters_ends_the_forward_pass() -> None:
    base = base_of()
    edits = [e for e in inject(base, "comm-unused-parameters") if isinstance(e, Insert)]
    search = [e for e in edits if e.faulty]
    assert [e.calls[0].name for e in search] == [comm._SEARCH] * STEPS
    assert all(600 < e.at / 1e3 % STEP < 920 for e in search)
    assert all(e.track == base.backward for e in edits if not e.faulty)


def test_rounds_that_need_not_be_repeat_the_own_messages() -> None:
    edits = inject(base_of(), "comm-missing-no-sync")
    sizes = {w.args["In msg nelems"] for w in works_of(edits)}
    assert sizes == {655_360}
    params = named(edits, "record_param_comms")
    assert all(c.args["Collective name"] == "allreduce" for c in params)


# -- compilation -----------------------------------------------------------------------------------


def test_breaks_leave_several_regions_with_eager_ops_between() -> None:
    calls = calls_of(inject(base_of("inference"), "compile-graph-break"))
    numbers = {m[1] for c in calls if (m := re.match(r"Torch-Compiled Region: (\d+)/0$", c.name))}
    assert len(numbers) >= 2
    tops = [c.name for c in calls if c.name.startswith(("Torch-Compiled", "aten::"))]
    assert any(name.startswith("aten::") for name in tops)


def test_each_recompilation_makes_another_version() -> None:
    calls = calls_of(inject(base_of("inference"), "compile-recompile"))
    regions = [c.name for c in calls if c.name.startswith("Torch-Compiled")]
    assert regions == [f"Torch-Compiled Region: 0/{i + 1}" for i in range(STEPS)]
    assert all(vocabulary.HOST["compile"].search("dynamo_timed") for _ in regions)
    assert sum(c.name == "entire_frame_compile (dynamo_timed)" for c in calls) == STEPS


@pytest.mark.parametrize("pattern", compiled.INJECTORS)
def test_older_traces_do_not_name_compiled_regions(pattern: str) -> None:
    with pytest.raises(Unfit, match="compiled regions"):
        inject(base_of(newer=False), pattern)


# -- inference -------------------------------------------------------------------------------------


def test_autograd_numbers_ops_in_order_and_makes_them_slower() -> None:
    base = base_of("inference")
    edits = [e for e in inject(base, "infer-autograd") if isinstance(e, Alter)]
    numbers = [e.args["Sequence number"] for e in sorted(edits, key=lambda e: e.row)]
    assert numbers == sorted(numbers)
    assert len(set(numbers)) == len(numbers)
    assert all(e.dur is not None and e.dur >= base.own[e.row] for e in edits)


def test_dropout_drops_when_the_model_trains() -> None:
    edits = inject(base_of("inference"), "infer-autograd")
    assert len(named(edits, "aten::native_dropout")) == 12 * STEPS


@pytest.mark.parametrize("pattern", infer.INJECTORS)
def test_training_is_no_inference(pattern: str) -> None:
    with pytest.raises(Unfit, match="training"):
        inject(base_of(), pattern)


def test_caches_grow_by_one_row_for_each_token() -> None:
    cats = named(inject(base_of("inference"), "infer-kv-cat"), "aten::cat")
    lengths = [c.args["Input Dims"][0][0][2] for c in cats]
    assert all(c.args["Input Dims"][0][1][2] == 1 for c in cats)
    steps = np.diff(lengths)
    assert set(steps.tolist()) == {0, 1}


def test_of_tokens_only_what_appends_is_the_fault() -> None:
    edits = inject(base_of("inference"), "infer-kv-cat")
    inserted = [e for e in edits if isinstance(e, Insert)]
    assert {e.faulty for e in inserted} == {True, False}
    assert all(e.instead == (() if e.faulty else e.calls) for e in inserted)


# -- what they share -------------------------------------------------------------------------------


def test_the_device_has_room_up_to_the_next_wait() -> None:
    w = Writer("cuda")
    for i in range(20):
        w.ran("aten::mul", 100 * i, ADD, 40)
    w.events.append(call("cudaStreamSynchronize", 1_050, 10))
    base = Base("hand.json", trace_of(*w.events, steps=[(0, 1_000), (1_000, 2_000)]))
    room, span = r.Room(base), base.spans[0]
    assert room.of_device(40_000, span) == pytest.approx(560_000, rel=0.1)


def test_a_tensor_grows_and_shrinks_with_its_scale() -> None:
    tensor = Tensor((1, 64, 32))
    assert ts.scaled(tensor, 4).shape == (4, 64, 32)
    assert ts.scaled(tensor, 0.25).elems == 512
    assert ts.scaled(tensor, 1e12).elems <= 1 << 28


def test_parameters_are_the_gradients_that_are_accumulated() -> None:
    base = base_of()
    found = ts.parameters(base, base.spans[0], np.random.default_rng(0))
    assert [t.shape for t in found] == [(64, 1024), (128, 1024), (192, 1024), (256, 1024)]


def test_a_mirrored_call_has_the_same_calls_inside() -> None:
    base = base_of()
    row = int(base.ops("^c10d::allreduce_$")[0])
    copy = ts.mirrored(base, row, lambda _, c: c, np.random.default_rng(0))
    assert [c.name for c in walk([copy])] == [
        "c10d::allreduce_",
        "record_param_comms",
        "nccl:all_reduce",
        "cudaLaunchKernel",
    ]
    assert works_of([Insert(0, 0, (copy,))])[0].name == ALLREDUCE
