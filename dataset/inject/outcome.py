"""What a replay made of a base: where its rows lie now, and the events that it lacked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from dataset.inject.edits import Alter
from detector.trace import Bool, Cat, Int64

EVERYWHERE: Final = -1  # no one track
CATS: Final = {
    "cpu_op": Cat.CPU_OP,
    "user_annotation": Cat.USER_ANNOTATION,
    "python_function": Cat.PYTHON_FUNCTION,
    "cuda_runtime": Cat.RUNTIME,
    "overhead": Cat.OVERHEAD,
    "kernel": Cat.KERNEL,
    "gpu_memcpy": Cat.GPU_MEMCPY,
    "gpu_memset": Cat.GPU_MEMSET,
}


@dataclass(frozen=True)
class Fresh:
    """An event that the base lacks. ``cat`` is Kineto's newest word; times are ns."""

    cat: str
    name: str
    track: int
    start: int
    end: int
    args: Mapping[str, Any]
    issued: Fresh | None = None  # the device work of a call


@dataclass(frozen=True)
class Placed:
    """A fresh event and what is around it: another fresh one (by index), else a row of the base.

    ``call`` is the index of the fresh call that issued it, for device work. -1: none.
    """

    event: Fresh
    inside: int = -1
    holder: int = -1
    call: int = -1


@dataclass(frozen=True)
class Outcome:
    """Where everything lies after a replay, ns: rows of the base, and fresh events, each parent
    before its children."""

    start: Int64
    end: Int64
    keep: Bool
    fresh: tuple[Placed, ...] = ()
    altered: Mapping[int, Alter] = field(default_factory=dict)
