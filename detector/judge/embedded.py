"""The default judge: offline, on any machine, without a language model.

It names the surest of the candidates that the light model has scored for a place; what the user
reads is the pattern's own text with the place's numbers and source lines.
"""

from __future__ import annotations

from collections.abc import Sequence

from detector.evidence import Evidence
from detector.judge import Answers, Serve, Verdict, feedback
from detector.taxonomy import NONE


class EmbeddedJudge:
    """Judges by the candidates' confidence alone."""

    name = "embedded"
    names_more = False

    def judge(self, evidence: Sequence[Evidence], serve: Serve | None = None) -> Answers:
        """See ``Judge``. Patterns that the trace cannot show are not named."""
        return Answers(tuple(map(_verdict, evidence)))


def _verdict(evidence: Evidence) -> Verdict:
    named = tuple((p, sure) for p, sure in evidence.region.candidates if p in evidence.visible)
    pattern, confidence = named[0] if named else (NONE, 1.0)
    return feedback.verdict(evidence, pattern, confidence, named)
