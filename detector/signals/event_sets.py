"""Sets of rows that signals and features share, and how they are recognized.

Shapes are interned texts: each distinct one is parsed once, not once for each event.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

import numpy as np

from detector import vocabulary
from detector.activity import Activity
from detector.trace import Bool, Cat, Int32, Int64

ALIGNED: Final = 8
SMALLEST: Final = 16  # a smaller side is a vector or a batch, where padding does not help

# -- the device ----------------------------------------------------------------------------------


def multiprocessors(activity: Activity) -> int:
    """Multiprocessors of the main device by the trace's metadata; 0 where that is unknown."""
    devices = activity.trace.metadata.get("deviceProperties")
    for row in devices if isinstance(devices, list) else ():
        if isinstance(row, dict) and row.get("id") == activity.main_device:
            count = row.get("numSms", 0)
            return count if isinstance(count, int) and count > 0 else 0
    return 0


def launched(activity: Activity) -> Int64:
    """Device work whose launch is in the trace."""
    rows = activity.device_work
    return rows[activity.trace.launch[rows] >= 0]


def blocking(activity: Activity) -> Int64:
    """Launched kernels that ended before their launch call returned."""
    trace, rows = activity.trace, launched(activity)
    rows = rows[np.isin(rows, activity.kernels, assume_unique=True)]
    return rows[trace.end[rows] <= trace.end[trace.launch[rows]]]


# -- autograd ------------------------------------------------------------------------------------


def needless_graph(activity: Activity) -> Int64:
    """Ops that record the autograd graph, where the trace never runs backward."""
    ops = activity.aten
    return ops[activity.trace.sequence[ops] >= 0] if not _backward(activity) else ops[:0]


def needless_dropout(activity: Activity) -> Int64:
    """Dropout in training mode, where the trace never runs backward."""
    rows = activity.ops("train_dropout")
    return rows if not _backward(activity) else rows[:0]


def _backward(activity: Activity) -> bool:
    return len(activity.host("backward")) > 0


# -- shapes --------------------------------------------------------------------------------------


def matching(activity: Activity, texts: Int32, test: Callable[[str], bool]) -> Bool:
    """The test of each row's text, run once for each distinct text; False where there is none."""
    distinct, which = np.unique(texts, return_inverse=True)
    names = activity.trace.names
    passed = np.array([i >= 0 and test(names[i]) for i in distinct], np.bool_)
    return passed[which] if len(passed) else np.zeros(len(texts), np.bool_)


def parsed(text: str) -> list[object]:
    """The inputs of a "Input Dims" or "Input type" text; none where it is cut or no list."""
    try:
        inputs = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return inputs if isinstance(inputs, list) else []


def is_shape(value: object) -> bool:
    """Whether this is a tensor's shape: a list of sizes, not empty."""
    return isinstance(value, list) and bool(value) and all(type(size) is int for size in value)


def is_number(text: str) -> bool:
    """Whether the first input has no dimensions: a single value."""
    return parsed(text)[:1] == [[]]


def is_image(text: str) -> bool:
    """Whether the first input has four dimensions and more: a batch of images or volumes."""
    return any(isinstance(shape, list) and len(shape) >= 4 for shape in parsed(text)[:1])


def joins_several(text: str) -> bool:
    """Whether the first input is a list of two tensors and more."""
    inputs = parsed(text)
    first = inputs[0] if inputs else None
    return isinstance(first, list) and sum(map(is_shape, first)) > 1


def keeps_type(text: str) -> bool:
    """Whether the first two inputs, both tensors, have one type."""
    inputs = parsed(text)
    return len(inputs) >= 2 and bool(inputs[0]) and inputs[0] == inputs[1]


def appends(text: str) -> bool:
    """Whether a cat appends to a growing tensor: one dimension differs, 8 or more times."""
    inputs = parsed(text)
    tensors = inputs[0] if inputs else None
    if not isinstance(tensors, list) or len(tensors) != 2 or not all(map(is_shape, tensors)):
        return False
    first, second = tensors
    if len(first) != len(second):
        return False
    unlike = [(a, b) for a, b in zip(first, second, strict=True) if a != b]
    return len(unlike) == 1 and unlike[0][0] >= 8 * unlike[0][1]


