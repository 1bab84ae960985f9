"""A model may ask for more of a place: the closed list, the limits, and what it may cite then."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from detector.evidence import words
from detector.evidence.views import MOST_TOKENS, VIEWS
from detector.flagger.confidence import ConstantConfidence
from detector.flagger.lightgbm import LightGBMFlagger
from detector.judge import Judge
from detector.judge.nothing import NoJudge
from detector.judge.openai import OpenAIJudge
from detector.pipeline import detect
from detector.report import Report
from detector.window import ByStep
from tests.bad_servers import answer
from tests.chat_server import Chat, Reply, serving
from tests.judging import readback, readback_trace


def judge_at(chat: Chat, **settings: Any) -> OpenAIJudge:
    usual = {"cache": False, "fallback": NoJudge(), "say": lambda _: None, "concurrency": 1}
    return OpenAIJudge("m", chat.url, **{**usual, **settings})


def wants(view: str) -> Reply:
    return Reply(json.dumps({"patterns": [], "look": view}))


def scan(judge: Judge) -> Report:
    return detect(
        readback_trace(),
        windower=ByStep(),
        flagger=LightGBMFlagger(),
        confidence=ConstantConfidence(0.8, 0.8),
        judge=judge,
    )


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_is_served(view: str):
    def reply(request: dict[str, Any]) -> Reply:
        return wants(view) if len(request["messages"]) == 2 else Reply(answer())

    with serving(reply) as chat:
        report = scan(judge_at(chat))
    shown = chat.requests[1]["messages"][3]["content"]
    assert shown.startswith(f"The view {view}:\n<evidence>\n")
    text = shown.split("<evidence>\n")[1].split("\n</evidence>")[0]
    assert 0 < words.tokens(text) <= MOST_TOKENS + 20
    assert "alice" not in shown
    first, second = report.judging.rounds[:2]
    assert (first.outcome, first.view) == ("asked for a view", "")
    assert (second.outcome, second.view, second.round) == ("answered", view, 2)


def test_three_rounds_at_most():
    def reply(request: dict[str, Any]) -> Reply:
        views = list(VIEWS)
        return wants(views[len(request["messages"]) // 2 % len(views)])

    with serving(reply) as chat:
        answers = judge_at(chat).judge([readback()], lambda *_: "nothing more")
    assert len(chat.requests) == 3
    assert answers.verdicts[0].fallback == "only asked for more"
    assert 'look must be ""' in chat.requests[2]["messages"][-1]["content"]


def test_an_unclear_place_is_cut_in_two_and_asked_about_again():
    whole: list[str] = []

    def reply(request: dict[str, Any]) -> Reply:
        text = request["messages"][1]["content"]
        if not whole or text in whole:
            whole.append(text)
            return Reply(answer(pattern="unclear", confidence=0.1))
        return Reply(answer(confidence=0.7))

    with serving(reply) as chat:
        found = scan(judge_at(chat))
    own = scan(NoJudge())
    assert [f.pattern for f in found.findings] == [f.pattern for f in own.findings]
    assert found.judging.fallbacks == {}
    assert found.judging.answered == found.judging.places
    first = found.judging.rounds[0]
    assert first.outcome == "answered"
    cut = found.judging.rounds[found.judging.places :]
    assert len(cut) == 2
    assert cut[0].start_us == first.start_us
    assert cut[0].end_us == cut[1].start_us
    assert cut[1].end_us == first.end_us


def test_without_views_none_is_offered():
    with serving(lambda _: Reply(answer())) as chat:
        judge_at(chat, views=0).judge([readback()], lambda *_: "")
        judge_at(chat).judge([readback()])
    assert all('look: always ""' in r["messages"][0]["content"] for r in chat.requests)


def test_what_a_view_shows_may_be_cited_and_what_it_does_not_may_not():
    said = "The gap lasts 777 µs. Another gap lasts 778 µs."

    def reply(request: dict[str, Any]) -> Reply:
        asked = len(request["messages"]) == 2
        return wants("timeline") if asked else Reply(answer(explanation=said))

    with serving(reply) as chat:
        answers = judge_at(chat).judge([readback()], lambda *_: "gap lasts 777 µs")
    assert answers.verdicts[0].first.explanation == "The gap lasts 777 µs."
    assert answers.judging.struck == 1


def test_tokens_of_a_trace_are_bounded():
    with serving(lambda _: Reply(answer())) as chat:
        answers = judge_at(chat, trace_tokens=2_000).judge([readback()] * 5)
    assert len(chat.requests) == 2  # 1,100 tokens each, by the server's count
    assert answers.judging.fallbacks == {"token budget of the trace is spent": 3}


def test_the_evidence_says_what_bounds_the_place_and_what_is_left_out():
    with serving(lambda _: Reply(answer())) as chat:
        scan(judge_at(chat, budget_tokens=500))
    text = chat.requests[0]["messages"][1]["content"]
    assert "Program: " in text
    assert "time by cause, " in text
    assert "repair of sync-scalar-readback saves: " in text
    assert "less telling lines are left out." in text
    assert words.tokens(text) <= 500
    assert "0.0%\n" not in text
    assert ": 0\n" not in text


def test_the_evidence_compares_with_the_same_part_of_other_steps():
    with serving(lambda _: Reply(answer())) as chat:
        scan(judge_at(chat))
    text = chat.requests[0]["messages"][1]["content"]
    assert re.search(r"The same part of 2 other steps: [^\n]* \d+%", text)
