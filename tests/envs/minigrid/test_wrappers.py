import gymnasium as gym
import jax
import numpy as np
import pytest

import jaxenvs
from jaxenvs.envs.minigrid import cells, missions, wrappers
from jaxenvs.envs.minigrid.dist_shift import DistShift
from jaxenvs.envs.minigrid.door_key import DoorKey
from jaxenvs.envs.minigrid.empty import Empty
from jaxenvs.envs.minigrid.lava_gap import LavaGap
from jaxenvs.envs.minigrid.level import FORWARD, LEFT
from jaxenvs.envs.minigrid.locked_room import LockedRoom
from jaxenvs.errors import WrapperError
from jaxenvs.testing import check_env
from jaxenvs.wrappers import TimeLimit

pytest.importorskip("minigrid")

import minigrid.wrappers as reference

from tests.envs.minigrid._reference import inject, to_object

OBSERVATION_WRAPPERS = {  # ours, minigrid's, and arguments
    "DictObservationSpace": (wrappers.DictObservationSpace, "DictObservationSpaceWrapper", {}),
    "DirectionObs": (wrappers.DirectionObs, "DirectionObsWrapper", {}),
    "DirectionObs, angle": (wrappers.DirectionObs, "DirectionObsWrapper", {"type": "angle"}),
    "DirectionObs, atan2": (wrappers.DirectionObs, "DirectionObsWrapper", {"type": "angle_atan2"}),
    "FlatObs": (wrappers.FlatObs, "FlatObsWrapper", {}),
    "FullyObs": (wrappers.FullyObs, "FullyObsWrapper", {}),
    "ImgObs": (wrappers.ImgObs, "ImgObsWrapper", {}),
    "OneHotPartialObs": (wrappers.OneHotPartialObs, "OneHotPartialObsWrapper", {}),
    "RGBImgObs": (wrappers.RGBImgObs, "RGBImgObsWrapper", {}),
    "RGBImgPartialObs": (wrappers.RGBImgPartialObs, "RGBImgPartialObsWrapper", {}),
    "SymbolicObs": (wrappers.SymbolicObs, "SymbolicObsWrapper", {}),
    "ViewSize": (wrappers.ViewSize, "ViewSizeWrapper", {"agent_view_size": 5}),
}


def observe_all(level, state, action):
    """Returns the observation of each wrapper after a step."""
    return {
        name: cls(level, **arguments).step(state, action, jax.random.key(0))[1].observation
        for name, (cls, _, arguments) in OBSERVATION_WRAPPERS.items()
    }


def assert_equal(found, expected):
    """Compares two observations, apart from texts and from rounding to float32."""
    if not isinstance(expected, dict):
        return np.testing.assert_array_equal(found, expected)
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        if key == "goal_direction":
            np.testing.assert_allclose(found[key], value, rtol=1e-6)
        elif not isinstance(value, str):
            np.testing.assert_array_equal(found[key], value)
    return None


@pytest.mark.parametrize(
    ("level", "id"),
    [
        (DistShift(), "MiniGrid-DistShift1-v0"),  # wider than high
        (DoorKey(), "MiniGrid-DoorKey-8x8-v0"),
        (Empty(), "MiniGrid-Empty-8x8-v0"),
    ],
    ids=["DistShift", "DoorKey", "Empty"],
)
def test_observations_equal_those_of_minigrid(level, id):
    env = gym.make(id).unwrapped
    theirs = {
        name: getattr(reference, wrapper)(env, **arguments)
        for name, (_, wrapper, arguments) in OBSERVATION_WRAPPERS.items()
    }
    ours = {
        name: cls(level, **arguments) for name, (cls, _, arguments) in OBSERVATION_WRAPPERS.items()
    }
    observe = jax.jit(lambda state, action: observe_all(level, state, action))
    generator = np.random.default_rng(0)
    for seed in range(3):
        for wrapper in theirs.values():
            wrapper.reset(seed=seed)  # of the one environment; DirectionObs looks for the goal
        if seed == 2 and level.has_objects:
            env.carrying = to_object(cells.make(cells.KEY, cells.YELLOW))
        for action in generator.choice(5, 12, p=[0.2, 0.2, 0.4, 0.1, 0.1]):
            state = inject(env, level)
            observation, *_ = env.step(action)
            for name, found in jax.device_get(observe(state, np.int32(action))).items():
                assert_equal(found, theirs[name].observation(dict(observation)))
                assert ours[name].observation_space.contains(found)
    env.agent_pos = theirs["DirectionObs"].goal_position  # where the direction is 0
    observed, found = theirs["DirectionObs"].observation({}), inject(env, level)
    found = observe(found, np.int32(LEFT))["DirectionObs"]
    assert found["goal_direction"] == observed["goal_direction"] == 0


