"""What a report and its warnings say of how a model was asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from detector.evidence import Evidence, words
from detector.judge import UNSURE, doubt, schema
from detector.judge.client import DRY_RUN
from detector.judge.rounds import Outcome
from detector.report.judging import Judging


def warnings(who: str, outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    """One line, where any place has no answer or an answer was not valid."""
    silent = (UNSURE, doubt.SPARED)
    failed = [o.failure for o in outcomes if o.failure and o.failure.reason not in silent]
    if any(failure.reason == DRY_RUN for failure in failed):
        return ("judge: dry run, nothing was sent; the embedded judge's verdicts stand",)
    invalid = Counter(reason for o in outcomes for reason in o.invalid)
    if not failed and not invalid:
        return ()
    warning = f"judge: {who}: "
    if failed:
        reasons = Counter(failure.reason for failure in failed)
        warning += (
            f"no valid answer for {len(failed)} of {len(outcomes)} places, where the embedded "
            f"judge's verdict stands: {_listed(reasons)}"
        )
        detail = next((f.detail for f in failed if f.detail), "")
        warning += f" ({detail})" if detail else ""
    if invalid:
        warning += f"{'; ' if failed else ''}answers that were not valid: {_listed(invalid)}"
    return (words.bounded(warning, 400),)


def judging(
    model: str,
    evidence: Sequence[Evidence],
    outcomes: Sequence[Outcome],
    prices: Sequence[float] = (),
) -> Judging:
    """``prices``: of a million input and output tokens; without both there is no cost."""
    asked = tuple(r for outcome in outcomes for r in outcome.rounds)
    read = sum(r.input_tokens for r in asked if not r.cached)
    written = sum(r.output_tokens for r in asked if not r.cached)
    return Judging(
        model=model,
        prompt=schema.prompt_hash(),
        places=len(outcomes),
        answered=sum(o.failure is None for o in outcomes),
        fallbacks=dict(Counter(o.failure.reason for o in outcomes if o.failure)),
        invalid=dict(Counter(reason for o in outcomes for reason in o.invalid)),
        struck=sum(o.struck for o in outcomes),
        input_tokens=read,
        output_tokens=written,
        cost=(read * prices[0] + written * prices[1]) / 1e6 if len(prices) == 2 else None,
        doubted=doubt.doubted(evidence, outcomes),
        rounds=asked,
    )


def _listed(reasons: Counter[str]) -> str:
    return ", ".join(f"{reason} ({count})" for reason, count in reasons.most_common())
