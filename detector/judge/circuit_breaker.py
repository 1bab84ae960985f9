"""A circuit breaker: a server that fails several times in a row is left alone for a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

REST_S: Final = 10.0


class Breaker:
    """Opens after ``limit`` failures in a row; after ``rest_s`` one call tries whether to close it.

    A success closes it and forgets the failures. Safe to use from several threads.
    """

    def __init__(
        self, limit: int, rest_s: float = REST_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.limit, self.rest_s, self._clock = max(1, limit), rest_s, clock
        self._lock = threading.Lock()
        self._failures = 0
        self._until = 0.0

    def allows(self) -> bool:
        """Whether a call may be made now; when it rests, one at a time may try."""
        with self._lock:
            if self._failures < self.limit:
                return True
            now = self._clock()
            if now < self._until:
                return False
            self._until = now + self.rest_s  # the one that tries; the others wait for it
            return True

    def record(self, success: bool) -> None:
        """What came of a call."""
        with self._lock:
            self._failures = 0 if success else self._failures + 1
            if self._failures >= self.limit:
                self._until = self._clock() + self.rest_s
