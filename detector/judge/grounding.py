"""What a judge writes, cut down to what the evidence holds: sentence by sentence.

A sentence stays when every number in it is a number of the evidence, in the same dimension, beside
words of its label or the name of its event; when every name, file and line in it occurs in the
evidence; and every API it names in the evidence, the taxonomy or the kept list. Links and shell
commands never stay.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from typing import Final

from detector.evidence import Evidence
from detector.judge import Named, Verdict, feedback
from detector.judge.facts import NUMBER, Fact, dimension_of, facts_of, stems
from detector.patterns import BY_ID, PATTERNS
from detector.taxonomy import NONE, UNCLEAR

_SENTENCE: Final = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9\"'`(])|\n+")
_LINK: Final = re.compile(
    r"(?i)\b[a-z][a-z0-9+.-]*://|\bwww\.|\bmailto:"
    r"|\b[a-z0-9-]+\.(?:com|org|net|io|dev|ai|sh|xyz|ru|cn|me|app|co)\b(?!\()"
)
_SHELL: Final = re.compile(
    r"(?i)(?:^|[\s`'\"($;&|])(?:curl|wget|sudo|pip3?|conda|mamba|apt(?:-get)?|yum|brew|npm|npx|git|"
    r"docker|kubectl|ssh|scp|rsync|chmod|chown|rm|mv|dd|mkfs|kill(?:all)?|bash|zsh|sh|cmd|"
    r"powershell|eval|exec|nohup|export|source|python3?|perl|ruby|nc|ncat|crontab|systemctl)\s+"
    r"(?:-{1,2}\w|/|~|install\b|clone\b|[\w./-]+\.(?:sh|py)\b|\w+=|http)"
    r"|\|\s*(?:ba|z)?sh\b|\$\(|&&|;\s*rm\b|>\s*/|\brm\s+-|os\.system|subprocess\."
    r"|\b(?:curl|wget|sudo)\b"
)
# The APIs, settings and terms that advice may name beside those of the evidence and the taxonomy:
# models like to invent functions. A line a family, names without their arguments.
NAMES: Final = frozenset(
    files("detector.judge").joinpath("known_apis.txt").read_text("utf-8").split()
)
_DIGIT: Final = re.compile(r"\d+")
_FREE: Final = frozenset({"0", "1", "2"})  # "one of 2 streams" counts nothing
_LIKE_BEST: Final = 0.85  # of what the best label beside a number shares with the words there
_QUOTED_LABEL: Final = 0.5  # a label of which so much stands there is meant
_MANY_WORDS: Final = 3  # of a label: enough to tell it from the others
_BASELINE: Final = re.compile(
    r"(?i)\b(?:baseline|rest|against|elsewhere|compared|versus|vs|than|outside|otherwise|instead)\b|\["
)
_CLAUSE: Final = re.compile(r"[,;()]")

_FILE: Final = re.compile(
    r"(?<![\w/\\])[\w./\\~:-]*?(?P<name>[\w-]+\.(?:py|pyx|cpp|cc|cu|cuh|c|h|ipynb|yaml|json|so))"
    r"(?::(?P<line>\d+))?(?!\w)"
)
_LINE: Final = re.compile(r"(?i)\bline\s+(\d+)")
_QUOTED: Final = re.compile(r"`([^`]+)`|\"([^\"]+)\"|(?<!\w)'([^']+)'(?!\w)")
_CODE: Final = re.compile(
    r"(?<![\w.:])(?:"
    r"[A-Za-z_]\w*(?:(?:::|\.)[A-Za-z_]\w*)+"  # a.b, a::b
    r"|[A-Za-z]\w*_\w+|_\w+"  # snake case
    r"|[A-Za-z]+[a-z][A-Z]\w*|[A-Z]{2,}[a-z]\w*"  # camel case
    r"|[A-Za-z]+\d+\w*"  # fp32, A100
    r"|[A-Za-z]\w*(?=\()"  # a call
    r")"
)
_ASSIGNED: Final = re.compile(r"([A-Za-z_][\w.]*)\s*=\s*[\w.\"'-]+")
_TOKEN: Final = re.compile(r"[A-Za-z_][\w]*(?:(?:::|\.)[A-Za-z_]\w*)*")

# What is said to have happened, and the measures of which one must be above zero.
_SAID: Final = (
    (re.compile(r"(?i)\bgarbage|\bgc\b"), ("gc",)),
    (
        re.compile(r"(?i)\brecompil|\bcompil(?:es|ed|ing|ation) (?:takes|runs|happens|during)"),
        ("compiling", "compile_events", "compiled_regions"),
    ),
)


# A measure that counts by a size, and the one that is above zero where sizes were recorded.
_BY_SIZE: Final = {"small_collectives": "collective_elements"}


@dataclass(frozen=True)
class Grounded:
    """A text as it may be shown, and the sentences that were struck from it."""

    text: str
    struck: tuple[str, ...]


def ground(verdict: Verdict, evidence: Evidence) -> tuple[Verdict, int]:
    """A verdict whose words hold, and how much was struck. A text of which nothing is left becomes
    the project's own; a pattern whose main fact is absent is named no longer."""
    facts = facts_of(evidence)
    kept: list[Named] = []
    struck = 0
    for one in verdict.named:
        if not _main_fact(one.pattern, evidence):
            struck += 1
            continue
        grounded, lost = _ground_one(one, evidence, facts)
        kept.append(grounded)
        struck += lost
    unclear = Named(UNCLEAR, 0.0, feedback.explain(evidence, UNCLEAR), "")
    return replace(verdict, named=tuple(kept) or (unclear,)), struck


