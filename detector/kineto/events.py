"""The typed events: one Struct a category, with the arguments that this category has.

Tagged by ``cat``, so that the decoder makes no object for flows and no arguments for Python frames.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from detector.kineto.arguments import ARGUMENTS, Argument, Kind
from detector.kineto.categories import (
    CATEGORIES,
    OTHER_CATEGORIES,
    OTHER_PHASES,
    SHAPES,
)

NO_TEXT = msgspec.Raw(b"")
_Words = dict[str, type[msgspec.Struct]]


_TYPES: dict[Kind, tuple[Any, Any]] = {  # type, and what stands for none
    Kind.INTEGER: (Any, -1),
    Kind.VOLUME: (list[int] | None, None),
    Kind.WORD: (str | None, None),
    Kind.TEXT: (msgspec.Raw, NO_TEXT),
}


def _struct(name: str, arguments: list[Argument], exact: bool) -> type[msgspec.Struct]:
    fields = []
    for argument in arguments:
        kind, none = _TYPES[argument.kind]
        loose = not exact and argument.kind is not Kind.TEXT
        default = msgspec.field(default=none, name=argument.key)
        fields.append((argument.field, Any if loose else kind, default))
    return msgspec.defstruct(name, fields, frozen=exact, gc=False)


_ARGS = {
    shape: _struct(f"Args{shape}", [a for a in ARGUMENTS if shape in a.shapes], exact=True)
    for shape in {s for a in ARGUMENTS for s in a.shapes}
}
# Of any category, in either spelling; values as the file has them.
AnyArgs = _struct("AnyArgs", list(ARGUMENTS), exact=False)
_VOLUMES = [a.field for a in ARGUMENTS if a.kind is Kind.VOLUME]


def tidy(args: Any) -> None:
    """Make them equal to what the typed arguments would be."""
    for field in _VOLUMES:
        sizes = getattr(args, field)
        if not isinstance(sizes, list) or not all(type(size) is int for size in sizes):
            setattr(args, field, None)


class AnyEvent(msgspec.Struct, gc=False):
    """A duration event of any category, as the tolerant path makes it, without its times."""

    name: str
    cat: str
    pid: int | str
    tid: int | str
    args: Any


def by_category(time: type) -> tuple[_Words, dict[type, str]]:
    """Structs by category, and what the others count as. ``ts`` is of type ``time``."""
    kinds: _Words = {}
    for word, cat in CATEGORIES.items():
        args = _ARGS.get(SHAPES[cat])
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
