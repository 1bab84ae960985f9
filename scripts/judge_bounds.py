"""What a language model can gain or break: labels named by judges of known skill, over HTTP.

    python scripts/judge_bounds.py FOLDER [--origin natural] [--every N] [--done FILE]
                                          [judge=openai judge.model=… key=value …]

FOLDER is a built benchmark. Each trace is analyzed once; its places are then judged by the flagger
alone, by the embedded judge, and by judge=openai against a server on this machine that plays a
model: an oracle that names one label of a place or all of them, one that asks for a view first,
the same with a part of its answers drawn at random, and one that only guesses. The server knows
nothing but the text that it is sent and the labels of that text's place.

A label is named when the verdict on a place that overlaps it gives its pattern at least even odds.
Wrong: pattern and trace pairs named that no label of the trace has. ``--done``: results by trace
are kept there as JSON lines, and what is there is not measured again. With overrides a judge of
the configuration is measured, too, as the last row.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the checkout that is measured, installed or not

from dataset.labels import UNKNOWN, LabelRegion  # noqa: E402  the path first
from detector.evidence import Evidence  # noqa: E402
from detector.judge import Answers, AskingJudge, Judge, Serve, Verdict, schema  # noqa: E402
from detector.judge.embedded import EmbeddedJudge  # noqa: E402
from detector.judge.nothing import NoJudge  # noqa: E402
from detector.judge.openai import OpenAIJudge  # noqa: E402
from detector.taxonomy import NONE, UNCLEAR  # noqa: E402
from scripts.scanned import Case, Stages, cases  # noqa: E402

EVEN = 0.5  # odds from which on a pattern counts as named
SURE = 0.9  # what the played models say of every pattern that they name
CHOSEN = "judge of the configuration"
_US = 1_000


@dataclass(frozen=True)
class Player:
    """A model of known skill: how many labels of a place it names, and how often it guesses."""

    name: str
    most: int = 9
    noise: float = 0.0
    look: str = ""


PLAYERS = (
    Player("oracle, one pattern", most=1),
    Player("oracle, several"),
    Player("oracle, several, after a view", look="unexplained"),
    Player("oracle, 10 % noise", noise=0.1),
    Player("oracle, 25 % noise", noise=0.25),
    Player("oracle, 50 % noise", noise=0.5),
    Player("random", noise=1.0),
)


@dataclass
class Knowledge:
    """What the server knows: the labels of the place that each text is about."""

    labels: dict[str, tuple[str, ...]] = field(default_factory=dict)
    allowed: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def learn(self, places: Sequence[Evidence], regions: Sequence[LabelRegion]) -> None:
        """The places of one trace; ``budget_tokens`` is that of the judge's default."""
        self.labels.clear()
        for place in places:
            text = schema.user_prompt(place, 1_500)
            here = dict.fromkeys((*self.labels.get(text, ()), *overlapping(place, regions)))
            self.labels[text] = tuple(here)
            self.allowed[text] = schema.allowed(place)


def overlapping(place: Evidence, regions: Sequence[LabelRegion]) -> list[str]:
    """The patterns labelled somewhere in a place, the longest first."""
    start, end = place.region.start / _US, place.region.end / _US
    shared: Counter[str] = Counter()
    for region in regions:
        both = min(end, region.end_us) - max(start, region.start_us)
        if both > 0 and region.pattern != UNKNOWN:
            shared[region.pattern] += both
    return [pattern for pattern, _ in shared.most_common()]


