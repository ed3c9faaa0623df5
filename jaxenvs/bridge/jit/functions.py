"""The functions of `Pool.xla`, in the manner of EnvPool."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxenvs.bridge.jit.host_env import HostEnv, HostState
from jaxenvs.bridge.jit.hosted import Hosted
from jaxenvs.bridge.pool import Pool
from jaxenvs.core import TimeStep


def xla_functions(
    pool: Pool,
) -> tuple[jax.Array, Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
    """Returns the result of `Pool.xla`."""
    env = _SingleAgent(pool, autoreset_mode=pool.autoreset_mode, final_observation=False)
    hosted = Hosted.of(pool)

    def recv(handle: jax.Array) -> tuple[jax.Array, Any]:
        return _as_batch(env.recv(HostState(token=handle)))

    def send(handle: jax.Array, action: Any, env_id: Any = None) -> jax.Array:
        return env.send(HostState(token=handle), action, env_id).token

    def step(handle: jax.Array, action: Any, env_id: Any = None) -> tuple[jax.Array, Any]:
        if env_id is None and env.batch_size == env.num_envs:
            return _as_batch(env.step(HostState(token=handle), action, jax.random.key(0)))
        return recv(send(handle, action, env_id))

    return jnp.array([[hosted.id, hosted.calls]], jnp.int32), recv, send, step


class _SingleAgent(HostEnv):
    """A HostEnv that sums the rewards of all agents, as the pool's own step does."""

    @property
    def agents(self) -> tuple[str, ...]:
        return ()


def _as_batch(result: tuple[HostState, TimeStep]) -> tuple[jax.Array, Any]:
    state, timestep = result
    flags = timestep.terminated, timestep.truncated
    # As in a pool's infos: the step of the episode that the reward belongs to.
    info = {**timestep.info, "elapsed_step": timestep.final_info["elapsed_step"]}
    return state.token, (timestep.observation, timestep.reward, *flags, info)
