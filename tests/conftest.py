"""What every test shares: no network, reproducible hypothesis, a clean copy of the checkout."""

from __future__ import annotations

import gc
import os
import socket
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from hypothesis import settings

from tests.checkouts import clone

# Tests start hundreds of processes: each would compile all of the code again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# One thread for each process: `make test` has two of them, and matrices are small. Set before numpy
# is imported, and handed on to the processes that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")

SHOWN = ("numpy", "msgspec", "lightgbm", "hydra-core", "rich", "hypothesis")

# No deadline: a slow machine is not a failing test. Derandomized: CI finds the same things twice.
settings.register_profile("ci", deadline=None, derandomize=True, max_examples=50)
settings.register_profile("fuzz", deadline=None, max_examples=5_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_report_header() -> str:
    return "with " + ", ".join(f"{name} {version(name)}" for name in SHOWN)


def pytest_collection_finish() -> None:
    """What is there before the first test stays to the last: garbage is not looked for in it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def only_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing leaves the machine: a test that reaches for another host fails."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: object) -> None:
        host = address[0] if isinstance(address, tuple) else "localhost"
        if host not in ("localhost", "127.0.0.1", "::1"):
            raise AssertionError(f"a test tried to reach {host}")
        connect(self, address)  # type: ignore[arg-type]

    monkeypatch.setattr(socket.socket, "connect", guarded)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the working tree as a fresh clone would be."""
    return clone(tmp_path / "checkout")


@pytest.fixture(scope="session")
def plain_env() -> dict[str, str]:
    """The caller's environment without the running virtual environment or an outer make."""
    dropped = ("VIRTUAL_ENV", "PYTHONPATH", "MAKEFLAGS", "MFLAGS", "MAKELEVEL", "COLUMNS")
    env = {key: value for key, value in os.environ.items() if key not in dropped}
    env["PATH"] = f"{Path(sys.base_prefix) / 'bin'}{os.pathsep}{env['PATH']}"
    return env
