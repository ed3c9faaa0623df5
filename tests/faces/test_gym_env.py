"""One instance as a `gymnasium.Env`, compared with Gymnasium's own environments."""

import functools
import warnings

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils import env_checker

import jaxenvs
from jaxenvs import spaces, struct
from jaxenvs.core import Environment, TimeStep
from jaxenvs.errors import ActionError, ParameterError, SeedError, UnknownParameterError
from jaxenvs.faces.gym_env import RENDER_MODES, GymEnv
from jaxenvs.keys import call_keys
from jaxenvs.testing import CountingEnv, ScriptedEnv
from jaxenvs.wrappers import FlattenObservation, RescaleAction
from tests.ids import diagonal
from tests.rounding import assert_close

IDS = ("Acrobot-v1", "CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1")
GO_ON, TERMINATE, TRUNCATE, BOTH = range(4)


def warnings_of(check, *args):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check(*args)
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize(("id", "render_mode"), diagonal(IDS, [None, *RENDER_MODES]))
def test_gymnasium_s_checker_passes(id, render_mode):
    pytest.importorskip("pygame")
    # Ignores warnings about the spaces, which are equal to those of Gymnasium's environment.
    reference, expected = gymnasium.make(id), []
    for name in ("action", "observation"):
        space = getattr(reference, f"{name}_space")
        expected += warnings_of(env_checker.check_space_limit, space, name)
    with jaxenvs.make_gym(id, render_mode=render_mode) as env:
        assert warnings_of(env_checker.check_env, env) == expected
    assert bool(expected) == (id in ("CartPole-v1", "Pendulum-v1"))


def test_gymnasium_s_checker_passes_with_rescaled_actions():
    wrappers = [functools.partial(RescaleAction, min_action=-1.0, max_action=1.0)]
    env = jaxenvs.make_gym("Pendulum-v1", wrappers=wrappers)
    assert not warnings_of(env_checker.check_env, env)


@pytest.mark.parametrize("layout", ["array", "dict", "tuple"])
def test_gymnasium_s_checker_passes_nested_observations(layout):
    env = jaxenvs.make_gym(CountingEnv(layout=layout))
    (warning,) = warnings_of(env_checker.check_env, env)
    assert "not having a spec" in warning  # only ids have a spec


def state_of(id, observation):
    """Returns the state of Gymnasium's environment for an observation."""
    x = observation.astype(np.float64)
    if id == "Pendulum-v1":
        return np.array([np.arctan2(x[1], x[0]), x[2]])
    if id == "Acrobot-v1":
        return np.array([np.arctan2(x[1], x[0]), np.arctan2(x[3], x[2]), x[4], x[5]])
    return x


@pytest.mark.parametrize("id", IDS)
def test_every_step_of_an_episode_agrees_with_gymnasium(id):
    env, reference = jaxenvs.make_gym(id), gymnasium.make(id)
    assert env.observation_space == reference.observation_space
    assert env.action_space == reference.action_space
    observation, info = env.reset(seed=1)
    expected, expected_info = reference.reset(seed=1)
    reference.action_space.seed(1)
    terminated = truncated = False
    while not (terminated or truncated):
        assert same_type(observation, expected) and info == expected_info == {}
        assert observation in env.observation_space
        action = reference.action_space.sample()
        reference.unwrapped.state = state_of(id, observation)
        ours, theirs = env.step(action), reference.step(action)
        assert [type(part) for part in ours[2:4]] == [bool, bool] and type(ours[1]) is float
        np.testing.assert_allclose(ours[0], theirs[0], atol=2e-5, rtol=1e-4)
        assert ours[1] == pytest.approx(theirs[1], rel=1e-4)
        observation, _, terminated, truncated, info = ours
        expected, _, *flags, expected_info = theirs
        assert [terminated, truncated] == flags


def same_type(a, b):
    return type(a) is type(b) and (a.dtype, a.shape) == (b.dtype, b.shape)


def episode(env, seed=None, steps=6):
    observations = [env.reset(seed=seed)[0]]
    for step in range(steps):
        observations.append(env.step(env.action_space.sample() if seed is None else step % 2)[0])
    return np.stack(observations)


