"""Work spread over a few threads that nothing waits for: a hanging one ends with the program."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import TypeVar

Done = TypeVar("Done")


def spread(
    work: Callable[[int], Done], count: int, threads: int, until: float
) -> tuple[list[Done | None], bool]:
    """``work(i)`` for i below ``count``; None for what is not done by ``until`` (the clock's time),
    or when the user interrupts, and whether he did. An error of ``work`` is raised here."""
    done: list[Done | None] = [None] * count
    todo: queue.SimpleQueue[int] = queue.SimpleQueue()
    results: queue.SimpleQueue[tuple[int, Done | Exception]] = queue.SimpleQueue()
    stopped = threading.Event()
    for i in range(count):
        todo.put(i)

    def run() -> None:
        while not stopped.is_set():
            try:
                i = todo.get_nowait()
            except queue.Empty:
                return
            try:
                results.put((i, work(i)))
            except Exception as error:  # noqa: BLE001 - raised where the work was asked for
                results.put((i, error))

    try:
        for _ in range(min(threads, count)):
            threading.Thread(target=run, name="judge-region", daemon=True).start()
        for _ in range(count):
            i, result = results.get(timeout=max(until - time.monotonic(), 0.001))
            if isinstance(result, Exception):
                raise result
            done[i] = result
    except queue.Empty:
        return done, False
    except KeyboardInterrupt:
        return done, True
    finally:
        stopped.set()
    return done, False
