"""Splits: a workload stands on one side, whatever the order, and each scheme holds out its own."""

from __future__ import annotations

import random
from collections import Counter, defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataset.bases import known
from dataset.splits import CHOSEN, MAIN, PARTS, ROLES, SCHEMES, Member, drawn, groups, schemes
from detector.config import compose

DEVICES = (
    "cpu",
    "cuda:NVIDIA H200",
    "rocm:AMD Instinct MI300X",
    "simulated:MI210",
    "simulated:A100",
)
WORKLOADS = (
    *("classifier", "detector", "language", "language-qwen-infer", "recommender"),
    *("classifier-vit-infer", "generator-flux-infer", "microbenchmark-add", "segmenter"),
)
SIMULATED = ("lm-train", "convnet-train")
REAL = st.builds(
    Member,
    st.sampled_from(("recorded", "injected", "natural")),
    st.sampled_from(WORKLOADS),
    st.sampled_from(DEVICES[:3]),
)
MADE_UP = st.builds(
    Member, st.just("simulated"), st.sampled_from(SIMULATED), st.sampled_from(DEVICES[3:])
)
MEMBERS = st.lists(REAL | MADE_UP, max_size=40)
LEARNED, MEASURED = {"train", "validation"}, {"test", "natural"}


@given(MEMBERS)
def test_no_workload_crosses_a_split_of_any_scheme(members: list[Member]) -> None:
    for name, parts in schemes(members).items():
        where = defaultdict(set)
        for member, part in zip(members, parts, strict=True):
            assert part in PARTS
            if part != "excluded":
                # what was labeled by hand is measured on, as the test part is
                where[member.workload].add("test" if part == "natural" else part)
        crossing = {w: found for w, found in where.items() if len(found) > 1}
        assert not crossing, name


@given(MEMBERS, st.randoms())
def test_the_order_of_traces_changes_nothing(members: list[Member], chance: random.Random) -> None:
    order = list(range(len(members)))
    chance.shuffle(order)
    straight, shuffled = schemes(members), schemes([members[i] for i in order])
    for name in SCHEMES:
        assert shuffled[name] == [straight[name][i] for i in order]


@given(MEMBERS)
def test_each_scheme_measures_on_what_it_holds_out(members: list[Member]) -> None:
    found = schemes(members)
    for member, main, natural, device, workload, recorded, injected in zip(
        members, *(found[name] for name in SCHEMES), strict=True
    ):
        origin = member.origin
        assert (natural == "test") == (origin == "natural")
        if origin == "simulated":
            assert main == "train"
        parts = (device, workload, recorded, injected)
        if origin == "natural":
            assert main in ("natural", "excluded")
            assert set(parts) == {"excluded"}
        if origin == "simulated":
            assert not {"test", "validation"} & {*parts, natural}
        if device in LEARNED:
            assert "MI" not in member.device
        if device == "test":
            assert "MI" in member.device
        if workload in LEARNED | MEASURED:
            is_test = member.workload.split("-")[0] in ("language", "lm")
            assert is_test == (workload == "test")
        assert recorded not in LEARNED or origin == "injected"
        assert (recorded == "test") == (origin == "recorded")
        assert injected not in LEARNED or origin == "recorded"
        assert injected != "test" or origin == "injected"


def test_what_was_labeled_by_hand_is_measured_on_only_where_its_program_is_not_learned() -> None:
    seen, unseen = "language-qwen-infer", "language-bert-infer"
    members = [Member(o, w, "NVIDIA H100") for w in (seen, unseen) for o in ("injected", "natural")]
    found = schemes(members)
    assert found[MAIN] == ["train", "excluded", "test", "natural"]
    assert found["unseen_natural"] == ["excluded", "test", "excluded", "test"]


def test_faults_in_recorded_bases_do_not_empty_the_reverse_test() -> None:
    members = [
        Member("recorded", "classifier", "cpu"),
        Member("injected", "classifier", "cpu"),
        Member("injected", "recommender-dlrm-train", "V100"),
    ]
    found = schemes(members)
    assert found["unseen_recorded"] == ["test", "excluded", "train"]
    assert found["unseen_injected"] == ["train", "excluded", "test"]


def test_simulated_programs_have_names_of_their_own() -> None:
    """So that no simulated training trace shares a workload with a real one that is measured on."""
    from dataset.faults import PROGRAMS as RECORDED
    from dataset.simulate import WORKLOADS as SIMULATED

    real = set(RECORDED) | {source.workload for source in known().values()}
    assert not real & set(SIMULATED)


def test_a_dozen_of_the_traces_labeled_by_hand_are_the_natural_part() -> None:
    from dataset.natural import read_all

    bases = known()
    labeled = [bases[label.base].workload for label in read_all()]
    parts = schemes(Member("natural", workload, "") for workload in labeled)[MAIN]
    assert parts.count("natural") >= 12


def test_validation_holds_real_bases_of_both_vendors_that_faults_are_put_into() -> None:
    faults = compose("build", ["benchmark=full", "out=here"]).values["benchmark"]["injected"]
    usable = [s for s in known().values() if s.name not in faults["without"]]
    validation = [s for s in usable if drawn(s.workload) == "validation"]
    assert len(validation) >= 3
    assert {s.device.split(":")[0] for s in validation} == {"cuda", "rocm"}


def test_every_part_has_its_role() -> None:
    assert set(ROLES) == set(PARTS)
    assert {part for part, role in ROLES.items() if role == "train"} == LEARNED
    assert ROLES["natural"] == "development"


@pytest.mark.parametrize("part", ["train", "validation", "test"])
def test_the_real_programs_fill_every_part(part: str) -> None:
    from dataset.faults import PROGRAMS as RECORDED

    assert set(RECORDED) <= set(CHOSEN)
    bases = Counter(drawn(w) for w in {s.workload for s in known().values()})
    recorded = Counter(drawn(w) for w in RECORDED)
    assert bases[part] >= 2  # type: ignore[index]
    assert recorded[part] >= 1  # type: ignore[index]


@given(MEMBERS)
def test_a_group_s_traces_are_together_in_every_scheme(members: list[Member]) -> None:
    parts = schemes(members)
    found = groups(parts)
    assert sorted(i for group in found for i in group.members) == list(range(len(members)))
    assert len({group.name for group in found}) == len(found)
    assert len({tuple(group.parts.values()) for group in found}) == len(found)
    for group in found:
        assert group.name.split("-")[0] == group.parts[MAIN]
        for i in group.members:
            assert {scheme: parts[scheme][i] for scheme in SCHEMES} == group.parts
