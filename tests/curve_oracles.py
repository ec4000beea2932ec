"""What a point shows, counted character by character, in plain Python: slow on purpose, as ``oracles``."""

import unicodedata
from fractions import Fraction
from typing import Any

from tests import oracles

Row = dict[str, Any]
Quote = tuple[str, str, str]  # record_ref, time, text

SEPARATOR = " … "
LONGEST_ANSWER = 40
UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "HALFWIDTH KATAKANA", "IDEOGRAPHIC")


# Rendering


def context(shown: Row) -> str:
    """A response (``render.response``) as the text an answering model reads."""
    lines: list[str] = []
    for item in shown["items"]:
        lines += [f"[{item['item_position'] + 1}] {titled(item)}"]
        lines += [f"  > {titled(excerpt)}" for excerpt in item["excerpts"]]
        lines.append("")
    return "\n".join(lines).rstrip("\n") + "\n" if lines else ""


def titled(quote: Row) -> str:
    time = f" ({quote['time']})" if quote["time"] else ""
    return f"{quote['record_ref']}{time}" + (f": {quote['content']}" if quote["content"] else "")


# Cutting


def taken(steps: list[Row], cut: Row) -> list[Row]:
    """The steps of one question that a point takes: ``budget`` or ``count``, or all."""
    if cut["count"] is not None:
        return [step for step in steps if step["item_position"] < cut["count"]]
    if cut["budget"] is None:
        return steps
    found = []
    for step in steps:
        if found and step["used"] > cut["budget"]:
            break
        found.append(step)
    return found


def rendered(
    steps: list[Row], texts: dict[str, tuple[str, str | None]], heads: dict[int, str]
) -> tuple[str, list[str]]:
    """The context of some steps of a question, and each quote with its time, as the answer is looked for in it."""
    quotes: dict[tuple[int, int], list[Row]] = {}
    for step in steps:
        quotes.setdefault((step["item_position"], step["claim_position"]), []).append(step)
    lines, searched = [], []
    last = None
    for item, claim in sorted(quotes):
        ref = quotes[item, claim][0]["record_ref"]
        content = quoted(quotes[item, claim], texts[ref][0])
        if claim and quotes[item, claim][0]["basis"] == "start" and ref.startswith("ep:"):
            content = "[Episode] " + content
        if item != last:
            if last is not None:
                lines.append("")
            head = heads[item]
            lines.append(f"[{item + 1}] {head}" + bracketed(texts[head][1]))
            last = item
        if claim == 0:
            lines[-1] += ": " + content
        else:
            lines.append(f"  > {ref}{bracketed(texts[ref][1])}: {content}")
        searched.append(f"{texts[ref][1] or ''} {quoted(quotes[item, claim], texts[ref][0])}")
    return ("\n".join(lines).rstrip("\n") + "\n" if lines else ""), searched


def bracketed(time: str | None) -> str:
    return f" ({time})" if time else ""


def quoted(steps: list[Row], text: str) -> str:
    out, before = "", None
    for start, end in sorted((span["start"], span["end"]) for step in steps for span in step["ranges"]):
        if before is not None and before != start:
            out += SEPARATOR
        out += text[start:end]
        before = end
    return out


# Counting


def characters(steps: list[Row]) -> set[tuple[str, int]]:
    """Every character of a record that is shown."""
    return {
        (step["record_ref"], at)
        for step in steps
        for span in step["ranges"]
        for at in range(span["start"], span["end"])
    }


def metrics(steps: list[Row], labels: dict[str, list[Any]], window: set[str], blocks: dict[str, list[Any]]) -> Row:
    """The counts of one question at one point.

    Args:
        steps: What the point takes.
        labels: For each answer record its spans; None for the whole record.
        window: Records the window names.
        blocks: For each record its blocks as (start, end, text without white space around it).
    """
    shown = characters(steps)
    records = {ref for ref, _ in shown}
    fates = dict.fromkeys(("not_recalled", "not_quoted", "outside", "in_part", "whole"), 0)
    turn_characters: set[tuple[str, int]] = set()
    for ref, spans in labels.items():
        for start, end in {tuple(span) for span in spans if span is not None}:
            own = {(ref, at) for at in range(start, end)}
            turn_characters |= own
            seen = len(own & shown)
            if ref not in window:
                fate = "not_recalled"
            elif ref not in records:
                fate = "not_quoted"
            else:
                fate = "whole" if seen == len(own) else "in_part" if seen else "outside"
            fates[fate] += 1
    answers = [step["item_position"] for step in steps if step["record_ref"] in labels]
    return {
        "answer_records": len(labels),
        "answer_records_shown": len(records & set(labels)),
        "turns": sum(fates.values()),
        **{f"turns_{fate}": count for fate, count in fates.items()},
        "turn_characters": len(turn_characters),
        "turn_characters_shown": len(turn_characters & shown),
        "quoted_characters": len(shown),
        "answer_record_characters": sum(ref in labels for ref, _ in shown),
        "repeated_characters": repeated(steps, shown, blocks),
        "first_item": min(answers, default=None),
    }


def repeated(steps: list[Row], shown: set[tuple[str, int]], blocks: dict[str, list[Any]]) -> int:
    """Shown characters of blocks whose text a block quoted before has."""
    places = {step["record_ref"]: (step["item_position"], step["claim_position"]) for step in steps}
    said: set[str] = set()
    count = 0
    for ref in sorted(places, key=lambda ref: places[ref]):
        for start, end, text in blocks[ref]:
            own = sum((ref, at) in shown for at in range(start, end))
            if own and text:
                count += own if text in said else 0
                said.add(text)
    return count


def blocks_of(records: dict[str, Row]) -> dict[str, list[Any]]:
    return {
        ref: [(start, end, record["text"][start:end].strip()) for start, end in oracles.block_spans(record)]
        for ref, record in records.items()
    }


# The gold answer


def words(text: str) -> list[str]:
    normal = unicodedata.normalize("NFKC", text).lower()
    out = ""
    for char in normal:
        kind = unicodedata.category(char)[0]
        if char in "々〇〻" or (kind == "L" and unicodedata.name(char, "").startswith(UNSPACED)):
            out += f" {char} "
        else:
            out += char if kind in "LN" else " "
    return out.split()


def answer_shown(answer: str | None, searched: list[str]) -> bool | None:
    """Whether one of the quotes shows the answer; None where it is no short span."""
    gold = words(answer or "")
    if not 1 <= len(" ".join(gold)) <= LONGEST_ANSWER or gold in (["yes"], ["no"]):
        return None
    return any(
        gold == found[at : at + len(gold)] for found in map(words, searched) for at in range(len(found) - len(gold) + 1)
    )


# Rates


def mean(parts: list[tuple[int, int]]) -> float | None:
    """The mean of fractions, each rounded to billionths, halves up."""
    known = [Fraction(part, whole) for part, whole in parts if whole]
    billionths = sum(int(fraction * 10**9 + Fraction(1, 2)) for fraction in known)
    return billionths / (10**9 * len(known)) if known else None


def pooled(parts: list[tuple[int, int]]) -> float | None:
    whole = sum(whole for _, whole in parts)
    return sum(part for part, _ in parts) / whole if whole else None
