import re
import sys

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dm_env import specs
from gymnasium import spaces as theirs
from gymnasium.vector.utils import batch_space
from hypothesis import given, settings

from jaxenvs.errors import MissingExtraError, SpaceError
from jaxenvs.spaces import (
    Box,
    Dict,
    Discrete,
    MultiBinary,
    MultiDiscrete,
    Tuple,
    from_dm_env,
    from_gymnasium,
    to_dm_env,
    to_gymnasium,
)
from tests.spaces_strategies import SEEDS, SPACES

INFINITY = float("inf")
KEY = jax.random.key(0)

GYMNASIUM_SPACES = [
    theirs.Box(-1.0, 1.0, (3,)),
    theirs.Box(np.array([-1, -np.inf], np.float32), np.array([np.inf, 2], np.float32)),
    theirs.Box(0, 255, (4, 4, 3), np.uint8),
    theirs.Box(-5, 5, (2,), np.int32),
    theirs.Discrete(4),
    theirs.Discrete(4, start=-2),
    theirs.MultiDiscrete([3, 2]),
    theirs.MultiDiscrete([[3, 2], [1, 5]], start=[[0, 1], [2, 3]]),
    theirs.MultiBinary(3),
    theirs.MultiBinary((2, 3)),
    theirs.Dict(a=theirs.Discrete(2), b=theirs.Tuple([theirs.MultiBinary(2)])),
    theirs.Tuple([]),
]
GYMNASIUM = pytest.mark.parametrize("space", GYMNASIUM_SPACES, ids=str)


# Gymnasium


@given(space=SPACES)
def test_a_space_survives_the_way_to_gymnasium_and_back(space):
    assert from_gymnasium(to_gymnasium(space)) == space


@GYMNASIUM
def test_a_gymnasium_space_survives_the_way_here_and_back(space):
    assert to_gymnasium(from_gymnasium(space)) == space


@given(space=SPACES, seed=SEEDS)
@settings(max_examples=10)
def test_samples_are_members_in_gymnasium_too(space, seed):
    sample = jax.tree.map(np.asarray, space.sample(jax.random.key(seed)))
    assert to_gymnasium(space).contains(sample)


@GYMNASIUM
def test_gymnasium_samples_cast_to_our_dtypes_are_members(space):
    space.seed(0)
    ours = from_gymnasium(space)
    for _ in range(5):
        narrow = jax.tree.map(
            lambda leaf: np.asarray(leaf, np.int32 if leaf.dtype == np.int64 else leaf.dtype),
            space.sample(),
        )
        assert ours.contains(narrow)


@GYMNASIUM
def test_batches_are_those_of_gymnasium(space):
    batch = to_gymnasium(from_gymnasium(space).batch(3))
    expected = batch_space(space, 3)
    if batch != expected:
        assert_same_batch(batch, expected)


def assert_same_batch(ours, expected):
    """Where Gymnasium falls back to an integer Box the values agree, and the type is kept."""
    if isinstance(ours, theirs.Dict | theirs.Tuple):
        keys = ours.spaces if isinstance(ours, theirs.Dict) else range(len(ours.spaces))
        for key in keys:
            assert_same_batch(ours[key], expected[key])
    elif isinstance(ours, theirs.MultiDiscrete) and isinstance(expected, theirs.Box):
        np.testing.assert_array_equal(ours.start, expected.low)
        np.testing.assert_array_equal(ours.start + ours.nvec - 1, expected.high)
        assert ours.dtype == expected.dtype
    elif isinstance(ours, theirs.MultiBinary):
        assert expected == theirs.Box(0, 1, ours.shape, np.int8)
    else:
        assert ours == expected


@pytest.mark.parametrize(
    "space",
    [Box(-1.0, 1.0, (2,)), Discrete(3, start=1), Dict(a=Discrete(2), b=Box(0, 9, dtype=np.int8))],
    ids=str,
)
def test_the_types_of_gymnasium_s_batches_are_kept_exactly(space):
    assert to_gymnasium(space.batch(4)) == batch_space(to_gymnasium(space), 4)


