"""A small OpenAI-compatible server on this machine, for tests of judge=openai."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Raw = Callable[[BaseHTTPRequestHandler], None]


@dataclass(frozen=True)
class Reply:
    """What the server sends: a completion with this text, a bare status and body, or ``raw``."""

    text: str = ""
    status: int = 200
    body: str | None = None
    delay_s: float = 0.0
    headers: dict[str, str] = field(default_factory=dict)
    raw: Raw | None = None


@dataclass
class Chat:
    """A running server: where it listens and what it was asked."""

    url: str
    requests: list[dict[str, Any]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)


def completion(text: str, reason: str = "stop", **message: object) -> str:
    """A chat completion as servers send it."""
    choice = {
        "index": 0,
        "finish_reason": reason,
        "message": {"role": "assistant", "content": text, **message},
    }
    return json.dumps(
        {
            "id": "1",
            "object": "chat.completion",
            "created": 0,
            "model": "m",
            "choices": [choice],
            "usage": {"prompt_tokens": 1_000, "completion_tokens": 100},
        }
    )


@contextmanager
def serving(answer: Callable[[dict[str, Any]], Reply]) -> Iterator[Chat]:
    """Serve ``answer(request)`` until the block ends."""
    chat = Chat("")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            request = json.loads(body)
            chat.bodies.append(body)
            chat.requests.append(request)
            chat.keys.append(self.headers.get("Authorization"))
            chat.headers.append(dict(self.headers.items()))
            chat.paths.append(self.path)
            with contextlib.suppress(OSError):  # a client that gave up
                self._send(answer(request))

        def _send(self, reply: Reply) -> None:
            time.sleep(reply.delay_s)
            if reply.raw is not None:
                reply.raw(self)
                self.close_connection = True
                return
            body = (reply.body if reply.body is not None else completion(reply.text)).encode()
            headers = {"Content-Type": "application/json", "Content-Length": str(len(body))}
            self.send_response(reply.status)
            for name, value in (headers | reply.headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client that gave up
    chat.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield chat
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
