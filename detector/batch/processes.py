"""Where several traces are read: here, or in a process for each core.

Results come back in the order of the traces, so that reports are the same however many read them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any

SMALL = 4 << 20  # stored bytes of all traces: below, starting processes takes longer than reading


def run(
    function: Callable[..., Any], calls: Sequence[tuple[Any, ...]], workers: int
) -> Iterator[Any]:
    """The results in order. A call whose process died is made again, in one of its own; None where
    it died again."""
    if min(workers, len(calls)) < 2:
        yield from (function(*call) for call in calls)
        return
    # A forked child of a process with threads may wait for a lock for ever.
    context = get_context("spawn")
    with ProcessPoolExecutor(min(workers, len(calls)), context) as pool:
        pending = [pool.submit(function, *call) for call in calls]
        try:
            for call, future in zip(calls, pending, strict=True):
                try:
                    yield future.result()
                except BrokenProcessPool:
                    yield _alone(function, call)
        finally:
            pool.shutdown(cancel_futures=True)


def _alone(function: Callable[..., Any], call: tuple[Any, ...]) -> Any:
    try:
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            return pool.submit(function, *call).result()
    except BrokenProcessPool:
        return None


def cores() -> int:
    """How many this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
