"""The classic gym interface, compared with Gymnasium's and tested on its own."""

import copy
import pickle

import gymnasium
import numpy as np
import pytest

import jaxenvs
from jaxenvs.errors import ActionError, MissingExtraError, ParameterError, SeedError
from jaxenvs.faces.gym_classic import ClassicEnv, ClassicVectorEnv
from jaxenvs.testing import CountingEnv, ScriptedEnv

GO_ON, TERMINATE, TRUNCATE, BOTH = range(4)


def scripted(num_envs=None, **options):
    return jaxenvs.make_gym(ScriptedEnv(), num_envs, api="gym", seed=0, **options)


@pytest.mark.parametrize("truncates", [False, True])
def test_an_episode_agrees_with_gymnasium(truncates):
    env = jaxenvs.make_gym("CartPole-v0", api="gym", seed=3)
    reference = gymnasium.make("CartPole-v1", max_episode_steps=200)
    observation, done = env.reset(), False
    reference.reset()
    while not done:
        keeps_upright = int(observation[2] + 0.5 * observation[3] > 0)
        action = keeps_upright if truncates else 1
        reference.unwrapped.state = tuple(observation.astype(np.float64))
        observation, reward, done, info = env.step(action)
        expected, expected_reward, terminated, truncated, _ = reference.step(action)
        np.testing.assert_allclose(observation, expected, atol=1e-5)
        assert (reward, done) == (expected_reward, terminated or truncated)
        assert type(reward) is float and type(done) is bool
        assert info == ({"TimeLimit.truncated": truncated and not terminated} if done else {})
    assert truncated == truncates


def test_a_single_environment_has_the_classic_interface():
    with scripted() as env:
        assert isinstance(env, ClassicEnv) and env.unwrapped is env and env.spec is None
        assert env.action_space == gymnasium.spaces.Discrete(4)
        assert env.reset() in env.observation_space
        assert env.metadata["render.modes"] == ["human", "rgb_array"]
        observation, reward, done, info = env.step(GO_ON)
        assert observation[1] == 1 and not done and info == {"count": 1}
        _, reward, done, info = env.step(BOTH)
        assert reward == 3 and done and info == {"count": 2, "TimeLimit.truncated": False}
    with pytest.raises(gymnasium.error.ClosedEnvironmentError):
        env.step(GO_ON)
    spec = jaxenvs.make_gym("CartPole-v0", api="gym").spec
    assert (spec.id, spec.max_episode_steps) == ("jaxenvs/CartPole-v0", 200)


@pytest.mark.parametrize("num_envs", [None, 3])
def test_a_finished_instance_stays_finished_until_reset(num_envs):
    env = scripted(num_envs)
    act = (lambda action: action) if num_envs is None else (lambda action: np.full(3, action))
    env.reset()
    last, reward, done, _ = env.step(act(TRUNCATE))
    assert np.all(reward == 2) and np.all(done)
    for action in (GO_ON, TERMINATE):
        observation, reward, done, info = env.step(act(action))
        np.testing.assert_array_equal(observation, last)
        assert np.all(reward == 0) and np.all(done)
        assert (info if num_envs is None else info[2])["TimeLimit.truncated"]
    again = env.reset()
    assert np.all(again[..., 1] == 0) and np.all(again[..., 0] != last[..., 0])
    assert not np.any(env.step(act(GO_ON))[2])


def test_a_loop_until_all_are_done_ends():
    env = jaxenvs.make_gym(CountingEnv(), 16, api="gym", seed=1)
    assert isinstance(env, ClassicVectorEnv) and env.num_envs == 16
    env.reset()
    done, returns, steps = [False], np.zeros(16), 0
    while not all(done):
        observation, reward, done, _ = env.step(env.action_space.sample())
        returns, steps = returns + reward, steps + 1
    lengths = observation[:, 0]
    assert steps == lengths.max() == 5 and lengths.min() == 1
    np.testing.assert_array_equal(returns, lengths * (lengths + 1) / 2)


