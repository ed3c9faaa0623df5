"""One instance, driven as a batch of one."""

from typing import Any

import gymnasium
import jax
import numpy as np

from jaxenvs.errors import ActionError
from jaxenvs.faces._engine import Engine
from jaxenvs.faces._programs import HostStep


def step_one(engine: Engine, space: gymnasium.Space, action: Any) -> HostStep:
    """Takes one action, of `space`, in an engine of one instance.

    Raises:
        ActionError: the action does not fit; the message speaks of one action, not of a batch.
    """
    try:
        return engine.step(_as_batch(space, action))
    except ActionError:
        raise ActionError(
            f"step got the action {action!r}; expected a member of {space}.  Clip what is out of"
            " range (jaxenvs.wrappers.ClipAction does), or pass validate=False to let the"
            " environment decide."
        ) from None


def row(tree: Any, index: int = 0) -> Any:
    """One instance's part of a tree of [N, ...]."""
    return jax.tree.map(lambda leaf: leaf[index], tree)


def _as_batch(space: gymnasium.Space, action: Any) -> Any:
    """The action as a batch of one."""
    if isinstance(space, gymnasium.spaces.Dict) and isinstance(action, dict):
        return {
            key: _as_batch(space[key], value) if key in space.spaces else value
            for key, value in action.items()
        }
    if isinstance(space, gymnasium.spaces.Tuple) and isinstance(action, (tuple, list)):
        return tuple(_as_batch(sub, value) for sub, value in zip(space, action, strict=False))
    if hasattr(action, "shape"):
        return action[None]
    try:
        return np.asarray([action])
    except ValueError as error:  # lists within lists of different lengths
        raise ActionError(f"step got an action that is no array: {error}.") from error
