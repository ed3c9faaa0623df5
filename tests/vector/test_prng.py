"""The unrolled generator has the bits of JAX's own and is used only where it is faster."""

import functools
import time

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from jax.sharding import PartitionSpec as P

import jaxenvs
from jaxenvs import prng, spaces
from jaxenvs._cpu import barrier, threefry
from jaxenvs.core import Environment, TimeStep
from jaxenvs.errors import RandomKeyError
from tests.ids import every_nth

pytestmark = pytest.mark.bitwise

STOCK = "threefry2x32"
LOGITS = np.array([0.1, -1.0, 2.0, 0.5], np.float32)

DRAWS = {
    "bits of 8": lambda key: jax.random.bits(key, (7,), jnp.uint8),
    "bits of 16": lambda key: jax.random.bits(key, (2, 3), jnp.uint16),
    "bits of 32": lambda key: jax.random.bits(key, (2, 3), jnp.uint32),
    "uniform": lambda key: jax.random.uniform(key, (3, 5), jnp.float32),
    "one uniform": lambda key: jax.random.uniform(key, (), jnp.float32),
    "no uniform": lambda key: jax.random.uniform(key, (0,), jnp.float32),
    "normal": lambda key: jax.random.normal(key, (9,), jnp.float32),
    "randint": lambda key: jax.random.randint(key, (4,), -3, 1000, jnp.int32),
    "one randint": lambda key: jax.random.randint(key, (), 0, 7, jnp.uint8),
    "permutation": lambda key: jax.random.permutation(key, 11),
    "categorical": lambda key: jax.random.categorical(key, LOGITS),
    "choice": lambda key: jax.random.choice(key, 10, (4,), replace=False),
    "bernoulli": lambda key: jax.random.bernoulli(key, 0.3, (9,)),
    "exponential": lambda key: jax.random.exponential(key, (3,), jnp.float32),
    "split": lambda key: jax.random.split(key, (2, 3)),
    "fold_in": lambda key: [jax.random.fold_in(key, i) for i in (0, 1, 2**31, 2**32 - 1)],
    "fold_in of an array": lambda key: jax.vmap(lambda i: jax.random.fold_in(key, i))(
        jnp.arange(-2, 2, dtype=jnp.int32)
    ),
    "a chain": lambda key: jax.random.uniform(
        jax.random.fold_in(jax.random.split(jax.random.split(key)[1], 3)[2], 5), (3,), jnp.float32
    ),
}
WIDE_DRAWS = {
    "bits of 64": lambda key: jax.random.bits(key, (3,), jnp.uint64),
    "uniform": lambda key: jax.random.uniform(key, (3,), jnp.float64),
    "normal": lambda key: jax.random.normal(key, (3,), jnp.float64),
    "randint": lambda key: jax.random.randint(key, (3,), -(2**40), 2**40, jnp.int64),
}


@pytest.fixture(params=[True, False], ids=["barrier", "loop"])
def fusion_barrier(request, monkeypatch):
    """Runs a test with each way to prevent fusion, whichever this version of JAX needs."""
    monkeypatch.setattr(barrier, "BARRIER_STOPS_FUSION", request.param)
    jax.clear_caches()
    yield request.param
    jax.clear_caches()


def unrolled(key):
    return jax.random.wrap_key_data(jax.random.key_data(key), impl=threefry.UNROLLED)


def bits(tree):
    """Views `tree` as unsigned integers, so that comparisons are bitwise."""

    def of(leaf):
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return np.asarray(jax.random.key_data(leaf))
        leaf = np.asarray(leaf)
        return leaf.view(f"uint{8 * leaf.dtype.itemsize}")

    return jax.tree.map(of, tree)


def assert_same_draws(draw, seed):
    """Checks that both generators draw the same bits: eagerly, jitted, and for a batch of keys."""
    key = jax.random.key(seed)
    keys = jax.random.split(key, 5)
    chex.assert_trees_all_equal(bits(draw(unrolled(key))), bits(draw(key)))
    jitted = jax.jit(lambda key, keys: (draw(key), jax.vmap(draw)(keys)))
    chex.assert_trees_all_equal(
        bits(jitted(unrolled(key), unrolled(keys))), bits(jitted(key, keys))
    )


@pytest.mark.parametrize("name", every_nth(2, DRAWS))
def test_draws_have_the_bits_of_jax(name):
    assert_same_draws(DRAWS[name], seed=7)


def test_gamma_accepts_the_same_draws_as_jax():
    # Depending on the length of a loop, XLA computes logarithms one by one or vectorized. So even
    # JAX's own gamma of a batch of keys differs from its gamma of single keys by a few units in the
    # last place. Accepting a different draw would give a completely different number.
    def draw(key):
        return jax.random.gamma(key, 1.7, (2,), jnp.float32)

    keys = jax.random.split(jax.random.key(7), 5)
    chex.assert_trees_all_equal(bits(draw(unrolled(keys[0]))), bits(draw(keys[0])))
    batch = jax.jit(jax.vmap(draw))
    chex.assert_trees_all_close(batch(unrolled(keys)), batch(keys), rtol=2e-6)


