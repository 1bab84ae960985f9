"""The one natural pair among the published traces: a loader without workers, and with four."""

from __future__ import annotations

from pathlib import Path

import pytest

import detector

FOLDER = Path(__file__).resolve().parents[2].parent / "shared" / "traces"
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="no folder of shared traces here")


def test_the_pair_reads_as_a_person_would_tell_it() -> None:
    sides = [FOLDER / f"v100_resnet50_train_workers{n}.json.gz" for n in (0, 4)]
    found = detector.diff_traces(*sides, flagger="rules", confidence="constant")
    assert found.comparable
    assert [c.pattern for c in found.of("gone")] == ["input-dataloader-sync"]
    # Where nothing waits for batches any more, the host's pace is what is left to gain.
    assert {c.pattern for c in found.of("new", "worse")} <= {"host-launch-bound"}
    assert found.step is not None
    assert found.step.is_sure
    assert found.step.by < 0
    assert found.ledger[0].cause == "loader"
    assert 0 < found.realized_us < found.predicted_us
