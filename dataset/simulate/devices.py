"""Profiles of the devices that traces are simulated for.

The figures are the public peak figures of each part, rounded; a simulated kernel reaches a sampled
fraction of them. Nothing here was measured on the devices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MB = 1 << 20
GB = 1 << 30


@dataclass(frozen=True)
class Device:
    """One accelerator. Rates are per µs: bytes/µs and flop/µs; times are µs."""

    key: str
    name: str
    vendor: Literal["cuda", "rocm"]
    capability: tuple[int, int]
    units: int  # SMs or compute units
    memory: int  # bytes
    bandwidth: float
    fp32: float  # plain vector fp32
    half: float  # tensor or matrix cores, bf16 (fp16 where there is no bf16)
    tf32: float  # 0 where the part has none
    latency: float  # from the end of a launch call to the kernel's start on an idle device
    gap: float  # between two kernels on one stream
    floor: float  # the shortest kernel
    pinned: float  # host link, pinned memory
    pageable: float
    link: float  # between devices, bus bandwidth of an all-reduce
    stream: int  # id of the default stream
    half_type: str = "c10::BFloat16"

    @property
    def tensor32(self) -> float:
        """Rate of fp32 matrix work with TF32 allowed; plain fp32 where there is none."""
        return self.tf32 or self.fp32

    @property
    def is_rocm(self) -> bool:
        return self.vendor == "rocm"


def _tera(x: float) -> float:
    return x * 1e6


def _giga(x: float) -> float:
    return x * 1e3


_ROWS = (
    # key, name, vendor, cap, units, GB, GB/s, fp32, half, tf32 (TFLOP/s), latency, gap, floor,
    # pinned, pageable, link (GB/s), stream
    ("V100", "Tesla V100-SXM2-32GB", "cuda", (7, 0), 80, 32, 900, 15.7, 112, 0)
    + (2.6, 1.1, 1.6, 11.5, 5.5, 120, 7),
    ("RTX2080Ti", "NVIDIA GeForce RTX 2080 Ti", "cuda", (7, 5), 68, 11, 616, 13.4, 54, 0)
    + (3.2, 1.3, 1.6, 11.8, 5.0, 9, 7),
    ("A100", "NVIDIA A100-SXM4-80GB", "cuda", (8, 0), 108, 80, 1935, 19.5, 312, 156)
    + (2.4, 1.0, 1.5, 24.0, 8.5, 230, 7),
    ("H100", "NVIDIA H100 80GB HBM3", "cuda", (9, 0), 132, 80, 3350, 60, 900, 420)
    + (2.2, 0.95, 1.2, 52.0, 11.0, 370, 7),
    ("B200", "NVIDIA B200", "cuda", (10, 0), 148, 180, 7700, 75, 2250, 1100)
    + (2.3, 0.9, 1.3, 54.0, 12.0, 700, 7),
    ("MI210", "AMD Instinct MI210", "rocm", (9, 0), 104, 64, 1600, 22, 181, 0)
    + (8.0, 0.05, 2.4, 24.0, 7.0, 60, 0),
    ("MI300X", "AMD Instinct MI300X", "rocm", (9, 4), 304, 192, 5300, 120, 1200, 600)
    + (7.5, 0.03, 2.4, 50.0, 9.0, 300, 0),
)


def _device(row: tuple) -> Device:  # type: ignore[type-arg]
    key, name, vendor, cap, units, gb, bw, fp32, half, tf32, *rest = row
    latency, gap, floor, pinned, pageable, link, stream = rest
    return Device(
        key,
        name,
        vendor,
        cap,
        units,
        gb * GB,
        _giga(bw),
        _tera(fp32),
        _tera(half),
        _tera(tf32),
        latency,
        gap,
        floor,
        _giga(pinned),
        _giga(pageable),
        _giga(link),
        stream,
        "c10::Half" if cap[0] == 7 else "c10::BFloat16",
    )


DEVICES: dict[str, Device] = {row[0]: _device(row) for row in _ROWS}
