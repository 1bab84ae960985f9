from typing import Any

import numpy.typing as npt

_Array = npt.NDArray[Any]

def sequences(
    rows: _Array,
    start: _Array,
    dur: _Array,
    track: _Array,
    ptr: _Array,
    nodes: _Array,
    /,
) -> None: ...
def arrange(
    nodes: _Array,
    ptr: _Array,
    dep_ptr: _Array,
    dep_on: _Array,
    order: _Array,
    /,
) -> int: ...
def times(
    order: _Array,
    prev: _Array,
    gap: _Array,
    dur: _Array,
    dep_ptr: _Array,
    dep_on: _Array,
    delay: _Array,
    kind: _Array,
    mute: _Array,
    origin: _Array,
    floor: _Array,
    time: _Array,
    /,
) -> None: ...
def cap(
    rows: _Array,
    most: _Array,
    ptr: _Array,
    nodes: _Array,
    gap: _Array,
    /,
) -> None: ...
def take_out(
    first: _Array,
    last: _Array,
    nodes: _Array,
    gone: _Array,
    gap: _Array,
    mute: _Array,
    kinds: _Array,
    /,
) -> None: ...
