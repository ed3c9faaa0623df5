"""Tiny tasks with values in closed form; each tests one ability of a learning algorithm.

An algorithm that fails one of these has a bug that tuning cannot fix, and the failed task indicates
where to look. The idea is from Andy Jones, Debugging Reinforcement Learning Systems, 2021.
"""

import chex
import jax
import jax.numpy as jnp

from jaxenvs import spaces, struct
from jaxenvs.core import Environment, TimeStep


@chex.dataclass(frozen=True)
class ProbeState:
    cue: jax.Array  # float32[], shown by the observation


class Probe(Environment[ProbeState]):
    """The base class of probes: an agent observes a cue and pushes left or right.

    By default there is one step, with reward 1, after the cue 0.

    Observation: float32[1], the cue
    Action: int32[], 0 for a push of -1 and 1 for a push of 1; if `continuous`, float32[1], the push
    """

    continuous: bool = struct.static(False)

    @property
    def observation_space(self) -> spaces.Box:
        return spaces.Box(-1.0, 1.0, (1,))

    @property
    def action_space(self) -> spaces.Discrete | spaces.Box:
        return spaces.Box(-1.0, 1.0, (1,)) if self.continuous else spaces.Discrete(2)

    def reset(self, key: chex.PRNGKey) -> tuple[ProbeState, TimeStep]:
        cue = jnp.asarray(self._first_cue(key), jnp.float32)
        return ProbeState(cue=cue), TimeStep.first(cue[None])

    def step(
        self, state: ProbeState, action: jax.Array, key: chex.PRNGKey
    ) -> tuple[ProbeState, TimeStep]:
        del key  # steps are deterministic
        reward = self._reward(state.cue, action)
        return state, TimeStep.transition(state.cue[None], reward=reward, terminated=True)

    def push(self, action: jax.Array) -> jax.Array:
        """Returns the push of each action, float32[...] from -1 to 1."""
        return action[..., 0] if self.continuous else 2 * action.astype(jnp.float32) - 1

    def optimal_value(self, observation: chex.Array, gamma: chex.Numeric) -> jax.Array:
        """Returns the discounted return of the optimal policy: float32[..., 1] -> float32[...]."""
        del gamma  # one step, undiscounted
        return jnp.ones(observation.shape[:-1], jnp.float32)

    def optimal_push(self, observation: chex.Array) -> jax.Array:
        """Returns the optimal push, or 0 if all are optimal: float32[..., 1] -> float32[...]."""
        return jnp.zeros(observation.shape[:-1], jnp.float32)

    def _first_cue(self, key: chex.PRNGKey) -> chex.Numeric:
        del key  # every episode is the same
        return 0.0

    def _reward(self, cue: jax.Array, action: jax.Array) -> chex.Numeric:
        del cue, action  # the reward is constant
        return 1.0


class ValueProbe(Probe):
    """One step, a constant observation, reward 1. Can the critic learn a constant?"""


class ObservationProbe(Probe):
    """One step, reward equal to the cue of -1 or 1. Does the critic use the observation?"""

    def _first_cue(self, key: chex.PRNGKey) -> jax.Array:
        return jax.random.rademacher(key, (), jnp.float32)

    def _reward(self, cue: jax.Array, action: jax.Array) -> jax.Array:
        del action  # the reward depends on the cue only
        return cue

    def optimal_value(self, observation: chex.Array, gamma: chex.Numeric) -> jax.Array:
        del gamma  # one step, undiscounted
        return jnp.asarray(observation[..., 0])


class DiscountProbe(Probe):
    """Two steps, reward 1 after the second. Is the next value bootstrapped and discounted?

    The cue is 0 at the start and 1 after the first step. The values are gamma and 1.
    """

    def step(
        self, state: ProbeState, action: jax.Array, key: chex.PRNGKey
    ) -> tuple[ProbeState, TimeStep]:
        del action, key  # the reward depends on time only
        second = state.cue > 0
        state = ProbeState(cue=jnp.ones_like(state.cue))
        return state, TimeStep.transition(
            state.cue[None], reward=second.astype(jnp.float32), terminated=second
        )

    def optimal_value(self, observation: chex.Array, gamma: chex.Numeric) -> jax.Array:
        return jnp.where(observation[..., 0] > 0, 1, jnp.asarray(gamma, jnp.float32))


class TruncationProbe(Probe):
    """Endless rewards, but truncated every two steps. Is the value at a truncation bootstrapped?

    The cue is -1 at the start, where the reward is 0, and 1 from then on, where the reward is 1;
    nothing terminates. The values are gamma / (1 - gamma) and 1 / (1 - gamma). A learner that
    treats truncation as termination gets gamma and 1. One that bootstraps from the first
    observation of the next episode gets gamma / (1 - gamma^2) and 1 / (1 - gamma^2).
    """

    def _first_cue(self, key: chex.PRNGKey) -> float:
        del key  # every episode is the same
        return -1.0

    def step(
        self, state: ProbeState, action: jax.Array, key: chex.PRNGKey
    ) -> tuple[ProbeState, TimeStep]:
        del action, key  # the reward depends on time only
        later = state.cue > 0
        state = ProbeState(cue=jnp.ones_like(state.cue))
        return state, TimeStep.transition(
            state.cue[None],
            reward=later.astype(jnp.float32),
            terminated=False,
            truncated=later,
        )

    def optimal_value(self, observation: chex.Array, gamma: chex.Numeric) -> jax.Array:
        after = 1 / (1 - jnp.asarray(gamma, jnp.float32))
        return jnp.where(observation[..., 0] > 0, after, gamma * after)


class PolicyProbe(Probe):
    """One step, reward equal to the push. Do advantages reach the policy?"""

    def _reward(self, cue: jax.Array, action: jax.Array) -> jax.Array:
        del cue  # the reward depends on the action only
        return self.push(action)

    def optimal_push(self, observation: chex.Array) -> jax.Array:
        return jnp.ones(observation.shape[:-1], jnp.float32)


class PolicyObservationProbe(Probe):
    """One step, reward equal to the push times the cue of -1 or 1. Do policy and critic work?"""

    def _first_cue(self, key: chex.PRNGKey) -> jax.Array:
        return jax.random.rademacher(key, (), jnp.float32)

    def _reward(self, cue: jax.Array, action: jax.Array) -> jax.Array:
        return self.push(action) * cue

    def optimal_push(self, observation: chex.Array) -> jax.Array:
        return jnp.asarray(observation[..., 0])


PROBES = (
    ValueProbe,
    ObservationProbe,
    DiscountProbe,
    TruncationProbe,
    PolicyProbe,
    PolicyObservationProbe,
)
