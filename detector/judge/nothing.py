"""No judge: the flagger's own best guess, marked as such."""

from __future__ import annotations

from collections.abc import Sequence

from detector.evidence import Evidence
from detector.judge import Answers, Serve, Verdict, feedback

REMARK = "Named by the flagger alone; no judge was asked."


class NoJudge:
    """Keeps the flagger's candidates: the best pattern that this trace can show is the verdict."""

    names_more = False

    name = "none"

    def judge(self, evidence: Sequence[Evidence], serve: Serve | None = None) -> Answers:
        """See ``Judge``. Confidence is the flagger's own probability."""
        return Answers(tuple(map(self._one, evidence)))

    def _one(self, evidence: Evidence) -> Verdict:
        candidates = evidence.region.candidates
        for pattern, probability in candidates:
            if pattern in evidence.visible:
                return feedback.verdict(evidence, pattern, probability, candidates, REMARK)
        return feedback.unclear(evidence, "the flagger names no pattern that this trace can show")
