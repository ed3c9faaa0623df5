"""Gymnasium's own wrappers around the environments of `make_gym`.

In Gymnasium 1.3, all of `gymnasium.wrappers.vector` work, except under same-step autoreset: the
observation wrappers refuse it, `RecordEpisodeStatistics` and `NormalizeReward` drop the first step
after the end of an episode, `RecordVideo` warns that last frames are missing, and the conversions
between array libraries do not accept `final_obs`, an array of objects. The wrappers of jaxenvs
support it.
"""

import functools
import operator
import warnings
from pathlib import Path

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import vector

import jaxenvs
from jaxenvs.wrappers import AddRenderObservation, ResizeObservation
from jaxenvs.wrappers import RecordEpisodeStatistics as OurStatistics
from tests.rounding import assert_close

pytestmark = [
    # Python warns about a process started while JAX has threads; ffmpeg is not affected.
    pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:.*precision lowered by casting to float32"),
]

N, STEPS, LIMIT = 4, 40, 12  # under these actions, every episode of CartPole ends by step 12
MODES = ("next_step", "same_step")


def cartpoles(**options):
    return jaxenvs.make_gym("CartPole-v1", N, time_limit=LIMIT, **options)


def pendulums(**options):
    return jaxenvs.make_gym("Pendulum-v1", N, time_limit=LIMIT, **options)


def pictures(render_only=True):
    small = functools.partial(AddRenderObservation, render_only=render_only)
    shrink = [functools.partial(ResizeObservation, shape=(8, 10))] if render_only else []
    return jaxenvs.make_gym("CartPole-v1", N, time_limit=2, wrappers=[small, *shrink])


def alternating(step):
    return (np.arange(N) // 2 + step) % 2


def test_infos_can_be_unpacked_and_mapped():
    envs = cartpoles_with_info()
    envs.reset(seed=0)
    infos = envs.step(alternating(0))[4]
    names = sorted([*infos])
    assert names[-3:] == ["episode_finished", "episode_length", "episode_return"]
    assert isinstance(infos, dict) and sorted(type(infos)(**infos)) == names
    assert dict(envs.step(alternating(1))[4])["episode_length"].tolist() == [2] * N
    assert {**envs.step(alternating(2))[4]}["episode_length"].tolist() == [3] * N
    doubled = jax.tree.map(lambda leaf: leaf * 2, envs.step(alternating(3))[4])
    assert doubled["episode_length"].tolist() == [8] * N


def run(envs, actions, steps=STEPS, seed=0):
    """Returns the observations, rewards and so on of a run, one list each."""
    out = [(*envs.reset(seed=seed),)]
    observations, infos = out[0]
    rows = [(observations, None, None, None, infos)]
    rows += [envs.step(actions(t)) for t in range(steps)]
    return [list(column) for column in zip(*rows, strict=True)]


def assert_same(ours, theirs):
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)


def assert_observes(wrapped, plain, expected, steps=STEPS, actions=alternating):
    """Asserts that a wrapped run equals `expected` of an unwrapped one."""
    mine, other = run(wrapped, actions, steps), run(plain, actions, steps)
    for observation, original in zip(mine[0], other[0], strict=True):
        assert wrapped.observation_space.contains(observation)
        jax.tree.map(np.testing.assert_allclose, observation, expected(original))
    assert_same(mine[1:4], other[1:4])
    assert np.concatenate(other[3][1:]).any()


def test_every_vector_wrapper_of_gymnasium_has_a_test_here():
    tested = {name for name in vector.__all__ if f"vector.{name}(" in Path(__file__).read_text()}
    assert tested | {"JaxToTorch", "NumpyToTorch"} == set(vector.__all__)


@pytest.mark.parametrize("mode", ["next_step", "disabled"])
def test_transform_observation(mode):
    wrapped = vector.TransformObservation(cartpoles(autoreset_mode=mode), lambda rows: rows * 2)
    assert_observes(wrapped, cartpoles(autoreset_mode=mode), lambda rows: rows * 2)


def test_vectorize_transform_observation():
    wrapped = vector.VectorizeTransformObservation(
        cartpoles(),
        gymnasium.wrappers.TransformObservation,
        func=np.negative,
        observation_space=None,
    )
    assert_observes(wrapped, cartpoles(), np.negative)


