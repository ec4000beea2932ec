"""Everything that changes a sequence, with the defaults of the design (DESIGN.md, "Settings")."""

from dataclasses import dataclass, fields
from typing import Any

from allocation.errors import InputError

POLICIES = ("merge", "server")
COVERAGE_BASES = ("evidence", "whole")
MOST = 1_000_000_000


@dataclass(frozen=True)
class Settings:
    """How passages are made and ordered."""

    passages: str = "merge"  # merge: the design; server: the memory server's own choices
    rrf_k: int = 60  # the k of reciprocal-rank fusion; larger flattens the weight of a rank
    passage_limit: int = 1478  # characters a united passage never grows past

    coverage_base: str = "evidence"  # the order the coverage pass starts from: evidence or whole
    step_up: int = 5  # places a passage with a part not yet held moves up
    step_down: int = 5  # places a passage whose parts are all held moves down
    keep_records: int = 0  # passages of the first so many records are never moved down
    rare_share: float = 0.5  # a word that more than this share of the window's records hold is no part

    def __post_init__(self) -> None:
        """Refuse values the chain is not defined for."""
        for name, choices in (("passages", POLICIES), ("coverage_base", COVERAGE_BASES)):
            value = getattr(self, name)
            if value not in choices:
                raise InputError(f"setting {name}={value!r}: choose one of {', '.join(choices)}")
        least = {"rrf_k": 0, "passage_limit": 1, "step_up": 0, "step_down": 0, "keep_records": 0}
        for name, lowest in least.items():
            value = getattr(self, name)
            if type(value) is not int or not lowest <= value <= MOST:
                raise InputError(f"setting {name}={value!r}: give a whole number from {lowest} to {MOST}")
        if type(self.rare_share) not in (int, float) or not 0 <= self.rare_share <= 1:
            raise InputError(f"setting rare_share={self.rare_share!r}: give a number from 0 to 1")


def settings_of(values: dict[str, Any]) -> Settings:
    """Settings with ``values`` in place of the defaults.

    Raises:
        InputError: a name that is no setting, or a value out of range.
    """
    names = [field.name for field in fields(Settings)]
    for name in values:
        if name not in names:
            raise InputError(f"setting {name!r} does not exist; the settings are {', '.join(names)}")
    return Settings(**values)
