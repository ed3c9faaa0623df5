"""One check of all suites: devices and reset modes change nothing."""

import jax
import numpy as np

import jaxenvs
from tests.rounding import assert_agree


def check_combinations(env, num_envs=8, steps=5):
    """Plays `env` alone, over a mesh, and with `next_step`, with the same key and actions."""
    mesh = jax.make_mesh((4,), ("env",), axis_types=(jax.sharding.AxisType.Auto,))
    runs = []
    for how in ({}, {"mesh": mesh}, {"autoreset_mode": "next_step"}):
        batch = jaxenvs.vectorize(env, num_envs, **how)

        def play(key, batch=batch):
            actions = batch.action_space.sample(jax.random.key(1))

            def once(state, key):
                state, timestep = batch.step(state, actions, key)
                return state, (timestep.final_observation, timestep.reward, timestep.done)

            return jax.lax.scan(once, batch.reset(key)[0], jax.random.split(key, steps))[1]

        runs.append(jax.device_get(jax.jit(play)(jax.random.key(0))))
    assert_agree(runs[1], runs[0])
    done = runs[0][2]
    first = np.cumsum(done, axis=0) - done == 0  # the first episode
    assert_agree(*(jax.tree.map(lambda leaf: leaf[first], run) for run in (runs[2], runs[0])))
