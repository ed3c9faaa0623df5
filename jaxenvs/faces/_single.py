"""A single instance, run as a batch of one."""

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import jax
import numpy as np

from jaxenvs.errors import ActionError


def step_single(step: Callable[[Any], Any], space: gymnasium.Space, action: Any) -> Any:
    """Takes one action in a batch of one instance. Returns the result of `step`.

    Args:
        step: takes the actions of the batch.
        space: the space of one action.
        action: the action, without a batch axis.

    Raises:
        ActionError: the action does not fit; the message is about one action, not about a batch.
    """
    try:
        return step(_add_batch_axis(space, action))
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


def info_row(infos: Mapping[str, Any], i: int) -> dict[str, Any]:
    """Returns the info of instance i, given Gymnasium's infos of a batch."""
    row = {}
    for name, value in infos.items():
        mask = infos.get(f"_{name}")
        if mask is None or not mask[i]:  # `name` is a mask, or instance i has no such info
            continue
        row[name] = info_row(value, i) if isinstance(value, dict) else _value_row(value, i)
    return row


def _value_row(value: Any, i: int) -> Any:
    if isinstance(value, tuple):
        return tuple(_value_row(part, i) for part in value)
    return value[i]


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
