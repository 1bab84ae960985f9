from typing import Any

import numpy.typing as npt

_Words = tuple[tuple[bytes, int], ...]
_Found = tuple[
    int,  # bytes used
    int,  # events of any phase
    tuple[int, ...],  # rows of each shape
    tuple[int, ...],  # columns with values of each shape, as bits
    tuple[int, ...],  # events of each purpose
    list[tuple[str, int]],  # rows of unknown categories
    list[str | bytes],  # names; with escapes as bytes
    list[bytes],  # texts
    list[tuple[str, str, bool]],  # tracks
]

def scan(
    block: bytes | memoryview,
    scratch: npt.NDArray[Any],
    categories: _Words,
    phases: _Words,
    fields: tuple[tuple[bytes, int, int, int], ...],
    unknown: int,
    /,
) -> _Found | None: ...
def parents(
    start: npt.NDArray[Any],
    dur: npt.NDArray[Any],
    track: npt.NDArray[Any],
    on_host: npt.NDArray[Any],
    parent: npt.NDArray[Any],
    tracks: int,
    tolerance: int,
    /,
) -> None: ...
def climb(
    parent: npt.NDArray[Any],
    key: npt.NDArray[Any],
    wanted: npt.NDArray[Any],
    found: npt.NDArray[Any],
    deepest: int,
    /,
) -> None: ...
def nearest(parent: npt.NDArray[Any], position: npt.NDArray[Any], /) -> None: ...
def innermost(
    start: npt.NDArray[Any],
    end: npt.NDArray[Any],
    parent: npt.NDArray[Any],
    rows: npt.NDArray[Any],
    ended: npt.NDArray[Any],
    time: npt.NDArray[Any],
    inside: npt.NDArray[Any],
    deepest: int,
    /,
) -> int: ...
