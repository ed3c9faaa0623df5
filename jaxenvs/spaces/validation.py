"""Checks of actions at trace time, where they cost nothing at run time."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxenvs.errors import ActionError, describe
from jaxenvs.spaces.composite import map_leaves
from jaxenvs.spaces.space import Space


def check_action(space: Space, action: Any, num_envs: int, name: str) -> Any:
    """Checks structure, shapes and kinds, and returns `action` with the dtypes of `space`.

    Args:
        space: the action space of one instance.
        action: one action per instance, [N, ...].
        num_envs: N.
        name: the environment's name, for the error message.

    Raises:
        ActionError: the message names every leaf that does not fit.
    """
    problems: list[str] = []

    def convert(space: Space, action: Any, path: str) -> Any:
        shape, dtype = (num_envs, *(space.shape or ())), np.dtype(space.dtype)
        if not (hasattr(action, "dtype") or action is None or isinstance(action, (dict, tuple))):
            action = np.asarray(action)
        found: Any = getattr(action, "shape", None), getattr(action, "dtype", None)
        kind = np.integer if np.issubdtype(dtype, np.integer) else np.floating
        if dtype == np.bool_:
            kind = np.bool_
        if found[0] != shape or not jnp.issubdtype(found[1], kind):
            problems.append(f"{path} is {describe(action)}, expected {dtype}{list(shape)}")
            return action
        if isinstance(action, np.ndarray) and kind is np.integer and action.size:
            # Without this check, 2**32 would silently become action 0.
            low, high, limits = action.min(), action.max(), np.iinfo(str(dtype))
            if low < limits.min or high > limits.max:
                problems.append(f"{path} has values from {low} to {high}, out of range of {dtype}")
                return action
        return jnp.asarray(action, dtype) if found[1] != dtype else action

    action = map_leaves(convert, space, action, "action", problems)
    if problems:
        raise ActionError(
            f"step of {name} with num_envs={num_envs} got an invalid action: {'; '.join(problems)}."
            "  Pass one action per instance, like env.action_space.sample(key)."
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
