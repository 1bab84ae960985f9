"""Faulty host code: waits for the device, interpreter work, allocation, compilation."""

from __future__ import annotations

from dataset.simulate import kernels as K
from dataset.simulate.eager import Tensor
from dataset.simulate.plan import Run, stall
from dataset.simulate.programs import scalar


# -- waits -------------------------------------------------------------------------------------
def scalar_readback(run: Run, x: Tensor, us: float) -> None:
    """Values read one by one; ``if tensor:`` in some programs. At least one, while budget lasts."""
    e, m = run.e, run.m
    branch = run.rng.random() < 0.25
    fetch = m.tail()
    for _ in range(12):
        with m.acting("sync-scalar-readback"):
            if branch:
                with e.op("aten::is_nonzero"):
                    scalar(run)
            else:
                with e.op("aten::mean", x), e.op("aten::sum", x):
                    e.launch(K.reduction(e.d, "mean", min(x.elems, 1 << 16), "float", 1))
                scalar(run)
            m.busy(6.0)  # the value is used: formatted, compared, added up
        if m.now - fetch >= us:
            break


def explicit_sync(run: Run, x: Tensor, us: float) -> None:
    m = run.m
    kind = run.rng.choice(
        ("cudaDeviceSynchronize", "cudaDeviceSynchronize", "cudaStreamSynchronize")
    )
    fetch = m.tail()
    with m.frame("torch/cuda/__init__.py(1040): synchronize"), m.acting("sync-explicit"):
        m.sync(kind, None if "Device" in kind else m.device.stream)
        m.busy(3.0)
        rest = us - (m.now - fetch)
        if rest > 0:  # a timer is read and kept, as such code does
            m.idle(rest * 0.5)


