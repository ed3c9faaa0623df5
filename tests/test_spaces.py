import contextlib
import copy
import dataclasses
import math
import pickle
import subprocess
import sys

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import utils as gymnasium_utils
from hypothesis import given, settings
from scipy import stats

from jaxenvs import spaces, struct
from jaxenvs.errors import SpaceError
from jaxenvs.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from tests.spaces_strategies import SEEDS, SPACES

INFINITY = float("inf")
KEY = jax.random.key(0)
EXAMPLES = [
    Box(-1.0, 1.0, (3,)),
    Box(0, 255, (2, 2), np.uint8),
    Discrete(5, start=-2),
    MultiDiscrete([3, 2]),
    MultiBinary(4),
    Dict(a=Discrete(2), b=Box(0.0, 1.0)),
    Tuple([Discrete(2), Tuple([MultiBinary(2)])]),
]
NAMED = pytest.mark.parametrize("space", EXAMPLES, ids=lambda space: type(space).__name__)


def draw(space, shape=(), mask=None, key=KEY):
    """Samples in one program. Without `jit`, each operation would be compiled by itself."""
    return jax.device_get(jax.jit(lambda key: space.sample(key, shape, mask))(key))


def assert_same_trees(left, right):
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


@contextlib.contextmanager
def x64():
    jax.config.update("jax_enable_x64", True)
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", False)


def primitives(function, *arguments):
    """The names of all operations in the program of `function`, nested ones included."""

    def walk(jaxpr):
        for equation in jaxpr.eqns:
            yield equation.primitive.name
            for parameter in equation.params.values():
                inner = getattr(parameter, "jaxpr", parameter)
                if hasattr(inner, "eqns"):
                    yield from walk(inner)

    return list(walk(jax.make_jaxpr(function)(*arguments).jaxpr))


def p_value_of_uniform(samples, values):
    counts = np.array([(np.asarray(samples) == value).sum() for value in values])
    assert counts.sum() == np.size(samples)
    return stats.chisquare(counts).pvalue


# Sampling


@given(space=SPACES, seed=SEEDS)
@settings(max_examples=10)
def test_samples_are_members(space, seed):
    batch = space.batch(4)

    @jax.jit
    def check(key):
        stacked = space.sample(key, (4,))
        mapped = jax.vmap(space.contains)(stacked) if jax.tree.leaves(stacked) else jnp.array([])
        alone, together = space.contains(space.sample(key)), batch.contains(batch.sample(key))
        return alone, together, batch.contains(stacked), mapped.all()

    assert all(check(jax.random.key(seed)))


@given(space=SPACES, seed=SEEDS)
@settings(max_examples=10)
def test_equal_keys_give_equal_samples_inside_and_outside_of_jit(space, seed):
    key = jax.random.key(seed)
    eager = space.sample(key, (3,))
    assert_same_trees(eager, space.sample(key, (3,)))
    jitted = jax.jit(lambda key: space.sample(key, (3,)))(key)
    for a, b in zip(jax.tree.leaves(eager), jax.tree.leaves(jitted), strict=True):
        if jnp.issubdtype(a.dtype, jnp.floating):  # XLA may fuse a product and a sum
            scale = max(1.0, float(np.abs(a).max(initial=0)))
            np.testing.assert_allclose(a / scale, b / scale, atol=1e-6)
        else:
            np.testing.assert_array_equal(a, b)


def test_samples_differ_between_keys_and_batch_members():
    space = Box(-1.0, 1.0, (3,))
    samples = draw(space, (100,))
    assert len(np.unique(samples)) == 300
    assert not np.isin(samples, draw(space, (100,), key=jax.random.key(1))).any()


def test_the_parts_of_a_composite_are_independent():
    samples = draw(Tuple([Discrete(2), Discrete(2)]), (1000,))
    agreement = float((samples[0] == samples[1]).mean())
    assert 0.45 < agreement < 0.55


@pytest.mark.parametrize("raw_key", [True, False])
def test_raw_keys_draw_what_typed_keys_draw(raw_key):
    key = jax.random.key_data(KEY) if raw_key else KEY
    assert_same_trees(draw(Discrete(7), (20,), key=key), draw(Discrete(7), (20,)))


@NAMED
def test_a_batch_takes_as_many_draws_as_one_member(space):
    draws = primitives(space.sample, KEY).count("random_bits")
    for sample in (space.batch(65_536).sample, lambda key: space.sample(key, (65_536,))):
        assert primitives(sample, KEY).count("random_bits") == draws


def test_a_masked_batch_takes_as_many_draws_as_one_member():
    def draws(space, mask):
        program = primitives(lambda key, mask: space.sample(key, mask=mask), KEY, mask)
        return program.count("random_bits")

    space, mask = Discrete(5), jnp.ones((65_536, 5), bool)
    assert draws(space.batch(65_536), mask) == draws(space, mask[0])


