"""Kineto and Chrome traces -> Trace. Every quirk of the format is handled here and nowhere else.

``COMPILED``: whether the compiled scanner is in use. Without it reading is slower, with the same
result.
"""

from detector.kineto.limits import Limits
from detector.kineto.reader import read
from detector.kineto.scanner import COMPILED

__all__ = ["COMPILED", "Limits", "read"]
