"""NCCL's debug logs: every form of a line, ranks by communicator, and what is wrong in them."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from detector.jobs import volumes
from detector.logs import checks, nccl
from detector.logs.nccl import NcclLog, parse_lines
from detector.logs.read import read
from tests import nccl_logs

SHARED = Path(__file__).resolve().parents[2] / "../shared/comm/nccl"
HEALTHY, DEGRADED = "timez_a100x2_nccl.log.gz", "timez_a100x2_nccl-fault.log.gz"

INIT = [
    "n1:10:10 [0] NCCL INFO NCCL version 2.27.7+cuda13.0",
    "n1:10:20 [0] NCCL INFO ncclCommInitRankConfig comm 0xa0 rank 0 nranks 2 cudaDev 0 nvmlDev 0"
    " busId 17000 commId 0x54fe - Init START",
    "n1:10:21 [1] NCCL INFO ncclCommInitRankConfig comm 0xb0 rank 1 nranks 2 cudaDev 1 nvmlDev 1"
    " busId 65000 commId 0x54fe - Init START",
]
CALL = (
    "AllReduce: opCount {n} sendbuff 0x72 recvbuff 0x92 count 16 datatype 7 op 0 root 0 comm {c}"
    " [nranks=2] stream 0x55ab"
)


def call(comm: str, n: str = "0") -> str:
    return "n1:10:10 [1] NCCL INFO " + CALL.format(c=comm, n=n)


def ranks(log: NcclLog) -> list[int]:
    return [log.communicators[i].rank for i in log.calls.comm.tolist()]


def test_the_rank_comes_from_the_communicator_and_not_from_the_bracket() -> None:
    log = parse_lines([*INIT, call("0xa0"), call("0xb0"), call("0xa0")])
    assert ranks(log) == [0, 1, 0]
    assert log.version == "2.27.7+cuda13.0"


@pytest.mark.parametrize(
    ("line", "op", "count", "dtype"),
    [
        # v2.3.5 has no name, but a size
        (
            "n:1:1 [0] NCCL INFO opCount 3 sendbuff 0x1 recvbuff 0x2 count 5 size 4 datatype 7 op 0"
            " root 0 comm 0xa [nranks=4] stream 0x9",
            "",
            5,
            7,
        ),
        # the guide's own lines leave the pointers out
        (
            "node-01:1896279:1896279 [0] NCCL INFO AllReduce: opCount 0 sendbuff 0x... recvbuff"
            " 0x... count 2 datatype 7 op 0 root 0 comm 0x... [nranks=2] stream 0x...",
            "AllReduce",
            2,
            7,
        ),
        # a message passes one buffer, and the peer in root
        (
            "n:1:1 [0] NCCL INFO Recv: opCount 0 sendbuff (nil) recvbuff 0x2 count 8 datatype 9"
            " op 0 root 3 comm 0xa [nranks=4] stream 0x9",
            "Recv",
            8,
            9,
        ),
        # RCCL: ticks before, task and global rank behind
        (
            "n:1:1 [0] 123456 NCCL INFO AllGather: opCount 1 sendbuff 0x1 recvbuff 0x2 count 8"
            " datatype 6 op 0 root 0 comm 0xa [nranks=4] stream 0x9 task 2 globalrank 3",
            "AllGather",
            8,
            6,
        ),
        # a date before
        (
            "[2026-05-05 06:16:47] n:1:1 [0] NCCL INFO Broadcast: opCount 1 sendbuff 0x1 recvbuff"
            " 0x2 count 9 datatype 0 op 0 root 1 comm 0xa [nranks=4] stream 0x9",
            "Broadcast",
            9,
            0,
        ),
    ],
)
def test_calls_of_every_version(line: str, op: str, count: int, dtype: int) -> None:
    log = parse_lines([line])
    assert (log.ops, log.calls.count.tolist(), log.calls.dtype.tolist()) == (
        (op,),
        [count],
        [dtype],
    )
    assert log.cut == ()


@pytest.mark.parametrize(
    ("line", "algorithm", "protocol", "channels"),
    [
        ("4096 Bytes -> Algo 1 proto 0 time 12.5", "RING", "LL", 0),  # v2.20 to 2.22
        ("AllReduce: 4096 Bytes -> Algo 0 proto 2 time 12.5", "TREE", "SIMPLE", 0),  # v2.23
        (
            "AllReduce: 4096 Bytes -> Algo RING proto LL128 channel{Lo..Hi}={0..31}",
            "RING",
            "LL128",
            32,
        ),
    ],
)
def test_tuning_of_every_version(line: str, algorithm: str, protocol: str, channels: int) -> None:
    (tuning,) = parse_lines([f"n:1:1 [0] NCCL INFO {line}"]).tuning
    assert (tuning.algorithm, tuning.protocol, tuning.channels) == (algorithm, protocol, channels)
    assert tuning.bytes == 4096


def test_messages_glued_together_and_into_a_table_are_all_read() -> None:
    row = "     4096   1024   float     sum      -1"
    log = parse_lines(
        [
            *INIT,
            call("0xa0") + call("0xb0"),
            row + call("0xa0"),
            "   1.0  2.0  3.0  0   1.0 2.0 3.0 0",
        ]
    )
    assert ranks(log) == [0, 1, 0]
    assert log.table is not None
    assert [r.bus_gbs for r in log.table.rows] == [3.0]
    assert {c.host for c in log.communicators} == {"n1"}


@pytest.mark.parametrize("length", range(40, 158, 7))
def test_a_cut_call_is_counted_and_never_guessed(length: int) -> None:
    whole = call("0xa0")
    log = parse_lines([*INIT, whole[: min(length, whole.index(" [nranks"))]])
    assert len(log.calls) == 0
    assert len(log.cut) == ("opCount" in whole[:length])


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gz"])
def test_a_log_that_ends_within_a_line_is_said_to(
    pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    whole = "\n".join([*INIT, *(call("0xa0") for _ in range(50))]) + "\n"
    for name, text in (("whole", whole), ("cut", whole[:-30])):
        path = tmp_path / name
        path.write_bytes(pack(text.encode()))
        said = [note for note in read([path]).notes if "ends within a line" in note]
        assert len(said) == (name == "cut")


def test_a_pointer_that_is_used_again_is_another_communicator() -> None:
    ended = "n1:10:20 [0] NCCL INFO comm 0xa0 rank 0 nranks 2 cudaDev 0 busId 1 - Destroy COMPLETE"
    again = INIT[1].replace("rank 0", "rank 1").replace("0x54fe", "0x77")
    log = parse_lines([INIT[1], call("0xa0"), ended, again, call("0xa0")])
    assert ranks(log) == [0, 1]
    assert [c.group for c in log.communicators] == ["0x54fe", "0x77"]


def test_a_gather_moves_its_count_times_the_ranks() -> None:
    line = call("0xa0").replace("AllReduce", "AllGather")
    (row,) = volumes.of_log(parse_lines([*INIT, line])).rows
    assert (row.op, row.elements, row.bytes, row.ranks) == ("AllGather", 16, 64, 2)


def test_algorithms_stay_unknown_without_tuning_lines() -> None:
    (row,) = volumes.of_log(parse_lines([*INIT, call("0xa0")])).rows
    assert (row.algorithm, row.protocol) == ("", "")


def test_a_gz_that_breaks_off_is_read_up_to_there(tmp_path: Path) -> None:
    path = tmp_path / "log"
    packed = gzip.compress("\n".join([*INIT, *[call("0xa0")] * 5000]).encode())
    path.write_bytes(packed[: len(packed) // 2])
    assert 0 < len(nccl.read(path).calls) < 5000


def test_a_hostile_line_takes_no_time() -> None:
    log = parse_lines(
        ["x" * 65000 + " NCCL ", "comm 0x" * 9000 + "NCCL INFO", "[" * 60000 + "NCCL "]
    )
    assert len(log.calls) == 0


# -- what is wrong ---------------------------------------------------------------------------------

KINDS = (
    "skipped-call",
    "extra-call",
    "mismatched-size",
    "mismatched-dtype",
    "mismatched-op",
    "stopped",
    "missing-rank",
)


def anomalies(files: list[list[str]]) -> list[checks.Anomaly]:
    return list(checks.check([parse_lines(file, f"{i}") for i, file in enumerate(files)]))


def test_injected_anomalies_are_named_by_rank_and_place() -> None:
    missed, total = [], 0
    for seed in range(280):
        rng = random.Random(seed)
        style = nccl_logs.STYLES[seed % len(nccl_logs.STYLES)]
        calls = [nccl_logs.program(rng, 8)] * rng.choice((3, 4, 8))
        kind = KINDS[seed % len(KINDS)]
        if kind == "mismatched-op" and not style.named:
            continue  # an unnamed operation cannot differ
        calls, wrong = nccl_logs.injected(rng, kind, calls)
        absent = wrong.rank if kind == "missing-rank" else -1
        found = anomalies(nccl_logs.lines(rng, calls, style, absent=absent))
        total += 1
        named = [a for a in found if a.kind == kind and a.ranks == (wrong.rank,)]
        if not (len(found) == 1 and named and named[0].call == wrong.call):
            missed.append((seed, kind, wrong, found))
    assert total >= 200
    assert len(missed) <= 0.05 * total, missed[:3]


@pytest.mark.parametrize("cut", [0, 1, 5])
def test_sound_logs_raise_no_alarm(cut: int) -> None:
    for seed in range(60):
        rng = random.Random(seed)
        style = nccl_logs.STYLES[seed % len(nccl_logs.STYLES)]
        calls = [nccl_logs.program(rng, 8)] * rng.choice((2, 4, 8))
        assert anomalies(nccl_logs.lines(rng, calls, style, cut=cut)) == []


def test_of_two_ranks_that_differ_both_are_named_where_nothing_tells() -> None:
    rng = random.Random(1)
    a, b = nccl_logs.Call("AllReduce", 8, 7), nccl_logs.Call("AllReduce", 16, 7)
    found = anomalies(nccl_logs.lines(rng, [[a, b], [b, a]], nccl_logs.Style()))
    assert found
    assert all(f.ranks == (0, 1) for f in found)


def test_one_rank_alone_lacks_nobody() -> None:
    assert anomalies([[INIT[1], call("0xa0")]]) == []


def test_channels_are_compared_with_what_the_topology_gives() -> None:
    def run(rings: int) -> list[checks.Anomaly]:
        lines = [
            *INIT[:2],
            "n1:10:20 [0] NCCL INFO === System : maxBw 240.0 totalBw 240.0 ===",
            f"n1:10:20 [0] NCCL INFO Pattern 4, crossNic 0, nChannels {rings}, bw 20.0/20.0,"
            " type NVL/PIX, sameChannels 1",
            "n1:10:20 [0] NCCL INFO comm 0xa0 rank 0 nRanks 2 nNodes 1 localRanks 2 localRank 0",
            f"n1:10:20 [0] NCCL INFO {2 * rings} coll channels, 2 collnet channels",
        ]
        return anomalies([lines])

    assert run(12) == []
    (few,) = run(1)
    assert few.kind == "few-channels"
    assert "2 channels where the topology gives 24" in few.text


def test_warnings_are_said_with_their_line() -> None:
    (found,) = anomalies([["[2026-05-05 06:16:47] n:1:1 [3] plugin/net.cc:334 NCCL WARN Failed"]])
    assert (found.kind, found.text, found.line) == ("warning", "Failed", 1)


def test_a_long_log_keeps_only_columns() -> None:
    log = parse_lines(nccl_logs.many(40_000))
    used = sum(getattr(log.calls, key).nbytes for key in nccl._COLUMNS)
    assert used / len(log.calls) < 64
    assert checks.check([log]) == ()


# -- public logs -----------------------------------------------------------------------------------

shared = pytest.mark.skipif(not (SHARED / HEALTHY).exists(), reason="public logs are not here")


@shared
@pytest.mark.parametrize(
    ("name", "channels", "speed"), [(HEALTHY, 24, 178.078), (DEGRADED, 2, 28.2632)]
)
def test_public_logs_to_the_last_element(name: str, channels: int, speed: float) -> None:
    log = nccl.read(SHARED / name)
    assert len(log.calls) == 990
    assert int(log.calls.count.sum()) == 386_358_312_960
    assert [c.rank for c in log.communicators] == [0, 1]
    assert np.bincount(log.calls.comm).tolist() == [495, 495]
    assert log.ops == ("AllReduce",)
    assert set(log.calls.dtype.tolist()) == {7}
    assert log.cut == ()
    assert {(t.algorithm, t.protocol, t.channels) for t in log.tuning} == {
        ("RING", "SIMPLE", channels)
    }
    assert log.table is not None
    assert (len(log.table.rows), log.table.average_bus_gbs) == (11, speed)
    rows = volumes.of_log(log).rows
    assert sum(row.total_bytes for row in rows) == 1_545_433_251_840


@shared
def test_the_degraded_run_is_named_and_its_twin_is_not() -> None:
    healthy, degraded = nccl.read(SHARED / HEALTHY), nccl.read(SHARED / DEGRADED)
    assert checks.check([healthy]) == ()
    (alone,) = checks.check([degraded])
    assert alone.kind == "few-channels"
    found = checks.check([healthy, degraded])
    assert [a.kind for a in found] == ["few-channels", "low-bandwidth"]
    assert "2 channels" in found[1].text
    assert "has 24; bus bandwidth 28.3 against 178.1 GB/s" in found[1].text
    assert found[1].where.endswith(DEGRADED)


@shared
def test_every_message_of_the_guide_is_one() -> None:
    guide = (SHARED / "nccl_docs_logging.rst").read_text().splitlines()
    samples = [line for line in guide if "[" in line and " NCCL " in line]
    log = parse_lines(samples)
    assert len(samples) > 50
    assert log.cut == ()
    assert len(log.calls) == 2
    assert [t.channels for t in log.tuning] == [32]
    assert [text for _, text in log.warnings] == ["Failed to initialize any NET plugin"]
    assert {c.rank for c in log.communicators if c.ranks == 4} == {0, 1, 2, 3}
