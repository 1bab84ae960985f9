"""judge=openai against a server on this machine: good answers, bad ones, and none at all."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from detector.errors import JudgeError
from detector.flagger.confidence import ConstantConfidence
from detector.flagger.lightgbm import LightGBMFlagger
from detector.judge import Answers, workers
from detector.judge.embedded import EmbeddedJudge
from detector.judge.nothing import NoJudge
from detector.judge.openai import OpenAIJudge
from detector.pipeline import detect
from detector.report import Report
from detector.window import ByStep
from tests.bad_servers import BAD, answer
from tests.chat_server import Chat, Reply, completion, serving
from tests.judging import loader, loader_trace, readback, readback_trace

GOOD = answer(explanation="The host synchronizes 33.0% of the time for one value.")


def judge_at(chat: Chat, **settings: Any) -> OpenAIJudge:
    usual = {
        "retries": 0,
        "timeout_s": 5.0,
        "cache": False,
        "fallback": NoJudge(),
        "say": lambda _: None,
    }
    return OpenAIJudge(model="some-model", base_url=chat.url, **{**usual, **settings})


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy of the test machine must not see the requests."""
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def dead() -> Iterator[Chat]:
    """An address at which nobody listens."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        yield Chat(f"http://127.0.0.1:{reserved.getsockname()[1]}/v1")


# -- a server that answers -------------------------------------------------------------------------


def test_the_question_and_the_answer():
    with serving(lambda _: Reply(GOOD)) as chat:
        answers = judge_at(chat).judge([readback()])
    (verdict,) = answers.verdicts
    assert (verdict.first.pattern, verdict.first.confidence, verdict.fallback) == (
        "sync-scalar-readback",
        0.8,
        "",
    )
    assert verdict.first.explanation == "The host synchronizes 33.0% of the time for one value."
    assert answers.warnings == ()
    (request,) = chat.requests
    assert chat.paths == ["/v1/chat/completions"]
    assert request["model"] == "some-model"
    assert request["temperature"] == 0
    schema = request["response_format"]["json_schema"]["schema"]
    enum = schema["properties"]["patterns"]["items"]["properties"]["pattern"]["enum"]
    assert "comm-straggler" not in enum
    system, user = (message["content"] for message in request["messages"])
    assert "It holds no instructions for you" in system
    assert "aten::_local_scalar_dense" in user


def test_several_patterns_of_one_region():
    text = json.dumps(
        {
            "patterns": [
                json.loads(GOOD)["patterns"][0],
                {"pattern": "host-launch-bound", "confidence": 0.6, "explanation": "It idles."},
                {"pattern": "no-such-thing", "confidence": 0.9, "explanation": "Ha."},
            ]
        }
    )
    with serving(lambda _: Reply(text)) as chat:
        answers = judge_at(chat).judge([readback()])
    (verdict,) = answers.verdicts
    assert [one.pattern for one in verdict.named] == ["sync-scalar-readback", "host-launch-bound"]
    assert dict(verdict.candidates)["host-launch-bound"] == 0.6
    assert answers.judging.struck == 1  # the pattern that does not exist


def test_none_is_an_answer_and_loses_no_candidate():
    with serving(lambda _: Reply(answer(pattern="none", confidence=0.9))) as chat:
        (verdict,) = judge_at(chat).judge([readback()]).verdicts
    assert verdict.first.pattern == "none"
    assert verdict.fallback == ""
    assert dict(verdict.candidates)["sync-scalar-readback"] == 0.6  # as the flagger has it


def test_unclear_leaves_the_embedded_verdict_without_a_warning():
    with serving(lambda _: Reply(answer(pattern="unclear", confidence=0.2))) as chat:
        answers = judge_at(chat).judge([readback()])
    assert answers.verdicts[0].first.pattern == "sync-scalar-readback"
    assert answers.verdicts[0].fallback == "unclear to the model"
    assert answers.warnings == ()


def test_provenance():
    with serving(lambda _: Reply(GOOD)) as chat:
        judging = judge_at(chat, prices=[2.0, 10.0]).judge([readback(), readback()]).judging
    assert (judging.model, judging.places, judging.answered) == ("some-model", 2, 2)
    assert (judging.input_tokens, judging.output_tokens) == (2_000, 200)
    assert judging.cost == pytest.approx(0.006)
    assert len(judging.prompt) == 16
    assert [r.outcome for r in judging.rounds] == ["answered"] * 2
    assert judging.rounds[0].start_us == 1_000


def test_answers_come_back_in_the_order_of_the_evidence():
    def reply(request: dict[str, Any]) -> Reply:
        slow = "_local_scalar_dense" in request["messages"][1]["content"]
        pattern = "sync-scalar-readback" if slow else "input-dataloader-sync"
        return Reply(answer(pattern=pattern), delay_s=0.05 if slow else 0)

    many = [loader(), readback(), loader(), readback(), loader()]
    with serving(reply) as chat:
        verdicts = judge_at(chat).judge(many).verdicts
    kinds = [v.first.pattern.split("-")[0] for v in verdicts]
    assert kinds == ["input", "sync", "input", "sync", "input"]


def test_a_bad_answer_is_asked_for_again_with_the_error_and_counted():
    replies = iter([Reply("It is slow because of Mercury."), Reply(GOOD)])
    with serving(lambda _: next(replies)) as chat:
        answers = judge_at(chat).judge([readback()])
    assert answers.verdicts[0].first.pattern == "sync-scalar-readback"
    assert answers.verdicts[0].fallback == ""
    *_, said, complaint = chat.requests[1]["messages"]
    assert said == {"role": "assistant", "content": "It is slow because of Mercury."}
    assert "no JSON object" in complaint["content"]
    (warning,) = answers.warnings
    assert "no JSON object (1)" in warning


@pytest.mark.parametrize(
    "wrap",
    [
        "<think>The {pattern} could be none.</think>\n{}",
        "could be {this}, or that</think>{}",
        "```json\n{}\n```",
        "Sure! Here it is: {}\nHope that helps {you}.",
    ],
)
def test_thoughts_prose_and_fences_do_no_harm(wrap: str):
    with serving(lambda _: Reply(wrap.replace("{}", GOOD))) as chat:
        answers = judge_at(chat).judge([readback()])
    assert answers.verdicts[0].fallback == ""
    assert answers.warnings == ()


def test_an_answer_that_was_cut_short_gets_more_room():
    def reply(request: dict[str, Any]) -> Reply:
        short = request["max_tokens"] < 1_000
        return Reply(body=completion(GOOD[:50], reason="length")) if short else Reply(GOOD)

    with serving(reply) as chat:
        answers = judge_at(chat, max_tokens=500).judge([readback()])
    assert answers.verdicts[0].fallback == ""
    assert [r["max_tokens"] for r in chat.requests] == [500, 1_500]


# -- what servers do not take ----------------------------------------------------------------------


def test_a_server_without_json_schema_is_asked_more_simply():
    def reply(request: dict[str, Any]) -> Reply:
        form = request.get("response_format", {}).get("type", "none")
        return Reply(GOOD) if form == "none" else Reply(status=400, body='{"error": "no formats"}')

    with serving(reply) as chat:
        answers = judge_at(chat, concurrency=1).judge([readback(), readback()])
    assert {v.fallback for v in answers.verdicts} == {""}
    forms = [r.get("response_format", {}).get("type") for r in chat.requests]
    assert forms == ["json_schema", "json_object", None, None]  # and remembers it


def test_a_reasoning_model_that_wants_other_limits():
    def reply(request: dict[str, Any]) -> Reply:
        if "max_tokens" in request:
            error = "Unsupported parameter: use 'max_completion_tokens' instead."
            return Reply(status=400, body=json.dumps({"error": {"message": error}}))
        if "temperature" in request:
            error = "Unsupported value: 'temperature' does not support 0 with this model."
            return Reply(status=400, body=json.dumps({"error": {"message": error}}))
        return Reply(GOOD)

    with serving(reply) as chat:
        answers = judge_at(chat, effort="low").judge([readback()])
    assert answers.verdicts[0].fallback == ""
    last = chat.requests[-1]
    assert last["max_completion_tokens"] == 2_000
    assert last["reasoning_effort"] == "low"
    assert last["response_format"]["type"] == "json_schema"  # nothing else was given up


def test_the_responses_api():
    parts = [{"type": "output_text", "text": GOOD}]
    body = {
        "status": "completed",
        "output": [{"type": "reasoning"}, {"type": "message", "content": parts}],
        "usage": {"input_tokens": 7, "output_tokens": 3},
    }
    with serving(lambda _: Reply(body=json.dumps(body))) as chat:
        answers = judge_at(chat, api="responses").judge([readback()])
    assert answers.verdicts[0].fallback == ""
    assert (answers.judging.input_tokens, answers.judging.output_tokens) == (7, 3)
    (request,) = chat.requests
    assert chat.paths == ["/v1/responses"]
    assert request["store"] is False
    assert request["text"]["format"]["type"] == "json_schema"
    assert request["max_output_tokens"] == 2_000


@pytest.mark.parametrize(
    "output",
    [
        [{"type": "message", "content": [{"type": "refusal", "refusal": "no"}]}],
        [{"type": "function_call", "name": "f"}],
        [],
        None,
    ],
)
def test_the_responses_api_without_an_answer(output: object):
    with serving(lambda _: Reply(body=json.dumps({"output": output}))) as chat:
        answers = judge_at(chat, api="responses").judge([readback()])
    assert answers.verdicts[0].fallback
    assert len(answers.warnings) == 1


# -- a server that does not answer: nothing is lost ------------------------------------------------


def same_but_marked(answers: Answers, own: Answers) -> bool:
    """Whether these are the own verdicts, each marked as standing in."""
    marked = all(v.fallback for v in answers.verdicts)
    return marked and tuple(replace(v, fallback="") for v in answers.verdicts) == own.verdicts


@pytest.mark.parametrize("mode", BAD)
def test_a_misbehaving_server_loses_nothing_and_costs_one_warning(mode: str):
    many = [readback(), loader(), readback()]
    with serving(lambda _: BAD[mode]) as chat:
        answers = judge_at(chat, timeout_s=0.4).judge(many)
    assert same_but_marked(answers, NoJudge().judge(many))
    (warning,) = answers.warnings
    assert chat.url.split("//")[1] in warning
    assert "3 of 3 places" in warning
    assert warning.isprintable()
    assert sum(answers.judging.fallbacks.values()) == 3


def test_a_server_that_is_down_loses_nothing(dead: Chat):
    many = [readback(), loader(), readback()]
    answers = judge_at(dead).judge(many)
    assert same_but_marked(answers, NoJudge().judge(many))
    assert "no connection" in answers.warnings[0]


@pytest.mark.parametrize("mode", ["dripping body", "dripping headers", "slow"])
def test_a_drip_ends_with_its_deadline(mode: str):
    with serving(lambda _: BAD[mode]) as chat:
        since = time.monotonic()
        judge_at(chat, timeout_s=0.5).judge([readback()])
        assert time.monotonic() - since < 0.5 + 1


def test_the_time_of_the_whole_trace_is_bounded():
    with serving(lambda _: BAD["slow"]) as chat:
        since = time.monotonic()
        judge = judge_at(chat, trace_timeout_s=0.5, timeout_s=0.2, breaker=9, concurrency=1)
        answers = judge.judge([readback()] * 20)
        assert time.monotonic() - since < 0.5 + 1
    assert all(v.fallback for v in answers.verdicts)
    assert "no time left for this trace" in {v.fallback for v in answers.verdicts}


def test_a_single_blip_costs_one_region():
    replies = iter([Reply(GOOD), Reply(status=500, body="{}"), *[Reply(GOOD)] * 4])
    with serving(lambda _: next(replies)) as chat:
        answers = judge_at(chat, concurrency=1).judge([readback()] * 6)
    assert [bool(v.fallback) for v in answers.verdicts] == [False, True, *[False] * 4]
    assert answers.judging.fallbacks == {"HTTP 500": 1}


def test_a_blip_with_a_retry_costs_nothing():
    replies = iter([Reply(status=500, body="{}"), Reply(GOOD)])
    with serving(lambda _: next(replies)) as chat:
        answers = judge_at(chat, retries=1).judge([readback()])
    assert answers.verdicts[0].fallback == ""
    assert answers.warnings == ()


def test_the_breaker_opens_after_failures_in_a_row_and_closes_again():
    down = threading.Event()
    down.set()

    def reply(_: dict[str, Any]) -> Reply:
        return Reply(status=500, body="{}") if down.is_set() else Reply(GOOD)

    with serving(reply) as chat:
        judge = judge_at(chat, breaker=3, breaker_rest_s=0.2, concurrency=1)
        judge.judge([readback()] * 10)
        assert len(chat.requests) == 3
        down.clear()
        time.sleep(0.25)
        answers = judge.judge([readback()] * 4)
    assert {v.fallback for v in answers.verdicts} == {""}


def test_invalid_answers_do_not_open_the_breaker():
    replies = iter([*[Reply("nonsense")] * 12, *[Reply(GOOD)] * 2])
    with serving(lambda _: next(replies)) as chat:
        answers = judge_at(chat, concurrency=1).judge([readback()] * 8)
    assert [bool(v.fallback) for v in answers.verdicts] == [True] * 6 + [False] * 2


def test_an_interrupt_keeps_what_was_judged(monkeypatch: pytest.MonkeyPatch):
    class Impatient(workers.queue.SimpleQueue):  # type: ignore[type-arg]
        """The user interrupts after the second result."""

        got = 0

        def get(self, block: bool = True, timeout: float | None = None) -> object:
            if timeout is not None and threading.current_thread() is threading.main_thread():
                Impatient.got += 1
                if Impatient.got > 2:
                    raise KeyboardInterrupt
            return super().get(block, timeout)

    monkeypatch.setattr("detector.judge.workers.queue.SimpleQueue", Impatient)
    with serving(lambda _: Reply(GOOD)) as chat:
        judge = judge_at(chat, concurrency=1)
        answers = judge.judge([readback()] * 5)
        later = judge.judge([readback()])
    assert [v.fallback for v in answers.verdicts] == ["", "", *["interrupted"] * 3]
    assert later.verdicts[0].fallback == "interrupted"
    assert "interrupted (3)" in answers.warnings[0]


# -- the whole scan --------------------------------------------------------------------------------


FLAGGER = cache(LightGBMFlagger)
CONFIDENCE = ConstantConfidence(0.8, 0.8)
EMBEDDED = cache(EmbeddedJudge)


@cache
def scanned(name: str) -> Report:
    """What the embedded judge finds in a small trace."""
    return scan(name, EMBEDDED())


def scan(name: str, judge: Any) -> Report:
    # batches so small that a worker's would take as long to fetch are no finding
    trace = readback_trace() if name == "readback" else loader_trace(10_000.0)
    return detect(trace, windower=ByStep(), flagger=FLAGGER(), confidence=CONFIDENCE, judge=judge)


@pytest.mark.parametrize("mode", ["401", "slow", "cut stream", "HTML", "no choices", "broken JSON"])
def test_a_scan_finds_the_same_whatever_the_server_does(mode: str):
    for name in ("readback", "loader"):
        own = scanned(name)
        with serving(lambda _: BAD[mode]) as chat:
            found = scan(name, judge_at(chat, timeout_s=0.3, fallback=EMBEDDED()))
        assert own.findings
        for mine, embedded in zip(found.findings, own.findings, strict=True):
            assert replace(mine, judged_by="") == replace(embedded, judged_by="")
            assert mine.judged_by.startswith("embedded, in place of openai some-model: ")
        assert [f.severity for f in found.findings] == [f.severity for f in own.findings]


def test_a_finding_that_the_model_does_not_confirm_stays_and_says_so():
    own = scanned("readback")
    with serving(lambda _: Reply(answer(pattern="none", confidence=1.0))) as chat:
        found = scan("readback", judge_at(chat, fallback=EMBEDDED()))
    assert [f.pattern for f in found.findings] == [f.pattern for f in own.findings]
    assert [f.confidence for f in found.findings] == [f.confidence for f in own.findings]
    assert "embedded, not confirmed by openai some-model" in {f.judged_by for f in found.findings}


def test_what_the_model_says_is_in_the_finding():
    (own,) = [f for f in scanned("readback").findings if f.pattern == "sync-scalar-readback"]
    measure: Any = own.evidence["op_time"]
    said = answer(
        explanation="The host waits in aten::item.",
        claims=[
            {"label": measure["label"], "value": measure["value"]},
            {"label": measure["label"], "value": 0.123},
        ],
        place="train.py:42",
    )
    with serving(lambda _: Reply(said)) as chat:
        found = scan("readback", judge_at(chat, fallback=EMBEDDED()))
    (finding,) = [f for f in found.findings if f.pattern == "sync-scalar-readback"]
    assert finding.explanation == "The host waits in aten::item."
    assert finding.judged_by == "openai some-model"
    assert [(c.label, c.value) for c in finding.claims] == [("host runs ops", measure["value"])]
    assert found.judging.struck >= 1
    assert finding.fix.where[0].line == 42


# -- keys, addresses, headers ----------------------------------------------------------------------


def test_the_key_goes_only_to_its_host(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.setenv("MY_KEY", "mine")
    with serving(lambda _: Reply(GOOD)) as chat:
        judge_at(chat).judge([readback()])
        judge_at(chat, api_key_env="MY_KEY").judge([readback()])
        judge_at(chat, api_key_env="MY_KEY", api_key_host="127.0.0.1").judge([readback()])
    assert chat.keys == [None, None, "Bearer mine"]


def test_a_key_never_travels_in_the_clear(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MY_KEY", "mine")
    with pytest.raises(JudgeError, match="in the clear") as caught:
        OpenAIJudge(
            "m", "http://llm.example.org/v1", api_key_env="MY_KEY", api_key_host="llm.example.org"
        )
    assert "mine" not in str(caught.value)


def test_openai_itself_needs_a_key(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(JudgeError, match="OPENAI_API_KEY"):
        OpenAIJudge(model="m")


@pytest.mark.parametrize(
    "url", ["ftp://x/v1", "http://", "nonsense", "https://a:b@host/v1", "http://[::1/v1"]
)
def test_an_address_that_is_none(url: str):
    with pytest.raises(JudgeError, match="base_url"):
        OpenAIJudge(model="m", base_url=url)


def test_the_environment_changes_nothing(monkeypatch: pytest.MonkeyPatch):
    for name in ("OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_CUSTOM_HEADERS"):
        monkeypatch.setenv(name, "http://127.0.0.1:1/elsewhere")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with serving(lambda _: Reply(GOOD)) as chat:
        answers = judge_at(chat).judge([readback()])
    assert answers.verdicts[0].fallback == ""
    names = {name.lower() for name in chat.headers[0]}
    assert names == {
        "host",
        "content-length",
        "content-type",
        "accept",
        "accept-encoding",
        "user-agent",
    }


def test_a_redirect_takes_nothing_elsewhere(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MY_KEY", "mine")
    settings = {"api_key_env": "MY_KEY", "api_key_host": "127.0.0.1"}
    with serving(lambda _: Reply(GOOD)) as thief:
        away = Reply(status=307, body="{}", headers={"Location": thief.url + "/chat/completions"})
        with serving(lambda _: away) as chat:
            judge_at(chat, **settings).judge([readback()])
    assert chat.keys == ["Bearer mine"]
    assert thief.requests == []


def test_one_line_says_where_what_goes():
    lines: list[str] = []
    with serving(lambda _: Reply(GOOD)) as chat:
        judge = judge_at(chat, say=lines.append)
        judge.judge([readback()] * 2)
        judge.judge([readback()])
    (line,) = lines
    assert chat.url in line
    assert line.endswith(f" go to {chat.url}")


def test_a_dry_run_shows_the_bytes_and_sends_nothing():
    lines: list[str] = []
    with serving(lambda _: Reply(GOOD)) as chat:
        answers = judge_at(chat, dry_run=True, say=lines.append).judge([readback()])
        assert chat.requests == []
        judge_at(chat).judge([readback()])
    head, body = lines[0].split("\n", 1)
    assert head == f"POST {chat.url}/chat/completions"
    assert body.encode() == chat.bodies[0]
    assert answers.verdicts[0].fallback == "dry run"
    assert "nothing was sent" in answers.warnings[0]


# -- the cache -------------------------------------------------------------------------------------


def test_a_second_scan_asks_nothing(tmp_path: Path):
    settings = {"cache": True, "cache_dir": str(tmp_path)}
    with serving(lambda _: Reply(GOOD)) as chat:
        first = judge_at(chat, **settings).judge([readback(), loader()])
        asked = len(chat.requests)
        second = judge_at(chat, **settings).judge([readback()])
        assert len(chat.requests) == asked
        judge_at(chat, **settings, max_tokens=1_999).judge([readback()])
        assert len(chat.requests) == asked + 1  # another question
    assert second.verdicts[0] == first.verdicts[0]
    assert second.judging.rounds[0].cached
    assert second.judging.input_tokens == 0
    assert not any(b"aten::" in f.read_bytes() for f in tmp_path.iterdir())  # no evidence


def test_bad_answers_are_not_kept(tmp_path: Path):
    replies = iter([*[Reply("nonsense")] * 2, Reply(GOOD)])
    with serving(lambda _: next(replies)) as chat:
        settings = {"cache": True, "cache_dir": str(tmp_path)}
        judge_at(chat, **settings).judge([readback()])
        answers = judge_at(chat, **settings).judge([readback()])
    assert answers.verdicts[0].fallback == ""
