"""Entry points called in the test's own process."""

from __future__ import annotations

import contextlib
import io
import logging
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

Ended = subprocess.CompletedProcess[str]


def called(module: str, *words: object, folder: Path) -> Ended:
    """``python -m module`` in a folder, but in this process: a start takes a second and more."""
    out, errors = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(errors),
    ):
        patch.chdir(folder)
        patch.setattr(sys, "argv", [module, *map(str, words)])
        # Hydra sets up logging anew, which closes all handlers: absl's closes pytest's own output.
        patch.setattr(logging, "shutdown", lambda *_: None)
        try:
            code = import_module(module).main()
        except SystemExit as end:
            code = end.code
    return Ended(sys.argv, code or 0, out.getvalue(), errors.getvalue())