@pytest.mark.parametrize("n", [2, 3, 5, 8, 18, 256, 1000])
def test_discrete_is_uniform(n):
    samples = draw(Discrete(n, start=-1), (200_003,))
    assert p_value_of_uniform(samples, range(-1, n - 1)) > 1e-3


@pytest.mark.parametrize("n", [3, 5, 6])
def test_neighbors_in_a_batch_are_independent(n):
    samples = draw(Discrete(n), (240_000,))
    for distance in (1, 2, 3):
        pairs = samples[:-distance] * n + samples[distance:]
        assert p_value_of_uniform(pairs[:: distance + 1], range(n * n)) > 1e-3


@pytest.mark.parametrize("n", [2**16, 2**16 + 1, 10**6, 2**31 - 1])
def test_large_discretes_are_uniform_over_their_whole_range(n):
    space = Discrete(n, start=-(2**30))
    samples = draw(space, (100_000,)).astype(np.int64) + 2**30
    assert samples.min() >= 0 and samples.max() < n
    assert stats.kstest(samples / n, "uniform").pvalue > 1e-3


def test_multi_discrete_is_uniform_in_each_element():
    space = MultiDiscrete([[2, 3], [5, 70_000]], start=[[0, 1], [-2, 0]])
    samples = draw(space, (50_000,))
    for index in ((0, 0), (0, 1), (1, 0)):
        values = space.start[index] + np.arange(space.nvec[index])
        assert p_value_of_uniform(samples[:, *index], values) > 1e-3
    assert stats.kstest(samples[:, 1, 1] / 70_000, "uniform").pvalue > 1e-3


def test_multi_binary_tosses_fair_coins():
    samples = draw(MultiBinary((2, 2)), (20_000,))
    assert samples.dtype == jnp.int8
    patterns = samples.reshape(-1, 4) @ np.array([1, 2, 4, 8])
    assert p_value_of_uniform(patterns, range(16)) > 1e-3


def test_box_follows_the_distributions_of_gymnasium():
    space = Box([-1.0, 2.0, -INFINITY, -INFINITY], [3.0, INFINITY, -5.0, INFINITY])
    samples = draw(space, (50_000,)).astype(np.float64)
    expected = [
        stats.uniform(-1, 4).cdf,
        stats.expon(2).cdf,
        lambda x: 1 - stats.expon(5).cdf(-x),
        stats.norm.cdf,
    ]
    for column, distribution in zip(samples.T, expected, strict=True):
        assert stats.kstest(column, distribution).pvalue > 1e-3
    assert np.abs(np.corrcoef(samples.T) - np.eye(4)).max() < 0.02


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32"])
def test_integer_boxes_reach_both_extremes_and_nothing_else(dtype):
    limits = np.iinfo(dtype)
    for low, high in ((limits.max - 2, limits.max), (limits.min, limits.min + 2)):
        samples = draw(Box(low, high, dtype=dtype), (3_000,))
        assert samples.dtype == dtype
        assert p_value_of_uniform(samples.astype(np.int64), range(low, high + 1)) > 1e-3
    full = draw(Box(limits.min, limits.max, dtype=dtype), (50_000,)).astype(np.float64)
    assert stats.kstest((full - limits.min + 0.5) / 2**limits.bits, "uniform").pvalue > 1e-3 or (
        limits.bits == 8 and p_value_of_uniform(full, range(limits.min, limits.max + 1)) > 1e-3
    )


def test_an_infinite_bound_of_signed_integers_is_their_extreme():
    space = Box(-INFINITY, [0, INFINITY], dtype=np.int16)
    np.testing.assert_array_equal(space.low, np.full(2, -(2**15)))
    np.testing.assert_array_equal(space.high, [0, 2**15 - 1])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_a_huge_box_samples_finite_numbers_from_its_whole_range(dtype):
    largest = float(jnp.finfo(dtype).max)
    samples = draw(Box(-largest, largest, dtype=dtype), (1000,))
    assert samples.dtype == dtype and np.isfinite(samples).all()
    assert samples.max() > largest / 2 and samples.min() < -largest / 2


def test_rounding_does_not_leave_a_box():
    space = Box(np.float32(16_777_216), np.float32(16_777_218))
    assert jax.jit(lambda key: jax.vmap(space.contains)(space.sample(key, (1000,))))(KEY).all()


def test_bool_boxes_toss_coins():
    samples = draw(Box(False, [True, False], dtype=bool), (1000,))
    assert samples.dtype == bool
    assert 400 < samples[:, 0].sum() < 600 and not samples[:, 1].any()


def test_spaces_without_elements_sample_nothing():
    for space in (Box(0.0, 1.0, (0,)), Box(0, 9, (2, 0), np.int32), MultiDiscrete(3, shape=(0,))):
        assert draw(space, (2,)).shape == (2, *space.shape)
        assert space.contains(draw(space))
    assert draw(Discrete(3), (0,)).shape == (0,)


