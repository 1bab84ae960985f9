"""Events that were not there, as the file would have spelled them: category words, places, args.

A fresh event is modeled on one of the same name, else of the same category, as near before it on
its thread or stream as there is one. Only ids are left to `document`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final

import numpy as np

from dataset.inject.base import Base
from dataset.inject.outcome import CATS, Fresh
from dataset.inject.raw import Event, Raw
from detector.trace import Cat, Int64

_WORDS_2021: Final = {
    "cpu_op": "Operator",
    "user_annotation": "Operator",
    "python_function": "Python",
    "cuda_runtime": "Runtime",
    "kernel": "Kernel",
    "gpu_memcpy": "Memcpy",
    "gpu_memset": "Memset",
}
# What belongs to one event alone: never taken over from the model.
_OWN: Final = frozenset(("Sequence number", "Python module id", "graph id", "graph node id"))
# What the profiler writes where autograd records, whether or not the base does.
_RECORDED: Final = frozenset(("Sequence number", "Fwd thread id"))
_COLLECTIVE: Final = ("Collective name", "In msg nelems", "Process Group Name")
_WANTED: Final = ("Sequence number", _COLLECTIVE[0])  # what tells kinds of one name apart
_SHAPES: Final = ("Input Dims", "Input dims", "Input type", "Input Strides", "Concrete Inputs")
_CALL_IDS: Final = {  # CUPTI's and HIP's numbers of the calls
    "cudaLaunchKernel": 211, "cudaLaunchKernelExC": 430, "cudaMemcpyAsync": 41,
    "cudaMemsetAsync": 51, "cudaStreamSynchronize": 131, "cudaDeviceSynchronize": 165,
    "cudaEventSynchronize": 137, "cudaEventRecord": 135, "cudaEventQuery": 136,
    "cudaStreamWaitEvent": 147, "cudaMalloc": 20, "cudaFree": 22, "cudaHostAlloc": 27,
    "cudaMallocHost": 21, "cudaFreeHost": 24, "cudaGraphLaunch": 311, "cuLaunchKernel": 307,
    "cuLaunchKernelEx": 652, "hipLaunchKernel": 107, "hipExtModuleLaunchKernel": 65,
    "hipModuleLaunchKernel": 169, "hipMemcpyAsync": 134, "hipMemcpyWithStream": 153,
    "hipMemsetAsync": 159, "hipStreamSynchronize": 198, "hipDeviceSynchronize": 48,
    "hipEventSynchronize": 60, "hipEventRecord": 59, "hipStreamWaitEvent": 200, "hipMalloc": 108,
    "hipFree": 69, "hipHostMalloc": 93,
}  # fmt: skip
_DRIVER: Final = re.compile(r"cu[A-Z]")  # cuLaunchKernel; not cudaLaunchKernel
_KINDS: Final = {"HtoD": "1", "DtoH": "2", "DtoD": "3"}


class Speller:
    """Spells fresh events in the manner of one base."""

    def __init__(self, base: Base, raw: Raw) -> None:
        self._base, self._raw, self._trace = base, raw, base.trace
        self._rows: dict[tuple[Any, ...], Int64] = {}

    def event(self, fresh: Fresh, before: int) -> tuple[Event, int]:
        """The event without times and ids, and the row that it was modeled on (-1: none).

        ``before`` is the row of the event before it on its track.
        """
        row, same = self._model(fresh, before)
        model = self._raw.events[self._raw.event[row]] if row >= 0 else self._bare(fresh)
        event = dict(model)
        event["name"] = fresh.name
        if event["cat"] == "cuda_runtime" and _DRIVER.match(fresh.name):
            event["cat"] = "cuda_driver"
        if row < 0 or self._trace.track[row] != fresh.track:
            event["pid"], event["tid"] = self._place(fresh, model)
        if "args" in model:
            event["args"] = self._args(fresh, model["args"], same)
        return event, row

    def altered(self, fresh: Fresh, args: Mapping[str, Any]) -> dict[str, Any]:
        """The args of an event of the base as its new name, times and given args make them."""
        return self._args(fresh, args, True, keep=True)

    # -- models --------------------------------------------------------------------------------
    def _model(self, fresh: Fresh, before: int) -> tuple[int, bool]:
        """The row to take after, and whether it has the same name."""
        cats = (CATS[fresh.cat], Cat.DRIVER) if fresh.cat == "cuda_runtime" else (CATS[fresh.cat],)
        for strict in (True, False):
            for same in (True, False):
                for track in (fresh.track, None):
                    for cat in cats if same else cats[:1]:
                        name = fresh.name if same else None
                        rows = self._like(fresh, cat, name, track, strict)
                        if len(rows):
                            at = int(np.searchsorted(rows, before, side="right")) - 1
                            return int(rows[max(at, 0)]), same
        return -1, False

    def _like(
        self, fresh: Fresh, cat: Cat, name: str | None, track: int | None, strict: bool
    ) -> Int64:
        """Rows of the category (name, track) with the args that the fresh one is to have; unless
        ``strict`` any rows where there are none."""
        wanted = frozenset(k for k in _WANTED if k in fresh.args)
        key = cat, name, track, wanted, strict
        if key not in self._rows:
            rows = self._base.activity.of(cat)
            if name is not None:
                number = self._names.get(name, -1)
                rows = rows[self._trace.name[rows] == number]
            if track is not None:
                rows = rows[self._trace.track[rows] == track]
            self._rows[key] = self._shaped(rows, wanted, name is None, strict)
        return self._rows[key]

    @cached_property
    def _names(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self._trace.names)}

    def _shaped(self, rows: Int64, wanted: frozenset[str], typical: bool, strict: bool) -> Int64:
        """Of these rows those with all wanted args and none of the unwanted.

        ``typical``: only those whose args are the most common of their kind.
        """
        shapes: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
        for row in rows.tolist():
            shapes[tuple(self._raw.events[self._raw.event[row]].get("args", ()))].append(row)
        unwanted = {*_WANTED, "graph id"} - wanted
        fit = {s: m for s, m in shapes.items() if wanted <= set(s) and not unwanted & set(s)}
        chosen = [*(fit if fit or strict else shapes).values()]
        if typical and chosen:
            return np.array(max(chosen, key=len), np.int64)
        return np.sort(np.array([row for members in chosen for row in members], np.int64))

    def _bare(self, fresh: Fresh) -> Event:
        """For a category that the file lacks."""
        old = any(e.get("cat") == "Operator" for e in self._raw.events[:2_000])
        word = _WORDS_2021.get(fresh.cat, fresh.cat) if old else fresh.cat
        event: Event = {"ph": "X", "cat": word, "name": fresh.name, "pid": 0, "tid": 0}
        event |= {"ts": 0, "dur": 0, "args": {}}
        if fresh.cat in ("gpu_memcpy", "gpu_memset"):
            event["args"] = self._bare_work(fresh)
        elif fresh.cat == "python_function":
            event["args"] = {"Python parent id": None, "Python id": 0}
        elif fresh.cat == "cuda_runtime":
            key = "cbid" if self._base.vendor == "cuda" else "cid"
            event["args"] = {"External id": 0, key: 0, "correlation": 0}
        else:
            event["args"] = {"External id": 0}
        return event

    def _bare_work(self, fresh: Fresh) -> dict[str, Any]:
        """Args of a copy or memset, in the order of those of the file's kernels."""
        track = self._trace.tracks[fresh.track]
        works = self._base.activity.device_work
        model = self._raw.events[self._raw.event[works[-1]]].get("args", {}) if len(works) else {}
        order = model or dict.fromkeys(("External id", "device", "stream", "correlation"))
        known = ("External id", "external id", "device", "context", "stream", "correlation")
        args = {key: model.get(key, 0) for key in order if key in known}
        args |= {"device": track.device, "stream": track.stream}
        if self._base.vendor == "rocm":
            args["kind"] = "Device"
        if self._base.vendor == "cuda" or fresh.cat == "gpu_memcpy":
            args |= {"bytes": 0, "memory bandwidth (GB/s)": 0}
        return args

    def _place(self, fresh: Fresh, model: Event) -> tuple[Any, Any]:
        """pid and tid of the track, in the words of the events of its kind."""
        rows = np.flatnonzero(self._trace.track == fresh.track)
        events = self._raw.events
        if not len(rows):
            return model["pid"], model["tid"]
        near = [events[self._raw.event[row]] for row in rows[:200].tolist()]
        like = [e for e in near if type(e["tid"]) is type(model["tid"])] or near
        return like[0]["pid"], like[0]["tid"]

    # -- args ----------------------------------------------------------------------------------
    def _args(
        self, fresh: Fresh, model: Mapping[str, Any], same: bool, keep: bool = False
    ) -> dict[str, Any]:
        args = {k: v for k, v in model.items() if keep or k not in _OWN or k in fresh.args}
        if not keep and "Sequence number" not in fresh.args:
            args.pop("Fwd thread id", None)
        if fresh.cat in ("cpu_op", "user_annotation"):
            self._shapes(fresh, args, same)
        elif fresh.cat == "cuda_runtime":
            self._call(fresh, args, same)
        elif fresh.cat in ("kernel", "gpu_memcpy", "gpu_memset"):
            self._work(fresh, args, same)
        for key, value in fresh.args.items():
            if key in args or key in self._keys(fresh.cat) or key in _RECORDED:
                args[key] = list(value) if isinstance(value, tuple) else value
        return args

    def _keys(self, cat: str) -> frozenset[str]:
        """Args that events of this category have somewhere in the file."""
        if cat not in self._known:
            rows = self._base.activity.of(CATS[cat])
            events = [self._raw.events[i].get("args", {}) for i in self._raw.event[rows].tolist()]
            self._known[cat] = frozenset(key for args in events for key in args)
        return self._known[cat]

    @cached_property
    def _known(self) -> dict[str, frozenset[str]]:
        return {}

    def _shapes(self, fresh: Fresh, args: dict[str, Any], same: bool) -> None:
        dims = fresh.args.get("Input Dims")
        if dims is None and same:
            return
        dims = dims or []
        types = list(fresh.args.get("Input type") or [""] * len(dims))
        concrete = args.get("Concrete Inputs", [])
        values: dict[str, Any] = {
            "Input Dims": dims,
            "Input dims": dims,
            "Input type": types,
            "Input Strides": [_strides(d) for d in dims],
            "Concrete Inputs": concrete
            if same and len(concrete) == len(dims)
            else [""] * len(dims),
        }
        args.update((key, values[key]) for key in _SHAPES if key in args)

    def _call(self, fresh: Fresh, args: dict[str, Any], same: bool) -> None:
        work = fresh.issued
        if not same:
            for key in set(args) - {"cbid", "cid", "correlation", "External id", "external id"}:
                if key != "external ts":
                    del args[key]
            for key in {"cbid", "cid"} & set(args):
                args[key] = _CALL_IDS.get(fresh.name, args[key])
        if work is None or self._base.vendor != "rocm":
            return
        if work.cat == "kernel" and (same or "kernel" in self._keys("cuda_runtime")):
            grid = work.args.get("grid", args.get("grid", [1, 1, 1]))
            block = work.args.get("block", args.get("block", [1, 1, 1]))
            shared = args.get("shared memory", 0)
            args |= {"kernel": work.name, "grid": list(grid), "block": list(block)}
            args["shared memory"] = shared
        elif work.cat == "gpu_memcpy":
            args.setdefault("src", f"0x{0x7F1B84A00000 + 512 * (fresh.start % 4096):x}")
            args.setdefault("dst", f"0x{0x7F8FF98E2000 + 512 * (fresh.start % 8192):x}")
            args["bytes"] = str(work.args.get("bytes", 0))
            args["kind"] = next((v for k, v in _KINDS.items() if k in work.name), "4")

    def _work(self, fresh: Fresh, args: dict[str, Any], same: bool) -> None:
        given = fresh.args
        if not same and _COLLECTIVE[0] not in given:
            for key in [k for k in args if k in _COLLECTIVE or "msg" in k or "split" in k]:
                del args[key]
        if fresh.cat == "kernel" and "grid" in given:
            self._occupancy(given, args)
        size = given.get("bytes", args.get("bytes", 0))
        if "memory bandwidth (GB/s)" in args:
            args["memory bandwidth (GB/s)"] = size / max(fresh.end - fresh.start, 1)
        if fresh.cat != "kernel" and "kind" in args:
            args["kind"] = next((k for k in _KINDS if k in fresh.name), args["kind"])

    def _occupancy(self, given: Mapping[str, Any], args: dict[str, Any]) -> None:
        if "blocks per SM" not in args:
            return
        blocks, threads = int(np.prod(given["grid"])), int(np.prod(given["block"]))
        units = self._base.units or _units(args)
        warps = blocks * -(-threads // 32) / units
        args["blocks per SM"] = round(blocks / units, 6)
        args["warps per SM"] = round(warps, 6)
        if "est. achieved occupancy %" in args:
            args["est. achieved occupancy %"] = min(100, round(100 * warps / 64))


def _units(args: Mapping[str, Any]) -> int:
    """Multiprocessors of the device, as a kernel's own args imply."""
    per_unit, grid = args["blocks per SM"], args.get("grid", (1,))
    return max(1, round(int(np.prod(grid)) / per_unit)) if per_unit else 1


def _strides(dims: Any) -> list[int]:
    """Of a contiguous tensor."""
    if not isinstance(dims, list) or not all(isinstance(n, int) for n in dims):
        return []
    out, step = [], 1
    for n in reversed(dims):
        out.append(step)
        step *= max(n, 1)
    return out[::-1]
