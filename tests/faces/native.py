"""The reference for the interfaces: the same calls of the native environment."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import keys


def keys_of(seed, num_envs, call):
    """Returns the keys of a call in which instance i has the seed `seed + i`."""
    return _keys_of(np.uint32(seed), num_envs, np.uint32(call))


@functools.partial(jax.jit, static_argnums=1)
def _keys_of(seed, num_envs, call):
    seed_keys = jax.vmap(jax.random.key)(seed + jnp.arange(num_envs, dtype=jnp.uint32))
    return keys.call_keys(seed_keys, jnp.full(num_envs, call))
