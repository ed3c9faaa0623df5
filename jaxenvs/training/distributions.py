"""Distributions over actions: direct formulas on the outputs of an actor.

Each class takes the network's outputs with any leading axes. `sample` and `mode` return the
*raw* action, which `log_prob_and_entropy` takes; `to_action` makes of it a member of the action
space. Choices that are not allowed are masked in the outputs, before anything else is done with
them, by `masked`.
"""

import abc
import math
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxenvs import prng, spaces
from jaxenvs.errors import TrainingError, describe

# The logit of a masked choice: far below any other, so that its probability is 0 in floats, and
# far from overflow, whose product with that 0 would be NaN. float16 ends sooner.
MASKED = -1e9

# Up to so many choices a draw is written out choice by choice.
_UNROLLED_CHOICES = 32

# Bounds of a squashed Gaussian's log-deviation, those of the authors' implementation of T.
# Haarnoja et al., Soft Actor-Critic, 2018.
LOG_STD_RANGE = (-20.0, 2.0)

# The trapezoid rule for expectations under a standard normal. By it the entropy of a squashed
# Gaussian is off by 0.002 at the largest deviation and by less than 1e-6 up to deviation 2; as
# many Gauss-Hermite nodes are ten times worse.
_NODES = np.linspace(-6.0, 6.0, 49)
_WEIGHTS = np.exp(-0.5 * _NODES**2) / np.exp(-0.5 * _NODES**2).sum()


