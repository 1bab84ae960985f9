"""What a model doubts at a candidate's own place: listed, and nothing is lost."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from detector.errors import DetectorError
from detector.evidence import Evidence
from detector.features.candidate import COLUMNS
from detector.flagger.confidence import ConstantConfidence
from detector.flagger.lightgbm import LightGBMFlagger
from detector.judge import Judge, Named, Verdict
from detector.judge.nothing import NoJudge
from detector.judge.openai import OpenAIJudge
from detector.judge.rounds import Outcome
from detector.judge.usage import doubted
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


def place(*patterns: str, is_flagged: bool = False) -> Evidence:
    candidates = tuple((p, 0.6) for p in patterns)
    return readback(region=Region(0, 1_000_000, 0.5, "cpu", (), (), candidates, is_flagged))


def said(pattern: str, confidence: float = 0.9) -> Outcome:
    return Outcome(Verdict((Named(pattern, confidence, "So.", ""),)))


def test_doubted_candidates_are_listed():
    places = [place(OWN, OTHER), place(OTHER), place(OWN, is_flagged=True)]
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
