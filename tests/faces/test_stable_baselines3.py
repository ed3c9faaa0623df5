import copy
import pickle
import warnings

import gymnasium
import jax
import numpy as np
import pytest

import jaxenvs
from jaxenvs.errors import ParameterError, UnknownParameterError
from jaxenvs.wrappers import TimeLimit
from tests.faces.native import keys_of
from tests.rounding import assert_close

torch = pytest.importorskip("torch")
pytest.importorskip("stable_baselines3")

from stable_baselines3 import PPO, SAC  # noqa: E402
from stable_baselines3.common.env_checker import check_env  # noqa: E402
from stable_baselines3.common.evaluation import evaluate_policy  # noqa: E402
from stable_baselines3.common.monitor import Monitor  # noqa: E402
from stable_baselines3.common.vec_env import (  # noqa: E402
    DummyVecEnv,
    VecEnv,
    VecFrameStack,
    VecMonitor,
    VecNormalize,
    VecVideoRecorder,
)

from jaxenvs.faces.stable_baselines3 import JaxVecEnv  # noqa: E402

pytestmark = pytest.mark.interop

N, LIMIT = 8, 12  # a random policy is truncated about as often as its pole falls
SMALL = {"net_arch": [8]}  # pass a copy, because the models write to it


@pytest.fixture(autouse=True)
def one_thread(monkeypatch, tmp_path):
    monkeypatch.setenv("SB3_LOGDIR", str(tmp_path))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def cartpoles(**options):
    return JaxVecEnv("CartPole-v1", N, time_limit=LIMIT, **options)


class AutoresetEnv(gymnasium.Env):
    """A single instance with the batch's autoreset, although Gymnasium's reset is explicit."""

    render_mode = None

    def __init__(self):
        options = {"autoreset_mode": "same_step", "time_limit": LIMIT}
        self.envs = jaxenvs.make_gym("CartPole-v1", 1, **options)
        self.observation_space = self.envs.single_observation_space
        self.action_space = self.envs.single_action_space

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.fresh = self.envs.reset(seed=[seed])[0][0]
        return self.fresh, {}

    def step(self, action):
        observation, reward, terminated, truncated, infos = self.envs.step(np.array([action]))
        self.fresh = observation[0]
        last = infos["final_obs"][0] if "final_obs" in infos else observation[0]
        return last, float(reward[0]), bool(terminated[0]), bool(truncated[0]), {}


def assert_close_steps(ours, theirs, rows=None):
    rows = np.arange(N) if rows is None else rows
    for mine, other in zip(ours[:3], theirs[:3], strict=True):
        assert mine.dtype == other.dtype and mine.shape == other.shape
        assert_close(mine[rows], other[rows])
    for i in rows:
        mine, other = ours[3][i], theirs[3][i]
        is_cut = [info.get("TimeLimit.truncated", False) for info in (mine, other)]
        assert is_cut[0] == is_cut[1]
        assert ("terminal_observation" in mine) == ("terminal_observation" in other) == ours[2][i]
        if ours[2][i]:
            assert_close(mine["terminal_observation"], other["terminal_observation"])


def test_vec_env_agrees_with_a_dummy_vec_env():
    ours, theirs = cartpoles(), DummyVecEnv([AutoresetEnv for _ in range(N)])
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    assert ours.seed(3) == theirs.seed(3) == [3 + i for i in range(N)]
    assert_close(ours.reset(), theirs.reset())
    random = np.random.default_rng(0)
    falls = cuts = 0
    for _ in range(60):
        actions = random.integers(2, size=N)
        step = ours.step(actions)
        assert_close_steps(step, theirs.step(actions))
        cuts += sum(info.get("TimeLimit.truncated", False) for info in step[3])
        falls += sum(info.get("TimeLimit.truncated") is False for info in step[3])
    assert falls > 5 and cuts > 5


