"""What a training loop does around the model: the loader, the copy to the device, backward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from dataset.simulate import kernels as K
from dataset.simulate.eager import Eager, Param, Tensor
from dataset.simulate.machine import Machine


# -- input -------------------------------------------------------------------------------------
def load(
    m: Machine, wait: float, workers: bool = True, inside: Callable[[], None] | None = None
) -> None:
    """``next(loader)``: a short or long wait, or the work itself (``inside``)."""
    kind = "_MultiProcessingDataLoaderIter" if workers else "_SingleProcessDataLoaderIter"
    with m.frame("torch/utils/data/dataloader.py(733): __next__"):
        with m.annotation(f"enumerate(DataLoader)#{kind}.__next__", pre=6.0):
            if inside:
                inside()
            elif workers:
                with m.frame("torch/utils/data/dataloader.py(1492): _next_data"):
                    with m.frame("queue.py(154): get"):
                        with m.frame("threading.py(637): wait"):
                            m.idle(wait)


def cpu_batch_work(m: Machine, us: float, rows: int) -> None:
    """Decode, transform and collate a batch on this thread, about ``us`` µs in ``rows`` rounds."""
    end = m.now + us
    each = us / max(rows, 1)
    for _ in range(rows):
        if m.now >= end:
            return
        with m.frame("torch/utils/data/_utils/fetch.py(52): <listcomp>"):
            _sample(m, each)
    m.idle(end - m.now)


def _sample(m: Machine, us: float) -> None:
    with m.frame("PIL/Image.py(3218): open"):
        m.idle(us * m.rng.uniform(0.25, 0.5))
    for name, share in (("aten::div", 0.12), ("aten::sub_", 0.08), ("aten::contiguous", 0.1)):
        with m.op(name, [[3, 224, 224]], ["float"]):
            m.idle(us * share)


@dataclass
class Feed:
    """How batches reach the device: ``bytes`` per batch on a stream of its own, or in line."""

    bytes: int
    stream: int | None  # the copy stream, or None for copies in line
    wait: float  # the loader's usual wait, µs
    paced: bool = False  # the prefetcher waits for the step before the last
    marks: list[float] = field(default_factory=list)


def copy_batch(e: Eager, feed: Feed) -> None:
    """The healthy copy: pinned, non-blocking, on the feed's stream."""
    m = e.m
    if feed.paced:
        feed.marks.append(m.tail(e.d.stream))
        if len(feed.marks) > 1:
            m.wait_event(feed.marks[-2])
    image, label = Tensor((feed.bytes // 4,)), Tensor((max(1, feed.bytes // 4096),), "long int")
    for tensor in (image, label):
        with e.op("aten::to", tensor), e.op("aten::_to_copy", tensor):
            e.empty("aten::empty_strided")
            with e.op("aten::copy_", tensor):
                m.copy("HtoD", max(tensor.size, 64), pinned=True, stream=feed.stream)
    if feed.stream is not None:
        m.stream_wait(e.d.stream, feed.stream)


# -- backward ----------------------------------------------------------------------------------
def backward(e: Eager) -> None:
    """``loss.backward()``: the tape in reverse, on the autograd thread."""
    m = e.m
    with m.frame("torch/_tensor.py(525): backward", pre=4.0):
        with m.frame("torch/autograd/graph.py(815): _engine_run_backward", pre=3.0):
            with e.op("aten::ones_like"), e.op("aten::fill_"):
                e.launch(K.pointwise(e.d, "fill_", 1, "float", 1))
            grad, e.grad = e.grad, False
            with m.on_thread(m.habits.backward):
                for node in reversed(e.tape):
                    _evaluate(e, node)
            e.grad = grad
    e.tape.clear()
    e.casts.clear()


def _evaluate(e: Eager, node) -> None:  # type: ignore[no-untyped-def]
    m = e.m
    extra = {"Fwd thread id": 1}
    name = f"autograd::engine::evaluate_function: {node.name}"
    with m.op(name, seq=node.sequence, args=extra, pre=1.5):
        dims = [list(node.seen.shape)] if e.shapes else None
        with m.op(node.name, dims, [node.seen.dtype], seq=node.sequence, args=extra, pre=1.0):
            node.run()
    for param in node.params:
        _accumulate(e, param)


def _accumulate(e: Eager, param: Param) -> None:
    m = e.m
    with m.op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", pre=0.8):
        with e.op("torch::autograd::AccumulateGrad", param, pre=0.6):
            if param.grad:
                with e.op("aten::add_", param, param):
                    e.launch(K.pointwise(e.d, "add_", param.elems, param.dtype, 3))
            else:
                with e.op("aten::detach", param, pre=0.5), e.op("detach", param, pre=0.3):
                    pass
        param.grad = True
        e.on_grad(param)
