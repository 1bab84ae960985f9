"""The facts about device, program and libraries that decide which advice fits.

What a trace does not show stays unknown, and then only advice without a condition fits: better
general than wrong.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from detector import vocabulary
from detector.activity import LONGEST_NAME, Activity
from detector.patterns import capability
from detector.signals import Signals
from detector.trace import Cat, Vendor

Use = Literal["training", "inference"]
Style = Literal["single", "foreach", "fused"]
Parallelism = Literal["ddp", "fsdp", "tensor"]

_OPTIMIZER: Final = re.compile(r"^Optimizer\.step#([A-Za-z_]\w{0,39})\.step$")
_VERSION_KEYS: Final = ("torch_version", "pytorch_version", "PyTorch version", "torch.__version__")
_REQUIREMENT: Final = re.compile(r"(?<![\w-])torch==(\d{1,3})\.(\d{1,3})")
_MANY_TENSORS: Final = 50
_VERSION: Final = re.compile(r"^(\d{1,3})\.(\d{1,3})")


@dataclass(frozen=True)
class Circumstances:
    """What a trace shows of device, program and libraries; by default nothing is known.

    ``generation``: compute capability of a CUDA device, 0 where unknown. ``optimizers``: classes in
    the order of their names. ``fp32_in``: where most time in full fp32 matrix work goes.
    ``exchanges``: whether exposed communication is mostly all-to-all or from rank to rank.
    ``torch``: (major, minor), None where the metadata does not say.
    """

    vendor: Vendor | None = None
    generation: float = 0.0
    use: Use | None = None
    loader: bool = False
    compiled: bool = False
    graphs: bool = False
    optimizers: tuple[str, ...] = ()
    style: Style | None = None
    scales_gradients: bool = False
    parallelism: frozenset[Parallelism] = frozenset()
    frameworks: frozenset[str] = frozenset()
    fp32_in: Literal["convolutions", "products"] | None = None
    attention_math: bool = False
    dropout: bool = False
    empties_cache: bool = False
    caches_nothing: bool = False
    exchanges: bool = False
    torch: tuple[int, int] | None = None


def circumstances_of(s: Signals) -> Circumstances:
    """The circumstances of this trace."""
    a = s.activity
    cuda = s.trace.vendor == "cuda" and a.has_device
    return Circumstances(
        vendor=s.trace.vendor,
        generation=capability.generation(s) if cuda else 0.0,
        use=_use(a),
        loader=bool(len(a.loader_rows)),
        compiled=_is_compiled(a),
        graphs=bool(len(a.calls("graph"))),
        optimizers=_optimizers(a),
        style=_style(a),
        scales_gradients=_has(a, vocabulary.SCALES_GRADIENTS, Cat.CPU_OP),
        parallelism=_parallelism(a),
        frameworks=_frameworks(a),
        fp32_in=_fp32_in(s),
        attention_math=bool(len(a.ops("math_attention"))),
        dropout=bool(len(s["needless-dropout"])),
        empties_cache=bool(len(a.host("empty_cache"))),
        caches_nothing=_caches_nothing(a),
        exchanges=_exchanges(s),
        torch=_torch(s.trace.metadata),
    )


def _use(a: Activity) -> Use | None:
    if len(a.host("optimizer_step")) or len(a.host("backward")):
        return "training"
    return "inference" if len(a.aten) else None


def _is_compiled(a: Activity) -> bool:
    made = a.named(a.kernels, vocabulary.FUSED_BY_COMPILER, Cat.KERNEL) if a.has_device else ()
    return bool(len(a.host("compiled_region")) or len(made))


def _optimizers(a: Activity) -> tuple[str, ...]:
    names = (a.trace.names[i] for i in np.unique(a.trace.name[a.host("optimizer_step")]))
    return tuple(sorted({match[1] for name in names if (match := _OPTIMIZER.match(name))}))


def _style(a: Activity) -> Style | None:
    if not len(a.host("optimizer_step")):
        return None
    names = {a.trace.names[i] for i in np.unique(a.trace.name[a.ops("foreach")])}
    if any("_fused_" in name for name in names):
        return "fused"
    return "foreach" if names else "single"


def _parallelism(a: Activity) -> frozenset[Parallelism]:
    cats = (Cat.CPU_OP, Cat.USER_ANNOTATION, Cat.PYTHON_FUNCTION)
    return frozenset(kind for kind, name in vocabulary.PARALLELISM.items() if _has(a, name, *cats))


def _has(a: Activity, pattern: re.Pattern[str], *cats: Cat) -> bool:
    return bool(len(a.named(a.of(*cats), pattern, *cats)))


def _frameworks(a: Activity) -> frozenset[str]:
    """Libraries whose Python frames the trace has."""
    frames = np.unique(a.trace.name[a.of(Cat.PYTHON_FUNCTION)])
    names = (a.trace.names[i] for i in frames)
    found = (vocabulary.FRAMEWORK_FRAME.search(name, 0, LONGEST_NAME) for name in names)
    return frozenset(match[1] for match in found if match)


def _fp32_in(s: Signals) -> Literal["convolutions", "products"] | None:
    rows = s["fp32-matrix"]
    if not len(rows):
        return None
    inside = np.isin(rows, s.activity.kernels_of("conv"))
    spent = s.trace.dur[rows]
    return "convolutions" if 2 * spent[inside].sum() > spent.sum() else "products"


def _caches_nothing(a: Activity) -> bool:
    """Whether the driver frees most tensors itself: a caching allocator hardly ever lets it."""
    made = a.named(a.aten, vocabulary.EMPTY, Cat.CPU_OP)
    freed = a.named(a.calls("alloc"), vocabulary.FREES, Cat.RUNTIME, Cat.DRIVER)
    return len(made) >= _MANY_TENSORS and len(freed) >= len(made)


def _exchanges(s: Signals) -> bool:
    """Whether most exposed communication is all-to-all or from rank to rank."""
    rows = s["exposed-collective"]
    if not len(rows):
        return False
    trace = s.trace
    name = np.where(trace.collective[rows] >= 0, trace.collective[rows], trace.name[rows])
    found = [i for i in np.unique(name).tolist() if vocabulary.EXCHANGES.search(trace.names[i])]
    spent = trace.dur[rows]
    return bool(2 * spent[np.isin(name, found)].sum() > spent.sum())


def _torch(metadata: dict[str, object]) -> tuple[int, int] | None:
    for key in _VERSION_KEYS:
        if match := _VERSION.match(str(metadata.get(key, ""))):
            return int(match[1]), int(match[2])
    pinned = _REQUIREMENT.search(repr(metadata))  # some recorders keep the list of packages
    return (int(pinned[1]), int(pinned[2])) if pinned else None
