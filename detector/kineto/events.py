"""The typed events: one Struct a category, with the arguments that this category has.

The tag is ``cat``: the decoder then makes no object for a flow, and no argument of a Python frame.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Literal

import msgspec

from detector.kineto.categories import CATEGORIES, SPAN
from detector.trace import Cat

NO_TEXT = msgspec.Raw(b"")
_Words = dict[str, type[msgspec.Struct]]


class Shape(Enum):
    """Which arguments a category's rows have."""

    OP = "op"
    CALL = "call"
    FRAME = "frame"
    DEVICE = "device"


SHAPES = {
    Cat.CPU_OP: Shape.OP,
    Cat.USER_ANNOTATION: Shape.OP,
    Cat.PYTHON_FUNCTION: Shape.FRAME,
    Cat.OVERHEAD: Shape.FRAME,
    Cat.RUNTIME: Shape.CALL,
    Cat.DRIVER: Shape.CALL,
}  # every other: Shape.DEVICE


class OpArgs(msgspec.Struct, frozen=True, gc=False):
    external_id: Any = msgspec.field(default=-1, name="External id")
    dims: msgspec.Raw = msgspec.field(default=NO_TEXT, name="Input Dims")
    dims_2022: msgspec.Raw = msgspec.field(default=NO_TEXT, name="Input dims")
    types: msgspec.Raw = msgspec.field(default=NO_TEXT, name="Input type")
    sequence: Any = msgspec.field(default=-1, name="Sequence number")
    collective: str | None = msgspec.field(default=None, name="Collective name")
    group: str | None = msgspec.field(default=None, name="Process Group Name")
    msg_elems: Any = msgspec.field(default=-1, name="In msg nelems")


class CallArgs(msgspec.Struct, frozen=True, gc=False):
    external_id: Any = msgspec.field(default=-1, name="External id")
    external_id_2021: Any = msgspec.field(default=-1, name="external id")
    correlation: Any = -1
    bytes: Any = -1  # ROCm's copies and allocations


class DeviceArgs(msgspec.Struct, frozen=True, gc=False):
    external_id: Any = msgspec.field(default=-1, name="External id")
    external_id_2021: Any = msgspec.field(default=-1, name="external id")
    correlation: Any = -1
    device: Any = -1
    stream: Any = -1
    bytes: Any = -1
    grid: list[int] | None = None
    block: list[int] | None = None
    collective: str | None = msgspec.field(default=None, name="Collective name")
    group: str | None = msgspec.field(default=None, name="Process Group Name")
    msg_elems: Any = msgspec.field(default=-1, name="In msg nelems")


class AnyArgs(msgspec.Struct, gc=False):
    """Of any category, in either spelling; ids as the file has them."""

    external_id: Any = msgspec.field(default=-1, name="External id")
    external_id_2021: Any = msgspec.field(default=-1, name="external id")
    correlation: Any = -1
    device: Any = -1
    stream: Any = -1
    bytes: Any = -1
    grid: Any = None
    block: Any = None
    dims: msgspec.Raw = msgspec.field(default=NO_TEXT, name="Input Dims")
    dims_2022: msgspec.Raw = msgspec.field(default=NO_TEXT, name="Input dims")
    types: msgspec.Raw = msgspec.field(default=NO_TEXT, name="Input type")
    sequence: Any = msgspec.field(default=-1, name="Sequence number")
    collective: Any = msgspec.field(default=None, name="Collective name")
    group: Any = msgspec.field(default=None, name="Process Group Name")
    msg_elems: Any = msgspec.field(default=-1, name="In msg nelems")

    def tidy(self) -> None:
        """Make it hold what the typed arguments would."""
        self.grid, self.block = _sizes(self.grid), _sizes(self.block)


def _sizes(value: Any) -> list[int] | None:
    return value if isinstance(value, list) and all(type(v) is int for v in value) else None


_ARGS: dict[Shape, type[msgspec.Struct] | None] = {
    Shape.OP: OpArgs,
    Shape.CALL: CallArgs,
    Shape.FRAME: None,
    Shape.DEVICE: DeviceArgs,
}

# Read, counted, and not kept as rows.
OTHER_PHASES = {
    "s": "flow",
    "t": "flow",
    "f": "flow",
    "i": "instant",
    "I": "instant",
    "R": "instant",
    "M": "metadata",
    "C": "counter",
    "b": "async",
    "e": "async",
    "n": "async",
    "N": "object",
    "O": "object",
    "D": "object",
    "P": "sample",
    "v": "memory dump",
    "c": "clock",
}
# Categories whose events are never rows, whatever their phase.
OTHER_CATEGORIES = {
    "ac2g": "flow",
    "fwdbwd": "flow",
    "async": "flow",  # 2021
    "async_cpu_to_gpu": "flow",  # 2022
    "async_gpu": "flow",
    "cpu_instant_event": "instant",
    SPAN: "trace span",
}


class AnyEvent(msgspec.Struct, gc=False):
    """A duration event of any category, as the tolerant path makes it; times come beside it."""

    name: str
    cat: str
    pid: int | str
    tid: int | str
    args: AnyArgs


def by_category(time: type) -> tuple[_Words, dict[type, str]]:
    """Structs by the category they hold, and what the others count as. ``ts`` is a ``time``."""
    kinds: _Words = {}
    for word, cat in CATEGORIES.items():
        args = _ARGS[SHAPES.get(cat, Shape.DEVICE)]
        fields = _fields(time, phase=True)
        if args is not None:
            fields.append(("args", args, args()))
        kinds[word] = msgspec.defstruct(f"Of_{word}", fields, tag_field="cat", tag=word, gc=False)
    others = {
        msgspec.defstruct(f"Other_{word}", [], tag_field="cat", tag=word): purpose
        for word, purpose in OTHER_CATEGORIES.items()
    }
    return kinds, others


def by_phase(time: type) -> tuple[type[msgspec.Struct], dict[type, str]]:
    """The Struct of complete events of any category, and what other phases count as."""
    fields = _fields(time, phase=False)
    fields += [("cat", str, ""), ("args", AnyArgs, msgspec.field(default_factory=AnyArgs))]
    complete = msgspec.defstruct("OfAny", fields, tag_field="ph", tag="X", gc=False)
    others = {
        msgspec.defstruct(f"Phase{i}", [], tag_field="ph", tag=phase): purpose
        for i, (phase, purpose) in enumerate(OTHER_PHASES.items())
    }
    return complete, others


def _fields(time: type, phase: bool) -> list[Any]:
    fields: list[Any] = [("ph", Literal["X"])] if phase else []
    return [
        *fields,
        ("name", str),
        ("pid", int | str),
        ("tid", int | str),
        ("ts", time),
        ("dur", float),
    ]
