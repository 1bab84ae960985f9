"""A small OpenAI-compatible server on this machine, for tests of judge=openai."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Reply:
    """What the server sends: a completion with this text, or a bare status and body."""

    text: str = ""
    status: int = 200
    body: str | None = None
    delay_s: float = 0.0


@dataclass
class Chat:
    """A running server: where it listens and what it was asked."""

    url: str
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)


def completion(text: str) -> str:
    """A chat completion as servers send it."""
    choice = {
        "index": 0,
        "finish_reason": "stop",
        "message": {"role": "assistant", "content": text},
    }
    return json.dumps(
        {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
    )


@contextmanager
def serving(answer: Callable[[dict[str, Any]], Reply]) -> Iterator[Chat]:
    """Serve ``answer(request)`` until the block ends."""
    chat = Chat("")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            chat.requests.append(request)
            chat.keys.append(self.headers.get("Authorization", ""))
            reply = answer(request)
            time.sleep(reply.delay_s)
            body = (reply.body if reply.body is not None else completion(reply.text)).encode()
            self.send_response(reply.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
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
