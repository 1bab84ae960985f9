"""Every space of ids of one file, anew: correlations, External ids, Python ids, Ev Idx."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Final

import numpy as np

from dataset.inject.base import Base
from dataset.inject.numbering import Numbering, stride_of
from dataset.inject.outcome import CATS, EVERYWHERE, Outcome, Placed
from dataset.inject.raw import FLOWS, Event
from detector.trace import Cat, Int64

Before = Callable[..., int]  # (fresh, categories, track) -> the row before it
_CALLS: Final = (Cat.RUNTIME, Cat.DRIVER)
_OPS: Final = (Cat.CPU_OP, Cat.USER_ANNOTATION)

_INDEXED: Final = ("cpu_op", "user_annotation", "python_function")
_EXTERNAL: Final = ("External id", "external id")


class Ids:
    """All spaces of ids of one file, anew."""

    def __init__(self, base: Base, outcome: Outcome, before: Before) -> None:
        self._base, self._raw, self._trace, self._o = base, base.raw, base.trace, outcome
        self._before = before
        t, raw = base.trace, base.raw
        self._calls = [k for k, p in enumerate(outcome.fresh) if p.event.cat == "cuda_runtime"]
        self._ops = [
            k for k, p in enumerate(outcome.fresh) if p.event.cat in ("cpu_op", "user_annotation")
        ]
        self._frames = [k for k, p in enumerate(outcome.fresh) if p.event.cat == "python_function"]
        everything = list(range(len(outcome.fresh)))
        self._correlation = self._space(
            t.correlation, self._calls, lambda f: before(f, _CALLS, EVERYWHERE), stride=True
        )
        self._external = self._space(t.external_id, self._ops, lambda f: before(f, _OPS), cats=_OPS)
        self._function = self._space(
            raw.numbers("Record function id"), self._ops, lambda f: before(f, _OPS)
        )
        self._python = self._space(
            raw.numbers("Python id"), self._frames, lambda f: before(f, (Cat.PYTHON_FUNCTION,))
        )
        self._event = self._space(
            raw.numbers("Ev Idx"),
            [k for k in everything if outcome.fresh[k].event.cat in _INDEXED],
            lambda f: before(f, _OPS if CATS[f.cat] in _OPS else (CATS[f.cat],)),
        )

    def _space(
        self,
        ids: Int64,
        fresh: list[int],
        before: Before,
        cats: tuple[Cat, ...] | None = None,
        stride: bool = False,
    ) -> tuple[Numbering, dict[int, int]]:
        """A numbering and, for each fresh event in it, its id."""
        if cats is not None:
            ids = np.where(np.isin(self._trace.cat, cats), ids, -1)
        used = ids[ids > 0]
        fresh = fresh if len(used) else []
        floor = int(used.min()) - 1 if len(used) else 0
        anchors = []
        for k in fresh:
            row = before(self._o.fresh[k].event)
            anchors.append(int(ids[row]) if row >= 0 and ids[row] > 0 else floor)
        gone = np.setdiff1d(ids[~self._o.keep], ids[self._o.keep])
        step = stride_of(used) if stride else 1
        numbering = Numbering(anchors, gone[gone > 0], step)
        return numbering, dict(zip(fresh, numbering.fresh.tolist(), strict=True))

    # -- events of the base --------------------------------------------------------------------
    def renumbered(self, event: Event, row: int) -> Event:
        """The event with its ids as they are now; itself where none moved."""
        if event.get("cat") in FLOWS:
            moved = self._correlation[0].moved(event.get("id"))
            return event if moved == event.get("id") else {**event, "id": moved}
        args = event.get("args")
        if not args:
            return event
        changes = {}
        for key in self._changing:
            if key in args:
                value = self._moved(key, args, row)
                if value != args[key]:
                    changes[key] = value
        return {**event, "args": {**args, **changes}} if changes else event

    @cached_property
    def _changing(self) -> dict[str, Numbering]:
        """The args whose ids move, with their spaces."""
        spaces = {
            "correlation": self._correlation,
            "wait_on_cuda_event_record_corr_id": self._correlation,
            "Record function id": self._function,
            "Python id": self._python,
            "Python parent id": self._python,
            "Ev Idx": self._event,
        }
        changing = {key: space for key, (space, _) in spaces.items() if space.changes}
        if self._correlation[0].changes or self._external[0].changes:
            changing |= dict.fromkeys(_EXTERNAL, self._external[0])
        return changing

    def _moved(self, key: str, args: Mapping[str, Any], row: int) -> Any:
        value = args[key]
        linked = key in _EXTERNAL and row >= 0 and self._trace.cat[row] not in _OPS
        if linked and value == args.get("correlation"):
            return self._correlation[0].moved(value)
        return self._changing[key].moved(value)

    # -- fresh events --------------------------------------------------------------------------
    def give(self, event: Event, k: int) -> None:
        """Write fresh event ``k``'s ids into its args."""
        args = event.get("args", {})
        placed = self._o.fresh[k]
        if "correlation" in args:
            args["correlation"] = self.correlation_of(k)
        for key in _EXTERNAL:
            if key in args:
                self._link(args, key, k)
        if args.get("Record function id"):
            args["Record function id"] = self._function[1].get(k, 0)
        if "Python id" in args:
            args["Python id"] = self._python[1].get(k, k + 1)
        if "Python parent id" in args:
            args["Python parent id"] = self._frame_around(placed)
        if "Ev Idx" in args:
            args["Ev Idx"] = self._event[1].get(k, 0)
        if "external ts" in args:
            op = self._around(placed, Cat.CPU_OP)
            start = placed.event.start
            if op is not None:
                start = self._o.fresh[op[1]].event.start if op[0] else int(self._o.start[op[1]])
            args["external ts"] = self._raw.clock.at(start)

    def correlation_of(self, k: int) -> int:
        """Of a fresh call, or of the call that issued fresh device work."""
        call = self._o.fresh[k].call
        return self._correlation[1].get(call if call >= 0 else k, 0)

    def _link(self, args: dict[str, Any], key: str, k: int) -> None:
        placed = self._o.fresh[k]
        if placed.event.cat in ("cpu_op", "user_annotation"):
            args[key] = self._external[1].get(k, 0)
            return
        if self._raw.always_repeats:
            args[key] = self.correlation_of(k)
            return
        issuer = self._o.fresh[placed.call] if placed.call >= 0 else placed
        op = self._around(issuer, Cat.CPU_OP)
        if op is not None:
            args[key] = (
                self._external[1].get(op[1], 0)
                if op[0]
                else self._external[0].moved(int(self._trace.external_id[op[1]]))
            )
        elif self._raw.unlinked_repeats:
            args[key] = self.correlation_of(k)
        else:
            del args[key]

    def _around(self, placed: Placed, cat: Cat) -> tuple[bool, int] | None:
        """The innermost event of a category around a fresh one: (is it fresh, index or row)."""
        inside, holder = placed.inside, placed.holder
        while inside >= 0:
            outer = self._o.fresh[inside]
            if CATS[outer.event.cat] == cat:
                return True, inside
            inside, holder = outer.inside, outer.holder
        while holder >= 0:
            if self._trace.cat[holder] == cat:
                return False, holder
            holder = int(self._trace.parent[holder])
        return None

    def _frame_around(self, placed: Placed) -> int | None:
        found = self._around(placed, Cat.PYTHON_FUNCTION)
        if found is None:
            return None
        if found[0]:
            return self._python[1].get(found[1])
        number = int(self._raw.numbers("Python id")[found[1]])
        return int(self._python[0].moved(number)) if number > 0 else None
