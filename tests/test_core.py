import dataclasses

import chex
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxenvs import spaces, struct
from jaxenvs.core import Environment, TimeStep, VectorEnv, Wrapper
from jaxenvs.envs.classic_control.mountain_car import MountainCar
from jaxenvs.errors import JaxenvsError, RenderError, UnknownParameterError, WrapperError
from jaxenvs.testing import CountingEnv, ScriptedEnv
from jaxenvs.vector.vectorize import vectorize
from jaxenvs.wrappers import TimeLimit

KEY = jax.random.key(0)


class Grid(Environment):
    """An environment with a static field, a number and an array."""

    goal_reward: float = 1.0
    noise: jax.Array = dataclasses.field(default_factory=lambda: jnp.zeros(2, jnp.float32))
    size: int = struct.static(3)

    @property
    def observation_space(self):
        return spaces.Box(0.0, 1.0, (self.size,))

    @property
    def action_space(self):
        return spaces.Discrete(2)

    def reset(self, key):
        return (), TimeStep.first(jnp.zeros(self.size, jnp.float32))

    def step(self, state, action, key):
        observation = jnp.ones(self.size, jnp.float32)
        return state, TimeStep.transition(observation, reward=self.goal_reward, terminated=True)


class Renamed(Wrapper):
    """A wrapper without its own state."""

    label: str = struct.static("plain")

    def reset(self, key):
        return self.env.reset(key)

    def step(self, state, action, key):
        return self.env.step(state, action, key)


# Environment


def test_parameters_are_leaves_and_static_fields_are_not():
    leaves = jax.tree.leaves(Grid())
    assert leaves[0] == 1.0 and leaves[1].shape == (2,) and len(leaves) == 2
    assert jax.tree.structure(Grid()) == jax.tree.structure(Grid(goal_reward=2.0))
    assert jax.tree.structure(Grid()) != jax.tree.structure(Grid(size=4))


def test_subclasses_are_frozen_dataclasses_without_a_decorator():
    env = Grid(2.0, size=5)
    assert (env.goal_reward, env.size) == (2.0, 5)
    with pytest.raises(dataclasses.FrozenInstanceError):
        env.goal_reward = 3.0


def test_fields_are_inherited():
    class Windy(Grid):
        wind: float = 0.5

    assert [field.name for field in dataclasses.fields(Windy)][-1] == "wind"
    assert len(jax.tree.leaves(Windy())) == 3


def test_abstract_methods_must_be_defined():
    class Empty(Environment):
        pass

    with pytest.raises(TypeError, match="abstract"):
        Empty()


def test_only_static_changes_recompile():
    counted = chex.assert_max_traces(lambda env: env.step((), jnp.int32(0), KEY)[1].reward, n=1)
    step = jax.jit(counted)
    assert [step(Grid(reward)) for reward in (1.0, 2.0, 3.0)] == [1, 2, 3]
    with pytest.raises(AssertionError, match="traced"):
        step(Grid(size=4))


def test_vmap_over_environments_with_batched_parameters():
    envs = jax.vmap(lambda reward: Grid(goal_reward=reward))(jnp.arange(3, dtype=jnp.float32))
    rewards = jax.vmap(lambda env: env.step((), jnp.int32(0), KEY)[1].reward)(envs)
    np.testing.assert_array_equal(rewards, [0, 1, 2])


def test_rewards_are_differentiable_in_parameters():
    slope = jax.grad(lambda env: 3 * env.step((), jnp.int32(0), KEY)[1].reward)(Grid())
    assert slope.goal_reward == 3 and not slope.noise.any()


def test_replace_does_not_change_the_original():
    env = Grid()
    assert env.replace(goal_reward=5.0, size=7).observation_space.shape == (7,)
    assert (env.goal_reward, env.size) == (1.0, 3)


def test_misspelled_parameter_suggests_the_closest():
    with pytest.raises(
        UnknownParameterError, match=r'Grid has no parameter "goal_rewrd".*Close: "goal_reward"'
    ):
        Grid().replace(goal_rewrd=1.0)
    with pytest.raises(TypeError):  # the error is also a TypeError
        Grid().replace(zzz=1)
    assert issubclass(UnknownParameterError, JaxenvsError)


def test_missing_render_is_reported():
    with pytest.raises(RenderError, match="Grid does not define render"):
        Grid().render(())


def test_plain_environment_has_no_wrapper_and_no_limit():
    env = Grid()
    assert env.unwrapped is env and env.time_limit is None


# Wrapper


def test_replace_applies_to_wrapped_environments():
    env = Renamed(TimeLimit(MountainCar(), time_limit=5))
    changed = env.replace(gravity=0.5, time_limit=7, label="steep")
    assert changed.unwrapped.gravity == 0.5
    assert (changed.time_limit, changed.label) == (7, "steep")
    assert env.unwrapped.gravity == MountainCar().gravity and env.time_limit == 5


def test_replace_env_and_its_parameters_together():
    env = Renamed(Grid()).replace(env=MountainCar(), gravity=0.5)
    assert isinstance(env.unwrapped, MountainCar) and env.unwrapped.gravity == 0.5


def test_misspelled_parameter_of_a_wrapped_environment():
    with pytest.raises(UnknownParameterError, match='Close: "gravity"'):
        TimeLimit(MountainCar(), time_limit=5).replace(gravty=1.0)


