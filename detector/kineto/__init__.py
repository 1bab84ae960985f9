"""Kineto and Chrome traces -> Trace. Every quirk of the format lives in here and nowhere else.

``COMPILED`` tells whether the compiled scanner is in use; without it reading is slower, not other.
"""

from detector.kineto.limits import Limits
from detector.kineto.reader import read
from detector.kineto.scanner import COMPILED

__all__ = ["COMPILED", "Limits", "read"]
