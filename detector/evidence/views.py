"""More views of a place, for a judge that asks: a closed list, each a text of bounded length."""

from __future__ import annotations

from typing import Final

VIEWS: Final = {
    "timeline": "what the main thread and the device do in each of 40 slices of the place",
    "kernels": "the longest kernels with start, length, grid and stream",
    "ops": "the ops with the most host time, with input shapes and types",
    "stack": "the Python frames around the place's idle or launching time, innermost last",
    "neighbours": "the time by cause just before, in and just after the place",
    "steps": "the time by cause of each step, side by side",
    "collectives": "each collective with size, length and what computes beside it",
    "unexplained": "the trace's largest time by cause, and its longest idle stretches",
}
