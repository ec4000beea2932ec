"""Ask a running memory server every question over MCP, and keep its answers."""

import asyncio
import json
import os
import shlex
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TextIO

import httpx
import typer
from rich.console import Console
from rich.progress import Progress

from allocation.errors import InputError
from allocation.tables import Questions
from jobs import tabular
from jobs.errors import told_in_one_line

TOKEN = "MEMORY_SERVER_TOKEN"  # noqa: S105  # environment variable, sent as a bearer token and written nowhere
_TOOL = "reconstruct"

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    questions: Annotated[Path, typer.Argument(help="Questions: .parquet, .csv or .jsonl.", show_default=False)],
    out: Annotated[Path, typer.Option(help="JSON lines to write, or to go on with.", show_default=False)],
    server: Annotated[str | None, typer.Option(help="URL of a server that runs: http://…/mcp.")] = None,
    command: Annotated[str | None, typer.Option(help="Command that starts a server on stdin and stdout.")] = None,
    deep: Annotated[bool, typer.Option(help="Ask for deep recall, which fills the windows.")] = False,
    count: Annotated[int | None, typer.Option(min=1, help="Items to ask for; without it the server's own.")] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to wait for an answer.")] = 60,
) -> None:
    """Keep the server's answer to each question, with its trace, for import-windows.

    Questions that the file has an answer to are not asked again. One that fails is noted and passed over. A bearer
    token is read from the environment variable MEMORY_SERVER_TOKEN. Exit status: 0 done, 2 bad input or arguments,
    1 anything else.
    """
    with told_in_one_line():
        if (server is None) == (command is None):
            raise InputError("name the server, by --server URL or by --command; one of them")
        if out.suffix != ".jsonl":
            raise InputError(f"{out}: answers are kept as JSON lines; let --out end in .jsonl")
        asked = tabular.read(questions, Questions)
        tasks = [
            (question_id, _arguments(agent_id, question, deep, count))
            for question_id, agent_id, question in asked.select("question_id", "agent_id", "question").iter_rows()
        ]
        done = _recorded(out)
        waiting = [(key, arguments) for key, arguments in tasks if (key, json.dumps(arguments)) not in done]
        out.parent.mkdir(parents=True, exist_ok=True)
        failed = asyncio.run(_record(server, command, waiting, out, timedelta(seconds=timeout))) if waiting else 0
    typer.echo(f"{out}: {len(waiting) - failed:,} questions asked, {len(tasks) - len(waiting):,} were there already")
    if failed:
        typer.echo(f"warning: {failed} questions failed; see {out}, and run again to ask just these", err=True)
    typer.echo(
        f"next: just import-windows {shlex.quote(str(out))} --questions {shlex.quote(str(questions))} --out FOLDER"
    )


def _arguments(agent_id: str, question: str, deep: bool, count: int | None) -> dict[str, Any]:
    own: dict[str, Any] = {"agent_id": agent_id, "query": question, "deep": deep, "trace": True}
    return own if count is None else own | {"count": count}


def _recorded(out: Path) -> set[tuple[str, str]]:
    """Question and arguments of the answers in the file; a line cut short by a kill is taken away.

    Raises:
        InputError: the file is something else.
    """
    if not out.exists():
        return set()
    content = out.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    try:
        rows = [json.loads(line) for line in whole.splitlines()]
        found = {(row["question_id"], json.dumps(row["asked"])) for row in rows if row["asked"] and "response" in row}
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{out}: holds something else than answers of record-windows; choose another --out") from error
    if len(whole) < len(content):
        os.truncate(out, len(whole))
    return found


async def _record(
    server: str | None, command: str | None, waiting: list[tuple[str, dict[str, Any]]], out: Path, timeout: timedelta
) -> int:
    """Ask, and write each answer as it comes; how many failed."""
    try:
        from mcp import McpError
    except ImportError as error:
        raise InputError("record-windows needs the extra mcp: uv run --extra mcp just record-windows …") from error
    failed = 0
    kept = 0
    log = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
    try:
        async with _session(server, command, timeout, log) as session:
            with (
                out.open("a", encoding="utf-8") as file,
                Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress,
            ):
                for question_id, arguments in progress.track(waiting, description="asking"):
                    row: dict[str, Any] = {"question_id": question_id, "asked": arguments}
                    try:
                        result = await session.call_tool(_TOOL, arguments, read_timeout_seconds=timeout)
                        row |= _answer(result)
                    except McpError as error:
                        row["error"] = " ".join(str(error).split())
                    failed += "error" in row
                    file.write(json.dumps(row, ensure_ascii=False) + "\n")
                    file.flush()
                    kept += 1
    except Exception as error:  # what a transport raises is its own affair, and may come in groups
        cause = _first(error)
        log.seek(0)
        last = next((line for line in log.read().splitlines()[::-1] if line.strip()), "")
        told = " ".join(f"{type(cause).__name__}: {cause}: {last}".split()).strip(": ")[:200]
        happened = f"went away after {kept} answers" if kept else "cannot be asked"
        raise InputError(
            f"{server or command}: the server {happened} ({told}); what came is kept in {out}, run again to go on"
        ) from error
    finally:
        log.close()
    return failed


def _answer(result: Any) -> dict[str, Any]:
    """The response of a tool call, or its error."""
    text = result.content[0].text if result.content and hasattr(result.content[0], "text") else ""
    try:
        response = json.loads(text)
    except ValueError:
        return {"error": " ".join(text.split())[:400] or "an empty answer"}
    if result.isError or not isinstance(response, dict) or "error" in response:
        return {"error": " ".join(text.split())[:400]}
    return {"response": response}


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


@asynccontextmanager
async def _session(server: str | None, command: str | None, timeout: timedelta, log: TextIO) -> AsyncIterator[Any]:
    from mcp import ClientSession, StdioServerParameters, stdio_client
    from mcp.client.streamable_http import streamable_http_client

    async with AsyncExitStack() as stack:
        if server is not None:
            token = os.environ.get(TOKEN)
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            limits = httpx.Timeout(timeout.total_seconds())
            client = await stack.enter_async_context(httpx.AsyncClient(headers=headers, timeout=limits))
            streams = (await stack.enter_async_context(streamable_http_client(server, http_client=client)))[:2]
        else:
            program, *arguments = shlex.split(command or "")
            parameters = StdioServerParameters(command=program, args=arguments, env=dict(os.environ))
            streams = await stack.enter_async_context(stdio_client(parameters, errlog=log))
        session = await stack.enter_async_context(ClientSession(*streams))
        await asyncio.wait_for(session.initialize(), timeout.total_seconds())
        yield session


if __name__ == "__main__":
    app(prog_name="record-windows")
