"""One request to a server, with a deadline for the whole answer.

The standard library does it alone: an SDK bounds the time between two pieces of a body, never the
whole, follows redirects with the key in hand, and takes headers and addresses from the environment.
A request runs on a thread of its own. At the deadline the caller goes on, whatever hangs.
"""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import json
import queue
import socket
import ssl
import threading
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from detector.errors import JudgeError
from detector.evidence import words

MOST_BYTES: Final = 2_000_000  # of an answer
_PIECE: Final = 65_536


class CallError(Exception):
    """No answer came. ``reason`` is short and the same for all of its kind, ``status`` that of
    HTTP, 0 without, ``wait_s`` how long the server asks to be left alone."""

    def __init__(self, reason: str, detail: str = "", status: int = 0, wait_s: float = 0.0) -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason, self.detail, self.status, self.wait_s = reason, detail, status, wait_s


@dataclass(frozen=True)
class Address:
    """Where a server listens; ``path`` begins what is asked for."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def loopback(self) -> bool:
        """Whether it is this machine."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def private(self) -> bool:
        """Whether nobody on the way can read what is sent."""
        return self.scheme == "https" or self.loopback

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"


def address(url: str) -> Address:
    """A ``base_url``. Raises JudgeError for what is none; user names in it are no address."""
    try:
        parts = urllib.parse.urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as error:
        raise JudgeError(f"judge.base_url: {words.bounded(url)}: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        shown = words.bounded(parts.hostname or url)
        raise JudgeError(f"judge.base_url: {shown}: not an http:// or https:// address of a host")
    return Address(parts.scheme, parts.hostname.lower(), port, parts.path.rstrip("/"))


class Transport:
    """Posts JSON to one address. ``headers`` go there and nowhere else: no redirect is followed."""

    def __init__(self, where: Address, headers: Mapping[str, str]) -> None:
        self.where = where
        self.headers = {
            "Content-Type": "application/json",
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": "trace-antipattern-detector",
            **headers,
        }

    def post(self, path: str, body: bytes, seconds: float) -> dict[str, object]:
        """The JSON object that answers. Raises CallError, after ``seconds`` at the latest."""
        outcome: queue.SimpleQueue[bytes | CallError] = queue.SimpleQueue()
        if seconds <= 0:
            raise CallError("timed out", "no time left")
        connection = self._connection(seconds)

        def run() -> None:
            try:
                outcome.put(self._exchange(connection, path, body))
            except CallError as error:
                outcome.put(error)
            except Exception as error:  # noqa: BLE001 - any of socket, ssl, http; on this thread
                # nobody else would hear of it
                outcome.put(CallError(*_cause(error)))
            finally:
                connection.close()

        threading.Thread(target=run, name="judge-request", daemon=True).start()
        try:
            got = outcome.get(timeout=seconds)
        except queue.Empty:
            _abort(connection)
            raise CallError("timed out", f"no whole answer within {seconds:.3g} s") from None
        if isinstance(got, CallError):
            raise got
        return _object(got)

    def _connection(self, seconds: float) -> http.client.HTTPConnection:
        where = self.where
        kind: Callable[..., http.client.HTTPConnection] = http.client.HTTPConnection
        if where.scheme == "https":
            kind = http.client.HTTPSConnection
        proxy = None if where.loopback else _proxy(where)
        if proxy is None:
            return kind(where.host, where.port, timeout=seconds)
        tunnelled = kind(proxy.host, proxy.port, timeout=seconds)
        tunnelled.set_tunnel(where.host, where.port)
        return tunnelled

    def _exchange(self, connection: http.client.HTTPConnection, path: str, body: bytes) -> bytes:
        connection.request("POST", self.where.path + path, body, self.headers)
        with connection.getresponse() as response:
            status = response.status
            if 300 <= status < 400:
                raise CallError("redirect", "not followed", status)
            text = _read(response)
        if status >= 400:
            raise CallError(f"HTTP {status}", _complaint(text), status, _wait(response))
        return text


def _read(response: http.client.HTTPResponse) -> bytes:
    parts, size = [], 0
    while piece := response.read1(_PIECE):
        parts.append(piece)
        size += len(piece)
        if size > MOST_BYTES:
            raise CallError("answer too large", f"more than {MOST_BYTES:,} bytes")
    if response.length:  # what the header promised and did not come
        raise CallError("answer cut off")
    return b"".join(parts)


def _object(text: bytes) -> dict[str, object]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise CallError("no JSON", words.bounded(text[:200].decode("utf-8", "replace"))) from None
    if not isinstance(found, dict):
        raise CallError("no JSON object")
    return found


def _complaint(text: bytes) -> str:
    """What an error's body says, in one line."""
    try:
        found = json.loads(text)
        error = found.get("error", found) if isinstance(found, dict) else found
        said = error.get("message", error) if isinstance(error, dict) else error
    except (ValueError, RecursionError):
        said = text[:500].decode("utf-8", "replace")
    return words.bounded(str(said), 160)


def _wait(response: http.client.HTTPResponse) -> float:
    value = response.headers.get("Retry-After", "")
    return min(float(value), 60.0) if value.isdigit() else 0.0


def _cause(error: Exception) -> tuple[str, str]:
    if isinstance(error, http.client.IncompleteRead):
        return "answer cut off", ""
    if isinstance(error, TimeoutError):
        return "timed out", ""
    if isinstance(error, ssl.SSLError):
        return "no secure connection", words.bounded(str(error), 120)
    if isinstance(error, OSError):
        return "no connection", words.bounded(str(error), 120)
    return "no valid HTTP", words.bounded(f"{type(error).__name__} {error}", 120)


def _abort(connection: http.client.HTTPConnection) -> None:
    """End the request's thread: its socket reads no more."""
    sock = connection.sock
    if sock is not None:
        with contextlib.suppress(OSError, ValueError):
            sock.shutdown(socket.SHUT_RDWR)


def _proxy(where: Address) -> Address | None:
    """The user's proxy for https; through it only a tunnel goes, so it reads nothing."""
    if where.scheme != "https" or urllib.request.proxy_bypass(where.host):
        return None
    url = urllib.request.getproxies().get("https")
    return address(url) if url else None
