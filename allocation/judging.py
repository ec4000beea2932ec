"""Graded answers at two points to a verdict (DESIGN.md, "Judging")."""

from typing import Any

import numpy as np
import polars as pl
from scipy import stats

from allocation import bootstrap
from allocation.rules import Rule

CONFIDENCE = 0.95  # of the Wilson interval of one accuracy
FEWEST = 2  # questions; one alone has no interval


def verdict(rule: Rule, answered: pl.DataFrame) -> dict[str, Any]:
    """What a rule says of answers.

    Args:
        rule: The rule.
        answered: A row a question, ordered by question_id: question_id, question_type, correct and control_correct
            (bool), prompt_tokens and control_prompt_tokens (null: not reported), rendered_tokens and
            control_rendered_tokens (of the contexts).

    Returns:
        ``met``; ``reasons`` why not; ``questions``; ``point`` and ``control``, each with correct, accuracy (percent),
        its Wilson interval and mean context tokens; ``difference`` (percentage points), ``low`` and ``high``; the
        exact McNemar p; ``types`` and the question_ids of ``wins`` and ``losses``.
    """
    tokens, counted = _tokens(answered)
    difference, low, high = _difference(rule, answered)
    reasons = []
    if len(answered) < FEWEST:
        reasons.append(f"{len(answered)} question has no interval; a verdict needs {FEWEST} or more")
    elif not rule.bound_holds(low):
        reasons.append(f"the lower bound is {low:+.2f} points, not {rule.bound}")
    if rule.max_context_tokens is not None and tokens["point"] > rule.max_context_tokens:
        reasons.append(f"the mean context has {tokens['point']:,.1f} tokens, more than {rule.max_context_tokens:,g}")
    won = answered.filter(pl.col("correct") & ~pl.col("control_correct"))["question_id"].to_list()
    lost = answered.filter(~pl.col("correct") & pl.col("control_correct"))["question_id"].to_list()
    return {
        "met": not reasons,
        "reasons": reasons,
        "questions": len(answered),
        "tokens_counted": counted,
        "point": _side(answered["correct"]) | {"context_tokens": tokens["point"]},
        "control": _side(answered["control_correct"]) | {"context_tokens": tokens["control"]},
        "difference": difference,
        "low": low,
        "high": high,
        "mcnemar_p": float(stats.binomtest(len(won), len(won) + len(lost)).pvalue) if won or lost else 1.0,
        "types": _types(answered),
        "wins": won,
        "losses": lost,
    }


def _difference(rule: Rule, answered: pl.DataFrame) -> tuple[float, float, float]:
    """The difference in percentage points, point minus control, and the rule's interval of it."""
    control, point = (answered[name].cast(pl.Int64).to_numpy()[:, None] for name in ("control_correct", "correct"))
    ones = np.ones_like(point)
    bounds = bootstrap.differences((control, ones), (point, ones), **rule.interval)
    difference, low, high = (100 * float(bound[0]) for bound in bounds)
    return difference, low, high


def _tokens(answered: pl.DataFrame) -> tuple[dict[str, float], str]:
    """Mean tokens of both sides' contexts: what the answers report if all do, else what the contexts have."""
    reported = answered.select("prompt_tokens", "control_prompt_tokens").null_count().sum_horizontal().item() == 0
    name = "prompt_tokens" if reported else "rendered_tokens"
    sides = {"point": answered[name], "control": answered[f"control_{name}"]}
    means = {side: int(counts.sum()) / len(answered) for side, counts in sides.items()}
    return means, "prompt tokens the answers report" if reported else "cl100k_base tokens of the contexts"


def _side(correct: pl.Series) -> dict[str, Any]:
    count = int(correct.sum())
    interval = stats.binomtest(count, len(correct)).proportion_ci(CONFIDENCE, method="wilson")
    return {
        "correct": count,
        "accuracy": 100 * count / len(correct),
        "low": 100 * float(interval.low),
        "high": 100 * float(interval.high),
    }


def _types(answered: pl.DataFrame) -> list[dict[str, Any]]:
    """A row a question type: questions, correct on either side, wins and losses."""
    gained = pl.col("correct") & ~pl.col("control_correct")
    dropped = ~pl.col("correct") & pl.col("control_correct")
    return (
        answered.group_by(pl.col("question_type").fill_null("(none)"))
        .agg(
            questions=pl.len(),
            correct=pl.col("correct").sum(),
            control_correct=pl.col("control_correct").sum(),
            wins=gained.sum(),
            losses=dropped.sum(),
        )
        .sort("question_type")
        .to_dicts()
    )
