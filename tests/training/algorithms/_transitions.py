"""Contexts and transitions to compute gradients from, without an environment."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import spaces
from jaxenvs.training.algorithms.algorithm import TrainContext
from jaxenvs.training.types import Sample

OBSERVATIONS = spaces.Box(-1.0, 1.0, (3,))
TORQUES = spaces.Box(-2.0, 2.0, (2,))
KEY = jax.random.key(0)


def assembled(algorithm, action_space, actor=None, storage=None, num_updates=10):
    """The parts, and weights drawn for them."""
    networks = _built(actor or algorithm.default_actor(), action_space)
    storage = storage or _default_storage(type(algorithm))
    algorithm.check(networks, storage)
    context = TrainContext(
        networks=networks, storage=storage, num_updates=num_updates, steps_per_update=8
    )
    return context, _draw(algorithm, context)


# Contexts are equal, and share programs, if their parts are the same objects.
_built = functools.cache(lambda actor, action_space: actor.build(OBSERVATIONS, action_space))
_default_storage = functools.cache(lambda algorithm_type: algorithm_type().default_storage())


@functools.partial(jax.jit, static_argnames="context")
def _draw(algorithm, context):
    features = context.networks.features(jnp.zeros((1, 3)))
    params = algorithm.initial_params(context.networks, KEY, features)
    return algorithm.initial_weights(context, params)


@functools.partial(jax.jit, static_argnames="context")
def gradients_of(algorithm, context, weights, rows):
    """`Algorithm.gradients`, in one program for all numbers that the algorithm may have."""
    return algorithm.gradients(context, weights, rows, KEY)


@functools.partial(jax.jit, static_argnames="context")
def applied(algorithm, context, weights, gradients):
    """`Algorithm.apply_gradients`, in one program for all numbers that the algorithm may have."""
    return algorithm.apply_gradients(context, weights, gradients)


def sample(action, **changes):
    """Four rows with that action each, [4, ...]."""
    first, second = np.random.default_rng(1).normal(size=(2, 4, 3)).astype(np.float32)
    rows = {
        "observation": first,
        "action": np.asarray(action),
        "reward": np.array([1.0, -1.0, 0.5, 2.0], np.float32),
        "discount": np.array([0.9, 0.0, 0.9, 0.81], np.float32),
        "next_observation": second,
        "weight": np.ones(4, np.float32),
        "index": np.arange(4, dtype=np.int32),
    }
    return Sample(**{**rows, **changes})
