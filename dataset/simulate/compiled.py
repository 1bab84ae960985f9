"""A compiled training step and a decode loop: programs whose launches are not one call per op."""

from __future__ import annotations

from contextlib import nullcontext

from dataset.simulate import kernels as K
from dataset.simulate.eager import Param, Tensor
from dataset.simulate.models import Transformer
from dataset.simulate.plan import Run, stall
from dataset.simulate.training import backward

BREAK = "compile-graph-break"
CAT = "infer-kv-cat"
EAGER = "host-launch-bound"


def triton(run: Run, name: str, size: float, index: int) -> None:
    """A generated kernel, by the driver call that Triton uses."""
    e = run.e
    kernel = f"triton_{name}_{index}"
    k = K.named(e.d, kernel, size)
    args = {"kernel_backend": "triton", "num_warps": 8} if run.plan.style == "2025" else {}
    with e.m.op(kernel, args=args, pre=2.0):
        e.m.launch(kernel, k.us, k.grid, (256, 1, 1), api="cuLaunchKernel")


def _matmul(run: Run, m: int, n: int, k: int, layout: str = "tn") -> None:
    e = run.e
    dtype = e.matrix_dtype(Tensor((m, k)))
    with e.op(
        "aten::mm", Tensor((m, k), dtype.rstrip("!")), Tensor((k, n), dtype.rstrip("!")), pre=2.0
    ):
        e.launch(K.gemm(e.d, m, n, k, dtype, layout=layout))


