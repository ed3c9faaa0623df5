import chex
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxenvs
from jaxenvs import spaces
from jaxenvs.errors import WrapperError
from jaxenvs.testing import CountingEnv, check_env
from jaxenvs.wrappers import (
    DtypeObservation,
    FilterObservation,
    RescaleObservation,
    TransformObservation,
)
from tests.ids import every_nth
from tests.wrappers._observations import assert_as_in_gymnasium, record_batch

gym_wrappers = gymnasium.wrappers


def squared(observation):
    return observation * observation


SQUARES = spaces.Box([0.0, 0.0], [25.0, 1.0])


def pendulum():
    return jaxenvs.make("Pendulum-v1", time_limit=5)


class OneSided(CountingEnv):
    """A counter with observations that are bounded only below, or not at all."""

    @property
    def observation_space(self):
        return spaces.Box([-1.0, -np.inf], [np.inf, np.inf])


class Bits(CountingEnv):
    """A counter that shows its count as an integer starting at 3, as two integers, or as bits."""

    @property
    def observation_space(self):
        match self.layout:
            case "array":
                return spaces.Discrete(6, start=3)
            case "tuple":
                return spaces.MultiDiscrete([6, 9])
        return spaces.MultiBinary(3)

    def _observe(self, state, key):
        match self.layout:
            case "array":
                return state.count + 3
            case "tuple":
                return jnp.stack([state.count, state.count])
        return (state.count >> np.arange(3, dtype=np.int32) & 1).astype(jnp.int8)


# Our wrapper, Gymnasium's wrapper, the environment, and the tolerance for rounding.
CASES = {
    "transform": (
        lambda env: env.wrap(TransformObservation, squared, SQUARES),
        lambda env: gym_wrappers.TransformObservation(env, squared, spaces.to_gymnasium(SQUARES)),
        CountingEnv,
        0,
    ),
    "filter a dict": (
        lambda env: env.wrap(FilterObservation, ["draw"]),
        lambda env: gym_wrappers.FilterObservation(env, ["draw"]),
        lambda: CountingEnv(layout="dict"),
        0,
    ),
    "filter a tuple": (
        lambda env: FilterObservation(env, [1, 0]),
        lambda env: gym_wrappers.FilterObservation(env, [1, 0]),
        lambda: CountingEnv(layout="tuple"),
        0,
    ),
    "rescale": (
        lambda env: env.wrap(RescaleObservation, np.float32([-2, 0, 1]), np.float32([3, 0.1, 8])),
        lambda env: gym_wrappers.RescaleObservation(
            env, np.float32([-2, 0, 1]), np.float32([3, 0.1, 8])
        ),
        pendulum,
        2e-6,
    ),
    "rescale where a bound is missing": (
        lambda env: RescaleObservation(env, np.float32([4, -np.inf]), np.inf),
        lambda env: gym_wrappers.RescaleObservation(env, np.float32([4, -np.inf]), np.inf),
        OneSided,
        0,
    ),
    "dtype of reals": (
        lambda env: env.wrap(DtypeObservation, jnp.float16),
        lambda env: gym_wrappers.DtypeObservation(env, np.float16),
        pendulum,
        0,
    ),
    "dtype of an integer": (
        lambda env: DtypeObservation(env, "float32"),
        lambda env: gym_wrappers.DtypeObservation(env, np.float32),
        Bits,
        0,
    ),
}


@pytest.mark.parametrize("case", every_nth(2, CASES))
def test_observations_match_gymnasium(case):
    wrap, gym_wrap, make_env, atol = CASES[case]
    assert_as_in_gymnasium(wrap, gym_wrap, make_env(), atol=atol)


@pytest.mark.parametrize(
    ("case", "mode"),
    every_nth(
        2,
        [
            ("transform", "same_step"),
            ("transform", "next_step"),
            ("filter a dict", "same_step"),
            ("transform", "disabled"),
            ("rescale", "next_step"),
            ("rescale", "same_step"),
            ("dtype of reals", "disabled"),
            ("rescale", "disabled"),
        ],
    ),
)
def test_opaque_and_accessible_batches_are_mapped(case, mode):
    wrap, _, make_env, _ = CASES[case]
    record_batch(wrap, make_env(), mode)


@pytest.mark.slow  # chains of wrappers pass it in test_all.py, too
@pytest.mark.parametrize("case", ["rescale", "filter a tuple", "dtype of an integer"])
def test_observation_wrappers_pass_check_env(case):
    wrap, _, make_env, _ = CASES[case]
    check_env(wrap(make_env()), num_steps=16, num_envs=4)


def test_wrappers_with_the_same_function_share_a_program():
    @jax.jit
    @chex.assert_max_traces(n=1)
    def first(env):
        return env.reset(jax.random.key(0))[1].observation

    for g in (10.0, 3.7):
        env = TransformObservation(pendulum(), squared, spaces.Box(0.0, 64.0, (3,)))
        first(env.replace(g=g))


def test_repr_names_the_function():
    env = TransformObservation(CountingEnv(), squared, SQUARES)
    assert repr(env) == (
        "TransformObservation(CountingEnv(), func=squared,"
        " observation_space=Box(0.0, [25.0, 1.0], (2,), float32))"
    )


