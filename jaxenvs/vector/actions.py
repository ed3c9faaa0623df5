"""Checking what a batch is given when a call is traced, where it costs nothing at run time."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs.errors import ActionError, VectorizeError, describe
from jaxenvs.spaces import Dict, Space, Tuple


def checked_action(space: Space, action: Any, num_envs: int, name: str) -> Any:
    """Returns `action` with the dtypes of `space`, after checking structure, shapes and kinds.

    Args:
        space: the action space of one instance.
        action: one action per instance, [N, ...].
        num_envs: N.
        name: the environment's name, for the message.

    Raises:
        ActionError: naming every leaf that does not fit.
    """
    problems: list[str] = []
    action = _check(space, action, num_envs, "", problems)
    if problems:
        raise ActionError(
            f"step of {name} with num_envs={num_envs} got " + "; ".join(problems) + "."
            "  Pass one action per instance; env.action_space.sample(key) shows the form."
        )
    return action


def checked_mask(mask: Any, num_envs: int) -> Any:
    """Returns `mask` as an array, after checking that it is bool[N].

    Raises:
        VectorizeError: it is not.
    """
    array = mask if isinstance(mask, jax.Array) else np.asarray(mask)
    if array.shape != (num_envs,) or array.dtype != np.bool_:
        raise VectorizeError(
            f"reset_where got a mask of {describe(array)}; expected bool[{num_envs}], true where an"
            " instance is to be reset."
        )
    return array


def _check(space: Space, action: Any, num_envs: int, path: str, problems: list[str]) -> Any:
    where = f" at action{path}" if path else ""
    if isinstance(space, Dict):
        if not isinstance(action, dict) or set(action) != set(space.spaces):
            given = f"keys {sorted(action)}" if isinstance(action, dict) else describe(action)
            problems.append(f"{given}{where}, expected a dict with keys {sorted(space.spaces)}")
            return action
        return {
            key: _check(sub, action[key], num_envs, f"{path}[{key!r}]", problems)
            for key, sub in space.spaces.items()
        }
    if isinstance(space, Tuple):
        if not isinstance(action, tuple) or len(action) != len(space.spaces):
            problems.append(
                f"{describe(action)}{where}, expected a tuple of {len(space.spaces)} actions"
            )
            return action
        return tuple(
            _check(sub, part, num_envs, f"{path}[{i}]", problems)
            for i, (sub, part) in enumerate(zip(space.spaces, action, strict=True))
        )
    return _check_array(space, action, num_envs, where, problems)


def _check_array(space: Space, action: Any, num_envs: int, where: str, problems: list[str]) -> Any:
    shape, dtype = (num_envs, *(space.shape or ())), np.dtype(space.dtype)
    expected = f"expected {dtype}{list(shape)}"
    if not hasattr(action, "dtype") or not hasattr(action, "shape"):
        if isinstance(action, (dict, tuple)) or action is None:
            problems.append(f"{describe(action)}{where}, {expected}")
            return action
        action = np.asarray(action)
    kind = np.integer if np.issubdtype(dtype, np.integer) else np.floating
    if dtype == np.bool_:
        kind = np.bool_
    if tuple(action.shape) != shape or not jnp.issubdtype(action.dtype, kind):
        problems.append(f"an action of {describe(action)}{where}, {expected}")
        return action
    if isinstance(action, np.ndarray) and kind is np.integer and action.size:
        # Narrowed without a word, 2**32 would be action 0.
        low, high, bounds = action.min(), action.max(), np.iinfo(str(dtype))
        if low < bounds.min or high > bounds.max:
            problems.append(f"actions from {low} to {high}{where}, which {dtype} does not hold")
            return action
    return jnp.asarray(action, dtype) if action.dtype != dtype else action
