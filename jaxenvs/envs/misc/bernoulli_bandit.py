"""A bandit with two arms that pay with different probabilities."""

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import spaces, struct
from jaxenvs.core import Environment, TimeStep
from jaxenvs.envs.misc._shared import clock, draw_bandit, one_hot


@chex.dataclass(frozen=True)
class BernoulliBanditState:
    """The probability of a reward, and what the agent remembers of the last step."""

    probability: jax.Array  # float32[], that arm 0 pays; arm 1 pays with 1 - probability
    last_action: jax.Array  # int32[]
    last_reward: jax.Array  # float32[]
    time: jax.Array  # int32[], steps since reset


class BernoulliBandit(Environment[BernoulliBanditState]):
    """Find out which of two arms pays more often, and pull it.

    Observation: float32[4]
        0  the last reward
        1  1 if the last action was arm 0, or at the start
        2  1 if the last action was arm 1
        3  the time, from min_lim to max_lim after t_max steps; without `normalize_time`, in steps
    Action: int32[], the arm to pull
    Reward: 1 with the arm's probability, otherwise 0
    Start: one arm, drawn uniformly, pays with probability reward_prob, the other 1 - reward_prob
    Terminates: never
    Time limit: none here; `BernoulliBandit-misc` is registered with 100 steps

    Source: J. X. Wang et al., Learning to reinforcement learn, 2017, as gymnax's BernoulliBandit
    (tests/parity/test_certificates.py). One of gymnax's errors is mended: rewards are floats.
    """

    reward_prob: float = 0.1  # probability that one of the arms pays
    normalize_time: bool = struct.static(True)  # observe the time from min_lim to max_lim
    min_lim: float = -1.0  # normalized time at the start
    max_lim: float = 1.0  # normalized time after t_max steps
    t_max: float = 100.0  # number of steps after which a normalized time is max_lim

    @property
    def observation_space(self) -> spaces.Box:
        return spaces.Box([0.0, 0.0, 0.0, -np.inf], [1.0, 1.0, 1.0, np.inf])

    @property
    def action_space(self) -> spaces.Discrete:
        return spaces.Discrete(2)

    def reset(self, key: chex.PRNGKey) -> tuple[BernoulliBanditState, TimeStep]:
        first = jnp.asarray(self.reward_prob, jnp.float32)
        state = BernoulliBanditState(
            probability=jnp.where(jax.random.bernoulli(key, np.float32(0.5)), first, 1 - first),
            last_action=jnp.int32(0),
            last_reward=jnp.float32(0),
            time=jnp.int32(0),
        )
        return state, TimeStep.first(self._observe(state))

    def draw(self, state: BernoulliBanditState, key: chex.PRNGKey) -> jax.Array:
        """Draws a uniform number, float32[]. An arm pays if it is below the arm's probability."""
        del state
        return jax.random.uniform(key, (), jnp.float32)

    def apply(
        self, state: BernoulliBanditState, action: chex.Array, draws: jax.Array
    ) -> tuple[BernoulliBanditState, TimeStep]:
        """Takes a step with the results of `draw`."""
        action = jnp.asarray(action, jnp.int32)
        probability = jnp.where(action == 0, state.probability, 1 - state.probability)
        reward = (draws < probability).astype(jnp.float32)
        state = BernoulliBanditState(
            probability=state.probability,
            last_action=action,
            last_reward=reward,
            time=state.time + 1,
        )
        return state, TimeStep.transition(self._observe(state), reward=reward, terminated=False)

    def step(
        self, state: BernoulliBanditState, action: chex.Array, key: chex.PRNGKey
    ) -> tuple[BernoulliBanditState, TimeStep]:
        return self.apply(state, action, self.draw(state, key))

    def render(self, state: BernoulliBanditState) -> jax.Array:
        """Draws the probabilities as bars and a dot for the last reward: uint8[160, 160, 3]."""
        bars = jnp.stack([state.probability, 1 - state.probability])
        return draw_bandit(bars, state.last_action, state.last_reward)

    def _observe(self, state: BernoulliBanditState) -> jax.Array:
        time = state.time.astype(jnp.float32)
        if self.normalize_time:
            time = clock(state.time, self.t_max, self.min_lim, self.max_lim)
        action = one_hot(state.last_action, 2)
        return jnp.stack([state.last_reward, action[0], action[1], time])
