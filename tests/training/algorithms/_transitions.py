"""Contexts and transitions to compute gradients from, without an environment."""

import jax
import jax.numpy as jnp

from jaxenvs import spaces
from jaxenvs.training.algorithms.algorithm import TrainContext
from jaxenvs.training.types import Sample

OBSERVATIONS = spaces.Box(-1.0, 1.0, (3,))
TORQUES = spaces.Box(-2.0, 2.0, (2,))
KEY = jax.random.key(0)


def assembled(algorithm, action_space, actor=None, storage=None, num_updates=10):
    """The parts, and weights drawn for them."""
    networks = (actor or algorithm.default_actor()).build(OBSERVATIONS, action_space)
    storage = storage or algorithm.default_storage()
    algorithm.check(networks, storage)
    context = TrainContext(
        networks=networks, storage=storage, num_updates=num_updates, steps_per_update=8
    )
    features = networks.features(jnp.zeros((1, 3)))
    params = algorithm.initial_params(networks, KEY, features)
    return context, algorithm.initial_weights(context, params)


def sample(action, **changes):
    """Four rows with that action each, [4, ...]."""
    first, second = jax.random.normal(jax.random.key(1), (2, 4, 3))
    rows = {
        "observation": first,
        "action": action,
        "reward": jnp.array([1.0, -1.0, 0.5, 2.0]),
        "discount": jnp.array([0.9, 0.0, 0.9, 0.81]),
        "next_observation": second,
        "weight": jnp.ones(4),
        "index": jnp.arange(4),
    }
    return Sample(**{**rows, **changes})
