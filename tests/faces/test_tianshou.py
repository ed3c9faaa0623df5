import gymnasium
import numpy as np
import pytest

import jaxenvs
from jaxenvs.errors import ParameterError, UnknownParameterError
from jaxenvs.wrappers import RecordEpisodeStatistics
from tests.rounding import assert_close

torch = pytest.importorskip("torch")
pytest.importorskip("tianshou")

from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy  # noqa: E402
from tianshou.data import Collector, VectorReplayBuffer  # noqa: E402
from tianshou.env import DummyVectorEnv, VectorEnvNormObs  # noqa: E402
from tianshou.utils.net.common import Net  # noqa: E402

from jaxenvs.faces.tianshou import JaxVectorEnv  # noqa: E402

pytestmark = pytest.mark.interop

N, LIMIT = 4, 12
SEEDS = [5, 6, 7, 8]


def cartpoles(**options):
    return JaxVectorEnv("CartPole-v1", N, time_limit=LIMIT, **options)


def policy(envs, eps=0.0):
    torch.manual_seed(0)
    return DiscreteQLearningPolicy(
        model=Net(state_shape=4, action_shape=2, hidden_sizes=[8]),
        action_space=envs.action_space[0],
        observation_space=envs.observation_space[0],
        eps_training=eps,
        eps_inference=eps,
    )


def test_vector_env_agrees_with_a_dummy_vector_env():
    single = lambda: jaxenvs.make_gym("CartPole-v1", time_limit=LIMIT)  # noqa: E731
    ours, theirs = cartpoles(), DummyVectorEnv([single] * N)
    assert len(ours) == len(theirs) == N
    assert ours.action_space == theirs.action_space
    assert ours.observation_space == theirs.observation_space
    ours.seed(SEEDS)
    starts = np.concatenate([theirs.reset(i, seed=seed)[0] for i, seed in enumerate(SEEDS)])
    assert_close(ours.reset()[0], starts)
    ids = np.arange(N)
    for t in range(LIMIT):
        actions = (ids + t) % 2
        mine, other = ours.step(actions, ids), theirs.step(actions, ids)
        for ours_part, theirs_part in zip(mine[:4], other[:4], strict=True):
            assert_close(ours_part, theirs_part)
        assert [info["env_id"] for info in mine[4]] == ids.tolist()
        ids = ids[~(mine[2] | mine[3])]
        if not len(ids):
            break
    assert not len(ids)


def test_a_collector_fills_its_buffer_with_whole_transitions():
    envs = cartpoles(seed=0)
    for i, space in enumerate(envs.action_space):  # random=True samples from these
        space.seed(i)
    buffer = VectorReplayBuffer(400, N)
    collector = Collector(policy(envs), envs, buffer)
    stats = collector.collect(n_step=200, random=True, reset_before_collect=True)
    assert stats.n_collected_steps == 200 and stats.n_collected_episodes > N
    assert max(stats.lens) <= LIMIT
    np.testing.assert_array_equal(stats.returns, stats.lens)  # CartPole's reward is 1 per step
    done = buffer.terminated | buffer.truncated
    filled = np.flatnonzero(buffer.rew)
    follows = [i for i in filled[:-1] if not done[i] and i + 1 in filled and (i + 1) % 100]
    np.testing.assert_array_equal(buffer.obs_next[follows], buffer.obs[np.add(follows, 1)])
    # The last observation belongs to the old episode, not to the new one.
    last = buffer.obs_next[np.flatnonzero(buffer.terminated)]
    assert len(last) and ((abs(last[:, 0]) > 2.4) | (abs(last[:, 2]) > 0.209)).all()


@pytest.mark.filterwarnings("ignore:n_episode=2 should be larger")
def test_a_collector_counts_episodes():
    envs = cartpoles(seed=0)
    collector = Collector(policy(envs), envs, VectorReplayBuffer(400, N))
    for episodes in (2, N, 6):
        stats = collector.collect(n_episode=episodes, random=True, reset_before_collect=True)
        assert stats.n_collected_episodes == episodes
        assert stats.n_collected_steps == stats.lens.sum()
    again = Collector(policy(envs), cartpoles(), VectorReplayBuffer(400, N))
    first, second = (
        again.collect(n_episode=N, reset_before_collect=True, gym_reset_kwargs={"seed": 3})
        for _ in range(2)
    )
    np.testing.assert_array_equal(np.sort(first.lens), np.sort(second.lens))


def test_an_omitted_instance_has_to_be_reset():
    envs = cartpoles(seed=0)
    envs.reset()
    observations, rewards, _, _, infos = envs.step(np.array([1, 0]), id=[2, 0])
    assert observations.shape == (2, 4) and rewards.shape == (2,)
    assert [info["env_id"] for info in infos] == [2, 0]
    with pytest.raises(gymnasium.error.ResetNeeded, match=r"\[1, 3\]"):
        envs.step(np.zeros(N, int))
    envs.step(np.array([1]), id=[2])
    envs.reset([0, 1, 3])
    assert envs.step(np.zeros(N, int))[0].shape == (N, 4)


def test_each_action_goes_to_its_instance():
    order = np.array([2, 0, 3, 1])
    actions = np.array([1, 0, 0, 1])
    envs, plain = cartpoles(seed=0), cartpoles(seed=0)
    envs.reset(), plain.reset()
    observations = envs.step(actions[order], id=order)[0]
    np.testing.assert_array_equal(observations, plain.step(actions)[0][order])


def test_wrappers_of_both_libraries_work():
    envs = cartpoles(wrappers=[RecordEpisodeStatistics], seed=0)
    _, infos = envs.reset()
    assert infos[1] == {
        "env_id": 1,
        "episode_return": 0,
        "episode_length": 0,
        "episode_finished": False,
    }
    normalized = VectorEnvNormObs(envs)
    normalized.reset()
    for t in range(LIMIT - 4):
        observations, *_ = normalized.step(np.full(N, t % 2))
    assert abs(observations).max() < 10 and normalized.obs_rms.count > N


def test_parameters_are_attributes_of_the_instances():
    envs = cartpoles(render_mode="rgb_array")
    envs.set_env_attr("gravity", 3.7)
    envs.set_env_attr("gravity", 1.6, id=1)
    np.testing.assert_allclose(envs.get_env_attr("gravity"), [3.7, 1.6, 3.7, 3.7], rtol=1e-6)
    with pytest.raises(UnknownParameterError, match="gravity"):
        envs.set_env_attr("gravitas", 1.0)
    envs.reset()
    frames = envs.render()
    assert len(frames) == N and frames[0].ndim == 3
    envs.close()
    assert envs.is_closed


def test_invalid_arguments_raise_named_errors():
    with pytest.raises(ParameterError, match="num_envs"):
        JaxVectorEnv("CartPole-v1")
    with pytest.raises(ParameterError, match="disabled"):
        JaxVectorEnv(jaxenvs.make_gym("CartPole-v1", 2))
    with pytest.raises(ParameterError, match='output="torch"'):
        JaxVectorEnv("CartPole-v1", 2, output="torch")
    made = jaxenvs.make_gym("CartPole-v1", 2, autoreset_mode="disabled")
    with pytest.raises(ParameterError, match="gravity"):
        JaxVectorEnv(made, gravity=1.0)
    assert len(JaxVectorEnv(made)) == 2
