"""Checks of all suites: devices and reset modes change nothing, and round trips keep endings."""

import jax
import jax.numpy as jnp
import numpy as np

import jaxenvs
from jaxenvs.testing.dummy import BOTH, CONTINUE, TERMINATE, TRUNCATE
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


SCRIPT = [CONTINUE, TERMINATE, CONTINUE, CONTINUE, TRUNCATE, BOTH, CONTINUE]


def check_endings(env, press=jnp.int32, both=(True, False)):
    """Checks the steps of a batch of a `ScriptedEnv` that was another library's meanwhile.

    Args:
        env: the environment.
        press: returns its action for one of `ScriptedEnv`.
        both: its flags after a step that terminates and truncates.
    """
    flags = {CONTINUE: (False, False), TERMINATE: (True, False), TRUNCATE: (False, True)}
    flags[BOTH] = both
    batch = jaxenvs.vectorize(env, 3)
    state, timestep = batch.reset(jax.random.key(0))
    step = jax.jit(batch.step)
    start, count = np.asarray(timestep.observation[:, 0]), 0
    for t, action in enumerate(SCRIPT, start=1):
        state, timestep = step(state, jnp.stack([press(action)] * 3), jax.random.key(t))
        count += 1
        ended = timestep.terminated.tolist(), timestep.truncated.tolist()
        assert ended == tuple([flag] * 3 for flag in flags[action])
        assert timestep.reward.tolist() == [action] * 3
        last = np.stack([start, np.full(3, count)], axis=1)
        np.testing.assert_array_equal(timestep.final_observation, last)
        assert timestep.final_info["count"].tolist() == [count] * 3
        if action != CONTINUE:
            assert timestep.info["count"].tolist() == [0] * 3
            start, count = np.asarray(timestep.observation[:, 0]), 0
