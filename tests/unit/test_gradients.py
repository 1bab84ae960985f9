"""What DDP reduces in a step, beside the model's own gradients."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from detector.analysis import analyze
from detector.jobs.gradients import communication
from detector.jobs.rank import MOST_ELEMENTS, elements_of
from detector.kineto import read
from detector.render import traffic
from detector.report import Report
from detector.report.job import Communication, Gradients
from detector.trace import Trace
from tests.traces import Event, annotation, kernel, launch, memcpy, op, trace_of

SHARED = Path(__file__).resolve().parents[2] / "../shared/traces"
shared = pytest.mark.skipif(not SHARED.exists(), reason="public traces are not here")
STEP = 1_000.0
SHAPES = ("[[64, 32]]", "[[64]]", "[[64]]")  # 2,176 floats
ELEMENTS = 64 * 32 + 64 + 64


def accumulate(at: float, dims: str, types: str = "['float']") -> Event:
    return op("torch::autograd::AccumulateGrad", at, 5, dims=dims, types=types.replace("'", '"'))


def reduction(at: float, corr: int, elements: int, **more: object) -> list[Event]:
    given = {"collective": "allreduce", "element_type": "Float", "msg_elems": elements, **more}
    name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
    return [launch(at, 2, corr), kernel(name, at + 10, 20, corr, stream=20, **given)]


def step(
    number: int, micro: int = 1, *, shapes: tuple[str, ...] = SHAPES, **more: object
) -> list[Event]:
    """A training step under DDP whose micro-steps all reduce every gradient."""
    at, events = number * STEP, list[Event]()
    for k in range(micro):
        begun, corr = at + 300 * k, 100 * number + 10 * k + 1
        events.append(annotation("DistributedDataParallel.forward", begun + 10, 50))
        events += [accumulate(begun + 80 + 10 * i, dims) for i, dims in enumerate(shapes)]
        events += reduction(begun + 120, corr, ELEMENTS, **more)
    return [*events, annotation("Optimizer.step#SGD.step", at + 900, 50)]


def trace(*steps: list[Event], **more: object) -> Trace:
    marks = [(i * STEP, (i + 1) * STEP) for i in range(len(steps))]
    return trace_of(*(e for one in steps for e in one), steps=marks, **more)


def found(of: Trace) -> Gradients | None:
    analysis = analyze(of)
    sent = communication(analysis.signals, analysis.analyzed)
    assert sent is not None
    return sent.gradients


@pytest.mark.parametrize("micro", [1, 2, 3])
def test_reduced_once_or_in_each_micro_step(micro: int) -> None:
    g = found(trace(*(step(i, micro) for i in range(4))))
    assert g == Gradients(
        4.0 * ELEMENTS * micro, ELEMENTS * micro, 4 * ELEMENTS, ELEMENTS, micro, "shapes"
    )


def test_a_model_of_equal_layers_is_not_taken_for_several_passes() -> None:
    g = found(trace(*(step(i, shapes=("[[64]]",) * 34) for i in range(3))))
    assert g is not None
    assert (g.model_elements, g.times) == (ELEMENTS, 1.0)


def test_half_of_the_gradients_in_a_smaller_type() -> None:
    steps = [step(i, element_type="BFloat16") for i in range(3)]
    g = found(trace(*steps))
    assert g is not None
    assert (g.times, g.model_bytes) == (0.5, 4 * ELEMENTS)


def without_shapes(number: int) -> list[Event]:
    """The same step, of which DDP's copies tell the sizes."""
    events = [replace(e, dims="", types="") for e in step(number)]
    for i, size in enumerate((8192, 256, 256)):
        at, corr = number * STEP + 500 + 30 * i, 100 * number + 50 + i
        events += [
            op("torch.distributed.ddp.reducer::copy_bucket_to_grad", at, 20),
            launch(at + 5, 5, corr),
            memcpy("Memcpy DtoD (Device -> Device)", at + 200, 2, size, corr),
        ]
    return events