def _ground_one(one: Named, evidence: Evidence, facts: tuple[Fact, ...]) -> tuple[Named, int]:
    said = grounded(one.explanation, evidence, one.pattern, facts)
    done = grounded(one.fix, evidence, one.pattern, facts, advice=True)
    return replace(
        one,
        explanation=said.text or feedback.explain(evidence, one.pattern),
        fix=done.text or feedback.advise(evidence, one.pattern),
    ), len(said.struck) + len(done.struck)


def _main_fact(pattern: str, evidence: Evidence) -> bool:
    """Whether the most telling measure of a pattern is above zero, here or in the rest."""
    if pattern not in BY_ID:
        return True
    key = BY_ID[pattern].facts[0]
    if key in _BY_SIZE and not _above_zero(_BY_SIZE[key], evidence):
        return True  # nobody recorded sizes
    return _above_zero(key, evidence)


def _above_zero(key: str, evidence: Evidence) -> bool:
    row = evidence.row(key)
    return row.value > 0 or (row.rest or 0.0) > 0


def grounded(
    text: str,
    evidence: Evidence,
    pattern: str = NONE,
    facts: tuple[Fact, ...] | None = None,
    *,
    advice: bool = False,
) -> Grounded:
    """The sentences of ``text`` that hold. In ``advice`` a setting may be given any number."""
    known = facts_of(evidence) if facts is None else facts
    names = _Names(evidence, pattern)
    kept: list[str] = []
    struck: list[str] = []
    for sentence in filter(None, map(str.strip, _SENTENCE.split(text))):
        holds = _holds(sentence, evidence, known, names, advice=advice)
        (kept if holds else struck).append(sentence)
    return Grounded(" ".join(kept), tuple(struck))


def _holds(
    sentence: str,
    evidence: Evidence,
    facts: tuple[Fact, ...],
    names: _Names,
    *,
    advice: bool,
) -> bool:
    if sentence in names.own_sentences:  # the project's words
        return True
    if _LINK.search(sentence) or _SHELL.search(sentence):
        return False
    rest, lines_hold = _without_lines(sentence, evidence)
    if not lines_hold or not _events_seen(sentence, evidence, advice):
        return False
    rest, names_hold = names.without(rest, advice=advice)
    return names_hold and _numbers_hold(sentence, rest, facts, names)


# -- numbers ---------------------------------------------------------------------------------------


def _numbers_hold(sentence: str, rest: str, facts: tuple[Fact, ...], names: _Names) -> bool:
    """Whether each number stands beside its label. ``rest`` is the sentence without its names;
    the parts between semicolons speak of one thing each."""
    parts, whole = rest.split(";"), sentence.split(";")
    if len(parts) != len(whole):
        whole = [sentence] * len(parts)
    return all(_part_holds(*pair, facts, names) for pair in zip(parts, whole, strict=True))


