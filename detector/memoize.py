"""Memoized methods: each object keeps the results of its own, by their arguments.

``functools.lru_cache`` would hold the object in a reference cycle, and so its arrays in memory
until the next garbage collection, which may come after the scan.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")


def memoized(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """A method that is computed once for the same arguments, which must be hashable."""

    def memo(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        known: dict[Any, T] = self.__dict__.setdefault(key, {})
        given = (args, *kwargs.items())
        if given not in known:
            known[given] = method(self, *args, **kwargs)
        return known[given]

    key = f"memoized {method.__name__}"
    functools.update_wrapper(memo, method)
    return memo
