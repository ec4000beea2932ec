"""Everything that changes a sequence, with the defaults of the design (DESIGN.md, "Settings")."""

from dataclasses import dataclass, fields
from typing import Any

from allocation.errors import InputError

POLICIES = ("merge", "server")
COVERAGE_BASES = ("evidence", "whole")
MOST = 1_000_000_000
WEIGHTS = ("record_weight", "inside_weight", "cosine_weight")
MOST_WEIGHT = 1000


@dataclass(frozen=True)
class Settings:
    """How passages are made and ordered."""

    passages: str = "merge"  # merge: the design; server: the memory server's own choices
    rrf_k: int = 60  # the k of reciprocal-rank fusion; larger flattens the weight of a rank
    record_weight: float = 1.0  # of the record rank in the fused order; 0 leaves the list out
    inside_weight: float = 1.0  # of the inside rank
    cosine_weight: float = 1.0  # of the cosine rank
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
        most = {"rare_share": 1, **dict.fromkeys(WEIGHTS, MOST_WEIGHT)}
        for name, highest in most.items():
            value = getattr(self, name)
            if type(value) not in (int, float) or not 0 <= value <= highest:
                raise InputError(f"setting {name}={value!r}: give a number from 0 to {highest}")
            object.__setattr__(self, name, float(value))  # 1 and 1.0 are one setting

    @property
    def weights(self) -> dict[str, float]:
        """The lists of ranks and the weight of each in the fused order."""
        return {f"{name.removesuffix('_weight')}_rank": getattr(self, name) for name in WEIGHTS}


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
