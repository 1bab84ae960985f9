"""Stable codes for the names that a program gave itself, for the way to a server and back.

Files, functions, modules and annotations of the profiled program and ops of its own namespaces get
a code; names of PyTorch and its libraries stay, without which no pattern can be recognized.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from detector.evidence import Evidence, Item
from detector.judge import Named, Verdict

# Namespaces and files that belong to PyTorch and what it is built on.
_LIBRARY: Final = re.compile(
    r"^(?:aten|prim|prims|c10|c10d|nccl|torch|autograd|cuda|hip|cuda_|quantized|inductor|triton|"
    r"enumerate|Optimizer|Torch|Compiled|Autograd|ProfilerStep|DistributedDataParallel|FSDP|built-in|"
    r"nvjpeg|profiler|gloo|record_param_comms|Memcpy|Memset)\b|^(?:cuda|hip|cu)[A-Z]"
)
_FRAME: Final = re.compile(r"^(?P<file>[^:]+\.\w+): (?P<function>.+)$")
_CODE: Final = re.compile(r"\b(?:file|function|name)_\d+(?:\.py)?")
_SHORT: Final = 3  # a name of fewer letters would be found inside other words


class Codes:
    """Codes for the names in these evidences; the same names get the same codes."""

    def __init__(self, evidence: Sequence[Evidence]) -> None:
        names = dict.fromkeys(pair for one in evidence for pair in _names(one))
        count: dict[str, int] = {}
        self._code: dict[str, str] = {}
        for kind, name in names:
            if name in self._code:
                continue
            count[kind] = count.get(kind, 0) + 1
            self._code[name] = f"{kind}_{count[kind]}" + (".py" if kind == "file" else "")
        self._name = {code: name for name, code in self._code.items()}
        longest = sorted(self._code, key=len, reverse=True)
        alternatives = "|".join(re.escape(name) for name in longest if len(name) >= _SHORT)
        self._found = re.compile(rf"(?<!\w)(?:{alternatives})(?!\w)") if alternatives else None

    def coded(self, text: str) -> str:
        """``text`` with every known name as its code."""
        return self._found.sub(lambda m: self._code[m[0]], text) if self._found else text

    def evidence(self, evidence: Evidence) -> Evidence:
        """An evidence in which all such names are codes."""
        context = evidence.context
        return replace(
            evidence,
            items=tuple(self._item(item) for item in evidence.items),
            where=tuple(
                replace(
                    line,
                    file=self._code.get(line.file, line.file),
                    function=self._code.get(line.function, line.function),
                )
                for line in evidence.where
            ),
            modules=tuple(self._code.get(name, name) for name in evidence.modules),
            occurring={p: self._item(item) for p, item in evidence.occurring.items()},
            context=replace(
                context,
                notes=tuple(map(self.coded, context.notes)),
                views=tuple(map(self.coded, context.views)),
            ),
        )

    def _item(self, item: Item) -> Item:
        if item.name in self._code:
            return replace(item, name=self._code[item.name])
        return replace(item, name=self.coded(item.name))

    def restored(self, verdict: Verdict) -> Verdict:
        """A verdict about codes as one about names."""
        return replace(verdict, named=tuple(map(self._restored, verdict.named)))

    def _restored(self, one: Named) -> Named:
        return replace(
            one,
            explanation=self._named(one.explanation),
            fix=self._named(one.fix),
            place=self._named(one.place),
        )

    def _named(self, text: str) -> str:
        return _CODE.sub(lambda m: self._name.get(m[0], m[0]), text)


def _names(evidence: Evidence) -> Iterator[tuple[str, str]]:
    for line in evidence.where:
        yield "file", line.file
        if line.function:
            yield "function", line.function
    for name in evidence.modules:
        yield "name", name
    for item in (*evidence.items, *evidence.occurring.values()):
        yield from _of_item(item)


def _of_item(item: Item) -> Iterable[tuple[str, str]]:
    if item.kind == "frame":
        if item.user and (frame := _FRAME.match(item.name)):
            return ("file", frame["file"]), ("function", frame["function"])
        return (("name", item.name),) if item.user else ()
    if item.kind in ("op", "launched", "annotation"):
        parts = item.name.split(" > ") if item.kind != "annotation" else [item.name]
        return [("name", part) for part in parts if not _LIBRARY.search(part)]
    return ()