def test_discrete_spaces_are_int64_in_gymnasium_and_int32_here():
    assert to_gymnasium(Discrete(3)).dtype == np.int64
    assert to_gymnasium(MultiDiscrete([3])).dtype == np.int64
    assert from_gymnasium(theirs.Discrete(3)).dtype == np.int32
    assert from_gymnasium(theirs.MultiDiscrete([3], dtype=np.int8)).dtype == np.int32
    assert to_gymnasium(Discrete(3)).contains(np.int32(2))


@pytest.mark.parametrize(
    ("dtype", "narrow"), [("float64", "float32"), ("int64", "int32"), ("uint64", "uint32")]
)
def test_64_bit_boxes_become_32_bit_ones_unless_asked_otherwise(dtype, narrow):
    space = theirs.Box(0, 5, (2,), np.dtype(dtype).type)
    assert from_gymnasium(space) == Box(0, 5, (2,), narrow)
    nested = from_gymnasium(theirs.Dict(a=theirs.Tuple([space])), x64=True)
    assert nested == Dict(a=Tuple([Box(0, 5, (2,), dtype)]))
    assert to_gymnasium(nested) == theirs.Dict(a=theirs.Tuple([space]))


def test_bounds_beyond_32_bits_become_infinite_or_extreme():
    largest = np.finfo(np.float64).max
    space = theirs.Box(np.array([-largest, -1.0]), np.array([1.0, largest]), dtype=np.float64)
    assert from_gymnasium(space) == Box([-INFINITY, -1.0], [1.0, INFINITY])
    space = theirs.Box(-(2**63), 2**63 - 1, (2,), np.int64)
    assert from_gymnasium(space) == Box(-(2**31), 2**31 - 1, (2,), np.int32)


def test_gymnasium_box_gets_its_own_writable_bounds():
    space = Box(-1.0, 1.0, (2,))
    to_gymnasium(space).low[0] = 5
    assert space.low.tolist() == [-1, -1]


class Oddity(theirs.Space):
    """A Gymnasium space that nobody else knows."""


@pytest.mark.parametrize(
    "space",
    [
        theirs.Text(5),
        theirs.Graph(theirs.Box(0, 1, (2,)), None),
        theirs.Sequence(theirs.Discrete(2)),
        theirs.OneOf([theirs.Discrete(2), theirs.Discrete(3)]),
        Oddity(),
    ],
    ids=lambda space: type(space).__name__,
)
def test_spaces_without_a_counterpart_are_named_with_a_way_out(space):
    for given_space in (space, theirs.Dict(deep=theirs.Tuple([space]))):
        with pytest.raises(SpaceError, match=rf"{type(space).__name__}[\s\S]*first"):
            from_gymnasium(given_space)


def test_gymnasium_values_that_do_not_fit_into_int32_are_refused():
    with pytest.raises(SpaceError, match="int32"):
        from_gymnasium(theirs.Discrete(2**40))


@pytest.mark.parametrize("convert", [from_gymnasium, from_dm_env, to_gymnasium, to_dm_env])
@pytest.mark.parametrize("given_space", [3, None, "Discrete(3)"])
def test_converting_a_non_space_is_refused(convert, given_space):
    with pytest.raises(SpaceError, match=re.escape(str(given_space))):
        convert(given_space)


@pytest.mark.parametrize("convert", [to_gymnasium, to_dm_env])
def test_traced_bounds_are_not_converted(convert):
    with pytest.raises(SpaceError, match="traced"):
        jax.jit(lambda high: convert(Box(0.0, high)) and high)(1.0)


@pytest.mark.parametrize("convert", [to_gymnasium, to_dm_env])
def test_bfloat16_boxes_are_refused_by_both_conversions(convert):
    with pytest.raises(SpaceError, match="bfloat16"):
        convert(Box(0.0, 1.0, dtype=jnp.bfloat16))


@pytest.mark.parametrize(
    "environment_id", ["CartPole-v1", "Acrobot-v1", "Pendulum-v1", "Blackjack-v1", "FrozenLake-v1"]
)
def test_the_spaces_of_gymnasium_s_environments_convert(environment_id):
    env = gymnasium.make(environment_id)
    for space in (env.observation_space, env.action_space):
        assert to_gymnasium(from_gymnasium(space)) == space
    env.close()


# dm_env


