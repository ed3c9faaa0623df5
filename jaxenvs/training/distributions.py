"""Distributions over actions: direct formulas on the outputs of an actor.

Each class takes the network's outputs with any leading axes. `sample` and `mode` return the
*raw* action, which `log_prob` takes; `to_action` makes of it a member of the action space.
"""

import abc
import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxenvs import spaces
from jaxenvs.errors import TrainingError


class ActionDistribution(abc.ABC):
    """How an actor's outputs become actions of one space."""

    num_outputs: int  # what the network must deliver for one observation
    num_parameters: int = 0  # learned numbers that do not depend on the observation

    @abc.abstractmethod
    def sample(self, outputs: jax.Array, parameters: jax.Array, key: chex.PRNGKey) -> jax.Array:
        """Draws raw actions, one for each of `outputs`, float32[..., num_outputs]."""

    @abc.abstractmethod
    def mode(self, outputs: jax.Array) -> jax.Array:
        """The most likely raw actions."""

    @abc.abstractmethod
    def log_prob_and_entropy(
        self, outputs: jax.Array, parameters: jax.Array, action: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """float32[...] each: log-probability of the raw `action`, and the entropy."""

    @abc.abstractmethod
    def to_action(self, action: jax.Array) -> jax.Array:
        """A raw action as a member of the space."""


class Categorical(ActionDistribution):
    """One choice out of n; the outputs are logits. Raw actions are int32[...] from 0."""

    def __init__(self, space: spaces.Discrete) -> None:
        self.num_outputs, self._start = space.n, space.start

    def sample(self, outputs, parameters, key):
        return jax.random.categorical(key, outputs).astype(jnp.int32)

    def mode(self, outputs):
        return jnp.argmax(outputs, axis=-1).astype(jnp.int32)

    def log_prob_and_entropy(self, outputs, parameters, action):
        return _log_prob_and_entropy(outputs, action)

    def to_action(self, action):
        return action + self._start


class MultiCategorical(ActionDistribution):
    """Several independent choices, one for each element of a flat `MultiDiscrete`."""

    def __init__(self, space: spaces.MultiDiscrete) -> None:
        self._sizes = [int(n) for n in space.nvec.ravel()]
        self._shape = space.nvec.shape
        self._start = np.asarray(space.start, np.int32)
        self.num_outputs = sum(self._sizes)

    def sample(self, outputs, parameters, key):
        keys = jax.random.split(key, len(self._sizes))
        logits = self._split(outputs)
        draws = [jax.random.categorical(k, part) for k, part in zip(keys, logits, strict=True)]
        return jnp.stack(draws, axis=-1).astype(jnp.int32)

    def mode(self, outputs):
        choices = [jnp.argmax(part, axis=-1) for part in self._split(outputs)]
        return jnp.stack(choices, axis=-1).astype(jnp.int32)

    def log_prob_and_entropy(self, outputs, parameters, action):
        parts = [
            _log_prob_and_entropy(part, action[..., i])
            for i, part in enumerate(self._split(outputs))
        ]
        log_probs, entropies = (jnp.stack(part, axis=-1) for part in zip(*parts, strict=True))
        return log_probs.sum(-1), entropies.sum(-1)

    def to_action(self, action):
        action = action.reshape((*action.shape[:-1], *self._shape))
        return action + self._start.reshape((1,) * (action.ndim - self._start.ndim) + self._shape)

    def _split(self, outputs: jax.Array) -> list[jax.Array]:
        return jnp.split(outputs, np.cumsum(self._sizes)[:-1], axis=-1)


class DiagonalGaussian(ActionDistribution):
    """Independent normals around the outputs, with learned deviations common to all observations.

    The raw action lives in units of the space: -1 is `low` and 1 is `high` of a bounded `Box`.
    `to_action` clips it there, while `log_prob` sees it unclipped, so no correction is needed; an
    unbounded `Box` takes raw actions as they are.
    """

    def __init__(self, space: spaces.Box) -> None:
        self.num_outputs = self.num_parameters = math.prod(space.shape)
        self._shape = space.shape
        self._low, self._high = (space.low, space.high) if _is_bounded(space) else (None, None)

    def sample(self, outputs, parameters, key):
        noise = jax.random.normal(key, outputs.shape, outputs.dtype)
        return outputs + jnp.exp(_expand(parameters, outputs)) * noise

    def mode(self, outputs):
        return outputs

    def log_prob_and_entropy(self, outputs, parameters, action):
        log_std = _expand(parameters, outputs)
        z = (action - outputs) * jnp.exp(-log_std)
        log_prob = -0.5 * z**2 - log_std - 0.5 * math.log(2 * math.pi)
        entropy = jnp.broadcast_to(log_std, outputs.shape) + 0.5 * math.log(2 * math.pi * math.e)
        return log_prob.sum(-1), entropy.sum(-1)

    def to_action(self, action):
        action = action.reshape((*action.shape[:-1], *self._shape))
        if self._low is None or self._high is None:
            return action
        unit = jnp.clip(action, -1.0, 1.0)
        low, high = (_expand(jnp.asarray(x, unit.dtype), unit) for x in (self._low, self._high))
        return jnp.clip(low + 0.5 * (unit + 1.0) * (high - low), low, high)


def distribution_for(space: spaces.Space) -> ActionDistribution:
    """Chooses the distribution for an action space of one instance.

    Raises:
        TrainingError: the space is none of Discrete, MultiDiscrete and float Box.
    """
    if isinstance(space, spaces.Discrete):
        return Categorical(space)
    if isinstance(space, spaces.MultiDiscrete):
        return MultiCategorical(space)
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        return DiagonalGaussian(space)
    raise TrainingError(
        f"the actor got the action space {space!r}; it acts in Discrete, MultiDiscrete or a Box of"
        " floats.  Wrap the environment so that its actions are one of these."
    )


def _is_bounded(space: spaces.Box) -> bool:
    if any(isinstance(bound, Tracer) for bound in (space.low, space.high)):
        return True  # bounds that are mapped or differentiated over are numbers, not infinities
    return bool(np.isfinite(space.low).all() and np.isfinite(space.high).all())


def _log_prob_and_entropy(logits: jax.Array, action: jax.Array) -> tuple[jax.Array, jax.Array]:
    log_probs = logits - jax.nn.logsumexp(logits, axis=-1, keepdims=True)
    # A comparison instead of a gather: its gradient is a product, not a scatter.
    chosen = jax.nn.one_hot(action, logits.shape[-1], dtype=logits.dtype)
    log_prob = jnp.sum(log_probs * chosen, axis=-1)
    return log_prob, -jnp.sum(jnp.exp(log_probs) * log_probs, axis=-1)


def _expand(x: jax.Array, like: jax.Array) -> jax.Array:
    return x.reshape((1,) * (like.ndim - x.ndim) + x.shape)