def test_infos_are_one_dict_per_instance():
    env = scripted(4)
    env.reset()
    observations, rewards, done, infos = env.step([GO_ON, TERMINATE, TRUNCATE, BOTH])
    assert observations.shape == (4, 2) and rewards.dtype == np.float32
    assert done.tolist() == [False, True, True, True]
    done[:] = False  # the array belongs to the caller
    assert len(infos) == 4 and isinstance(infos[0], dict)
    assert [info.get("TimeLimit.truncated") for info in infos] == [None, False, True, False]
    assert [info["count"] for info in infos] == [1] * 4
    infos[0]["note"] = "kept"
    assert infos[0]["note"] == "kept" and "note" not in infos[1]
    assert "note" in repr(infos)
    assert infos == list(infos) and infos != [{}] * 4
    for copied in (copy.deepcopy(infos), pickle.loads(pickle.dumps(infos))):
        assert isinstance(copied, list) and copied == infos


@pytest.mark.parametrize("layout", ["array", "dict", "tuple"])
def test_same_step_infos_have_the_terminal_observation(layout):
    env = jaxenvs.make_gym(
        CountingEnv(lengths=(2, 3), layout=layout),
        8,
        api="gym",
        autoreset_mode="same_step",
        seed=0,
    )

    def count(observation):
        key = {"array": (..., 0), "dict": "count", "tuple": 0}[layout]
        return observation[key]

    assert np.all(count(env.reset()) == 0)
    ended = 0
    for _ in range(6):
        observations, rewards, done, infos = env.step(np.zeros(8, np.int64))
        for i, info in enumerate(infos):
            assert set(info) == (
                {"TimeLimit.truncated", "terminal_observation"} if done[i] else set()
            )
            if done[i]:
                assert info["terminal_observation"] in env.single_observation_space
                assert count(info["terminal_observation"]) == rewards[i]
                ended += 1
        assert np.all((count(observations) == 0) == done)
    assert ended >= 16


def test_infos_belong_to_the_episode_that_ended():
    env = scripted(2, autoreset_mode="same_step")
    env.reset()
    env.step([GO_ON, GO_ON])
    observations, _, _, infos = env.step([TERMINATE, GO_ON])
    assert observations[:, 1].tolist() == [0, 2]
    assert [info["count"] for info in infos] == [2, 2]
    assert infos[0]["terminal_observation"][1] == 2
    assert env.step([GO_ON, GO_ON])[3][0] == {"count": 1}


def test_each_instance_follows_its_own_seed():
    def run(env, seed, steps=12):
        seeds = env.seed(seed)
        seen = [env.reset()]
        seen += [env.step(np.zeros(env.num_envs, np.int32))[0] for _ in range(steps)]
        return seeds, np.stack(seen)

    four = jaxenvs.make_gym("Pendulum-v1", 4, api="gym", wrappers=[_unit_actions])
    seeds, trajectory = run(four, 7)
    assert seeds == [7, 8, 9, 10]
    np.testing.assert_array_equal(run(four, [7, 8, 9, 10])[1], trajectory)
    assert not np.array_equal(run(four, 8)[1], trajectory)
    two = jaxenvs.make_gym("Pendulum-v1", 2, api="gym", wrappers=[_unit_actions])
    np.testing.assert_array_equal(run(two, [9, 7])[1], trajectory[:, [2, 0]])

    one = jaxenvs.make_gym("Pendulum-v1", api="gym", wrappers=[_unit_actions])
    assert one.seed(9) == [9]
    seen = [one.reset(), *(one.step(0)[0] for _ in range(12))]
    np.testing.assert_allclose(np.stack(seen), trajectory[:, 2], rtol=1e-6)


def _unit_actions(env):
    return env.wrap(jaxenvs.wrappers.DiscretizeAction, 3)


def test_a_seed_applies_to_one_reset():
    env, twin = scripted(2), scripted(2)
    first, second = env.reset(), env.reset()
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(twin.reset(), first)  # the seed given to make_gym
    np.testing.assert_array_equal(twin.reset(), second)
    assert env.seed(0) == [0, 1]
    np.testing.assert_array_equal(env.reset(), first)
    drawn = env.seed()
    assert len(set(drawn)) == 2 and all(type(seed) is int for seed in drawn)
    third = env.reset()
    assert twin.seed(drawn) == drawn
    np.testing.assert_array_equal(twin.reset(), third)