def test_seeds_mean_the_same_in_a_dummy_vec_env():
    single = lambda: jaxenvs.make_gym("CartPole-v1", time_limit=LIMIT)  # noqa: E731
    ours, theirs = cartpoles(), DummyVecEnv([single for _ in range(N)])
    ours.seed(11), theirs.seed(11)
    assert_close(ours.reset(), theirs.reset())
    alive = np.arange(N)
    for t in range(LIMIT):
        actions = np.full(N, t % 5 > 0)
        step, reference = ours.step(actions.astype(int)), theirs.step(actions.astype(int))
        # In a row that ended, this is the first observation of the next episode, which differs.
        over = np.flatnonzero(step[2])
        step[0][over] = reference[0][over]
        assert_close_steps(step, reference, alive)
        alive = np.setdiff1d(alive, over)
    assert not len(alive)


def test_vec_env_agrees_with_the_jitted_batch():
    env = jaxenvs.make_vec("CartPole-v1", N, time_limit=LIMIT)
    step = jax.jit(env.step)
    state, timestep = jax.jit(env.reset)(keys_of(4, N, 0))
    made = jaxenvs.make_gym("CartPole-v1", N, seed=4, autoreset_mode="same_step", time_limit=LIMIT)
    envs = JaxVecEnv(made)
    assert_close(envs.reset(), timestep.observation)
    ends = 0
    for t in range(1, 40):
        actions = np.arange(t, t + N) // 3 % 2
        observations, rewards, dones, infos = envs.step(actions)
        state, timestep = step(state, actions.astype(np.int32), keys_of(4, N, t))
        assert_close(observations, timestep.observation)
        assert_close(rewards, timestep.reward)
        assert_close(dones, timestep.done)
        for i in np.flatnonzero(dones):
            ends += 1
            last = infos[i]["terminal_observation"]
            assert_close(last, timestep.final_observation[i])
            assert (last != observations[i]).all()
    assert ends > N


@pytest.mark.parametrize("id", ["CartPole-v1", "Pendulum-v1", "Acrobot-v1"])
def test_the_checker_passes_a_single_environment(id):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # SB3 warns that Pendulum's torque has the range [-2, 2], not [-1, 1].
        warnings.filterwarnings("ignore", message=".*symmetric and normalized")
        check_env(jaxenvs.make_gym(id, render_mode="rgb_array"))


def test_episode_infos_agree_with_vec_monitor():
    ours = cartpoles(seed=0)
    monitored = VecMonitor(DummyVecEnv([AutoresetEnv for _ in range(N)]))
    ours.seed(0), monitored.seed(0), ours.reset(), monitored.reset()
    ended = 0
    for t in range(40):
        actions = np.full(N, t % 2)
        infos, reference = ours.step(actions)[3], monitored.step(actions)[3]
        for mine, other in zip(infos, reference, strict=True):
            assert ("episode" in mine) == ("episode" in other)
            if "episode" in mine:
                ended += 1
                assert mine["episode"]["r"] == other["episode"]["r"]
                assert mine["episode"]["l"] == other["episode"]["l"]
                assert mine["episode"]["t"] >= 0
    assert ended > N


def test_writing_to_an_info_changes_no_other_info():
    envs = cartpoles(seed=0)
    envs.reset()
    infos = envs.step(np.zeros(N, int))[3]
    infos[2]["mark"] = 1
    infos[3] = {"other": 2}
    assert [len(info) for info in infos] == [0, 0, 1, 1, 0, 0, 0, 0]
    assert not any(envs.step(np.ones(N, int))[3])


def test_infos_of_the_environment_are_in_every_step():
    class WithInfo(TimeLimit):
        def step(self, state, action, key):
            state, timestep = super().step(state, action, key)
            return state, timestep.replace(info={"elapsed": state.elapsed})

        def reset(self, key):
            state, timestep = super().reset(key)
            return state, timestep.replace(info={"elapsed": state.elapsed})

    envs = JaxVecEnv(WithInfo(jaxenvs.make("CartPole-v1", time_limit=None), 3), 2)
    envs.reset()
    assert envs.reset_infos == [{"elapsed": 0}, {"elapsed": 0}]
    envs.reset_infos[1]["elapsed"] = 9
    all_infos = [envs.step(np.array([t % 2, t % 2]))[3] for t in range(4)]
    assert envs.reset_infos == [{"elapsed": 0}, {"elapsed": 0}]
    assert [[int(info["elapsed"]) for info in infos] for infos in all_infos] == [
        [1, 1],
        [2, 2],
        [3, 3],
        [1, 1],
    ]
    assert ["terminal_observation" in infos[1] for infos in all_infos] == [
        False,
        False,
        True,
        False,
    ]


