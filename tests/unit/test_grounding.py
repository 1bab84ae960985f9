"""What a judge writes stays only as far as the evidence holds it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from detector.evidence import Context
from detector.judge import Named, Verdict, feedback
from detector.judge.grounding import ground, grounded
from detector.patterns import IDS
from scripts.grounding_rates import measure
from tests.judging import STEP, evidence_of, loader, loader_trace, readback, readback_trace
from tests.traces import kernel, launch, op, repeat, trace_of

OWN = "sync-scalar-readback"


@pytest.mark.parametrize(
    "text",
    [
        "The device busy share is 40.2%.",
        "The device is busy for 40 % of the time.",
        "Kernel launches: 1 here.",
        "Here aten::item runs 1 times, 20.0 µs each.",
        "It starts in train.py:42, in train_step.",
        "It starts at line 42 of train.py.",
        "The region is 1000 µs long, that is 1 ms.",
        "Casts to bfloat16 would run on tensor cores.",
        "Two of the streams wait.",
        "Reading one value makes the host wait until the GPU has finished all queued work.",
    ],
)
def test_true_sentences_stay(text: str):
    assert grounded(text, readback(), OWN).text == text


@pytest.mark.parametrize(
    "text",
    [
        "The device is busy for 91 % of the time.",
        "The device is busy for 33.0% of the time.",  # another measure's number
        "The device is busy for 40.2 ms.",
        "It wastes 5.77 ms.",
        "Here aten::item runs 37 times.",
        "Here aten::bmm takes 2.0% of the region.",
        "Call torch.cuda.make_it_fast() instead.",
        "The kernel hyper_gemm_v9 is slow.",
        "It starts in train.py:43.",
        "It starts at line 43.",
        "It starts in model.py.",
        "It starts in /etc/passwd.py.",
        "See https://example.org/help for more.",
        "See example.com for more.",
        "Run curl http://x | sh first.",
        "Run `pip install fastgpu` first.",
        "Use sudo nvidia-smi.",
        "Then rm -rf / helps.",
        "Set it with $(cat key).",
        "The garbage collector pauses the host.",
    ],
)
@pytest.mark.parametrize("advice", [False, True])
def test_false_sentences_are_struck(text: str, advice: bool):
    if advice and "garbage" in text:
        pytest.skip("advice may speak of what is not there")
    checked = grounded(f"It is slow. {text}", readback(), OWN, advice=advice)
    assert checked.text == "It is slow."
    assert checked.struck


@pytest.mark.parametrize(
    "text",
    [
        "Pass num_workers=8 and persistent_workers=True to the DataLoader.",
        "Keep the loss on the device with loss.detach() and read it every few steps.",
        "Call torch.set_float32_matmul_precision('high') once.",
        "Use `with torch.inference_mode():` around the loop.",
    ],
)
def test_advice_with_real_apis_stays(text: str):
    assert grounded(text, readback(), OWN, advice=True).text == text


def test_no_setting_is_invented():
    checked = grounded("Pass turbo_mode=8 to the DataLoader.", readback(), OWN, advice=True)
    assert checked.text == ""


def test_a_view_that_was_shown_may_be_cited():
    seen = replace(readback(), context=Context(views=("gap before the kernel: 777 µs",)))
    text = "The gap before the kernel is 777 µs."
    assert grounded(text, readback(), OWN).text == ""
    assert grounded(text, seen, OWN).text == text


def test_an_empty_text_becomes_the_projects_own():
    verdict = Verdict((Named(OWN, 0.9, "It takes 87654.3 µs.", "Run curl x | sh."),))
    found, struck = ground(verdict, readback())
    assert struck == 2
    assert found.first.explanation == feedback.explain(readback(), OWN)
    assert found.first.fix == feedback.advise(readback(), OWN)


def test_a_pattern_without_its_main_fact_is_not_named():
    absent, present = Named("host-gc-pause", 0.9, "It pauses.", ""), Named(OWN, 0.5, "So.", "")
    found, struck = ground(Verdict((absent, present)), readback())
    assert [one.pattern for one in found.named] == [OWN]
    assert struck == 1
    alone, _ = ground(Verdict((absent,)), readback())
    assert alone.first.pattern == "unclear"


@pytest.mark.parametrize(("elements", "named"), [(-1, True), (1 << 20, False)])
def test_a_fact_that_needs_sizes_is_not_absent_where_none_were_recorded(
    elements: int, named: bool
) -> None:
    step = (
        op("c10d::allreduce_", 0, 20),
        launch(5, 5, 1),
        kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 50, 20, 1, msg_elems=elements),
    )
    steps = [(i * STEP, (i + 1) * STEP) for i in range(4)]
    evidence = evidence_of(trace_of(*repeat(step, 4, STEP), steps=steps))
    said = Verdict((Named("comm-small-collectives", 0.9, "So.", ""), Named(OWN, 0.5, "So.", "")))
    found, _ = ground(said, evidence)
    assert (found.of("comm-small-collectives") is not None) is named


@pytest.mark.parametrize("pattern", IDS)
def test_the_projects_own_words_hold(pattern: str):
    for evidence in (readback(), loader()):
        said = grounded(feedback.explain(evidence, pattern), evidence, pattern)
        advised = grounded(feedback.advise(evidence, pattern), evidence, pattern, advice=True)
        assert (said.struck, advised.struck) == ((), ())


def test_few_false_sentences_pass_and_few_true_ones_are_struck():
    places = [
        evidence_of(trace, start, start + 1_000)
        for trace in (readback_trace(), loader_trace())
        for start in (0.0, 1_000.0, 2_000.0)
    ]
    rates = measure(places)
    assert rates.tried["true"] > 200
    assert rates.of_false < 0.05
    assert rates.struck < 0.02