def _part_holds(part: str, whole: str, facts: tuple[Fact, ...], names: _Names) -> bool:
    found = list(NUMBER.finditer(part))
    if not found:
        return True
    words, named, end = stems(whole), _longest_names(whole, names), 0
    ends = [*(n.start() for n in found[1:]), len(part)]
    for match, until in zip(found, ends, strict=True):
        before, after = part[end : match.start()], _CLAUSE.split(part[match.end() : until])[0]
        cues = _Cues(bool(_BASELINE.search(before)), bool(_BASELINE.search(after)))
        if not _one_number(match, words, named, cues, facts, names):
            return False
        end = match.end()
    return True


def _longest_names(text: str, names: _Names) -> tuple[str, ...]:
    """The events that a text names; not those whose name is a part of another's there."""
    found = [name for name in names.items if name in text]
    return tuple(n for n in found if not any(n != other and n in other for other in found))


@dataclass(frozen=True)
class _Cues:
    """Whether the words before or after a number say that it is of the rest of the trace."""

    before: bool
    after: bool

    def allow(self, fact: Fact) -> bool:
        return fact.baseline == self.before or (fact.baseline and self.after)


def _one_number(
    match: re.Match[str],
    words: frozenset[str],
    named: tuple[str, ...],
    cues: _Cues,
    facts: tuple[Fact, ...],
    names: _Names,
) -> bool:
    number, unit = match["number"], match["unit"]
    if unit is None and number in names.own_numbers:
        return True
    dimension, scale = dimension_of(unit)
    mine = [fact for fact in facts if fact.dimension == dimension]
    shared = [_shared(fact, words, named) for fact in mine]
    best = max(shared, default=0.0)
    if unit is None and number in _FREE and best < _QUOTED_LABEL:
        return True
    return any(
        s >= _LIKE_BEST * best and s > 0 and cues.allow(f) and _rounds_to(number, scale, f.value)
        for s, f in zip(shared, mine, strict=True)
    )


def _shared(fact: Fact, words: frozenset[str], named: tuple[str, ...]) -> float:
    """How well a fact's label fits the words beside a number, in [0, 1]: how much of the label is
    there, and how many words that is."""
    if fact.name and fact.name in named:
        return 1.0
    common = len(fact.words & words)
    if not common or fact.name:
        return 0.0
    return common / len(fact.words) * math.sqrt(min(1.0, common / _MANY_WORDS))


def _rounds_to(number: str, scale: float, value: float) -> bool:
    """Whether the number is the value, rounded as it is written or to two significant figures."""
    plain = number.replace(",", "")
    decimals = len(plain.partition(".")[2])
    half = 0.5 * 10.0**-decimals * scale * (1 + 1e-9)
    return abs(float(plain) * scale - value) <= half + 1e-9


# -- names -----------------------------------------------------------------------------------------


