"""What kernels and ops reach: arithmetic and bytes by shapes, beside the device's peaks."""

from __future__ import annotations

import json

import pytest

from detector import gpu_specs
from detector.activity import Activity
from detector.evidence import heaviest
from detector.evidence.arithmetic import Arithmetic, Work
from detector.report.events import TopEvent
from detector.window import analyzed_time
from tests.traces import Event, kernel, launch, op, trace_of

FLOATS = '["float", "float"]'
V100 = {"deviceProperties": [{"id": 0, "name": "Tesla V100-SXM2-32GB"}]}


def work(name: str, shapes: list[object], *types: str) -> Work | None:
    kinds = [*types, *[""] * (len(shapes) - len(types))]
    return Arithmetic().of(name, json.dumps(shapes), json.dumps(kinds))


# -- by shapes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "shapes", "flop", "elements"),
    [
        ("aten::mm", [[8, 4], [4, 2]], 2 * 8 * 4 * 2, 32 + 8 + 16),
        ("aten::bmm", [[3, 8, 4], [3, 4, 2]], 3 * 128, 3 * 56),
        ("aten::addmm", [[2], [8, 4], [4, 2]], 128, 2 + 56),
        # out 6x6 of 5 channels, 3 in each of 4 inputs: two gradients
        (
            "aten::convolution_backward",
            [[2, 5, 6, 6], [2, 4, 8, 8], [5, 4, 3, 3]],
            2 * 2 * (2 * 5 * 36) * (4 * 9),
            2 * (512 + 180) + 360,
        ),
        # queries of length 6 and keys of 7, heads of 4, values of 5
        (
            "aten::_scaled_dot_product_flash_attention",
            [[2, 3, 6, 4], [2, 3, 7, 4], [2, 3, 7, 5]],
            2 * (2 * 3 * 6 * 7) * (4 + 5),
            2 * 144 + 168 + 210,
        ),
        (
            "aten::_flash_attention_forward",
            [[2, 6, 3, 4], [2, 7, 3, 4], [2, 7, 3, 5]],
            2 * (2 * 3 * 6 * 7) * (4 + 5),
            2 * 144 + 168 + 210,
        ),
        (
            "aten::_scaled_dot_product_flash_attention_backward",
            [[2, 3, 6, 5], [2, 3, 6, 4], [2, 3, 7, 4], [2, 3, 7, 5]],
            2 * (2 * 3 * 6 * 7) * (3 * 4 + 2 * 5),
            180 + 2 * (144 + 168 + 210),
        ),
        ("aten::add", [[8, 4], [4]], 0, 32 + 4 + 32),
        ("aten::copy_", [[8, 4], [8, 4]], 0, 64),
    ],
)
def test_the_arithmetic_and_the_bytes_of_a_call(name, shapes, flop, elements):
    found = work(name, shapes, *["float"] * len(shapes))
    assert found == Work(flop, 4 * elements, "float")


@pytest.mark.parametrize(
    ("name", "shapes", "types"),
    [
        ("aten::sort", [[8, 4]], ["float"]),
        ("aten::mm", [[8, 4], [3, 2]], ["float", "float"]),
        ("aten::mm", [[8, 4]], ["float"]),
        ("aten::mm", [[8, 4], [4, 2]], ["float", "a type of its own"]),
        ("aten::mm", [[8, 4], [4, 2]], ["float"]),
        ("aten::mm", [[8, -4], [-4, 2]], ["float", "float"]),
        ("aten::add", [[], []], ["double", "double"]),
        ("aten::convolution_backward", [[2, 5, 6, 6], [2, 4, 8, 8], [4, 5, 3, 3]], ["float"] * 3),
        ("aten::_flash_attention_forward", [[13, 3, 4], [13, 3, 4], [13, 3, 4]], ["float"] * 3),
    ],
)
def test_what_shapes_do_not_tell_is_not_guessed(name, shapes, types):
    assert Arithmetic().of(name, json.dumps(shapes), json.dumps(types)) is None


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "null", '{"a": 1}', "[[1e400, 2]]"])
def test_damaged_shapes_tell_nothing(text):
    assert Arithmetic().of("aten::mm", text, FLOATS) is None


def test_a_convolution_s_output_is_known_from_its_gradient():
    made = Arithmetic()
    x, weight, out = [2, 4, 8, 8], [5, 4, 3, 3], [2, 5, 6, 6]
    forward = "aten::cudnn_convolution", json.dumps([x, weight]), FLOATS
    assert made.of(*forward) is None
    made.learn("aten::convolution_backward", json.dumps([out, x, weight]))
    found = made.of(*forward)
    assert found is not None
    assert found.flop == 2 * (2 * 5 * 36) * (4 * 9)


# -- of a trace ------------------------------------------------------------------------------------


