"""The arguments of events that become columns, in every spelling that Kineto has used."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from detector.kineto.categories import Shape

OP, CALL, DEVICE = Shape.OP, Shape.CALL, Shape.DEVICE


class Kind(IntEnum):
    """What a value is, and how it becomes a number. The compiled scanner knows them too."""

    INTEGER = 0
    VOLUME = 1  # a list of sizes: their product
    WORD = 2  # a name among names
    TEXT = 3  # the JSON itself


class Argument(NamedTuple):
    """One argument: the file's key, our field, and the shapes of rows that keep it."""

    key: str
    field: str
    kind: Kind
    shapes: tuple[Shape, ...]


ARGUMENTS = (
    Argument("External id", "external_id", Kind.INTEGER, (OP, CALL, DEVICE)),
    Argument("external id", "external_id_2021", Kind.INTEGER, (CALL, DEVICE)),
    Argument("correlation", "correlation", Kind.INTEGER, (CALL, DEVICE)),
    Argument("bytes", "bytes", Kind.INTEGER, (CALL, DEVICE)),  # ROCm's calls have it too
    Argument("device", "device", Kind.INTEGER, (DEVICE,)),
    Argument("stream", "stream", Kind.INTEGER, (DEVICE,)),
    Argument("grid", "blocks", Kind.VOLUME, (DEVICE,)),
    Argument("block", "threads", Kind.VOLUME, (DEVICE,)),
    Argument("Input Dims", "dims", Kind.TEXT, (OP,)),
    Argument("Input dims", "dims_2022", Kind.TEXT, (OP,)),
    Argument("Input type", "types", Kind.TEXT, (OP,)),
    Argument("Sequence number", "sequence", Kind.INTEGER, (OP,)),
    Argument("Collective name", "collective", Kind.WORD, (OP, DEVICE)),
    Argument("Process Group Name", "group", Kind.WORD, (OP, DEVICE)),
    Argument("Process Group Ranks", "group_ranks", Kind.WORD, (OP, DEVICE)),
    Argument("Group size", "group_size", Kind.INTEGER, (OP, DEVICE)),
    Argument("In msg nelems", "msg_elems", Kind.INTEGER, (OP, DEVICE)),
    Argument("dtype", "element_type", Kind.WORD, (OP, DEVICE)),
    Argument("Seq", "comm_sequence", Kind.INTEGER, (OP, DEVICE)),
)