def test_a_seed_means_the_same_in_a_batch():
    env, batch = jaxenvs.make_gym("CartPole-v1"), jaxenvs.make_gym("CartPole-v1", num_envs=3)
    ours = episode(env, seed=7)
    theirs = [batch.reset(seed=[3, 7, 9])[0][1]]
    for step in range(6):
        theirs.append(batch.step(np.full(3, step % 2))[0][1])
    assert_close(ours, np.stack(theirs))


@pytest.mark.parametrize("num_envs", [None, 3])
def test_a_seed_reproduces_later_episodes_too(num_envs):
    env = jaxenvs.make_gym("CartPole-v1", num_envs)
    first = [env.reset(seed=3)[0], env.reset()[0], env.reset()[0]]
    again = [env.reset(seed=3)[0], env.reset()[0], env.reset()[0]]
    np.testing.assert_array_equal(first, again)
    assert len({observation.tobytes() for observation in first}) == 3
    assert not np.array_equal(env.reset(seed=4)[0], first[0])


@pytest.mark.parametrize("num_envs", [None, 3])
def test_the_seed_of_make_gym_applies_to_the_first_reset(num_envs):
    env = jaxenvs.make_gym("CartPole-v1", num_envs, seed=5)
    other = jaxenvs.make_gym("CartPole-v1", num_envs)
    first, second = env.reset()[0], env.reset()[0]
    np.testing.assert_array_equal(first, other.reset(seed=5)[0])
    np.testing.assert_array_equal(second, other.reset()[0])
    assert env.np_random_seed == other.np_random_seed == 5
    assert env.np_random.integers(1000) == other.np_random.integers(1000)


@pytest.mark.parametrize("num_envs", [None, 3])
def test_without_a_seed_no_two_environments_agree(num_envs):
    first, second = (jaxenvs.make_gym("CartPole-v1", num_envs).reset()[0] for _ in range(2))
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("seed", [-1, 2**32, 1.5, "3", True, [3]])
def test_an_invalid_seed_is_refused(seed):
    env = jaxenvs.make_gym("CartPole-v1")
    env.reset(seed=3)
    with pytest.raises(SeedError, match="seed"):
        env.reset(seed=seed)
    after = env.step(1)[0]
    env.reset(seed=3)
    np.testing.assert_array_equal(after, env.step(1)[0])


@pytest.mark.parametrize(
    ("id", "action"),
    [
        ("CartPole-v1", 2),
        ("CartPole-v1", -1),
        ("CartPole-v1", 1.0),
        ("CartPole-v1", True),
        ("CartPole-v1", None),
        ("CartPole-v1", "left"),
        ("CartPole-v1", [1]),
        ("CartPole-v1", np.array([1])),
        ("CartPole-v1", {"push": 1}),
        ("Pendulum-v1", np.float32(1.0)),
        ("Pendulum-v1", np.array([2.5], np.float32)),
        ("Pendulum-v1", np.array([np.nan], np.float32)),
        ("Pendulum-v1", np.array([np.inf], np.float32)),
        ("Pendulum-v1", np.zeros((1, 1), np.float32)),
        ("Pendulum-v1", [[1.0], [1.0, 2.0]]),
        ("Pendulum-v1", np.array([1j])),
    ],
    ids=repr,
)
def test_an_invalid_action_is_refused_without_a_step(id, action):
    env = jaxenvs.make_gym(id)
    env.reset(seed=0)
    with pytest.raises(ActionError, match="expected a member of") as refusal:
        env.step(action)
    assert "num_envs" not in str(refusal.value)
    fits = env.action_space.sample()
    after = env.step(fits)[0]
    env.reset(seed=0)
    np.testing.assert_array_equal(after, env.step(fits)[0])


@pytest.mark.parametrize("action", [1, np.int64(1), np.int32(1), np.array(1), jnp.int32(1)])
def test_an_action_can_have_any_numeric_type(action):
    env = jaxenvs.make_gym("CartPole-v1")
    env.reset(seed=0)
    after = env.step(action)[0]
    env.reset(seed=0)
    np.testing.assert_array_equal(after, env.step(1)[0])


