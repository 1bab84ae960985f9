"""Memory that is free goes back to the system between the stages of a scan.

glibc keeps what arrays of up to 32 MB leave behind, in pieces that the next stage's arrays seldom
fit: the process would grow with each stage, to twice what it ever needs at a time.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys


def trim() -> None:
    """Hands free memory back: milliseconds. Does nothing where the C library is not glibc."""
    if sys.platform == "linux":
        with contextlib.suppress(AttributeError, OSError):  # musl has none
            ctypes.CDLL(None).malloc_trim(0)
