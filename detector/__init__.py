"""Finds performance anti-patterns in PyTorch profiler traces. Importing this loads nothing else."""

__version__ = "0.1.0"
