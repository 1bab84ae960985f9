"""The ledger on real traces that others published, where they are at hand."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from detector import kineto
from detector.ledger import Ledger, build
from detector.signals import signals_of
from detector.window import analyzed_time

FOLDER = Path(__file__).resolve().parents[2].parent / "shared" / "traces"
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="no folder of shared traces here")
NAMES = sorted(path.name.removesuffix(".json.gz") for path in FOLDER.glob("*.json.gz"))

LEAST_LINKED = 0.5
UNEXPLAINED = 0.15
MOST = 0.8


@cache
def ledger(name: str) -> Ledger:
    trace = kineto.read(FOLDER / f"{name}.json.gz")
    analyzed = analyzed_time(trace)
    return build(signals_of(trace), analyzed.start, analyzed.end)


@pytest.mark.parametrize("name", NAMES)
def test_it_adds_up_to_the_nanosecond(name: str) -> None:
    found = ledger(name)
    pieces = found.pieces
    assert sum(found.total().values()) == found.end - found.start
    edges = np.concatenate([[found.start], pieces.end])
    assert np.array_equal(edges[:-1], pieces.start)
    assert edges[-1] == found.end


def test_most_is_explained_where_launches_were_recorded() -> None:
    shares = []
    for name in NAMES:
        found = ledger(name)
        coverage = found.signals.trace.coverage
        if found.signals.activity.has_device and coverage.kernels_with_launch > LEAST_LINKED:
            shares.append(found.unexplained / max(1, found.end - found.start))
    assert np.mean(np.array(shares) <= UNEXPLAINED) >= MOST


def test_what_was_counted_by_hand() -> None:
    """A video model's first step: 213 ms before the first kernel, 155 ms of kernels."""
    total = ledger("h100_timesformer").total()
    assert total["preprocessing"] / 1e6 == pytest.approx(217, abs=5)
    assert total["compute"] / 1e6 == pytest.approx(155, abs=1)
    # No caching allocator: 2852 to 3000 ms idle in hipFree and hipMalloc.
    total = ledger("mi300_ddp_resnet18_train").total()
    assert total["allocation"] / 1e6 == pytest.approx(2926, abs=90)
    # Six steps that wait for batches made on the training thread: 355 ms with the device idle.
    total = ledger("v100_resnet50_train_workers0").total()
    assert total["loader"] / 1e6 == pytest.approx(355, abs=5)