def test_ppo_learns_and_reports_episodes():
    model = PPO(
        "MlpPolicy", cartpoles(), n_steps=16, batch_size=64, policy_kwargs=dict(SMALL), seed=0
    )
    before = [weights.clone() for weights in model.policy.parameters()]
    model.learn(2 * 16 * N)
    assert model.num_timesteps == 2 * 16 * N
    assert any(
        (old != new).any() for old, new in zip(before, model.policy.parameters(), strict=True)
    )
    assert all(0 < episode["l"] <= LIMIT for episode in model.ep_info_buffer)
    assert len(model.ep_info_buffer) > N


def test_sac_replays_terminal_observations():
    envs = JaxVecEnv("Pendulum-v1", 4, time_limit=10, seed=0)
    model = SAC(
        "MlpPolicy", envs, learning_starts=40, batch_size=16, policy_kwargs=dict(SMALL), seed=0
    )
    model.learn(120)
    buffer, last = model.replay_buffer, 9
    assert model._n_updates > 0
    assert buffer.dones[last].all() and buffer.timeouts[last].all()
    assert not buffer.dones[last - 1].any()
    # Angles change little in a step, but would jump to the first observation of a new episode.
    angles = [
        np.arctan2(o[..., 1], o[..., 0]) for o in (buffer.observations, buffer.next_observations)
    ]
    moved = np.angle(np.exp(1j * (angles[1] - angles[0])))[:30]
    assert np.abs(moved).max() < 8 * 0.05 + 1e-6


def test_vec_normalize_and_vec_frame_stack():
    envs = VecFrameStack(cartpoles(seed=0), 3)
    envs.reset()
    for t in range(LIMIT):
        observations, _, dones, infos = envs.step(np.full(N, t % 2))
        for i in np.flatnonzero(dones):
            assert not observations[i, :8].any() and observations[i, 8:].any()
            assert infos[i]["terminal_observation"].shape == (12,)
            assert infos[i]["terminal_observation"][:8].any()
    normalized, plain = VecNormalize(cartpoles(seed=0)), cartpoles(seed=0)
    normalized.reset(), plain.reset()
    for t in range(30):
        actions = np.full(N, t % 2)
        observations, _, dones, infos = normalized.step(actions)
        reference = plain.step(actions)
        np.testing.assert_array_equal(normalized.get_original_obs(), reference[0])
        np.testing.assert_array_equal(normalized.get_original_reward(), reference[1])
        for i in np.flatnonzero(dones):
            original = reference[3][i]["terminal_observation"]
            np.testing.assert_array_equal(
                infos[i]["terminal_observation"], normalized.normalize_obs(original)
            )


