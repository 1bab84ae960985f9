"""What injectors share: read-backs, copies, frames, places, and the reserve of the queue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dataset.inject import frames, pieces
from dataset.inject.edits import Call
from dataset.inject.pieces import Slack, Tensor
from tests.inject_bases import base_of
from tests.traces import annotation, call, kernel, memcpy, op, python


def walk(calls: Sequence[Call]) -> Iterator[Call]:
    for c in calls:
        yield c
        yield from walk(c.inside)


def find(calls: Sequence[Call], name: str) -> Call:
    return next(c for c in walk(calls) if c.name == name)


def names(calls: Sequence[Call]) -> list[str]:
    return [c.name for c in calls]


def test_a_value_is_read_as_its_vendor_reads_it() -> None:
    draw = np.random.default_rng(0)
    cuda = pieces.scalar(base_of("cuda"), "float", draw)
    dense = cuda.inside[0]
    assert (cuda.name, dense.name) == ("aten::item", "aten::_local_scalar_dense")
    assert names(dense.inside) == ["cudaMemcpyAsync", "cudaStreamSynchronize"]
    assert dense.inside[0].work
    assert dense.inside[0].work.name == "Memcpy DtoH (Device -> Pinned)"
    assert dense.inside[1].wait == "stream"
    (rocm,) = pieces.scalar(base_of("rocm"), "float", draw).inside[0].inside
    assert (rocm.name, rocm.wait) == ("hipMemcpyWithStream", "work")
    assert rocm.work
    assert rocm.work.name == "Memcpy DtoD (Device -> Device)"


def test_an_older_pytorch_reads_into_pageable_memory() -> None:
    item = pieces.scalar(base_of(newer=False), "long int", np.random.default_rng(0))
    copy = item.inside[0].inside[0]
    assert copy.work
    assert copy.work.name == "Memcpy DtoH (Device -> Pageable)"
    assert copy.work.args["bytes"] == 8


def test_a_trace_with_a_read_back_of_its_own_tells_how_it_is_done() -> None:
    own = (
        op("aten::_local_scalar_dense", 6_100, 20),
        call("cudaMemcpyAsync", 6_101, 9, corr=900),
        memcpy("Memcpy DtoH (Device -> Pageable)", 6_105, 2, 4, corr=900),
    )
    item = pieces.scalar(base_of("cuda", *own), "float", np.random.default_rng(0))
    copy = item.inside[0].inside[0]
    assert copy.work
    assert "Pageable" in copy.work.name


def test_a_tensor_is_moved_by_the_ops_that_this_pytorch_has() -> None:
    draw, tensor = np.random.default_rng(0), Tensor((32, 3, 224, 224))
    old = base_of("cuda", op("aten::to", 6_100, 9), newer=False)
    new = base_of("cuda", op("aten::to", 6_100, 9), op("aten::_to_copy", 6_101, 7))
    (before,), (after,) = (pieces.to_device(b, tensor, draw) for b in (old, new))
    assert names(before.inside) == ["aten::empty_strided", "aten::copy_"]
    assert names(after.inside) == ["aten::_to_copy"]
    copied = find((after,), "aten::copy_")
    assert names(copied.inside) == ["cudaMemcpyAsync", "cudaStreamSynchronize"]
    assert copied.inside[0].work
    assert copied.inside[0].work.args["bytes"] == tensor.size


def test_ops_are_written_with_the_arguments_of_the_traces_own() -> None:
    own = op("aten::to", 6_100, 9, dims="[[8, 3], [], []]", types='["float", "Int", "Bool"]')
    base, draw = base_of("cuda", own), np.random.default_rng(0)
    written = pieces.op(base, "aten::to", Tensor((5,), "long int"), draw=draw)
    assert written.args["Input Dims"] == [[5], [], []]
    assert written.args["Input type"] == ["long int", "Int", "Bool"]


def test_the_reserve_is_the_shortest_queue_ahead() -> None:
    assert Slack(base_of(behind=2)).reserve(0) == 2_000
    assert Slack(base_of(behind=60)).reserve(0) == 60_000


def test_a_wait_ends_the_reserve() -> None:
    slack = Slack(base_of("cuda", call("cudaStreamSynchronize", 60, 10), behind=60))
    assert slack.reserve(55) == 10_000  # the wait itself absorbs no more
    assert slack.reserve(2_000_000) == 60_000


def test_what_one_stop_used_of_the_queue_the_next_has_no_more() -> None:
    slack = Slack(base_of(behind=500))
    assert [slack.stall(at, 7_000) for at in (0, 300_000)] == [507_000, 7_000]


def test_a_launch_that_waited_for_room_gives_the_host_its_lead_back() -> None:
    full = call("cudaLaunchKernel", 150, 55, corr=900), kernel("k", 900, 9, 900)
    slack = Slack(base_of("cuda", *full, behind=500))
    assert [slack.stall(at, 0) for at in (0, 300_000)] == [500_000, 55_000]


def test_the_backlog_is_what_was_launched_and_not_done() -> None:
    slack = Slack(base_of(behind=500))
    assert slack.backlog(0) == 0
    assert slack.backlog(40_000) == (20 + 14 + 500 + 90.5 - 40) * 1_000


def test_code_goes_where_ops_are_called_and_not_into_the_optimizer() -> None:
    """Ops are called by ``step``; ``size`` only looks something up, the optimizer is a library."""
    extra = (
        python("/app/shapes.py(9): size", 60, 100),
        python("<built-in function len>", 90, 5),
        annotation("Optimizer.step#SGD.step", 600, 1_300),
    )
    base = base_of("cuda", *extra, stacks=True)
    found = pieces.places(base, base.spans[0], np.random.default_rng(0), 99)
    assert found
    assert not [at for at in found if 60_000 < at < 160_000 or at > 600_000]


def test_a_frame_of_the_trace_lends_its_address_and_line() -> None:
    own = (
        python("<built-in method item of Tensor object at 0x7f00000000aa>", 60, 5),
        python("torch/cuda/memory.py(222): empty_cache", 70, 5),
    )
    base = base_of("cuda", *own, stacks=True)
    (item,) = frames.builtin(base, "item", ())
    (cache,) = frames.library(base, "torch/cuda/memory.py", "empty_cache", ())
    assert item.name.endswith("at 0x7f00000000aa>")
    assert cache.name == "torch/cuda/memory.py(222): empty_cache"
    assert frames.builtin(base, "cpu", ()) == frames.builtin(base, "cpu", ())
