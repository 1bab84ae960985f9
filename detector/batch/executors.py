"""Where several traces are read: here, in a process for each core, or on a Ray cluster.

Whatever reads them, results come back in the order of the traces, so reports are the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from detector.errors import ConfigError

SMALL = 4 << 20  # stored bytes of all traces: below, starting processes takes longer than reading


class Executor(Protocol):
    """Maps a function over the arguments of its calls, in order."""

    @property
    def keep(self) -> str | None:
        """A folder for what each trace gave: a run that was stopped goes on there."""
        ...

    def map(self, function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
        """The results, one for each call; None where a worker died twice on it."""
        ...


@dataclass(frozen=True)
class Local:
    """A process for each core, or as many as ``workers`` says; 1 stays in this process."""

    workers: int | None = None
    keep: str | None = None

    def map(self, function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
        """The results in order; a call whose process died is made again, in one of its own."""
        from concurrent.futures import ProcessPoolExecutor
        from concurrent.futures.process import BrokenProcessPool
        from multiprocessing import get_context

        workers = min(self.workers or _cores(), len(calls))
        if workers < 2:
            yield from (function(*call) for call in calls)
            return
        # A forked child of a process with threads may wait for a lock for ever.
        context = get_context("spawn")
        with ProcessPoolExecutor(workers, context) as pool:
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
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    try:
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            return pool.submit(function, *call).result()
    except BrokenProcessPool:
        return None


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True)
class Ray:
    """A Ray cluster: the one at ``address``, else a local one. Needs the extra ``ray``.

    Paths must mean the same files on every machine. A task whose worker is lost runs again.
    """

    address: str | None = None
    retries: int = 3
    keep: str | None = None

    def map(self, function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
        """The results in order."""
        try:
            import ray
        except ImportError as error:
            raise ConfigError("executor=ray needs the extra: pip install '.[ray]'") from error
        own = not ray.is_initialized()
        if own:
            ray.init(address=self.address, log_to_driver=False, logging_level="ERROR")
        try:
            remote = ray.remote(max_retries=self.retries)(function)
            for task in [remote.remote(*call) for call in calls]:
                yield ray.get(task)
        finally:
            if own:
                ray.shutdown()