@pytest.mark.parametrize("name", WIDE_DRAWS)
def test_64_bit_draws_have_the_bits_of_jax(name):
    with jax.enable_x64(True):
        assert_same_draws(WIDE_DRAWS[name], seed=2**63 - 1)


@pytest.mark.parametrize("wide", [False, True], ids=["32", "64"])
@pytest.mark.parametrize("seed", [0, 1, -1, 2**31, 2**32 - 1, -(2**31), 2**63 - 1, -(2**63)])
def test_seeds_give_the_keys_of_jax(seed, wide):
    with jax.enable_x64(wide):
        key = jax.random.key(seed, impl=STOCK)
        assert_key_data_equal(jax.random.key(seed, impl=threefry.UNROLLED), key)
        draws = DRAWS["bits of 32"]
        chex.assert_trees_all_equal(draws(unrolled(key)), draws(key))


def assert_key_data_equal(one, other):
    chex.assert_trees_all_equal(jax.random.key_data(one), jax.random.key_data(other))


def test_derivatives_of_draws_match_jax():
    def moved(scale, key):
        return jnp.sum(scale * jax.random.normal(key, (3,), jnp.float32))

    key = jax.random.key(0)
    slopes = [jax.jit(jax.grad(moved))(jnp.float32(2), k) for k in (key, unrolled(key))]
    chex.assert_trees_all_equal(slopes[0], slopes[1])


@pytest.mark.optimized
def test_key_conversion_round_trip():
    key = jax.random.key(3)
    quick = prng.as_fast_key(key)
    assert prng.is_unrolled(quick) and not prng.is_unrolled(key)
    back = prng.as_standard_keys(quick)
    assert back.dtype == key.dtype
    assert_key_data_equal(back, key)


def test_raw_keys_equal_typed_keys():
    raw = jax.random.PRNGKey(3)
    for raw_key in (raw, np.asarray(raw)):
        assert_key_data_equal(prng.as_fast_key(raw_key), jax.random.key(3))


@pytest.mark.parametrize("name", every_nth(3, ["split", "permutation", "a chain"], first=2))
def test_barriers_do_not_change_bits(name, fusion_barrier):
    assert_same_draws(DRAWS[name], seed=7)


def test_shard_map_with_a_key_per_device(fusion_barrier):
    mesh = jax.sharding.Mesh(jax.devices()[:2], ("devices",))

    @jax.jit
    @functools.partial(jax.shard_map, mesh=mesh, in_specs=P("devices"), out_specs=P("devices"))
    def draw(number):
        kinds = jax.random.key(0), unrolled(jax.random.key(0))
        same, own = ([jax.random.fold_in(key, x) for key in kinds] for x in (7, number[0]))
        return [jax.random.normal(key, (1, 3), jnp.float32) for key in (*same, *own)]

    same, same_unrolled, own, own_unrolled = jax.device_get(draw(np.arange(2, dtype=np.int32)))
    chex.assert_trees_all_equal(same, same_unrolled)
    chex.assert_trees_all_equal(own, own_unrolled)
    assert (own[0] != own[1]).all()


@pytest.mark.optimized
def test_draw_with_several_uses_is_computed_once():
    def uses(key):
        noise = jax.random.normal(prng.as_fast_key(key), (64,), jnp.float32)
        return noise.sum(), jnp.cumsum(noise), noise[::-1] * 2, jnp.sort(noise)

    keys = jax.random.split(jax.random.key(0), 16)
    text = jax.jit(jax.vmap(uses)).lower(keys).compile().as_text()
    assert text.count("shift-left(") == 20  # one per round


def test_accelerators_keep_the_standard_generator(monkeypatch):
    key = jax.random.key(0)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert prng.as_fast_key(key) is key


def test_nonpartitionable_threefry_keeps_the_standard_generator():
    key = jax.random.key(0)
    with jax.threefry_partitionable(False):
        assert prng.as_fast_key(key) is key


@pytest.mark.parametrize("impl", ["rbg", "unsafe_rbg"])
def test_keys_of_other_generators_are_hashed_into_threefry_keys(impl):
    keys = jax.random.split(jax.random.key(0, impl=impl), 4)
    hashed = prng.as_typed_key(keys)
    assert str(jax.random.key_impl(hashed)) == "threefry2x32"
    words = {tuple(row) for row in np.asarray(jax.random.key_data(hashed)).tolist()}
    assert len(words) == 4
    chex.assert_trees_all_equal(hashed[1], prng.as_typed_key(keys[1]))
    chex.assert_trees_all_equal(prng.as_typed_key(jax.random.key_data(keys)), hashed)


