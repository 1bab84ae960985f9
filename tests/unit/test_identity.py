"""Names of findings: the same for every recording of a program, another for another place."""

from __future__ import annotations

from dataclasses import replace

import pytest

from detector.candidates import Candidate, find
from detector.findings.identity import code_place, identity
from detector.ledger import build
from detector.patterns import BY_ID
from detector.signals import Signals, signals_of
from tests.traces import Event, annotation, op, python, trace_of

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def program(
    file: str, function: str, *, line: int = 3, at: float = 0, slow: float = 1
) -> list[Event]:
    """Three batches that the training thread makes, in a function of this file, and their work."""
    events = []
    for i in range(3):
        start = at + i * 10_000
        length = 4_000 * (slow if i == 1 else 1)
        events += [
            python(f"/home/me/{file}({line}): {function}", start, length),
            annotation(LOADER, start + 1, length - 2),
            op("aten::mm", start + length + 10, 5_000),
        ]
    return events


def found(events: list[Event]) -> tuple[Signals, Candidate]:
    trace = trace_of(*events)
    signals = signals_of(trace)
    start, end = int(trace.start.min()), int(trace.end.max())
    candidates = find(signals, build(signals, start, end)).found
    return signals, next(c for c in candidates if c.pattern.id == "input-dataloader-sync")


def name(events: list[Event]) -> str:
    return identity(*found(events))


BASE = program("train.py", "step")


def test_the_place_is_the_function_of_the_program():
    assert code_place(*found(BASE)) == "train.py step"


@pytest.mark.parametrize(
    "again",
    [
        program("train.py", "step", at=77_000),
        program("train.py", "step", slow=1.2),
        program("train.py", "step", line=99),
        program("other/folder/train.py", "step"),
        list(reversed(BASE)),
    ],
    ids=["later", "slower in one step", "edited further up", "another folder", "another order"],
)
def test_another_recording_has_the_same_name(again):
    assert name(again) == name(BASE)


@pytest.mark.parametrize("other", [program("eval.py", "step"), program("train.py", "validate")])
def test_another_place_has_another_name(other):
    assert name(other) != name(BASE)


def test_another_pattern_at_the_same_place_has_another_name():
    signals, candidate = found(BASE)
    other = replace(candidate, pattern=BY_ID["sync-explicit"])
    assert identity(signals, other) != identity(signals, candidate)


def test_without_stacks_the_ops_are_the_place_and_numbers_in_their_names_do_not_count():
    bare = [e for e in BASE if not e.name.startswith("/home")]
    inside = [annotation(f"epoch {n}", 0, 5_000) for n in (1, 2)]
    assert name([*bare, inside[0]]) == name([*bare, inside[1]])
    assert code_place(*found(bare)) == LOADER


def test_the_module_is_the_place_where_no_file_of_the_program_is():
    modules = [
        replace(e, name="nn.Module: Reader_0") if e.name.startswith("/home") else e for e in BASE
    ]
    assert code_place(*found(modules)) == "nn.Module: Reader_0"
