"""The file of development questions, which is drawn once and committed."""

import json
from pathlib import Path

from allocation.errors import InputError


def read(path: Path) -> list[str]:
    """The question_ids in a file that ``draw-dev`` wrote.

    Raises:
        InputError: it is missing or not such a file.
    """
    try:
        ids = json.loads(path.read_text(encoding="utf-8"))["question_ids"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: is no file of development questions; draw one with draw-dev") from error
    if not isinstance(ids, list) or not all(isinstance(question_id, str) for question_id in ids):
        raise InputError(f"{path}: question_ids is no list of texts; draw it with draw-dev")
    return ids
