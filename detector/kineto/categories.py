"""The file's words -> ours: every spelling of a category that Kineto and its kin have used."""

from __future__ import annotations

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

# 2021 wrote record_function ranges as operators; these came with PyTorch itself.
ANNOTATIONS_2021 = ("ProfilerStep#", "enumerate(DataLoader)#", "Optimizer.")


def table(*cats: Cat) -> Bool:
    """True at these categories: ``table(...)[cat]`` is a mask of rows."""
    mask = np.zeros(len(Cat), np.bool_)
    mask[list(cats)] = True
    return mask
