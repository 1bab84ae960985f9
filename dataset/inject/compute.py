"""Faulty compute: matrix work that the device is slow at, and programs of many kernels for one."""

from __future__ import annotations

from typing import Final

from dataset.inject import matrices, unfused

INJECTORS: Final = {
    "compute-fp32-matmul": matrices.fp32_matmul,
    "compute-misaligned-gemm": matrices.misaligned_gemm,
    "compute-underfilled": matrices.underfilled,
    "compute-unfused-attention": unfused.unfused_attention,
    "compute-unfused-elementwise": unfused.unfused_elementwise,
    "compute-single-tensor-optimizer": unfused.single_tensor_optimizer,
    "compute-conv-bias-batchnorm": unfused.conv_bias_batchnorm,
}