def test_missing_observation_space_is_rejected():
    with pytest.raises(WrapperError, match=r"env\.observation_space"):
        TransformObservation(CountingEnv(), squared, None)
    with pytest.raises(WrapperError, match="func=2"):
        TransformObservation(CountingEnv(), 2, SQUARES)


@pytest.mark.parametrize("keys", [[], "draw", ["draw", "draw"], ["speed"], [0]])
def test_unknown_filter_keys_are_rejected(keys):
    with pytest.raises(WrapperError, match="filter_keys"):
        FilterObservation(CountingEnv(layout="dict"), keys)


def test_filtering_single_arrays_is_rejected():
    with pytest.raises(WrapperError, match="dicts or tuples"):
        FilterObservation(CountingEnv(), ["draw"])


def test_changing_bounds_does_not_recompile():
    @jax.jit
    def ends(env):
        return env.map_observation(jnp.float32([-1, 0, 8]))

    env = RescaleObservation(pendulum(), -1.0, 1.0)
    np.testing.assert_array_equal(ends(env), [-1, 0, 1])
    np.testing.assert_array_equal(ends(env.replace(min_obs=1.0, max_obs=3.0)), [1, 2, 3])
    assert ends._cache_size() == 1
    assert env.replace(max_obs=3.0).observation_space == spaces.Box(-1.0, 3.0, (3,))


def test_vmap_over_bounds():
    bounds = np.float32([[4, -np.inf], [5, -np.inf]])
    envs = RescaleObservation(OneSided(truncates=np.zeros(2, bool)), bounds, np.full(2, np.inf))
    mapped = jax.vmap(
        lambda env: env.map_observation(jnp.float32([-1, 2])),
        in_axes=(jax.tree.map(lambda _: 0, envs),),
    )
    ends = jax.jit(mapped)(envs)
    np.testing.assert_array_equal(ends, [[4, 2], [5, 2]])


def test_rounding_does_not_cross_the_bounds():
    low, high = np.float32(-0.1), np.float32(0.7)
    env = RescaleObservation(pendulum(), low, high)
    values = np.linspace(-1, 1, 3 * 4096, dtype=np.float32).reshape(-1, 3)
    mapped = jax.jit(jax.vmap(env.map_observation))(values)
    assert mapped.min() >= low and mapped.max() <= high


def test_gradients_of_bounds_with_infinite_bounds():
    env = RescaleObservation(OneSided(), np.float32([4, -np.inf]), np.inf)

    def total(env):
        return env.map_observation(jnp.float32([1, 2])).sum()

    env = env.replace(truncates=0.0, max_obs=np.float32(np.inf))
    gradient = jax.jit(jax.grad(total))(env).min_obs
    np.testing.assert_array_equal(gradient, [1, 0])


@pytest.mark.parametrize(
    ("env", "bounds", "message"),
    [
        (CountingEnv(), (1.0, 0.0), "min_obs=1.0"),
        (CountingEnv(), (np.zeros(3), 1.0), "shape"),
        (OneSided(), (0.0, 1.0), "infinite exactly where"),
        (OneSided(), (0, 1), "infinite exactly where"),
        (CountingEnv(layout="dict"), (0.0, 1.0), "floating"),
        (Bits(), (0.0, 1.0), "floating"),
    ],
)
def test_invalid_bounds_are_rejected(env, bounds, message):
    with pytest.raises(WrapperError, match=message):
        RescaleObservation(env, *bounds)


@pytest.mark.parametrize(
    ("env", "dtype", "space"),
    [
        (
            jaxenvs.make("CartPole-v1"),
            "int32",
            spaces.Box([-4, -np.inf, 0, -np.inf], [4, np.inf, 0, np.inf], dtype="int32"),
        ),
        (Bits(), np.uint8, spaces.Box(3, 8, (), np.uint8)),
        (Bits(layout="tuple"), jnp.float32, spaces.Box(0.0, [5.0, 8.0])),
        (Bits(layout="dict"), bool, spaces.Box(0, 1, (3,), bool)),
    ],
)
def test_dtype_conversion_keeps_values(env, dtype, space):
    wrapped = DtypeObservation(env, dtype)
    assert wrapped.observation_space == space
    observation = wrapped.reset(jax.random.key(0))[1].observation
    assert observation.dtype == space.dtype and observation in space


def test_equal_dtypes_share_a_program():
    trees = [
        jax.tree.structure(DtypeObservation(CountingEnv(), dtype)) for dtype in ("int8", np.int8)
    ]
    assert trees[0] == trees[1]
    assert (
        repr(DtypeObservation(CountingEnv(), np.int8))
        == "DtypeObservation(CountingEnv(), dtype=int8)"
    )


@pytest.mark.parametrize(
    ("env", "dtype", "message"),
    [
        (CountingEnv(), "float33", "float33"),
        (CountingEnv(), np.float64, "jax_enable_x64"),
        (Bits(), bool, "cannot represent"),
        (CountingEnv(layout="dict"), np.float32, "single arrays"),
    ],
)
def test_invalid_dtypes_are_rejected(env, dtype, message):
    with pytest.raises(WrapperError, match=message):
        DtypeObservation(env, dtype)
