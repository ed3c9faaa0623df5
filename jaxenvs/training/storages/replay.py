"""Uniform experience replay."""

import chex
import jax
import jax.numpy as jnp

from jaxenvs import struct
from jaxenvs.training.ranges import Count
from jaxenvs.training.storages import _ring
from jaxenvs.training.storages._ring import Ring
from jaxenvs.training.storages._windows import n_step_returns, newest_can_start
from jaxenvs.training.storages.storage import ReplayStorage
from jaxenvs.training.types import Sample, Transition


@struct.pytree_dataclass
class Replay(ReplayStorage):
    """A memory of the last `capacity` transitions, which samples uniformly.

    A row is a window of `n_step` steps of one instance that starts at the sampled step and ends
    where its episode ends. Steps whose window is not complete yet cannot be drawn, unless their
    episode has ended.

    Each transition is stored with both observations, so images take twice their size: 56 KB for a
    transition of 84x84x4. Most next observations equal the observation of the next row, but not
    those at the end of an episode, of which there may be any number. On one device, the arrays
    are [L, N, ...]. L is a multiple of the unroll length, and always has room for one unroll and
    the rest of a window. Only rows that are added or drawn are copied. Steps of one instance are
    counted in int32.

    Samples from an empty storage are zeros, so check `size` first.

    Source: L. Lin, Self-Improving Reactive Agents Based on Reinforcement Learning, Planning and
    Teaching, 1992; V. Mnih et al., Human-level control through deep reinforcement learning, 2015.
    """

    capacity: Count = struct.static(100_000)  # transitions, of all instances together
    n_step: Count = struct.static(1)  # rewards summed before the critic's value

    def init(self, transition: Transition) -> Ring:
        return _ring.empty(transition, self.capacity, beyond=self.n_step - 1)

    def add(self, state: Ring, unroll: Transition) -> Ring:
        return _ring.push(state, unroll)

    def truncate(self, state: Ring) -> Ring:
        return _ring.truncate(state)

    def size(self, state: Ring) -> jax.Array:
        whole, newest = self._drawable(state)
        return whole * state.shape[1] + newest.sum(dtype=jnp.int32)

    def sample(
        self,
        state: Ring,
        key: chex.PRNGKey,
        batch_size: int,
        *,
        gamma: chex.Numeric,
        steps: chex.Numeric,
    ) -> Sample:
        del steps
        draw = jax.random.randint(key, (batch_size,), 0, self.size(state), jnp.int32)
        time, instance = self._locate(state, draw)
        weight = jnp.ones((batch_size,), jnp.float32)
        return n_step_returns(state, time, instance, self.n_step, gamma=gamma, weight=weight)

    def _drawable(self, state: Ring) -> tuple[jax.Array, jax.Array]:
        """Returns the number of older steps, all of which can be drawn, and which newer ones can.

        They are int32[] and bool[n - 1, N].
        """
        whole = jnp.minimum(state.time, state.shape[0]) - (self.n_step - 1)
        return jnp.maximum(whole, 0), newest_can_start(state, self.n_step)

    def _locate(self, state: Ring, draw: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Returns the steps and instances with the numbers `draw`, older steps first."""
        num_envs = state.shape[1]
        oldest = jnp.maximum(state.time - state.shape[0], 0)
        time, instance = oldest + draw // num_envs, draw % num_envs
        if self.n_step == 1:
            return time, instance
        whole, newest = self._drawable(state)
        count = jnp.cumsum(newest.ravel(), dtype=jnp.int32)
        beyond = draw - whole * num_envs
        at = jnp.searchsorted(count, beyond, side="right").astype(jnp.int32)
        newest_time = state.time - (self.n_step - 1) + at // num_envs
        return (
            jnp.where(beyond < 0, time, newest_time),
            jnp.where(beyond < 0, instance, at % num_envs),
        )
