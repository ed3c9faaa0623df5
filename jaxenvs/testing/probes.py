"""Tiny tasks whose values are known in closed form; each asks for one ability of a learner.

A learner that fails the first few of them has a fault that no tuning will mend, and which one it
fails says where to look. The idea is Andy Jones' (Debugging Reinforcement Learning Systems, 2021).
"""

import abc

import chex
import jax
import jax.numpy as jnp

from jaxenvs import spaces, struct
from jaxenvs.core import Environment, TimeStep


@chex.dataclass(frozen=True)
class ProbeState:
    cue: jax.Array  # float32[], what the observation shows


class Probe(Environment[ProbeState]):
    """What the probes share: one number to see, a push to the left or right, and the answers.

    Observation: float32[1], the cue
    Action: int32[], 0 pushes by -1 and 1 by 1; if `continuous` float32[1], the push itself
    """

    continuous: bool = struct.static(False)

    @property
    def observation_space(self) -> spaces.Box:
        return spaces.Box(-1.0, 1.0, (1,))

    @property
    def action_space(self) -> spaces.Discrete | spaces.Box:
        return spaces.Box(-1.0, 1.0, (1,)) if self.continuous else spaces.Discrete(2)

    def push(self, action: jax.Array) -> jax.Array:
        """Which way actions push, and how far: float32[...] from -1 to 1."""
        return action[..., 0] if self.continuous else 2 * action.astype(jnp.float32) - 1

    @abc.abstractmethod
    def optimal_value(self, observation: chex.Array, gamma: chex.Numeric) -> jax.Array:
        """The discounted return of the best policy: `float32[..., 1] -> float32[...]`."""

    def optimal_push(self, observation: chex.Array) -> jax.Array:
        """The best push, or 0 where all are as good: `float32[..., 1] -> float32[...]`."""
        return jnp.zeros(observation.shape[:-1], jnp.float32)

    def _first(self, cue: chex.Numeric) -> tuple[ProbeState, TimeStep]:
        state = ProbeState(cue=jnp.asarray(cue, jnp.float32))
        return state, TimeStep.first(state.cue[None])

    def _last(self, state: ProbeState, reward: chex.Numeric) -> tuple[ProbeState, TimeStep]:
        return state, TimeStep.transition(state.cue[None], reward=reward, terminated=True)


class ValueProbe(Probe):
    """One step, nothing to see, reward 1: can the critic learn a constant?"""

    def reset(self, key: chex.PRNGKey) -> tuple[ProbeState, TimeStep]:
        del key  # every episode is the same
        return self._first(0.0)

    def step(
        self, state: ProbeState, action: jax.Array, key: chex.PRNGKey
    ) -> tuple[ProbeState, TimeStep]:
        del action, key  # nothing matters
        return self._last(state, 1.0)

    def optimal_value(self, observation: chex.Array, gamma: chex.Numeric) -> jax.Array:
        del gamma  # one step, undiscounted
        return jnp.ones(observation.shape[:-1], jnp.float32)


class ObservationProbe(Probe):
    """One step, reward equal to the cue of -1 or 1: does the critic look at the observation?"""

    def reset(self, key: chex.PRNGKey) -> tuple[ProbeState, TimeStep]:
        return self._first(jax.random.rademacher(key, (), jnp.float32))

    def step(
        self, state: ProbeState, action: jax.Array, key: chex.PRNGKey
    ) -> tuple[ProbeState, TimeStep]:
        del action, key  # the cue alone decides
        return self._last(state, state.cue)

    def optimal_value(self, observation: chex.Array, gamma: chex.Numeric) -> jax.Array:
        del gamma  # one step, undiscounted
        return jnp.asarray(observation[..., 0])


class DiscountProbe(Probe):
    """Two steps, reward 1 after the second: is the next value bootstrapped and discounted?

    The cue is 0 at the start and 1 after the first step, so the values are gamma and 1.
    """

    def reset(self, key: chex.PRNGKey) -> tuple[ProbeState, TimeStep]:
        del key  # every episode is the same
        return self._first(0.0)

    def step(
        self, state: ProbeState, action: jax.Array, key: chex.PRNGKey
    ) -> tuple[ProbeState, TimeStep]:
        del action, key  # time alone decides
        second = state.cue > 0
        state = ProbeState(cue=jnp.ones_like(state.cue))
        return state, TimeStep.transition(
            state.cue[None], reward=second.astype(jnp.float32), terminated=second
        )

    def optimal_value(self, observation: chex.Array, gamma: chex.Numeric) -> jax.Array:
        return jnp.where(observation[..., 0] > 0, 1, jnp.asarray(gamma, jnp.float32))


class TruncationProbe(Probe):
    """Rewards for ever, but cut every two steps: is the step after a cut bootstrapped?

    The cue is -1 at the start, where a step pays nothing, and 1 from then on, where each pays 1;
    nothing terminates. The values are gamma / (1 - gamma) and 1 / (1 - gamma). Who takes the cut
    for an end arrives at gamma and 1; who looks at the first observation of the next episode, at
    gamma / (1 - gamma^2) and 1 / (1 - gamma^2).
    """

    def reset(self, key: chex.PRNGKey) -> tuple[ProbeState, TimeStep]:
        del key  # every episode is the same
        return self._first(-1.0)

    def step(
        self, state: ProbeState, action: jax.Array, key: chex.PRNGKey
    ) -> tuple[ProbeState, TimeStep]:
        del action, key  # time alone decides
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
    """One step, which pays the push: do advantages reach the policy?"""

    def reset(self, key: chex.PRNGKey) -> tuple[ProbeState, TimeStep]:
        del key  # every episode is the same
        return self._first(0.0)

    def step(
        self, state: ProbeState, action: jax.Array, key: chex.PRNGKey
    ) -> tuple[ProbeState, TimeStep]:
        del key  # the action alone decides
        return self._last(state, self.push(action))

    def optimal_value(self, observation: chex.Array, gamma: chex.Numeric) -> jax.Array:
        del gamma  # one step, undiscounted
        return jnp.ones(observation.shape[:-1], jnp.float32)

    def optimal_push(self, observation: chex.Array) -> jax.Array:
        return jnp.ones(observation.shape[:-1], jnp.float32)


class PolicyObservationProbe(Probe):
    """One step, which pays the push times the cue of -1 or 1: policy and critic together."""

    def reset(self, key: chex.PRNGKey) -> tuple[ProbeState, TimeStep]:
        return self._first(jax.random.rademacher(key, (), jnp.float32))

    def step(
        self, state: ProbeState, action: jax.Array, key: chex.PRNGKey
    ) -> tuple[ProbeState, TimeStep]:
        del key  # cue and action decide
        return self._last(state, self.push(action) * state.cue)

    def optimal_value(self, observation: chex.Array, gamma: chex.Numeric) -> jax.Array:
        del gamma  # one step, undiscounted
        return jnp.ones(observation.shape[:-1], jnp.float32)

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
