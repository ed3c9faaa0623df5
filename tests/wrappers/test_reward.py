import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import wrappers as gym
from scipy import stats

import jaxenvs
from jaxenvs.errors import WrapperError
from jaxenvs.wrappers import AddRewardNoise, ClipReward, ScaleReward, TransformReward
from tests.ids import every_nth
from tests.wrappers._batches import MODES, Echo, assert_as_in_gymnasium, play_both

KEY = jax.random.key(0)


def shifted(reward):
    return 2 * reward + 1


CASES = {
    "transform": (lambda env: env.wrap(TransformReward, shifted), shifted),
    "scale": (lambda env: env.wrap(ScaleReward, 0.01), lambda reward: 0.01 * reward),
    "clip": (
        lambda env: env.wrap(ClipReward, -5.0, 8.0),
        lambda reward: np.clip(reward, -5.0, 8.0),
    ),
    "clip below": (lambda env: env.wrap(ClipReward, 3.0), lambda reward: max(reward, 3.0)),
}


@pytest.mark.parametrize(
    ("case", "mode"),
    every_nth(2, [*((c, "same_step") for c in CASES), *(("clip", m) for m in MODES[1:])]),
)
def test_rewards_match_gymnasium(case, mode):
    wrap, func = CASES[case]
    gym_wraps = {
        "clip": lambda env: gym.ClipReward(env, -5.0, 8.0),
        "clip below": lambda env: gym.ClipReward(env, 3.0),
    }
    default = lambda env: gym.TransformReward(env, func)  # noqa: E731
    assert_as_in_gymnasium(wrap, gym_wraps.get(case, default), mode)


@pytest.mark.parametrize("mode", every_nth(3, MODES, first=1))
def test_resets_have_no_reward(mode):
    """Neither do steps that only reset nor steps of instances that stay finished."""
    _, timesteps = play_both(CASES["transform"][0], mode)
    assert (timesteps.reward[0] == 0).all()
    if mode != "same_step":
        assert (timesteps.reward[1:][timesteps.done[:-1]] == 0).all()


def test_scales_and_bounds_are_leaves():
    def reward(scale):
        env = ClipReward(ScaleReward(Echo(), scale), -1e3, 50.0 * scale)
        state, _ = env.reset(KEY)
        return env.step(state, jnp.ones(2), KEY)[1].reward

    scales = np.array([0.5, 2.0], np.float32)
    rewards, slopes = jax.jit(jax.vmap(jax.value_and_grad(reward)))(scales)
    np.testing.assert_allclose(rewards, [10.0, 40.0])
    np.testing.assert_allclose(slopes[1], 20.0)


def test_noise_is_normal_independent_and_not_in_resets():
    @jax.jit
    def noises(env):
        state, first = env.reset(KEY)
        actions = jnp.zeros(env.action_space.shape, jnp.float32)
        rewards = []
        for i in range(2):
            state, timestep = env.step(state, actions, jax.random.fold_in(KEY, i))
            rewards.append(timestep.reward)
        return first.reward, jnp.stack(rewards)

    env = jaxenvs.vectorize(Echo(), 500).wrap(AddRewardNoise, 3.0)
    first, added = noises(env)
    assert not first.any() and stats.kstest(added.ravel() / 3, "norm").pvalue > 1e-3
    assert abs(np.corrcoef(added)[0, 1]) < 0.15 and len(np.unique(added)) == added.size
    np.testing.assert_allclose(noises(env.replace(noise_scale=0.1))[1], added / 30, rtol=1e-5)


def test_bounds_can_differ_between_instances():
    low, high = np.zeros(2, np.float32), np.array([5.0, 30.0], np.float32)
    batched = ["min_reward", "max_reward"]
    env = jaxenvs.vectorize(ClipReward(Echo(), low, high), 2, batched=batched)
    state, _ = jax.jit(env.reset)(KEY)
    step = jax.jit(env.step)
    assert step(state, np.ones((2, 2), np.float32), KEY)[1].reward.tolist() == [5.0, 20.0]


def test_invalid_bounds_are_rejected():
    with pytest.raises(WrapperError, match="swapped"):
        ClipReward(Echo(), 1.0, -1.0)
    with pytest.raises(WrapperError, match="no bounds"):
        ClipReward(Echo()).reset(KEY)


def test_non_callable_func_is_rejected():
    with pytest.raises(WrapperError, match=r"func=0\.1; it must be a function"):
        TransformReward(Echo(), 0.1)
