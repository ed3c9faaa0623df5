"""A single instance, run as a batch of one."""

from typing import Any

import gymnasium
import jax
import numpy as np

from jaxenvs.errors import ActionError
from jaxenvs.faces._host_timestep import HostTimeStep


def step_single(runner: Any, space: gymnasium.Space, action: Any) -> HostTimeStep:
    """Takes one action in a runner of one instance.

    Args:
        runner: a `BatchRunner` or `PoolRunner` with `num_envs` 1.
        space: the space of one action.
        action: the action, without a batch axis.

    Raises:
        ActionError: the action does not fit; the message is about one action, not about a batch.
    """
    try:
        return runner.step(_add_batch_axis(space, action))
    except ActionError:
        raise ActionError(
            f"step got the action {action!r}; expected a member of {space}.  Clip an action that is"
            " out of range (jaxenvs.wrappers.ClipAction does), or pass validate=False to let the"
            " environment decide."
        ) from None


def take_rows(tree: Any, index: Any = 0) -> Any:
    """Returns the rows `index` of a tree of [N, ...] arrays, by default the row of instance 0."""
    return jax.tree.map(lambda leaf: leaf[index], tree)


def only_row(space: gymnasium.Space, batch: Any) -> Any:
    """Returns the only row of `batch`, as a member of `space`."""
    if isinstance(space, gymnasium.spaces.Dict):
        return {key: only_row(part, batch[key]) for key, part in space.items()}
    if isinstance(space, gymnasium.spaces.Tuple):
        return tuple(only_row(part, batch[i]) for i, part in enumerate(space.spaces))
    if isinstance(space, gymnasium.spaces.Discrete) and isinstance(batch, np.ndarray):
        return np.int64(batch[0])
    return batch[0, ...]  # [0] would turn an array without other axes into a number


def _add_batch_axis(space: gymnasium.Space, action: Any) -> Any:
    if isinstance(space, gymnasium.spaces.Dict) and isinstance(action, dict):
        return {
            key: _add_batch_axis(space[key], value) if key in space.spaces else value
            for key, value in action.items()
        }
    if isinstance(space, gymnasium.spaces.Tuple) and isinstance(action, (tuple, list)):
        return tuple(_add_batch_axis(sub, value) for sub, value in zip(space, action, strict=False))
    if hasattr(action, "shape"):
        return action[None]
    try:
        return np.asarray([action])
    except ValueError as error:  # nested lists of different lengths
        raise ActionError(f"step got an action that is not an array: {error}.") from error
