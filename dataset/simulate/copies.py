"""Faulty input and transfer code, as hooks that act at a point of a step.

Each takes the run, the tensor at hand and a budget in µs of added step time, and does what real
code does until about that much is spent.
"""

from __future__ import annotations

from collections.abc import Callable

from dataset.simulate import kernels as K
from dataset.simulate.eager import Tensor
from dataset.simulate.plan import Run, stall
from dataset.simulate.training import cpu_batch_work, load

Act = Callable[[Run, Tensor, float], None]


# -- input -------------------------------------------------------------------------------------
def loader_in_line(run: Run, x: Tensor, us: float) -> None:
    rows = run.rng.randint(3, 12)
    with run.m.acting("input-dataloader-sync"):
        work = stall(run, us)
        load(run.m, 0, workers=False, inside=lambda: cpu_batch_work(run.m, work, rows))


def loader_starved(run: Run, x: Tensor, us: float) -> None:
    with run.m.acting("input-dataloader-starved"):
        load(run.m, stall(run, us))


def preprocess(run: Run, x: Tensor, us: float) -> None:
    """Array work on the training thread, between the loader and the model."""
    m = run.m
    load(m, run.feed.wait * m.rng.uniform(0.6, 1.4))
    with m.acting("input-main-thread-preprocessing"):
        end = m.now + stall(run, us)
        names = run.rng.choice(
            (
                ("aten::div", "aten::sub", "aten::permute", "aten::contiguous"),
                ("aten::to", "aten::mul", "aten::clamp", "aten::stack"),
                ("aten::flip", "aten::pad", "aten::upsample_bilinear2d"),
            )
        )
        python = run.rng.random() < 0.5
        with m.frame(run.place()):
            each = (end - m.now) / (len(names) * 4)
            while m.now + each < end:
                for name in names:
                    share = each * run.rng.uniform(0.5, 1.5)
                    _host_work(run, name, share, python)
                    if m.now >= end:
                        break


def _host_work(run: Run, name: str, us: float, python: bool) -> None:
    m = run.m
    frames = (
        "PIL/Image.py(2247): resize",
        "cv2/__init__.py(88): cvtColor",
        "numpy/core/multiarray.py(153): concatenate",
    )
    if python:
        with m.frame(run.rng.choice(frames)):
            m.idle(us)
    else:
        with m.op(name, [[8, 3, 224, 224]] if run.e.shapes else None, ["float"]):
            m.idle(us)


# -- host to device ----------------------------------------------------------------------------
def copy_pageable(run: Run, x: Tensor, us: float) -> None:
    """The batch from pageable memory, blocking; larger where the budget asks for more."""
    e, m = run.e, run.m
    size = int(max(run.feed.bytes, us * e.d.pageable * 0.75, 4096))
    with m.acting("input-pageable-copy"):
        for part, dtype in ((size, "float"), (max(64, size // 4096), "long int")):
            tensor = Tensor((part // K.BYTES[dtype],), dtype)
            with e.op("aten::to", tensor), e.op("aten::_to_copy", tensor):
                e.empty("aten::empty_strided")
                with e.op("aten::copy_", tensor):
                    m.copy("HtoD", part, pinned=False)


def copy_in_line(run: Run, x: Tensor, us: float) -> None:
    """A pinned copy on the compute stream, large enough to be seen."""
    e, m = run.e, run.m
    tensor = Tensor((int(max(us * e.d.pinned * 0.9, 65_536)) // 4,))
    with e.op("aten::to", tensor), e.op("aten::_to_copy", tensor):
        e.empty("aten::empty_strided")
        with e.op("aten::copy_", tensor), m.acting("input-copy-not-overlapped"):
            m.copy("HtoD", tensor.size, pinned=True)


def tiny_copies(run: Run, x: Tensor, us: float) -> None:
    e, m = run.e, run.m
    pageable = run.rng.random() < 0.5
    end = m.now + stall(run, us) if run.rng.random() < 0.5 else m.now + us
    with m.acting("input-tiny-copies"), m.frame(run.place()):
        for count in range(60):
            if m.now >= end and count >= 10:
                break
            tensor = Tensor((run.rng.choice((1, 4, 16, 64, 512, 2048)),), "float")
            with e.op("aten::to", tensor), e.op("aten::_to_copy", tensor):
                e.empty("aten::empty_strided")
                with e.op("aten::copy_", tensor):
                    m.copy("HtoD", tensor.size, pinned=not pageable)


def made_on_host(run: Run, x: Tensor, us: float) -> None:
    """``torch.zeros(...).to(device)`` where ``device=`` would do."""
    e, m = run.e, run.m
    size = int(max(2_048, us * e.d.pageable * run.rng.uniform(0.2, 0.6)))
    tensor = Tensor((size // 4,))
    name = run.rng.choice(
        ("aten::zeros", "aten::ones", "aten::arange", "aten::randn", "aten::full")
    )
    inner = {"aten::zeros": "aten::zero_", "aten::randn": "aten::normal_"}.get(name, "aten::fill_")
    per_byte = 5e-4 if name == "aten::randn" else 8e-5
    with m.acting("input-cpu-tensor-to-device"):
        with e.op(name, tensor):
            e.empty()
            with e.op(inner, tensor):
                m.idle(size * per_byte)
        with e.op("aten::to", tensor), e.op("aten::_to_copy", tensor):
            e.empty("aten::empty_strided")
            with e.op("aten::copy_", tensor):
                m.copy("HtoD", size, pinned=False)


# -- device to host ----------------------------------------------------------------------------
def tensor_readback(run: Run, x: Tensor, us: float) -> None:
    """``.cpu()`` of a whole tensor."""
    e, m = run.e, run.m
    size = int(max(8_192, us * e.d.pageable * 0.8))
    tensor = Tensor((size // 4,))
    with m.acting("sync-tensor-readback"):
        with e.op("aten::to", tensor), e.op("aten::_to_copy", tensor):
            e.empty("aten::empty_strided")
            with e.op("aten::copy_", tensor):
                m.copy("DtoH", size, pinned=False)
        if run.rng.random() < 0.4:
            with m.frame("numpy/core/fromnumeric.py(71): _wrapreduction"):
                m.idle(min(us * 0.1, 200))


def cpu_fallback(run: Run, x: Tensor, us: float) -> None:
    """One op on the host between a copy down and a copy up."""
    e, m = run.e, run.m
    name = run.rng.choice(
        (
            "aten::linalg_eigh",
            "aten::_fft_r2c",
            "aten::grid_sampler_2d",
            "aten::histc",
            "aten::sort",
            "aten::unique_dim",
            "aten::linalg_svd",
        )
    )
    tensor = Tensor((max(1_024, int(us * e.d.pageable * 0.08)),))
    with m.acting("host-cpu-fallback"):
        for direction in ("DtoH", "", "HtoD"):
            if not direction:
                with e.op(name, tensor, pre=3.0):
                    m.idle(us * run.rng.uniform(0.6, 0.85))
                continue
            with e.op("aten::to", tensor), e.op("aten::_to_copy", tensor):
                e.empty("aten::empty_strided")
                with e.op("aten::copy_", tensor):
                    m.copy(direction, tensor.size, pinned=False)
