"""Which traces a model may learn from, and which it is measured on.

A scheme gives every trace a part. What never parts is the workload: traces of one program, on
whatever device, recorded, injected into or simulated, are all in one part of a scheme or left out
of it. So neither a base, nor a pair, nor a seed stands on two sides, and no window does.

- ``split``: the usual one. Simulated traces, whose programs have names of their own, are in
  ``train`` alone. Of the traces labeled by hand those are the part ``natural`` whose workloads are
  in ``test``; the others are left out, as faults put into them are learned from.
- ``unseen_natural``: measured on all that was labeled by hand, learned on other programs.
- ``unseen_device``: measured on AMD's devices, learned on NVIDIA's (and CPUs).
- ``unseen_workload``: measured on language models, learned on everything else.
- ``unseen_recorded``: learned on injected faults, measured on recorded ones.
- ``unseen_injected``: the reverse.

Each part has a role (``ROLES``): *train* (validation chooses among what was learned), *development*
(labeled by hand; looked at as often as one likes, learned from never), *test* (each look at it is
written down).

But for the last two simulated traces are learned from, and never measured on. What was labeled by
hand is never learned from. The part depends on names, not on the order of traces or on chance.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

Part = Literal["train", "validation", "test", "natural", "excluded"]

PARTS: Final[tuple[Part, ...]] = ("train", "validation", "test", "natural", "excluded")
MAIN: Final = "split"
Role = Literal["train", "development", "test", ""]
ROLES: Final[dict[Part, Role]] = {  # in the scheme MAIN
    "train": "train",
    "validation": "train",
    "natural": "development",
    "test": "test",
    "excluded": "",
}
AMD: Final = re.compile(r"^rocm:|\bMI\d{2,3}X?\b")
LANGUAGE: Final = frozenset(("language", "lm", "translator"))  # first words of workloads

# Chosen so that each part shows every kind of device and program; another name is drawn.
CHOSEN: Final[dict[str, Part]] = {
    workload: part
    for part, workloads in (
        (
            "train",
            "classifier generator recommender depth pose speech translator matmul tiny "
            "classifier-resnet50-train language-qwen-infer recommender-dlrm-train "
            "language-compiled-ddp-train",
        ),
        (
            "validation",
            "segmenter forecaster patches language-block-infer language-switch-infer "
            "classifier-resnet50-ddp-train classifier-resnet-checkpoint-train "
            "recommender-sampled-train",
        ),
        (
            "test",
            "detector language graph encoder classifier-vit-infer classifier-conv-ddp-train "
            "classifier-resnet18-ddp-train language-bert-infer language-vllm-serve "
            "language-sglang-serve generator-flux-infer microbenchmark-copy "
            "microbenchmark-linear-train unknown-mi210",
        ),
    )
    for workload in workloads.split()
}
TEST, VALIDATION = 0.25, 0.1  # shares of the workloads that are drawn


@dataclass(frozen=True)
class Member:
    """What a split goes by."""

    origin: str
    workload: str
    device: str


def schemes(members: Iterable[Member]) -> dict[str, list[Part]]:
    """For each scheme the part of each trace, in their order."""
    found = list(members)
    parts = {MAIN: [_usual(m) for m in found]}
    recorded = frozenset(m.workload for m in found if m.origin == "recorded")
    for name, (is_test, is_learned) in HELD_OUT.items():
        measured = [is_test(m, recorded) for m in found]
        tested = frozenset(m.workload for m, is_in in zip(found, measured, strict=True) if is_in)
        parts[name] = [
            "test" if is_in else _other(m, tested) if is_learned(m) else "excluded"
            for m, is_in in zip(found, measured, strict=True)
        ]
    return parts


def _usual(member: Member) -> Part:
    if member.origin == "simulated":
        return "train"
    part = drawn(member.workload)
    if member.origin == "natural":
        return "natural" if part == "test" else "excluded"
    return part


def drawn(workload: str) -> Part:
    """The part of a workload where nothing else decides it."""
    if workload in CHOSEN:
        return CHOSEN[workload]
    at = zlib.crc32(workload.encode()) / 2**32
    return "test" if at < TEST else "validation" if at < TEST + VALIDATION else "train"


# -- held out --------------------------------------------------------------------------------------


def _other(member: Member, tested: frozenset[str]) -> Part:
    """The part of a trace that may be learned from, unless its workload is measured on."""
    if member.origin == "natural" or member.workload in tested:
        return "excluded"
    is_drawn = member.origin != "simulated" and drawn(member.workload) == "validation"
    return "validation" if is_drawn else "train"


def _is_real(member: Member) -> bool:
    return member.origin in ("recorded", "injected")


def _is_amd(member: Member) -> bool:
    return bool(AMD.search(member.device))


def _is_language(member: Member) -> bool:
    return member.workload.split("-")[0] in LANGUAGE


# By scheme: which traces are measured on (given: the workloads that were recorded), and which
# may be learned from.
HELD_OUT: Final[
    dict[str, tuple[Callable[[Member, frozenset[str]], bool], Callable[[Member], bool]]]
] = {
    "unseen_natural": (lambda m, _: m.origin == "natural", lambda _: True),
    "unseen_device": (lambda m, _: _is_real(m) and _is_amd(m), lambda m: not _is_amd(m)),
    "unseen_workload": (
        lambda m, _: _is_real(m) and _is_language(m),
        lambda m: not _is_language(m),
    ),
    "unseen_recorded": (lambda m, _: m.origin == "recorded", lambda m: m.origin == "injected"),
    "unseen_injected": (
        lambda m, recorded: m.origin == "injected" and m.workload not in recorded,
        lambda m: m.origin == "recorded",
    ),
}
SCHEMES: Final = (MAIN, *HELD_OUT)


# -- groups ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Group:
    """Traces that are in the same part of every scheme. ``members``: their positions."""

    name: str  # the part of the main scheme, and a number within it
    parts: Mapping[str, Part]
    members: tuple[int, ...]


def groups(parts: Mapping[str, Sequence[Part]]) -> list[Group]:
    """The traces by their parts in all schemes, the main scheme first: what a data set needs one
    file of, so that each part of each scheme is a list of files. ``parts``: as of ``schemes``."""
    members: dict[tuple[Part, ...], list[int]] = {}
    for i, together in enumerate(zip(*(parts[scheme] for scheme in SCHEMES), strict=True)):
        members.setdefault(together, []).append(i)
    found: list[Group] = []
    for together in sorted(members, key=lambda known: [PARTS.index(part) for part in known]):
        number = sum(group.parts[MAIN] == together[0] for group in found)
        names = dict(zip(SCHEMES, together, strict=True))
        found.append(Group(f"{together[0]}-{number}", names, tuple(members[together])))
    return found