# Masks


@pytest.mark.parametrize("dtype", [bool, np.int8])
def test_a_masked_discrete_is_uniform_over_what_is_allowed(dtype):
    mask = np.array([1, 0, 1, 0, 1], dtype)
    samples = draw(Discrete(5, start=10), (30_000,), mask)
    assert p_value_of_uniform(samples, [10, 12, 14]) > 1e-3


def test_each_member_of_a_batch_can_have_its_own_mask():
    mask = np.random.default_rng(0).random((500, 6)) < 0.4
    mask[:, 2] |= ~mask.any(axis=1)
    samples = draw(Discrete(6), (500,), mask)
    assert mask[np.arange(500), samples].all()
    assert_same_trees(samples, draw(Discrete(6).batch(500), mask=mask))


def test_mask_allowing_nothing_samples_start_as_in_gymnasium():
    mask = np.zeros(3, np.int8)
    assert gymnasium.spaces.Discrete(3, start=7).sample(mask) == 7
    assert (draw(Discrete(3, start=7), (10,), mask) == 7).all()
    masks = (mask[:2], np.array([0, 0, 1], np.int8))
    samples = draw(MultiDiscrete([2, 3], start=[4, 5]), (10,), masks)
    np.testing.assert_array_equal(samples, [[4, 7]] * 10)


def test_a_multi_discrete_takes_gymnasium_s_tuples_of_masks():
    nvec = np.array([[2, 3], [4, 1]])
    masks = (([1, 0], [0, 1, 1]), ([0, 1, 0, 1], [1]))
    masks = tuple(tuple(np.array(mask, np.int8) for mask in row) for row in masks)
    theirs = gymnasium.spaces.MultiDiscrete(nvec).sample(masks)
    space = MultiDiscrete(nvec)
    samples = draw(space, (4_000,), masks)
    assert space.contains(theirs.astype(np.int32))
    assert not samples[:, 0, 0].any() and not samples[:, 1, 1].any()
    assert p_value_of_uniform(samples[:, 0, 1], [1, 2]) > 1e-3
    assert p_value_of_uniform(samples[:, 1, 0], [1, 3]) > 1e-3


def test_multi_discrete_masks_may_differ_between_members():
    space = MultiDiscrete([2, 3])
    first = np.array([[1, 0], [0, 1], [0, 1]], np.int8)
    samples = draw(space, (3,), (first, np.array([0, 1, 0], np.int8)))
    np.testing.assert_array_equal(samples, [[0, 1], [1, 1], [1, 1]])
    padded = np.ones((3, 2, 3), bool)
    padded[:, 0, :2], padded[:, 1] = first, [0, 1, 0]  # padded[:, 0, 2] is no value: ignored
    np.testing.assert_array_equal(draw(space, (3,), padded), samples)


def test_a_multi_binary_mask_fixes_bits_as_in_gymnasium():
    mask = np.array([0, 1, 2, 2], np.int8)
    samples = draw(MultiBinary(4), (1000,), mask)
    assert not samples[:, 0].any() and samples[:, 1].all()
    assert (np.abs(samples[:, 2:].mean(axis=0) - 0.5) < 0.1).all()
    masks = np.stack([mask, 1 - mask.clip(0, 1)])
    np.testing.assert_array_equal(draw(MultiBinary(4), (2,), masks)[1], [1, 0, 0, 0])


def test_masks_nest_and_none_allows_everything():
    space = Dict(move=Discrete(3), tools=Tuple([Discrete(2), Box(0.0, 1.0)]))
    mask = {"move": np.array([0, 0, 1], bool), "tools": (np.array([1, 0], bool), None)}
    samples = jax.jit(lambda key, mask: space.sample(key, (9,), mask))(KEY, mask)
    assert (samples["move"] == 2).all() and not samples["tools"][0].any()
    assert len(np.unique(samples["tools"][1])) == 9


@pytest.mark.parametrize(
    ("space", "mask", "word"),
    [
        (Discrete(3), np.ones(4, bool), r"\(3,\)"),
        (Discrete(3), np.ones((5, 3), bool), r"\(2, 3\)"),
        (Discrete(3), np.ones(3, np.float32), "float32"),
        (MultiDiscrete([2, 3]), (np.ones(2, bool),), "nested"),
        (MultiDiscrete([2, 3]), (np.ones(2, bool), np.ones(2, bool)), r"\(3,\)"),
        (MultiDiscrete([[2], [3]]), (np.ones(2, bool), np.ones(3, bool)), "nested"),
        (MultiBinary(2), np.ones(2, bool), "int8"),
        (MultiBinary(2), np.ones(3, np.int8), r"\(2,\)"),
        (Box(0.0, 1.0), np.ones((), bool), "Box"),
        (Dict(a=Discrete(2)), {"b": None}, "structure"),
        (Tuple([Discrete(2)]), (None, None), "structure"),
    ],
)
def test_a_mask_that_does_not_fit_is_named(space, mask, word):
    with pytest.raises(SpaceError, match=word):
        space.sample(KEY, (2,), mask)


