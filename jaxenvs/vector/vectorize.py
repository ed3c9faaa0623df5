"""One environment out of many instances."""

from collections.abc import Sequence
from typing import Any, Literal

import chex
import jax
import jax.numpy as jnp

from jaxenvs import struct
from jaxenvs.core import Environment, TimeStep, VectorEnv

AutoresetMode = Literal["same_step", "next_step", "disabled"]


@struct.pytree_dataclass
class VectorizedEnv(VectorEnv):
    env: Environment
    num_envs: int = struct.static()
    autoreset: str = struct.static("same_step")

    @property
    def single_observation_space(self):
        return self.env.observation_space

    @property
    def single_action_space(self):
        return self.env.action_space

    def reset(self, key):
        keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(self.num_envs))
        state, timestep = jax.vmap(self.env.reset)(keys)
        return state, timestep.replace(final_observation=timestep.observation)

    def step(self, state, action, key):
        keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(self.num_envs))
        state, timestep = jax.vmap(self.env.step)(state, action, keys)
        timestep = timestep.replace(final_observation=timestep.observation)
        if self.autoreset == "disabled":
            return state, timestep
        new_state, new = self.reset(key)
        def pick(a, b):
            return jax.tree.map(lambda x, y: jnp.where(timestep.done.reshape((-1,) + (1,) * (x.ndim - 1)), x, y), a, b)
        return pick(new_state, state), timestep.replace(observation=pick(new.observation, timestep.observation))


def vectorize(env, num_envs, *, autoreset="same_step", batched=(), reset_chunk=None, stagger=False, mesh=None) -> VectorizedEnv:
    return VectorizedEnv(env, num_envs, autoreset)
