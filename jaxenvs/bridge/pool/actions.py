"""Validation of actions, and their copy to the arrays that workers read."""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from jaxenvs.bridge.backends.backend import Settings
from jaxenvs.bridge.memory.layout import Leaf, leaves_in, leaves_of
from jaxenvs.errors import ActionError, describe


def action_taker(settings: Settings, arrays: list[np.ndarray]) -> Callable[..., None]:
    """Returns a function that checks actions and copies them to the arrays that workers read."""
    space = settings.action_space
    leaves = leaves_of(space)
    takers = [
        _leaf_taker(leaf, leaf.space_in(space), array, bool(settings.validate))
        for leaf, array in zip(leaves, arrays, strict=True)
    ]
    if len(leaves) == 1 and not leaves[0].path:
        return takers[0]

    def take(actions: Any, ids: np.ndarray | None, count: int) -> None:
        try:
            parts = leaves_in(actions, space)
        except (KeyError, IndexError, TypeError) as error:
            raise ActionError(
                f"actions are {describe(actions)}; expected the structure of {space}, with one row"
                " for each environment in every array."
            ) from error
        for taker, part in zip(takers, parts, strict=True):
            taker(part, ids, count)

    return take


def _leaf_taker(
    leaf: Leaf, space: gymnasium.Space, array: np.ndarray, validate: bool
) -> Callable[[Any, np.ndarray | None, int], None]:
    at = leaf.at
    kinds = {"f": "fiu", "i": "iu", "u": "iu", "b": "b"}.get(leaf.dtype.kind, leaf.dtype.kind)
    if isinstance(space, gymnasium.spaces.MultiBinary):
        kinds = "iub"
    check = _value_check(space) if validate else None
    quick = _quick_taker(space, array, validate)

    def take(actions: Any, ids: np.ndarray | None, count: int) -> None:
        if quick is not None and quick(actions, ids):
            return
        actions = np.asarray(actions)
        if actions.shape != (count, *leaf.shape) or actions.dtype.kind not in kinds:
            raise ActionError(
                f"actions{at} are {describe(actions)}; expected"
                f" {leaf.dtype}{[count, *leaf.shape]}.  Pass one action for each environment."
            )
        if check is not None:
            check(actions, at)
        if ids is None:
            array[...] = actions
        else:
            array[ids] = actions

    return take


def _quick_taker(
    space: gymnasium.Space, array: np.ndarray, validate: bool
) -> Callable[[Any, np.ndarray | None], bool] | None:
    """Returns a fast path for the usual integer actions; it returns False if it does not apply."""
    if not (isinstance(space, gymnasium.spaces.Discrete) and array.dtype == np.int64 and validate):
        return None
    start, count, shape, dtype = int(space.start), int(space.n), array.shape, array.dtype
    if start:
        return None
    # Read as unsigned, negative actions are huge, so one comparison checks both bounds.
    unsigned, largest = array.view(np.uint64), np.maximum.reduce

    def take(actions: Any, ids: np.ndarray | None) -> bool:
        if type(actions) is not np.ndarray or actions.dtype != dtype:
            return False
        if ids is None and actions.shape == shape:
            array[...] = actions
            return bool(largest(unsigned) < count)
        if ids is None or actions.shape != ids.shape:
            return False
        array[ids] = actions
        return bool(largest(actions.view(np.uint64)) < count)

    return take


def _value_check(space: gymnasium.Space) -> Callable[[np.ndarray, str], None] | None:
    bounds = discrete_bounds(space)
    if bounds is None:
        kind = np.dtype(space.dtype).kind
        return _refuse_nan if kind == "f" else _beyond_check(space.dtype) if kind in "iu" else None

    low, high = bounds

    def check(actions: np.ndarray, at: str) -> None:
        wide = actions.astype(np.int64)  # a narrow dtype may not hold the bounds
        wrong = (wide < low) | (wide > high)
        if wrong.any():
            row = int(np.argwhere(wrong)[0][0])
            raise ActionError(f"action {row}{at} is {actions[row]}, which is not in {space}.")

    return check


def discrete_bounds(space: gymnasium.Space) -> tuple[Any, Any] | None:
    """Returns the least and the largest integers of a discrete space; None for a Box."""
    if isinstance(space, gymnasium.spaces.Discrete):
        return int(space.start), int(space.start + space.n - 1)
    if isinstance(space, gymnasium.spaces.MultiDiscrete):
        return space.start, space.start + space.nvec - 1
    return (0, 1) if isinstance(space, gymnasium.spaces.MultiBinary) else None


def _beyond_check(dtype: Any) -> Callable[[np.ndarray, str], None]:
    limits = np.iinfo(dtype)

    def check(actions: np.ndarray, at: str) -> None:
        if np.can_cast(actions.dtype, dtype):
            return
        wrong = (actions < limits.min) | (actions > limits.max)
        if wrong.any():
            row = int(np.argwhere(wrong)[0][0])
            raise ActionError(
                f"action {row}{at} is {actions[row]}, which does not fit {limits.dtype}."
            )

    return check


def _refuse_nan(actions: np.ndarray, at: str) -> None:
    if np.isnan(actions).any():
        row = int(np.argwhere(np.isnan(actions))[0][0])
        raise ActionError(f"action {row}{at} contains NaN: {actions[row]}.")