def test_filter_and_flatten_observation():
    wrapped = vector.FilterObservation(pictures(render_only=False), ["state"])
    assert_observes(wrapped, pictures(render_only=False), lambda rows: {"state": rows["state"]}, 3)
    wrapped = vector.FlattenObservation(pictures())
    assert wrapped.observation_space.shape == (N, 8 * 10 * 3)
    assert_observes(wrapped, pictures(), lambda rows: rows.reshape(N, -1), 3)


def test_grayscale_resize_and_reshape_observation():
    pytest.importorskip("cv2")
    wrapped = vector.GrayscaleObservation(pictures())
    gray = lambda rows: (rows * np.array([0.2125, 0.7154, 0.0721])).sum(-1).astype(np.uint8)  # noqa: E731
    assert_observes(wrapped, pictures(), gray, 3)
    wrapped = vector.ReshapeObservation(pictures(), (80, 3))
    assert_observes(wrapped, pictures(), lambda rows: rows.reshape(N, 80, 3), 3)
    wrapped = vector.ResizeObservation(pictures(), (4, 5))
    assert wrapped.reset(seed=0)[0].shape == (N, 4, 5, 3)
    # Resizing by area to half the size takes the mean of each 2x2 square.
    means = pictures().reset(seed=0)[0].reshape(N, 4, 2, 5, 2, 3).mean(axis=(2, 4))
    np.testing.assert_allclose(wrapped.reset(seed=0)[0], means, atol=0.51)


def test_rescale_and_dtype_observation():
    wrapped = vector.RescaleObservation(pendulums(), -2.0, 0.0)
    limit = np.array([1, 1, 8], np.float32)
    scaled = lambda rows: rows / limit - 1  # noqa: E731
    mine, other = (run(e, torques) for e in (wrapped, pendulums()))
    for observation, original in zip(mine[0], other[0], strict=True):
        np.testing.assert_allclose(observation, scaled(original), atol=1e-6)
    wrapped = vector.DtypeObservation(cartpoles(), np.float64)
    assert wrapped.reset(seed=0)[0].dtype == np.float64
    assert_observes(wrapped, cartpoles(), lambda rows: rows.astype(np.float64))


@pytest.mark.parametrize("mode", MODES)
def test_rewards_are_transformed_and_clipped_in_place(mode):
    options = {"autoreset_mode": mode}
    for wrapped, expected in (
        (vector.TransformReward(pendulums(**options), lambda reward: reward / 2), lambda r: r / 2),
        (
            vector.VectorizeTransformReward(
                pendulums(**options), gymnasium.wrappers.TransformReward, func=np.exp
            ),
            np.exp,
        ),
        (vector.ClipReward(pendulums(**options), -1.0, 0.0), lambda r: r.clip(-1, 0)),
    ):
        mine, other = run(wrapped, torques), run(pendulums(**options), torques)
        for reward, original in zip(mine[1][1:], other[1][1:], strict=True):
            np.testing.assert_allclose(reward, expected(original), rtol=1e-6)
        assert_same(mine[0], other[0])


def torques(step):
    return np.full((N, 1), np.sin(step), np.float32)


def test_actions_are_transformed_clipped_and_rescaled():
    for wrapped, actions in (
        (vector.TransformAction(pendulums(), lambda rows: rows / 2), lambda t: torques(t) * 2),
        (
            vector.VectorizeTransformAction(
                pendulums(),
                gymnasium.wrappers.TransformAction,
                func=lambda row: row / 2,
                action_space=None,
            ),
            lambda t: torques(t) * 2,
        ),
        (vector.RescaleAction(pendulums(), -1.0, 1.0), lambda t: torques(t) / 2),
    ):
        assert_same(run(wrapped, actions)[:4], run(pendulums(), torques)[:4])
    clipped = run(vector.ClipAction(pendulums()), lambda t: torques(t) * 5)
    assert_same(clipped[:4], run(pendulums(), lambda t: (torques(t) * 5).clip(-2, 2))[:4])


