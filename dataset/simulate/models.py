"""The networks that the simulated programs train and run."""

from __future__ import annotations

from typing import Protocol

from dataset.simulate import kernels as K
from dataset.simulate import vision as V
from dataset.simulate.eager import Param, Tensor
from dataset.simulate.plan import Run


class Model(Protocol):
    """A forward pass over a batch; ``loss`` follows it in training."""

    def forward(self, run: Run) -> Tensor: ...

    def loss(self, run: Run, out: Tensor) -> None: ...


def _image(run: Run, channels: int, side: int) -> Tensor:
    return Tensor((run.plan.scaled(8), channels, side, side), run.e.amp or "float")


class ConvNet:
    """A residual classifier."""

    def __init__(self, run: Run) -> None:
        e, p = run.e, run.plan
        self.base = min(p.width, 256)
        self.stem = V.conv_params(e, 3, self.base // 4, 7)
        self.blocks = []
        channels = self.base // 4
        for i in range(p.depth):
            out = min(channels * 2, 2048)
            self.blocks.append(
                (V.conv_params(e, channels, out), V.conv_params(e, out, out, 1 if i % 2 else 3))
            )
            channels = out
        self.head = (e.param(1000, channels), e.param(1000))

    def features(self, run: Run) -> Tensor:
        e = run.e
        x = V.conv_block(e, _image(run, 3, run.plan.image), self.stem, 2)
        x = V.pool(e, x)
        for first, second in self.blocks:
            x = V.conv_block(e, x, first, 2)
            run.at("between", x)
            x = V.conv_block(e, x, second, act=False)
            x = e.add(x)
            x = e.relu(x)
            run.at("between", x)
        return x

    def forward(self, run: Run) -> Tensor:
        x = V.global_pool(run.e, self.features(run))
        with run.e.module("Linear"):
            return run.e.linear(x, *self.head)

    def loss(self, run: Run, out: Tensor) -> None:
        run.e.cross_entropy(out)


class Detector(ConvNet):
    """A backbone with a feature pyramid, dense heads and a box loss of many small ops."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        e = run.e
        last = self.blocks[-1][1][0].shape[0]
        self.lateral = (e.param(128, last, 1, 1), e.param(128))
        self.tower = V.conv_params(e, 128, 128)
        self.predict = (e.param(84, 128, 3, 3), e.param(84))

    def forward(self, run: Run) -> Tensor:
        e = run.e
        x = self.features(run)
        x = V.conv(e, x, self.lateral[0], bias=self.lateral[1])
        levels = [x, V.upsample(e, x)]
        outs = []
        for level in levels:
            x = V.conv_block(e, level, self.tower)
            run.at("between", x)
            x = V.conv(e, x, self.predict[0], bias=self.predict[1])
            outs.append(e.view("aten::permute", x, x.shape[0], x.elems // x.shape[0] // 84, 84))
        return V.concat(e, outs[0], outs[1])

    def loss(self, run: Run, out: Tensor) -> None:
        e = run.e
        boxes = Tensor((out.shape[0], out.shape[1], 4), "float")
        for name in (
            "aten::sigmoid",
            "aten::mul",
            "aten::sub",
            "aten::exp",
            "aten::add",
            "aten::clamp",
        ):
            e.pointwise(name, boxes, node=f"{name[6:].capitalize()}Backward0")
        e.mse(boxes, "smooth_l1_loss")
        e.mse(Tensor(out.shape, "float"), "binary_cross_entropy_with_logits")


class UNet:
    """An encoder and decoder with skips; group norm and attention in the generator kind."""

    def __init__(self, run: Run, generator: bool) -> None:
        e, p = run.e, run.plan
        self.generator = generator
        c = max(32, min(p.width // 4, 128))
        self.inlet = (e.param(c, 4, 3, 3), e.param(c))
        self.down, self.up = [], []
        for _ in range(max(2, p.depth - 1)):
            self.down.append(V.conv_params(e, c, c * 2))
            c *= 2
        self.middle = V.conv_params(e, c, c)
        self.qkv = (e.param(3 * c, c), e.param(3 * c))
        self.project = (e.param(c, c), e.param(c))
        self.time = (e.param(c, 256), e.param(c))
        for _ in self.down:
            self.up.append(V.conv_params(e, c + c, c // 2))
            c //= 2
        self.outlet = (e.param(4, c, 1, 1), e.param(4))

    def _block(
        self, run: Run, x: Tensor, weights: tuple[Param, Param, Param], stride: int
    ) -> Tensor:
        e = run.e
        if not self.generator:
            return V.conv_block(e, x, weights, stride)
        with e.module("GroupNorm"):
            e.group_norm(x, weights[1], weights[2])
        with e.module("SiLU"):
            e.silu(x)
        with e.module("Conv2d"):
            return V.conv(e, x, weights[0], stride)

    def forward(self, run: Run) -> Tensor:
        e = run.e
        x = _image(run, 4, min(run.plan.image, 128))
        if self.generator:
            self._embed_time(run)
        x = V.conv(e, x, self.inlet[0], bias=self.inlet[1])
        skips = []
        for weights in self.down:
            x = self._block(run, x, weights, 2)
            skips.append(x)
            run.at("between", x)
        x = self._block(run, x, self.middle, 1)
        if self.generator:
            x = self._attend(run, x)
        for weights, skip in zip(self.up, reversed(skips), strict=True):
            x = V.concat(e, x, skip.like(*x.shape))
            x = self._block(run, x, weights, 1)
            x = V.upsample(e, x)
            run.at("between", x)
        return V.conv(e, x, self.outlet[0], bias=self.outlet[1])

    def _embed_time(self, run: Run) -> None:
        e = run.e
        t = Tensor((run.plan.scaled(8), 256), e.amp or "float")
        for name in ("aten::mul", "aten::sin", "aten::cos"):
            e.pointwise(name, t)
        e.silu(e.linear(t, *self.time))

    def _attend(self, run: Run, x: Tensor) -> Tensor:
        e = run.e
        n, c, h, w = x.shape
        flat = Tensor((n, h * w, c), x.dtype)
        with e.module("Attention"):
            e.linear(flat, *self.qkv)
            e.attention(n, max(1, c // 64), h * w, 64)
            e.linear(flat, *self.project)
        e.add(x)
        return x

    def loss(self, run: Run, out: Tensor) -> None:
        if self.generator:
            run.e.mse(out)
        else:
            run.e.cross_entropy(Tensor((out.elems // 4, 4), out.dtype))


class Transformer:
    """A decoder-only language model, or an encoder over patches (``classify``)."""

    def __init__(self, run: Run, classify: bool = False) -> None:
        e, p = run.e, run.plan
        self.classify = classify
        self.dim = max(256, p.width)
        self.heads = self.dim // 64
        self.vocab = 1000 if classify else (32_000 if p.variant % 2 else 50_304)
        self.table = e.param(196 if classify else self.vocab, self.dim)
        self.blocks = [self._block_params(run) for _ in range(p.depth)]
        self.norm = (e.param(self.dim), e.param(self.dim))
        self.head = e.param(self.vocab, self.dim)

    def _block_params(self, run: Run) -> dict[str, tuple[Param, Param]]:
        e, d = run.e, self.dim
        pairs = {"qkv": (3 * d, d), "out": (d, d), "up": (4 * d, d), "down": (d, 4 * d)}
        made = {name: (e.param(*shape), e.param(shape[0])) for name, shape in pairs.items()}
        made["norm1"], made["norm2"] = (e.param(d), e.param(d)), (e.param(d), e.param(d))
        return made

    def forward(self, run: Run) -> Tensor:
        e, p = run.e, run.plan
        batch, length = p.scaled(2), 196 if self.classify else p.length
        x = e.embedding(self.table, batch * length)
        x = Tensor((batch, length, self.dim), e.amp or "float")
        e.add(x)
        for block in self.blocks:
            self.block(run, x, block)
            run.at("between", x)
        with e.module("LayerNorm"):
            e.layer_norm(x, *self.norm)
        if self.classify:
            x = Tensor((batch, self.dim), x.dtype)
        with e.module("Linear"):
            return e.linear(x, self.head)

    def block(self, run: Run, x: Tensor, w: dict[str, tuple[Param, Param]]) -> None:
        e = run.e
        batch, length, _ = x.shape
        with e.module("LayerNorm"):
            e.layer_norm(x, *w["norm1"])
        with e.module("Attention"):
            qkv = e.linear(x, *w["qkv"])
            e.view("aten::view", qkv)
            for name in ("aten::slice", "aten::transpose", "aten::slice", "aten::transpose"):
                e.view(name, qkv)
            e.attention(batch, self.heads, length, 64)
            e.linear(x, *w["out"])
        e.add(x)
        with e.module("LayerNorm"):
            e.layer_norm(x, *w["norm2"])
        with e.module("MLP"):
            hidden = e.linear(x, *w["up"])
            e.gelu(hidden)
            e.linear(hidden, *w["down"])
        if run.plan.variant % 3 == 0 and e.grad:
            e.dropout(x)
        e.add(x)

    def loss(self, run: Run, out: Tensor) -> None:
        run.e.cross_entropy(Tensor((out.elems // self.vocab, self.vocab), out.dtype))


class Recommender:
    """DLRM-like: embedding tables, a dense tower, pairwise products, a top tower."""

    def __init__(self, run: Run) -> None:
        e, p = run.e, run.plan
        self.dim = 64
        self.tables = [e.param(20_000 * (1 + i % 3), self.dim) for i in range(p.depth + 2)]
        self.bottom = [
            (e.param(256, 16), e.param(256)),
            (e.param(self.dim, 256), e.param(self.dim)),
        ]
        self.top = [
            (e.param(p.width, 128), e.param(p.width)),
            (e.param(p.width, p.width), e.param(p.width)),
            (e.param(8, p.width), e.param(8)),
        ]

    def forward(self, run: Run) -> Tensor:
        e = run.e
        rows = run.plan.scaled(2048)
        dtype = e.amp or "float"
        x = Tensor((rows, 16), dtype)
        for pair in self.bottom:
            x = e.relu(e.linear(x, *pair))
        run.at("between", x)
        count = len(self.tables)
        for table in self.tables:
            e.view("aten::select", x)
            e.embedding(table, rows)
        stacked = V.concat(
            e, Tensor((rows, count, self.dim), dtype), Tensor((rows, 1, self.dim), dtype)
        )
        e.bmm(rows, count + 1, count + 1, self.dim, dtype)
        run.at("between", stacked)
        x = Tensor((rows, 128), dtype)
        for pair in self.top:
            with e.module("Linear"):
                x = e.linear(x, *pair)
            with e.module("ReLU"):
                e.relu(x)
            run.at("between", x)
        return x

    def loss(self, run: Run, out: Tensor) -> None:
        run.e.mse(Tensor(out.shape, "float"), "binary_cross_entropy_with_logits")


def noise(run: Run, x: Tensor) -> None:
    """``torch.randn_like`` and the mixing of a diffusion step."""
    e = run.e
    with e.op("aten::randn_like", x), e.op("aten::normal_", x):
        name = "void at::native::(anonymous namespace)::distribution_elementwise_grid_stride_kernel<float, 4, at::native::templates::cuda::normal_and_transform<float, float, at::CUDAGeneratorImpl*>>(int, at::PhiloxCudaState)"
        e.launch(K.named(e.d, name, x.size))
    for op in ("aten::mul", "aten::add"):
        e.pointwise(op, x, tensors=3)