def _block(run: Run, rows: int, dim: int, index: int, reverse: bool = False) -> None:
    size = rows * dim * 2.0
    layouts = ("nn", "nt") if reverse else ("tn",)
    heads, length = max(1, dim // 64), run.plan.length
    word = "red_fused_native_layer_norm_backward" if reverse else "per_fused_add_native_layer_norm"
    triton(run, word, 3 * size, index)
    for layout in layouts:
        _matmul(run, rows, 3 * dim, dim, layout)
    for kernel in K.attention(
        run.e.d, max(1, rows // length), heads, length, length, 64, backward=reverse
    ):
        run.e.launch(kernel)
    for layout in layouts:
        _matmul(run, rows, dim, dim, layout)
    triton(run, word, 4 * size, index + 1)
    for layout in layouts:
        _matmul(run, rows, 4 * dim, dim, layout)
    triton(run, "poi_fused_gelu_backward" if reverse else "poi_fused_gelu", 9 * size, index + 2)
    for layout in layouts:
        _matmul(run, rows, dim, 4 * dim, layout)


def region(run: Run, number: int, version: int, blocks: range, rows: int, dim: int) -> None:
    """One compiled region of the forward pass."""
    e, m = run.e, run.e.m
    with m.op(f"Torch-Compiled Region: {number}/{version}", pre=6.0):
        with m.op("TorchDynamo Cache Lookup", pre=5.0):
            pass
        with m.op("CompiledFunction", seq=m.sequence, pre=12.0):
            with m.annotation(f"## Call CompiledFxGraph f{number:02d}{run.plan.variant:08x}ab ##"):
                for i in blocks:
                    _block(run, rows, dim, 3 * i)
        seen = Tensor((rows, dim), e.amp or "float")

        def back() -> None:
            for i in reversed(blocks):
                _block(run, rows, dim, 3 * i, reverse=True)

        params = tuple(p for p in e.params[4 * blocks.start : 4 * blocks.stop])
        e.node("CompiledFunctionBackward", seen, back, *params)


def compiled_step(run: Run) -> None:
    """Forward and backward of a compiled transformer; broken into regions where the fault says."""
    p, e = run.plan, run.e
    dim = max(256, p.width)
    rows = p.scaled(2) * p.length
    share = e.modes.share.get(BREAK, 0.0)
    with e.m.frame("torch/_dynamo/eval_frame.py(736): compile_wrapper", pre=2.0):
        if share:
            _broken(run, rows, dim, share)
        else:
            region(run, 0, 0, range(p.depth * 2), rows, dim)
    run.at("between", Tensor((rows, dim), e.amp or "float"))
    e.cross_entropy(Tensor((rows, 8192), e.amp or "float"))
    run.at("loss")
    backward(e)


def _broken(run: Run, rows: int, dim: int, share: float) -> None:
    """The same blocks over several regions, with the eager remains of each break between."""
    e, m = run.e, run.e.m
    total = run.plan.depth * 2
    pieces = min(max(2, round(share * 12)), total)
    for i in range(pieces):
        part = range(total * i // pieces, total * (i + 1) // pieces)
        if i == 0:
            region(run, 0, 0, part, rows, dim)
            continue
        with m.acting(BREAK):
            m.busy(run.rng.uniform(40, 160))
            x = Tensor((rows,), "float")
            for name in ("aten::mean", "aten::add", "aten::mul"):
                e.pointwise(name, x)
            with m.frame(f"model.py({60 + i}): torch_dynamo_resume_in_forward_at_{60 + i}"):
                m.busy(run.rng.uniform(30, 120))
                if share >= 1:  # code that works on while the device has run dry
                    m.idle(stall(run, run.rng.uniform(40, 160)))
        region(run, i, 0, part, rows, dim)


def compiled_params(run: Run) -> None:
    """Four weights per block, in order, so that a region can take its own."""
    dim = max(256, run.plan.width)
    for _ in range(run.plan.depth * 2):
        for shape in ((3 * dim, dim), (dim, dim), (4 * dim, dim), (dim, 4 * dim)):
            run.e.param(*shape)


class Decoder(Transformer):
    """Token-by-token generation with a static cache: a captured graph, or eager calls."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.context = run.plan.length + run.plan.variant % 512
        self.graphs = run.plan.workload.endswith("graph")
        self.position = 0

    def token(self, run: Run) -> None:
        """One token."""
        self.position += 1
        if self.graphs and EAGER not in run.e.modes.share:
            run.e.m.graph(self._kernels(run))
            run.at("between", Tensor((run.plan.scaled(2), self.dim), run.e.amp or "float"))
        else:
            self._eager(run)
        self._sample(run)

    def _kernels(self, run: Run) -> list[tuple[str, float, K.Grid, K.Grid]]:
        d, rows = run.e.d, run.plan.scaled(2)
        dtype = run.e.amp or "float"
        out: list[K.Kernel] = []
        for _ in self.blocks:
            for n, k in (
                (3 * self.dim, self.dim),
                (self.dim, self.dim),
                (4 * self.dim, self.dim),
                (self.dim, 4 * self.dim),
            ):
                out.append(K.gemm(d, rows, n, k, dtype))
            out.append(
                K.named(
                    d,
                    f"void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<{dtype}, float>(int, float, {dtype} const*)",
                    rows * self.dim * 4,
                )
            )
            out.extend(K.attention(d, rows, self.heads, 1, self.context + self.position, 64))
        out.append(K.gemm(d, rows, self.vocab, self.dim, dtype))
        return [(k.name, k.us, k.grid, k.block) for k in out]

    def _eager(self, run: Run) -> None:
        e = run.e
        rows = run.plan.scaled(2)
        launch_bound = EAGER in e.modes.share
        x = e.embedding(self.table, rows)
        x = Tensor((rows, 1, self.dim), e.amp or "float")
        with run.m.acting(EAGER) if launch_bound else nullcontext():
            for block in self.blocks:
                self._norm(run, x, block["norm1"], launch_bound)
                with e.module("Attention"):
                    e.linear(x, *block["qkv"])
                    self._cache(run, rows)
                    e.attention(rows, self.heads, 1, 64, self.context + self.position)
                    e.linear(x, *block["out"])
                e.add(x)
                self._norm(run, x, block["norm2"], launch_bound)
                with e.module("MLP"):
                    hidden = e.linear(x, *block["up"])
                    e.gelu(hidden)
                    if "infer-autograd" in e.modes.share:
                        e.dropout(hidden)
                    e.linear(hidden, *block["down"])
                e.add(x)
                run.at("between", x)
        e.linear(x, self.head)

    def _norm(self, run: Run, x: Tensor, pair: tuple[Param, Param], in_pieces: bool) -> None:
        e = run.e
        if not in_pieces:
            e.layer_norm(x, *pair)
            return
        for name in (
            "aten::pow",
            "aten::mean",
            "aten::add",
            "aten::rsqrt",
            "aten::mul",
            "aten::mul",
        ):
            e.pointwise(name, x)

    def _cache(self, run: Run, rows: int) -> None:
        """Write the new key and value: in place, or by growing both with cat."""
        e = run.e
        new = Tensor((rows, self.heads, 1, 64), e.amp or "float")
        length = self.context + self.position
        for _ in range(2):
            if CAT in e.modes.share:
                old = Tensor((rows, self.heads, length, 64), new.dtype)
                width = K.BYTES[new.dtype]
                name = f"void at::native::(anonymous namespace)::CatArrayBatchedCopy_aligned16_contig<at::native::(anonymous namespace)::OpaqueType<{width}u>, unsigned int, 4, 128, 1>(at::native::(anonymous namespace)::OpaqueType<{width}u>*)"
                with run.m.acting(CAT), e.op("aten::cat", old, new, pre=3.0):
                    e.launch(K.named(e.d, name, 2.0 * old.size * e.modes.share[CAT], threads=512))
            else:
                with e.op("aten::index_copy_", new, pre=2.0):
                    e.launch(
                        K.named(
                            e.d,
                            f"void at::native::index_elementwise_kernel<128, 4, at::native::index_copy_kernel_impl<{new.dtype}> >(long)",
                            3.0 * new.size,
                        )
                    )

    def _sample(self, run: Run) -> None:
        e = run.e
        logits = Tensor((run.plan.scaled(2), self.vocab), e.amp or "float")
        with e.op("aten::argmax", logits):
            e.launch(K.reduction(e.d, "max", logits.elems, logits.dtype, logits.shape[0]))
        with e.op("aten::copy_", Tensor((logits.shape[0],), "long int")):
            e.launch(K.pointwise(e.d, "copy_", logits.shape[0], "long int", 2))
