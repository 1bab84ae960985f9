"""Several ranks as one job: matching, clocks, waiting and transfer, stragglers and why."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detector import scan, scan_file
from detector.activity import Activity
from detector.jobs import identity
from detector.jobs.build import build
from detector.jobs.match import match, spread
from detector.jobs.rank import RankTrace, reduced
from detector.jobs.stragglers import BY_CHANCE, above, chance
from detector.jobs.traffic import traffic
from detector.kineto import read
from detector.render import job as text
from detector.report import from_json
from detector.report.job import Job
from tests.traces import Event, kernel, launch, op, trace_of

SHARED = Path(__file__).resolve().parents[2] / "../shared/traces"
shared = pytest.mark.skipif(not SHARED.exists(), reason="public traces are not here")

STEP, STEPS = 1000.0, 6


def rank_of(
    rank: int,
    events: Sequence[Event],
    *,
    world: int = 4,
    steps: int = STEPS,
    shift: float = 0.0,
    metadata: dict[str, object] | None = None,
) -> RankTrace:
    moved = [replace(e, start=e.start + shift) for e in events]
    info: dict[str, object] = {"rank": rank, "world_size": world, "backend": "nccl"}
    marks = [(shift + i * STEP, shift + (i + 1) * STEP) for i in range(steps)]
    return reduced(
        trace_of(
            *moved,
            steps=marks,
            metadata={"distributedInfo": info, **(metadata or {})},
            path=f"r{rank}.json",
            rank=rank,
        )
    )


def work(step: int, corr: int, late: float, *, busy: float = 100.0, pieces: int = 1) -> list[Event]:
    """A step: launch, compute, and a collective that all leave at 800 + the transfer of 20."""
    at = step * STEP
    computes = [kernel("sgemm", at + 20 + i * busy, busy, corr + i) for i in range(pieces)]
    calls = [launch(at + 10 + i, 2, corr + i) for i in range(pieces)]
    start = at + 200 + late
    comm = [
        launch(at + 50, 2, corr + 90),
        kernel(
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
            start,
            at + 820 - start,
            corr + 90,
            stream=20,
            collective="allreduce",
            group="0",
            msg_elems=1024,
            element_type="Float",
            group_size=4,
        ),
    ]
    return [*calls, *computes, *comm]


def job_of(late: dict[int, list[float]], **more: object) -> list[RankTrace]:
    """Ranks that come so late to the collective of each step, µs after the first."""
    return [
        rank_of(
            r, [e for s, x in enumerate(lates) for e in work(s, 100 * s + 1, x)], steps=len(lates)
        )
        for r, lates in late.items()
    ]


# -- matching and clocks ---------------------------------------------------------------------------


def test_waiting_and_transfer_are_split_at_the_last_arrival() -> None:
    ranks = job_of({0: [0.0] * 3, 1: [100.0] * 3, 2: [600.0] * 3})
    m = match(ranks)
    assert m.last.tolist() == [2, 2, 2]
    assert m.skew.tolist() == [600_000] * 3
    assert m.transfer.tolist() == [20_000] * 3
    assert (m.waiting // 1000).tolist() == [[600, 500, 0]] * 3
    assert m.by == "group order"


@given(st.lists(st.integers(-400_000, 400_000), min_size=3, max_size=3))
def test_clocks_are_aligned_by_the_ends(shifts: list[int]) -> None:
    ranks = [
        rank_of(
            r,
            [e for s in range(4) for e in work(s, 100 * s + 1, 50.0 * r)],
            steps=4,
            shift=x / 1000,
        )
        for r, x in enumerate(shifts)
    ]
    m = match(ranks)
    assert (m.offset - m.offset[0]).tolist() == [x - shifts[0] for x in shifts]
    assert spread(m) <= 2
    assert m.last.tolist() == [2] * 4


def test_sequence_numbers_beat_order() -> None:
    whole = [e for s in range(4) for e in work(s, 100 * s + 1, 0.0)]
    numbered = [
        replace(e, comm_sequence=10 + int(e.start // STEP)) if e.collective else e for e in whole
    ]
    later = [e for e in numbered if not (e.collective and e.comm_sequence == 10)]
    m = match([rank_of(0, numbered), rank_of(1, later)])
    assert (m.by, len(m), m.confidence) == ("sequence", 3, 1.0)


def test_a_rank_that_began_to_record_later_is_matched_by_what_it_sends() -> None:
    def events(first: int) -> list[Event]:
        found = [e for s in range(first, 6) for e in work(s, 100 * s + 1, 0.0)]
        return [
            replace(e, msg_elems=100 + int(e.start // STEP)) if e.collective else e for e in found
        ]

    m = match([rank_of(0, events(0)), rank_of(1, events(2))])
    assert (len(m), m.confidence) == (4, 1.0)
    assert m.skew.tolist() == [0] * 4


def test_collectives_of_different_groups_are_never_matched() -> None:
    one = [e for s in range(3) for e in work(s, 100 * s + 1, 0.0)]
    other = [replace(e, group="1") if e.collective else e for e in one]
    assert len(match([rank_of(0, one), rank_of(1, other)])) == 0


# -- who is late, and why --------------------------------------------------------------------------


def late_job(rank: int, lates: list[float]) -> Job:
    late = {r: [5.0 * ((r + s) % 3) for s in range(len(lates))] for r in range(4)}
    late[rank] = lates
    return build(job_of(late))


def test_a_rank_that_is_late_in_every_step_is_the_straggler() -> None:
    job = late_job(2, [400.0] * STEPS)
    (found,) = job.stragglers
    assert (found.rank, found.how, found.since) == (2, "persistent", 0)
    assert (job.reference, job.pattern) == (2, "straggler")
    assert found.share > 0.9
    assert job.without_straggler_us == pytest.approx(395 * STEPS, rel=0.1)


def test_since_when_a_rank_is_late() -> None:
    (found,) = late_job(1, [0.0, 0.0, 400.0, 400.0, 410.0, 405.0]).stragglers
    assert (found.rank, found.how, found.since) == (1, "persistent", 2)


def test_a_periodic_straggler() -> None:
    lates = [0.0, 0.0, 500.0] * 4
    (found,) = late_job(3, lates).stragglers
    assert (found.rank, found.how, found.steps) == (3, "periodic", (2, 5, 8, 11))


def test_a_one_off() -> None:
    job = late_job(3, [0.0] * 5 + [590.0])
    (found,) = job.pauses
    assert (found.rank, found.how, found.steps) == (3, "one-off", (5,))
    assert (job.pattern, job.stragglers) == ("one-off", ())  # it may never come again


def test_two_steps_cannot_tell_a_straggler_from_chance() -> None:
    late = {0: [100.0, 350.0], 1: [0.0, 0.0]}
    assert build(job_of(late)).stragglers == ()


def test_a_pause_hides_no_rank_that_is_late_in_every_step() -> None:
    late = {r: [5.0 * ((r + s) % 3) for s in range(10)] for r in range(4)}
    late[2] = [200.0 + 20 * (s % 3) for s in range(10)]
    late[0][4] = 590.0
    (found,) = build(job_of(late)).stragglers
    assert (found.rank, found.how) == (2, "persistent")


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_equal_ranks_seldom_seem_uneven(ranks: int) -> None:
    draw = np.random.default_rng(ranks)
    chances = []
    for _ in range(300):
        came = draw.exponential(1.0, (ranks, 8))
        late = np.where(came == came.max(axis=0), came - came.mean(axis=0), 0.0)
        chances.append(chance(late, int(late.sum(axis=1).argmax())))
    assert np.mean(np.array(chances) <= BY_CHANCE) <= 2 * BY_CHANCE + 0.02  # by two tests


def test_students_t() -> None:
    quantiles = {1: 6.314, 2: 2.920, 3: 2.353, 4: 2.132, 7: 1.895, 12: 1.782}  # of 95 %
    assert [above(t, n) for n, t in quantiles.items()] == pytest.approx([0.05] * 6, rel=1e-3)
    assert above(-2.0, 5) == pytest.approx(1 - above(2.0, 5))


def test_ranks_that_come_late_in_turn_are_no_straggler() -> None:
    late = {r: [400.0 if s % 4 == r else 0.0 for s in range(8)] for r in range(4)}
    job = build(job_of(late))
    assert (job.pattern, job.stragglers) == ("in turn", ())


def test_even_ranks_are_balanced() -> None:
    job = late_job(0, [0.0] * STEPS)
    assert (job.pattern, job.stragglers) == ("balanced", ())


def test_the_cause_is_what_the_late_ranks_ledger_has_beyond_the_others() -> None:
    def events(late: float, extra: list[Event]) -> list[Event]:
        return [e for s in range(STEPS) for e in work(s, 100 * s + 1, late)] + extra

    loader = [
        op("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", s * STEP + 130, 450)
        for s in range(STEPS)
    ]
    loaders = [replace(e, cat=e.cat.__class__.USER_ANNOTATION) for e in loader]
    even = [rank_of(r, events(0.0, [])) for r in range(3)]
    # Its collective is called for only when the batch is there.
    late = [
        replace(e, start=e.start + 550) if e.corr % 100 == 91 and not e.collective else e
        for e in events(450.0, loaders)
    ]
    (found,) = build([*even, rank_of(3, late)]).stragglers
    assert (found.rank, found.cause, found.kind) == (3, "loader", "data")


def test_a_rank_that_is_late_when_its_recording_begins_was_late_before() -> None:
    """It takes as long as the others from its first event on: nothing recorded makes it late."""
    even = [rank_of(r, work(0, 1, 0.0), steps=1) for r in range(3)]
    late = [e if e.collective else replace(e, start=e.start + 400) for e in work(0, 1, 400.0)]
    job = build([*even, rank_of(3, late, steps=1)])
    (found,) = job.stragglers
    assert (found.rank, found.cause, found.kind) == (3, "before", "before")
    assert found.causes[0].us == 400.0
    assert found.causes[1:] == ()
    assert text.verdict(job) == (
        "The other 3 ranks wait for rank 3: 400 µs of a 1.00 ms step on average,"
        " in the one step that the traces hold."
    )
    assert text.reason(job) == (
        "It is 400 µs behind when its recording begins. The wait for it is 100 % of all waiting."
    )


def test_the_verdict_says_in_which_steps_and_why() -> None:
    even = [
        rank_of(r, [e for s in range(STEPS) for e in work(s, 100 * s + 1, 0.0)]) for r in range(3)
    ]
    slow = [e for s in range(STEPS) for e in work(s, 100 * s + 1, 400.0, pieces=5)]
    job = build([*even, rank_of(3, slow)])
    assert text.verdict(job) == (
        "The other 3 ranks wait for rank 3: 400 µs of a 1.00 ms step on average,"
        " in 6 of 6 steps (persistent)."
    )
    assert text.reason(job).startswith("It computes longer: it spends 400 µs more on GPU busy:")
    assert [row[0] for row in text.rows(job) if row[3] != "–"] == ["3"]
    assert text.rows(job)[3][4].startswith("GPU busy: compute: ")


@pytest.mark.parametrize(
    ("busy", "pieces", "words"),
    [(100.0, 5, "more work: 30 pieces against 6"), (500.0, 1, "as much work takes longer")],
)
def test_more_work_is_distinguished_from_slower_work(busy: float, pieces: int, words: str) -> None:
    even = [
        rank_of(r, [e for s in range(STEPS) for e in work(s, 100 * s + 1, 0.0)]) for r in range(3)
    ]
    slow = [e for s in range(STEPS) for e in work(s, 100 * s + 1, 400.0, busy=busy, pieces=pieces)]
    (found,) = build([*even, rank_of(3, slow)]).stragglers
    assert (found.rank, found.kind) == (3, "compute")
    assert words in found.detail


def test_ranks_without_a_trace_are_named() -> None:
    job = build(job_of({0: [0.0] * 3, 2: [9.0] * 3}))
    assert job.missing == (1, 3)
    assert "no trace of rank 1 and 3, of 4" in job.notes[0]


@given(st.permutations(range(4)))
def test_the_order_of_ranks_does_not_matter_to_who_is_late(order: list[int]) -> None:
    late = {r: [300.0 if r == 1 else 0.0] * 4 for r in order}
    (found,) = build(job_of(late)).stragglers
    assert found.rank == 1


# -- whose ranks these are -------------------------------------------------------------------------


def members(ranks: Sequence[RankTrace]) -> list[tuple[int, ...]]:
    return [job.members for job in identity.jobs(ranks)]


def test_ranks_of_one_job_are_recognized_by_what_their_traces_say() -> None:
    ranks = job_of({1: [0.0] * 3, 0: [0.0] * 3})
    assert members(ranks) == [(1, 0)]  # in order of their numbers


def test_two_jobs_are_kept_apart() -> None:
    here = job_of({0: [0.0] * 3, 1: [0.0] * 3})
    there = [replace(r, world_size=8, path=f"x{r.path}") for r in here]
    ranks = [*here, *there]
    assert members(ranks) == [(0, 1), (2, 3)]
    assert "traces of 2 jobs, reported apart" in identity.mixed(identity.jobs(ranks), ranks)


def test_a_rank_that_fits_no_other_says_why() -> None:
    ranks = job_of({0: [0.0] * 3, 1: [0.0] * 3, 2: [0.0] * 3})
    hours = 3 * 3_600 * 10**9
    late = replace(ranks[2], start=ranks[2].start + hours, end=ranks[2].end + hours)
    silent = replace(ranks[2], collectives=reduced(trace_of(op("aten::mm", 0, 9))).collectives)
    alone = [[*ranks[:2], other] for other in (late, silent)]
    said = [line for some in alone for line in identity.alone(identity.jobs(some), some)]
    of = "r2.json: rank 2 of 4, reported alone:"
    assert said == [
        f"{of} by its clock it ran 3.0 h apart from the other ranks",
        f"{of} it has no collectives",
    ]
    assert identity.alone(identity.jobs(ranks), ranks) == []
    other_world = [*ranks[:2], replace(silent, world_size=8)]
    assert identity.alone(identity.jobs(other_world), other_world) == []
    other_run = replace(ranks[0], start=late.start, end=late.end, path="before.json")
    for some in ([*ranks, other_run], [ranks[0], other_run]):  # its rank is there: not this job's
        assert identity.alone(identity.jobs(some), some) == []


def test_steps_of_a_job_are_those_of_most_of_its_ranks() -> None:
    """A rank whose trace was cut has fewer."""
    ranks = job_of({r: [300.0 if r == 1 else 0.0] * 6 for r in range(4)})
    cut = rank_of(3, [e for s in range(4) for e in work(s, 100 * s + 1, 0.0)], steps=4)
    (found,) = build([*ranks[:3], cut]).stragglers
    assert (found.rank, found.steps, found.how) == (1, tuple(range(6)), "persistent")


def test_a_world_too_large_to_list_is_counted() -> None:
    ranks = [replace(r, world_size=10**12) for r in job_of({0: [0.0] * 3, 1: [9.0] * 3})]
    job = build(ranks)
    assert job.notes[0].startswith("no trace of 999,999,999,998 of 1,000,000,000,000 ranks:")
    assert len(job.missing) < 20_000


def test_a_rank_that_is_there_twice_is_left_out_with_a_line() -> None:
    ranks = job_of({0: [0.0] * 3, 1: [0.0] * 3})
    again = replace(ranks[1], path="again.json", sha256="1")
    (job,) = identity.jobs([*ranks, again])
    assert job.members == (0, 1)
    assert job.left_out == (
        (2, "again.json: rank 1 of this job was read before, from r1.json; left out"),
    )


@pytest.mark.parametrize(
    "change",
    [
        {"start": 10**15, "end": 10**15 + 1},  # ran at another time
        {"world_size": 16},
        {"groups": {"0": (0, 1, 9)}},
        {"rank": None},
    ],
)
def test_what_speaks_against_one_job(change: dict[str, object]) -> None:
    a, b = job_of({0: [0.0] * 3, 1: [0.0] * 3})
    a = replace(a, groups={"0": (0, 1)})
    assert members([a, replace(b, **change)]) == []


# -- the command -----------------------------------------------------------------------------------


def test_a_folder_with_ranks_of_one_job_is_one_report(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    for rank in range(3):
        (tmp_path / f"trace{rank}.json").write_text(
            json.dumps(kineto(rank, 400 if rank == 1 else 0))
        )
    words = [str(tmp_path), "judge=none", "flagger=rules", "--format", "json"]
    assert scan.main([*words, "--out", str(tmp_path / "out")]) == 0
    report = from_json(capsysbinary.readouterr().out)
    assert report.job is not None
    assert [r.rank for r in report.job.ranks] == [0, 1, 2]
    assert "comm-straggler" not in {row.pattern for row in report.not_checked}
    (found,) = [f for f in report.findings if f.pattern == "comm-straggler"]
    assert found.ranks == (1,)
    assert "wait" in found.explanation
    assert "rank 1" in found.explanation
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Who waits for whom" in page
    assert "rank 1 (last)" in page


def test_a_run_that_was_stopped_goes_on(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    for rank in range(3):
        (tmp_path / f"{rank}.json").write_text(json.dumps(kineto(rank, 400 if rank == 1 else 0)))
    words = [str(tmp_path), "flagger=rules", "--format", "json"]
    scan.main(words)
    whole = capsysbinary.readouterr().out
    keep = f"executor.keep={tmp_path / 'kept'}"
    read_here, stops = scan_file.scan_path, tmp_path / "2.json"

    def killed(path: str, *rest: object) -> object:
        if Path(path) == stops:
            raise KeyboardInterrupt
        return read_here(path, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(scan_file, "scan_path", killed)
    assert scan.main([*words, keep]) != 0
    again: list[Path] = []

    def read_again(path: str, *rest: object) -> object:
        again.append(Path(path))
        return read_here(path, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(scan_file, "scan_path", read_again)
    capsysbinary.readouterr()
    assert scan.main([*words, keep]) == 0
    assert again == [stops]
    assert capsysbinary.readouterr().out == whole


def kineto(rank: int, late: float) -> dict[str, object]:
    """A file as Kineto writes it."""
    events: list[dict[str, object]] = []
    for s in range(STEPS):
        at = s * STEP
        events.append(
            {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{s}", "pid": 1, "tid": 1,
             "ts": at, "dur": STEP}
        )  # fmt: skip
        for e in work(s, 100 * s + 1, late):
            on_device = e.stream >= 0
            args: dict[str, object] = {"correlation": e.corr}
            if on_device:
                args |= {"device": 0, "stream": e.stream}
            if e.collective:
                args |= {
                    "Collective name": e.collective, "Process Group Name": e.group,
                    "In msg nelems": e.msg_elems, "Group size": e.group_size, "dtype": "Float",
                }  # fmt: skip
            events.append(
                {"ph": "X", "cat": "kernel" if on_device else "cuda_runtime", "name": e.name,
                 "pid": 0 if on_device else 1, "tid": e.stream if on_device else 1, "ts": e.start,
                 "dur": e.dur, "args": args}
            )  # fmt: skip
    info = {"backend": "nccl", "rank": rank, "world_size": 3}
    return {"schemaVersion": 1, "distributedInfo": info, "traceEvents": events}


# -- public jobs -----------------------------------------------------------------------------------


@shared
def test_the_public_step_of_eight_ranks() -> None:
    ranks = [reduced(read(SHARED / f"v100_dlrm_rank{r}.json.gz")) for r in range(8)]
    assert members(ranks) == [tuple(range(8))]
    job = build(ranks)
    assert [c.last for c in job.collectives] == [7, 7, 7, 7, 7, 5, 5, 4]
    skews = [7624, 1101, 168, 125, 223, 534, 584, 885]
    assert [c.skew_us for c in job.collectives] == pytest.approx(skews, abs=2)
    assert [c.transfer_us for c in job.collectives] == [10, 8, 7, 7, 86, 10, 20, 69]
    assert job.transfer_us == 217
    assert (job.matched_by, job.confidence, job.missing) == ("stream order", 1.0, ())
    assert job.clock_error_us <= 7
    (found,) = job.stragglers
    assert (found.rank, found.how) == (7, "one step")


@shared
def test_two_of_many_ranks_are_matched_by_ends_where_some_collectives_are_missing() -> None:
    ranks = [reduced(read(SHARED / f"sampled_train_rank{r}.json.gz")) for r in range(2)]
    assert members(ranks) == [(0, 1)]
    job = build(ranks)
    assert (job.world_size, len(job.missing), job.matched_by) == (128, 126, "ends")
    assert job.stragglers == ()
    assert any("is not known" in note for note in job.notes)


@shared
def test_the_public_step_of_one_rank_to_the_last_element() -> None:
    trace = read(SHARED / "a100_ddp_conv_nccl_train.json.gz")
    rows = traffic([reduced(trace)])
    reduce = [t for t in rows if t.op == "AllReduce"]
    assert sum(t.calls for t in reduce) == 15
    assert sum(t.elements for t in reduce) == 76_671_096
    assert {(t.dtype, t.algorithm, t.protocol, t.group_size) for t in reduce} == {
        ("Float", "RING", "LL", 2)
    }
    assert sum(t.calls for t in rows if t.op == "Broadcast") == 6
    activity = Activity(trace)
    overlapped = activity.comm.measure - activity.exposed_comm.measure
    assert (overlapped / 1000, activity.comm.measure / 1000) == pytest.approx(
        (7317.0, 46_876.5), abs=0.1
    )
    assert np.isfinite([t.bus_gbs for t in reduce]).all()


def test_collectives_of_one_kind_that_one_rank_is_late_for_take_one_line() -> None:
    job = build(job_of({0: [0.0] * 3, 1: [100.0] * 3, 2: [600.0, 500.0, 400.0]}))
    (line,) = text.worst(job)
    assert line.startswith("AllReduce, rank 2 arrives last 3 times, up to 600 µs after the first;")
