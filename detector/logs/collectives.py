"""What collectives are called, what they move and how that counts as bandwidth.

Every source spells them in its own way: NCCL's log ``AllReduce``, PyTorch ``all_reduce``, the
kernels ``ncclKernel_AllReduce_RING_LL_Sum_float`` or ``ncclDevKernel_Generic``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

# NCCL's numbers of types, in order, with the bytes of an element.
DTYPES: Final[tuple[tuple[str, int], ...]] = (
    ("int8", 1),
    ("uint8", 1),
    ("int32", 4),
    ("uint32", 4),
    ("int64", 8),
    ("uint64", 8),
    ("float16", 2),
    ("float32", 4),
    ("float64", 8),
    ("bfloat16", 2),
    ("float8_e4m3", 1),
    ("float8_e5m2", 1),
)
ALGORITHMS: Final = (
    "TREE",
    "RING",
    "COLLNET_DIRECT",
    "COLLNET_CHAIN",
    "NVLS",
    "NVLS_TREE",
    "PAT",
)
PROTOCOLS: Final = ("LL", "LL128", "SIMPLE")

_ELEMENT: Final[dict[str, int]] = dict(DTYPES) | {
    "float": 4,
    "half": 2,
    "double": 8,
    "int": 4,
    "long": 8,
    "long int": 8,
    "short": 2,
    "byte": 1,
    "char": 1,
    "bool": 1,
    "unsigned char": 1,
    "u8": 1,
    "i8": 1,
    "f32": 4,
    "f16": 2,
    "bf16": 2,
    "fp32": 4,
    "fp16": 2,
    "c10::half": 2,
    "c10::bfloat16": 2,
    "c10::complex<float>": 8,
}

# The first that a name holds wins, the name in lower case and without underscores.
_OPS: Final = (
    ("AllReduce", "allreduce"),
    ("ReduceScatter", "reducescatter"),
    ("AllGather", "allgather"),
    ("AllToAll", "alltoall"),
    ("AllToAll", "all2all"),
    ("Barrier", "barrier"),
    ("Broadcast", "broadcast"),
    ("Broadcast", "bcast"),
    ("Scatter", "scatter"),
    ("Gather", "gather"),
    ("Reduce", "reduce"),
    ("SendRecv", "sendrecv"),
    ("Send", "send"),
    ("Recv", "recv"),
)
POINT_TO_POINT: Final = frozenset({"Send", "Recv", "SendRecv"})
_KERNEL: Final = re.compile(
    r"nccl(?:Dev)?Kernel_(?P<op>[A-Za-z]+?)(?:_(?P<algo>TREE|RING|COLLNET\w*?|NVLS(?:_TREE)?|PAT))?"
    r"(?:_(?P<proto>LL128|LL|SIMPLE))?(?:_(?P<redop>\w+?))?(?:_(?P<dtype>[a-z]\w*))?(?:\(|$)"
)
_NEW_KERNEL: Final = re.compile(
    r"nccl(?:Dev)?Kernel_(?P<op>[A-Za-z]+?)_(?P<redop>[A-Z]\w*?)_(?P<dtype>[a-z]\w*?)"
    r"_(?P<algo>TREE|RING|COLLNET\w*?|NVLS(?:_TREE)?|PAT)_(?P<proto>LL128|LL|SIMPLE)(?:\(|$)"
)


@dataclass(frozen=True)
class Kernel:
    """What a kernel's name tells; an empty word where it does not tell."""

    op: str = ""
    algorithm: str = ""
    protocol: str = ""
    dtype: str = ""


def op_of(name: str) -> str:
    """The operation that a name of any source means; "" where it means none that is known.

    >>> op_of("ncclKernel_AllReduce_RING_LL_Sum_float"), op_of("nccl:_all_gather_base")
    ('AllReduce', 'AllGather')
    """
    plain = name.lower().replace("_", "")
    return next((op for op, word in _OPS if word in plain), "")


def kernel_of(name: str) -> Kernel:
    """Operation, algorithm, protocol and type of a kernel, as far as its name tells."""
    match = _NEW_KERNEL.search(name) or _KERNEL.search(name)
    if match is None:
        return Kernel(op_of(name))
    algorithm, protocol = match["algo"] or "", match["proto"] or ""
    dtype = match["dtype"] or ""
    return Kernel(op_of(match["op"]), algorithm, protocol, dtype if element_bytes(dtype) else "")


def element_bytes(dtype: str) -> int:
    """Bytes of one element of this type, in any source's spelling; 0 where it is not known."""
    return _ELEMENT.get(dtype.strip().lower(), 0)


def total_factor(op: str, ranks: int) -> int:
    """Whole message over one rank's count: NCCL counts one rank's share of a gather or scatter."""
    return ranks if op in ("AllGather", "ReduceScatter") else 1


def bus_factor(op: str, ranks: int) -> float:
    """Bus bandwidth over algorithm bandwidth, of the whole message; 1 for one root's traffic.

    From nccl-tests' PERFORMANCE.md: 2(n-1)/n for an all-reduce, (n-1)/n for the scattering and
    gathering ones.
    """
    if ranks < 2:
        return 1.0
    if op == "AllReduce":
        return 2 * (ranks - 1) / ranks
    if op in ("AllGather", "ReduceScatter", "AllToAll", "Gather", "Scatter"):
        return (ranks - 1) / ranks
    return 1.0
