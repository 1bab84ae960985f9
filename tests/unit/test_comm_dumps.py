"""Flight-recorder dumps, Inspector records, bandwidth tables, and the command that reads them."""

from __future__ import annotations

import io
import json
import pickle
import tarfile
from pathlib import Path

import pytest

from detector import comm
from detector.errors import TraceError
from detector.jobs import volumes
from detector.logs import flight, inspector, nodes, tables
from detector.logs.flight import Dump

SHARED = Path(__file__).resolve().parents[2] / "../shared/comm"
shared = pytest.mark.skipif(not SHARED.exists(), reason="public dumps are not here")

CONFIG = {
    "0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"},
    "1": {"name": "1", "desc": "TP", "ranks": "[0, 1]"},
}


def entry(group: str, sequence: int, at: int, **more: object) -> dict[str, object]:
    return {
        "process_group": (group, CONFIG[group]["desc"]),
        "collective_seq_id": sequence,
        "profiling_name": "nccl:all_reduce",
        "input_sizes": [[16]],
        "input_dtypes": ["Float"],
        "state": "scheduled",
        "time_created_ns": at,
        "is_p2p": False,
        **more,
    }


def dump(rank: int, entries: list[dict[str, object]], config: object = CONFIG) -> Dump:
    value = {"version": "2.9", "pg_config": config, "entries": entries}
    return flight.parse(pickle.dumps(value, 2), f"_dump_{rank}")


def unpacked(path: Path, to: Path) -> Path:
    with tarfile.open(path) as archive:
        archive.extractall(to, filter="data")
    return to


# -- flight recorder -------------------------------------------------------------------------------


def test_the_rank_that_did_not_come_is_named_with_the_first_collective_it_missed() -> None:
    # 0 waits for 1 in TP; 2 waits for both in the default group, which is a consequence.
    found = flight.check(
        [
            dump(0, [entry("1", 5, 100), entry("0", 9, 200)]),
            dump(1, [entry("1", 4, 50, state="completed")]),
            dump(2, [entry("0", 9, 120)]),
        ]
    )
    assert [(a.kind, a.ranks, a.call) for a in found] == [("hang", (1,), 5)]
    assert "group 1 TP" in found[0].where


def test_a_rank_without_entries_is_missing_too() -> None:
    found = flight.check([dump(0, [entry("0", 3, 10)]), dump(1, []), dump(2, [entry("0", 3, 11)])])
    assert [(a.kind, a.ranks) for a in found] == [("hang", (1,))]


def test_a_rank_that_is_ahead_misses_nothing() -> None:
    found = flight.check(
        [dump(r, [entry("0", 3 + (r == 1), 10, state="completed")]) for r in range(3)]
    )
    assert found == ()


def test_mismatched_calls_under_one_number_are_named() -> None:
    rows = [
        entry("0", 3, 10),
        entry("0", 3, 10),
        entry("0", 3, 10, profiling_name="nccl:broadcast"),
    ]
    (found,) = flight.check([dump(r, [row]) for r, row in enumerate(rows)])
    assert (found.kind, found.ranks) == ("mismatched-op", (2,))


def test_dumps_of_two_jobs_are_read_apart() -> None:
    other = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}}
    mine = [dump(r, [entry("0", 3, 10)]) for r in (0, 1)]
    assert [len(job) for job in flight.jobs([*mine, dump(2, [], other)])] == [2, 1]


def test_a_missing_dump_is_said() -> None:
    (found,) = flight.check([dump(r, [entry("0", 3, 10, state="completed")]) for r in (0, 1)])
    assert (found.kind, found.ranks) == ("missing-rank", (2,))


class _Runs:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return print, ("this must never be printed",)


