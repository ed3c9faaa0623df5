"""A bandit with one safe arm and one that pays normally distributed rewards."""

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import spaces, struct
from jaxenvs.core import Environment, TimeStep
from jaxenvs.envs.misc._shared import clock, draw_bandit, one_hot


@chex.dataclass(frozen=True)
class GaussianBanditState:
    """The mean reward of arm 1, and what the agent remembers of the last step."""

    mu: jax.Array  # float32[]
    last_action: jax.Array  # int32[]
    last_reward: jax.Array  # float32[]
    time: jax.Array  # int32[], steps since reset


class GaussianBandit(Environment[GaussianBanditState]):
    """Find out whether an arm pays more than nothing on average, and pull it only then.

    Observation: float32[4]
        0  the last reward
        1  1 if the last action was arm 0, or at the start
        2  1 if the last action was arm 1
        3  the time, from -1 to 1 after t_max steps; without `normalize_time`, in steps
    Action: int32[], the arm to pull
    Reward: 0 from arm 0; from arm 1, normal with mean mu and standard deviation sigma_l
    Start: mu normal with mean mean_mu and standard deviation sigma_p
    Terminates: never
    Time limit: none here; `GaussianBandit-misc` is registered with 100 steps

    Source: R. T. Lange, H. Sprekeler, Learning not to learn, 2022, as gymnax's GaussianBandit
    (tests/parity/test_certificates.py). One of gymnax's errors is mended: its observation space
    does not contain its rewards and times.
    """

    mean_mu: float = -1.0  # mean of arm 1 over episodes
    sigma_p: float = 1.0  # standard deviation of arm 1's mean over episodes
    sigma_l: float = 0.1  # standard deviation of arm 1's rewards within an episode
    normalize_time: bool = struct.static(True)  # observe the time from -1 to 1
    t_max: float = 100.0  # number of steps after which a normalized time is 1

    @property
    def observation_space(self) -> spaces.Box:
        start = -1.0 if self.normalize_time else 0.0
        return spaces.Box([-np.inf, 0.0, 0.0, start], [np.inf, 1.0, 1.0, np.inf])

    @property
    def action_space(self) -> spaces.Discrete:
        return spaces.Discrete(2)

    def reset(self, key: chex.PRNGKey) -> tuple[GaussianBanditState, TimeStep]:
        state = GaussianBanditState(
            mu=self.mean_mu + self.sigma_p * jax.random.normal(key, (), jnp.float32),
            last_action=jnp.int32(0),
            last_reward=jnp.float32(0),
            time=jnp.int32(0),
        )
        return state, TimeStep.first(self._observe(state))

    def draw(self, state: GaussianBanditState, key: chex.PRNGKey) -> jax.Array:
        """Draws arm 1's deviation from its mean in units of sigma_l: float32[]."""
        del state
        return jax.random.normal(key, (), jnp.float32)

    def apply(
        self, state: GaussianBanditState, action: chex.Array, draws: jax.Array
    ) -> tuple[GaussianBanditState, TimeStep]:
        """Takes a step with the results of `draw`."""
        action = jnp.asarray(action, jnp.int32)
        reward = jnp.where(action == 0, 0.0, state.mu + draws * self.sigma_l)
        state = GaussianBanditState(
            mu=state.mu, last_action=action, last_reward=reward, time=state.time + 1
        )
        return state, TimeStep.transition(self._observe(state), reward=reward, terminated=False)

    def step(
        self, state: GaussianBanditState, action: chex.Array, key: chex.PRNGKey
    ) -> tuple[GaussianBanditState, TimeStep]:
        return self.apply(state, action, self.draw(state, key))

    def render(self, state: GaussianBanditState) -> jax.Array:
        """Draws mean rewards from -3 to 1 as bars, a dot for the last one: uint8[160, 160, 3]."""
        bars = (jnp.stack([jnp.zeros_like(state.mu), state.mu]) + 3) / 4
        return draw_bandit(bars, state.last_action, (state.last_reward + 3) / 4)

    def _observe(self, state: GaussianBanditState) -> jax.Array:
        time = state.time.astype(jnp.float32)
        if self.normalize_time:
            time = clock(state.time, self.t_max)
        action = one_hot(state.last_action, 2)
        return jnp.stack([state.last_reward, action[0], action[1], time])
