"""Calls of environments in programs that all tests share.

The environment is an argument: its parameters are leaves, so one program serves all their values.
"""

import jax


@jax.jit
def reset(env, key):
    return env.reset(key)


@jax.jit
def step(env, state, action, key):
    return env.step(state, action, key)


def step_by_hand(env, state, action):
    """Steps an environment that ignores its key, and returns NumPy arrays."""
    return jax.device_get(step(env, state, action, jax.random.key(0)))
