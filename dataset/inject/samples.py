"""CPU work that makes a batch: on one sample after the other, or on the whole batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from dataset.inject import frames
from dataset.inject import pieces as p
from dataset.inject.base import Base
from dataset.inject.edits import Call
from dataset.inject.pieces import Tensor

# (ns, share of it in ops where no frames show the rest) -> the calls
Work = Callable[[int, float], tuple[Call, ...]]

_DECODERS: Final = ("__getitem__", "decode", "transform", "load_sample")
_SAMPLE_NS: Final = 1_500_000
_LIBRARY_WORK: Final = (
    ("PIL/Image.py", "resize", "resize", "ImagingCore object"),
    ("PIL/Image.py", "convert", "convert", "ImagingCore object"),
    ("PIL/Image.py", "crop", "crop", "ImagingCore object"),
    ("numpy/_core/_methods.py", "_mean", "reduce", "numpy.ufunc object"),
    ("numpy/_core/_methods.py", "_var", "reduce", "numpy.ufunc object"),
    ("numpy/lib/_function_base_impl.py", "flip", "copy", "numpy.ndarray object"),
)


def one_by_one(base: Base, draw: np.random.Generator) -> Work:
    """Work on one sample, of one of the kinds that there are."""
    kinds = (_image, _tokens, _arrays)
    return kinds[p.pick(draw, kinds)](base, frames.site(base, _DECODERS, draw), draw)


def whole_batch(base: Base, draw: np.random.Generator) -> Work:
    """Work on a batch: sample by sample and stacked, or as one tensor."""
    kinds = (_stacked, _as_one)
    return kinds[p.pick(draw, kinds)](base, draw)


def _image(base: Base, site: str, draw: np.random.Generator) -> Work:
    """Decoded, then ToTensor as torchvision does it, perhaps normalized."""
    side = int(draw.choice([128, 224, 256, 384]))
    pixels, image = Tensor((side, side, 3), "unsigned char"), Tensor((3, side, side))
    chain = ("aten::contiguous", "aten::to", "aten::div", "aten::sub_", "aten::div_")
    names, library = chain[: int(draw.choice([3, 5]))], _libraries(draw)

    def work(ns: int, busy: float) -> tuple[Call, ...]:
        decoded = _in_libraries(base, library, int(ns * 0.6), site, draw)
        share = ns * (0.35 if decoded else busy)
        return (
            *decoded,
            p.view(base, "aten::permute", pixels, draw),
            *_ops(base, names, image, share, draw),
        )

    return work


def _tokens(base: Base, site: str, draw: np.random.Generator) -> Work:
    """Tokenized text, padded."""
    row = Tensor((int(draw.choice([128, 512, 1024, 2048])),), "long int")

    def work(ns: int, busy: float) -> tuple[Call, ...]:
        encoded = base.frame(site, (), int(ns * 0.85))
        share = ns * (0.1 if encoded else busy)
        filled = p.op(base, "aten::fill_", row, draw=draw, own=p.about(share / 2, draw))
        padded = p.op(
            base, "aten::full", row, draw=draw, own=p.about(share / 4, draw), inside=(filled,)
        )
        copied = p.op(base, "aten::copy_", row, row, draw=draw, own=p.about(share / 4, draw))
        return (*encoded, padded, p.view(base, "aten::slice", row, draw), copied)

    return work


def _arrays(base: Base, site: str, draw: np.random.Generator) -> Work:
    """Arrays turned into tensors and scaled."""
    row, library = Tensor((int(draw.choice([256, 1024, 4096])), 3)), _libraries(draw)
    names = ("aten::to", "aten::mul", "aten::add_")

    def work(ns: int, busy: float) -> tuple[Call, ...]:
        read = _in_libraries(base, library, int(ns * 0.7), site, draw)
        return (*read, *_ops(base, names, row, ns * (0.25 if read else busy), draw))

    return work


def _stacked(base: Base, draw: np.random.Generator) -> Work:
    kinds = (_image, _arrays)
    sample = kinds[p.pick(draw, kinds)](base, frames.site(base, _DECODERS, draw), draw)

    def work(ns: int, busy: float) -> tuple[Call, ...]:
        count = max(1, min(16, ns // _SAMPLE_NS))
        made = [c for _ in range(count) for c in sample(p.about(ns / count, draw), busy)]
        return (*made, p.op(base, "aten::stack", draw=draw, own=ns // 30 + 1))

    return work


_CHAINS: Final = (
    ("aten::to", "aten::div", "aten::sub", "aten::div"),
    ("aten::flip", "aten::pad", "aten::clamp"),
    ("aten::upsample_bilinear2d", "aten::clamp", "aten::mul"),
    ("aten::normal_", "aten::mul", "aten::add_", "aten::clamp_"),
)


def _as_one(base: Base, draw: np.random.Generator) -> Work:
    batch = p.shaped(float(draw.choice([1e6, 6e6, 2e7])), draw)
    names = _CHAINS[p.pick(draw, _CHAINS)]
    return lambda ns, busy: _ops(base, names, batch, ns * busy, draw)


def _ops(
    base: Base, names: tuple[str, ...], tensor: Tensor, ns: float, draw: np.random.Generator
) -> tuple[Call, ...]:
    """Ops on a tensor that take ``ns`` together."""
    shares = draw.dirichlet(np.full(len(names), 12.0)) * ns
    return tuple(
        p.op(base, name, tensor, draw=draw, own=int(share) + 1)
        for name, share in zip(names, shares, strict=True)
    )


def _libraries(draw: np.random.Generator) -> list[int]:
    chosen = draw.choice(len(_LIBRARY_WORK), int(draw.integers(2, 4)), replace=False)
    return sorted(int(i) for i in chosen)


def _in_libraries(
    base: Base, library: list[int], ns: int, site: str, draw: np.random.Generator
) -> tuple[Call, ...]:
    """Frames of image and array libraries, each with the built-in that does its work."""
    each, calls = ns // len(library), list[Call]()
    for i in library:
        file, function, method, of = _LIBRARY_WORK[i]
        inner = frames.builtin(base, method, (), of, p.about(each * 0.9, draw))
        calls += frames.library(base, file, function, inner, each // 10 + 1)
    return base.frame(site, tuple(calls), p.about(3_000, draw)) if calls else ()