# Membership


@pytest.mark.parametrize(
    ("space", "value", "member"),
    [
        (Discrete(3, start=2), 2, True),
        (Discrete(3, start=2), 4, True),
        (Discrete(3, start=2), 5, False),
        (Discrete(3, start=2), 1, False),
        (Discrete(3), jnp.int32(2), True),
        (Discrete(3), np.int32(2), True),
        (Discrete(3), np.int64(2), False),
        (Discrete(3), np.int8(2), False),
        (Discrete(3), 2.0, False),
        (Discrete(3), True, False),
        (Discrete(3), 2**40, False),
        (Discrete(3), np.array([1], np.int32), False),
        (Discrete(3), "1", False),
        (Discrete(3), None, False),
        (Discrete(3), KEY, False),
        (Discrete(2**31 - 1), 2**31 - 2, True),
        (Discrete(2**31 - 1), 2**31 - 1, False),
        (Box(-1.0, 1.0), 1.0, True),
        (Box(-1.0, 1.0), 1, True),
        (Box(-1.0, 1.0), 1.1, False),
        (Box(-1.0, 1.0), float("nan"), False),
        (Box(-1.0, 1.0), True, False),
        (Box(-1.0, 1.0), np.float32(-1), True),
        (Box(-1.0, 1.0), np.float64(0), False),
        (Box(-INFINITY, INFINITY), INFINITY, True),
        (Box(-INFINITY, INFINITY), 1e300, True),
        (Box(-1.0, 1.0, (2,)), np.zeros(2, np.float32), True),
        (Box(-1.0, 1.0, (2,)), np.array([0, 2], np.float32), False),
        (Box(-1.0, 1.0, (2,)), np.zeros((1, 2), np.float32), False),
        (Box(-1.0, 1.0, (2,)), np.zeros(2, np.float16), False),
        (Box(-1.0, 1.0, (2,)), [0.0, 0.0], False),
        (Box(0, 255, (), np.uint8), 255, True),
        (Box(0, 255, (), np.uint8), 256, False),
        (Box(0, 255, (), np.uint8), -1, False),
        (Box(0, 255, (), np.uint8), 1.0, False),
        (Box(False, True, (), bool), True, True),
        (Box(False, True, (), bool), 1, False),
        (MultiDiscrete([3, 2]), np.array([2, 1], np.int32), True),
        (MultiDiscrete([3, 2]), np.array([1, 2], np.int32), False),
        (MultiDiscrete([3, 2]), np.array([2, -1], np.int32), False),
        (MultiDiscrete([3, 2]), np.array([2], np.int32), False),
        (MultiBinary(2), np.array([1, 0], np.int8), True),
        (MultiBinary(2), np.array([1, 2], np.int8), False),
        (MultiBinary(2), np.array([1, 0], bool), False),
        (Dict(a=Discrete(2), b=Discrete(3)), {"b": 2, "a": 1}, True),
        (Dict(a=Discrete(2), b=Discrete(3)), {"b": 2, "a": 2}, False),
        (Dict(a=Discrete(2), b=Discrete(3)), {"a": 1}, False),
        (Dict(a=Discrete(2)), {"a": 1, "b": 1}, False),
        (Dict(a=Discrete(2)), 1, False),
        (Tuple([Discrete(2), Discrete(3)]), (1, 2), True),
        (Tuple([Discrete(2), Discrete(3)]), (2, 2), False),
        (Tuple([Discrete(2), Discrete(3)]), [1, 2], False),
        (Tuple([Discrete(2)]), (1, 2), False),
        (Tuple([]), (), True),
    ],
)
def test_membership(space, value, member):
    result = space.contains(value)
    assert result.shape == () and result.dtype == bool
    assert result == member
    assert (value in space) is member


def test_membership_is_jittable():
    space = Dict(a=Discrete(3), b=Box([-1.0, 0.0], [1.0, 2.0]))
    contains = jax.jit(space.contains)
    inside = {"a": jnp.int32(1), "b": jnp.array([1.0, 2.0])}
    assert contains(inside)
    assert not contains({**inside, "a": jnp.int32(3)})
    assert not contains({**inside, "b": jnp.array([1.0, 2.5])})
    assert not contains({**inside, "b": jnp.zeros(3)})
    operations = primitives(space.contains, {"a": jnp.int32(1)})
    assert not {"lt", "le", "gt", "ge"} & set(operations)


# Batches


@NAMED
def test_a_batch_repeats_nothing_in_memory_or_in_the_program(space):
    batch = space.batch(10**9)
    for leaf in jax.tree.leaves(jax.eval_shape(batch.sample, KEY)):
        assert leaf.shape[0] == 10**9


