"""An order to a covered order: a greedy pass over the parts of the question (DESIGN.md, "Coverage").

In plain words: take the first passage; then, again and again, place every passage that is left at its place in
the order, minus ``step_up`` if it holds a part that nothing taken holds, plus ``step_down`` if it holds parts
and all of them are held; take the lowest, the earlier place of equals; its parts are held from then on.

A penalty changes only when a part is first held. Between two such moments the order of what is left is fixed,
so one sort gives all passages up to and including the next that holds a new part.
"""

import numpy as np
import numpy.typing as npt

Masks = npt.NDArray[np.int64]  # bit i: the passage holds part i


def order(
    masks: Masks, movable: npt.NDArray[np.bool_], step_up: int, step_down: int
) -> tuple[npt.NDArray[np.int64], Masks]:
    """The covered order of one question's passages.

    Args:
        masks: The parts each passage holds, in the order to start from.
        movable: Whether a passage may be moved down.
        step_up: Places a passage with a new part moves up.
        step_down: Places a passage whose parts are all held moves down.

    Returns:
        The passages' indices in their new order, and, in that order, the parts each was the first to hold.
    """
    taken: list[npt.NDArray[np.int64]] = []
    firsts: list[Masks] = []
    held = 0
    left = np.arange(len(masks))
    while len(left):
        new = masks[left] & ~held
        place = left - step_up * (new != 0) + step_down * ((masks[left] != 0) & (new == 0) & movable[left])
        if taken:  # the first passage of all is taken as it is
            by_place = np.argsort(place, kind="stable")
            left, new = left[by_place], new[by_place]
        changes = np.flatnonzero(new)
        count = 1 if not taken else int(changes[0]) + 1 if len(changes) else len(left)
        taken.append(left[:count])
        firsts.append(new[:count])
        held |= int(np.bitwise_or.reduce(new[:count]))
        left = np.sort(left[count:])
    if not taken:
        return np.arange(0), np.zeros(0, dtype=np.int64)
    return np.concatenate(taken), np.concatenate(firsts)
