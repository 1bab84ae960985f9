"""What a model doubts at a candidate's own place: asked about less, listed, and nothing is lost."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from detector.errors import DetectorError
from detector.evidence import Evidence
from detector.features.candidate import COLUMNS
from detector.flagger.confidence import ConstantConfidence
from detector.flagger.lightgbm import LightGBMFlagger
from detector.judge import Judge, Named, Verdict
from detector.judge.doubt import SPARED, doubted, in_turn, worth_asking
from detector.judge.nothing import NoJudge
from detector.judge.openai import OpenAIJudge
from detector.judge.rounds import Outcome
from detector.kineto import read
from detector.lab.confidence import Candidates
from detector.lab.doubted import with_doubted
from detector.patterns import PATTERNS
from detector.pipeline import detect
from detector.region import Region
from detector.render import terminal, wording
from detector.report import Report, to_json
from detector.trace import Trace
from detector.window import ByStep
from tests.bad_servers import answer
from tests.chat_server import Reply, serving
from tests.judging import readback, readback_trace

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_image_classifier.json.gz"
OWN = "sync-scalar-readback"
OTHER = "host-launch-bound"
CITED = "The kernel ampere_sgemm_128x64_tn takes 400 µs."


def place(score: float, threshold: float, *patterns: str) -> Evidence:
    region = Region(0, 1_000_000, score, "cpu", (), (), tuple((p, 0.6) for p in patterns))
    return readback(region=replace(region, threshold=threshold))


def said(pattern: str, confidence: float = 0.9) -> Outcome:
    return Outcome(Verdict((Named(pattern, confidence, "So.", ""),)))


def asked(places: Sequence[Evidence], answers: Sequence[Outcome]) -> list[str]:
    """What becomes of each place, of those that are asked about in turn."""
    left = iter(answers)
    outcomes = in_turn(places, lambda some: [next(left) for _ in some])
    return [o.failure.reason if o.failure else "asked" for o in outcomes]


def test_own_places_are_asked_first_and_always():
    places = [place(0.4, 0.3, OWN), place(0.0, 0.0, OWN), place(0.1, 0.0, OTHER)]
    order: list[float] = []

    def ask(some: Sequence[Evidence]) -> list[Outcome]:
        order.extend(one.region.score for one in some)
        return [said(OWN) for _ in some]

    in_turn(places, ask)
    assert order == [0.0, 0.1, 0.4]


@pytest.mark.parametrize("answered", [said("none"), said(OTHER), said(OWN, 0.4)])
def test_a_doubted_pattern_needs_a_higher_score(answered: Outcome):
    own = place(0.0, 0.0, OWN)
    assert asked([own, place(0.6, 0.3, OWN)], [answered]) == ["asked", SPARED]
    assert asked([own, place(0.7, 0.3, OWN)], [answered] * 2) == ["asked", "asked"]
    twice = [own, own, place(0.7, 0.3, OWN)]
    assert asked(twice, [answered] * 2) == ["asked", "asked", SPARED]


def test_what_is_confirmed_or_not_answered_raises_nothing():
    own, flagged = place(0.0, 0.0, OWN), place(0.31, 0.3, OWN)
    assert asked([own, flagged], [said(OWN), said("none")]) == ["asked", "asked"]
    assert asked([own, flagged], [Outcome(), said("none")])[1] == "asked"
    assert asked([own, own, flagged], [said("none"), said(OWN), said("none")])[2] == "asked"


def test_other_suspects_and_places_without_any_are_asked_about():
    doubts = {OWN: 3}
    assert worth_asking(place(0.31, 0.3, OWN, OTHER).region, doubts)
    assert worth_asking(place(0.31, 0.3).region, doubts)
    assert not worth_asking(place(0.31, 0.3, OWN).region, doubts)


def test_doubted_candidates_are_listed():
    places = [place(0.0, 0.0, OWN, OTHER), place(0.0, 0.0, OTHER), place(0.5, 0.3, OWN)]
    found = doubted(places, [said(OTHER), said(OTHER), said("none")])
    assert [one.pattern for one in found] == [OWN]
    assert (found[0].start_us, found[0].end_us) == (0.0, 1_000.0)


def scan(judge: Judge, trace: Trace | None = None) -> Report:
    return detect(
        trace or readback_trace(),
        windower=ByStep(),
        flagger=LightGBMFlagger(),
        confidence=ConstantConfidence(0.8, 0.8),
        judge=judge,
    )


def test_a_model_that_doubts_everything_takes_no_finding_away():
    own = scan(NoJudge())
    with serving(lambda _: Reply(answer(pattern="none", confidence=1.0))) as chat:
        found = scan(OpenAIJudge("m", chat.url, cache=False, say=lambda _: None))
    assert [(f.id, f.confidence) for f in found.findings] == [
        (f.id, f.confidence) for f in own.findings
    ]
    assert OWN in {one.pattern for one in found.judging.doubted}
    assert all("not confirmed by" in f.judged_by for f in found.findings)
    assert found.warnings == own.warnings


def test_what_a_model_names_beside_the_candidates_is_listed_and_no_finding():
    """Only with a number of the evidence that grounding left in its explanation."""
    own = scan(NoJudge())
    extra = "sync-tensor-readback"
    assert extra not in {f.pattern for f in (*own.findings, *own.leads)}
    for words, listed in ((CITED, True), ("There are 4,711 kernels.", False)):
        said = answer(pattern=extra, confidence=0.9, explanation=words)
        with serving(lambda _, said=said: Reply(said)) as chat:
            found = scan(OpenAIJudge("m", chat.url, cache=False, say=lambda _: None))
        assert [f.id for f in found.findings] == [f.id for f in own.findings]
        assert [u.pattern for u in found.judging.unsized] == [extra] * listed
        assert (wording.UNSIZED in terminal.render(found)) is listed


# -- hard negatives ----------------------------------------------------------------------------


def no_rows() -> Candidates:
    words, numbers = np.array([], np.str_), np.array([])
    nothing = np.zeros((0, len(COLUMNS)), np.float32)
    return Candidates(nothing, words, words, words, words, numbers, ())


def doubting(folder: Path) -> tuple[Path, Report, Path]:
    """A trace, the report of a scan whose model doubted everything, and its file."""
    trace, kept = folder / "trace.json", folder / "report.json"
    trace.write_bytes(gzip.decompress(EXAMPLE.read_bytes()))
    with serving(lambda _: Reply(answer(pattern="none", confidence=1.0))) as chat:
        report = scan(OpenAIJudge("m", chat.url, cache=False, say=lambda _: None), read(trace))
    kept.write_text(to_json(report))
    return trace, report, kept


def test_training_reads_what_was_doubted(tmp_path: Path):
    trace, report, kept = doubting(tmp_path)
    rows = with_doubted(no_rows(), [str(kept)])
    names = [one.pattern for one in rows.finding]
    assert sorted(names) == sorted({one.pattern for one in report.judging.doubted})
    assert len(names) > 2
    assert set(rows.kind) == {"wrong"}
    assert [PATTERNS[int(i)].id for i in rows.matrix[:, COLUMNS.index("pattern")]] == names
    trace.write_bytes(trace.read_bytes() + b" ")
    with pytest.raises(DetectorError, match="another trace"):
        with_doubted(no_rows(), [str(kept)])
    trace.unlink()
    with pytest.raises(
        DetectorError, match=r"report\.json: its trace cannot be read: .*trace\.json"
    ):
        with_doubted(no_rows(), [str(kept)])
    with pytest.raises(DetectorError, match=r"none\.json"):
        with_doubted(no_rows(), [str(tmp_path / "none.json")])
    trace.write_text("{}")
    with pytest.raises(DetectorError, match=r"trace\.json: not a report"):
        with_doubted(no_rows(), [str(trace)])


def test_a_label_knows_better_and_a_candidate_counts_once(tmp_path: Path):
    _, report, kept = doubting(tmp_path)
    assert len(with_doubted(no_rows(), [str(kept)], {report.source.sha256})) == 0
    once, twice = (with_doubted(no_rows(), [str(kept)] * n) for n in (1, 2))
    assert len(once) == len(twice) > 0
