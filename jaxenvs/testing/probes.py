"""Tiny tasks whose values are known in closed form; each asks for one ability of a learner.

A learner that fails the first few of them has a fault that no tuning will mend, and which one it
fails says where to look. The idea is Andy Jones' (Debugging Reinforcement Learning Systems, 2021).
"""

import abc

import chex
import jax
import jax.numpy as jnp

from jaxenvs import spaces
from jaxenvs.core import Environment, TimeStep


@chex.dataclass(frozen=True)
class ProbeState:
    cue: jax.Array  # float32[], what the observation shows


class Probe(Environment[ProbeState]):
    """What the probes share: one number to see, two actions, and the answers.

    Observation: float32[1], the cue
    Action: int32[], one of two
    """

    @property
    def observation_space(self) -> spaces.Box:
        return spaces.Box(-1.0, 1.0, (1,))

    @property
    def action_space(self) -> spaces.Discrete:
        return spaces.Discrete(2)

    @abc.abstractmethod
    def optimal_value(self, observation: chex.Array, gamma: chex.Numeric) -> jax.Array:
        """The discounted return of the best policy: `float32[..., 1] -> float32[...]`."""

    def optimal_action(self, observation: chex.Array) -> jax.Array:
        """The best action, or -1 where both are as good: `float32[..., 1] -> int32[...]`."""
        return jnp.full(observation.shape[:-1], -1, jnp.int32)

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


class PolicyProbe(Probe):
    """One step, reward 1 for action 1 and -1 for action 0: do advantages reach the policy?"""

    def reset(self, key: chex.PRNGKey) -> tuple[ProbeState, TimeStep]:
        del key  # every episode is the same
        return self._first(0.0)

    def step(
        self, state: ProbeState, action: jax.Array, key: chex.PRNGKey
    ) -> tuple[ProbeState, TimeStep]:
        del key  # the action alone decides
        return self._last(state, jnp.where(action == 1, 1.0, -1.0))

    def optimal_value(self, observation: chex.Array, gamma: chex.Numeric) -> jax.Array:
        del gamma  # one step, undiscounted
        return jnp.ones(observation.shape[:-1], jnp.float32)

    def optimal_action(self, observation: chex.Array) -> jax.Array:
        return jnp.ones(observation.shape[:-1], jnp.int32)


class PolicyObservationProbe(Probe):
    """One step, reward 1 if the action answers the cue, else -1: policy and critic together.

    Action 1 answers cue 1, action 0 answers cue -1.
    """

    def reset(self, key: chex.PRNGKey) -> tuple[ProbeState, TimeStep]:
        return self._first(jax.random.rademacher(key, (), jnp.float32))

    def step(
        self, state: ProbeState, action: jax.Array, key: chex.PRNGKey
    ) -> tuple[ProbeState, TimeStep]:
        del key  # cue and action decide
        answers = (action == 1) == (state.cue > 0)
        return self._last(state, jnp.where(answers, 1.0, -1.0))

    def optimal_value(self, observation: chex.Array, gamma: chex.Numeric) -> jax.Array:
        del gamma  # one step, undiscounted
        return jnp.ones(observation.shape[:-1], jnp.float32)

    def optimal_action(self, observation: chex.Array) -> jax.Array:
        return (jnp.asarray(observation[..., 0]) > 0).astype(jnp.int32)


PROBES = (ValueProbe, ObservationProbe, DiscountProbe, PolicyProbe, PolicyObservationProbe)