def dynamic_shape(run: Run, x: Tensor, us: float) -> None:
    e, m = run.e, run.m
    rows = Tensor((max(256, min(x.elems // 8, 1 << 20)),), "bool")
    name = run.rng.choice(("aten::nonzero", "aten::masked_select", "aten::index", "aten::_unique2"))
    policy = "at_cuda_detail::cub::DeviceReducePolicy<bool, int, int, at_cuda_detail::cub::Sum>"
    prefix = "rocprim::detail" if e.d.is_rocm else "at_cuda_detail::cub"
    fetch = m.tail()
    for _ in range(10):
        with m.acting("sync-dynamic-shape"), e.op(name, rows, pre=3.0):
            inner = "aten::sort" if name == "aten::_unique2" else "aten::nonzero"
            with e.op(inner, rows, pre=3.0):
                e.launch(
                    K.named(
                        e.d,
                        f"void {prefix}::DeviceReduceKernel<{policy}>(bool*, int*, int)",
                        rows.size,
                    )
                )
                e.launch(
                    K.named(
                        e.d,
                        f"void {prefix}::DeviceReduceSingleTileKernel<{policy}>(int*, int*, int)",
                        512,
                        blocks=1,
                    )
                )
                m.copy("DtoH", 4, pinned=False, wait=True)
                e.empty()
                e.launch(
                    K.named(
                        e.d,
                        f"void {prefix}::DeviceSelectSweepKernel<{prefix}::DispatchSelectIf>(bool*, long*)",
                        rows.elems * 9,
                    )
                )
            e.launch(
                K.named(
                    e.d,
                    "void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<at::native::index_kernel_impl<at::native::OpaqueType<4> > > >(long)",
                    rows.elems * 8,
                )
            )
        if m.now - fetch >= us:
            break


# -- interpreter -------------------------------------------------------------------------------
def python_overhead(run: Run, x: Tensor, us: float) -> None:
    """Hooks, formatting, bookkeeping: interpreter time and nothing else."""
    m = run.m
    frames = (
        (run.place(), "json/encoder.py(183): encode"),
        ("logging/__init__.py(1477): info", "logging/__init__.py(678): format"),
        (run.place(), "copy.py(118): deepcopy"),
    )
    outer, inner = run.rng.choice(frames)
    with m.acting("host-python-overhead"):
        end = m.now + stall(run, us) if run.rng.random() < 0.7 else m.now + us
        with m.frame(outer):
            while m.now < end:
                with m.frame(inner):
                    m.idle(min(max(end - m.now, 0.5), run.rng.uniform(20, 90)))


def collector_pause(run: Run, x: Tensor, us: float) -> None:
    m = run.m
    with m.acting("host-gc-pause"):
        if run.rng.random() < 0.4:
            with m.frame("<built-in function collect>"):
                m.idle(stall(run, us))
        else:
            m.idle(stall(run, us))


def loop_indexing(run: Run, x: Tensor, us: float) -> None:
    """``for i in range(n): out[i] = f(x[i])``."""
    e, m = run.e, run.m
    row = Tensor((x.shape[-1] if x.shape else 64,), x.dtype)
    end = m.now + stall(run, us) if run.rng.random() < 0.6 else m.now + us
    body = run.rng.choice(
        (("aten::mul", "aten::copy_"), ("aten::add_",), ("aten::sub", "aten::pow", "aten::sum"))
    )
    grad, e.grad = e.grad, False
    with m.acting("host-loop-indexing"), m.frame(run.place()):
        for count in range(120):
            if m.now >= end and count >= 12:
                break
            e.view("aten::select" if count % 2 or len(body) > 1 else "aten::slice", row, *row.shape)
            for name in body:
                e.pointwise(name, row)
    e.grad = grad


_GATES = (
    ("aten::mul", "aten::add", "aten::sigmoid", "aten::tanh", "aten::addcmul"),
    ("aten::sub", "aten::mul", "aten::add", "aten::clamp"),
    ("aten::exp", "aten::mul", "aten::add", "aten::where", "aten::mul", "aten::div"),
)


def small_kernels(run: Run, x: Tensor, us: float) -> None:
    """A recurrence unrolled in Python: gates of tiny kernels, one after the other."""
    e, m = run.e, run.m
    state = Tensor((8, run.rng.choice((64, 256, 1024))), run.rng.choice(("float", e.d.half_type)))
    gates = run.rng.choice(_GATES)
    end = m.now + stall(run, us)
    grad, e.grad = e.grad, False
    with m.acting("host-launch-bound"), m.frame(run.place()):
        for count in range(60):
            if m.now >= end and count >= 4:
                break
            for name in gates:
                e.pointwise(name, state)
    e.grad = grad


# -- allocation --------------------------------------------------------------------------------
def allocation(run: Run, x: Tensor, us: float) -> None:
    """``empty_cache()`` or ever new sizes: the driver frees and allocates."""
    e, m = run.e, run.m
    clear = run.rng.random() < 0.6
    fetch = m.tail()
    with m.acting("memory-alloc-churn"):
        if clear:
            with m.frame("torch/cuda/memory.py(222): empty_cache"):
                for _ in range(run.rng.randint(2, 5)):
                    m.free()
        for count in range(20):
            with e.op("aten::empty", pre=2.0):
                if not clear and count % 3 == 2:
                    m.free()
                m.malloc(run.rng.choice((2, 20, 64, 128, 512)) << 20)
            if m.now - fetch >= us and count >= 1:
                break


# -- compilation -------------------------------------------------------------------------------
def recompile(run: Run, x: Tensor, us: float) -> None:
    """A guard failed: the same code is compiled again, in the step."""
    m = run.m
    phases = (
        ("bytecode_tracing", 0.2),
        ("_compile.compile_inner", 0.1),
        ("OutputGraph.call_user_compiler", 0.1),
        ("create_aot_dispatcher_function", 0.15),
        ("compile_fx_inner", 0.25),
        ("PyCodeCache.load_by_key_path", 0.1),
        ("async_compile.wait", 0.1),
    )
    version = m.step_index + 1
    with m.acting("compile-recompile"):
        total = stall(run, us)
        with m.op(f"Torch-Compiled Region: 0/{version}", pre=5.0):
            with m.frame("torch/_dynamo/convert_frame.py(1272): __call__"):
                for name, share in phases:
                    with m.op(f"{name} (dynamo_timed)", pre=2.0):
                        m.idle(total * share)


def unused_parameters(run: Run, x: Tensor, us: float) -> None:
    """DDP walks the graph for parameters that got no gradient, and shares the bitmap."""
    e, m = run.e, run.m
    with m.acting("comm-unused-parameters"):
        with m.op("torch.distributed.ddp.reducer::search_unused_parameters", pre=3.0):
            m.idle(stall(run, us))
        m.copy("HtoD", max(64, 4 * len(e.params)), pinned=True)