def test_wrappers_do_not_forward_attributes():
    with pytest.raises(AttributeError):
        Renamed(MountainCar()).gravity  # noqa: B018


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("CartPole-v1", r'TimeLimit got "CartPole-v1"; .*jaxenvs.make\("CartPole-v1"\)'),
        (MountainCar, r"TimeLimit got the class MountainCar; .* TimeLimit\(MountainCar\(\)"),
        (gymnasium.Env(), r"TimeLimit got <gymnasium.core.Env .* jaxenvs.make\(id\)"),
        (None, "TimeLimit got None; expected a jaxenvs Environment"),
        (lambda: MountainCar(), r"TimeLimit got <function .* expected a jaxenvs Environment"),
    ],
)
def test_wrapping_a_non_environment_reports_its_type(given, words):
    with pytest.raises(WrapperError, match=words):
        TimeLimit(given, 100)


def test_wrapping_a_batch_directly_points_to_wrap():
    with pytest.raises(WrapperError, match=r"the batch VectorizedEnv.*env\.wrap\(TimeLimit, "):
        TimeLimit(vectorize(MountainCar(), 2), 100)


def test_unflatten_bypasses_the_constructor_checks():
    limits = TimeLimit(MountainCar(), time_limit=jnp.array([1, 2]))
    none = jax.tree.map(lambda _: None, limits)
    assert none.env.gravity is None and none.time_limit is None
    axes = jax.tree.map(lambda leaf: 0 if np.ndim(leaf) else None, limits)
    limit = jax.vmap(lambda env: jnp.float32(env.time_limit), in_axes=(axes,))(limits)
    np.testing.assert_array_equal(limit, [1, 2])


def test_wrappers_delegate_spaces_and_render():
    env = TimeLimit(MountainCar(), time_limit=5)
    state, _ = env.reset(jax.random.key(0))
    assert env.observation_space == MountainCar().observation_space
    assert env.action_space == MountainCar().action_space
    np.testing.assert_array_equal(env.render(state), MountainCar().render(state.inner))


# TimeStep


def test_first_and_transition_have_the_same_structure():
    info = {"speed": jnp.float32(0)}
    observation = jnp.zeros(3, jnp.float32)
    first = TimeStep.first(observation, info=info)
    later = TimeStep.transition(
        observation, reward=-1, terminated=jnp.bool_(True), truncated=True, info=info
    )
    chex.assert_trees_all_equal_shapes_and_dtypes(first, later)
    assert first.reward == 0 and not first.done and first.discount == 1


@pytest.mark.parametrize("terminated", [False, True])
@pytest.mark.parametrize("truncated", [False, True])
def test_done_and_discount(terminated, truncated):
    timestep = TimeStep.transition(
        jnp.zeros(1), reward=0.0, terminated=terminated, truncated=truncated
    )
    assert timestep.done == (terminated or truncated)
    assert timestep.discount == (0 if terminated else 1)
    assert timestep.discount.dtype == jnp.float32 and timestep.done.dtype == bool


@pytest.mark.parametrize("reward", [1, 1.0, True, np.float64(1), jnp.int32(1), jnp.float16(1)])
def test_rewards_are_converted_to_float32(reward):
    timestep = TimeStep.transition(jnp.zeros(1), reward=reward, terminated=False)
    assert timestep.reward.dtype == jnp.float32 and timestep.reward == 1
    assert not timestep.reward.weak_type


def test_dtypes_are_the_same_under_x64():
    with jax.enable_x64(True):
        first = TimeStep.first(jnp.zeros(1, jnp.float32))
        assert (first.reward.dtype, first.discount.dtype) == (jnp.float32, jnp.float32)
        assert TimeStep.first(jnp.zeros(1, jnp.float64)).reward.dtype == jnp.float64
        assert TimeStep.first(jnp.zeros(1, jnp.float32)).reward.dtype == jnp.float32


def test_info_is_copied_and_timesteps_are_frozen():
    info = {"speed": jnp.float32(0)}
    timestep = TimeStep.first(jnp.zeros(1), info=info)
    info["late"] = jnp.float32(1)
    assert set(timestep.info) == {"speed"} and TimeStep.first(jnp.zeros(1)).info == {}
    with pytest.raises(dataclasses.FrozenInstanceError):
        timestep.reward = jnp.float32(1)


# Batches and dummy environments


def test_vectorized_env_is_a_vector_env_with_batched_spaces():
    from jaxenvs import vectorize

    env = vectorize(CountingEnv(layout="dict"), 3)
    assert isinstance(env, VectorEnv) and env.num_envs == 3
    assert env.single_action_space == spaces.Discrete(2)
    assert env.action_space == spaces.Discrete(2).batch(3)
    assert env.observation_space["draw"].shape == (3, 2)


def test_scripted_environment_follows_its_script():
    env, key = ScriptedEnv(), jax.random.key(0)
    state, _ = env.reset(key)
    steps = [env.step(state, jnp.int32(action), key)[1] for action in range(4)]
    assert [(bool(t.terminated), bool(t.truncated)) for t in steps] == [
        (False, False),
        (True, False),
        (False, True),
        (True, True),
    ]