@pytest.mark.parametrize(
    "space",
    [
        Box(-1.0, 1.0, (3,)),
        Box([-1.0, -INFINITY], [INFINITY, 2.0]),
        Box(-INFINITY, INFINITY, (2, 2)),
        Box(0, 255, (4, 4, 3), np.uint8),
        Box(-(2**31), 2**31 - 1, (), np.int32),
        Box(False, True, (2,), bool),
        Discrete(4),
        Dict(b=Discrete(2), a=Tuple([Box(0.0, 1.0), Tuple([])])),
    ],
    ids=str,
)
def test_a_space_survives_the_way_to_dm_env_and_back(space):
    assert from_dm_env(to_dm_env(space)) == space


@pytest.mark.parametrize(
    ("space", "box"),
    [
        (Discrete(3, start=-1), Box(-1, 1, (), np.int32)),
        (MultiDiscrete([3, 2], [0, 1]), Box([0, 1], [2, 2], dtype=np.int32)),
        (MultiBinary((2, 3)), Box(0, 1, (2, 3), np.int8)),
    ],
)
def test_space_without_a_dm_env_spec_returns_as_a_box(space, box):
    assert from_dm_env(to_dm_env(space)) == box


@given(space=SPACES, seed=SEEDS)
@settings(max_examples=10)
def test_samples_satisfy_their_dm_env_specs(space, seed):
    sample = jax.tree.map(np.asarray, space.sample(jax.random.key(seed)))
    jax.tree.map(lambda spec, value: spec.validate(value), to_dm_env(space), sample)


@pytest.mark.parametrize(
    "spec",
    [
        specs.Array((2, 3), np.float32, "a"),
        specs.Array((), np.uint8, "a"),
        specs.BoundedArray((2,), np.float32, -1.0, [1.0, 2.0], "a"),
        specs.BoundedArray((2,), np.int32, 0, 4, "a"),
        specs.DiscreteArray(5, name="a"),
        {"a": specs.DiscreteArray(5, name="a"), "b": (specs.Array((), np.bool_, "b"),)},
    ],
    ids=str,
)
def test_a_dm_env_spec_survives_the_way_here_and_back(spec):
    restored = to_dm_env(from_dm_env(spec), "a")
    assert jax.tree.all(jax.tree.map(_same_spec, spec, restored))


def _same_spec(left, right):
    if isinstance(left, specs.BoundedArray):  # dm_env compares bounds without broadcasting
        bounds = [np.broadcast_arrays(getattr(left, b), getattr(right, b)) for b in BOUNDS]
        return type(left) is type(right) and all((a == b).all() for a, b in bounds)
    return type(left) is type(right) and left == right


BOUNDS = ("minimum", "maximum")


def test_dm_env_specs_are_named_after_their_path():
    space = Dict(camera=Dict(depth=Box(0.0, 1.0)), keys=Tuple([Discrete(2), Discrete(3)]))
    named = to_dm_env(space)
    assert named["camera"]["depth"].name == "camera/depth"
    assert [spec.name for spec in named["keys"]] == ["keys/0", "keys/1"]
    assert to_dm_env(space, "observation")["keys"][1].name == "observation/keys/1"
    assert to_dm_env(Discrete(2), "action").name == "action"
    assert to_dm_env(Discrete(2)).name is None


def test_64_bit_specs_become_32_bit_spaces_by_default():
    spec = specs.BoundedArray((2,), np.float64, -1, 1)
    assert from_dm_env(spec) == Box(-1.0, 1.0, (2,))
    assert from_dm_env({"a": [spec]}, x64=True) == Dict(a=Tuple([Box(-1.0, 1.0, (2,), float)]))
    assert from_dm_env(specs.Array((), np.float64)) == Box(-INFINITY, INFINITY)
    assert from_dm_env(specs.Array((), np.int64)) == Box(-(2**31), 2**31 - 1, dtype=np.int32)
    assert from_dm_env(specs.DiscreteArray(5, np.int64)) == Discrete(5)


def test_text_specs_are_refused():
    with pytest.raises(SpaceError, match="StringArray"):
        from_dm_env({"mission": specs.StringArray(())})


def test_without_dm_env_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "dm_env", None)
    for convert, given_space in ((to_dm_env, Discrete(2)), (from_dm_env, None)):
        with pytest.raises(MissingExtraError, match=r"jaxenvs\[dm\]"):
            convert(given_space)