def test_normalize_observation():
    wrapped = vector.NormalizeObservation(cartpoles())
    observations = run(wrapped, alternating)[0]
    seen = np.concatenate(run(cartpoles(), alternating)[0])
    # Gymnasium's running statistics start with 1e-4 observations of mean 0 and variance 1.
    np.testing.assert_allclose(wrapped.obs_rms.mean, seen.mean(0), atol=1e-5)
    np.testing.assert_allclose(wrapped.obs_rms.var, seen.var(0), atol=1e-5)
    last = (seen[-N:] - seen.mean(0)) / seen.std(0)
    np.testing.assert_allclose(observations[-1], last, atol=1e-3)


def test_normalize_reward():
    gamma = 0.9
    wrapped = vector.NormalizeReward(pendulums(), gamma=gamma)
    rewards = np.stack(run(wrapped, torques)[1][1:])
    _, original, _, truncated, _ = run(pendulums(), torques)
    total, restarts, totals = np.zeros(N), np.zeros(N, bool), []
    for reward, ends in zip(original[1:], truncated[1:], strict=True):
        total = np.where(restarts, total, total * gamma + reward)  # a reset is not a step
        totals.append(total[~restarts])
        restarts = ends
    deviation = np.concatenate(totals).std()
    np.testing.assert_allclose(rewards[-1], original[-1] / deviation, rtol=1e-3)


@pytest.mark.parametrize("mode", [*MODES, "disabled"])
def test_record_episode_statistics_agrees_with_ours(mode):
    ours, theirs = (
        cartpoles(autoreset_mode=mode, wrappers=[OurStatistics]),
        cartpoles(autoreset_mode=mode),
    )
    theirs = vector.RecordEpisodeStatistics(theirs)
    ours.reset(seed=3), theirs.reset(seed=3)
    ended, later = 0, np.zeros(N, bool)
    for t in range(STEPS):
        *_, terminated, truncated, mine = ours.step(alternating(t))
        *_, other = theirs.step(alternating(t))
        done = terminated | truncated
        assert ("episode" in other) == done.any()
        if done.any():
            ended += done.sum()
            records = mine["final_info"] if mode == "same_step" else mine
            rows = done & ~later if mode == "same_step" else done
            later |= done
            np.testing.assert_array_equal(other["_episode"], done)
            for name, short in (("episode_return", "r"), ("episode_length", "l")):
                np.testing.assert_array_equal(records[name][rows], other["episode"][short][rows])
            np.testing.assert_array_equal(records["episode_finished"], done)
        if mode == "disabled" and done.any():  # a finished instance waits for its reset
            ours.reset(options={"reset_mask": done}), theirs.reset(options={"reset_mask": done})
    assert ended == theirs.episode_count > N
    assert max(theirs.length_queue) <= LIMIT


def test_dict_info_to_list():
    envs = vector.DictInfoToList(
        vector.RecordEpisodeStatistics(cartpoles(wrappers=[OurStatistics]))
    )
    _, infos = envs.reset(seed=0)
    assert [info["episode_length"] for info in infos] == [0] * N
    for t in range(LIMIT):
        _, _, terminated, truncated, infos = envs.step(alternating(t))
        assert [("episode" in info) for info in infos] == (terminated | truncated).tolist()
        assert all("episode_length" in info for info in infos)
    assert any("episode" in info for info in infos)


@pytest.mark.interop
def test_conversions_between_array_libraries():
    pytest.importorskip("array_api_compat")
    plain = run(cartpoles(wrappers=[OurStatistics]), alternating)
    conversions = (
        (
            vector.ArrayConversion(cartpoles_with_info(), env_xp=np, target_xp=jnp),
            jnp.asarray,
            jax.Array,
        ),
        # The actions are JAX arrays here. The results are NumPy arrays already.
        (vector.JaxToNumpy(cartpoles_with_info()), np.asarray, np.ndarray),
    )
    for wrapped, action_type, kind in conversions:
        columns = run(wrapped, lambda t, as_type=action_type: as_type(alternating(t)))
        assert isinstance(columns[0][-1], kind) and isinstance(columns[3][-1], kind)
        assert isinstance(columns[4][-1]["episode_length"], kind)
        assert_same(columns, plain)


def cartpoles_with_info():
    return cartpoles(wrappers=[OurStatistics])


