import itertools

import jax
import numpy as np
import pytest

import jaxenvs
from jaxenvs.wrappers import RecordEpisodeStatistics
from tests.faces.native import keys_of
from tests.rounding import assert_close

torch = pytest.importorskip("torch")
pytest.importorskip("torchrl")

from torchrl.collectors import Collector  # noqa: E402
from torchrl.envs import GymEnv, GymWrapper, check_env_specs  # noqa: E402

pytestmark = pytest.mark.interop

N, LIMIT, STEPS = 4, 12, 30
MODES = ("disabled", "same_step")


def wrapped(mode="disabled", id="CartPole-v1", **options):
    envs = jaxenvs.make_gym(id, N, autoreset_mode=mode, time_limit=LIMIT, **options)
    return GymWrapper(envs, categorical_action_encoding=True)


def leaning(tensordict):
    """Pushes in the direction in which the pole leans, so some episodes reach the limit."""
    return tensordict.set("action", (tensordict["observation"][:, 2] > 0).long())


@pytest.mark.parametrize("mode", MODES)
def test_gym_wrapper_keeps_the_batch(mode):
    env = wrapped(mode)
    assert env.batch_size == (N,) and env.action_spec.shape == (N,)
    assert env.observation_spec["observation"].shape == (N, 4)
    check_env_specs(env)


@pytest.mark.parametrize("mode", MODES)
def test_a_rollout_agrees_with_the_environment(mode):
    env = wrapped(mode, seed=3)
    steps = env.rollout(STEPS, leaning, break_when_any_done=False)
    assert steps.batch_size == (N, STEPS)
    done = steps["next", "done"][..., 0]
    assert (
        done.any()
        and (done == (steps["next", "terminated"] | steps["next", "truncated"])[..., 0]).all()
    )
    observations, following = steps["observation"], steps["next", "observation"]
    same = (following[:, :-1] == observations[:, 1:]).all(-1)
    assert torch.equal(same, ~done[:, :-1])  # equal except at the start of an episode
    last = following[steps["next", "terminated"][..., 0]]
    assert ((last[:, 0].abs() > 2.4) | (last[:, 2].abs() > 0.209)).all()


def test_the_first_episodes_agree_with_the_jitted_path():
    env = jaxenvs.make_vec("CartPole-v1", N, autoreset_mode="disabled", time_limit=LIMIT)
    step = jax.jit(env.step)
    state, timestep = jax.jit(env.reset)(keys_of(3, N, 0))
    steps = wrapped(seed=3).rollout(LIMIT, leaning, break_when_all_done=True)
    for t in range(steps.batch_size[1]):
        assert_close(steps["observation"][:, t], timestep.observation)
        actions = (np.asarray(timestep.observation[:, 2]) > 0).astype(np.int32)
        state, timestep = step(state, actions, keys_of(3, N, t + 1))
        assert_close(steps["next", "reward"][:, t, 0], timestep.reward)
        assert_close(steps["next", "terminated"][:, t, 0], timestep.terminated)


@pytest.mark.parametrize("mode", MODES)
def test_a_collector_continues_episodes_between_batches(mode):
    env = wrapped(mode, seed=0)
    batches = [*Collector(env, leaning, frames_per_batch=8 * N, total_frames=24 * N)]
    assert [batch.batch_size for batch in batches] == [(N, 8)] * 3
    assert sum(batch["next", "done"].sum() for batch in batches) >= N
    for before, after in itertools.pairwise(batches):
        going_on = ~before["next", "done"][:, -1, 0]
        last, first = before["next", "observation"][:, -1], after["observation"][:, 0]
        assert torch.equal(last[going_on], first[going_on])


def test_rollout_has_continuous_actions_and_infos():
    env = wrapped(id="Pendulum-v1", wrappers=[RecordEpisodeStatistics], seed=0)
    env.auto_register_info_dict()
    steps = env.rollout(LIMIT)
    assert steps["action"].shape == (N, LIMIT, 1) and steps["action"].abs().max() <= 2
    np.testing.assert_array_equal(steps["next", "episode_length"][0], np.arange(1, LIMIT + 1))
    totals = steps["next", "reward"][..., 0].cumsum(1)
    np.testing.assert_allclose(steps["next", "episode_return"], totals, rtol=1e-5)


def test_torchrl_makes_a_single_environment_by_its_id():
    env = GymEnv("jaxenvs/CartPole-v1", frame_skip=2)
    steps = env.rollout(5)
    assert steps.batch_size[0] <= 5 and steps["next", "reward"][0] == 2  # two steps in one
    env.close()
