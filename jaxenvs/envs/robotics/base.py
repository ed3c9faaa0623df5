"""What the tasks of Gymnasium-Robotics have in common."""

import abc
import functools
import importlib.util
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import chex
import jax
import jax.numpy as jnp

from jaxenvs import spaces, struct
from jaxenvs.envs.mujoco.base import Simulation
from jaxenvs.errors import ParameterError, missing_extra
from jaxenvs.physics.models import precision

S = TypeVar("S")

REWARDS = ("sparse", "dense")


class GoalTask(Simulation[S]):
    """A task whose observation is a dict, with the goal and what was achieved of it.

    A subclass defines the rewards.
    """

    reward_type: str = struct.static("sparse")  # or "dense"

    target: ClassVar[str]  # the site that marks the goal in pictures

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reward_type not in REWARDS:
            raise ParameterError(
                f"{type(self).__name__} got reward_type={self.reward_type!r}; expected"
                f" {' or '.join(map(repr, REWARDS))}."
            )

    @property
    def observation_space(self) -> spaces.Dict:
        boxes = super().observation_space.spaces
        return spaces.Dict({**boxes, "desired_goal": boxes["achieved_goal"]})

    @abc.abstractmethod
    def compute_reward(self, achieved_goal: chex.Array, desired_goal: chex.Array) -> jax.Array:
        """Returns the reward for achieving `achieved_goal` when `desired_goal` was desired.

        Both goals are [..., k], with the same number of axes, and broadcast against each other. The
        reward is float32[...], or float64[...] if a goal is.
        """

    def compute_terminated(self, achieved_goal: chex.Array, desired_goal: chex.Array) -> jax.Array:
        """Returns bool[...], whether the episode ends. See `compute_reward` for the arguments."""
        return jnp.zeros(jnp.shape(distance(achieved_goal, desired_goal)), bool)

    def render(self, state: Any) -> jax.Array:
        """Draws the bodies and the goal: uint8[480, 480, 3], or the size of `renderer`."""
        with precision(self.dtype):
            original, size = self._original, state.goal.shape[0]
            number = original.site(self.target).id
            origin = original.body_pos[original.site_bodyid[number]]  # of a body that stands still
            local = state.goal - jnp.asarray(origin[:size], self.dtype)
            drawn = {"site_pos": self._model.site_pos.at[number, :size].set(local)}
            return self._picture(state, drawn)


def distance(a: chex.Array, b: chex.Array) -> jax.Array:
    """Returns how far points are from each other: [..., k] to [...]."""
    difference = jnp.subtract(a, b)
    return jnp.sqrt((difference * difference).sum(-1))


@functools.cache
def assets() -> Path:
    """Returns the folder of the package's models, without importing the package.

    Raises:
        MissingExtraError: it is not installed.
    """
    package = importlib.util.find_spec("gymnasium_robotics")
    if package is None or package.origin is None:
        raise missing_extra("jaxenvs.envs.robotics", "gymnasium-robotics", "robotics")
    return Path(package.origin).parent / "envs" / "assets"