def test_a_batched_box_stores_its_bounds_once():
    images = Box(0, 255, (84, 84, 4), np.uint8).batch(65_536)
    assert images.low.shape == (65_536, 84, 84, 4)
    assert images == Box(0, 255, (65_536, 84, 84, 4), np.uint8)
    jaxpr = jax.make_jaxpr(Box([0.0, -1.0], [1.0, 2.0]).batch(1000).sample)(KEY)
    assert max(np.size(constant) for constant in jaxpr.consts) == 2


@pytest.mark.parametrize("n", [0, -1, 2.5, "2"])
@NAMED
def test_an_invalid_batch_size_is_refused(space, n):
    with pytest.raises(SpaceError, match="batch"):
        space.batch(n)


def test_batches_nest():
    assert Discrete(3, start=1).batch(4).batch(2) == MultiDiscrete(3, 1, shape=(2, 4))
    assert MultiBinary(3).batch(4) == MultiBinary((4, 3))
    assert Box([0, 1], 5, dtype=np.int32).batch(3).low.tolist() == [[0, 1]] * 3


# Flattening


@given(space=SPACES, seed=SEEDS)
@settings(max_examples=10)
def test_unflatten_undoes_flatten(space, seed):
    flat_space = space.flatten_space()

    @jax.jit
    def both_ways(key):
        sample = space.sample(key)
        value = jax.tree.map(_within_float32, sample)
        value = struct.select(space.contains(value), value, sample)
        flat = space.flatten(value)
        return value, flat, space.unflatten(flat), flat_space.contains(flat)

    value, flat, restored, is_inside = jax.device_get(both_ways(jax.random.key(seed)))
    assert flat.shape == (space.flat_dim,) == flat_space.shape
    assert flat.dtype == flat_space.dtype
    assert is_inside
    exact = flat.dtype != np.float32 or not _has_wide_integers(value)
    if exact:
        assert_same_trees(value, restored)


def _within_float32(leaf):
    """Integers that float32 holds exactly, as the documentation of `flatten` asks."""
    wide = jnp.issubdtype(leaf.dtype, jnp.integer) and leaf.dtype.itemsize == 4
    return leaf % jnp.asarray(2**20, leaf.dtype) if wide else leaf


def _has_wide_integers(value):
    return any(
        jnp.issubdtype(leaf.dtype, jnp.integer) and (np.abs(np.asarray(leaf, float)) > 2**24).any()
        for leaf in jax.tree.leaves(value)
    )


@given(space=SPACES, seed=SEEDS)
def test_flatten_agrees_with_gymnasium(space, seed):
    theirs = spaces.to_gymnasium(space)
    if any(part.flat_dim == 0 for part in _all_parts(space)):
        return  # Gymnasium concatenates nothing, which NumPy refuses
    theirs.seed(seed)
    member = theirs.sample()
    assert space.flat_dim == gymnasium_utils.flatdim(theirs)
    np.testing.assert_array_equal(
        np.asarray(jax.jit(space.flatten)(member), np.float32),
        np.asarray(gymnasium_utils.flatten(theirs, member), np.float32),
    )
    flat_space = gymnasium_utils.flatten_space(theirs)
    for bound in ("low", "high"):
        ours, theirs = getattr(space.flatten_space(), bound), getattr(flat_space, bound)
        np.testing.assert_array_equal(ours.astype(np.float32), theirs.astype(np.float32))


def _all_parts(space):
    yield space
    for part in getattr(space, "_parts", ()):
        yield from _all_parts(part)


@NAMED
def test_flattening_works_under_jit_and_vmap(space):
    @jax.jit
    def both_ways(key):
        values = space.sample(key, (6,))
        flat = jax.vmap(space.flatten)(values)
        return values, flat, jax.vmap(space.unflatten)(flat)

    values, flat, restored = both_ways(KEY)
    assert flat.shape == (6, space.flat_dim)
    assert_same_trees(values, restored)


def test_flat_dtype_is_that_shared_by_the_leaves_or_float32():
    integers = Dict(a=Discrete(3), b=MultiDiscrete([2, 2]))
    mixed = Dict(a=Discrete(3), b=Box(0.0, 1.0))
    images = Box(0, 255, (2, 2), np.uint8)
    for space, dtype in ((integers, jnp.int32), (mixed, jnp.float32), (images, jnp.uint8)):
        flat = jax.eval_shape(lambda key, space=space: space.flatten(space.sample(key)), KEY)
        assert flat.dtype == dtype


def test_scores_unflatten_to_the_best_value():
    assert jax.jit(Discrete(3, start=5).unflatten)(np.array([0.1, 0.2, 0.9], np.float32)) == 7
    scores = np.array([-3.0, -1.0, -2.0, -0.5, -4.0], np.float32)
    np.testing.assert_array_equal(jax.jit(MultiDiscrete([2, 3]).unflatten)(scores), [1, 1])