def heavy(*events: Event, **rest: object) -> tuple[tuple[TopEvent, ...], tuple[TopEvent, ...]]:
    trace = trace_of(*events, **rest)
    activity, analyzed = Activity(trace), analyzed_time(trace)
    return heaviest.kernels(activity, analyzed), heaviest.ops(activity, analyzed)


def product(at: float, us: float, corr: int, name: str = "volta_sgemm", **rest: str) -> list[Event]:
    """1,000 x 1,000 x 1,000: 2 GFLOP and 12 MB in fp32."""
    given = {"dims": "[[1000, 1000], [1000, 1000]]", "types": FLOATS, **rest}
    return [
        op("aten::mm", at, 10, **given),
        launch(at + 1, 5, corr=corr),
        kernel(name, at + 10, us, corr=corr),
    ]


def test_a_product_is_set_beside_the_peak_of_its_type():
    (gemm,), (mm,) = heavy(*product(0, 200, 1), *product(300, 200, 2), metadata=V100)
    assert (mm.tflop_per_s, mm.peak_share) == (gemm.tflop_per_s, gemm.peak_share)
    assert gemm.tflop_per_s == pytest.approx(10)
    assert gemm.gb_per_s == pytest.approx(60)
    assert gemm.peak_share == pytest.approx(10 / 15.7)
    assert gemm.limit == "fp32 arithmetic"


def test_halves_have_the_peak_of_tensor_cores():
    halves = {"types": '["c10::Half", "c10::Half"]'}
    (gemm,), _ = heavy(*product(0, 200, 1, **halves), metadata=V100)
    assert (gemm.limit, gemm.peak_share) == ("fp16 arithmetic", pytest.approx(10 / 125))


def test_fp32_on_tensor_cores_is_tf32():
    a100 = {"deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-80GB"}]}
    (gemm,), _ = heavy(*product(0, 200, 1, "ampere_sgemm_tensorop_s1688"), metadata=a100)
    assert (gemm.limit, gemm.peak_share) == ("TF32 arithmetic", pytest.approx(10 / 156))


def test_what_converts_beside_a_product_does_none_of_its_work():
    events = [*product(0, 200, 1), launch(7, 2, corr=2)]
    events += [kernel("batched_transpose", 300, 100, corr=2)]
    (gemm, transposed), (mm,) = heavy(*events, metadata=V100)
    assert gemm.tflop_per_s == pytest.approx(10)
    assert transposed.tflop_per_s == 0
    assert mm.tflop_per_s == pytest.approx(2e9 / 300e-6 / 1e12)  # the op takes both


def test_a_pointwise_kernel_is_bound_by_memory():
    add = {"dims": "[[1000000], [1000000]]", "types": FLOATS}
    events = [op("aten::add", 0, 10, **add), launch(1, 5, corr=1), kernel("k", 10, 20, corr=1)]
    (found,), _ = heavy(*events, metadata=V100)
    assert found.gb_per_s == pytest.approx(600)
    assert (found.limit, found.peak_share) == ("memory bandwidth", pytest.approx(600 / 900))


def test_an_unknown_device_has_rates_and_no_share():
    (gemm,), _ = heavy(*product(0, 200, 1))
    assert (gemm.peak_share, gemm.limit) == (0, "")


def test_on_a_cpu_run_an_op_computes_itself():
    given = {"dims": "[[1000, 1000], [1000, 1000]]", "types": FLOATS}
    _, (mm,) = heavy(op("aten::mm", 0, 2000, **given))
    assert mm.tflop_per_s == pytest.approx(1)


def test_without_shapes_there_is_no_rate():
    (gemm,), (mm,) = heavy(*product(0, 200, 1, dims="", types=""), metadata=V100)
    assert gemm.gb_per_s == mm.gb_per_s == 0


# -- the table of devices --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "bandwidth"),
    [
        ("NVIDIA A100-SXM4-80GB", 2_039),
        ("NVIDIA A100 80GB PCIe", 1_935),
        ("NVIDIA A100-PCIE-80GB", 1_935),
        ("NVIDIA A100-PG509-200", 1_555),
        ("NVIDIA H100 80GB HBM3", 3_350),
        ("NVIDIA H100 PCIe", 2_000),
        ("Tesla V100-DGXS-32GB", 900),
        ("NVIDIA L40S", 864),
        ("NVIDIA L4", 300),
        ("AMD Instinct MI250X / MI250", 1_638),
        ("AMD Instinct MI300X VF", 5_300),
    ],
)
def test_devices_are_known_by_their_names(name, bandwidth):
    found = gpu_specs.find_device(name)
    assert found is not None
    assert found.bandwidth == bandwidth


@pytest.mark.parametrize("name", ["", "NVIDIA A10G", "NVIDIA A1000", "GeForce GT 1030", "XT4"])
def test_others_are_not_taken_for_them(name):
    assert gpu_specs.find_device(name) is None
