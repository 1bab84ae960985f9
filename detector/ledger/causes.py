"""The causes of the ledger: every nanosecond of the analyzed time has exactly one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Group = Literal["busy", "exposed", "host", "device", "unexplained"]


@dataclass(frozen=True)
class Cause:
    """``group``: the GPU (CPU) computes; it moves data or waits for the network; it is idle because
    the host is late; it is idle although it has work; nobody can say."""

    id: str
    label: str
    group: Group


CAUSES: Final = (
    Cause("compute", "GPU busy: compute", "busy"),
    Cause("communication", "exposed communication", "exposed"),
    Cause("rank-wait", "exposed communication: waiting for other ranks", "exposed"),
    Cause("copy", "exposed copy", "exposed"),
    Cause("fill", "GPU busy: fill", "busy"),
    Cause("cpu-compute", "CPU busy: compute", "busy"),
    # The device idles and its next work has not been called for: what the host does instead.
    Cause("loader", "host: data loader", "host"),
    Cause("compilation", "host: compilation", "host"),
    Cause("collection", "host: garbage collection", "host"),
    Cause("preprocessing", "host: preprocessing", "host"),
    Cause("sync-scalar", "host: waits for a single value", "host"),
    Cause("sync-shape", "host: waits for the size of a result", "host"),
    Cause("sync-tensor", "host: waits for a tensor", "host"),
    Cause("sync-copy", "host: waits for a copy to the device", "host"),
    Cause("sync-explicit", "host: explicit synchronization", "host"),
    Cause("restart", "host: restart after a synchronization", "host"),
    Cause("allocation", "host: memory allocation", "host"),
    Cause("pageable", "host: copy from pageable memory", "host"),
    Cause("call", "host: launch and other runtime calls", "host"),
    Cause("op-stall", "host: stopped inside an op", "host"),
    Cause("dispatch", "host: op dispatch", "host"),
    Cause("framework", "host: framework Python", "host"),
    Cause("python", "host: Python of the program", "host"),
    Cause("between", "host: between ops, no stack recorded", "host"),
    # It has been called for.
    Cause("blocked-launch", "launch call blocked", "device"),
    Cause("latency", "launch latency", "device"),
    Cause("queue", "between queued kernels", "device"),
    Cause("device-stall", "unexplained: work was launched and did not begin", "unexplained"),
    Cause("unlinked", "unexplained: launch not recorded", "unexplained"),
    Cause("unrecorded-wait", "unexplained: waits for work that was not recorded", "unexplained"),
    Cause("nothing", "unexplained: no host event recorded", "unexplained"),
)
BY_ID: Final = {cause.id: cause for cause in CAUSES}
CODE: Final = {cause.id: code for code, cause in enumerate(CAUSES)}
