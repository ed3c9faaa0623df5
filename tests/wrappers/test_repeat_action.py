import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import wrappers as gym

import jaxenvs
from jaxenvs.errors import WrapperError
from jaxenvs.testing import CountingEnv
from jaxenvs.wrappers import RepeatAction, TimeLimit
from tests.wrappers._batches import MODES, Echo, GymEcho, N, play

KEY = jax.random.key(0)


@pytest.mark.parametrize(("mode", "repeats"), [*((mode, 3) for mode in MODES), ("same_step", 1)])
def test_steps_match_gymnasium(mode, repeats):
    env = jaxenvs.vectorize(Echo(), N, autoreset_mode=mode).wrap(RepeatAction, repeats)
    actions, timesteps = jax.tree.map(np.asarray, play(env, 24))
    lengths = 0
    for i in range(N):
        reference = gym.RepeatAction(GymEcho([100] * 24), repeats)
        reference.reset()
        done = False
        for t in range(24):
            timestep = jax.tree.map(lambda leaf, t=t, i=i: leaf[t + 1, i], timesteps)
            if done and mode != "same_step":
                assert timestep.reward == 0  # this step only resets or stays finished
                done = mode == "disabled"
                continue
            steps = timestep.final_observation[2]
            # End the reference where ours ended, possibly in the middle of the repetitions.
            reference.unwrapped.length = steps if timestep.done else 100
            observation, reward, *_ = reference.step(actions[t, i])
            np.testing.assert_array_equal(timestep.final_observation, observation)
            np.testing.assert_allclose(timestep.reward, reward, rtol=1e-5, atol=1e-5)
            if done := bool(timestep.terminated | timestep.truncated):
                assert 2 <= steps <= 5
                lengths += 1
                reference.reset()
    assert lengths >= N


@jax.jit
def step_once(env, action, key):
    """Resets and steps once."""
    return env.step(env.reset(KEY)[0], action, key)


def test_repetitions_draw_independently():
    env = RepeatAction(CountingEnv(lengths=(9,), has_key=True), 3)
    state, timestep = step_once(env, np.int32(0), KEY)
    assert timestep.reward == 1 + 2 + 3 and state.count == 3
    noisy, still = RepeatAction(Echo(noise=1.0), 2), np.zeros(2, np.float32)
    first_key = jax.random.fold_in(KEY, np.uint32(0x52455045))
    once = step_once(Echo(noise=1.0), still, first_key)[1].reward
    assert not np.isclose(step_once(noisy, still, KEY)[1].reward, 2 * once)


def test_inner_limit_counts_steps_and_outer_limit_actions():
    inside = RepeatAction(TimeLimit(CountingEnv(lengths=(9,)), 4), 3)
    outside = TimeLimit(RepeatAction(CountingEnv(lengths=(9,)), 3), 4)
    assert (inside.time_limit, outside.time_limit) == (2, 4)

    @jax.jit
    def play(env):
        def step(state, _):
            state, timestep = env.step(state, jnp.int32(0), KEY)
            return state, (timestep.observation[0], timestep.truncated, timestep.terminated)

        return jax.lax.scan(step, env.reset(KEY)[0], length=3)[1]

    def lengths(env):
        return jax.tree.map(np.ndarray.tolist, jax.device_get(play(env)))

    assert lengths(inside)[:2] == ([3, 4, 5], [False, True, True])
    assert lengths(outside)[::2] == ([3, 6, 9], [False, False, True])


def test_gradients_pass_through_the_repetitions():
    def shown(action):
        env = RepeatAction(Echo(), 3)
        return env.step(env.reset(KEY)[0], action, KEY)[1].observation[:2]

    slope = jax.jit(jax.jacobian(shown))(np.ones(2, np.float32))
    np.testing.assert_array_equal(slope, np.eye(2))


def test_invalid_arguments_are_rejected():
    for repeats in (0, 1.5, True):
        with pytest.raises(WrapperError, match="num_repeats"):
            RepeatAction(Echo(), repeats)