@NAMED
def test_shapes_that_do_not_fit_are_named_when_flattening(space):
    with pytest.raises(SpaceError, match="vmap"):
        space.unflatten(np.zeros(space.flat_dim + 1, np.float32))
    with pytest.raises(SpaceError, match=r"shape|structure"):
        space.flatten(np.zeros((7, 7), np.float32))


# Equality, text, immutability


@given(space=SPACES)
def test_a_copy_is_equal_and_hashes_alike(space):
    for other in (copy.deepcopy(space), pickle.loads(pickle.dumps(space))):
        assert space == other and hash(space) == hash(other)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (Box(0.0, 1.0, (2,)), Box([0.0, 0.0], np.ones(2))),
        (Box(-0.0, 1.0), Box(0.0, 1.0)),
        (Box([0.0, 1.0], 2.0).batch(2), Box([[0.0, 1.0]] * 2, [[2.0, 2.0]] * 2)),
        (Discrete(3).batch(2), MultiDiscrete([3, 3])),
        (MultiDiscrete([3, 3], start=0), MultiDiscrete([3, 3])),
        (MultiBinary(3), MultiBinary([3])),
        (Dict(b=Discrete(2), a=Discrete(3)), Dict({"a": Discrete(3), "b": Discrete(2)})),
    ],
)
def test_spaces_with_the_same_members_are_equal(left, right):
    assert left == right and hash(left) == hash(right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (Box(0.0, 1.0, (2,)), Box(0.0, 1.0, (3,))),
        (Box(0.0, 1.0), Box(0.0, 2.0)),
        (Box(0, 1, dtype=np.int8), Box(0, 1, dtype=np.int32)),
        (Box(0, 1, (2,), dtype=np.int8), MultiBinary(2)),
        (Discrete(3), Discrete(4)),
        (Discrete(3), Discrete(3, start=1)),
        (Discrete(3), MultiDiscrete(3)),
        (MultiDiscrete([3, 3]), MultiDiscrete([3, 2])),
        (MultiDiscrete([3, 3]), MultiDiscrete([3, 3], start=1)),
        (MultiDiscrete([3, 3]), MultiDiscrete([3, 3, 3])),
        (MultiBinary(2), MultiBinary((1, 2))),
        (Dict(a=Discrete(3)), Dict(b=Discrete(3))),
        (Dict(a=Discrete(3)), Dict(a=Discrete(2))),
        (Tuple([Discrete(3)]), Tuple([Discrete(3), Discrete(3)])),
        (Tuple([]), Dict()),
        (Discrete(3), 3),
    ],
)
def test_spaces_with_other_members_or_types_are_not_equal(left, right):
    assert left != right
    assert (left == right) is False


@pytest.mark.parametrize(
    ("space", "text"),
    [
        (Box(-1.0, 1.0, (3,)), "Box(-1.0, 1.0, (3,), float32)"),
        (Box([-1.2, -0.07], [0.6, 0.07]), "Box([-1.2, -0.07], [0.6, 0.07], (2,), float32)"),
        (Box(0, 255, (84, 84, 4), np.uint8), "Box(0, 255, (84, 84, 4), uint8)"),
        (Box(np.arange(50), 50, dtype=int), "Box([0, 1, 2, ..., 47, 48, 49], 50, (50,), int64)"),
        (Discrete(3), "Discrete(3)"),
        (Discrete(3, start=-1), "Discrete(3, start=-1)"),
        (MultiDiscrete([3, 2]), "MultiDiscrete([3, 2])"),
        (MultiDiscrete([3, 2], [0, 1]), "MultiDiscrete([3, 2], start=[0, 1])"),
        (Discrete(3, 1).batch(65_536), "MultiDiscrete(3, start=1, shape=(65536,))"),
        (MultiBinary(4), "MultiBinary(4)"),
        (MultiBinary((2, 3)), "MultiBinary((2, 3))"),
        (Dict(b=Discrete(2), a=MultiBinary(1)), "Dict(a=MultiBinary(1), b=Discrete(2))"),
        (Dict({"a/b": Discrete(2)}), "Dict({'a/b': Discrete(2)})"),
        (Tuple([Discrete(2), Tuple([])]), "Tuple(Discrete(2), Tuple())"),
    ],
)
def test_repr_of_a_space(space, text):
    assert repr(space) == text


@NAMED
def test_spaces_are_immutable(space):
    for name in ("shape", "n", "low", "anything"):
        with pytest.raises(dataclasses.FrozenInstanceError, match=name):
            setattr(space, name, 1)
        with pytest.raises(dataclasses.FrozenInstanceError, match=name):
            delattr(space, name)


def test_arrays_given_and_taken_cannot_change_a_space():
    low = np.zeros(2, np.float32)
    space = Box(low, [1.0, 2.0])
    low[0] = 5
    assert space.low.tolist() == [0, 0]
    multi = MultiDiscrete([2, 3])
    for array in (space.low, space.high, multi.nvec, multi.start):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    parts = Dict(a=Discrete(2)).spaces
    with pytest.raises(TypeError):
        parts["a"] = Discrete(3)


