"""The timestep, which `reset` and `step` return beside the state."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import chex
import jax
import jax.numpy as jnp
import numpy as np


@chex.dataclass(frozen=True)
class TimeStep:
    """The result of `reset` or `step`: observation, reward, episode flags and info.

    The shapes below are for one instance. A `VectorEnv` adds a leading [num_envs] axis to each.
    """

    observation: chex.ArrayTree
    reward: jax.Array  # float32[], 0 from reset
    terminated: jax.Array  # bool[], the task ended
    truncated: jax.Array  # bool[], the episode was cut off, for example by a time limit
    info: Mapping[str, chex.ArrayTree]  # the same keys on every step
    # Set by a VectorEnv: the observation and info that the step itself produced. They differ from
    # `observation` and `info` only where an episode ended and the next one began in the same step.
    final_observation: chex.ArrayTree = None
    final_info: Any = None

    if TYPE_CHECKING:  # chex adds `replace` at run time; type checkers do not see it

        def replace(self, **changes: Any) -> Self: ...

    @property
    def done(self) -> jax.Array:
        """bool[]: True if the episode terminated or was truncated."""
        return self.terminated | self.truncated

    @property
    def discount(self) -> jax.Array:
        """float32[]: 0 if the task terminated, otherwise 1, even if the episode was truncated."""
        return 1 - self.terminated.astype(jnp.float32)

    def truncate(self, when: jax.Array) -> Self:
        """Returns the timestep, truncated as well where `when`, bool[], is true."""
        return self.replace(truncated=jax.tree.map(lambda flag: flag | when, self.truncated))

    @classmethod
    def first(
        cls, observation: chex.ArrayTree, *, info: Mapping[str, chex.ArrayTree] | None = None
    ) -> "TimeStep":
        """Returns the first timestep of an episode: reward 0, both flags false."""
        return cls.transition(observation, reward=0.0, terminated=False, info=info)

    @classmethod
    def transition(
        cls,
        observation: chex.ArrayTree,
        *,
        reward: chex.Numeric,
        terminated: chex.Numeric,
        truncated: chex.Numeric = False,
        info: Mapping[str, chex.ArrayTree] | None = None,
    ) -> "TimeStep":
        """Returns the timestep that follows an action; `reward` becomes a float32 array."""
        # Parity tests cast the state to float64. They need float64 rewards too.
        dtypes = [getattr(leaf, "dtype", None) for leaf in jax.tree.leaves(observation)]
        return cls(
            observation=observation,
            reward=jnp.asarray(reward, np.float64 if np.float64 in dtypes else np.float32),
            terminated=jnp.asarray(terminated, bool),
            truncated=jnp.asarray(truncated, bool),
            info=dict(info or {}),
        )


@chex.dataclass(frozen=True)
class Start:
    """A level that is a state: an episode that starts in it goes on from there.

    It holds what `reset` or `step` of the same environment returned. Everything in the state goes
    on, also what wrappers remember, such as the number of steps taken. See `Environment.reset_to`.
    """

    state: chex.ArrayTree
    timestep: TimeStep

    @property
    def first(self) -> TimeStep:
        """The timestep, as the first of an episode: reward 0, both flags false."""
        clear: Any = {
            name: jax.tree.map(jnp.zeros_like, getattr(self.timestep, name))
            for name in ("reward", "terminated", "truncated")
        }
        return self.timestep.replace(**clear, final_observation=None, final_info=None)
