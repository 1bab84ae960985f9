"""Finds performance anti-patterns in PyTorch profiler traces. Importing this loads nothing else.

report = detector.scan_trace("trace.json.gz")
detector.diff_traces("before.json.gz", "after.json.gz")
with detector.profile() as prof: ...        # records, and reports at the end
torch.profiler.profile(on_trace_ready=detector.report_to("folder"))
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = ["Report", "__version__", "diff_traces", "profile", "report_to", "scan_trace"]

if TYPE_CHECKING:
    from detector.api import Report, diff_traces, profile, report_to, scan_trace


def __getattr__(name: str) -> object:
    """What this package offers, loaded when it is first asked for."""
    if name.startswith("_") or name not in __all__:
        raise AttributeError(f"module 'detector' has no attribute '{name}'")
    return getattr(import_module("detector.api"), name)