def test_split_and_fold_in_cannot_produce_derived_keys():
    key = jax.random.key(3)
    # `split` and `fold_in` use the domain 0.
    chex.assert_trees_all_equal(prng.derive(key, 0, 7), jax.random.fold_in(key, 7))
    assert prng.derive(key, 0, 7) != prng.derive(key, 1, 7)
    same = prng.as_standard_keys(prng.derive(prng.as_fast_key(key), 5, 7))
    chex.assert_trees_all_equal(same, prng.derive(key, 5, 7))


def test_as_standard_keys_converts_only_keys():
    keys = jax.random.split(jax.random.key(0), 3)
    tree = {"new": unrolled(keys), "old": (keys, None), "count": jnp.arange(3), "number": 7}
    back = prng.as_standard_keys(tree)
    assert back["new"].dtype == keys.dtype and back["old"][0] is keys and back["number"] == 7
    assert_key_data_equal(back["new"], keys)
    chex.assert_trees_all_equal(back["count"], jnp.arange(3))


@pytest.mark.parametrize(
    ("given", "word"),
    [
        (0, "int"),
        (None, "NoneType"),
        (np.zeros(2, np.float32), "float32[2]"),
        (np.zeros(3, np.uint32), "uint32[3]"),
        ("seed", "str"),
    ],
)
def test_non_keys_are_rejected(given, word):
    with pytest.raises(RandomKeyError) as refused:
        prng.as_typed_key(given)
    assert f"got {word}." in str(refused.value) and "jax.random.key" in str(refused.value)


def test_chained_draws_compile_in_seconds():
    # If draws fuse into each other, compilation takes minutes, because each use of a draw repeats
    # all of its rounds. The salt makes a program that is not in any compilation cache.
    salt = time.time_ns() % 2**31

    def chain(key):
        _, key = jax.random.split(prng.as_fast_key(key))
        key, draw_key = jax.random.split(key)
        key = jax.random.fold_in(key, salt)
        draw = jax.random.uniform(draw_key, (4,), jnp.float32)
        return draw, jax.random.uniform(jax.random.split(key)[1], (4,), jnp.float32)

    keys = jax.random.split(jax.random.key(0), 16)
    written = jax.config.jax_persistent_cache_min_compile_time_secs
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 1e9)
    try:
        lowered = jax.jit(jax.vmap(chain)).lower(keys)
        start = time.perf_counter()
        lowered.compile()
        assert time.perf_counter() - start < 20
    finally:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", written)


class Shower(Environment[jax.Array]):
    """An environment that draws from `jax.random.poisson`, which accepts only JAX's generators."""

    @property
    def observation_space(self):
        return spaces.Box(0, 1000, (), jnp.int32)

    @property
    def action_space(self):
        return spaces.Discrete(2)

    def reset(self, key):
        drops = jax.random.poisson(key, 3.0, (), jnp.int32)
        return drops, TimeStep.first(drops)

    def step(self, state, action, key):
        del action
        drops = state + jax.random.poisson(key, 3.0, (), jnp.int32)
        return drops, TimeStep.transition(drops, reward=0.0, terminated=drops > 8)


def test_environment_with_poisson_draws_works_in_a_batch():
    env, num_envs = Shower(), 4
    vector_env = jaxenvs.vectorize(env, num_envs)
    reset_key, step_key = jax.random.split(jax.random.key(0))
    state, timestep = jax.jit(vector_env.reset)(reset_key)
    fold = jax.jit(jax.vmap(jax.random.fold_in, (None, 0)))
    indices, actions = np.arange(num_envs), np.zeros(num_envs, np.int32)
    reset, step = jax.jit(jax.vmap(env.reset)), jax.jit(jax.vmap(env.step))
    chex.assert_trees_all_equal(state, reset(fold(reset_key, indices))[0])
    stepped = jax.jit(vector_env.step)(state, actions, step_key)[1]
    alone = step(timestep.observation, actions, fold(step_key, indices))[1]
    chex.assert_trees_all_equal(stepped.final_observation, alone.observation)


@given(n=st.integers(1, 2**31 - 1))
@example(1)
@example(2**16 - 1)
@example(2**16)
@example(2**31 - 1)
def test_randint_is_the_upper_half_of_the_product(n):
    key = jax.random.key(n)
    words = np.asarray(jax.random.bits(key, (64,), jnp.uint32)).astype(np.uint64)
    draw = prng.randint(key, (64,), jnp.int32(n))
    assert draw.dtype == jnp.int32
    np.testing.assert_array_equal(draw, words * np.uint64(n) >> np.uint64(32))


@pytest.mark.parametrize("num_bits", [1, 2, 5, 16, 32])
def test_random_digits_are_those_of_the_words(num_bits):
    key, shape, per_word = jax.random.key(4), (3, 7), 32 // num_bits
    words = np.asarray(jax.random.bits(key, (-(-21 // per_word),), jnp.uint32))
    expected = [
        int(word) >> place * num_bits & 2**num_bits - 1
        for word in words
        for place in range(per_word)
    ]
    digits = prng.random_digits(key, shape, num_bits)
    assert digits.dtype == jnp.uint32 and digits.shape == shape
    assert digits.reshape(-1).tolist() == expected[:21]
