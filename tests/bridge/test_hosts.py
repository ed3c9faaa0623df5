"""What an id or an environment function may be, compared with the library itself."""

import importlib.util
import sys
import types

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import jaxenvs
from jaxenvs.bridge.foreign.adapters import adapted
from jaxenvs.bridge.foreign.classic_gym import ClassicGymAdapter, gymnasium_space
from jaxenvs.bridge.foreign.dm_env import DmEnvAdapter, space_of_spec
from jaxenvs.bridge.foreign.ids import env_fn_of, fn_of_id
from jaxenvs.bridge.foreign.pettingzoo import ParallelEnvAdapter
from jaxenvs.errors import MissingExtraError, PoolError, UnknownEnvironmentError, WorkerError
from tests.bridge.envs import Counter

KEY = jax.random.key(0)


def serial(env, num_envs=2, **kwargs):
    return jaxenvs.make_pool(env, num_envs, backend="serial", **kwargs)


# --- ids ---


def test_an_id_without_a_library_is_gymnasiums():
    with serial("CartPole-v1") as plain, serial("gymnasium/CartPole-v1") as named:
        np.testing.assert_array_equal(plain.reset(seed=1)[0], named.reset(seed=1)[0])
        assert plain.spec.id == named.spec.id == "CartPole-v1"


def test_arguments_of_an_id_reach_the_environment():
    with serial("CartPole-v1", sutton_barto_reward=True) as pool:
        pool.reset(seed=0)
        assert (pool.step([0, 1])[1] == 0).all()


@pytest.mark.interop
@pytest.mark.parametrize(
    ("id", "module", "close"),
    [
        ("CartPol-v1", None, "CartPole-v1"),
        ("gymnasium/CartPole-v9", None, "CartPole-v1"),
        ("ALE/Pon-v5", "ale_py", "ALE/Pong-v5"),
        ("MiniGrid-Empty-55-v0", "minigrid", "MiniGrid-Empty-5x5-v0"),
        ("VizdoomBasi-v1", "vizdoom", "VizdoomBasic-v1"),
        ("gym/CartPol-v0", "gym", "gym/CartPole-v0"),
        ("dm_control/cartpole-swing", "dm_control", "dm_control/cartpole-swingup"),
        ("pettingzoo/sisl/pursuit_v", "pettingzoo", "pettingzoo/sisl/pursuit_v"),
        ("pettingzoo/sissl/pursuit_v5", "pettingzoo", "pettingzoo/sisl/"),
        ("nothing_like_it:Some-v0", None, "nothing_like_it"),
    ],
)
def test_an_unknown_id_names_close_ones(id, module, close):
    if module is not None:
        pytest.importorskip(module)
    with pytest.raises(UnknownEnvironmentError, match=close):
        serial(id)


@pytest.mark.parametrize(
    ("id", "module", "extra"),
    [
        ("ALE/Pong-v5", "ale_py", "atari"),
        ("VizdoomBasic-v1", "vizdoom", "vizdoom"),
        ("BabyAI-GoToObj-v0", "minigrid", "minigrid"),
        ("AntMaze_UMaze-v5", "gymnasium_robotics", "robotics"),
        ("gym/CartPole-v0", "gym", "gym"),
        ("dm_control/cartpole-swingup", "dm_control", "dm_control"),
        ("pettingzoo/sisl/pursuit_v5", "pettingzoo", "pettingzoo"),
        ("envpool/Pong-v5", "envpool", "envpool"),
        ("gymnasium/Ant-v5", "mujoco", "mujoco"),
        ("BipedalWalker-v3", "Box2D", "box2d"),
    ],
)
def test_a_missing_package_names_its_extra(id, module, extra, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)  # which import takes for "not there"
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *_: None if name == module else find(name)
    )
    with pytest.raises(MissingExtraError, match=rf"{module}.*jaxenvs\[{extra}\]"):
        jaxenvs.make_pool(id, 2)


@pytest.mark.interop
def test_a_mission_of_minigrid_is_bytes():
    pytest.importorskip("minigrid")
    with serial("MiniGrid-Empty-5x5-v0") as pool:
        missions = pool.reset()[0]["mission"]
        assert missions.shape == (2, 256) and missions.dtype == np.uint8
        text = bytes(missions[1]).rstrip(b"\0").decode()
        assert text == pool.call("mission")[1] == "get to the green goal square"