def test_without_validation_the_environment_gets_any_value():
    env = jaxenvs.make_gym("Pendulum-v1", validate=False)
    env.reset(seed=0)
    beyond = env.step(np.array([70.0], np.float32))[0]
    env.reset(seed=0)
    np.testing.assert_array_equal(beyond, env.step(np.array([2.0], np.float32))[0])
    with pytest.raises(ActionError):
        env.step(np.zeros(3, np.float32))


def test_step_and_render_before_reset_are_refused():
    env = jaxenvs.make_gym("CartPole-v1", render_mode="rgb_array")
    with pytest.raises(gymnasium.error.ResetNeeded, match=r"step .* reset"):
        env.step(0)
    with pytest.raises(gymnasium.error.ResetNeeded, match=r"render .* reset"):
        env.render()


def test_a_closed_environment_can_only_be_closed_again():
    env = jaxenvs.make_gym("CartPole-v1", render_mode="rgb_array_list")
    env.reset()
    env.close()
    env.close()
    for call in (env.reset, env.render, lambda: env.step(0)):
        with pytest.raises(gymnasium.error.ClosedEnvironmentError, match="after close"):
            call()


def test_a_finished_episode_stays_finished_until_reset():
    env = jaxenvs.make_gym(ScriptedEnv())
    env.reset(seed=0)
    last, reward, terminated, truncated, info = env.step(BOTH)
    assert (reward, terminated, truncated, info) == (3.0, True, True, {"count": 1})
    again, reward, terminated, truncated, _ = env.step(GO_ON)
    assert (reward, terminated, truncated) == (0.0, True, True)
    np.testing.assert_array_equal(again, last)
    assert env.reset()[1] == {"count": 0}


def test_a_single_environment_can_autoreset():
    env = jaxenvs.make_gym(ScriptedEnv(), autoreset_mode="same_step")
    start = env.reset(seed=0)[0]
    assert env.step(GO_ON)[4] == {"count": 1}
    observation, _, terminated, _, info = env.step(TERMINATE)
    assert terminated and observation[1] == 0 and observation[0] != start[0]
    np.testing.assert_array_equal(info["final_obs"], [start[0], 2])
    assert info["count"] == 0 and info["final_info"] == {"count": 2}


class Nested(Environment):
    """Has every kind of space, for observations and actions."""

    step_size: float = 1.0
    top: int = struct.static(5)

    @property
    def observation_space(self):
        return spaces.Dict(
            {
                "number": spaces.Discrete(self.top),
                "scalar": spaces.Box(-100.0, 100.0, ()),
                "pair": spaces.Tuple((spaces.MultiBinary(2), spaces.MultiDiscrete([2, 3]))),
            }
        )

    @property
    def action_space(self):
        return spaces.Dict({"move": spaces.Box(-1.0, 1.0, ()), "on": spaces.MultiBinary(2)})

    def reset(self, key):
        del key  # deterministic
        state = jnp.float32(0)
        return state, TimeStep.first(
            self.look(state, jnp.zeros(2, jnp.int8)), info=self.tell(state)
        )

    def step(self, state, action, key):
        del key  # deterministic
        state = state + self.step_size * action["move"]
        return state, TimeStep.transition(
            self.look(state, action["on"]), reward=state, terminated=False, info=self.tell(state)
        )

    def look(self, state, on):
        return {
            "number": jnp.int32(3),
            "scalar": state,
            "pair": (on.astype(self.observation_space["pair"][0].dtype), jnp.array([1, 2])),
        }

    def tell(self, state):
        return {"where": state, "more": {"twice": state * 2}}


def test_nested_spaces_keep_structure_and_types():
    env = jaxenvs.make_gym(Nested())
    observation, info = env.reset(seed=0)
    assert observation in env.observation_space and info == {"where": 0, "more": {"twice": 0}}
    assert isinstance(observation["scalar"], np.ndarray)
    action = {"move": np.float32(0.5), "on": np.array([0, 1], np.int8)}
    observation, reward, _, _, info = env.step(action)
    assert observation in env.observation_space and reward == 0.5
    assert observation["number"] == 3 and type(observation["number"]) is np.int64
    assert info == {"where": 0.5, "more": {"twice": 1.0}}
    assert list(observation["pair"][0]) == [0, 1]
    with pytest.raises(ActionError, match="expected a member of"):
        env.step({"move": 0.5})
    assert env.step({"move": 0.5, "on": [1, 1]})[1] == 1.0


