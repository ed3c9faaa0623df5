import jax
import numpy as np
import pytest
from gymnasium import wrappers as gym

import jaxenvs
from jaxenvs.errors import WrapperError
from jaxenvs.wrappers import ClipReward, RecordEpisodeStatistics
from tests.wrappers._batches import MODES, Echo, GymEcho, N, episodes_of, play_both


@pytest.mark.parametrize("mode", MODES)
def test_records_match_gymnasium_and_mark_each_end_once(mode):
    actions, timesteps = play_both(RecordEpisodeStatistics, mode)
    marked = timesteps.final_info["episode_finished"]
    assert marked.sum() == sum(len(episodes_of(actions, timesteps, i, mode)) for i in range(N))
    assert not marked[0].any()
    for i in range(N):
        for episode in episodes_of(actions, timesteps, i, mode):
            reference = gym.RecordEpisodeStatistics(GymEcho([len(episode)]))
            reference.reset()
            for action, timestep in episode:
                *_, info = reference.step(action)
                assert timestep.final_info["episode_finished"] == ("episode" in info)
                assert timestep.final_info["episode_length"] == reference.episode_lengths
                np.testing.assert_allclose(
                    timestep.final_info["episode_return"], reference.episode_returns, rtol=1e-6
                )


@pytest.mark.parametrize("mode", MODES)
def test_new_episodes_start_from_zero(mode):
    _, timesteps = play_both(RecordEpisodeStatistics, mode)
    length, done = timesteps.info["episode_length"], timesteps.done
    after = length[1:][done[:-1]]
    expected = {"same_step": 1, "next_step": 0, "disabled": length[:-1][done[:-1]]}
    assert done.any() and (after == expected[mode]).all()


def test_partial_resets_affect_only_masked_instances():
    mask = np.array([True, False, True, False])

    @jax.jit
    def lengths(env):
        key = jax.random.key(0)
        action = env.action_space.sample(key)
        state, timestep = env.step(env.reset(key)[0], action, key)
        state, timestep = env.reset_where(mask, state, timestep, key)
        return env.step(state, action, key)[1].info["episode_length"]

    for mode in MODES:
        env = jaxenvs.make_vec("Pendulum-v1", 4, autoreset_mode=mode).wrap(RecordEpisodeStatistics)
        np.testing.assert_array_equal(lengths(env), [1, 2, 1, 2])


def test_episode_statistics_sum_the_rewards_they_receive():
    env = RecordEpisodeStatistics(
        ClipReward(RecordEpisodeStatistics(Echo()), max_reward=1.0), stats_key="clipped"
    )
    key = jax.random.key(0)
    state, _ = jax.jit(env.reset)(key)
    info = jax.jit(env.step)(state, np.ones(2, np.float32), key)[1].info
    assert (info["episode_return"], info["clipped_return"]) == (20.0, 1.0)


def test_duplicate_stats_key_is_rejected():
    with pytest.raises(WrapperError, match="stats_key"):
        RecordEpisodeStatistics(RecordEpisodeStatistics(Echo())).reset(jax.random.key(0))