@contextmanager
def playing(player: Player, known: Knowledge) -> Iterator[str]:
    """A server that plays a model; yields its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            body = json.dumps(_completion(_played(player, known, request["messages"]))).encode()
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


def _completion(answer: object) -> object:
    message = {"role": "assistant", "content": json.dumps(answer)}
    return {"choices": [{"index": 0, "finish_reason": "stop", "message": message}]}


# -- one trace -------------------------------------------------------------------------------------


class _Places:
    """Judges nothing; keeps the places and how to see more of them."""

    name = "places"

    def __init__(self) -> None:
        self.evidence: tuple[Evidence, ...] = ()
        self.answers: dict[str, Answers] = {}
        self.then: Callable[[Sequence[Evidence], Serve], None] = lambda *_: None

    def judge(self, evidence: Sequence[Evidence]) -> Answers:
        return NoJudge().judge(evidence)

    def judge_with_views(self, evidence: Sequence[Evidence], serve: Serve) -> Answers:
        self.then(evidence, serve)
        return self.judge(evidence)


@dataclass(frozen=True)
class Score:
    """``named`` of ``labels`` patterns of a trace, ``wrong`` patterns beside them."""

    labels: int
    named: int
    wrong: int
    tokens: int = 0


def score(
    places: Sequence[Evidence], verdicts: Sequence[Verdict], regions: Sequence[LabelRegion]
) -> Score:
    """How many of a trace's labels the verdicts name where they are."""
    wanted = {r.pattern for r in regions if r.pattern != UNKNOWN}
    said = [set(_named(verdict)) for verdict in verdicts]
    right = {p for place, mine in zip(places, said, strict=True) for p in mine
             if p in overlapping(place, regions)}  # fmt: skip
    wrong = set().union(*said) - wanted if said else set()
    return Score(len(wanted), len(wanted & right), len(wrong))


def _named(verdict: Verdict) -> list[str]:
    chance = dict(verdict.candidates)
    chance |= {one.pattern: one.confidence for one in verdict.named}
    return [p for p, odds in chance.items() if odds >= EVEN and p not in (NONE, UNCLEAR)]


def of_trace(case: Case, embedded: Judge, chosen: Judge | None = None) -> dict[str, Score]:
    """Every judge's score on one trace; ``chosen`` is one of the configuration."""
    regions = case.label.regions
    scores: dict[str, Score] = {}

    def judge_all(places: Sequence[Evidence], serve: Serve) -> None:
        for name, judge in (("flagger alone", NoJudge()), ("embedded", embedded)):
            scores[name] = score(places, judge.judge(places).verdicts, regions)
        known = Knowledge()
        known.learn(places, regions)
        for player in PLAYERS:
            with playing(player, known) as url:
                asked = OpenAIJudge("player", url, cache=False, fallback=embedded, say=_quiet)
                answers = asked.judge_with_views(places, serve)
            if answers.warnings:
                raise RuntimeError(answers.warnings[0])
            scores[player.name] = score(places, answers.verdicts, regions)

        if chosen is not None:
            asks = isinstance(chosen, AskingJudge)
            answers = chosen.judge_with_views(places, serve) if asks else chosen.judge(places)
            print("\n".join(answers.warnings), end="", file=sys.stderr)
            scores[CHOSEN] = score(places, answers.verdicts, regions)

    stages = Stages(["judge=none"])
    places = _Places()
    places.then = judge_all
    stages.parts["judge"] = places
    stages.scan(case.read())
    return scores


def _quiet(_: str) -> None:
    """The server is this script's own."""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Labels named by judges of known skill.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--origin", default="natural")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--done", type=Path)
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    given = parser.parse_intermixed_args()
    chosen = Stages(given.overrides).parts["judge"] if given.overrides else None
    found = cases(given.folder, lambda row: row["origin"] == given.origin)[:: given.every]
    rows = list(_measured(found, given.done, chosen))
    print(f"{len(rows)} traces, {sum(r['embedded'].labels for r in rows)} labels")
    more = [CHOSEN] if chosen is not None else []
    for name in ("flagger alone", "embedded", *(p.name for p in PLAYERS), *more):
        mine = [row[name] for row in rows]
        print(
            f"{name:32} {sum(s.named for s in mine):4} named {sum(s.wrong for s in mine):4} wrong"
        )


def _measured(
    found: Sequence[Case], done: Path | None, chosen: Judge | None
) -> Iterator[dict[str, Score]]:
    kept: dict[str, Any] = {}
    if done is not None and done.exists():
        kept = {row["name"]: row for row in map(json.loads, done.read_text().splitlines())}
    embedded = EmbeddedJudge()
    for case in found:
        if case.name not in kept:
            scores = {name: vars(s) for name, s in of_trace(case, embedded, chosen).items()}
            kept[case.name] = {"name": case.name, "scores": scores}
            if done is not None:
                with done.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(kept[case.name]) + "\n")
        yield {name: Score(**s) for name, s in kept[case.name]["scores"].items()}


if __name__ == "__main__":
    main()