class _Speaks(gymnasium.Env):
    observation_space = spaces.Tuple(
        (spaces.Text(4, charset="añ"), spaces.Dict({"number": spaces.Discrete(3)}))
    )
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return ("", {"number": 0}), {}

    def step(self, action):
        return ("aña" if action == 0 else "aññññ", {"number": 1}), 0.0, False, False, {}


def test_text_observation_is_bytes_padded_to_the_space_maximum():
    with serial(_Speaks) as pool:
        pool.reset()
        text, others = pool.step([0, 0])[0]
        assert text.shape == (2, 8) and bytes(text[0]) == "aña".encode().ljust(8, b"\0")
        assert others["number"].tolist() == [1, 1]
        with pytest.raises(WorkerError, match="9 bytes, more than 8"):
            pool.step([1, 0])


def test_an_id_may_name_the_module_that_registers_it():
    module = types.ModuleType("registers_something")
    sys.modules[module.__name__] = module
    gymnasium.register("Something-v0", entry_point="tests.bridge.envs:Counter")
    try:
        with serial("registers_something:Something-v0") as pool:
            assert pool.reset()[0].shape == (2, 3)
    finally:
        del sys.modules[module.__name__], gymnasium.registry["Something-v0"]


@pytest.mark.parametrize(
    ("env", "num_envs", "kwargs", "word"),
    [
        ("CartPole-v1", None, {}, "num_envs"),
        (Counter, 2, {"length": 3}, "'length'"),
        ([Counter, Counter], 3, {}, "2 functions for num_envs=3"),
        ([], None, {}, "list of such functions"),
        (3, 2, {}, "expected an id"),
    ],
)
def test_env_fn_of_invalid_arguments_is_refused(env, num_envs, kwargs, word):
    with pytest.raises(PoolError, match=word):
        env_fn_of(env, num_envs, kwargs)


@pytest.mark.interop
def test_a_game_in_turns_is_refused():
    pytest.importorskip("pettingzoo")
    with pytest.raises(PoolError, match="take turns"):
        serial("pettingzoo/classic/tictactoe_v3")
    from pettingzoo.classic import tictactoe_v3

    with pytest.raises(PoolError, match="takes turns"):
        adapted(tictactoe_v3.env())


@pytest.mark.interop
def test_a_game_in_turns_that_can_be_played_at_once_is_taken():
    pursuit = pytest.importorskip("pettingzoo.sisl.pursuit_v5")
    env = adapted(pursuit.env(max_cycles=5))
    observation, info = env.reset(seed=1)
    assert isinstance(env, ParallelEnvAdapter) and len(observation) == len(info["agent_alive"]) == 8


# --- classic gym ---