def test_missions_with_commas_are_encoded_as_by_minigrid():
    level, env = LockedRoom(), gym.make("MiniGrid-LockedRoom-v0")

    def reset(key):
        observed = level.reset(key)[1].observation
        flat = wrappers.FlatObs(level).reset(key)[1].observation
        return observed, flat, wrappers.DictObservationSpace(level).reset(key)[1].observation

    observed, flat, numbers = jax.tree.map(np.asarray, jax.jit(reset)(jax.random.key(0)))
    text = level.decode_mission(observed["mission"])
    assert "," in text
    observed["mission"] = text
    assert_equal(flat, reference.FlatObsWrapper(env).observation(observed))
    assert_equal(numbers, reference.DictObservationSpaceWrapper(env).observation(observed))


def play(env, state, actions):
    """Returns the timesteps that follow a state."""

    def step(state, action):
        return env.step(state, action, jax.random.key(0))

    return jax.jit(lambda state, actions: jax.lax.scan(step, state, actions))(state, actions)[1]


def test_bonuses_equal_those_of_the_first_episode_of_minigrid():
    actions = np.random.default_rng(0).integers(0, 7, 60).astype(np.int32)
    expected = {}
    for cls, arguments in ((reference.ActionBonus, {}), (reference.PositionBonus, {"scale": 0.5})):
        theirs = cls(gym.make("MiniGrid-Empty-8x8-v0"), **arguments)
        theirs.reset(seed=0)
        start = inject(theirs, Empty())
        expected[cls.__name__] = [theirs.step(action)[1] for action in actions]
    for limit in (None, 100):  # with and without a wrapper in between that has its own state
        env = Empty() if limit is None else TimeLimit(Empty(), limit)
        for ours in (wrappers.ActionBonus(env), wrappers.PositionBonus(env, 0.5)):
            state, timestep = jax.jit(ours.reset)(jax.random.key(0))
            assert timestep.reward == 0
            inner = start if limit is None else state.inner.replace(inner=start)
            rewards = play(ours, state.replace(inner=inner), actions).reward
            name = type(ours).__name__
            np.testing.assert_allclose(rewards, expected[name], rtol=1e-6, err_msg=name)


def test_death_has_the_cost_that_it_has_in_minigrid():
    env = gym.make("MiniGrid-LavaGapS5-v0").unwrapped
    theirs = reference.NoDeath(env, no_death_types=("lava",), death_cost=-0.5)
    ours = wrappers.NoDeath(TimeLimit(LavaGap(size=5), 100), ["lava"], -0.5)
    actions = np.random.default_rng(0).choice(3, 120, p=[0.2, 0.3, 0.5]).astype(np.int32)
    expected, actions_of_episode = [], []
    state, _ = jax.jit(ours.reset)(jax.random.key(0))
    theirs.reset(seed=0)
    state = state.replace(inner=inject(theirs, LavaGap(size=5)))
    for action in actions:
        actions_of_episode.append(action)
        _, reward, terminated, truncated, _ = theirs.step(action)
        expected.append((reward, terminated))
        if terminated or truncated:
            break
    timesteps = play(ours, state, np.array(actions_of_episode))
    rewards, terminated = zip(*expected, strict=True)
    assert -0.5 in rewards
    np.testing.assert_allclose(timesteps.reward, rewards, rtol=1e-6)
    np.testing.assert_array_equal(timesteps.terminated, terminated)