class _Names:
    """What a text about a region may name."""

    def __init__(self, evidence: Evidence, pattern: str) -> None:
        self.pattern = pattern
        events = (*evidence.items, *evidence.occurring.values())
        self.items = tuple(dict.fromkeys(item.name for item in events))
        where = (f"{w.file} {w.function}" for w in evidence.where)
        labels = (row.label for row in evidence.rows)
        shown = (*evidence.modules, evidence.context.text)
        text = "\n".join((*self.items, *where, *shown, *labels))
        self.text = text
        self.tokens = frozenset(_TOKEN.findall(text)) | frozenset(
            piece for token in _TOKEN.findall(text) for piece in re.split(r"::|\.", token)
        )
        self.counted = tuple(row.label for row in evidence.rows if _DIGIT.search(row.label))
        own = _own(pattern)
        self.own_sentences, self.own_tokens, self.own_numbers = own

    def without(self, sentence: str, *, advice: bool) -> tuple[str, bool]:
        """The sentence without its names, and whether all of them are known."""
        for match in _QUOTED.finditer(sentence):
            quoted = next(part for part in match.groups() if part is not None)
            if not self._quoted_known(quoted, advice=advice):
                return sentence, False
        for label in self.counted:  # "kernels under 10 µs": that number claims nothing
            sentence = sentence.replace(label, _DIGIT.sub("", label))
        for name in sorted(self.items, key=len, reverse=True):
            sentence = sentence.replace(name, " ")
        if advice:
            for match in _ASSIGNED.finditer(sentence):
                if not self.known(match[1]):
                    return sentence, False
            sentence = _ASSIGNED.sub(" ", sentence)
        known = all(self.known(match[0]) for match in _CODE.finditer(sentence))
        return _CODE.sub(" ", sentence), known

    def known(self, name: str) -> bool:
        """Whether the evidence, the taxonomy or the kept list has this name."""
        found = self.tokens | self.own_tokens
        if name in found or name in NAMES or name in IDS:
            return True
        last = re.split(r"::|\.", name)[-1]
        first = re.split(r"::|\.", name)[0]
        # a method of somebody's object: loss.item, optimizer.zero_grad
        owner = first in _OBJECTS
        return owner and (last in NAMES or last in found or last in _METHODS)

    def _quoted_known(self, quoted: str, *, advice: bool) -> bool:
        if quoted in self.text:
            return True
        if advice:
            return True  # its names are checked one by one
        return all(self.known(token) for token in _TOKEN.findall(quoted)) or " " in quoted.strip()


_OBJECTS: Final = frozenset(
    "loss model optimizer tensor self x batch data loader torch output outputs inputs opt scaler "
    "module net nn F dist stream event".split()
)
_METHODS: Final = frozenset(
    "item cpu cuda to tolist numpy backward step zero_grad detach contiguous eval train half float "
    "bfloat16 compile parameters nonzero mean sum clone pin_memory update unscale_".split()
)
IDS: Final = frozenset(BY_ID)


@lru_cache(maxsize=64)
def _own(pattern: str) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """The taxonomy's sentences, its names, and the numbers of this pattern's texts."""
    advised = [f"{a.text}\n{a.code}" for p in PATTERNS for a in p.advice]
    everything = "\n".join((*advised, *(f"{p.what}\n{p.look}\n{p.title}" for p in PATTERNS)))
    tokens = frozenset(_TOKEN.findall(everything))
    pieces = frozenset(piece for token in tokens for piece in re.split(r"::|\.", token))
    row = BY_ID.get(pattern)
    texts = (row.what, row.look, *(a.text for a in row.advice)) if row else ()
    sentences = frozenset(s for text in texts for s in map(str.strip, _SENTENCE.split(text)) if s)
    numbers = frozenset(m["number"] for text in texts for m in NUMBER.finditer(text))
    return sentences, tokens | pieces, numbers


# -- files, lines, events --------------------------------------------------------------------------


def _without_lines(sentence: str, evidence: Evidence) -> tuple[str, bool]:
    """The sentence without files and lines, and whether the evidence has all of them."""
    text = "\n".join((*(item.name for item in evidence.items), evidence.context.text))
    lines = {(w.file, w.line) for w in evidence.where}
    lines |= {(m["name"], int(m["line"][:9])) for m in _FILE.finditer(text) if m["line"]}
    files = {file for file, _ in lines}
    for match in _FILE.finditer(sentence):
        name, line = match["name"], match["line"]
        if line is not None and (name, int(line[:9])) not in lines:
            return sentence, False
        if line is None and name not in files and name not in text:
            return sentence, False
    numbers = {line for _, line in lines}
    for match in _LINE.finditer(sentence):
        if int(match[1][:9]) not in numbers:
            return sentence, False
    return _LINE.sub(" ", _FILE.sub(" ", sentence)), True


def _events_seen(sentence: str, evidence: Evidence, advice: bool) -> bool:
    """Whether what the sentence says happened is in the trace at all."""
    if advice:
        return True
    for said, keys in _SAID:
        seen = any(row.value > 0 or (row.rest or 0) > 0 for row in evidence.rows if row.key in keys)
        if said.search(sentence) and not seen:
            return False
    return True
