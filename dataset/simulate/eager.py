"""PyTorch's eager mode on the machine: matrix work, attention, norms, losses, tables."""

from __future__ import annotations

from contextlib import contextmanager

from dataset.simulate import kernels as K
from dataset.simulate.calls import Calls, Modes, Node, Param, Tensor

__all__ = ["Eager", "Modes", "Node", "Param", "Tensor"]


class Eager(Calls):
    """The calls of a program."""

    # -- matrix work ------------------------------------------------------------------------
    def matrix_dtype(self, x: Tensor) -> str:
        """dtype in the kernel tables' words; full fp32 where TF32 is off for this layer."""
        if self.modes.on("compute-fp32-matmul", self.layer):
            return "float!"
        if self.amp:
            return self.amp
        return x.dtype

    def linear(self, x: Tensor, w: Param, bias: Param | None = None) -> Tensor:
        """``F.linear``; ``w`` is [out, in]."""
        out_features, features = w.shape
        odd = self.modes.on("compute-misaligned-gemm", self.layer)
        if odd:
            out_features, features = out_features - 3, features - 1
        rows = x.elems // x.shape[-1]
        dtype = self.matrix_dtype(x)
        full = dtype == "float!"
        real = "float" if full else dtype
        d = self.d
        out = Tensor((*x.shape[:-1], out_features), real)
        slow = full or odd
        mark = "compute-fp32-matmul" if full else "compute-misaligned-gemm"
        with self.op("aten::linear", x, w, seq=True):
            weight = Tensor(w.shape, "float") if full else self.weight(w)
            with self.op("aten::t", weight, pre=0.7), self.op("aten::transpose", weight, pre=0.6):
                with self.op("aten::as_strided", weight, pre=0.4):
                    pass
            flat = Tensor((rows, features), real)
            name = "aten::addmm" if bias else "aten::mm"
            with self.op(name, flat, Tensor((features, out_features), real), pre=4.0):
                self._matrix_calls()
                if self.m.rng.random() < 0.2:  # split-K work space
                    self.m.memset(1 << 16)
                with self.maybe_acting(mark, slow):
                    self.launch(K.gemm(d, rows, out_features, features, dtype))

        def back() -> None:
            grad = Tensor((rows, out_features), real)
            with self.op("aten::t", weight, pre=0.7):
                pass
            with self.op("aten::mm", grad, weight, pre=3.0):
                self._matrix_calls()
                with self.maybe_acting(mark, slow):
                    self.launch(K.gemm(d, rows, features, out_features, dtype, layout="nn"))
            with self.op("aten::mm", Tensor((out_features, rows), real), flat, pre=3.0):
                self._matrix_calls()
                if self.m.rng.random() < 0.3:
                    self.m.memset(1 << 18)
                with self.maybe_acting(mark, slow):
                    self.launch(K.gemm(d, out_features, features, rows, dtype, layout="nt"))
            if bias:
                with self.op("aten::sum", grad):
                    self.launch(K.reduction(d, "sum", grad.elems, real, out_features // 32 + 1))
            if self.amp and not full and w.dtype != self.amp:
                self.cast(Tensor(w.shape, self.amp), "float")

        params = (w, bias) if bias else (w,)
        self.node("AddmmBackward0" if bias else "MmBackward0", out, back, *params)
        return out

    def _matrix_calls(self) -> None:
        if not self.d.is_rocm and self.m.rng.random() < 0.4:
            self.m.api("cudaFuncSetAttribute", 0.4)

    @contextmanager
    def maybe_acting(self, pattern: str, when: bool):  # type: ignore[no-untyped-def]
        """Note the fault only in steps where it is switched on and this call shows it."""
        if when and pattern in self.modes.share:
            with self.m.acting(pattern):
                yield
        else:
            yield

    def bmm(self, batch: int, m: int, n: int, k: int, dtype: str, node: bool = True) -> Tensor:
        a, b = Tensor((batch, m, k), dtype), Tensor((batch, k, n), dtype)
        with self.op("aten::matmul", a, b, seq=True), self.op("aten::bmm", a, b, pre=3.0):
            self.launch(K.gemm(self.d, m, n, k, dtype, batch=batch))

        def back() -> None:
            for layout, (mm, nn, kk) in (("nt", (m, k, n)), ("tn", (k, n, m))):
                with self.op("aten::bmm", Tensor((batch, mm, kk), dtype), pre=3.0):
                    self.launch(K.gemm(self.d, mm, nn, kk, dtype, layout=layout, batch=batch))

        if node:
            self.node("BmmBackward0", a, back)
        return Tensor((batch, m, n), dtype)

    def softmax(self, x: Tensor, name: str = "softmax") -> Tensor:
        word = "LogSoftMaxForwardEpilogue" if name == "log_softmax" else "SoftMaxForwardEpilogue"
        with self.op(f"aten::{name}", x, seq=True), self.op(f"aten::_{name}", x):
            kernel = f"void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, {x.dtype}, float, {x.dtype}, at::native::(anonymous namespace)::{word}>({x.dtype}*, {x.dtype} const*, int)"
            self.launch(
                K.named(self.d, kernel, 2.4 * x.size, blocks=max(1, x.elems // x.shape[-1]))
            )
        camel = "LogSoftmax" if name == "log_softmax" else "Softmax"

        def back() -> None:
            with self.op(f"aten::_{name}_backward_data", x):
                kernel = f"void at::native::(anonymous namespace)::cunn_SoftMaxBackward<8, {x.dtype}, float, {x.dtype}>({x.dtype}*, {x.dtype} const*, {x.dtype} const*, long)"
                self.launch(K.named(self.d, kernel, 3.2 * x.size))

        self.node(f"{camel}Backward0", x, back)
        return x

    def attention(self, batch: int, heads: int, length: int, dim: int, keys: int = 0) -> Tensor:
        """Scaled dot-product attention, fused; in pieces where the fault says so."""
        keys = keys or length
        dtype = self.amp or "float"
        q = Tensor((batch, heads, length, dim), dtype)
        if self.modes.on("compute-unfused-attention", self.layer):
            with self.m.acting("compute-unfused-attention"):
                self._pieces(batch * heads, length, keys, dim, dtype)
            return q
        name = "efficient" if self.d.capability[0] == 7 else "flash"
        with self.op("aten::scaled_dot_product_attention", q, q, q, seq=True, pre=2.0):
            with self.op(f"aten::_scaled_dot_product_{name}_attention", q, q, q, pre=2.0):
                inner = f"aten::_{name}_attention_forward"
                with self.op(inner, q, q, q, pre=4.0):
                    self.empty()
                    for kernel in K.attention(self.d, batch, heads, length, keys, dim):
                        self.launch(kernel)

        def back() -> None:
            with self.op(f"aten::_scaled_dot_product_{name}_attention_backward", q, pre=2.0):
                with self.op(f"aten::_{name}_attention_backward", q, pre=4.0):
                    for kernel in K.attention(
                        self.d, batch, heads, length, keys, dim, backward=True
                    ):
                        self.launch(kernel)

        self.node(f"ScaledDotProduct{name.capitalize()}AttentionBackward0", q, back)
        return q

    def _pieces(self, batch: int, length: int, keys: int, dim: int, dtype: str) -> None:
        first = len(self.tape)
        scores = self.bmm(batch, length, keys, dim, dtype)
        self.pointwise("aten::div", scores, node="DivBackward0", back_op="aten::div")
        if self.m.rng.random() < 0.6:
            self.pointwise("aten::masked_fill_", scores, node="MaskedFillBackward0")
        self.softmax(scores)
        if self.grad and self.m.rng.random() < 0.5:
            self.dropout(scores)
        self.bmm(batch, length, dim, keys, dtype)
        self.tape[first:] = [
            self._marked(n, "compute-unfused-attention") for n in self.tape[first:]
        ]

    def _marked(self, node: Node, pattern: str) -> Node:
        """The same node, whose backward work counts as the fault's too."""

        def run() -> None:
            with self.m.acting(pattern):
                node.run()

        return Node(node.name, node.sequence, node.seen, run, node.params)

    # -- norms ------------------------------------------------------------------------------
    def layer_norm(self, x: Tensor, w: Param, b: Param) -> Tensor:
        t = x.dtype
        with self.op("aten::layer_norm", x, w, b, seq=True):
            with self.op("aten::native_layer_norm", x, w, b, pre=3.0):
                self.empty()
                name = f"void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<{t}, float>(int, float, {t} const*, {t} const*, {t} const*, float*, float*, {t}*)"
                self.launch(K.named(self.d, name, 2.1 * x.size, blocks=x.elems // x.shape[-1]))

        def back() -> None:
            with self.op("aten::native_layer_norm_backward", x, w, pre=3.0):
                name = f"void at::native::(anonymous namespace)::layer_norm_grad_input_kernel_vectorized<{t}, float>({t} const*, {t} const*, float const*)"
                self.launch(K.named(self.d, name, 3.2 * x.size, blocks=x.elems // x.shape[-1]))
                name = f"void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernel<{t}, float>(long, long, {t} const*, {t} const*)"
                self.launch(K.named(self.d, name, 2.1 * x.size, blocks=max(1, x.shape[-1] // 32)))

        self.node("NativeLayerNormBackward0", x, back, w, b)
        return x

    def group_norm(self, x: Tensor, w: Param, b: Param) -> Tensor:
        t = x.dtype
        with self.op("aten::group_norm", x, w, b, seq=True):
            with self.op("aten::native_group_norm", x, w, b, pre=3.0):
                name = f"void at::native::(anonymous namespace)::RowwiseMomentsCUDAKernel<{t}>(long, float, {t} const*, {t}*, {t}*)"
                self.launch(K.named(self.d, name, x.size, blocks=x.shape[0] * 32, threads=512))
                self.launch(K.pointwise(self.d, "add", x.elems, t, 2))
        self.node(
            "NativeGroupNormBackward0",
            x,
            lambda: self._back("aten::native_group_norm_backward", x, 4),
            w,
            b,
        )
        return x

    # -- losses, tables ---------------------------------------------------------------------
    def cross_entropy(self, x: Tensor) -> None:
        logits = Tensor(x.shape, "float")
        with self.op("aten::cross_entropy_loss", x, seq=True):
            if x.dtype != "float":
                self.cast(x, "float")
            self.softmax(logits, "log_softmax")
            self._nll(logits)

    def _nll(self, x: Tensor) -> None:
        rows = x.elems // x.shape[-1]
        with self.op("aten::nll_loss_nd", x, seq=True), self.op("aten::nll_loss_forward", x):
            name = "void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>(float*, float*, float const*, long const*)"
            self.launch(K.named(self.d, name, rows * 40, blocks=1, threads=1024))

        def back() -> None:
            with self.op("aten::nll_loss_backward", x):
                with self.op("aten::zero_", x), self.op("aten::fill_", x):
                    self.launch(K.pointwise(self.d, "fill_", x.elems, "float", 1))
                name = "void at::native::(anonymous namespace)::nll_loss_backward_reduce_cuda_kernel_2d<float, long>(float*, float const*, long const*)"
                self.launch(K.named(self.d, name, rows * 40, blocks=1, threads=1024))

        self.node("NllLossBackward0", x, back)

    def mse(self, x: Tensor, name: str = "mse_loss") -> None:
        camel = "".join(p.capitalize() for p in name.split("_"))
        with self.op(f"aten::{name}", x, x, seq=True):
            self.launch(K.reduction(self.d, "mean", 2 * x.elems, x.dtype, 256))
        self.node(f"{camel}Backward0", x, lambda: self._back(f"aten::{name}_backward", x, 3))

    def embedding(self, w: Param, count: int) -> Tensor:
        dim = w.shape[1]
        index, out = Tensor((count,), "long int"), Tensor((count, dim), "float")
        with self.op("aten::embedding", w, index, seq=True):
            with self.op("aten::index_select", w, index, pre=2.5):
                name = "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, int, long, long, long, long, bool)"
                self.launch(K.named(self.d, name, 2 * out.size))

        def back() -> None:
            with self.op("aten::embedding_backward", out):
                with self.op("aten::embedding_dense_backward", out, pre=4.0):
                    dense = Tensor(w.shape)
                    with self.op("aten::zero_", dense), self.op("aten::fill_", dense):
                        self.launch(K.pointwise(self.d, "fill_", w.elems, "float", 1))
                    name = "void at_cuda_detail::cub::DeviceRadixSortOnesweepKernel<at_cuda_detail::cub::DeviceRadixSortPolicy<long, long, unsigned long>::Policy900, false, long, long>(int*, int*)"
                    self.launch(K.named(self.d, name, 24 * count))
                    name = "void at::native::(anonymous namespace)::compute_grad_weight<float, long>(long const*, float const*, long const*, long, long)"
                    self.launch(K.named(self.d, name, 2.5 * out.size))

        self.node("EmbeddingBackward0", out, back, w)
        return out