def test_copies_out_of_buckets_tell_where_shapes_do_not() -> None:
    g = found(trace(*(without_shapes(i) for i in range(3))))
    assert g == Gradients(4.0 * ELEMENTS, ELEMENTS, 4 * 2176, -1, 1.0, "copies")


def test_nothing_is_said_without_sizes_steps_or_ddp() -> None:
    plain = [[replace(e, dims="", types="") for e in step(i)] for i in range(3)]
    assert found(trace(*plain)) is None
    assert found(trace(*(step(i, msg_elems=-1) for i in range(3)))) is None
    assert found(trace(*(step(i, element_type="") for i in range(3)))) is not None  # by its name
    alone = [[e for e in step(i) if "DistributedData" not in e.name] for i in range(3)]
    assert found(trace(*alone)) is None
    assert (
        found(trace(*([e for e in step(i) if "Optimizer" not in e.name] for i in range(3)))) is None
    )


def test_other_groups_reduce_no_gradients() -> None:
    groups = [{"pg_name": "7", "pg_desc": "TENSOR_MODEL_PARALLEL_GROUP", "ranks": [0, 1]}]
    info = {"distributedInfo": {"rank": 0, "world_size": 2, "pg_config": groups}}
    steps = [
        [*step(i), *reduction(i * STEP + 700, 100 * i + 70, 10**6, group="7", group_size=2)]
        for i in range(3)
    ]
    g = found(trace(*steps, metadata=info))
    assert g is not None
    assert g.times == 1.0


def test_a_trace_without_collectives_sends_nothing() -> None:
    analysis = analyze(trace([op("aten::mm", 0, 10)]))
    assert communication(analysis.signals, analysis.analyzed) is None


@pytest.mark.parametrize(
    ("dims", "types", "count"),
    [
        ("[[3, 4]]", '["float"]', 12),
        ("[[3, 4], [2]]", '["float", "float"]', 14),
        ("[[]]", '["float"]', 1),
        ("[[]]", '[""]', -1),
        ("[[3], []]", '["float", ""]', -1),
        ("[[[3]], []]", '["TensorList", "Scalar"]', -1),
        (f"[[{MOST_ELEMENTS}, {MOST_ELEMENTS}]]", '["float"]', -1),
        ("[[-3]]", '["float"]', -1),
        ("[[3", '["float"]', -1),
        ("7", "7", -1),
    ],
)
def test_elements_of_recorded_shapes(dims: str, types: str, count: int) -> None:
    assert elements_of(dims, types) == count


def test_the_sentence_says_what_is_known() -> None:
    once = Gradients(8_704.0, 2_176.0, 8_704, 2_176, 1.0, "shapes")
    assert traffic.gradients(Report(communication=Communication((), once))) == (
        "Each step reduces 2,176 elements (8.70 kB) on a rank,"
        " 1.00 × the model's 2,176 parameters (8.70 kB)"
    )
    twice = Gradients(17_408.0, 4_352.0, 8_704, -1, 2.0, "copies")
    assert traffic.gradients(Report(communication=Communication((), twice))) == (
        "Each step reduces 4,352 elements (17.4 kB) on a rank,"
        " 2.00 × the model's 8.70 kB of gradients: gradients are reduced 2 times a step"
    )
    assert traffic.gradients(Report()) == ""


@shared
@pytest.mark.parametrize(
    ("name", "elements", "size", "known_by"),
    [
        ("a100_ddp_conv_nccl_train", 25_557_032, 102_228_128, "copies"),  # ResNet-50
        ("mi300_resnet_act_checkpoint_train", 11_689_512, 23_379_024, "shapes"),  # ResNet-18
    ],
)
def test_public_traces_reduce_each_gradient_once(
    name: str, elements: int, size: int, known_by: str
) -> None:
    g = found(read(SHARED / f"{name}.json.gz"))
    assert g is not None
    assert (g.reduced_elements, g.model_bytes, g.times) == (elements, size, 1.0)
    assert (g.known_by, g.model_elements) == (known_by, elements if known_by == "shapes" else -1)
