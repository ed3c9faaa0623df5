"""Helpers for the tests of action, reward and statistics wrappers."""

from functools import partial

import chex
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

import jaxenvs
from jaxenvs import spaces, struct
from jaxenvs.core import Environment, TimeStep
from tests.opaque import OpaqueVectorEnv

MODES = ("same_step", "next_step", "disabled")
N = 3
LOW, HIGH = np.array([-2.0, 0.5], np.float32), np.array([1.0, 3.0], np.float32)


@chex.dataclass(frozen=True)
class EchoState:
    count: jax.Array
    length: jax.Array


class Echo(Environment[EchoState]):
    """An environment that echoes its actions and ends after 2 to 5 steps.

    The observation is the action and the step count. The reward is 10 times the sum of the action,
    rounded to an integer so that all programs agree, plus noise from the key of the step.
    """

    gravity: float = 9.8  # a parameter for tests of replace
    noise: float = struct.static(0.0)

    @property
    def observation_space(self):
        return spaces.Box(-np.inf, np.inf, (3,))

    @property
    def action_space(self):
        return spaces.Box(LOW, HIGH)

    def reset(self, key):
        length = jax.random.randint(key, (), 2, 6, jnp.int32)
        return EchoState(count=jnp.int32(0), length=length), TimeStep.first(
            jnp.zeros(3, jnp.float32)
        )

    def step(self, state, action, key):
        count = state.count + 1
        observation = jnp.append(action, count.astype(jnp.float32))
        reward = jnp.round(10 * action.sum()) + (
            self.noise * jax.random.normal(key, (), jnp.float32) if self.noise else 0.0
        )
        over = count >= state.length
        return EchoState(count=count, length=state.length), TimeStep.transition(
            observation,
            reward=reward,
            terminated=over & (state.length < 4),
            truncated=over & (state.length >= 4),
        )


class GymEcho(gymnasium.Env):
    """`Echo` in Gymnasium, with given episode lengths."""

    def __init__(self, lengths):
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.action_space = gymnasium.spaces.Box(LOW, HIGH)
        self.lengths = list(lengths)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.length, self.count = self.lengths.pop(0), 0
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self.count += 1
        observation = np.append(action, self.count).astype(np.float32)
        over = self.count >= self.length
        short = self.length < 4
        reward = float(np.round(10 * np.sum(action)))
        return observation, reward, over and short, over and not short, {}


@partial(jax.jit, static_argnums=1)
def play(vector_env, num_steps):
    """Returns random actions, [T, N], and the timesteps including the reset, [T + 1, N]."""

    def step(state, key):
        action = vector_env.action_space.sample(key)
        state, timestep = vector_env.step(state, action, jax.random.fold_in(key, 1))
        return state, (action, timestep)

    state, first = vector_env.reset(jax.random.key(8))
    _, (actions, later) = jax.lax.scan(step, state, jax.random.split(jax.random.key(7), num_steps))
    return actions, jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), first, later)


def play_both(wrap, mode, env=None, num_steps=24):
    """Calls `play` with accessible and opaque instances and checks that the bits are equal."""
    vector_env = jaxenvs.vectorize(
        Echo() if env is None else env, N, autoreset_mode=mode, reset_chunk=N
    )
    played, others = (
        play(e.wrap(wrap), num_steps) for e in (vector_env, OpaqueVectorEnv(vector_env))
    )
    chex.assert_trees_all_equal(played, others)
    return jax.tree.map(np.asarray, played)


def episodes_of(actions, timesteps, i, mode):
    """Splits the steps of instance i into finished episodes of (action, timestep) pairs.

    Steps that only reset, and steps of instances that stay finished, are not part of an episode.
    """
    row, episodes = [], []
    was_done = False
    for t in range(len(actions)):
        timestep = jax.tree.map(lambda leaf, t=t: leaf[t + 1, i], timesteps)
        if mode == "same_step" or not was_done:
            row.append((actions[t, i], timestep))
        was_done = bool(timestep.terminated | timestep.truncated)
        if was_done and row:
            episodes.append(row)
            row = []
    return episodes


def assert_as_in_gymnasium(wrap, gym_wrap, mode, *, rtol=1e-5):
    """Compares a batch with Gymnasium for the same actions, episode by episode."""
    actions, timesteps = play_both(wrap, mode)
    finished = 0
    for i in range(N):
        episodes = episodes_of(actions, timesteps, i, mode)
        gym_env = gym_wrap(GymEcho([int(row[-1][1].final_observation[2]) for row in episodes]))
        for episode in episodes:
            gym_env.reset()
            for action, timestep in episode:
                observation, reward, terminated, truncated, _ = gym_env.step(action)
                np.testing.assert_allclose(timestep.final_observation, observation, rtol)
                np.testing.assert_allclose(timestep.reward, reward, rtol, 1e-5)
                assert (timestep.terminated, timestep.truncated) == (terminated, truncated)
        finished += len(episodes)
    assert finished >= (N if mode == "disabled" else 2 * N)
