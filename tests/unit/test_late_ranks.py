"""A rank of a public job made late by the replay of all its ranks is named, with the cause."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dataset.inject.edits import Unfit
from dataset.inject.ranks import Job, Why, late, together
from dataset.inject.raw import encode
from detector.jobs.build import build
from detector.jobs.rank import reduced
from detector.kineto import read

SHARED = Path(__file__).resolve().parents[2] / "../shared/traces"
GLOO = Path(__file__).resolve().parents[2] / "dataset" / "recorded" / "jobs" / "healthy_2_9"
shared = pytest.mark.skipif(not SHARED.exists(), reason="public traces are not here")


@pytest.fixture(scope="module")
def dlrm() -> Job:
    return Job.open([SHARED / f"v100_dlrm_rank{r}.json.gz" for r in range(8)])


@shared
def test_without_an_edit_all_ranks_replay_as_recorded(dlrm: Job) -> None:
    for base, rank in zip(dlrm.bases, together(dlrm, {}), strict=True):
        assert np.array_equal(rank.outcome.start, base.trace.start)


@shared
@pytest.mark.parametrize(
    ("why", "rank", "before"), [("data", 0, 0), ("compute", 3, 5), ("host", 6, 7), ("data", 6, 5)]
)
def test_the_late_rank_is_named_with_its_cause(
    dlrm: Job, why: Why, rank: int, before: int, tmp_path: Path
) -> None:
    made = late(dlrm, rank, why, 20_000_000, before)
    ranks = []
    for number, document in enumerate(made.documents):
        path = tmp_path / f"{number}.json"
        path.write_bytes(encode(document))
        ranks.append(reduced(read(path)))
    job = build(ranks)
    (found,) = job.stragglers
    assert (found.rank, found.kind, found.how) == (rank, why, "one step")
    assert job.collectives[before].last == rank
    assert job.without_straggler_us * 1e3 == pytest.approx(made.added, rel=0.2)


def test_what_a_hosts_own_collectives_hold_up_is_not_known() -> None:
    with pytest.raises(Unfit, match="do not run on a device"):
        Job.open(sorted(GLOO.glob("rank_*")))
