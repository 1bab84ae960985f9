"""What a language model can gain or break: labels named by judges of known skill, over HTTP.

Each trace is analyzed once; its places are then judged by the flagger alone, by the embedded judge
with a confidence that never saw the trace's program, and by judge=openai against a server on this
machine that plays a model: an oracle that names one label of a place or all of them, one that asks
for a view first, the same with a part of its answers drawn at random, and one that only guesses.
The server knows nothing but the text that it is sent and the labels of that text's place. A judge
of the configuration, where it is a language model, is the last row.

A label, a pattern of a trace, is named when the verdict on a place that overlaps it gives its
pattern at least even odds. Wrong: pattern and trace pairs named that no label of the trace has.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import numpy as np

from detector import kineto
from detector.evidence import Evidence, words
from detector.features.candidate import COLUMNS
from detector.flagger import Flagger, Float32
from detector.flagger.confidence import Confidence, Float64, LightGBMConfidence
from detector.judge import EVEN, Answers, Judge, Serve, Verdict, schema
from detector.judge.doubt import SPARED
from detector.judge.embedded import EmbeddedJudge
from detector.judge.nothing import NoJudge
from detector.judge.openai import OpenAIJudge
from detector.lab import confidence as training
from detector.lab.confidence import ConfidenceTraining
from detector.lab.experiments.record import Outcome, code
from detector.lab.metrics import Estimate
from detector.lab.scoring import Truth, read_truths
from detector.lab.scoring.truth import EVERYTHING
from detector.lab.tables import table
from detector.patterns import PATTERNS
from detector.pipeline import Windower, detect
from detector.taxonomy import NONE, UNCLEAR
from detector.trace import NS_PER_US

SURE: Final = 0.9  # what the played models say of every pattern that they name
KEPT: Final = "judges.jsonl"


@dataclass(frozen=True)
class Player:
    """A model of known skill: how many labels of a place it names, and how often it guesses."""

    name: str
    most: int = 9
    noise: float = 0.0
    look: str = ""


PLAYERS: Final = (
    Player("oracle, one pattern", most=1),
    Player("oracle, several"),
    Player("oracle, several, after a view", look="unexplained"),
    Player("oracle, 10 % noise", noise=0.1),
    Player("oracle, 25 % noise", noise=0.25),
    Player("oracle, 50 % noise", noise=0.5),
    Player("random", noise=1.0),
)


@dataclass(frozen=True)
class Score:
    """``named`` of ``labels`` patterns of a trace, ``wrong`` patterns beside them; places that the
    model was asked about, of all, and the tokens of it."""

    labels: int
    named: int
    wrong: int
    places: int = 0
    asked: int = 0
    tokens: int = 0


@dataclass(frozen=True)
class JudgesExperiment:
    """``origin``: of the traces that are judged, every ``every``-th of them; ``held_out``: whether
    the confidence is trained without each trace's program, or the one that ships; ``same``: as in
    the experiment of the confidence."""

    judge: Judge
    flagger: Flagger
    window: Windower
    origin: str = "natural"
    every: int = 1
    players: bool = True
    held_out: bool = True
    settings: ConfidenceTraining = field(default_factory=ConfidenceTraining)
    same: dict[str, str] = field(default_factory=dict)

    def evaluate(self, data: Path, out: Path) -> list[str]:
        """The table. What ``judges.jsonl`` in ``out`` holds of this code is not measured again."""
        truths = read_truths(data)
        names = [name for name, t in truths.items() if t.origin == self.origin][:: self.every]
        files = table(data, "traces", EVERYTHING, ["trace", "file"]).set_index("trace")["file"]
        sure = self._held_out(data) if self.held_out else None
        kept, version = out / KEPT, f"{code()['sha256']} {self.judge.name} {self.held_out}"
        done = _done(kept, version)
        out.mkdir(parents=True, exist_ok=True)
        for name in names:
            if name not in done:
                confidence = LightGBMConfidence() if sure is None else _Known(sure.get(name, {}))
                done[name] = self._of_trace(data / files[name], truths[name], confidence)
                scores = {who: asdict(score) for who, score in done[name].items()}
                row = {"name": name, "version": version, "scores": scores}
                with kept.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
        return _table([done[name] for name in names])

    def _held_out(self, data: Path) -> dict[str, dict[str, float]]:
        """By trace and pattern, the confidence of trees that never saw the program."""
        rows = training.read(data, self.same)
        sure = training.strangers(rows, self.settings)
        found: dict[str, dict[str, float]] = {}
        for one, chance in zip(rows.finding, sure.tolist(), strict=True):
            found.setdefault(one.trace, {})[one.pattern] = chance
        return found

    def _of_trace(self, file: Path, truth: Truth, confidence: Confidence) -> dict[str, Score]:
        """Every judge's score on one trace."""
        places = _Places(lambda mine, serve: self._judged(mine, serve, truth))
        detect(
            kineto.read(file),
            windower=self.window,
            flagger=self.flagger,
            confidence=confidence,
            judge=places,
        )
        none = Score(len(truth.problems), 0, 0)
        return places.scores or dict.fromkeys(self._rows(), none)

    def _rows(self) -> list[str]:
        played = [player.name for player in PLAYERS] if self.players else []
        chosen = [self.judge.name] if self.judge.names_more else []
        return ["flagger alone", "embedded", *played, *chosen]

    def _judged(self, places: Sequence[Evidence], serve: Serve, truth: Truth) -> dict[str, Score]:
        embedded = EmbeddedJudge()
        found = {
            "flagger alone": _score(places, NoJudge().judge(places), truth),
            "embedded": _score(places, embedded.judge(places), truth),
        }
        known = Knowledge(places, truth)
        for player in PLAYERS if self.players else ():
            with playing(player, known) as url:
                asked = OpenAIJudge("player", url, cache=False, fallback=embedded, say=_quiet)
                found[player.name] = _score(places, asked.judge(places, serve), truth)
        if self.judge.names_more:
            found[self.judge.name] = _score(places, self.judge.judge(places, serve), truth)
        return found