def test_rgb_array_list_has_the_frames_since_the_last_call():
    env = jaxenvs.make_gym("CartPole-v1", render_mode="rgb_array_list")
    still = jaxenvs.make_gym("CartPole-v1", render_mode="rgb_array")
    env.reset(seed=0)
    still.reset(seed=0)
    expected = [still.render()]
    for _ in range(2):
        env.step(1)
        still.step(1)
        expected.append(still.render())
    frames = env.render()
    assert isinstance(frames, list)
    np.testing.assert_array_equal(frames, expected)
    assert env.render() == []
    env.step(1)
    env.reset(seed=0)
    np.testing.assert_array_equal(env.render(), expected[:1])


def test_a_frame_shows_the_current_state():
    env = jaxenvs.make_gym("Pendulum-v1", render_mode="rgb_array")
    env.reset(seed=0)
    before, again = env.render(), env.render()
    assert before.dtype == np.uint8 and before.ndim == 3 and before.shape[2] == 3
    np.testing.assert_array_equal(before, again)
    env.step(np.array([2.0], np.float32))
    assert not np.array_equal(env.render(), before)


def test_a_window_shows_every_step_until_close():
    pygame = pytest.importorskip("pygame")
    env = jaxenvs.make_gym("CartPole-v1", render_mode="human")
    still = jaxenvs.make_gym("CartPole-v1", render_mode="rgb_array")
    for step in range(2):
        for each in (env, still):
            each.reset(seed=0) if step == 0 else each.step(1)
        shown = pygame.surfarray.array3d(pygame.display.get_surface()).swapaxes(0, 1)
        np.testing.assert_array_equal(shown, still.render())
    assert env.render() is None
    env.close()
    assert not pygame.display.get_init()


@pytest.mark.parametrize("num_envs", [None, 2])
def test_rendering_without_a_mode_warns(num_envs):
    env = jaxenvs.make_gym("CartPole-v1", num_envs)
    env.reset()
    with pytest.warns(UserWarning, match="render_mode='rgb_array'"):
        assert env.render() is None


def test_parameters_are_accessible_through_wrappers():
    env = gymnasium.make("jaxenvs/CartPole-v1")
    assert env.has_wrapper_attr("gravity") and env.get_wrapper_attr("gravity") == 9.8
    env.reset(seed=0)
    falls = env.step(1)[0]
    env.reset(seed=0)
    assert env.set_wrapper_attr("gravity", 0.0)
    floats = env.step(1)[0]
    assert env.get_wrapper_attr("gravity") == 0.0 and falls[3] != floats[3]
    env.reset(seed=0)
    fresh = gymnasium.make("jaxenvs/CartPole-v1", gravity=0.0)
    fresh.reset(seed=0)
    np.testing.assert_array_equal(env.step(1)[0], fresh.step(1)[0])


def test_setting_a_parameter_updates_the_spaces():
    env = jaxenvs.make_gym("Pendulum-v1")
    generator = env.observation_space
    env.reset(seed=0)
    env.set_wrapper_attr("max_torque", 3.0)
    assert env.action_space.high == 3.0 and env.observation_space is generator
    env.set_wrapper_attr("max_speed", 5.0)
    assert env.observation_space.high[2] == 5.0 and env.action_space.high == 3.0
    env.step(np.array([3.0], np.float32))
    with pytest.raises(ActionError):
        env.step(np.array([3.1], np.float32))


def test_other_attributes_belong_to_the_environment():
    env = jaxenvs.make_gym("CartPole-v1", render_mode="rgb_array")
    assert env.get_wrapper_attr("render_mode") == "rgb_array"
    assert not env.has_wrapper_attr("gravitation")
    with pytest.raises(AttributeError):
        env.get_wrapper_attr("gravitation")
    assert not env.set_wrapper_attr("label", 3, force=False) and not hasattr(env, "label")
    assert env.set_wrapper_attr("label", 3) and env.label == 3