@pytest.mark.parametrize("protocol", range(2, 6))
def test_a_pickle_that_wants_to_import_is_refused(
    protocol: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(TraceError, match=r"_dump_0: refused: asks for \w+\.print"):
        flight.parse(pickle.dumps({"entries": [_Runs()]}, protocol), "_dump_0")
    assert capsys.readouterr().out == ""


def test_a_pickle_that_asks_for_memory_is_refused() -> None:
    bomb = b"\x80\x02}r\xff\xff\xff\x7f."
    with pytest.raises(TraceError, match="refused: asks for a memo"):
        flight.parse(bomb, "_dump_0")


def test_a_pickle_that_nests_without_end_is_never_written_out() -> None:
    nested: list[object] = [1]
    for _ in range(60):
        nested = [nested, nested]
    found = dump(0, [entry("0", 1, 1, input_sizes=nested, profiling_name=nested)])
    assert found.entries[0].op == ""
    assert len(found.entries[0].shapes) < 500


@pytest.mark.parametrize(
    "data", [b"", b"\x80\x02", b"\x80\x02}.", b"{}", b'{"entries": 3}', b"\x80\x02K\x01."]
)
def test_what_is_no_dump_gets_one_line(data: bytes) -> None:
    with pytest.raises(TraceError, match=r"^x: "):
        flight.parse(data, "x")


@shared
@pytest.mark.parametrize(
    ("name", "entries", "groups", "group", "ranks"),
    [
        ("gpu_error_1st", 289, 65, "74 EXPERT_MODEL_PARALLEL_GROUP", (12,)),
        ("lock_gil_1st", 142, 59, "72 EXPERT_MODEL_PARALLEL_GROUP", (9, 14)),
    ],
)
def test_public_hangs(
    tmp_path: Path, name: str, entries: int, groups: int, group: str, ranks: tuple[int, ...]
) -> None:
    folder = unpacked(SHARED / f"flight/nvrx_{name}.tar.gz", tmp_path) / name
    dumps = [flight.read(folder / f"_dump_{rank}") for rank in range(16)]
    assert sum(len(d.entries) for d in dumps) == entries
    assert len({g.name for d in dumps for g in d.groups}) == groups
    (found,) = flight.check(dumps)
    assert (found.kind, found.ranks) == ("hang", ranks)
    assert f"group {group}," in found.where
    assert "all_to_all" in found.text
    if name == "gpu_error_1st":
        assert "[[4027, 5120]] [BFloat16]" in found.text


# -- Inspector -------------------------------------------------------------------------------------


def record(rank: int, sequence: int, time: float, op: str = "AllReduce") -> str:
    perf = {
        "coll": op,
        "coll_sn": sequence,
        "coll_msg_size_bytes": 1 << 20,
        "coll_exec_time_us": time,
        "coll_algobw_gbs": 1.0,
        "coll_busbw_gbs": 1.5,
    }
    return json.dumps(
        {"header": {"id": "0x1", "rank": rank, "n_ranks": 4, "nnodes": 1}, "coll_perf": perf}
    )


def test_the_rank_that_is_done_fastest_came_last() -> None:
    lines = [record(r, n, 20 if r == 2 else 900 + r) for n in range(8) for r in range(4)]
    records, lost = inspector.records(iter(lines))
    assert (len(records), lost) == (32, 0)
    (found,) = inspector.check(records)
    assert (found.kind, found.ranks) == ("late-rank", (2,))


def test_even_ranks_raise_no_alarm() -> None:
    lines = [record(r, n, 100 + (r + n) % 4) for n in range(8) for r in range(4)]
    assert inspector.check(inspector.records(iter(lines))[0]) == ()


def test_damaged_records_are_counted() -> None:
    assert inspector.records(iter([record(0, 1, 5), '{"header": 3}', '{"a": ']))[1] == 2


@shared
def test_the_guides_record() -> None:
    text = (SHARED / "nccl/nccl_inspector_README.md").read_text()
    block = text.split("## Output Example\n")[1].split("```json\n")[1].split("```")[0]
    records, _ = inspector.records(iter(block.splitlines()))
    (found,) = records
    assert (found.op, found.sequence, found.bytes) == ("AllReduce", 1407, 17_179_869_184)
    (row,) = volumes.of_records(records).rows
    assert volumes.busiest(row) == pytest.approx(485.119099, rel=1e-4)


# -- tables ----------------------------------------------------------------------------------------


def table(a: str, b: str, speed: float) -> tables.Table:
    return tables.Table("t", "sendrecv_perf", "SendRecv", (a, b), 2, (), speed, "")


def test_a_slow_node_is_named_once_and_its_pairs_are_not() -> None:
    names = "abcdefg"
    runs = [table(x, y, 4.0 if "c" in (x, y) else 10.0) for x in names for y in names if x < y]
    (found,) = nodes.check(runs)
    assert (found.kind, found.subject) == ("slow-node", "c")


def test_a_slow_pair_is_named_where_its_nodes_are_sound() -> None:
    names = "abcdefg"
    runs = [
        table(x, y, 4.0 if (x, y) == ("c", "d") else 10.0) for x in names for y in names if x < y
    ]
    (found,) = nodes.check(runs)
    assert (found.kind, found.subject) == ("slow-pair", "c+d")


def test_rows_of_three_layouts() -> None:
    tail = "10.0 1.5 2.5 0 11.0 1.4 2.4 N/A"
    lines = [
        f"64 16 float {tail}",
        f"64 16 float sum {tail}",
        f"64 16 double none -1 {tail}",
        "0 0 float sum " + tail,
        "64 16 float sum x",
    ]
    found = tables.parse(lines)
    assert found is not None
    assert [(r.bytes, r.time_us, r.bus_gbs) for r in found.rows] == [(64, 10.0, 2.5)] * 3


@shared
@pytest.mark.parametrize(
    ("archive", "rows", "slow"),
    [
        ("xxrjun_cluster00_pairwise_2511", 7760, ["cnode2-003"]),
        ("xxrjun_cluster01_pairwise_20260128-010702", 1080, []),
        ("xxrjun_cluster01_single-node_20260128-145017", 1000, []),
    ],
)
def test_public_clusters(tmp_path: Path, archive: str, rows: int, slow: list[str]) -> None:
    unpacked(SHARED / f"ncclbench/{archive}.tar.gz", tmp_path)
    read = [t for file in sorted((tmp_path / "logs").iterdir()) for t in tables.read_all(file)]
    assert sum(len(t.rows) for t in read) == rows
    found = nodes.check(read)
    assert [a.subject for a in found if a.kind == "slow-node"] == slow
    if slow:
        assert found[0].where == "sendrecv_perf, 4 devices a node"
        assert "0.43 of the median" in found[0].text
    else:
        assert found == ()


@shared
@pytest.mark.parametrize(
    ("name", "rows", "peak"),
    [("allreduce", 32, 235.26), ("allgather", 29, 223.39), ("reducescatter", 29, 231.52)],
)
def test_public_tables(name: str, rows: int, peak: float) -> None:
    (found,) = tables.read_all(SHARED / f"ncclbench/superbench_a100x8_nccl_{name}.log")
    assert len(found.rows) == rows
    assert max(r.bus_gbs for r in found.rows) == peak


# -- the command -----------------------------------------------------------------------------------


def test_the_command_reads_a_folder_of_anything(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    for rank in range(2):
        rows = [entry("0", 3, 10)] if rank else []
        value = {"version": "2.9", "pg_config": CONFIG, "entries": rows}
        (tmp_path / f"_dump_{rank}").write_bytes(pickle.dumps(value, 2))
    (tmp_path / "inspector.jsonl").write_text(record(0, 1, 5))
    (tmp_path / "notes.txt").write_text("nothing of that")
    assert comm.main([str(tmp_path), "--format", "json"]) == 0
    found = json.loads(capsysbinary.readouterr().out)
    assert [a["kind"] for a in found["anomalies"]] == ["hang", "missing-rank"]
    assert found["profile"]["sizes_log2"] == {"20": 1}
    assert found["notes"] == []
    assert comm.main([str(tmp_path), "--fail-on-anomaly"]) == 1


def test_bad_input_is_one_line_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "_dump_0"
    bad.write_bytes(pickle.dumps({"entries": [_Runs()]}, 2))
    nothing = tmp_path / "notes.txt"
    nothing.write_text("x")
    assert comm.main([str(bad), str(nothing), str(tmp_path / "absent")]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("error: ") for line in lines)
    assert "refused: asks for" in capsys.readouterr().err or any("refused" in x for x in lines)


def test_names_in_a_log_cannot_move_the_terminal(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    log = tmp_path / "log"
    log.write_text("n:1:1 [0] a/b.cc:1 NCCL WARN \x1b[2Jgone\u202e\n")
    assert comm.main([str(log)]) == 0
    out = capsysbinary.readouterr().out
    assert b"\x1b" not in out
    assert "\u202e".encode() not in out


def test_pickles_are_recognized_by_their_bytes() -> None:
    assert flight.looks_like(pickle.dumps({}, 2))
    assert not flight.looks_like(io.BytesIO(b"n:1:1 [0] NCCL INFO x").getvalue())
