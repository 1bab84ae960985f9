"""Kineto and Chrome traces -> Trace. Every quirk of the format lives in here and nowhere else."""

from detector.kineto.limits import Limits
from detector.kineto.reader import read

__all__ = ["Limits", "read"]