def test_wrappers_are_compiled_into_the_environment():
    env = jaxenvs.make_gym(CountingEnv(layout="dict"), wrappers=[FlattenObservation])
    assert env.observation_space.shape == env.reset(seed=0)[0].shape
    assert isinstance(env.env.env, FlattenObservation)


def test_str_and_type_are_gymnasium_s():
    env = jaxenvs.make_gym("CartPole-v1")
    assert isinstance(env, gymnasium.Env) and isinstance(env, GymEnv) and env.unwrapped is env
    assert str(env) == "<GymEnv<jaxenvs/CartPole-v1>>"
    assert jaxenvs.make_gym(ScriptedEnv()).spec is None


def test_gymnasium_s_wrappers_work():
    env = gymnasium.wrappers.RecordEpisodeStatistics(jaxenvs.make_gym("Pendulum-v1", time_limit=4))
    env.reset(seed=0)
    rewards = [env.step(env.action_space.sample())[1] for _ in range(3)]
    _, reward, _, truncated, info = env.step(env.action_space.sample())
    assert truncated and info["episode"]["l"] == 4
    assert info["episode"]["r"] == pytest.approx(sum(rewards) + reward)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"api": "gymnasum"}, ParameterError, 'Close: "gymnasium"'),
        ({"render_mode": "rgb"}, ParameterError, 'Close: "rgb_array"'),
        ({"output": "jax"}, ParameterError, "numpy"),
        ({"autoreset_mode": "samestep"}, ParameterError, 'Close: "same_step"'),
        ({"device": "abacus"}, ParameterError, "abacus"),
        ({"device": "cpu:99"}, ParameterError, "cpu:99"),
        ({"device": 3}, ParameterError, "device=3 is not a device"),
        ({"max_episode_steps": 20}, UnknownParameterError, "Pass time_limit"),
        ({"reset_chunk": 2}, UnknownParameterError, "an argument for batches"),
        ({"num_workers": 2}, UnknownParameterError, r"for pools.*make_pool\("),
        ({"gravitty": 1.0}, UnknownParameterError, "gravity"),
        ({"time_limit": 0}, ParameterError, "time.limit"),
    ],
    ids=str,
)
def test_unknown_options_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        jaxenvs.make_gym("CartPole-v1", **options)


def test_a_device_can_be_chosen():
    expected = jaxenvs.make_gym("CartPole-v1").reset(seed=0)[0]
    for device in ("cpu", "cpu:3", jax.devices("cpu")[5]):
        env = jaxenvs.make_gym("CartPole-v1", device=device)
        np.testing.assert_array_equal(env.reset(seed=0)[0], expected)


@pytest.mark.interop
def test_tensors_go_in_and_out():
    torch = pytest.importorskip("torch")
    env = jaxenvs.make_gym("Pendulum-v1", output="torch")
    observation, _ = env.reset(seed=0)
    assert isinstance(observation, torch.Tensor) and observation.shape == (3,)
    tensor, reward, *_ = env.step(torch.tensor([1.5]))
    plain = jaxenvs.make_gym("Pendulum-v1")
    plain.reset(seed=0)
    expected, expected_reward, *_ = plain.step(np.array([1.5], np.float32))
    np.testing.assert_array_equal(tensor.numpy(), expected)
    assert type(reward) is float and reward == expected_reward
    cartpole = jaxenvs.make_gym("CartPole-v1", output="torch")
    cartpole.reset(seed=0)
    assert cartpole.step(torch.tensor(1))[0].shape == (4,)


def test_keys_are_those_of_the_native_environment():
    native = jaxenvs.vectorize(CountingEnv(), 1, autoreset_mode="disabled")
    keys = jax.vmap(jax.random.key)(jnp.array([11]))
    state, timestep = native.reset(call_keys(keys, jnp.uint32([0])))
    env = jaxenvs.make_gym(CountingEnv())
    assert_close(env.reset(seed=11)[0], timestep.observation[0])
    for time in (1, 2):
        step_keys = call_keys(keys, jnp.uint32([time]))
        state, timestep = native.step(state, jnp.array([0]), step_keys)
        observation, reward, *_ = env.step(0)
        assert_close(observation, timestep.observation[0])
        assert reward == timestep.reward[0]