def test_a_dict_sorts_its_keys_as_jax_does():
    space = Dict({"b": Discrete(2), "a": Discrete(3)})
    assert list(space) == list(space.spaces) == list(space.sample(KEY)) == ["a", "b"]
    assert space.flatten({"b": 0, "a": 2}).tolist() == [0, 0, 1, 1, 0]
    assert space["b"] == Discrete(2) and len(space) == 2


def test_a_tuple_is_a_sequence_of_its_parts():
    space = Tuple([Discrete(2), Discrete(3)])
    assert list(space) == [Discrete(2), Discrete(3)] == list(space.spaces)
    assert space[1] == Discrete(3) and len(space) == 2


# Validation


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: Discrete(0), "at least 1"),
        (lambda: Discrete(2.0), "integer"),
        (lambda: Discrete(3, start=0.5), "start"),
        (lambda: Discrete(2**31), "int32"),
        (lambda: Discrete(10, start=2**31 - 5), "int32"),
        (lambda: MultiDiscrete([2, 0]), "at least 1"),
        (lambda: MultiDiscrete([2.0, 3.0]), "integers"),
        (lambda: MultiDiscrete([2, 3], start=[0, 0, 0]), "broadcast"),
        (lambda: MultiDiscrete([2, 3], shape=(3,)), "broadcast"),
        (lambda: MultiDiscrete([2, 2**31]), "int32"),
        (lambda: MultiDiscrete([2, 2], start=[0, 2**31 - 1]), "int32"),
        (lambda: MultiBinary(0), "at least 1"),
        (lambda: MultiBinary((2, 0)), "at least 1"),
        (lambda: MultiBinary("three"), "integer"),
        (lambda: Box(1.0, 0.0), "swapped"),
        (lambda: Box([0.0, 1.0], [1.0, 0.5]), "swapped"),
        (lambda: Box(float("nan"), 1.0), "NaN"),
        (lambda: Box([0.0, 0.0], [1.0, float("nan")]), "NaN"),
        (lambda: Box(INFINITY, INFINITY), "infinity"),
        (lambda: Box(-INFINITY, -INFINITY), "infinity"),
        (lambda: Box(np.zeros(2), np.zeros(3)), "broadcast"),
        (lambda: Box(np.zeros(2), 1.0, (3,)), r"\(3,\)"),
        (lambda: Box(np.zeros((2, 1)), 1.0, (1,)), r"\(1,\)"),
        (lambda: Box(0.0, 1.0, 3), "tuple"),
        (lambda: Box(0.0, 1.0, (-1,)), "at least 0"),
        (lambda: Box(0.0, 1.0, (1.5,)), "integer"),
        (lambda: Box(0.0, 1.0, dtype=complex), "dtype"),
        (lambda: Box(0.0, 1.0, dtype="nonsense"), "dtype"),
        (lambda: Box(0.0, 1.0, dtype=None), "dtype"),
        (lambda: Box("low", 1.0), "low"),
        (lambda: Box(0.0, None), "high"),
        (lambda: Box([[0.0], [0.0, 1.0]], 1.0), "low"),
        (lambda: Box(0, 256, dtype=np.uint8), "uint8"),
        (lambda: Box(-1, 5, dtype=np.uint8), "uint8"),
        (lambda: Box(0.5, 5, dtype=np.int32), "int32"),
        (lambda: Box(float("nan"), 5, dtype=np.int32), "int32"),
        (lambda: Box(0, INFINITY, dtype=np.uint8), "uint8"),
        (lambda: Box(0, 2.0**31, dtype=np.int32), "int32"),
        (lambda: Box(0, 2, dtype=bool), "bool"),
        (lambda: Box(-1e39, 1e39), "float32"),
        (lambda: Dict(a=3), '"a"'),
        (lambda: Dict({1: Discrete(2)}), "strings"),
        (lambda: Dict([("a", Discrete(2))]), "mapping"),
        (lambda: Dict({"a": Discrete(2)}, a=Discrete(2)), "twice"),
        (lambda: Dict(a=gymnasium.spaces.Discrete(2)), "from_gymnasium"),
        (lambda: Tuple([Discrete(2), 3]), "part 1"),
        (lambda: Tuple(3), "sequence"),
    ],
)
def test_invalid_arguments_are_refused(make, word):
    with pytest.raises(SpaceError, match=word):
        make()


def test_values_that_decide_shapes_must_not_be_traced():
    for make in (Discrete, MultiDiscrete, MultiBinary, Box(0.0, 1.0).batch):
        with pytest.raises(SpaceError, match="static"):
            jax.jit(lambda n, make=make: make(n).sample(KEY))(3)


# Traced bounds


