"""Checks of actions at trace time, where they cost nothing at run time."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxenvs.errors import ActionError, describe
from jaxenvs.spaces.composite import map_leaves
from jaxenvs.spaces.space import Space


def check_action(space: Space, action: Any, num_envs: int | None, name: str) -> Any:
    """Checks structure, shapes and kinds, and returns a batch with the dtypes of `space`.

    Args:
        space: the action space of one instance.
        action: one action per instance, [N, ...], which may be lists of numbers; or a single
            action, of arrays and numbers.
        num_envs: N, or None for a single action, which is returned as it is.
        name: the environment's name, for the error message.

    Raises:
        ActionError: the message names every leaf that does not fit.
    """
    problems: list[str] = []
    axes = () if num_envs is None else (num_envs,)

    def convert(space: Space, given: Any, path: str) -> Any:
        shape, dtype = (*axes, *(space.shape or ())), np.dtype(space.dtype)
        is_array = hasattr(given, "dtype") or given is None or isinstance(given, (dict, tuple))
        is_number = isinstance(given, bool | int | float)
        action = np.asarray(given) if is_number or (axes and not is_array) else given
        found: Any = getattr(action, "shape", None), getattr(action, "dtype", None)
        kind = np.integer if np.issubdtype(dtype, np.integer) else np.floating
        if dtype == np.bool_:
            kind = np.bool_
        if found[0] != shape or not jnp.issubdtype(found[1], kind):
            problems.append(f"{path} is {describe(action)}, expected {dtype}{list(shape)}")
            return given
        if isinstance(action, np.ndarray | np.generic) and kind is np.integer and action.size:
            # Without this check, 2**32 would silently become action 0.
            low, high, limits = action.min(), action.max(), np.iinfo(str(dtype))
            if low < limits.min or high > limits.max:
                problems.append(f"{path} has values from {low} to {high}, out of range of {dtype}")
                return given
        if not axes:
            return given
        return jnp.asarray(action, dtype) if found[1] != dtype else action

    action = map_leaves(convert, space, action, "action", problems)
    if problems:
        many = f" with num_envs={num_envs}" if axes else ""
        raise ActionError(
            f"step of {name}{many} got an invalid action: {'; '.join(problems)}."
            f"  Pass one action{' per instance' if axes else ''}, like"
            " env.action_space.sample(key)."
        )
    return action


def check_action_shape(space: Space, action: Any, name: str) -> None:
    """Checks the shape of a single action, where another one would be broadcast.

    Raises:
        ActionError: the shape is not that of the space.
    """
    if np.shape(action) != space.shape:
        raise ActionError(
            f"step of {name} got {describe(action)} as an action; expected {space.dtype}"
            f"{list(space.shape or ())}."
        )
