"""Everything that changes a sequence, with the defaults of the design (DESIGN.md, "Settings")."""

from dataclasses import dataclass, fields
from typing import Any

from allocation.errors import InputError

POLICIES = ("merge", "server")


@dataclass(frozen=True)
class Settings:
    """How passages are made and ordered."""

    passages: str = "merge"  # merge: the design; server: the memory server's own choices
    rrf_k: int = 60  # the k of reciprocal-rank fusion; larger flattens the weight of a rank
    passage_limit: int = 1478  # characters a united passage never grows past

    def __post_init__(self) -> None:
        """Refuse values the chain is not defined for."""
        if self.passages not in POLICIES:
            raise InputError(f"setting passages={self.passages!r}: choose one of {', '.join(POLICIES)}")
        for name, least in (("rrf_k", 0), ("passage_limit", 1)):
            value = getattr(self, name)
            if type(value) is not int or not least <= value <= 1_000_000_000:
                raise InputError(f"setting {name}={value!r}: give a whole number from {least} to 1000000000")


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