def _quiet(_: str) -> None:
    """The server is this module's own."""


def _done(kept: Path, version: str) -> dict[str, dict[str, Score]]:
    rows = map(json.loads, kept.read_text().splitlines()) if kept.exists() else ()
    return {
        row["name"]: {who: Score(**score) for who, score in row["scores"].items()}
        for row in rows
        if row["version"] == version
    }


def _table(rows: Sequence[Mapping[str, Score]]) -> Outcome:
    found: dict[str, Estimate] = {}
    labels = sum(row["embedded"].labels for row in rows)
    lines = [f"{len(rows)} traces, {labels} labels"]
    for name in rows[0] if rows else ():
        mine = [row[name] for row in rows]
        total = {key: sum(getattr(score, key) for score in mine) for key in asdict(mine[0])}
        cost = "{asked} of {places} places asked, {tokens:,} tokens".format(**total)
        lines.append(
            f"{name:32} {total['named']:4} named {total['wrong']:4} wrong"
            + (f"; {cost}" if total["tokens"] or total["asked"] else "")
        )
        for key in ("named", "wrong", "tokens"):
            found[f"{name}, {key}"] = Estimate(total[key], np.nan, np.nan)
    return Outcome(lines, metrics=found)


# -- scoring ---------------------------------------------------------------------------------------


def overlapping(place: Evidence, truth: Truth) -> list[str]:
    """The patterns labeled somewhere in a place, the longest first."""
    start, end = place.region.start / NS_PER_US, place.region.end / NS_PER_US
    shared = {
        problem.pattern: sum(max(0.0, min(end, b) - max(start, a)) for a, b in problem.spans_us)
        for problem in truth.problems
    }
    return sorted((p for p, both in shared.items() if both > 0), key=lambda p: -shared[p])


