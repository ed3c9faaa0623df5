"""A batch of environments that wrappers can only use through its protocol."""

from typing import Any

import chex
import jax

from jaxenvs import spaces, struct
from jaxenvs.core import AutoresetMode, TimeStep, VectorEnv


@struct.pytree_dataclass
class OpaqueVectorEnv(VectorEnv):
    """Hides the instances of a batch from wrappers, as hosted environments do."""

    env: VectorEnv

    @property
    def num_envs(self) -> int:
        return self.env.num_envs

    @property
    def autoreset_mode(self) -> AutoresetMode:
        return self.env.autoreset_mode

    @property
    def is_staggered(self) -> bool:
        return self.env.is_staggered

    @property
    def single_observation_space(self) -> spaces.Space:
        return self.env.single_observation_space

    @property
    def single_action_space(self) -> spaces.Space:
        return self.env.single_action_space

    def reset(self, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        return self.env.reset(key)

    def step(self, state: Any, action: Any, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        return self.env.step(state, action, key)

    def reset_where(
        self, mask: jax.Array, state: Any, timestep: TimeStep, key: chex.PRNGKey
    ) -> tuple[Any, TimeStep]:
        return self.env.reset_where(mask, state, timestep, key)

    def render(self, state: Any, index: int = 0) -> jax.Array:
        return self.env.render(state, index)