@pytest.mark.interop
@pytest.mark.parametrize("name", ["NumpyToTorch", "JaxToTorch"])
def test_conversions_to_torch(name):
    torch = pytest.importorskip("torch")
    pytest.importorskip("array_api_compat")
    wrapped = getattr(vector, name)(cartpoles_with_info())
    columns = run(wrapped, lambda t: torch.from_numpy(alternating(t)))
    leaves = jax.tree.leaves(columns)
    assert leaves and all(isinstance(leaf, torch.Tensor) for leaf in leaves)
    assert_same(jax.tree.map(torch.Tensor.numpy, columns), run(cartpoles_with_info(), alternating))


def test_human_rendering(monkeypatch):
    pytest.importorskip("cv2")
    pygame = pytest.importorskip("pygame")
    shown = []
    monkeypatch.setattr(pygame.display, "flip", lambda: shown.append(envs.window.get_size()))
    envs = vector.HumanRendering(cartpoles(render_mode="rgb_array"), screen_size=(300, 200))
    envs.reset(seed=0)
    envs.step(alternating(0))
    assert shown == [(300, 200)] * 2
    assert np.unique(pygame.surfarray.array3d(envs.window)).size > 1
    envs.close()


@pytest.mark.interop
@pytest.mark.filterwarnings("ignore:.*Overwriting existing videos")
def test_record_video_of_a_batch(tmp_path):
    pytest.importorskip("moviepy")
    envs = vector.RecordVideo(
        cartpoles(render_mode="rgb_array"),
        video_folder=str(tmp_path),
        episode_trigger=lambda episode: episode == 0,
    )
    envs.reset(seed=0)
    for t in range(LIMIT + 1):
        envs.step(alternating(t))
    envs.close()
    assert frame_count(tmp_path / "rl-video-episode-0.mp4") >= 8


@pytest.mark.interop
@pytest.mark.filterwarnings("ignore:.*Overwriting existing videos")
def test_record_video_and_statistics_of_a_single_environment(tmp_path):
    pytest.importorskip("moviepy")
    env = jaxenvs.make_gym("CartPole-v1", render_mode="rgb_array", time_limit=LIMIT)
    env = gymnasium.wrappers.RecordEpisodeStatistics(env)
    env = gymnasium.wrappers.RecordVideo(env, str(tmp_path), episode_trigger=lambda episode: True)
    lengths = []
    for episode in range(2):
        env.reset(seed=episode)
        done, total = False, 0.0
        while not done:
            _, reward, terminated, truncated, info = env.step(len(lengths))
            done, total = terminated or truncated, total + float(reward)
        assert info["episode"]["r"] == total == info["episode"]["l"]  # reward 1 per step
        lengths.append(info["episode"]["l"])
    env.close()
    for episode, length in enumerate(lengths):
        frames = frame_count(tmp_path / f"rl-video-episode-{episode}.mp4")
        assert frames == length + 1


def frame_count(path):
    import imageio.v3 as imageio

    return len(imageio.imread(path))


def test_a_wrapped_single_environment_passes_the_checker():
    env = jaxenvs.make_gym("Pendulum-v1", render_mode="rgb_array")
    for wrapper in (
        gymnasium.wrappers.ClipAction,
        gymnasium.wrappers.FlattenObservation,
        gymnasium.wrappers.NormalizeObservation,
        gymnasium.wrappers.PassiveEnvChecker,
        gymnasium.wrappers.OrderEnforcing,
    ):
        env = wrapper(env)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env.reset(seed=0)
        for _ in range(3):
            env.step(env.action_space.sample())
        # The checker warns about the range of Pendulum's torque, [-2, 2], which is Gymnasium's.
        warnings.filterwarnings("ignore", message=".*symmetric and normalized")
        check_env(env.unwrapped)


def test_sync_vector_env_agrees_with_the_batch():
    envs = gymnasium.vector.SyncVectorEnv(
        [functools.partial(jaxenvs.make_gym, "CartPole-v1", time_limit=LIMIT)] * N
    )
    seeds = [5, 6, 7, 8]
    first = vector.RecordEpisodeStatistics(envs)
    second = vector.RecordEpisodeStatistics(cartpoles())
    assert_close(first.reset(seed=seeds)[0], second.reset(seed=seeds)[0])
    alive = np.ones(N, bool)
    for t in range(LIMIT):
        mine, other = first.step(alternating(t)), second.step(alternating(t))
        for column in range(4):
            assert_close(mine[column][alive], other[column][alive])
        alive &= ~operator.or_(*mine[2:4])
    assert not alive.any()
