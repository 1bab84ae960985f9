"""The file's words -> ours: every spelling of a category, and of events that are no rows."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from detector.trace import Bool, Cat

CATEGORIES = {
    "cpu_op": Cat.CPU_OP,
    "Operator": Cat.CPU_OP,  # 2021
    "user_annotation": Cat.USER_ANNOTATION,
    "python_function": Cat.PYTHON_FUNCTION,
    "Python": Cat.PYTHON_FUNCTION,  # 2021
    "python": Cat.PYTHON_FUNCTION,
    "cuda_runtime": Cat.RUNTIME,  # hip* calls too
    "Runtime": Cat.RUNTIME,  # 2021
    "xpu_runtime": Cat.RUNTIME,
    "mtia_runtime": Cat.RUNTIME,
    "glow_runtime": Cat.RUNTIME,
    "privateuse1_runtime": Cat.RUNTIME,
    "cuda_driver": Cat.DRIVER,
    "xpu_driver": Cat.DRIVER,
    "privateuse1_driver": Cat.DRIVER,
    "overhead": Cat.OVERHEAD,
    "kernel": Cat.KERNEL,
    "Kernel": Cat.KERNEL,  # 2021
    "gpu_memcpy": Cat.GPU_MEMCPY,
    "Memcpy": Cat.GPU_MEMCPY,  # 2021
    "gpu_memset": Cat.GPU_MEMSET,
    "Memset": Cat.GPU_MEMSET,  # 2021
    "gpu_user_annotation": Cat.GPU_USER_ANNOTATION,
    "cuda_sync": Cat.CUDA_SYNC,
    "xpu_sync": Cat.CUDA_SYNC,
    "mtia_ccp_events": Cat.MTIA,
    "mtia_insight": Cat.MTIA,
}


class Shape(IntEnum):
    """Which arguments a category's rows have."""

    OP = 0
    CALL = 1
    FRAME = 2
    DEVICE = 3


SHAPES = {
    Cat.CPU_OP: Shape.OP,
    Cat.USER_ANNOTATION: Shape.OP,
    Cat.PYTHON_FUNCTION: Shape.FRAME,
    Cat.OVERHEAD: Shape.FRAME,
    Cat.RUNTIME: Shape.CALL,
    Cat.DRIVER: Shape.CALL,
    Cat.KERNEL: Shape.DEVICE,
    Cat.GPU_MEMCPY: Shape.DEVICE,
    Cat.GPU_MEMSET: Shape.DEVICE,
    Cat.GPU_USER_ANNOTATION: Shape.DEVICE,
    Cat.CUDA_SYNC: Shape.DEVICE,
    Cat.MTIA: Shape.DEVICE,
    Cat.OTHER: Shape.DEVICE,
}

DEVICE_CATS = (
    Cat.KERNEL,
    Cat.GPU_MEMCPY,
    Cat.GPU_MEMSET,
    Cat.GPU_USER_ANNOTATION,
    Cat.CUDA_SYNC,
    Cat.MTIA,
)

# The capture's own span; it would hide every idle time.
SPAN = "Trace"

# Read, counted, and not kept as rows.
OTHER_PHASES = {
    "s": "flow",
    "t": "flow",
    "f": "flow",
    "i": "instant",
    "I": "instant",
    "R": "instant",
    "M": "metadata",
    "C": "counter",
    "b": "async",
    "e": "async",
    "n": "async",
    "N": "object",
    "O": "object",
    "D": "object",
    "P": "sample",
    "v": "memory dump",
    "c": "clock",
}
# Categories whose events are never rows, whatever their phase.
OTHER_CATEGORIES = {
    "ac2g": "flow",
    "fwdbwd": "flow",
    "async": "flow",  # 2021
    "async_cpu_to_gpu": "flow",  # 2022
    "async_gpu": "flow",
    "cpu_instant_event": "instant",
    SPAN: "trace span",
}

# 2021 wrote record_function ranges as operators; these came with PyTorch itself.
ANNOTATIONS_2021 = ("ProfilerStep#", "enumerate(DataLoader)#", "Optimizer.")


def table(*cats: Cat) -> Bool:
    """True at these categories: ``table(...)[cat]`` is a mask of rows."""
    mask = np.zeros(len(Cat), np.bool_)
    mask[list(cats)] = True
    return mask


def unknown(word: str) -> str:
    """How the coverage counts the rows of a category that is not among these."""
    return f"unknown category {word[:40]!r}"
