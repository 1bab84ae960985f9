"""Sets of rows that both the costs and the features go by, and what they are told by.

Shapes are interned texts: each distinct one is read once, never once an event.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np

from detector.activity import Activity
from detector.trace import Bool, Int32, Int64

# -- the device ----------------------------------------------------------------------------------


def multiprocessors(activity: Activity) -> int:
    """Of the main device, from the trace's own metadata; 0 where it does not say."""
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


def told(activity: Activity, texts: Int32, test: Callable[[str], bool]) -> Bool:
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


def appends(text: str) -> bool:
    """Whether a cat adds a little to much: one dimension differs, 8 or more times."""
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
    """Concatenations that add a little to much: a cache that grows."""
    rows = activity.ops("cat")
    return rows[told(activity, activity.trace.dims[rows], appends)]