def test_evaluate_policy_counts_episodes_without_a_monitor():
    model = PPO("MlpPolicy", cartpoles(), n_steps=16, policy_kwargs=dict(SMALL), seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        returns, lengths = evaluate_policy(
            model, cartpoles(seed=5), n_eval_episodes=10, return_episode_rewards=True
        )
    assert returns == lengths and len(returns) == 10  # CartPole's reward is 1 per step
    with pytest.warns(UserWarning, match="already wrapped with a `Monitor`"):
        VecMonitor(cartpoles())


def test_parameters_are_attributes_of_the_instances():
    envs = cartpoles()
    assert envs.get_attr("gravity", indices=[0, 1]) == [9.8, 9.8]
    envs.set_attr("gravity", 3.7)
    envs.set_attr("gravity", 1.6, indices=[2])
    gravities = np.array(envs.get_attr("gravity"))
    np.testing.assert_allclose(gravities, np.where(np.arange(N) == 2, 1.6, 3.7), rtol=1e-6)
    envs.reset()
    before = envs.step(np.ones(N, int))[0]
    assert before.shape == (N, 4)
    assert envs.has_attr("gravity") and not envs.has_attr("gravitas")
    with pytest.raises(AttributeError, match="gravity"):
        envs.get_attr("gravitas")
    with pytest.raises(UnknownParameterError, match="gravity"):
        envs.set_attr("gravitas", 1.0)
    assert envs.get_attr("render_mode", 0) == [None]
    assert envs.env_is_wrapped(TimeLimit) == [True] * N
    assert envs.env_is_wrapped(Monitor, [0]) == [True]
    assert envs.env_is_wrapped(gymnasium.wrappers.ClipAction, 0) == [False]


def test_env_method_returns_one_result_per_instance():
    envs = cartpoles()
    moons = envs.env_method("replace", gravity=1.6, indices=[0, 3])
    assert [moon.unwrapped.gravity for moon in moons] == [1.6, 1.6]
    with pytest.raises(UnknownParameterError):
        envs.env_method("fly")


def test_render_draws_a_mosaic_of_the_instances():
    envs = JaxVecEnv("CartPole-v1", 4, render_mode="rgb_array", seed=0)
    envs.reset()
    frames = envs.get_images()
    assert len(frames) == 4 and envs.metadata["render_modes"] == ["human", "rgb_array"]
    height, width, _ = frames[0].shape
    assert envs.render().shape == (2 * height, 2 * width, 3)
    np.testing.assert_array_equal(envs.render()[:height, :width], frames[0])


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
def test_vec_video_recorder_writes_a_video(tmp_path):
    pytest.importorskip("moviepy")
    envs = JaxVecEnv("CartPole-v1", 2, render_mode="rgb_array", seed=0)
    recorder = VecVideoRecorder(envs, str(tmp_path), lambda step: step == 0, video_length=5)
    recorder.reset()
    for _ in range(6):
        recorder.step(np.ones(2, int))
    recorder.close()
    (video,) = tmp_path.glob("*.mp4")
    assert video.stat().st_size > 1_000


def test_a_seed_applies_to_one_reset():
    first, second = cartpoles(), cartpoles()
    first.seed(7), second.seed(7)
    np.testing.assert_array_equal(first.reset(), second.reset())
    later = first.reset()
    assert (later != first.reset()).any()
    np.testing.assert_array_equal(later, second.reset())


def test_a_staggered_start_can_be_seeded():
    def start(seed):
        envs = JaxVecEnv("Pendulum-v1", 4, stagger=True, time_limit=10)
        PPO("MlpPolicy", envs, n_steps=4, policy_kwargs=dict(SMALL), seed=seed).learn(8)
        envs.seed(seed)
        return envs.reset()

    np.testing.assert_array_equal(start(0), start(0))
    assert (start(0) != start(1)).all()


def test_a_copy_is_equal_and_has_no_state():
    envs = cartpoles(seed=3)
    expected = envs.reset()
    for other in (copy.deepcopy(envs), pickle.loads(pickle.dumps(envs))):
        np.testing.assert_array_equal(other.reset(), expected)


def test_invalid_arguments_raise_named_errors():
    assert issubclass(JaxVecEnv, VecEnv)
    with pytest.raises(ParameterError, match="num_envs"):
        JaxVecEnv("CartPole-v1")
    with pytest.raises(ParameterError, match="same_step"):
        JaxVecEnv("CartPole-v1", 2, autoreset_mode="next_step")
    with pytest.raises(ParameterError, match='api="gym"'):
        JaxVecEnv("CartPole-v1", 2, api="gym")
    with pytest.raises(ParameterError, match='output="torch"'):
        JaxVecEnv("CartPole-v1", 2, output="torch")
    made = jaxenvs.make_gym("CartPole-v1", 2, autoreset_mode="same_step")
    with pytest.raises(ParameterError, match="gravity"):
        JaxVecEnv(made, gravity=1.0)
    envs = JaxVecEnv(made)
    envs.reset()
    envs.step_async(np.zeros(2, int))
    with pytest.raises(gymnasium.error.AlreadyPendingCallError):
        envs.step_async(np.zeros(2, int))
    envs.close()
    with pytest.raises(gymnasium.error.ClosedEnvironmentError):
        envs.reset()


def test_set_options_apply_to_the_next_reset():
    envs = JaxVecEnv("CartPole-v1", 3)
    envs.set_options({"low": 0.1, "high": 0.2})
    first = envs.reset()
    assert np.all((first >= 0.1) & (first <= 0.2)) and not np.any(envs.reset() >= 0.1)
    envs.set_options([{}, {"low": 0.1}, {}])
    with pytest.raises(ParameterError, match="Pass one dict"):
        envs.reset()
