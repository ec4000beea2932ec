"""Windows and parts from what a memory server answered (DESIGN.md, "Recorded recall")."""

import json
import re
from typing import Any

from allocation.errors import InputError
from allocation.text import normalize_one

Row = dict[str, Any]

_RECORD = re.compile(r"(mem|ep):[0-9]+", re.ASCII)


def window(question_id: str, response: Row) -> list[Row]:
    """The Windows rows of one answer of ``reconstruct`` or ``recall``, by item_position, claim_position.

    ``reconstruct`` names its items, heads and claims; the recall ranks are the places in ``trace.candidate_refs``,
    whose last is the most relevant. The claims behind a head stand in that order; one that recall did not bring (it
    was reached through a relation) ranks after all that it did. ``recall`` names single records, the most relevant
    last. What is no record, such as the profile, has no row.

    Raises:
        InputError: it is neither, or was asked without its trace.
    """
    if isinstance(response.get("messages"), list):
        refs = [_ref(message, "ref") for message in response["messages"]][::-1]
        records = dict.fromkeys(ref for ref in refs if _RECORD.fullmatch(ref))
        items = [[ref] for ref in records]
        ranks = {ref: rank for rank, ref in enumerate(refs)}
    elif isinstance(response.get("items"), list):
        items, ranks = _reconstructed(response)
    else:
        told = response.get("error") or response.get("message")
        raise InputError(f"the server answered: {told}" if told else "is no answer of reconstruct or recall")
    after_all = max(ranks.values(), default=-1) + 1
    return [
        {
            "question_id": question_id,
            "item_position": position,
            "claim_position": claim,
            "record_ref": ref,
            "recall_rank": ranks.get(ref, after_all),
        }
        for position, refs in enumerate(items)
        for claim, ref in enumerate(refs)
    ]


def _reconstructed(response: Row) -> tuple[list[list[str]], dict[str, int]]:
    """The records of each item, head first, and their recall ranks."""
    trace = response.get("trace")
    pool = trace.get("candidate_refs") if isinstance(trace, dict) else None
    if not isinstance(pool, list):
        raise InputError("was answered without its trace; ask again with trace=true")
    best_first = [str(ref) for ref in pool][::-1]
    summary = response.get("reconstruction")
    lost = summary.get("excluded_without_provenance", 0) if isinstance(summary, dict) else 0
    ranks = {ref: rank + (lost if isinstance(lost, int) else 0) for rank, ref in enumerate(best_first)}
    seen: set[str] = set()
    items = []
    for item in response["items"]:
        head = _ref(item, "head_ref")
        claims = item.get("claims")
        others = {_ref(claim, "ref") for claim in claims} - {head} if isinstance(claims, list) else set()
        in_order = [head, *sorted(others, key=lambda ref: (ranks.get(ref, len(pool)), ref))]
        # A window names a record once; the first item that does keeps it.
        own = [ref for ref in in_order if _RECORD.fullmatch(ref) and ref not in seen]
        if own and own[0] == head:
            items.append(own)
            seen.update(own)
    return items, ranks


def _ref(of: Any, name: str) -> str:
    ref = of.get(name) if isinstance(of, dict) else None
    if not isinstance(ref, str):
        raise InputError(f"has an entry without {name}; save the server's answer as it came")
    return ref


def parts(question: str, response: Row) -> list[str] | None:
    """The parts of the question that the answer's trace recorded, in order; None where it recorded none.

    Their spans are offsets into the question after NFKC and lower case.
    """
    trace = response.get("trace")
    ledger = trace.get("coverage") if isinstance(trace, dict) else None
    found = ledger.get("parts") if isinstance(ledger, dict) else None
    if not isinstance(found, list):
        return None
    asked = normalize_one(question)
    try:
        spans = [part["span"] for part in found]
        return [asked[start:end] for start, end in spans]
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            "has a trace whose coverage parts have no span; save the server's answer as it came"
        ) from error


def unwrapped(answer: Any) -> Row:
    """The server's answer itself, out of the envelopes that MCP and its clients put around it.

    Raises:
        InputError: there is none inside.
    """
    while isinstance(answer, dict):
        if "items" in answer or "messages" in answer or "error" in answer:
            return answer
        inner = next((answer[name] for name in ("response", "result", "structuredContent") if answer.get(name)), None)
        if inner is None and isinstance(answer.get("content"), list) and answer["content"]:
            inner = answer["content"][0]
        if inner is None and isinstance(answer.get("text"), str):
            try:
                inner = json.loads(answer["text"])
            except ValueError as error:
                told = " ".join(answer["text"].split())[:120]
                raise InputError(f"the server answered: {told}") from error
        answer = inner
    raise InputError("is no answer of reconstruct or recall")
