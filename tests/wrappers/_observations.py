"""Helpers for the tests of observation wrappers: recording, and Gymnasium on recorded episodes."""

from functools import partial

import chex
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

import jaxenvs
from jaxenvs.spaces import to_gymnasium
from jaxenvs.testing import CountingEnv
from tests.opaque import OpaqueVectorEnv
from tests.wrappers._batches import N


class Painted(CountingEnv):
    """A counter with a render method: every pixel and every count has a different color."""

    def render(self, state):
        pixels = np.arange(6 * 9 * 3, dtype=np.int32).reshape(6, 9, 3) * 5
        return ((pixels + state.count * 37) % 256).astype(jnp.uint8)


@partial(jax.jit, static_argnums=1)
def record(vector_env, num_steps=24):
    """Returns the timesteps of a reset and of `num_steps` random steps, [T + 1, N, ...]."""

    def step(state, key):
        action_key, step_key = jax.random.split(key)
        action = vector_env.action_space.sample(action_key)
        return vector_env.step(state, action, step_key)

    keys = jax.random.split(jax.random.key(7), num_steps)
    state, first = vector_env.reset(jax.random.key(8))
    _, later = jax.lax.scan(step, state, keys)
    return jax.tree.map(lambda one, more: jnp.concatenate([one[None], more]), first, later)


def record_batch(wrap, env, mode):
    """Records N wrapped instances and checks the results.

    They must be the same for accessible and opaque instances, and all observations must be in the
    observation space.
    """
    vector_env = jaxenvs.vectorize(env, N, autoreset_mode=mode, reset_chunk=N)
    inside, outside = vector_env.wrap(wrap), OpaqueVectorEnv(vector_env).wrap(wrap)
    assert type(inside) is type(vector_env) and type(outside) is not type(vector_env)
    assert inside.observation_space == outside.observation_space
    timesteps, others, are_inside = jax.device_get(_record_both(inside, outside))
    chex.assert_trees_all_close(timesteps, others, rtol=1e-6, atol=1e-6)
    assert all(are_inside)
    assert timesteps.done.sum() > 2
    return timesteps


@jax.jit
def _record_both(inside, outside):
    timesteps, others = record(inside), record(outside)
    contains = jax.vmap(jax.vmap(inside.single_observation_space.contains))
    shown = timesteps.observation, timesteps.final_observation
    return timesteps, others, [contains(observation).all() for observation in shown]


class Tape(gymnasium.Env):
    """A Gymnasium environment that replays recorded timesteps [T, ...] of one instance.

    The first timestep of each episode has its own row. The tape can be wrapped in Gymnasium's
    `TimeLimit` with the limit used for the recording.
    """

    render_mode = "rgb_array"

    def __init__(self, observation_space, timesteps, pictures=None):
        self.observation_space = to_gymnasium(observation_space)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.timesteps, self.pictures = timesteps, pictures
        self.row = -1

    def reset(self, *, seed=None, options=None):
        if self.row + 1 >= len(
            self.timesteps.reward
        ):  # a wrapper reset it to look at an observation
            self.row = -1
        self.row += 1
        return self._at(self.timesteps.observation), {}

    def step(self, action):
        self.row += 1
        flags = bool(self._at(self.timesteps.terminated)), bool(self._at(self.timesteps.truncated))
        return (
            self._at(self.timesteps.observation),
            float(self._at(self.timesteps.reward)),
            *flags,
            {},
        )

    def render(self):
        return self.pictures[max(self.row, 0)]

    def _at(self, tree):
        return jax.tree.map(lambda leaf: leaf[self.row], tree)


def assert_as_in_gymnasium(wrap, gym_wrap, env, *, atol=0, num_steps=24):
    """Checks that the observations equal those of Gymnasium's wrapper on the same episodes."""
    recorded = [
        jax.device_get(
            record(jaxenvs.vectorize(each, N, autoreset_mode="next_step", reset_chunk=N), num_steps)
        )
        for each in (env, wrap(env))
    ]
    for instance in range(N):
        raw, ours = (jax.tree.map(lambda leaf, i=instance: leaf[:, i], tree) for tree in recorded)
        gym_env = gym_wrap(Tape(env.observation_space, raw))
        episodes = 0
        for row in range(num_steps + 1):
            if row == 0 or raw.terminated[row - 1] or raw.truncated[row - 1]:
                observation = gym_env.reset()[0]
                episodes += 1
            else:
                observation = gym_env.step(0)[0]
            expected = jax.tree.map(np.asarray, observation)
            got = jax.tree.map(lambda leaf, row=row: leaf[row], ours.observation)
            assert jax.tree.structure(got) == jax.tree.structure(expected)
            assert jax.tree.map(np.shape, got) == jax.tree.map(np.shape, expected)
            jax.tree.map(
                partial(np.testing.assert_allclose, rtol=0, atol=atol, err_msg=f"row {row}"),
                got,
                expected,
            )
        assert episodes > 2
