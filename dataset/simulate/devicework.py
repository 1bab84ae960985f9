"""Faulty device code: needless copies and casts, small grids, chains of small ops, collectives."""

from __future__ import annotations

from dataset.simulate import kernels as K
from dataset.simulate.eager import Tensor
from dataset.simulate.plan import Run
from dataset.simulate.ranks import collective

MOST = 24  # kernels of one act
SMALL_MODEL = 8_000_000  # parameters below which a loop may reduce each tensor alone


def _sized(run: Run, x: Tensor, us: float, traffic: float) -> Tensor:
    """``x``, or as much of it as ``us`` µs of ``traffic`` tensors per element allow."""
    width = K.BYTES[x.dtype]
    rate = run.e.d.bandwidth * 0.7
    most = int(us * rate / (traffic * width))
    least = max(4_096, most // MOST)
    return x.like(max(least, min(x.elems, most)))


def redundant_copy(run: Run, x: Tensor, us: float) -> None:
    """``contiguous``, ``clone`` and ``cat`` of activations."""
    e = run.e
    part = _sized(run, x, us, 3.4)
    kind = run.rng.choice(("aten::contiguous", "aten::clone", "aten::cat"))
    begin, count = e.m.tail(e.d.stream), 0
    with e.m.acting("memory-redundant-copy"):
        while count < MOST and (not count or e.m.tail(e.d.stream) - begin < us):
            count += 1
            if kind == "aten::cat":
                with e.op(kind, part, part, seq=True, pre=3.0):
                    name = f"void at::native::(anonymous namespace)::CatArrayBatchedCopy_contig<at::native::(anonymous namespace)::OpaqueType<{K.BYTES[part.dtype]}u>, unsigned int, 2, 128, 1>(at::native::(anonymous namespace)::OpaqueType<{K.BYTES[part.dtype]}u>*)"
                    e.launch(K.named(e.d, name, 2.0 * part.size, threads=512))
                continue
            with e.op(kind, part, seq=True), e.op("aten::clone", part):
                e.empty("aten::empty_like")
                with e.op("aten::copy_", part):
                    if kind == "aten::clone":
                        e.m.copy("DtoD", part.size, wait=False)
                    else:
                        e.launch(K.strided(e.d, "copy_", part.elems, part.dtype))


def dtype_churn(run: Run, x: Tensor, us: float) -> None:
    """The same tensor to fp32 and back."""
    e = run.e
    part = _sized(run, x, us, 1.5)
    half = e.d.half_type
    begin, count = e.m.tail(e.d.stream), 0
    with e.m.acting("memory-dtype-churn"):
        while count < MOST and (not count or e.m.tail(e.d.stream) - begin < us):
            count += 1
            e.cast(Tensor(part.shape, half), "float")
            e.pointwise(
                run.rng.choice(("aten::mul", "aten::add")), Tensor(part.shape, "float")
            ) if count % 3 == 0 else None
            e.cast(Tensor(part.shape, "float"), half)


def underfilled(run: Run, x: Tensor, us: float) -> None:
    """Work on a handful of blocks: thin products over a long inner side, scans of one row."""
    e = run.e
    scan = run.rng.random() < 0.4
    blocks = run.rng.randint(1, max(2, e.d.units // 12))
    each = max(9.0 * run.plan.host, us / run.rng.randint(2, 10))
    dtype = e.amp or "float"
    count = max(1, min(MOST, round(us / each)))
    with e.m.acting("compute-underfilled"):
        for _ in range(count):
            long = int(8_192 * max(1, each / 20))
            if scan:
                t = Tensor((blocks, long), "float")
                with e.op("aten::cumsum", t, seq=True), e.op("aten::_cumsum_helper", t):
                    name = "void at::native::tensor_kernel_scan_innermost_dim<float, std::plus<float> >(float*, float const*, unsigned int, unsigned int, unsigned int, float)"
                    e.m.launch(name, each, (blocks, 1, 1), (32, 16, 1))
                continue
            a, b = Tensor((64 * blocks, long), dtype), Tensor((long, 64), dtype)
            with e.op("aten::mm", a, b, seq=True, pre=3.0):
                k = K.gemm(e.d, 64 * blocks, 64, long, dtype)
                e.m.launch(k.name, each, (blocks, 1, 1), k.block, api=k.api)


_CHAINS = (
    ("aten::pow", "aten::mean", "aten::add", "aten::rsqrt", "aten::mul", "aten::mul"),
    ("aten::neg", "aten::cat", "aten::mul", "aten::mul", "aten::add"),
    ("aten::pow", "aten::mul", "aten::add", "aten::mul", "aten::tanh", "aten::add", "aten::mul"),
    ("aten::sub", "aten::abs", "aten::clamp", "aten::mul", "aten::exp", "aten::add"),
)


def unfused_elementwise(run: Run, x: Tensor, us: float) -> None:
    """A norm, activation or rotation written op by op."""
    e = run.e
    chain = run.rng.choice(_CHAINS)
    part = _sized(run, x, us, 2.5 * len(chain))
    begin, count = e.m.tail(e.d.stream), 0
    with e.m.frame(run.place()), e.m.acting("compute-unfused-elementwise"):
        while not count or (e.m.tail(e.d.stream) - begin < us and count < MOST):
            for name in chain:
                count += 1
                e.pointwise(name, part, tensors=2.5)


def small_collectives(run: Run, x: Tensor, us: float) -> None:
    """Many reductions of little: each gradient alone, or statistics one by one."""
    e, m = run.e, run.m
    assert run.ranks is not None
    begin = max(m.tail(), m.now)
    sizes = [min(p.elems, 200_000) for p in e.params]
    if sum(p.elems for p in e.params) >= SMALL_MODEL:
        sizes = [run.rng.choice((1, 256, 4_096, 65_536)) for _ in range(60)]
    with m.acting("comm-small-collectives"):
        for count in range(90):
            if count >= 8 and m.tail() - begin > us:
                break
            collective(e, run.ranks, "allreduce", sizes[count % len(sizes)], in_line=True)
