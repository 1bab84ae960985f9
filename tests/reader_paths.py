"""The reader's two ways through a block: the compiled scanner, and pure Python behind it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from detector.kineto import scanner
from detector.trace import Trace

BUILT = scanner.COMPILED
needs_scanner = pytest.mark.skipif(
    not BUILT, reason="the compiled scanner is not built here (no compiler at installation)"
)
PATHS = [pytest.param(True, id="compiled", marks=needs_scanner), pytest.param(False, id="pure")]


@contextmanager
def reading(compiled: bool) -> Iterator[None]:
    """Read that way meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scanner, "COMPILED", compiled)
        yield


def assert_same(one: Trace, two: Trace) -> None:
    """Equal to the last number and the order of the names."""
    for field in dataclasses.fields(Trace):
        a, b = getattr(one, field.name), getattr(two, field.name)
        if isinstance(a, np.ndarray):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b, err_msg=field.name)
        else:
            assert a == b, field.name
