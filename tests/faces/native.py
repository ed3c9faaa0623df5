"""The reference for the interfaces: the same calls of the native environment."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import keys


def keys_of(seed, num_envs, call):
    """Returns the keys of a call in which instance i has the seed `seed + i`."""
    seed_keys = jax.vmap(jax.random.key)(np.uint32(seed) + jnp.arange(num_envs, dtype=jnp.uint32))
    return keys.call_keys(seed_keys, jnp.full(num_envs, call, jnp.uint32))
