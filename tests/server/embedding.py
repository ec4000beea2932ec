"""A tiny embedding service on 127.0.0.1: the routes a memory server asks, and vectors from hashed n-grams.

The vectors carry no meaning. They are deterministic, equal for equal texts, and nearer for texts that share
characters, which is all a recorded store needs.
"""

from __future__ import annotations

import hashlib
import json
import threading
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

import numpy as np

DIMENSIONS = 64
#: Tokens the service claims to embed at once, two of them its own; a token is four characters.
WINDOW_TOKENS = 256
CHARS_PER_TOKEN = 4
OWN_TOKENS = 2
FINGERPRINT = "1:hashed-character-n-grams-64"
#: A text that holds this mark is refused, so that a question can be asked without a vector.
REFUSED = "(no vector)"


@lru_cache(maxsize=50_000)
def _place(gram: str) -> tuple[int, int]:
    """The dimension of an n-gram and the sign it adds there."""
    digest = hashlib.blake2b(gram.encode("utf-8", "surrogatepass"), digest_size=4).digest()
    number = int.from_bytes(digest, "big")
    return number % DIMENSIONS, 1 if number & 0x8000_0000 else -1


def vector(text: str) -> np.ndarray:
    """The unit vector of a text, float32: signed counts of its n-grams of one to four characters."""
    folded = f"\x02{text.lower()}\x03"
    counts = np.zeros(DIMENSIONS, dtype=np.int64)
    for size in (1, 2, 3, 4):
        for start in range(len(folded) - size + 1):
            dimension, sign = _place(folded[start : start + size])
            counts[dimension] += sign
    if not counts.any():
        counts[0] = 1
    exact = counts.astype(np.float64)
    unit: np.ndarray = exact / np.sqrt(float((counts * counts).sum()))
    return unit.astype(np.float32)


def token_report(text: str) -> dict[str, Any]:
    """How many tokens a text has, and where the window closes on it."""
    count = OWN_TOKENS + -(-len(text) // CHARS_PER_TOKEN)
    truncated = count > WINDOW_TOKENS
    end = (WINDOW_TOKENS - OWN_TOKENS) * CHARS_PER_TOKEN if truncated else len(text)
    return {"count": count, "window": WINDOW_TOKENS, "truncated": truncated, "window_end_char": end}


def capabilities() -> dict[str, Any]:
    """What the service is: a complete identity with a fingerprint."""
    identity = {
        "provider": "test",
        "model": "hashed-character-n-grams",
        "dimensions": DIMENSIONS,
        "window": WINDOW_TOKENS,
        "pooling": "sum",
        "normalize": True,
    }
    return {"identity": identity, "fingerprint": FINGERPRINT, "incomplete": []}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the base class's
        """Stay silent."""

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        if self.path == "/capabilities":
            self._answer(200, capabilities())
        else:
            self._answer(404, {"error": "no such route"})

    def do_POST(self) -> None:
        texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["texts"]
        if self.path == "/count_tokens":
            self._answer(200, {"token_info": [token_report(text) for text in texts]})
        elif self.path == "/embed" and not any(REFUSED in text for text in texts):
            self._answer(200, {"embeddings": [vector(text).tolist() for text in texts]})
        else:
            self._answer(503 if self.path == "/embed" else 404, {"error": "refused"})


class EmbeddingService:
    """The service in a thread of its own while a ``with`` block runs; ``url`` is its ``/embed`` route."""

    def __init__(self) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/embed"

    def __enter__(self) -> EmbeddingService:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=2)
