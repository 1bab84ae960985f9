"""Jobs that really ran over gloo: the slow rank is named with its cause, and nobody in others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dataset.record_jobs import VARIANTS, label
from detector.jobs import identity
from detector.jobs.build import build
from detector.jobs.rank import reduced
from detector.kineto import read

JOBS = Path(__file__).resolve().parents[2] / "dataset" / "recorded" / "jobs"
FOLDERS = sorted(path.parent for path in JOBS.glob("*/label.json"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_the_slow_rank_is_named_with_its_cause(folder: Path) -> None:
    said = json.loads((folder / "label.json").read_text())
    ranks = [reduced(read(path)) for path in sorted(folder.glob("rank_*"))]
    (together,) = identity.jobs(ranks)
    assert len(together.members) == said["ranks"]
    job = build([ranks[m] for m in together.members])
    assert job.confidence == 1.0
    if said["straggler"] is None:
        assert job.stragglers == ()
    else:
        (found,) = job.stragglers
        assert (found.rank, found.kind) == (said["straggler"], said["kind"])


def test_every_variant_is_there() -> None:
    assert {path.name.rsplit("_", 2)[0] for path in FOLDERS} == set(VARIANTS)


def test_a_label_depends_on_the_seed_alone() -> None:
    assert label("sleep", 8, 0) == label("sleep", 8, 0)
    assert {label("sleep", 8, seed).straggler for seed in range(40)} == set(range(8))
    assert label("healthy", 4, 1).straggler is None