class OldCounter:
    """As written for gym up to 0.25: `seed`, `reset` without info, 4 values of `step`."""

    metadata = {"render.modes": ["human", "rgb_array"]}  # noqa: RUF012
    observation_space = gymnasium.spaces.Box(0, 100, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        self.start = self.count = 0
        self.label = "as it was made"

    def seed(self, seed=None):
        self.start = seed
        return [seed]

    def reset(self):
        self.count = 0
        return np.array((self.start, 0), np.float32)

    def step(self, action):
        self.count += 1
        info = {"TimeLimit.truncated": True} if self.count == 3 and action else {}
        return np.array((self.start, self.count), np.float32), 1.0, self.count == 3, info

    def render(self, mode="human"):
        assert mode == "rgb_array"
        return np.full((1, 1, 3), self.start, np.uint8)

    def close(self):
        pass


def test_the_old_interface_of_gym_is_taken():
    with serial(OldCounter) as pool:
        observation, _ = pool.reset(seed=7)
        np.testing.assert_array_equal(observation, [[7, 0], [8, 0]])
        for _ in range(2):
            _, _, terminated, truncated, _ = pool.step([0, 1])
            assert not terminated.any() and not truncated.any()
        _, _, terminated, truncated, info = pool.step([0, 1])
        np.testing.assert_array_equal(terminated, [True, False])
        np.testing.assert_array_equal(truncated, [False, True])
        np.testing.assert_array_equal(info["_TimeLimit.truncated"], [False, True])
        assert [picture[0, 0, 0] for picture in pool.render()] == [7, 8]


def test_attributes_are_those_of_the_real_environment():
    with serial(OldCounter) as pool:
        pool.set_attr("label", ["first", "second"])
        assert pool.get_attr("label") == ("first", "second")
        assert pool.call("seed", 5) == ([5], [5])


def test_attributes_are_set_beneath_the_wrappers_of_gym():
    class Wrapper:
        def __init__(self, env):
            self.env = env

        def __getattr__(self, name):
            return getattr(self.env, name)

        def reset(self, **kwargs):
            return self.env.reset(**kwargs)

    inner = OldCounter()
    env = adapted(Wrapper(inner))
    env.set_wrapper_attr("label", "new")
    assert inner.label == env.get_wrapper_attr("label") == "new"
    assert env.reset(seed=4)[0][0] == 4  # by the method, since the innermost reset takes none


def test_the_new_interface_of_gym_is_taken():
    class New(OldCounter):
        def reset(self, *, seed=None, options=None):
            self.options = options
            super().seed(seed)
            return super().reset(), {"options": bool(options)}

        def step(self, action):
            observation, reward, done, _ = super().step(action)
            return observation, reward, done, False, {}

    env = ClassicGymAdapter(New())
    observation, info = env.reset(seed=3, options={"a": 1})
    assert observation[0] == 3 and info == {"options": True}
    assert env.step(0)[1:] == (1.0, False, False, {})


def test_a_space_of_another_kind_is_refused():
    with pytest.raises(PoolError, match="cannot hold"):
        gymnasium_space(object())


@pytest.mark.interop
def test_a_pool_of_classic_gym_is_gym_step_for_step():
    gym = pytest.importorskip("gym")
    with jaxenvs.make_pool("gym/CartPole-v0", 2, backend="process") as pool:
        envs = [gym.make("CartPole-v0", disable_env_checker=True) for _ in range(2)]
        found, _ = pool.reset(seed=3)
        for i, env in enumerate(envs):
            np.testing.assert_array_equal(found[i], env.reset(seed=3 + i)[0])
        over = [False, False]
        rng = np.random.default_rng(0)
        for _ in range(300):
            actions = rng.integers(0, 2, 2)
            found = pool.step(actions)
            for i, env in enumerate(envs):
                if over[i]:
                    expected = env.reset()[0], 0.0, False, False
                else:
                    expected = env.step(int(actions[i]))[:4]
                over[i] = expected[2] or expected[3]
                np.testing.assert_array_equal(found[0][i], expected[0])
                assert tuple(each[i] for each in found[1:4]) == expected[1:]


# --- dm_env ---


def dm_counter(**kwargs):
    dm_env = pytest.importorskip("dm_env")
    specs = dm_env.specs

    class DmCounter(dm_env.Environment):
        def __init__(self, ends_with=0.0, discount=1.0):
            self.ends_with, self.discount, self.count = ends_with, discount, 0

        def observation_spec(self):
            return {
                "count": specs.BoundedArray((), np.int32, 0, 10),
                "place": [specs.Array((2,), np.float64), specs.DiscreteArray(3)],
                "flag": specs.Array((), bool),
            }

        def action_spec(self):
            return specs.DiscreteArray(4)

        def _observation(self):
            place = [np.full(2, self.count / 3), np.int32(self.count % 3)]
            return {"count": np.int32(self.count), "place": place, "flag": np.bool_(True)}

        def reset(self):
            self.count = 0
            return dm_env.restart(self._observation())

        def step(self, action):
            assert isinstance(action, np.int32)  # as its spec says
            self.count += 1
            if self.count == 3:
                last = dm_env.StepType.LAST
                return dm_env.TimeStep(last, 2.0, self.ends_with, self._observation())
            return dm_env.transition(None, self._observation(), self.discount)

    return DmCounter(**kwargs)


@pytest.mark.parametrize(("ends_with", "terminated"), [(0.0, True), (1.0, False), (None, False)])
def test_the_last_discount_tells_termination_from_truncation(ends_with, terminated):
    with serial(lambda: dm_counter(ends_with=ends_with), 1) as pool:
        observation, _ = pool.reset()
        assert observation["place"][0].dtype == np.float64
        assert observation["count"].dtype == np.int32 and observation["flag"].dtype == bool
        for _ in range(2):
            answer = pool.step([3])
            assert answer[1] == 0 and not answer[2] and not answer[3]  # a reward of None is 0
        observation, reward, *flags, _ = pool.step([3])
        assert observation["count"] == 3 and observation["place"][0][0, 1] == 1.0
        assert reward == 2.0 and [bool(flag) for flag in flags] == [terminated, not terminated]


def test_a_discount_between_0_and_1_is_in_the_info():
    with serial(lambda: dm_counter(discount=0.5), 1, info_fields=["discount"]) as pool:
        pool.reset()
        assert pool.step([0])[4]["discount"] == 0.5


def test_specs_become_spaces():
    specs = pytest.importorskip("dm_env").specs
    box = space_of_spec(specs.BoundedArray((2,), np.float64, [-1, -2], 3))
    np.testing.assert_array_equal(box.low, [-1, -2])
    np.testing.assert_array_equal(box.high, [3, 3])
    assert box.dtype == np.float64
    assert space_of_spec(specs.Array((1,), np.uint8)).high[0] == 255
    assert space_of_spec(specs.DiscreteArray(5)).n == 5
    with pytest.raises(PoolError, match="not numeric"):
        space_of_spec(specs.StringArray(()))


def test_dm_env_frames_are_rendered_by_its_physics():
    class Physics:
        def render(self, height=2, width=3):
            return np.zeros((height, width, 3), np.uint8)

    env = dm_counter()
    env.physics, env.control_timestep = Physics(), lambda: 0.02
    with serial(lambda: env, 1) as pool:
        assert pool.render_mode == "rgb_array" and pool.metadata["render_fps"] == 50
        pool.reset()
        assert pool.render()[0].shape == (2, 3, 3)
        assert pool.call("render", height=5)[0].shape == (5, 3, 3)


class Unseeded(OldCounter):
    """Has the oldest interface of gym, and cannot be seeded."""

    seed = None


@pytest.mark.parametrize("make", [lambda: DmEnvAdapter(dm_counter()), lambda: adapted(Unseeded())])
def test_seed_and_options_that_reset_does_not_take_are_not_lost(make):
    env = make()
    assert env.reset(options={})
    with pytest.warns(UserWarning, match="cannot be seeded"):
        env.reset(seed=1)
    with pytest.raises(PoolError, match=r"options=\{'level': 3\}; reset of \w+ takes none"):
        env.reset(options={"level": 3})


@pytest.mark.interop
def test_a_pool_of_dm_control_is_dm_control_step_for_step():
    suite = pytest.importorskip("dm_control.suite")
    make = fn_of_id("dm_control/cartpole-swingup", {"task_kwargs": {"time_limit": 0.2}})
    kwargs = {"random": 5, "time_limit": 0.2}
    env = suite.load("cartpole", "swingup", task_kwargs=kwargs)
    with serial(make, 1) as pool:
        found, _ = pool.reset(seed=5)
        expected = env.reset()
        rng = np.random.default_rng(0)
        for _ in range(50):
            for name, value in expected.observation.items():
                assert found[name].dtype == np.float64
                np.testing.assert_array_equal(found[name][0], value)
            action = rng.uniform(-1, 1, (1, 1))
            found, reward, terminated, truncated, _ = pool.step(action)
            expected = env.step(action[0])  # begins an episode after a last step, as the pool does
            assert reward[0] == (expected.reward or 0.0)
            assert not terminated[0] and truncated[0] == expected.last()
        assert pool.call("control_timestep") == (env.control_timestep(),)
        assert pool.metadata["render_fps"] == 100 and pool.render_mode == "rgb_array"


# --- PettingZoo ---


class Race:
    """Two agents: the first leaves after 2 steps, the second after 3."""

    metadata = {"name": "race"}  # noqa: RUF012
    possible_agents = ("slow", "fast")
    render_mode = None

    def __init__(self, cut=False):
        self.cut, self.agents, self.acted = cut, [], []

    def observation_space(self, agent):
        size = 1 if agent == "slow" else 2
        return gymnasium.spaces.Box(0, 10, (size,), np.float32)

    def action_space(self, agent):
        return gymnasium.spaces.Discrete(3)

    def _observations(self):
        sizes = {"slow": 1, "fast": 2}
        return {agent: np.full(sizes[agent], self.count, np.float32) for agent in self.agents}

    def reset(self, seed=None, options=None):
        self.count, self.agents = 1, list(self.possible_agents)
        return self._observations(), {agent: {"seed": seed or 0} for agent in self.agents}

    def step(self, actions):
        assert set(actions) == set(self.agents)
        self.count += 1
        alive, length = self.agents, {"slow": 3, "fast": 2}
        left = {agent: self.count > length[agent] for agent in alive}
        observations = self._observations()
        self.agents = [agent for agent in alive if not left[agent]]
        rewards = {agent: float(action) for agent, action in actions.items()}
        nobody = dict.fromkeys(alive, False)
        terminated, truncated = (nobody, left) if self.cut else (left, nobody)
        return observations, rewards, terminated, truncated, {agent: {} for agent in alive}

    def render(self):
        return None

    def close(self):
        pass


@pytest.mark.parametrize("cut", [False, True])
def test_parallel_agents_are_one_environment(cut):
    fields = ("agent_reward", "agent_terminated", "agent_truncated", "agent_alive")
    with serial(lambda: Race(cut), 1, info_fields=fields) as pool:
        assert list(pool.single_observation_space.spaces) == ["slow", "fast"]
        observation, info = pool.reset(seed=9)
        assert observation["fast"].shape == (1, 2) and info["slow"]["seed"] == 9
        answers = [pool.step({"slow": [2], "fast": [1]}) for _ in range(3)]
    info = answers[1][4]
    which = "agent_truncated" if cut else "agent_terminated"
    np.testing.assert_array_equal(info[which], [[False, True]])
    np.testing.assert_array_equal(info["agent_alive"], [[True, False]])
    observation, reward, terminated, truncated, info = answers[2]
    np.testing.assert_array_equal(observation["fast"], [[0, 0]])  # it has left
    np.testing.assert_array_equal(observation["slow"], [[4]])
    np.testing.assert_array_equal(info["agent_reward"], [[2.0, 0.0]])
    assert reward[0] == 2.0  # the action of the one that left is dropped
    assert truncated[0] == cut and terminated[0] != cut
    assert not answers[1][2][0] and not answers[1][3][0]


# Of the agents "slow" and "fast": rewards, which have ended, which are to act.
FIRST_STEPS = [((2, 1), (0, 0), (1, 1)), ((2, 1), (0, 1), (1, 0))]
LAST_STEPS = {
    "same_step": [((2, 0), (1, 1), (1, 1)), ((2, 1), (0, 0), (1, 1))],
    "next_step": [((2, 0), (1, 1), (0, 0)), ((0, 0), (0, 0), (1, 1))],
    "disabled": [((2, 0), (1, 1), (0, 0)), ((0, 0), (1, 1), (0, 0))],
}


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("mode", LAST_STEPS)
def test_host_env_of_parallel_agents_has_results_per_agent(mode, cut):
    env = jaxenvs.HostEnv(serial(lambda: Race(cut), 1), autoreset_mode=mode)
    assert env.agents == ("slow", "fast")
    state, timestep = env.reset(jax.random.key(0))
    assert isinstance(timestep, jaxenvs.MultiAgentTimeStep) and not timestep.done[0]
    assert timestep.info.keys() == {"elapsed_step", "restarted", "env_id", "to_act"}
    action = {"slow": jnp.full(1, 2), "fast": jnp.full(1, 1)}
    step = jax.jit(env.step)
    for reward, ended, to_act in FIRST_STEPS + LAST_STEPS[mode]:
        state, timestep = step(state, action, jax.random.key(0))
        for i, agent in enumerate(env.agents):
            flags = timestep.terminated[agent], timestep.truncated[agent]
            assert flags[cut].tolist() == [ended[i]] and flags[1 - cut].tolist() == [False]
            assert timestep.reward[agent].dtype == np.float32
            assert timestep.reward[agent].tolist() == [reward[i]]
            assert timestep.to_act[agent].tolist() == [to_act[i]]
            assert timestep.final_info["to_act"][agent].tolist() == [not ended[i]]
    env.close()


def test_pool_time_limit_truncates_agents_still_running():
    env = jaxenvs.HostEnv(serial(Race, 1, time_limit=2), autoreset_mode="next_step")
    action = {"slow": jnp.full(1, 2), "fast": jnp.full(1, 1)}
    result = jaxenvs.rollout(env, lambda _, key: action, 8, KEY)
    flags = result.trajectory.terminated, result.trajectory.truncated
    assert flags[0]["fast"][1, 0] and not flags[1]["fast"][1, 0]
    assert flags[1]["slow"][1, 0] and not flags[0]["slow"].any()
    assert int(result.statistics["count"]) == 3  # of two steps and one that only resets
    returns = result.statistics["return_mean"]
    assert float(returns["slow"]) == 4 and float(returns["fast"]) == 2
    env.close()


class Flaky(Race):
    """Fails in its second step."""

    def step(self, actions):
        if self.count == 2:
            raise RuntimeError("it fails")
        return super().step(actions)


def test_a_restart_truncates_all_agents():
    env = jaxenvs.HostEnv(serial(Flaky, 1, on_failure="restart"))
    state, _ = env.reset(KEY)
    action = {"slow": jnp.full(1, 2), "fast": jnp.full(1, 1)}
    state, _ = env.step(state, action, KEY)
    _, timestep = env.step(state, action, KEY)
    for agent in env.agents:
        assert timestep.truncated[agent][0] and not timestep.terminated[agent][0]
        assert timestep.reward[agent][0] == 0 and timestep.to_act[agent][0]
    env.close()


@pytest.mark.interop
def test_a_pool_of_pettingzoo_is_pettingzoo_step_for_step():
    pursuit = pytest.importorskip("pettingzoo.sisl.pursuit_v5")
    env = pursuit.parallel_env(max_cycles=20)
    agents = env.possible_agents
    with serial("pettingzoo/sisl/pursuit_v5", 1, max_cycles=20) as pool:
        observation, _ = pool.reset(seed=2)
        expected, _ = env.reset(seed=2)
        rng = np.random.default_rng(0)
        for _ in range(20):
            for agent in agents:
                np.testing.assert_array_equal(observation[agent][0], expected[agent])
            actions = {agent: rng.integers(0, 5, 1) for agent in agents}
            observation, reward, _, truncated, info = pool.step(actions)
            expected, rewards, *_ = env.step({agent: int(actions[agent][0]) for agent in agents})
            np.testing.assert_array_equal(
                info["agent_reward"][0], [rewards[agent] for agent in agents]
            )
            assert reward[0] == sum(rewards.values())
        assert truncated[0] and not env.agents


# --- other environments of Gymnasium ---


@pytest.mark.interop
@pytest.mark.parametrize(
    ("module", "id", "steps"),
    [
        ("ale_py", "ALE/Pong-v5", 30),
        ("vizdoom", "VizdoomBasic-v1", 40),
        ("Box2D", "gymnasium/LunarLander-v3", 150),
        ("mujoco", "gymnasium/Ant-v5", 30),
    ],
)
def test_a_pool_of_an_id_is_gymnasiums_step_for_step(module, id, steps, tmp_path, monkeypatch):
    pytest.importorskip(module)
    monkeypatch.chdir(tmp_path)  # ViZDoom leaves a file where it runs
    make = fn_of_id(id, {})
    env = make()
    with serial(make, 1) as pool:
        found, _ = pool.reset(seed=4)
        expected, _ = env.reset(seed=4)
        env.action_space.seed(0)
        over = False
        for _ in range(steps):
            pairs = found.items() if isinstance(found, dict) else [(None, found)]
            for name, value in pairs:
                np.testing.assert_array_equal(
                    value[0], expected if name is None else expected[name]
                )
            action = env.action_space.sample()
            found, reward, terminated, truncated, _ = pool.step(np.asarray(action)[None])
            if over:
                (expected, _), answer = env.reset(), (0.0, False, False)
            else:
                expected, *answer, _ = env.step(action)
            assert (reward[0], terminated[0], truncated[0]) == tuple(answer)
            over = terminated[0] or truncated[0]
    env.close()


def test_environment_of_unknown_interface_is_refused():
    with pytest.raises(PoolError, match="no step, reset and"):
        adapted(object())
    for backend in ("serial", "thread", "process"):
        with pytest.raises(PoolError, match='backend="native"'):
            jaxenvs.make_pool(lambda: gymnasium.make_vec("CartPole-v1", 2), 2, backend=backend)


def test_gymnasium_interface_without_its_class_is_accepted():
    class Duck:
        observation_space, action_space = Counter.observation_space, Counter.action_space

        def reset(self, seed=None, options=None):
            return np.zeros(3, np.float32), {}

        def step(self, action):
            return np.zeros(3, np.float32), 0.0, False, False, {}

    duck = Duck()
    assert adapted(duck) is duck
    assert isinstance(adapted(OldCounter()), ClassicGymAdapter)
    assert isinstance(adapted(Race()), ParallelEnvAdapter)
