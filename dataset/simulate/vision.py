"""Convolution, batch norm, pooling and resizing, as `Eager` leaves them."""

from __future__ import annotations

from dataset.simulate import kernels as K
from dataset.simulate.eager import Eager, Param, Tensor

LAYOUT = "memory-layout-transform"
BIAS = "compute-conv-bias-batchnorm"


def conv(
    e: Eager,
    x: Tensor,
    w: Param,
    stride: int = 1,
    bias: Param | None = None,
    norm_next: bool = False,
) -> Tensor:
    """``F.conv2d``; ``w`` is [out, in, k, k] and ``x`` is [n, c, h, w]."""
    n, channels, height, width = x.shape
    out_channels, _, side, _ = w.shape
    dtype = e.matrix_dtype(x)
    real = "float" if dtype == "float!" else dtype
    out = Tensor((n, out_channels, max(1, height // stride), max(1, width // stride)), real)
    flop = 2.0 * out.elems * channels * side * side
    size = x.elems * K.BYTES[real] + out.size + w.elems * K.BYTES[real]
    transposed = e.modes.on(LAYOUT, e.layer) and dtype != "float!"
    biased = norm_next and e.modes.on(BIAS, e.layer)
    seen = Tensor(x.shape, real)
    backend = "miopen" if e.d.is_rocm else "cudnn"
    with e.op("aten::conv2d", x, w, seq=True):
        weight = Tensor(w.shape, "float") if dtype == "float!" else e.weight(w)
        with e.op("aten::convolution", x, weight, seq=True, pre=1.5):
            with e.op("aten::_convolution", x, weight, pre=2.0):
                with e.op(f"aten::{backend}_convolution", x, weight, pre=9.0):
                    e.empty()
                    e.m.api("cudaEventRecord", 0.5)
                    _change(e, seen, real, True, transposed)
                    if channels <= 4 and not transposed and dtype != "float!":
                        e.launch(K.layout_change(e.d, seen.size, real, True))  # the input image
                    _pass(e, "fprop", flop, size, dtype, stride)
                    _change(e, out, real, False, transposed)
                if bias or biased:
                    _bias_add(e, out, biased)

    def back() -> None:
        with e.op("aten::convolution_backward", out, seen, weight, pre=8.0):
            if bias or biased:
                with e.maybe_acting(BIAS, biased):
                    e.launch(K.reduction(e.d, "sum", out.elems, real, out_channels))
            _change(e, out, real, True, transposed)
            _pass(e, "dgrad", flop, size, dtype, stride)
            _change(e, seen, real, False, transposed)
            e.empty()
            _change(e, seen, real, True, transposed)
            if e.m.rng.random() < 0.35:
                e.m.memset(w.size)
            _pass(e, "wgrad", flop, size, dtype, stride)
        if e.amp and dtype != "float!" and w.dtype != e.amp:
            e.cast(Tensor(w.shape, e.amp), "float")

    e.node("ConvolutionBackward0", out, back, *((w, bias) if bias else (w,)))
    return out


def _pass(e: Eager, kind: str, flop: float, size: float, dtype: str, stride: int) -> None:
    with e.maybe_acting("compute-fp32-matmul", dtype == "float!"):
        e.launch(K.conv(e.d, kind, flop, size, dtype, stride))


def _change(e: Eager, x: Tensor, dtype: str, to_nhwc: bool, when: bool) -> None:
    if when:
        with e.maybe_acting(LAYOUT, True):
            e.launch(K.layout_change(e.d, x.elems * K.BYTES[dtype], dtype, to_nhwc))


def _bias_add(e: Eager, out: Tensor, faulty: bool) -> None:
    with e.op("aten::reshape", out, pre=0.8):
        pass
    with e.maybe_acting(BIAS, faulty), e.op("aten::add_", out):
        e.launch(K.strided(e.d, "add_", out.elems, out.dtype, 2))


def batch_norm(e: Eager, x: Tensor, w: Param, b: Param, training: bool = True) -> Tensor:
    """Batch norm by cuDNN or PyTorch's own kernels; counts its batches in training."""
    if training:
        counter = Tensor((), "long int")
        with e.op("aten::add_", counter):
            e.launch(K.pointwise(e.d, "add_", 1, "long int", 2))
    cudnn = not e.d.is_rocm and e.d.capability[0] < 9
    inner = "aten::cudnn_batch_norm" if cudnn else "aten::native_batch_norm"
    with e.op("aten::batch_norm", x, w, b, seq=True):
        with e.op("aten::_batch_norm_impl_index", x, w, b, pre=1.5), e.op(inner, x, w, b, pre=4.0):
            e.empty()
            for name, traffic in _norm_kernels(cudnn, x, training):
                e.launch(K.named(e.d, name, traffic * x.size, blocks=max(x.shape[1], 32)))
    node = "CudnnBatchNormBackward0" if cudnn else "NativeBatchNormBackward0"

    def back() -> None:
        with e.op(inner + "_backward", x, w, pre=4.0):
            name = (
                "void cudnn::bn_bw_1C11_kernel_new<__half, float, float2, 512, true, 1>(float, float)"
                if cudnn
                else "void at::native::batch_norm_backward_elemt_channels_last_kernel<4, c10::BFloat16, float>(c10::BFloat16 const*)"
            )
            e.launch(K.named(e.d, name, 4.2 * x.size, blocks=max(x.shape[1], 32)))

    e.node(node, x, back, w, b)
    return x


def _norm_kernels(cudnn: bool, x: Tensor, training: bool) -> list[tuple[str, float]]:
    t = x.dtype
    if not training:
        return [
            (
                f"void at::native::batch_norm_transform_input_channels_last_kernel<{t}, {t}, float, 4>({t} const*)",
                2.1,
            )
        ]
    if cudnn:
        return [
            (
                "void cudnn::bn_fw_tr_1C11_kernel_NCHW<__half, float, 512, true, 1>(cudnnTensorStruct, __half const*)",
                3.1,
            )
        ]
    return [
        (
            f"void at::native::batch_norm_collect_statistics_channels_last_kernel<at::native::Var, {t}, float, 4>({t} const*)",
            1.1,
        ),
        (
            f"void at::native::batch_norm_transform_input_channels_last_kernel<{t}, {t}, float, 4>({t} const*)",
            2.1,
        ),
    ]


def pool(e: Eager, x: Tensor, factor: int = 2) -> Tensor:
    """Max pooling."""
    out = x.like(x.shape[0], x.shape[1], max(1, x.shape[2] // factor), max(1, x.shape[3] // factor))
    with e.op("aten::max_pool2d", x, seq=True):
        with e.op("aten::max_pool2d_with_indices", x, pre=2.0):
            name = f"void at::native::(anonymous namespace)::max_pool_forward_nhwc<{x.dtype}>({x.dtype} const*, int)"
            e.launch(K.named(e.d, name, x.size + 3 * out.size))
    e.node(
        "MaxPool2DWithIndicesBackward0",
        x,
        lambda: e._back("aten::max_pool2d_with_indices_backward", x, 1.6),
    )
    return out


def global_pool(e: Eager, x: Tensor) -> Tensor:
    """Adaptive average pooling to 1x1, flattened."""
    with e.op("aten::adaptive_avg_pool2d", x, seq=True), e.op("aten::mean", x):
        e.launch(K.reduction(e.d, "mean", x.elems, x.dtype, x.shape[0] * x.shape[1] // 32 + 1))
    e.node("MeanBackward1", x, lambda: e._back("aten::div", x, 1.2))
    return e.view("aten::flatten", x, x.shape[0], x.shape[1])


def upsample(e: Eager, x: Tensor) -> Tensor:
    """Nearest upsampling by two."""
    out = x.like(x.shape[0], x.shape[1], x.shape[2] * 2, x.shape[3] * 2)
    with e.op("aten::upsample_nearest2d", x, seq=True):
        name = f"void at::native::(anonymous namespace)::upsample_nearest2d_nhwc_out_frame<{x.dtype}, &at::native::nearest_neighbor_compute_source_index>({x.dtype} const*, {x.dtype}*)"
        e.launch(K.named(e.d, name, x.size + out.size))
    e.node(
        "UpsampleNearest2DBackward0",
        out,
        lambda: e._back("aten::upsample_nearest2d_backward", out, 1.3),
    )
    return out


def concat(e: Eager, x: Tensor, y: Tensor, dim: int = 1) -> Tensor:
    """``torch.cat`` of two tensors along ``dim``; a copy of both."""
    shape = list(x.shape)
    shape[dim] += y.shape[dim]
    out = x.like(*shape)
    with e.op("aten::cat", x, y, seq=True, pre=3.0):
        name = f"void at::native::(anonymous namespace)::CatArrayBatchedCopy_aligned16_contig<at::native::(anonymous namespace)::OpaqueType<{K.BYTES[x.dtype]}u>, unsigned int, {len(shape)}, 128, 1>(at::native::(anonymous namespace)::OpaqueType<{K.BYTES[x.dtype]}u>*)"
        e.launch(K.named(e.d, name, 2 * out.size, threads=512))

    def back() -> None:
        for part in (x, y):
            e.view("aten::narrow", part, *part.shape)

    e.node("CatBackward0", out, back)
    return out


def conv_block(
    e: Eager, x: Tensor, weights: tuple[Param, Param, Param], stride: int = 1, act: bool = True
) -> Tensor:
    """conv, batch norm, ReLU as modules."""
    with e.module("Conv2d"):
        x = conv(e, x, weights[0], stride, norm_next=True)
    with e.module("BatchNorm2d"):
        x = batch_norm(e, x, weights[1], weights[2], training=e.grad)
    if act:
        with e.module("ReLU"):
            x = e.relu(x)
    return x


def conv_params(e: Eager, channels: int, out: int, side: int = 3) -> tuple[Param, Param, Param]:
    """Weights of a `conv_block`."""
    return e.param(out, channels, side, side), e.param(out), e.param(out)
