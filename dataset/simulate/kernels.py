"""What kernels are called on each device, how large their grids are, how long they take.

Names follow the shapes of names that cuBLAS, cuDNN, PyTorch and their ROCm counterparts give;
durations come from a roofline of the device profile.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dataset.simulate.devices import Device

Grid = tuple[int, int, int]
HALF = ("c10::BFloat16", "c10::Half")
BYTES = {"float": 4, "c10::BFloat16": 2, "c10::Half": 2, "long int": 8, "bool": 1, "double": 8}


@dataclass(frozen=True)
class Kernel:
    """A kernel to launch: name, µs, grid, block, and the call that launches it."""

    name: str
    us: float
    grid: Grid
    block: Grid
    api: str = "cudaLaunchKernel"


def _short(dtype: str) -> str:
    return {"c10::BFloat16": "bf16", "c10::Half": "f16"}.get(dtype, "f32")


# -- matrix work -------------------------------------------------------------------------------
def _cuda_gemm_name(d: Device, dtype: str, layout: str, align: int, tile: str) -> str:
    major = d.capability[0]
    if dtype == "float!":  # full fp32, tensor cores not allowed
        if major <= 7:
            return f"volta_sgemm_{tile}_{layout}"
        if major == 8:
            return f"ampere_sgemm_{tile}_{layout}"
        if major == 9:
            return (
                f"sm80_xmma_gemm_f32f32_f32f32_f32_{layout[0]}_{layout[1]}_tilesize{tile}x8_stage3"
                "_warpsize2x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas"
            )
        return f"cutlass_80_simt_sgemm_{tile}_8x5_{layout}_align1"
    if dtype == "float":
        if align < 4:
            return (
                f"void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_{tile}_16x5_{layout}"
                f"_align{align}>(cutlass_80_tensorop_s1688gemm_{tile}_16x5_{layout}_align{align}"
                "::Params)"
            )
        prefix = "sm90" if major >= 9 else "sm80"
        return (
            f"{prefix}_xmma_gemm_f32f32_tf32f32_f32_{layout[0]}_{layout[1]}_tilesize{tile}x16"
            "_stage4_warpsize2x2x1_tensor16x8x8_kernel"
        )
    half = _short(dtype)
    long = "bf16" if half == "bf16" else "fp16"
    if align < 8 and major >= 8:
        shape = f"cutlass_80_tensorop_{half}_s16816gemm_{half}_{tile}_32x5_{layout}_align{align}"
        return f"void cutlass::Kernel2<{shape}>({shape}::Params)"
    if major == 7 and d.capability[1] == 0:
        if align < 8:
            return f"volta_fp16_sgemm_fp16_{tile}_{layout}"
        return f"volta_fp16_s884gemm_fp16_{tile}_ldg8_f2f_{layout}"
    if major == 7:
        ldg = "ldg8" if align >= 8 else "ldg1"
        return f"turing_fp16_s1688gemm_fp16_{tile}_{ldg}_f2f_{layout}"
    if major == 8:
        return f"ampere_{long}_s16816gemm_{long}_{tile}_ldg8_f2f_stages_64x3_{layout}"
    if major == 9 and layout == "tn":
        return (
            f"sm90_xmma_gemm_{half}{half}_{half}f32_f32_tn_n_tilesize{tile}x64"
            "_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas"
        )
    letters = {"tn": "TNT", "nn": "NNT", "nt": "NTT"}[layout]
    cta = "_2cta" if major >= 10 else ""
    return f"nvjet_tst_{tile}_64x4_2x1{cta}_v_bz_coopA_{letters}"


def _rocm_gemm_name(d: Device, dtype: str, layout: str, align: int, tile: str) -> str:
    ends = {"tn": "Alik_Bljk", "nn": "Ailk_Bljk", "nt": "Ailk_Bjlk"}[layout]
    if dtype in HALF:
        kind = "BBS_BH" if dtype == "c10::BFloat16" else "HHS_BH"
        mi, vw = "MI16x16x1", 8 if align >= 8 else 1
        return f"Cijk_{ends}_{kind}_Bias_HAS_SAV_UserArgs_MT{tile}x64_{mi}_SN_GRVWA{vw}_GRVWB{vw}"
    mi = "MI16x16x1" if dtype == "float" else "MAC"
    return f"Cijk_{ends}_SB_MT{tile}x16_{mi}_SE_K1_GRVW{4 if align >= 4 else 1}"


def alignment(*sides: int) -> int:
    """The widest power of two, up to 8, that divides every side."""
    return next(a for a in (8, 4, 2, 1) if all(s % a == 0 for s in sides))


def matrix_rate(d: Device, dtype: str) -> float:
    """Peak flop/µs of matrix work; ``float!`` is fp32 with TF32 forbidden."""
    if dtype in HALF:
        return d.half
    return d.fp32 if dtype == "float!" else d.tensor32


def gemm(
    d: Device, m: int, n: int, k: int, dtype: str, *, layout: str = "tn", batch: int = 1
) -> Kernel:
    """A (batched) matrix product of m x k by k x n."""
    align = alignment(k, n)
    small = m * n < 256 * 256
    tile_m, tile_n = (64, 64) if small else (128, 128 if n >= 128 else 64)
    blocks = math.ceil(m / tile_m) * math.ceil(n / tile_n) * batch
    waves = math.ceil(blocks / d.units)
    full = 2.0 * tile_m * tile_n * k * d.units  # one wave
    reach = 0.72 if dtype != "float!" else 0.85
    compute = waves * full / (matrix_rate(d, dtype) * reach)
    width = 2 if dtype in HALF else 4
    traffic = batch * (m * k + k * n + m * n) * width / (d.bandwidth * 0.8)
    us = max(compute, traffic) + 1.5
    if align < 8 and dtype in HALF:
        us *= {4: 1.25, 2: 1.6, 1: 2.4}[align]
    elif align < 4 and dtype == "float":
        us *= {2: 1.3, 1: 1.7}[align]
    tile = f"{tile_m}x{tile_n}"
    name = (_rocm_gemm_name if d.is_rocm else _cuda_gemm_name)(d, dtype, layout, align, tile)
    extended = d.capability[0] >= 9 and dtype in HALF
    api = "cudaLaunchKernelExC" if extended or d.is_rocm else "cudaLaunchKernel"
    threads = 384 if extended and not d.is_rocm else (128 if small else 256)
    grid = (math.ceil(m / tile_m), math.ceil(n / tile_n), batch)
    return Kernel(name, us, grid, (threads, 1, 1), api)


_CONV = {
    "fprop": "fprop_implicit_gemm",
    "dgrad": "dgrad_implicit_gemm",
    "wgrad": "wgrad_implicit_gemm",
}


def conv(d: Device, kind: str, flop: float, size: float, dtype: str, side: int) -> Kernel:
    """A convolution pass (``kind`` fprop, dgrad, wgrad); ``size`` is its traffic in bytes."""
    reach = {"fprop": 0.5, "dgrad": 0.45, "wgrad": 0.4}[kind]
    us = max(flop / (matrix_rate(d, dtype) * reach), size / (d.bandwidth * 0.75)) + 2.0
    blocks = max(8, int(size / BYTES.get(dtype.rstrip("!"), 4) / (128 * 128)))
    return Kernel(_conv_name(d, kind, dtype, side), us, (blocks, 1, 1), (256, 1, 1))


def _conv_name(d: Device, kind: str, dtype: str, side: int) -> str:
    if d.is_rocm:
        short = {"fprop": "fwd", "dgrad": "bwd", "wgrad": "wrw"}[kind]
        if dtype == "float!":
            return f"miopenSp3AsmConv_v30_3_1_gfx9_fp32_f3x2_stride{side}"
        word = {"c10::BFloat16": "bf16", "c10::Half": "fp16"}.get(dtype, "fp32")
        return f"igemm_{short}_gtcx3_nhwc_{word}_bx0_ex1_bt128x128x32_wt32x32x8_ws1x1_wr2x2"
    major = d.capability[0]
    word = _CONV[kind]
    if dtype == "float!":
        if major <= 7:
            return f"volta_scudnn_128x64_{'relu' if kind == 'fprop' else 'stridedB'}_medium_nn_v1"
        if major == 8:
            return f"ampere_scudnn_128x64_{'relu' if kind == 'fprop' else 'stridedB'}_medium_nn_v1"
        return (
            f"void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, {side}, false, false,"
            " true>(int, int, int, float const*, int, float*, float const*, kernel_conv_params)"
        )
    if dtype == "float":
        return (
            f"sm80_xmma_{word}_indexed_tf32f32_tf32f32_f32_nhwckcrs_nhwc_tilesize128x128x16"
            "_stage4_warpsize2x2x1_g1_tensor16x8x8_kernel_cudnn"
        )
    half = _short(dtype)
    if major == 7:
        arch = "turing" if d.capability[1] else "volta"
        s = "s1688" if d.capability[1] else "s884"
        return f"{arch}_fp16_{s}cudnn_fp16_256x64_ldg8_{'relu' if kind == 'fprop' else word[:5]}_f2f_exp_small_nhwc_tn_v1"
    arch = "sm90" if major >= 9 else "sm80"
    return (
        f"{arch}_xmma_{word}_indexed_{half}{half}_{half}f32_f32_nhwckrsc_nhwc_tilesize128x128x32"
        "_stage4_warpsize2x2x1_g1_tensor16x8x16_execute_kernel__5x_cudnn"
    )


def layout_change(d: Device, size: int, dtype: str, to_nhwc: bool) -> Kernel:
    """NCHW to NHWC or back, ``size`` bytes one way."""
    us = 2.2 * size / (d.bandwidth * 0.7) + 1.5
    elems = size // BYTES[dtype]
    if d.is_rocm:
        name = (
            f"batched_transpose_32x{32 if to_nhwc else 16}_{'half' if dtype in HALF else 'dword'}"
        )
    else:
        c = {"c10::BFloat16": "__nv_bfloat16", "c10::Half": "__half"}.get(dtype, "float")
        one, two = ("nchw", "Nhwc") if to_nhwc else ("nhwc", "Nchw")
        flags = "false, true" if to_nhwc else "true, false"
        name = (
            f"void cudnn::ops::{one}To{two}Kernel<{c}, {c}, float, {flags},"
            f" (cudnnKernelDataType_t)2>(cudnn::ops::{one}2{two.lower()}_params_t<float>, {c} const*, {c}*)"
        )
    return Kernel(name, us, (max(1, elems // 4096), 1, 1), (256, 1, 1))


# -- memory-bound work -------------------------------------------------------------------------
def _c_type(dtype: str) -> str:
    return {"long int": "long"}.get(dtype, dtype)


_FUNCTORS = {
    "add": "CUDAFunctor_add<{t}>",
    "add_": "CUDAFunctor_add<{t}>",
    "mul": "BinaryFunctor<{t}, {t}, {t}, at::native::binary_internal::MulFunctor<float> >",
    "mul_": "AUnaryFunctor<{t}, {t}, {t}, at::native::binary_internal::MulFunctor<float> >",
    "div": "BinaryFunctor<{t}, {t}, {t}, at::native::binary_internal::DivFunctor<float> >",
    "sub": "CUDAFunctor_add<{t}>",
    "relu": "(anonymous namespace)::launch_clamp_scalar(at::TensorIteratorBase&, c10::Scalar,"
    " c10::Scalar, at::native::detail::ClampLimits)::{{lambda()#1}}::operator()() const::"
    "{{lambda({t})#1}}",
    "threshold_backward": "BinaryFunctor<{t}, {t}, {t}, at::native::(anonymous namespace)::"
    "threshold_kernel_impl<{t}>(at::TensorIteratorBase&, {t}, {t})::{{lambda({t}, {t})#1}}>",
    "fill_": "FillFunctor<{t}>",
    "copy_": "direct_copy_kernel_cuda(at::TensorIteratorBase&)::{{lambda()#3}}::operator()() const"
    "::{{lambda({t})#1}}",
    "cast": "bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)::{{lambda(float)#1}}",
}


def pointwise(d: Device, op: str, elems: int, dtype: str, tensors: float = 3.0) -> Kernel:
    """An elementwise kernel that reads and writes ``tensors`` tensors of ``elems`` in all."""
    width = BYTES[dtype]
    us = elems * width * tensors / (d.bandwidth * 0.76) + 1.0
    functor = _FUNCTORS.get(
        op,
        op + "_kernel_cuda(at::TensorIteratorBase&)::{{lambda()#2}}::"
        "operator()() const::{{lambda({t})#1}}",
    ).format(t=_c_type(dtype))
    vec = 8 if width == 2 and d.capability[0] >= 9 else 4
    arrays = max(1, math.ceil(tensors))
    array = (
        f"std::array<char*, {arrays}ul>"
        if d.capability[0] >= 8
        else f"at::detail::Array<char*, {arrays}>"
    )
    name = (
        f"void at::native::vectorized_elementwise_kernel<{vec}, at::native::{functor}, {array} >"
        f"(int, at::native::{functor}, {array})"
    )
    return Kernel(name, us, (max(1, math.ceil(elems / 512)), 1, 1), (128, 1, 1))


def strided(d: Device, op: str, elems: int, dtype: str, tensors: float = 2.0) -> Kernel:
    """An elementwise kernel over non-contiguous memory: slower, its own name."""
    base = pointwise(d, op, elems, dtype, tensors)
    functor = (
        base.name.split("at::native::", 2)[2].split(", std::array")[0].split(", at::detail")[0]
    )
    name = (
        f"void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::"
        f"{functor} >(at::TensorIteratorBase&, at::native::{functor} const&)::"
        "{lambda(int)#1}>(int, at::native::gpu_kernel_impl_nocast)"
    )
    return Kernel(name, base.us * 1.7, base.grid, (128, 1, 1))


def reduction(d: Device, op: str, elems: int, dtype: str, rows: int = 64) -> Kernel:
    """A reduction over ``elems`` values into ``rows``."""
    t = _c_type(dtype)
    us = elems * BYTES[dtype] / (d.bandwidth * 0.7) + 2.2
    ops = {
        "sum": f"func_wrapper_t<{t}, at::native::sum_functor<{t}, float, {t}>::operator()"
        "(at::TensorIterator&)::{lambda(float, float)#1}>",
        "mean": f"MeanOps<{t}, float, float, float>",
        "max": f"MaxOps<{t}>",
        "norm": "NormTwoOps<float, float, float>",
    }
    inner = ops.get(op, ops["sum"])
    name = (
        f"void at::native::reduce_kernel<512, 1, at::native::ReduceOp<{t}, at::native::{inner},"
        f" unsigned int, {t}, 4> >(at::native::ReduceOp<{t}, at::native::{inner}>)"
    )
    return Kernel(name, us, (max(1, min(rows, 4096)), 1, 1), (32, 16, 1))


def named(d: Device, name: str, size: float, blocks: int = 0, threads: int = 256) -> Kernel:
    """A memory-bound kernel that moves ``size`` bytes, under a name of its own."""
    us = size / (d.bandwidth * 0.72) + 1.4
    return Kernel(name, us, (blocks or max(1, int(size // 8192)), 1, 1), (threads, 1, 1))


def multi_tensor(d: Device, op: str, size: float, tensors: int) -> Kernel:
    """One ``_foreach_`` or fused optimizer launch over ``tensors`` tensors, ``size`` bytes moved."""
    lists = {"add_": 2, "mul_": 1, "addcmul_": 3, "addcdiv_": 3, "sqrt": 2, "fused": 4, "lerp_": 2}
    n = lists.get(op, 2)
    inner = {
        "fused": "FusedAdamMathFunctor<float, 4, (at::native::ADAM_MODE)1, false>",
        "sqrt": "UnaryOpFunctor<float, 2, 1, 1>, at::native::Sqrt<float>",
    }.get(op, f"BinaryOpListAlphaFunctor<float, {n}, {n}, 0>")
    name = (
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous"
        f" namespace)::TensorListMetadata<{n}>, at::native::(anonymous namespace)::{inner} >"
        f"(at::native::(anonymous namespace)::TensorListMetadata<{n}>, float, float)"
    )
    us = size / (d.bandwidth * 0.78) + 2.5
    return Kernel(name, us, (max(1, min(320, int(size // 262_144))), 1, 1), (512, 1, 1))


# -- attention ---------------------------------------------------------------------------------
def attention(
    d: Device, batch: int, heads: int, length: int, keys: int, dim: int, *, backward: bool = False
) -> list[Kernel]:
    """Fused attention: one forward kernel, or the three of the backward pass."""
    flop = 4.0 * batch * heads * length * keys * dim * (2.5 if backward else 1.0)
    us = max(flop / (d.half * 0.5), 4 * batch * heads * keys * dim * 2 / (d.bandwidth * 0.8)) + 4
    grid = (max(1, math.ceil(length / 128)), heads, batch)
    small = batch * heads * length * dim * 4
    traits = f"pytorch_flash::Flash_{{}}_kernel_traits<{dim}, 128, 64, 4, false, false, cutlass::bfloat16_t>"
    if d.is_rocm:
        names = (
            ["bwd_preprocess", "bwd_kernel_dk_dv", "bwd_kernel_dq"] if backward else ["attn_fwd"]
        )
    elif d.capability[0] == 7:
        arch = "sm75" if d.capability[1] else "sm70"
        names = [
            f"fmha_cutlass{'B' if backward else 'F'}_f16_aligned_64x64_k{dim}_{arch}(PyTorchMemEffAttention::Params)"
        ]
    elif backward:
        t = traits.format("bwd")
        names = [
            f"void pytorch_flash::flash_bwd_dot_do_o_kernel<true, {t} >(pytorch_flash::Flash_bwd_params)",
            f"void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<{t}, false, true>(pytorch_flash::Flash_bwd_params)",
            f"void pytorch_flash::flash_bwd_convert_dq_kernel<{t} >(pytorch_flash::Flash_bwd_params, int)",
        ]
    else:
        names = [
            f"void pytorch_flash::flash_fwd_kernel<{traits.format('fwd')}, false, true>(pytorch_flash::Flash_fwd_params)"
        ]
    main = len(names) // 2
    side = Kernel("", small / (d.bandwidth * 0.7) + 1.5, grid, (256, 1, 1))
    return [
        Kernel(n, us if i == main else side.us, grid, (128 if i == main else 256, 1, 1))
        for i, n in enumerate(names)
    ]