@pytest.mark.parametrize("seed", [-1, 2**32 - 1, "abc", 1.5, True, [1], [1, -2], [0, "a"]])
def test_invalid_seeds_are_refused(seed):
    with pytest.raises(SeedError):
        scripted(2).seed(seed)


def test_step_async_and_step_wait():
    env, twin = scripted(2), scripted(2)
    env.reset(), twin.reset()
    env.step_async([GO_ON, TRUNCATE])
    with pytest.raises(gymnasium.error.AlreadyPendingCallError):
        env.step([GO_ON, GO_ON])
    observations, _, done, infos = env.step_wait()
    expected = twin.step([GO_ON, TRUNCATE])
    np.testing.assert_array_equal(observations, expected[0])
    assert done.tolist() == [False, True] and list(infos) == list(expected[3])
    with pytest.raises(gymnasium.error.NoAsyncCallError):
        env.step_wait()


def test_invalid_arguments_raise_named_errors():
    env = scripted(2)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step([0, 0])
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.render("rgb_array")
    env.reset()
    with pytest.raises(ActionError, match="outside"):
        env.step([0, 4])
    with pytest.raises(ActionError, match=r"int32\[2\]"):
        env.step([0, 0, 0])
    one = scripted()
    one.reset()
    for action in (4, None, [0], "left"):
        with pytest.raises(ActionError, match=r"expected a member of Discrete\(4\)"):
            one.step(action)
    assert one.step(GO_ON)[3] == {"count": 1}  # none of them took a step
    with pytest.raises(ParameterError, match="rgb_array"):
        env.render("rgb_aray")
    with pytest.raises(ParameterError, match="rgb_array_list"):
        scripted(2, render_mode="rgb_array_list")


def test_frames_are_returned_or_shown(monkeypatch):
    env = jaxenvs.make_gym("CartPole-v0", 3, api="gym")
    env.reset()
    frames = env.render(mode="rgb_array")
    assert len(frames) == 3 and frames[0].dtype == np.uint8 and frames[0].shape == (400, 600, 3)
    shown = []
    monkeypatch.setattr(
        "jaxenvs.rendering.window.Window.show", lambda _, frame: shown.append(frame)
    )
    assert env.render() is None
    rows, columns = shown[0].shape[0] // 400, shown[0].shape[1] // 600
    assert rows * columns >= 3
    np.testing.assert_array_equal(shown[0][:400, :600], frames[0])
    env.close()
    env.close()

    one = jaxenvs.make_gym("CartPole-v0", api="gym", render_mode="rgb_array", seed=0)
    one.reset()
    assert one.render().shape == (400, 600, 3) and len(shown) == 1
    one.render("human")
    np.testing.assert_array_equal(shown[1], one.render())


def test_the_window_needs_pygame(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pygame", None)
    env = jaxenvs.make_gym("CartPole-v0", api="gym")
    env.reset()
    with pytest.raises(MissingExtraError, match="render"):
        env.render()


def test_parameters_are_read_and_set():
    env = jaxenvs.make_gym("CartPole-v1", 2, api="gym", gravity=3.7)
    assert env.get_attr("gravity") == env.call("gravity") == (3.7, 3.7)
    env.set_attr("gravity", 9.8)
    assert env.get_attr("gravity") == (9.8, 9.8) and "gravity=9.8" in repr(env)


@pytest.mark.interop
def test_output_can_be_torch():
    torch = pytest.importorskip("torch")
    env = scripted(2, output="torch", autoreset_mode="same_step")
    assert isinstance(env.reset(), torch.Tensor)
    observations, rewards, done, infos = env.step(torch.tensor([GO_ON, TRUNCATE]))
    assert all(isinstance(part, torch.Tensor) for part in (observations, rewards, done))
    assert torch.equal(infos[1]["terminal_observation"][1], torch.tensor(1, dtype=torch.uint32))
    one = scripted(output="torch")
    assert isinstance(one.reset(), torch.Tensor)
    assert isinstance(one.step(torch.tensor(GO_ON))[0], torch.Tensor)
