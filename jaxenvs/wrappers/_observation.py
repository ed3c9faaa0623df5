"""What the wrappers of observations share."""

import contextlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import spaces
from jaxenvs.core import TimeStep, VectorEnv
from jaxenvs.errors import SpaceError, WrapperError
from jaxenvs.wrappers.transform import Transform


class ObservationMap(Transform):
    """A transform that maps every observation by itself, remembering nothing.

    A subclass defines `map_observation`, and `observation_space`, where it raises `WrapperError`
    for what it cannot go around.
    """

    def __post_init__(self) -> None:
        check_space(self)

    def map_observation(self, observation: Any) -> Any:
        """Maps one observation."""
        raise NotImplementedError

    def on_reset(self, timestep: TimeStep) -> tuple[None, TimeStep]:
        return self.on_step(None, timestep)

    def on_step(self, memory: None, timestep: TimeStep) -> tuple[None, TimeStep]:
        observation = self.map_observation(timestep.observation)
        return memory, timestep.replace(observation=observation)


def check_space(wrapper: Any) -> None:
    """Makes the wrapper's space, so that a value that cannot work is named where it was given.

    Only around plain numbers. JAX also builds wrappers, out of traced values, of gradients and of
    placeholders, and the parameters may be batched: then there is nothing to judge yet.
    """
    leaves = jax.tree.leaves(wrapper.env, is_leaf=lambda leaf: leaf is None)
    if all(isinstance(leaf, int | float | np.number | np.bool_ | VectorEnv) for leaf in leaves):
        # A space that cannot be made of these numbers is not the wrapper's fault.
        with contextlib.suppress(SpaceError):
            _ = wrapper.observation_space


def check_count(wrapper: Any, name: str, smallest: int) -> None:
    """Raises unless the static field `name` is an integer and at least `smallest`."""
    value = getattr(wrapper, name)
    is_integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_integer or value < smallest:
        raise WrapperError(
            f"{type(wrapper).__name__} got {name}={value!r}; it must be an integer, at least"
            f" {smallest}.  It decides shapes, so it cannot be traced either."
        )


def zero(space: spaces.Space) -> Any:
    """The member of `space` nearest to zero, as Gymnasium's wrappers fill gaps with it."""
    match space:
        case spaces.Dict():
            return {key: zero(part) for key, part in space.spaces.items()}
        case spaces.Tuple():
            return tuple(zero(part) for part in space.spaces)
        case spaces.Box():
            zeros = jnp.zeros(space.shape, space.dtype)
            nearest = jnp.where(space.high < zeros, space.high, zeros)
            return jnp.where(space.low > zeros, space.low, nearest)
        case spaces.Discrete() | spaces.MultiDiscrete():
            return jnp.broadcast_to(jnp.asarray(space.start, jnp.int32), space.shape)
    return jnp.zeros(space.shape or (), space.dtype)
