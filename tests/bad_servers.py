"""Ways in which a server can fail to answer, by name."""

from __future__ import annotations

import json
import time
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.chat_server import Raw, Reply, completion

Handler = BaseHTTPRequestHandler
ITEM: dict[str, Any] = {
    "pattern": "sync-scalar-readback",
    "confidence": 0.8,
    "place": "",
    "explanation": "The host waits for one value.",
    "fix": "Keep it on the device.",
    "claims": [],
}


def answer(**changes: object) -> str:
    """A model's answer with one pattern."""
    return json.dumps({"patterns": [{**ITEM, **changes}], "look": ""})


def sends(*parts: bytes, pause_s: float = 0.0) -> Raw:
    """Writes these bytes as they are, with a pause after each."""

    def raw(handler: Handler) -> None:
        for part in parts:
            handler.wfile.write(part)
            handler.wfile.flush()
            time.sleep(pause_s)

    return raw


def drips(body: bytes, *, headers: bool = False) -> Raw:
    """A byte every 50 ms: no single wait is long, the whole takes a minute."""
    whole = completion(answer()).encode() + b" " * 2_000
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    start = head % len(whole)
    first = b"" if headers else start
    rest = start + whole if headers else whole
    return sends(first, *(rest[i : i + 1] for i in range(1_200)), pause_s=0.05)


def cut(handler: Handler) -> None:
    """Promises more than it sends."""
    body = completion(answer()).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    handler.wfile.write(head % (len(body) + 50) + body[:-20])


def cut_chunks(handler: Handler) -> None:
    """A chunked body without its end."""
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    handler.wfile.write(head + b"ff\r\n" + b'{"choices": [')


def resets(handler: Handler) -> None:
    """Closes without a word."""
    handler.connection.close()


def redirect(where: str) -> Reply:
    return Reply(status=307, body="{}", headers={"Location": where})


def message(**fields: object) -> Reply:
    """A completion without a text."""
    return Reply(body=completion("", **fields).replace('"content": ""', '"content": null'))


BAD: dict[str, Reply] = {
    "401": Reply(status=401, body='{"error": {"message": "no such key"}}'),
    "403": Reply(status=403, body="<html>forbidden</html>"),
    "404": Reply(status=404, body='{"detail": "Not Found"}'),
    "429": Reply(status=429, body='{"error": {"message": "slow down"}}'),
    "500": Reply(status=500, body="Internal Server Error"),
    "503": Reply(status=503, body=""),
    "400 to everything": Reply(status=400, body='{"error": {"message": "too long"}}'),
    "slow": Reply(answer(), delay_s=3.0),
    "dripping body": Reply(raw=drips(b"")),
    "dripping headers": Reply(raw=drips(b"", headers=True)),
    "cut stream": Reply(raw=cut),
    "cut chunks": Reply(raw=cut_chunks),
    "reset": Reply(raw=resets),
    "no HTTP": Reply(raw=sends(b"\x00\x01\x02 hello\n\n")),
    "redirect": redirect("http://127.0.0.1:9/elsewhere"),
    "redirect to a file": redirect("file:///etc/passwd"),
    "HTML": Reply(body="<html>hello</html>", headers={"Content-Type": "text/html"}),
    "wrong content type": Reply(body="all is well", headers={"Content-Type": "text/plain"}),
    "huge answer": Reply(body='{"choices": "' + "x" * 3_000_000 + '"}'),
    "huge header": Reply(answer(), headers={"X-Big": "x" * 100_000}),
    "not an object": Reply(body="[]"),
    "deep JSON": Reply(body="[" * 200_000),
    "empty body": Reply(body=""),
    "no choices": Reply(body='{"choices": []}'),
    "choices of another kind": Reply(body='{"choices": 3}'),
    "null content": message(),
    "refusal": message(refusal="I cannot help with that."),
    "refusal in words": Reply("I'm sorry, but I can't help with that."),
    "tool call": message(reason="tool_calls", tool_calls=[{"id": "1", "type": "function"}]),
    "content filter": message(reason="content_filter"),
    "truncation": Reply(body=completion(answer()[:60], reason="length")),
    "only a thought": Reply("<think>It could be anything, or {"),
    "broken JSON": Reply(answer()[:-10]),
    "empty object": Reply("{}"),
    "unknown pattern": Reply(answer(pattern="make-it-faster")),
    "pattern that cannot be here": Reply(answer(pattern="comm-straggler")),
    "confidence 90": Reply(answer(confidence=90)),
    "confidence NaN": Reply(answer().replace("0.8", "NaN")),
    "confidence beyond floats": Reply(answer().replace("0.8", "1" + "0" * 400)),
    "explanation missing": Reply(json.dumps({"patterns": [{"pattern": "none", "confidence": 1}]})),
    "patterns of another kind": Reply('{"patterns": "all", "look": ""}'),
    "asks for a view for ever": Reply('{"patterns": [], "look": "timeline"}'),
}