def test_a_box_of_traced_bounds_samples_and_checks_inside_jit():
    @jax.jit
    def run(key, low, high):
        box = Box([low, -1.0, -jnp.inf], [high, jnp.inf, jnp.inf])
        assert "traced" in repr(box)
        samples = box.batch(64).sample(key)
        flat = box.flatten_space()
        return samples, jax.vmap(box.contains)(samples), flat.contains(box.flatten(samples[0]))

    low, high = jnp.float32(-3e38), jnp.float32(3e38)
    samples, inside, flat_inside = run(KEY, low, high)
    assert inside.all() and flat_inside and np.isfinite(samples).all()
    known = Box([-3e38, -1.0, -INFINITY], [3e38, INFINITY, INFINITY])
    np.testing.assert_allclose(samples, draw(known.batch(64)), rtol=1e-6, atol=1e32)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "bool"])
def test_traced_integer_bounds_reach_their_extremes(dtype):
    low, high = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    low, high = np.asarray(low, dtype), np.asarray(high, dtype)
    sample = jax.jit(lambda key, low, high: Box(low, high, dtype=dtype).sample(key, (2000,)))
    full = np.asarray(sample(KEY, low, high), np.float64)
    assert full.min() < float(low) + 1e-2 * (float(high) - float(low)) + 1
    assert full.max() > float(high) - 1e-2 * (float(high) - float(low)) - 1
    assert (sample(KEY, high, high) == high).all()


def test_a_box_maps_over_its_bounds():
    lows = np.arange(5, dtype=np.float32)
    sample = jax.jit(jax.vmap(lambda key, low: Box(low, low + 0.5, (3,)).sample(key)))
    samples = np.asarray(sample(jax.random.split(KEY, 5), lows))
    assert ((samples >= lows[:, None]) & (samples <= lows[:, None] + 0.5)).all()


def test_gradients_pass_through_the_bounds():
    def mean(high):
        return Box([0.0, 0.0], [high, jnp.inf]).sample(KEY, (100,)).mean()

    assert (
        0.2 < jax.jit(jax.grad(mean))(2.0) < 0.3
    )  # a quarter: half of the elements, half of the range


def test_traced_bounds_are_neither_compared_nor_hashed():
    @jax.jit
    def run(high):
        box = Box(0.0, high)
        assert box == box and box != Box(0.0, high, (2,))
        for use in (lambda: box == Box(0.0, 1.0), lambda: hash(box)):
            with pytest.raises(SpaceError, match="traced"):
                use()
        return high

    run(1.0)


# Dtypes, start-up


@NAMED
def test_dtypes_do_not_depend_on_x64(space):
    def both_ways(key):
        value = space.sample(key)
        flat = space.flatten(value)
        return (value, flat), space.contains(value), space.unflatten(flat)

    narrow, _, _ = jax.device_get(jax.jit(both_ways)(KEY))
    with x64():
        wide, is_inside, restored = jax.device_get(jax.jit(both_ways)(KEY))
    assert is_inside
    assert_same_trees(restored, wide[0])
    assert_same_trees(narrow, wide)


def test_64_bit_boxes_need_x64_and_are_never_narrowed():
    real, whole = Box(-1.0, 1.0, (2,), np.float64), Box(-(2**63), 2**63 - 1, (2,), np.int64)
    for space in (real, whole):
        assert space.contains(np.zeros(2, space.dtype))
        for use in (space.sample, lambda _, s=space: s.flatten(np.zeros(2, s.dtype))):
            with pytest.raises(SpaceError, match="jax_enable_x64"):
                use(KEY)
    with x64():
        for space in (real, whole, Box(0, 2**64 - 1, (), np.uint64), Box(0, 10**12, dtype=int)):
            samples = draw(space, (1000,))
            assert samples.dtype == space.dtype
            assert jax.jit(jax.vmap(space.contains))(samples).all()
            ends = (float(space.low.min()), float(space.high.max()))
            uniform = stats.uniform(ends[0], ends[1] - ends[0]).cdf
            assert stats.kstest(np.asarray(samples, float).ravel(), uniform).pvalue > 1e-3


def test_describing_spaces_starts_no_backend():
    program = """
import numpy as np
from jax._src import xla_bridge
from jaxenvs.spaces import *
space = Dict(a=Box([0.0, -np.inf], 1.0).batch(7), b=Tuple([Discrete(3), MultiDiscrete([2, 3])]))
space = Dict(c=space, d=MultiBinary(4)).batch(3)
repr(space), hash(space), space == space, space.flat_dim, space.flatten_space()
assert not xla_bridge._backends, "a backend was started"
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_the_flat_size_is_exact_for_huge_spaces():
    assert Discrete(2**31 - 1).batch(1000).flat_dim == 1000 * (2**31 - 1)
    assert Box(0.0, 1.0, (3, 4)).flat_dim == math.prod((3, 4))