@pytest.mark.parametrize(("prob", "random_action"), [(0.75, FORWARD), (0.3, None)])
def test_actions_are_random_with_the_given_probability(prob, random_action):
    env = wrappers.StochasticAction(Empty(), prob, random_action)

    @jax.jit
    def moves(key):
        state, _ = env.reset(key)
        keys = jax.random.split(key, 4000)
        after, _ = jax.vmap(env.step, (None, None, 0))(state, LEFT, keys)
        return after.direction == 3, after.direction == 1, after.x == 2

    left, right, forward = (np.mean(each) for each in moves(jax.random.key(1)))
    if random_action is None:
        expected = prob + (1 - prob) / 7, (1 - prob) / 7, (1 - prob) / 7
    else:
        expected = prob, 0, 1 - prob
    np.testing.assert_allclose([left, right, forward], expected, atol=0.03)


def chains():
    level = Empty(size=5)
    pixels = wrappers.ImgObs(wrappers.RGBImgObs(TimeLimit(level, 20), 4))
    flat = wrappers.FlatObs(wrappers.OneHotPartialObs(wrappers.ViewSize(level, 5)))
    rest = wrappers.DirectionObs(wrappers.SymbolicObs(wrappers.DictObservationSpace(level)))
    rest = wrappers.PositionBonus(wrappers.ActionBonus(TimeLimit(rest, 20)))
    rest = wrappers.NoDeath(wrappers.StochasticAction(rest), ["lava"])
    return {"pixels": pixels, "flat": flat, "rest": rest}


@pytest.mark.parametrize("chain", ["pixels", "flat", "rest"])
def test_chains_of_wrappers_follow_the_contract(chain):
    check_env(chains()[chain], num_steps=32, num_envs=3)


def test_batches_observe_what_single_instances_do():
    env = wrappers.RGBImgPartialObs(wrappers.FullyObs(Empty(size=5, agent_start_pos=None)), 4)
    batch = jaxenvs.vectorize(Empty(size=5, agent_start_pos=None), 3).wrap(wrappers.FullyObs)
    batch = batch.wrap(wrappers.RGBImgPartialObs, tile_size=4)
    keys = jax.random.split(jax.random.key(0), 3)
    _, timestep = jax.device_get(jax.jit(batch.reset)(keys))
    assert batch.observation_space.contains(timestep.observation)
    reset = jax.jit(env.reset)
    for i, key in enumerate(keys):
        expected = reset(key)[1].observation["image"]
        np.testing.assert_array_equal(timestep.observation["image"][i], expected)


@pytest.mark.parametrize(
    "cls", [*dict.fromkeys(cls for cls, *_ in OBSERVATION_WRAPPERS.values()), wrappers.ActionBonus]
)
def test_wrappers_need_an_environment_of_minigrid(cls):
    with pytest.raises(WrapperError, match="needs an environment of MiniGrid"):
        cls(jaxenvs.make("CartPole-v1"))


class Spoken(Empty):
    mission = "go to the goal behind your key"


class Composed(Empty):
    mission = "{} {} {}"


class Shouted(Empty):
    vocabulary = (*missions.WORDS, "GO!")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: wrappers.DictObservationSpace(Spoken()), "lacks: behind, your"),
        (lambda: wrappers.DictObservationSpace(Composed()), "lacks: "),
        (lambda: wrappers.DictObservationSpace(Empty(), 6), "more than the 6 words"),
        (lambda: wrappers.FlatObs(Shouted()), "small letters"),
        (lambda: wrappers.FlatObs(wrappers.ImgObs(Empty())), "image and mission"),
        (lambda: wrappers.DirectionObs(Empty(), "tangent"), "tangent"),
        (lambda: wrappers.RGBImgObs(Empty(), 0), "tile_size=0"),
        (lambda: wrappers.RGBImgPartialObs(Empty(), 1.5), "tile_size=1.5"),
        (lambda: wrappers.StochasticAction(Empty(), 1.5), "prob=1.5"),
        (lambda: wrappers.NoDeath(Empty(), "lava"), "list of types"),
        (lambda: wrappers.NoDeath(Empty(), ["goal"]), "list of types"),
    ],
)
def test_wrong_arguments_raise(make, message):
    with pytest.raises(WrapperError, match=message):
        make()
