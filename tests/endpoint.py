"""An embedding endpoint on 127.0.0.1 that answers as the memory's own or as OpenAI's, or badly, as it is told."""

import json
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.server import embedding


class Endpoint:
    """``asked`` holds the texts of every request, ``headers`` their headers; ``next`` what to do instead of answering:
    a status, a body, or seconds to wait first, one for each request to come.
    """

    def __init__(self, model: str | None = None) -> None:
        self.asked: list[list[str]] = []
        self.headers: list[dict[str, str]] = []
        self.next: list[Any] = []
        self.model = model  # what /capabilities tells; None: there is no such route
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: Any) -> None:
                """Stay silent."""

            def answer(self, status: int, body: Any) -> None:
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                with suppress(ConnectionError):  # who asked has gone
                    self.wfile.write(data)

            def do_GET(self) -> None:
                if endpoint.model is None:
                    self.answer(404, {})
                else:
                    self.answer(200, {"identity": {"model": endpoint.model}, "fingerprint": f"1:{endpoint.model}"})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                openai = "/embeddings" in self.path
                texts = body["input" if openai else "texts"]
                endpoint.asked.append(texts)
                endpoint.headers.append(dict(self.headers))
                told = endpoint.next.pop(0) if endpoint.next else None
                if isinstance(told, float):
                    time.sleep(told)
                elif isinstance(told, int):
                    self.answer(told, {"error": "told to"})
                    return
                elif told is not None:
                    self.answer(200, told)
                    return
                vectors = [embedding.vector(text).tolist() for text in texts]
                rows = [{"index": i, "embedding": vector} for i, vector in enumerate(vectors)]
                self.answer(200, {"data": rows[::-1]} if openai else {"embeddings": vectors})

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def texts(self) -> list[str]:
        return [text for texts in self.asked for text in texts]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
