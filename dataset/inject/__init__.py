"""Faults put into real traces by replay: the right events, and everything after them moved.

base = Base.open("trace.json.gz")
document, label = inject(base, "sync-explicit", seed=1)
document, label = untouched(base, seed=1)               # its twin
Path("out.json.gz").write_bytes(gzip.compress(encode(document)))
"""

from dataset.inject.base import Base
from dataset.inject.edits import Unfit
from dataset.inject.injection import (
    NOWHERE,
    Healthy,
    TooFaint,
    inject,
    inject_many,
    injectors,
    untouched,
)
from dataset.inject.raw import encode

__all__ = [
    "NOWHERE",
    "Base",
    "Healthy",
    "TooFaint",
    "Unfit",
    "encode",
    "inject",
    "inject_many",
    "injectors",
    "untouched",
]
