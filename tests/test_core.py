import dataclasses

import chex
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxenvs
from jaxenvs import calls, spaces, struct, wrappers
from jaxenvs.core import Environment, TimeStep, VectorEnv, Wrapper
from jaxenvs.envs.classic_control.mountain_car import MountainCar
from jaxenvs.errors import (
    ActionError,
    JaxenvsError,
    RandomKeyError,
    RenderError,
    StateError,
    UnknownParameterError,
    WrapperError,
)
from jaxenvs.testing import CountingEnv, ScriptedEnv
from jaxenvs.vector.vectorize import vectorize
from jaxenvs.wrappers import TimeLimit
from tests.ids import SLOW_TO_COMPILE, one_id_per_class

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


# Arguments of reset and step


def step_with(env, action, state=None, key=KEY):
    state = jax.eval_shape(env.reset, KEY)[0] if state is None else state
    return jax.eval_shape(lambda state: env.step(state, action, key), state)


@pytest.mark.parametrize("id", sorted({*one_id_per_class()} - {*SLOW_TO_COMPILE}))
def test_actions_outside_of_the_space_are_refused(id):
    env = jaxenvs.make(id)
    shape, dtype = env.action_space.shape, env.action_space.dtype
    other = np.float32 if np.issubdtype(dtype, np.integer) else np.int32
    step_with(env, np.zeros(shape, dtype))
    for action in (None, "1", [1], {"a": 1}, np.zeros((1, *shape), dtype), np.zeros(shape, other)):
        with pytest.raises(ActionError) as refused:
            step_with(env, action)
        expected = f"expected {dtype}{[*shape]}"
        assert type(env.unwrapped).__name__ in str(refused.value) and expected in str(refused.value)


def test_actions_may_be_python_numbers_in_range():
    env = TimeLimit(MountainCar(), time_limit=5)
    state, _ = env.reset(KEY)
    chex.assert_trees_all_equal(env.step(state, 2, KEY), env.step(state, jnp.int32(2), KEY))
    for action in (1.0, True, 2**32, np.int64(2**32)):
        with pytest.raises(ActionError, match="MountainCar"):
            env.step(state, action, KEY)


def test_actions_of_wrappers_are_those_of_their_own_space():
    env = MountainCar().wrap(wrappers.TransformAction, lambda x: x[0], spaces.MultiDiscrete([3]))
    with pytest.raises(ActionError, match=r"expected int32\[1\]"):
        step_with(env, 1)
    assert step_with(env, np.ones(1, np.int32))[1].reward.shape == ()


def test_actions_passed_to_a_base_class_are_not_checked():
    class Throttle(MountainCar):
        action_space = spaces.Box(-1.0, 1.0, ())

        def step(self, state, action, key):
            return super().step(state, (action > 0).astype(jnp.int32) * 2, key)

    assert step_with(Throttle(), np.float32(0.5))[1].reward.shape == ()


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (0, "expected a random key, got int"),
        (None, "expected a random key, got NoneType"),
        (jnp.int32(0), r"expected a random key, got int32\[\]"),
        (
            jax.random.split(KEY, 3),
            r"expected one key, got keys of shape \[3\].*vectorize\(env, 3\)",
        ),
    ],
    ids=["int", "none", "array", "three"],
)
def test_keys_that_are_not_one_key_are_refused(key, words):
    env = TimeLimit(MountainCar(), time_limit=5)
    with pytest.raises(RandomKeyError, match=f"reset of MountainCar {words}"):
        env.reset(key)
    with pytest.raises(RandomKeyError, match=f"step of MountainCar .*{words}"):
        step_with(env, 1, key=key)
    raw = jax.random.PRNGKey(0)
    assert jax.eval_shape(env.reset, raw)[1].reward.shape == ()


@pytest.mark.parametrize("env", [MountainCar(), vectorize(MountainCar(), 2)], ids=repr)
def test_key_as_the_first_argument_names_the_order(env):
    state, _ = jax.eval_shape(env.reset, KEY)
    with pytest.raises(RandomKeyError, match=r"Call step\(state, action, key\)"):
        jax.eval_shape(lambda state: env.step(KEY, state, jnp.int32(1)), state)


@pytest.mark.parametrize(
    "other",
    [
        lambda: CountingEnv(),
        lambda: TimeLimit(MountainCar(), time_limit=5),
        lambda: vectorize(MountainCar(), 2, autoreset_mode="next_step"),
        lambda: vectorize(MountainCar(), 2, autoreset_mode="disabled"),
        lambda: vectorize(MountainCar(), 3),
    ],
)
def test_states_of_other_environments_are_refused(other):
    state, _ = jax.eval_shape(other().reset, KEY)
    words = r"step of MountainCar.* expected MountainCarState\("
    with pytest.raises(StateError, match=words):
        step_with(vectorize(MountainCar(), 2), np.ones(2, np.int32), state)
    with pytest.raises(StateError, match=words):
        step_with(MountainCar(), 1, state)


def test_state_with_the_fields_of_another_is_refused():
    cart_pole, pendulum = (jaxenvs.make(id) for id in ("CartPole-v1", "Pendulum-v1"))
    state, _ = jax.eval_shape(cart_pole.reset, KEY)  # it has an angle and its velocity, too
    with pytest.raises(StateError, match=r"step of Pendulum got .*CartPoleState.*PendulumState"):
        step_with(pendulum, np.zeros(1, np.float32), state)


def test_errors_of_an_environment_itself_stay_as_they_are():
    class Broken(MountainCar):
        def step(self, state, action, key):
            raise ValueError("out of order")

    with pytest.raises(ValueError, match="out of order"):
        step_with(Broken(), 1)


def test_checks_leave_the_program_as_it_is(monkeypatch):
    env, wrapped = MountainCar(), TimeLimit(MountainCar(), time_limit=5)
    state, _ = env.reset(KEY)
    arguments = (state, jnp.int32(1), KEY)
    unchecked = jax.make_jaxpr(lambda *args: MountainCar.step.__wrapped__(env, *args))(*arguments)
    assert str(jax.make_jaxpr(env.step)(*arguments)) == str(unchecked)

    checked = []
    monkeypatch.setattr(calls, "check_action", lambda *args: checked.append(args))
    step_with(wrapped, jnp.int32(1))
    assert len(checked) == 1
    step_with(vectorize(wrapped, 2), jnp.ones(2, jnp.int32))  # it checks the whole batch
    assert len(checked) == 1


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
    assert isinstance(env, VectorEnv) and env.num_envs == 3 and env.unwrapped is env
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