def cat_appends(activity: Activity) -> Int64:
    """torch.cat calls that append to a growing tensor: a cache."""
    rows = activity.ops("cat")
    return rows[matching(activity, activity.trace.dims[rows], appends)]


def misaligned(text: str) -> bool:
    """Whether a matrix product has a side of 16 or more that is no multiple of 8."""
    sides = [
        size
        for shape in parsed(text)
        if is_shape(shape) and isinstance(shape, list) and len(shape) >= 2
        for size in shape[-2:]
    ]
    return any(size >= SMALLEST and size % ALIGNED for size in sides)


def biased(text: str) -> bool:
    """Whether a convolution has a bias: its third input is a vector."""
    inputs = parsed(text)
    return len(inputs) > 2 and is_shape(inputs[2])


def first_type(text: str) -> str:
    """The type of the first input."""
    inputs = parsed(text)
    return inputs[0] if inputs and isinstance(inputs[0], str) else ""


def misaligned_matmuls(activity: Activity) -> Int64:
    """Matrix products with a side of 16 or more that is no multiple of 8."""
    rows = activity.ops("matmul")
    return rows[matching(activity, activity.trace.dims[rows], misaligned)]


def casts(activity: Activity) -> Int64:
    """Ops that change a tensor's type and leave it on its device: ``aten::_to_copy``, and before
    that was an op (PyTorch 1.10) each ``aten::to`` that copies."""
    trace, rows = activity.trace, activity.ops("cast")
    if not len(rows):
        rows = activity.holders(activity.ops("copy_op"), vocabulary.HOST["to"])
    moved = activity.op_copy_direction >= 0
    around = trace.parent[np.flatnonzero(moved)]
    moved[around[around >= 0]] = True
    found: Int64 = rows[~moved[rows]]
    return found


def norm_after_bias(activity: Activity) -> Int64:
    """Batch norms right after a convolution with a bias."""
    both, pair = _biased_pairs(activity)
    return both[1:][pair]


def bias_before_norm(activity: Activity) -> Int64:
    """Convolutions with a bias right before a batch norm."""
    both, pair = _biased_pairs(activity)
    return both[:-1][pair]


def _biased_pairs(activity: Activity) -> tuple[Int64, Bool]:
    """Convolutions and batch norms, and for each but the last: biased, and a norm follows.

    A bias is the third input, where the trace has shapes; where the backend adds it by an op of its
    own (cuDNN, MIOpen) that op shows it, too.
    """
    conv, norm = activity.ops("conv_call"), activity.ops("batch_norm_call")
    both = np.union1d(conv, norm)
    adding = activity.holders(activity.ops("add"), vocabulary.HOST["conv_call"])
    shaped = conv[matching(activity, activity.trace.dims[conv], biased)]
    with_bias = np.isin(both, np.union1d(adding, shaped), assume_unique=True)
    is_norm = np.isin(both, norm, assume_unique=True)
    return both, with_bias[:-1] & is_norm[1:]


def are_handles(a: Activity, made: Int64) -> Bool:
    """Which of these tensors hold no data but are handles of annotations.

    Up to PyTorch 1.11 each ``record_function`` makes two: one by ``zeros`` right before it begins,
    one by ``empty`` as its first op.
    """
    trace, rows = a.trace, a.of(Cat.CPU_OP, Cat.USER_ANNOTATION)
    is_empty = np.isin(rows, a.named(rows, vocabulary.EMPTY, Cat.CPU_OP))
    found = np.zeros(len(made), np.bool_)
    for track in np.unique(trace.track[made]):
        mine, here = trace.track[made] == track, trace.track[rows] == track
        start, end = trace.start[rows[here]], trace.end[made[mine]]
        opens = (trace.cat[rows[here]][:-1] == Cat.USER_ANNOTATION) & is_empty[here][1:]
        begins = np.append(start[:-1][opens], np.iinfo(np.int64).max)
        at = begins[np.searchsorted(begins, end)]
        found[mine] = np.searchsorted(start, at) <= np.searchsorted(start, end, side="right")
    return found
