"""Vectors from an embedding endpoint, kept in a file, so that no text is sent twice (DESIGN.md, "Query vectors")."""

import hashlib
import os
import sqlite3
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import httpx
import numpy as np
import numpy.typing as npt
from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from allocation.errors import InputError

Array = npt.NDArray[np.float32]

KEY = "EMBEDDING_API_KEY"  # environment variable, sent as a bearer token and written nowhere
CACHE = Path("outputs/embeddings.db")
BATCH = 64  # texts sent at a time
ATTEMPTS = 5
_WAIT = wait_exponential(multiplier=0.5, max=30)  # seconds between attempts
_LOOKED_UP = 500  # texts looked up in the cache at a time
_BUSY = {408, 425, 429, 500, 502, 503, 504}

_CACHE = "CREATE TABLE IF NOT EXISTS vectors (model TEXT, sha256 BLOB, vector BLOB, PRIMARY KEY (model, sha256))"


class _PassingError(Exception):
    """A failure that may pass: worth another attempt."""


class Embedder:
    """An endpoint, either ``POST …/embed {"texts": […]}`` or OpenAI's ``POST …/v1/embeddings``, and its cache."""

    def __init__(self, url: str, model: str | None, cache: Path, timeout: float = 60) -> None:
        """Open the cache, and ask what the endpoint's model is where it can tell.

        Args:
            url: The endpoint's whole URL.
            model: Its model; needed by OpenAI's form, a label otherwise.
            cache: SQLite file, made if missing.
            timeout: Seconds to wait for an answer.

        Raises:
            InputError: the URL has neither form, or holds a key; or the cache is something else.
        """
        parts = urlsplit(url)
        self._named = f"{parts.scheme}://{parts.netloc}{parts.path}"  # without what may hold a secret
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(f"--url {self._named}: give a whole URL, http://… or https://…")
        if parts.username or parts.password:
            raise InputError(f"--url with a password for {parts.hostname}: put the key in the variable {KEY}")
        self._openai = parts.path.rstrip("/").endswith("/embeddings")
        if not self._openai and not parts.path.rstrip("/").endswith("/embed"):
            raise InputError(f"--url {self._named}: ends in neither /embed nor /v1/embeddings; give the whole URL")
        if self._openai and not model:
            raise InputError(f"--url {self._named}: needs --model, the name it is asked for")
        self._url, self._model = url, model
        self._cleanup = ExitStack()
        key = os.environ.get(KEY)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        try:
            self._client = self._cleanup.enter_context(httpx.Client(timeout=timeout, headers=headers))
            self._cache = self._opened(cache)
            self.names = self._names()
        except BaseException:
            self._cleanup.close()
            raise
        self.sent = 0  # texts

    def __enter__(self) -> Self:
        """Itself, open already."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection and the cache."""
        self._cleanup.close()

    @property
    def label(self) -> str:
        """What its vectors are stored under: the fingerprint it tells, its model's name, or its address."""
        return self.names[0]

    def vectors(self, texts: list[str], told: Callable[[int], None] = lambda _: None) -> Array:
        """The vector of each text; float32 [texts, width].

        Args:
            texts: Any number, repeated ones too.
            told: Called with how many of the texts have their vector now.

        Raises:
            InputError: the endpoint is down, refuses, or answers with something else than a finite vector of one
                width for each text. What came before is kept.
        """
        digests = [hashlib.sha256(text.encode()).digest() for text in texts]
        known = self._known(digests)
        missing = {digest: text for digest, text in zip(digests, texts, strict=True) if digest not in known}
        waiting = list(missing)
        told(sum(digest in known for digest in digests))
        width = len(next(iter(known.values()), b"")) // 4 or self._cached_width()
        for low in range(0, len(waiting), BATCH):
            batch = waiting[low : low + BATCH]
            own = self._fetched([missing[digest] for digest in batch])
            if width and own.shape[1] != width:
                raise InputError(
                    f"{self._named}: gave a vector of width {own.shape[1]} where {self.label} gave {width} before; "
                    "its model has changed: name another --model or --cache"
                )
            width = own.shape[1]
            rows = [(self.label, digest, vector.tobytes()) for digest, vector in zip(batch, own, strict=True)]
            with self._cache:
                self._cache.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", rows)
            known |= {digest: vector for _, digest, vector in rows}
            self.sent += len(rows)
            told(len(rows))
        data = b"".join(known[digest] for digest in digests)
        return np.frombuffer(data, dtype="<f4").reshape(len(texts), width)

    def _opened(self, path: Path) -> sqlite3.Connection:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            cache = self._cleanup.enter_context(closing(sqlite3.connect(path, timeout=30)))
            cache.execute(_CACHE)
            cache.execute("SELECT model, sha256, vector FROM vectors LIMIT 1").fetchall()
        except sqlite3.Error as error:
            raise InputError(f"{path}: is no cache of vectors ({error}); name another --cache") from error
        return cache

    def _known(self, digests: list[bytes]) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        distinct = list(dict.fromkeys(digests))
        for low in range(0, len(distinct), _LOOKED_UP):
            some = distinct[low : low + _LOOKED_UP]
            marks = ",".join("?" * len(some))
            sql = f"SELECT sha256, vector FROM vectors WHERE model = ? AND sha256 IN ({marks})"  # noqa: S608
            found |= dict(self._cache.execute(sql, (self.label, *some)))
        return found

    def _cached_width(self) -> int:
        row = self._cache.execute(
            "SELECT length(vector) FROM vectors WHERE model = ? LIMIT 1", (self.label,)
        ).fetchone()
        return row[0] // 4 if row else 0

    def _names(self) -> list[str]:
        """The model's names, what vectors are stored under first."""
        told: list[Any] = []
        if not self._openai:
            # The memory server's own endpoint tells what it is beside /embed; another one need not.
            parts = urlsplit(self._url)
            beside = parts._replace(path=parts.path.rstrip("/").removesuffix("embed") + "capabilities").geturl()
            try:
                answer = self._client.get(beside)
                body = answer.json() if answer.status_code == httpx.codes.OK else None
            except (httpx.HTTPError, ValueError):
                body = None
            if isinstance(body, dict) and isinstance(body.get("identity"), dict):
                told = [body.get("fingerprint"), body["identity"].get("model")]
        names = [self._model, *told]
        return [name for name in names if isinstance(name, str) and name] or [self._named]

    def _fetched(self, texts: list[str]) -> Array:
        retrying = Retrying(
            retry=retry_if_exception_type(_PassingError), stop=stop_after_attempt(ATTEMPTS), wait=_WAIT, reraise=False
        )
        try:
            body = retrying(self._asked, texts)
        except RetryError as error:
            cause = error.last_attempt.exception()
            raise InputError(
                f"{self._named}: {cause}, {ATTEMPTS} times; see that it runs, then run again: what came is kept"
            ) from error
        return self._checked(body, len(texts))

    def _asked(self, texts: list[str]) -> Any:
        body = {"model": self._model, "input": texts} if self._openai else {"texts": texts}
        try:
            answer = self._client.post(self._url, json=body)
        except httpx.TimeoutException as error:
            raise _PassingError(f"no answer within {self._client.timeout.read:g} seconds") from error
        except httpx.TransportError as error:
            raise _PassingError(f"cannot be reached ({type(error).__name__})") from error
        if answer.status_code in _BUSY:
            raise _PassingError(f"answered {answer.status_code} {answer.reason_phrase}")
        if answer.status_code != httpx.codes.OK:
            remedy = f"; the key is read from {KEY}" if answer.status_code in (401, 403) else ""
            told = " ".join(answer.text.split())[:120]
            raise InputError(f"{self._named}: answered {answer.status_code} {answer.reason_phrase}: {told}{remedy}")
        try:
            return answer.json()
        except ValueError as error:
            raise InputError(f"{self._named}: answered with something else than JSON; is it the right URL?") from error

    def _checked(self, body: Any, count: int) -> Array:
        vectors = _vectors(body, self._openai)
        if vectors is None:
            form = '{"data": [{"index", "embedding"}]}' if self._openai else '{"embeddings": [[…]]}'
            raise InputError(f"{self._named}: answered without {form}; is it the right URL?")
        if len(vectors) != count:
            raise InputError(f"{self._named}: gave {len(vectors)} vectors for {count} texts; what came before is kept")
        if len({len(vector) if isinstance(vector, list) else 0 for vector in vectors}) > 1 or not vectors[0]:
            raise InputError(f"{self._named}: gave vectors of several widths, or none; what came before is kept")
        try:
            with np.errstate(over="ignore"):
                found = np.array(vectors, dtype="<f4")
        except (TypeError, ValueError, OverflowError) as error:
            raise InputError(
                f"{self._named}: gave a vector that is not of numbers; what came before is kept"
            ) from error
        if not np.isfinite(found).all():
            raise InputError(f"{self._named}: gave a vector with NaN or infinity; what came before is kept")
        return found


def _vectors(body: Any, openai: bool) -> list[Any] | None:
    if not isinstance(body, dict):
        return None
    if not openai:
        return body["embeddings"] if isinstance(body.get("embeddings"), list) else None
    rows = body.get("data")
    if not isinstance(rows, list) or not all(isinstance(row, dict) and "embedding" in row for row in rows):
        return None
    return [row["embedding"] for row in sorted(rows, key=lambda row: row.get("index", 0))]
