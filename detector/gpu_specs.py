"""Peak rates of GPUs by their makers' data sheets: dense arithmetic and memory bandwidth."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_NVIDIA: Final = "https://www.nvidia.com/en-us/data-center/"
_VOLTA: Final = "https://www.nvidia.com/en-us/data-center/v100/"
_PASCAL: Final = "https://www.nvidia.com/en-us/data-center/tesla-p100/"
_ADA: Final = "NVIDIA Ada GPU Architecture, appendix A"
_GA102: Final = "NVIDIA Ampere GA102 GPU Architecture, appendix A"
_TURING: Final = "NVIDIA Turing GPU Architecture, appendix A"
_AMD: Final = "https://www.amd.com/en/products/accelerators/instinct/"


@dataclass(frozen=True)
class Device:
    """Peaks of one GPU without sparsity: TFLOP/s by type, and GB/s of its memory.

    ``fp32``: products in full fp32. ``tf32``, ``fp16``, ``bf16``: of tensor (matrix) cores, fp16
    with sums in fp32; 0 where the GPU has none. ``name``: a pattern of what traces call it.
    """

    name: str
    bandwidth: float
    fp32: float
    tf32: float
    fp16: float
    bf16: float
    source: str


# The first whose name fits counts. A package of two dies (MI250) is two devices in a trace, so its
# figures are halved.
DEVICES: Final = (
    Device("B200", 8_000, 75, 1_100, 2_250, 2_250, _NVIDIA + "hgx/"),
    Device("H200", 4_800, 67, 495, 989, 989, _NVIDIA + "h200/"),
    Device("H100 PCIe", 2_000, 51, 378, 756, 756, _NVIDIA + "h100/"),
    Device("H100", 3_350, 67, 495, 989, 989, _NVIDIA + "h100/"),
    Device("A100.*(80.*PCIe|PCIe.*80)", 1_935, 19.5, 156, 312, 312, _NVIDIA + "a100/"),
    Device("A100.*80", 2_039, 19.5, 156, 312, 312, _NVIDIA + "a100/"),
    Device("A100", 1_555, 19.5, 156, 312, 312, _NVIDIA + "a100/"),
    Device("V100.*PCIe", 900, 14, 0, 112, 0, _VOLTA),
    Device("V100", 900, 15.7, 0, 125, 0, _VOLTA),
    Device("P100.*PCIe", 732, 9.3, 0, 18.7, 0, _PASCAL),
    Device("P100", 732, 10.6, 0, 21.2, 0, _PASCAL),
    Device("L40S", 864, 91.6, 183, 362, 362, _NVIDIA + "l40s/"),
    Device("L40", 864, 90.5, 90.5, 181, 181, _NVIDIA + "l40/"),
    Device("L4", 300, 30.3, 60, 121, 121, _NVIDIA + "l4/"),
    Device("T4", 320, 8.1, 0, 65, 0, _NVIDIA + "tesla-t4/"),
    Device("A10", 600, 31.2, 62.5, 125, 125, _NVIDIA + "products/a10-gpu/"),
    Device("RTX 4090", 1_008, 82.6, 82.6, 165, 165, _ADA),
    Device("RTX 3090", 936, 35.6, 35.6, 71, 71, _GA102),
    Device("RTX 2080 Ti", 616, 13.4, 0, 53.8, 0, _TURING),
    Device("MI300X", 5_300, 163.4, 653.7, 1_307, 1_307, _AMD + "mi300/mi300x.html"),
    Device("MI250X", 1_638, 47.9, 0, 191.5, 191.5, _AMD + "mi200/mi250x.html"),
    Device("MI250", 1_638, 45.3, 0, 181, 181, _AMD + "mi200/mi250.html"),
    Device("MI210", 1_638, 45.3, 0, 181, 181, _AMD + "mi200/mi210.html"),
    Device("MI100", 1_229, 46.1, 0, 184.6, 92.3, _AMD + "mi100.html"),
)


def find_device(name: str) -> Device | None:
    """The device that traces call by this name; None for one that is not in the table."""
    return next((d for d in DEVICES if re.search(rf"(?i)\b{d.name}(GB)?\b", name)), None)
