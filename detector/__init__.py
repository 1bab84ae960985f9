"""Find performance anti-patterns in PyTorch profiler traces.

    report = detector.scan_trace("trace.json.gz")
    change = detector.diff_traces("before.json.gz", "after.json.gz")

    with detector.profile() as profiler:  # records a block of code, then reports on it
        ...

    torch.profiler.profile(on_trace_ready=detector.report_to("folder"))

Importing this package loads nothing else: each name is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = ["Report", "__version__", "diff_traces", "profile", "report_to", "scan_trace"]

if TYPE_CHECKING:
    from detector.api import Report, diff_traces, profile, report_to, scan_trace


def __getattr__(name: str) -> object:
    """A public name, from ``detector.api``. Raises AttributeError for any other."""
    if name.startswith("_") or name not in __all__:
        raise AttributeError(f"module 'detector' has no attribute '{name}'")
    return getattr(import_module("detector.api"), name)