def _score(places: Sequence[Evidence], answers: Answers, truth: Truth) -> Score:
    said = [set(_named(verdict)) for verdict in answers.verdicts]
    right = {
        pattern
        for place, mine in zip(places, said, strict=True)
        for pattern in mine.intersection(overlapping(place, truth))
    }
    wanted, judging = set(truth.by_pattern), answers.judging
    return Score(
        len(wanted),
        len(right),
        len(set().union(*said) - wanted),
        len(places),
        judging.places - judging.fallbacks.get(SPARED, 0),
        judging.input_tokens + judging.output_tokens,
    )


def _named(verdict: Verdict) -> list[str]:
    chance = dict(verdict.candidates)
    chance |= {one.pattern: one.confidence for one in verdict.named}
    return [p for p, odds in chance.items() if odds >= EVEN and p not in (NONE, UNCLEAR)]


# -- a played model --------------------------------------------------------------------------------


class Knowledge:
    """What the server knows: the labels of the place that each text is about."""

    def __init__(self, places: Sequence[Evidence], truth: Truth) -> None:
        self.labels: dict[str, tuple[str, ...]] = {}
        self.allowed: dict[str, tuple[str, ...]] = {}
        for place in places:
            text = schema.user_prompt(place, 1_500)  # the default of judge=openai
            here = (*self.labels.get(text, ()), *overlapping(place, truth))
            self.labels[text] = tuple(dict.fromkeys(here))
            self.allowed[text] = schema.allowed(place)


@contextmanager
def playing(player: Player, known: Knowledge) -> Iterator[str]:
    """A server that plays a model; yields its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            body = json.dumps(_completion(player, known, request["messages"])).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _completion(
    player: Player, known: Knowledge, messages: Sequence[Mapping[str, str]]
) -> dict[str, Any]:
    text = json.dumps(_played(player, known, messages))
    message = {"role": "assistant", "content": text}
    usage = {
        "prompt_tokens": sum(words.tokens(m["content"]) for m in messages),
        "completion_tokens": words.tokens(text),
    }
    return {"choices": [{"finish_reason": "stop", "message": message}], "usage": usage}


def _played(player: Player, known: Knowledge, messages: Sequence[Mapping[str, str]]) -> object:
    text = messages[1]["content"]
    if player.look and len(messages) == 2:
        return {"patterns": [], "look": player.look}
    can = known.allowed[text]
    chance = random.Random(f"{player.name} {text}")
    if chance.random() < player.noise:
        named: Sequence[str] = [chance.choice([i for i in can if i != UNCLEAR])]
    else:
        named = [p for p in known.labels[text] if p in can][: player.most] or [NONE]
    said = [{"pattern": p, "confidence": SURE, "explanation": "It is here."} for p in named]
    return {"patterns": said, "look": ""}


# -- one trace -------------------------------------------------------------------------------------


class _Places:
    """Shows the places of a trace, and how to see more of them, to others."""

    name = "places"
    names_more = True

    def __init__(self, then: Callable[[Sequence[Evidence], Serve], dict[str, Score]]) -> None:
        self._then = then
        self.scores: dict[str, Score] = {}

    def judge(self, evidence: Sequence[Evidence], serve: Serve | None = None) -> Answers:
        if evidence and serve is not None:
            self.scores = self._then(evidence, serve)
        return NoJudge().judge(evidence)


class _Known:
    """The confidence of one trace's candidates, by their pattern."""

    name = "held out by program"

    def __init__(self, by_pattern: Mapping[str, float]) -> None:
        self._sure = by_pattern

    def score(self, matrix: Float32) -> Float64:
        ids = [PATTERNS[int(i)].id for i in matrix[:, COLUMNS.index("pattern")]]
        return np.array([self._sure.get(i, 0.0) for i in ids], np.float64)
