"""Results that an object keeps of its own methods, by their arguments.

``functools.lru_cache`` of a bound method would keep the object alive in a circle, and with it its
arrays, until Python next looks for circles: that may be after the scan.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")


def memoized(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """A method that is computed once for the same arguments, which have to be hashable."""

    def look(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        known: dict[Any, T] = self.__dict__.setdefault(key, {})
        given = (args, *kwargs.items())
        if given not in known:
            known[given] = method(self, *args, **kwargs)
        return known[given]

    key = f"memoized {method.__name__}"
    functools.update_wrapper(look, method)
    return look