class ActionDistribution(abc.ABC):
    """A distribution over the actions of one space, given an actor's outputs."""

    num_outputs: int  # of the network, for one observation
    num_parameters: int = 0  # learned numbers that do not depend on the observation

    @abc.abstractmethod
    def sample(self, outputs: jax.Array, parameters: jax.Array, key: chex.PRNGKey) -> jax.Array:
        """Samples a raw action for each of `outputs`, float32[..., num_outputs]."""

    @abc.abstractmethod
    def mode(self, outputs: jax.Array) -> jax.Array:
        """Returns the most likely raw actions."""

    @abc.abstractmethod
    def log_prob_and_entropy(
        self, outputs: jax.Array, parameters: jax.Array, action: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Returns the log-probability of the raw `action` and the entropy, float32[...] each."""

    @abc.abstractmethod
    def to_action(self, action: jax.Array) -> jax.Array:
        """Returns a raw action as a member of the space."""

    def sample_and_log_prob(
        self, outputs: jax.Array, parameters: jax.Array, key: chex.PRNGKey
    ) -> tuple[jax.Array, jax.Array]:
        """Samples raw actions; also returns their log-probabilities, float32[...]."""
        action = self.sample(outputs, parameters, key)
        return action, self.log_prob_and_entropy(outputs, parameters, action)[0]

    def masked(self, outputs: jax.Array, mask: jax.Array | None) -> jax.Array:
        """Returns outputs under which forbidden choices have probability 0; None allows all.

        Raises:
            TrainingError: the mask does not fit, or these actions know none.
        """
        if mask is None:
            return outputs
        raise TrainingError(
            f"{type(self).__name__} got an action mask; only choices out of a Discrete or"
            " MultiDiscrete space can be masked.  Clip the action in the environment instead."
        )


class Categorical(ActionDistribution):
    """One choice out of n; the outputs are logits. Raw actions are int32[...] from 0."""

    def __init__(self, space: spaces.Discrete) -> None:
        self.num_outputs, self._start = space.n, space.start

    def sample(self, outputs, parameters, key):
        return _draw(
            outputs, jax.random.uniform(prng.as_fast_key(key), outputs.shape[:-1], outputs.dtype)
        )

    def mode(self, outputs):
        return jnp.argmax(outputs, axis=-1).astype(jnp.int32)

    def log_prob_and_entropy(self, outputs, parameters, action):
        return _log_prob_and_entropy(outputs, action)

    def log_probs(self, outputs: jax.Array) -> jax.Array:
        """Returns the log-probability of every choice, float32[..., n]."""
        return _log_softmax(outputs)

    def to_action(self, action):
        return action + self._start

    def masked(self, outputs: jax.Array, mask: jax.Array | None) -> jax.Array:
        return masked(outputs, mask)


class MultiCategorical(ActionDistribution):
    """Several independent choices, one for each element of a flat `MultiDiscrete`."""

    def __init__(self, space: spaces.MultiDiscrete) -> None:
        self._sizes = [int(n) for n in space.nvec.ravel()]
        self._shape = space.nvec.shape
        self._start = np.asarray(space.start, np.int32)
        self.num_outputs = sum(self._sizes)

    def sample(self, outputs, parameters, key):
        shape = (len(self._sizes), *outputs.shape[:-1])
        uniform = jax.random.uniform(prng.as_fast_key(key), shape, outputs.dtype)
        draws = [_draw(part, u) for part, u in zip(self._split(outputs), uniform, strict=True)]
        return jnp.stack(draws, axis=-1)

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

    def masked(self, outputs: jax.Array, mask: jax.Array | None) -> jax.Array:
        """Returns outputs under which choices outside of `mask` have probability 0, see `masked`.

        Args:
            outputs: float32[..., num_outputs].
            mask: bool, True where a choice is allowed: [..., num_outputs], the masks of all
                elements concatenated; or as `space.sample` takes it, [..., *space.shape,
                max(nvec)], also with these last axes flattened.
        """
        if mask is None:
            return outputs
        leading, size = outputs.shape[:-1], len(self._sizes) * max(self._sizes)
        if mask.size == math.prod(leading) * size and size != self.num_outputs:
            mask = mask.reshape((*leading, len(self._sizes), max(self._sizes)))
            parts = [mask[..., i, :n] for i, n in enumerate(self._sizes)]
            mask = jnp.concatenate(parts, axis=-1)
        elif size == self.num_outputs:
            mask = mask.reshape((*mask.shape[: len(leading)], -1))
        return masked(outputs, mask)

    def _split(self, outputs: jax.Array) -> list[jax.Array]:
        return jnp.split(outputs, np.cumsum(self._sizes)[:-1], axis=-1)


class Bernoulli(ActionDistribution):
    """Independent bits of a `MultiBinary`; the outputs are log-odds. Raw actions are int32."""

    def __init__(self, space: spaces.MultiBinary) -> None:
        self.num_outputs, self._shape = math.prod(space.shape), space.shape

    def sample(self, outputs, parameters, key):
        uniform = jax.random.uniform(prng.as_fast_key(key), outputs.shape, outputs.dtype)
        return (uniform < jax.nn.sigmoid(outputs)).astype(jnp.int32)

    def mode(self, outputs):
        return (outputs > 0).astype(jnp.int32)

    def log_prob_and_entropy(self, outputs, parameters, action):
        log_odds_of_zero = jax.nn.softplus(outputs)  # -log P(0)
        log_prob = action.astype(outputs.dtype) * outputs - log_odds_of_zero
        entropy = log_odds_of_zero - outputs * jax.nn.sigmoid(outputs)
        return log_prob.sum(-1), entropy.sum(-1)

    def to_action(self, action):
        return action.reshape((*action.shape[:-1], *self._shape)).astype(jnp.int8)


class DiagonalGaussian(ActionDistribution):
    """Independent normals around the outputs, with learned standard deviations for all states.

    In a `Box` that is bounded on all sides a raw action of -1 is `low` and 1 is `high`; any other
    `Box` has its own units. `to_action` clips to the bounds that there are, while `log_prob` sees
    the raw action, so no correction is needed.
    """

    def __init__(self, space: spaces.Box) -> None:
        self.num_outputs = self.num_parameters = math.prod(space.shape)
        self._shape = space.shape
        self._bounds, self._stretches = (space.low, space.high), _is_bounded(space)

    def sample(self, outputs, parameters, key):
        noise = jax.random.normal(prng.as_fast_key(key), outputs.shape, outputs.dtype)
        return outputs + jnp.exp(_expand(parameters, outputs)) * noise

    def mode(self, outputs):
        return outputs

    def log_prob_and_entropy(self, outputs, parameters, action):
        log_std = _expand(parameters, outputs)
        z = (action - outputs) * jnp.exp(-log_std)
        entropy = jnp.broadcast_to(log_std, outputs.shape) + 0.5 * math.log(2 * math.pi * math.e)
        return _normal_log_density(z, log_std).sum(-1), entropy.sum(-1)

    def to_action(self, action):
        if self._stretches:
            return _into_box(action, self._shape, *self._bounds)
        action = action.reshape((*action.shape[:-1], *self._shape))
        return jnp.clip(action, *_bounds_like(action, *self._bounds))


class SquashedGaussian(ActionDistribution):
    """Independent normals through tanh; mean and deviation depend on the observation.

    The outputs are A means and A log-deviations, these clipped to `LOG_STD_RANGE`. The raw
    action is the tanh, in (-1, 1), and log-probabilities are densities of it; `to_action`
    stretches it over the bounds of the `Box`, and a density over the box itself would be less by
    the constant sum of log((high - low) / 2).

    A draw is reparameterised: gradients flow through `sample` and `sample_and_log_prob`. The
    latter is exact; `log_prob_and_entropy` must recover the normal's draw from its tanh, which
    beyond 0.9999 loses digits. The entropy, which has no formula, is integrated numerically.

    Source: T. Haarnoja et al., Soft Actor-Critic, 2018, appendix C.

    Raises:
        TrainingError: the box is not bounded on all sides.
    """

    def __init__(self, space: spaces.Box) -> None:
        self._bounds = _bounds("SquashedGaussian", space)
        self._shape = space.shape
        self.num_outputs = 2 * math.prod(space.shape)

    def sample(self, outputs, parameters, key):
        mean, log_std = _mean_and_log_std(outputs)
        noise = jax.random.normal(prng.as_fast_key(key), mean.shape, mean.dtype)
        return jnp.tanh(mean + jnp.exp(log_std) * noise)

    def sample_and_log_prob(self, outputs, parameters, key):
        mean, log_std = _mean_and_log_std(outputs)
        noise = jax.random.normal(prng.as_fast_key(key), mean.shape, mean.dtype)
        draw = mean + jnp.exp(log_std) * noise
        log_prob = _normal_log_density(noise, log_std) - _log_slope_of_tanh(draw)
        return jnp.tanh(draw), log_prob.sum(-1)

    def mode(self, outputs):
        """Returns the tanh of the means: the medians of the actions."""
        return jnp.tanh(_mean_and_log_std(outputs)[0])

    def log_prob_and_entropy(self, outputs, parameters, action):
        mean, log_std = _mean_and_log_std(outputs)
        limit = 1.0 - float(jnp.finfo(action.dtype).eps)  # the tanh of a large draw rounds to 1
        draw = jnp.arctanh(jnp.clip(action, -limit, limit))
        z = (draw - mean) * jnp.exp(-log_std)
        log_prob = _normal_log_density(z, log_std) - _log_slope_of_tanh(draw)
        nodes, weights = _NODES.astype(mean.dtype), _WEIGHTS.astype(mean.dtype)
        draws = mean[..., None] + jnp.exp(log_std)[..., None] * _expand(nodes, mean[..., None])
        entropy = (
            log_std + 0.5 * math.log(2 * math.pi * math.e) + _log_slope_of_tanh(draws) @ weights
        )
        return log_prob.sum(-1), entropy.sum(-1)

    def to_action(self, action):
        return _into_box(action, self._shape, *self._bounds)


class Deterministic(ActionDistribution):
    """One action for each observation: the tanh of the outputs, stretched over a bounded `Box`.

    The raw action lies in (-1, 1); noise for exploring is added to it, before `to_action`, which
    clips. There are no densities.

    Raises:
        TrainingError: the box is not bounded on all sides.
    """

    def __init__(self, space: spaces.Box) -> None:
        self._bounds = _bounds("Deterministic", space)
        self._shape = space.shape
        self.num_outputs = math.prod(space.shape)

    def sample(self, outputs, parameters, key):
        return self.mode(outputs)

    def mode(self, outputs):
        return jnp.tanh(outputs)

    def log_prob_and_entropy(self, outputs, parameters, action):
        raise TrainingError(
            "a Deterministic actor was asked for log-probabilities; it has none.  Use"
            " DiagonalGaussian or SquashedGaussian with an algorithm that needs them."
        )

    def to_action(self, action):
        return _into_box(action, self._shape, *self._bounds)


def distribution_for(space: spaces.Space) -> ActionDistribution:
    """Chooses the distribution for an action space of one instance.

    Raises:
        TrainingError: the space is not Discrete, MultiDiscrete, MultiBinary or a float Box.
    """
    if isinstance(space, spaces.Discrete):
        return Categorical(space)
    if isinstance(space, spaces.MultiDiscrete):
        return MultiCategorical(space)
    if isinstance(space, spaces.MultiBinary):
        return Bernoulli(space)
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        return DiagonalGaussian(space)
    raise TrainingError(
        f"the actor got the action space {space!r}; it acts in Discrete, MultiDiscrete,"
        " MultiBinary or a Box of floats.  Wrap the environment so that its actions are one of"
        " these."
    )


def masked(outputs: jax.Array, mask: jax.Array | None) -> jax.Array:
    """Returns outputs in which those outside of `mask` are so low that they are never chosen.

    As logits they have probability 0, also in the gradient, and the entropy is that of the others.
    Where nothing is allowed all are equal, hence uniform, and no gradient flows.

    Args:
        outputs: float32[..., n], logits or values.
        mask: bool[..., n], True where a choice is allowed; None allows all.

    Raises:
        TrainingError: the mask has another shape, or is not boolean.
    """
    if mask is None:
        return outputs
    if mask.shape != outputs.shape or mask.dtype != jnp.bool_:
        raise TrainingError(
            f"an action mask is {describe(mask)}, for outputs of {describe(outputs)}; it must be"
            " bool of the same shape, True where a choice is allowed.  Cast it, and give one for"
            " each instance."
        )
    lowest = max(MASKED, float(jnp.finfo(outputs.dtype).min))
    return jnp.where(mask, outputs, jnp.asarray(lowest, outputs.dtype))


def _draw(logits: jax.Array, uniform: jax.Array) -> jax.Array:
    """Samples from the softmax of logits[..., n], int32[...], with one uniform number each.

    The choice is where the distribution function passes the number; Gumbel noise would take a
    number for every logit. CPU, 2 cores, us for a step of 512 draws within a scan, noise against
    this: n = 2 9.1 / 7.1, n = 6 28 / 9.6, n = 18 215 / 15 (jax 0.12.0); 12.1 / 8.6, 53 / 11,
    317 / 23 (jax 0.10.2); at 4 draws equal up to n = 6.
    """
    weights = jnp.exp(logits - logits.max(axis=-1, keepdims=True))
    n = logits.shape[-1]
    if n > _UNROLLED_CHOICES:
        ends = jnp.cumsum(weights, axis=-1)
        starts = jnp.concatenate([jnp.zeros_like(ends[..., :1]), ends[..., :-1]], axis=-1)
        passed = (starts <= (uniform * ends[..., -1])[..., None]) & (weights > 0)
        order = _expand(np.arange(n, dtype=np.int32), logits)
        return jnp.where(passed, order, np.int32(0)).max(axis=-1)
    parts = [weights[..., i] for i in range(n)]
    starts = [jnp.zeros_like(uniform)]
    for part in parts:
        starts.append(starts[-1] + part)
    target = uniform * starts.pop()
    choice = jnp.zeros(uniform.shape, jnp.int32)
    for i, (start, part) in enumerate(zip(starts, parts, strict=True)):
        # Weights of 0 are excluded by name: rounding must not let one through at its border.
        choice = jnp.where((start <= target) & (part > 0), np.int32(i), choice)
    return choice


def _log_softmax(logits: jax.Array) -> jax.Array:
    # The largest is taken off first: next to a masked logit a logarithm would be rounded away.
    shifted = logits - jax.lax.stop_gradient(logits.max(axis=-1, keepdims=True))
    return shifted - jnp.log(jnp.exp(shifted).sum(axis=-1, keepdims=True))


def _log_prob_and_entropy(logits: jax.Array, action: jax.Array) -> tuple[jax.Array, jax.Array]:
    log_probs = _log_softmax(logits)
    # A comparison instead of a gather: its gradient is a product, not a scatter.
    chosen = jax.nn.one_hot(action, logits.shape[-1], dtype=logits.dtype)
    log_prob = jnp.sum(log_probs * chosen, axis=-1)
    return log_prob, -jnp.sum(jnp.exp(log_probs) * log_probs, axis=-1)


def _normal_log_density(z: jax.Array, log_std: jax.Array) -> jax.Array:
    return -0.5 * z**2 - log_std - 0.5 * math.log(2 * math.pi)


def _mean_and_log_std(outputs: jax.Array) -> tuple[jax.Array, jax.Array]:
    mean, log_std = jnp.split(outputs, 2, axis=-1)
    return mean, jnp.clip(log_std, *LOG_STD_RANGE)


def _log_slope_of_tanh(x: jax.Array) -> jax.Array:
    """Returns log(1 - tanh(x)**2), without the difference that rounds to 0 for |x| > 9."""
    return 2.0 * (math.log(2.0) - x - jax.nn.softplus(-2.0 * x))


def _is_bounded(space: spaces.Box) -> bool:
    if any(isinstance(bound, Tracer) for bound in (space.low, space.high)):
        return True  # bounds that are mapped or differentiated over are numbers, not infinities
    return bool(np.isfinite(space.low).all() and np.isfinite(space.high).all())


def _bounds(what: str, space: spaces.Box) -> tuple[Any, Any]:
    is_float_box = isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating)
    if not is_float_box or not _is_bounded(space):
        raise TrainingError(
            f"{what} got the action space {space!r}; it needs a Box of floats that is bounded on"
            " all sides.  Bound the actions by a wrapper, or take PPO with ActorCritic."
        )
    return space.low, space.high


def _into_box(action: jax.Array, shape: tuple[int, ...], low: Any, high: Any) -> jax.Array:
    """Scales [-1, 1] to [low, high] and clips values outside."""
    unit = jnp.clip(action.reshape((*action.shape[:-1], *shape)), -1.0, 1.0)
    low, high = _bounds_like(unit, low, high)
    return jnp.clip(low + 0.5 * (unit + 1.0) * (high - low), low, high)


def _bounds_like(action: jax.Array, *bounds: Any) -> list[jax.Array]:
    return [_expand(jnp.asarray(bound, action.dtype), action) for bound in bounds]


def _expand(x: Any, like: jax.Array) -> Any:
    return x.reshape((1,) * (like.ndim - x.ndim) + x.shape)
